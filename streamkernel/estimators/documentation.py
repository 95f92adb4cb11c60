"""What the docstrings of several estimators and of their methods have in common, written once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from streamkernel.estimators.shared_texts import ESTIMATOR, METHODS

Class = TypeVar("Class", bound=type)

_SECTIONS = ("Parameters", "Attributes", "Returns", "Raises", "References", "Examples")
"""The sections of a docstring, in their order."""


def documented(shared: str = ESTIMATOR, methods: Mapping[str, str] = METHODS) -> Callable[[Class], Class]:
    """Complete the docstrings of a class and of its own methods by what the shared ones describe too.

    Paragraphs are added to the summary. A section or an entry of the class's own docstring has precedence. Of the
    shared parameters and attributes, a docstring gets the ones of its method or class.

    Parameters
    ----------
    shared
        The shared docstring of classes.
    methods
        The shared docstrings of methods, by name.

    Examples
    --------
    >>> @documented(methods={"learn_one": "Parameters\\n----------\\nx : dict\\n    The features.\\n"})
    ... class Model:
    ...     def learn_one(self, x, y):
    ...         '''Learn.
    ...
    ...         Parameters
    ...         ----------
    ...         y : float
    ...             The target.
    ...         '''
    >>> print(Model.learn_one.__doc__)
    Learn.
    <BLANKLINE>
    Parameters
    ----------
    x : dict
        The features.
    y : float
        The target.
    <BLANKLINE>
    """

    def decorate(cls: Class) -> Class:
        cls.__doc__ = _completed(cls.__doc__, shared, list(inspect.signature(cls).parameters), dir(cls))
        for name in methods.keys() & vars(cls).keys():
            method = vars(cls)[name]
            parameters = list(inspect.signature(getattr(method, "fget", method)).parameters)
            method.__doc__ = _completed(method.__doc__, methods[name], parameters, [])
        return cls

    return decorate


def _completed(own: str | None, shared: str, parameters: list[str], attributes: list[str]) -> str | None:
    """Return a docstring with what it lacks of a shared one; Python leaves docstrings out with the option -OO."""
    if own is None:
        return None
    (summary, *sections), (more, *others) = _parts(own), _parts(shared)
    found = dict(zip(sections[::2], sections[1::2], strict=True))
    for title, body in zip(others[::2], others[1::2], strict=True):
        if title not in ("Parameters", "Attributes", "Raises"):
            found.setdefault(title, body)
            continue
        entries = _entries(found.get(title, ""))
        known = {name for names in entries for name in names}
        for names, text in _entries(body).items():
            exist = title == "Raises" or set(names) <= set(parameters if title == "Parameters" else attributes)
            if exist and not known & set(names):
                entries[names] = text
        if title == "Parameters":
            entries = dict(sorted(entries.items(), key=lambda entry: parameters.index(entry[0][0])))
        if entries:
            found[title] = "".join(entries.values())
    texts = [f"{title}\n{'-' * len(title)}\n{found[title].strip()}\n" for title in _SECTIONS if title in found]
    return "\n".join([part.strip() + "\n" for part in (summary, more) if part.strip()] + texts)


def _parts(docstring: str) -> list[str]:
    """Return the summary of a docstring, and the title and the body of each section."""
    return re.split(r"^([A-Z]\w+)\n-{3,}\n", inspect.cleandoc(docstring) + "\n", flags=re.MULTILINE)


def _entries(body: str) -> dict[tuple[str, ...], str]:
    """Return the entries of a section by the names that each describes."""
    entries = [entry.strip() + "\n" for entry in re.split(r"^(?=\S)", body, flags=re.MULTILINE) if entry.strip()]
    return {tuple(re.split(r" : |\n", entry)[0].split(", ")): entry for entry in entries}
