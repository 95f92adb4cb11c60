"""The docstrings that `documented` completes, for Griffe, which reads the source and does not run it."""

from __future__ import annotations

import inspect
from typing import Any

import griffe


class CompletedDocstrings(griffe.Extension):  # type: ignore[misc]
    """Reads the docstrings of decorated classes, their methods and decorated functions from these themselves."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Replace the docstrings of a class that has the decorator."""
        if not any(str(decorator.value).startswith("documented") for decorator in cls.decorators):
            return
        found = griffe.dynamic_import(cls.path)
        for thing, part in [(found, cls), *((vars(found).get(name), one) for name, one in cls.members.items())]:
            if part.docstring is not None and thing.__doc__ is not None:
                part.docstring.value = inspect.cleandoc(thing.__doc__)

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Replace the docstring of a function that has the decorator."""
        if any(str(decorator.value).startswith("documented") for decorator in func.decorators):
            func.docstring.value = inspect.cleandoc(griffe.dynamic_import(func.path).__doc__)
