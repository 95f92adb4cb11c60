"""Values from a table, checked against the annotation of the parameter they are for."""

from __future__ import annotations

import collections.abc
import datetime as dt
import inspect
import json
import os
import types
import typing
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter, ValidationError

_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    dict: "a table",
    collections.abc.Mapping: "a table",
    Path: "a path",
    **dict.fromkeys((list, tuple, set, frozenset, collections.abc.Sequence), "a list"),
}

_BY_DEFAULT: dict[type, Any] = {bool: bool, int: int | float, float: int | float, str: str}
_ANYTHING = ("pos_val",)  # a label: its default, True, says nothing of its type


def parameters_of(kind: Any) -> dict[str, inspect.Parameter]:
    """Return the named parameters of a class, with resolved annotations.

    Without an annotation, the type is that of the default. What cannot be resolved is ``Any``.

    Examples
    --------
    >>> class Scale:
    ...     def __init__(self, x: "int | None", y: "Unheard", center=True, *rest) -> None: ...
    >>> [parameter.annotation for parameter in parameters_of(Scale).values()]
    [int | None, typing.Any, <class 'bool'>]
    """
    known = inspect.signature(kind).parameters
    return {
        name: parameter.replace(annotation=_resolve(parameter, kind.__init__))
        for name, parameter in known.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }


def _resolve(parameter: inspect.Parameter, function: Any) -> Any:
    if parameter.annotation is parameter.empty:
        return Any if parameter.name in _ANYTHING else _BY_DEFAULT.get(type(parameter.default), Any)
    holder = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return typing.get_type_hints(holder, globalns=function.__globals__)[parameter.name]
    except (NameError, AttributeError, SyntaxError, TypeError):
        return Any


def expectation(annotation: Any) -> str:
    """Return a description of the values that a table can hold for an annotation; empty if there are none.

    Examples
    --------
    >>> expectation(float | Literal["median"] | None), expectation(print)
    ('a number or "median"', '')
    """
    if annotation is Any:
        return "a value"
    if get_origin(annotation) in (Union, types.UnionType):
        parts = get_args(annotation)
        words = [expectation(part) for part in parts if not (part is int and float in parts)]
        return " or ".join(dict.fromkeys(filter(None, words)))
    if get_origin(annotation) is tuple and ... not in get_args(annotation):
        return f"a list of {len(get_args(annotation))}"
    if get_origin(annotation) is Literal:
        return " or ".join(json.dumps(choice) for choice in get_args(annotation))
    return _WORDS.get(get_origin(annotation) or annotation, "")


def takes_strings(annotation: Any) -> bool:
    """Return whether some strings fit an annotation.

    Examples
    --------
    >>> takes_strings(str | int), takes_strings(int | None)
    (True, False)
    """
    if get_origin(annotation) in (Union, types.UnionType):
        return any(map(takes_strings, get_args(annotation)))
    if get_origin(annotation) is Literal:
        return any(isinstance(choice, str) for choice in get_args(annotation))
    return annotation in (Any, str)


def takes_numbers(annotation: Any) -> bool:
    """Return whether numbers fit an annotation.

    Examples
    --------
    >>> takes_numbers(float | str), takes_numbers(str | None)
    (True, False)
    """
    if get_origin(annotation) in (Union, types.UnionType):
        return any(map(takes_numbers, get_args(annotation)))
    return annotation in (Any, int, float)


def takes_paths(annotation: Any) -> bool:
    """Return whether paths fit an annotation.

    Examples
    --------
    >>> takes_paths(str | Path), takes_paths(str | os.PathLike[str]), takes_paths(str | None)
    (True, True, False)
    """
    is_path = annotation is Path or get_origin(annotation) is os.PathLike
    return is_path or any(map(takes_paths, get_args(annotation)))


def fit_value(value: Any, annotation: Any) -> Any:
    """Return a value in the type of the annotation: a list can become a set, 1 can become 1.0.

    ``True`` is not an integer, and ``"5"`` is not a number. A value whose type cannot be checked is passed unchanged.

    Raises
    ------
    ValueError
        If it does not fit; the message names the expected type.

    Examples
    --------
    >>> fit_value(["the", "a"], tuple[str, ...] | None)
    ('the', 'a')
    >>> fit_value("5", int)
    Traceback (most recent call last):
    ValueError: an integer
    """
    if isinstance(value, (dt.date, dt.time)) and annotation is not Any:
        raise ValueError(expectation(annotation))
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True))
    except Exception:  # pydantic has many ways to say that it does not know a type
        return value
    try:
        return adapter.validate_json(json.dumps(value, default=str), strict=True)
    except ValidationError:
        raise ValueError(expectation(annotation)) from None
