"""The docstrings of public names follow numpydoc; ruff checks their form, this test what is in them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from numpydoc.docscrape import get_doc_object
from numpydoc.validate import Validator, validate

import streamkernel
from streamkernel import (
    connectors,
    engine,
    interop,
    kernels,
    learners,
    losses,
    plot,
    research,
    rules,
    sklearn,
    solvers,
    step_sizes,
    upkeep,
)
from streamkernel.interop import mlflow

BY_EXTRA = (plot, sklearn, solvers, engine, interop, mlflow)
MODULES = (streamkernel, kernels, learners, losses, research, rules, step_sizes, upkeep, connectors, *BY_EXTRA)
NOT_ASKED = {
    "ES01": "a summary may say all",
    "EX01": "an example for each class, not for each method",
    "PR08": "a description may begin with a symbol of the formula",
    "RT01": "the summary says what is returned",
    "SA01": "the reference links to what is near",
    "SS02": "a summary may begin with a formula",
    "SS05": "a class is described by what it does",
    "YD01": "the summary says what is yielded",
}
"""Checks of numpydoc that are left out, and why."""

OF_INTERFACES = ("streamkernel.connectors.", "streamkernel.kernels.", "streamkernel.losses.", "streamkernel.upkeep.")
"""Modules whose methods implement those of a base class, which documents their parameters."""


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


def asked(name: str, code: str, message: str) -> bool:
    """Return whether an error of numpydoc counts."""
    thing = Validator(get_doc_object(Validator._load_obj(name))).obj
    undocumented = re.findall(r"'(\**\w+)'", message)
    if code == "PR01":
        of_an_interface = name.startswith(OF_INTERFACES) and name.count(".") > 1 and not inspect.isclass(thing)
        without_arguments = set(undocumented) <= {"*args", "**kwargs"}  # protocols, aliases, River's predict_one
        return not (of_an_interface or without_arguments)
    return code not in NOT_ASKED


@pytest.mark.parametrize("name", sorted(public()))
def test_the_docstring_follows_numpydoc(name: str) -> None:
    assert [error for error in validate(name)["errors"] if asked(name, *error)] == []


def documented(name: str) -> Iterator[tuple[str, str, inspect.Parameter]]:
    """Yield the name, the type and the signature of each documented parameter."""
    doc = Validator(get_doc_object(Validator._load_obj(name)))
    if not doc.doc_parameters:
        return
    signature = inspect.signature(doc.obj).parameters
    for names, (kind, _) in doc.doc_parameters.items():
        for one in names.split(", "):
            if one in signature:
                yield one, kind, signature[one]


@pytest.mark.parametrize("name", sorted(public()))
def test_types_of_parameters_have_defaults_and_shapes(name: str) -> None:
    for parameter, kind, signature in documented(name):
        has_default = signature.default is not inspect.Parameter.empty and not callable(signature.default)
        assert not has_default or ", default " in kind, parameter
        assert parameter != "X" or " of shape (" in kind, parameter


CLASSES = sorted(
    {f"{m.__name__}.{n}" for m in (streamkernel, kernels, sklearn, solvers) for n in m.__all__ if n[0].isupper()}
)


@pytest.mark.parametrize("name", [name for name in CLASSES if not name.endswith("Error")])
def test_a_class_has_an_example_and_describes_its_parameters(name: str) -> None:
    assert not {code for code, _ in validate(name)["errors"]} & {"EX01", "PR01"}
