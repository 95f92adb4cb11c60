"""Conversions of values to declared types; what does not fit raises an error that names type and value."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from streamkernel.errors import InputError
from streamkernel.field_types.declared import DeclaredType
from streamkernel.field_types.number_texts import read_number
from streamkernel.field_types.times import TimeUnitError, seconds_since_1970

LONGEST_VECTOR = 4096
"""Largest number of components of a vector, and of different words of a text."""

_WORD = re.compile(r"\w+")


def as_category(value: Any) -> str:
    """Return the category of a text or a number; 3 and 3.0 are the same.

    Examples
    --------
    >>> as_category("V45"), as_category(3), as_category(3.0), as_category(2.5), as_category(True)
    ('V45', '3', '3', '2.5', 'True')
    """
    if isinstance(value, float) and value.is_integer():
        return str(int(value)) if abs(value) < 1e15 else str(value)
    return str(value)


def convert(name: str, value: Any, declared: DeclaredType, length: int | None) -> dict[str, Any]:
    """Return the inputs that a value of a declared field stands for.

    Raises
    ------
    InputError
        If it does not fit.

    Examples
    --------
    >>> convert("note", "A river, a stream", DeclaredType("text"), None)
    {'note=a': 1.0, 'note=river': 1.0, 'note=stream': 1.0}
    >>> convert("at", "1970-01-02", DeclaredType("time"), None)
    {'at': 86400.0}
    >>> convert("v", [1, 2.5], DeclaredType("vector"), None)
    {'v.0': 1.0, 'v.1': 2.5}
    """
    if declared.type == "vector":
        return _vector(name, value, length)
    if declared.type == "text":
        return _words(name, _scalar(name, value, "text", as_category))
    if declared.type == "time":
        return {name: _seconds(name, value, declared)}
    if declared.type == "category":
        return {name: _scalar(name, value, "category", as_category)}
    return {name: _scalar(name, value, "number", _number)}


def _scalar(name: str, value: Any, wanted: str, convert_value: Callable[[Any], Any]) -> Any:
    """Return a converted text or number."""
    if isinstance(value, np.generic):
        value = value.item()
    found = convert_value(value) if isinstance(value, (str, int, float)) else None
    if found is None:
        raise _unfit(name, value, wanted)
    return found


def _number(value: float | str) -> float | int | None:
    if not isinstance(value, str):
        return value
    number = read_number(value)
    if number is not None:
        return number.value
    text = value.strip()
    return float(text) if text.isascii() and text.isdecimal() else None  # leading zeros


def _words(name: str, text: str) -> dict[str, Any]:
    words = dict.fromkeys(_WORD.findall(text.lower()), 1.0)
    if len(words) > LONGEST_VECTOR:
        limit = f"{LONGEST_VECTOR:,} different words"
        raise InputError(f'Expected a text of at most {limit}, got {len(words):,} - at field "{name}"')
    return {f"{name}={word}": value for word, value in words.items()}


def _seconds(name: str, value: Any, declared: DeclaredType) -> float:
    """Return a time as seconds since 1970."""
    try:
        return seconds_since_1970(value, declared.unit, declared.zone)
    except TimeUnitError as error:
        hint = "" if error.unit is None else f'; declare unit = "{error.unit}"'
        problem = f"{error}{hint}"
    except ValueError as error:
        problem = str(error)
    raise InputError(f'{problem} - at field "{name}"')


def _vector(name: str, value: Any, length: int | None) -> dict[str, Any]:
    if not isinstance(value, (list, tuple, np.ndarray)):
        raise _unfit(name, value, "vector")
    items = value.tolist() if isinstance(value, np.ndarray) else value
    expected = length or LONGEST_VECTOR
    if not 0 < len(items) <= expected or (length is not None and len(items) != length):
        wanted = f"{length:,} numbers" if length is not None else f"1 to {LONGEST_VECTOR:,} numbers"
        raise InputError(f'Expected a vector of {wanted}, got {len(items):,} - at field "{name}"')
    inputs = {}
    for i, item in enumerate(items):
        if isinstance(item, bool) or not (isinstance(item, (int, float)) or item is None):
            raise _unfit(f"{name}.{i}", item, "number of a vector")
        if item is not None and item == item:
            inputs[f"{name}.{i}"] = float(item) if abs(item) < math.inf else item
    return inputs


def _unfit(name: str, value: Any, wanted: str) -> InputError:
    text = repr(value)
    text = text if len(text) <= 60 else f"{text[:57]}..."
    return InputError(f'Expected a {wanted} as declared, got {type(value).__name__} {text} - at field "{name}"')
