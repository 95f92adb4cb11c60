"""The docstrings of public names follow numpydoc; ruff checks their form, this test what is in them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from numpydoc.validate import validate

import connectors
import streamkernel
from streamkernel import engine, kernels, learners, losses, research, rules, solvers, step_sizes, upkeep

MODULES = (streamkernel, kernels, learners, losses, research, rules, solvers, step_sizes, upkeep, engine, connectors)
NOT_ASKED = {
    "ES01": "a summary may say all",
    "EX01": "an example for each class, not for each method",
    "PR01": "a method of River has River's parameters",
    "PR04": "types are in the signature, which the reference shows",
    "PR08": "a description may begin with a symbol of the formula",
    "RT01": "the summary says what is returned",
    "SA01": "the reference links to what is near",
    "SS02": "a summary may begin with a formula",
    "SS05": "a class is described by what it does",
    "YD01": "the summary says what is yielded",
}
"""Checks of numpydoc that are left out, and why."""


def public() -> Iterator[str]:
    """Yield the public classes and functions, and the methods and properties that classes define."""
    for module in MODULES:
        for name in module.__all__:
            thing: Any = getattr(module, name)
            if not (inspect.isclass(thing) or inspect.isfunction(thing)):
                continue
            yield f"{module.__name__}.{name}"
            if inspect.isclass(thing):
                for attribute, value in vars(thing).items():
                    if not attribute.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                        yield f"{module.__name__}.{name}.{attribute}"


@pytest.mark.parametrize("name", sorted(public()))
def test_the_docstring_follows_numpydoc(name: str) -> None:
    assert [error for error in validate(name)["errors"] if error[0] not in NOT_ASKED] == []


CLASSES = sorted({f"{m.__name__}.{n}" for m in (streamkernel, kernels, solvers) for n in m.__all__ if n[0].isupper()})


@pytest.mark.parametrize("name", [name for name in CLASSES if not name.endswith("Error")])
def test_a_class_has_an_example_and_describes_its_parameters(name: str) -> None:
    assert not {code for code, _ in validate(name)["errors"]} & {"EX01", "PR01"}
