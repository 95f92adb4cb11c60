"""The page of kernels and losses: none is left out, and the two ways to write each mean the same."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from streamkernel import kernels
from streamkernel.engine.config.build import build
from streamkernel.engine.config.registry import objects_for

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "kernels_and_losses.md"
PARAMETERS = {
    name: re.findall(r"`(\w+)`", parameters)
    for classes, parameters in re.findall(r"^\| ((?:`[A-Z]\w+`(?:, )?)+) \| (`.*`) \|$", PAGE.read_text(), re.MULTILINE)
    for name in re.findall(r"`(\w+)`", classes)
}
FORMS = re.findall(r"^\| `([^`]*)` \| `(\{[^`]*\})` \|$", PAGE.read_text(), re.MULTILINE)
COMPOSED = {re.match(r'\{ type = "(\w+)"', form)[1] for _, form in FORMS}  # type: ignore[index]
CLASSES = {name: kind for kind in ("kernel", "loss") for name in objects_for(kind).classes}


def built(form: str, kind: str) -> Any:
    return build(tomllib.loads(f"it = {form}")["it"], objects_for(kind), kind)


@pytest.mark.parametrize(("python", "form"), FORMS, ids=[python for python, _ in FORMS])
def test_python_and_toml_are_equivalent(python: str, form: str) -> None:
    assert built(form, "kernel") == eval(python, {"kernels": kernels})


@pytest.mark.parametrize("name", sorted(CLASSES.keys() - COMPOSED))
def test_every_other_kernel_and_loss_has_its_parameters(name: str) -> None:
    kind = CLASSES[name]
    made = objects_for(kind).classes[name]
    assert PARAMETERS.get(name, []) == list(inspect.signature(made).parameters)
    assert built(f'{{ type = "{name}" }}', kind) == made()


def test_the_page_names_only_what_there_is() -> None:
    assert (PARAMETERS.keys() | COMPOSED) <= CLASSES.keys()


def test_every_kernel_and_every_loss_has_a_picture() -> None:
    drawn = {path.stem for path in (PAGE.parent / "pictures").glob("*.png")}
    assert drawn == set(re.findall(r"\]\(pictures/(\w+)\.png\)", PAGE.read_text()))
    assert len(drawn) == len(CLASSES)
