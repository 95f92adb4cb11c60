"""The page of kernels and losses: none is left out, and the two ways to write each mean the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from streamkernel import kernels, losses
from streamkernel.engine.config.build import build
from streamkernel.engine.config.registry import objects_for

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "kernels_and_losses.md"
FORMS = re.findall(r"^\| `([^`]*)` \| `(\{[^`]*\})` \|$", PAGE.read_text(), re.MULTILINE)


def built(form: str, kind: str) -> Any:
    return build(tomllib.loads(f"it = {form}")["it"], objects_for(kind), kind)


@pytest.mark.parametrize(("python", "form"), FORMS, ids=[python for python, _ in FORMS])
def test_python_and_toml_are_equivalent(python: str, form: str) -> None:
    kind = "loss" if python.startswith("losses") else "kernel"
    assert built(form, kind) == eval(python, {"kernels": kernels, "losses": losses})


def test_every_kernel_and_every_loss_has_a_form() -> None:
    named = {re.match(r'\{ type = "(\w+)"', form)[1] for _, form in FORMS}  # type: ignore[index]
    assert named == {name for kind in ("kernel", "loss") for name in objects_for(kind).classes}


def test_every_kernel_and_every_loss_has_a_picture() -> None:
    drawn = {path.stem for path in (PAGE.parent / "pictures").glob("*.png")}
    assert drawn == set(re.findall(r"\]\(pictures/(\w+)\.png\)", PAGE.read_text()))
    assert len(drawn) == len(FORMS)
