"""Declared types, and conversions of values to them; what does not fit raises an error that names type and value."""

from __future__ import annotations

import datetime as dt
import math
import re
import zoneinfo
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any, ClassVar, Self, cast, get_args

import numpy as np

from streamkernel.errors import InputError, shorten
from streamkernel.features.rows import is_missing
from streamkernel.field_types.number_texts import (
    COMMA,
    FEW,
    POINT,
    UNKNOWN,
    WHOLE,
    NumberText,
    TimeUnit,
    TimeUnitError,
    if_missing,
    is_marker,
    notation_of,
    read_any_number,
    seconds_since_1970,
)

WINDOW = 2048
"""Counts of a field are halved when it has more texts than this, so that newer ones weigh more."""
COMMON = 0.05
"""The share of whole numbers below 1,000 above which a field that shows no fractions has thousands apart."""
SIGNS = {".": POINT, ",": COMMA}
"""The notation by the sign before a fraction."""
TYPES = ("number", "category", "identifier", "text", "time", "vector", "ignore")
OF_TEXTS = ("category", "identifier", "text")
"""Types whose values are read from the texts that a source has, not from the numbers that these may look like."""
LABEL_TYPES = ("number", "category")
"""Types of a label."""
_KEYS = ("type", "unit", "zone", "decimal", "missing")
Spec = str | Mapping[str, Any]
"""The name of a type, or a table with its name as ``type`` and more keys."""
MOST_NAMES, LONGEST_NAME = 100_000, 160
"""Largest number of looked up names that are kept, and of characters in one."""
LONGEST_VECTOR = 4096
"""Largest number of components of a vector, and of different words of a text."""
LONGEST_INTEGER = 4096
"""Largest number of bits of an integer that is a category; Python refuses to write the longest."""
_TRUTH = {text: str(text).lower() for text in ("True", "False", "TRUE", "FALSE")}
_DIGITS, _LARGEST_FLOAT = 19, 1e300
_DATE = re.compile("(19[89]|20[0-9])[0-9](0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])")
_WORD = re.compile(r"\w+")


class Counts:
    """Counts of each field, one of which says from how many values they are."""

    _weight: ClassVar[int] = 0
    """The place of that count."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}

    def state(self) -> dict[str, list[int]]:
        """Return the counts of each field."""
        return {name: list(counts) for name, counts in sorted(self._counts.items())}

    def restore(self, counts: Mapping[str, Sequence[int]], names: Collection[str]) -> None:
        """Replace the counts of some fields, and forget others."""
        self._counts = {name: list(counts[name]) for name in names if name in counts}

    def join(self, counts: Mapping[str, Sequence[int]], names: Collection[str]) -> None:
        """Continue with the counts here or elsewhere, for each field the ones of more values."""
        at, ours = self._weight, self._counts
        self.restore(ours | {n: other for n, other in counts.items() if other[at] > ours.get(n, (0, 0))[at]}, names)


class Notations(Counts):
    """Reads texts of fields that are numbers, in the declared notation of each field, or the one that it learns.

    Examples
    --------
    >>> notations = Notations()
    >>> notations.read("p", "1.234").value
    1.234
    >>> notations.count("p", "1.234,50")
    >>> notations.read("p", "1.234").value, notations.read("p", "007").value
    (1234.0, 7.0)
    """

    def __init__(self, declared: Mapping[str, int] | None = None) -> None:
        super().__init__()
        self._declared = dict(declared or {})

    def read(self, name: str, text: str) -> NumberText | None:
        """Return the number that a text is, or ``None``."""
        return read_any_number(text, self.of(name))

    def of(self, name: str) -> int:
        """Return the notation of a field."""
        declared = self._declared.get(name, UNKNOWN)
        if declared or name not in self._counts:
            return declared
        n, evidence, n_whole = self._counts[name]
        return notation_of(evidence, n) or (WHOLE if n_whole > COMMON * n else UNKNOWN)

    def is_open(self, name: str) -> bool:
        """Return whether a field has many number texts and no notation."""
        return name in self._counts and self._counts[name][0] >= FEW and not self.of(name)

    def count(self, name: str, value: Any) -> None:
        """Learn from a value of a field."""
        number = self.read(name, value) if isinstance(value, str) else None
        if number is None:
            return
        counts = self._counts.setdefault(name, [0, 0, 0])
        counts[0] += 1
        counts[1] += number.notation
        is_whole = number.value.is_integer() and not number.notation and number.other_value is None
        counts[2] += is_whole and abs(number.value) < 1000.0
        if counts[0] > WINDOW:
            counts[:] = [int(count / 2) for count in counts]


@dataclass(frozen=True)
class DeclaredType:
    """A declared type.

    `type` is one of `TYPES`, `unit` of numeric times, `zone` of times without one; `notation` is the sign before a
    fraction in numbers that are written as text; `missing` are values that mean that there is none.
    """

    type: str
    unit: TimeUnit = "s"
    zone: dt.tzinfo = dt.UTC
    notation: int = UNKNOWN
    missing: frozenset[Any] = frozenset()


def declared_type(spec: Spec) -> DeclaredType:
    """Return the type that a user has declared.

    Raise a ValueError if there is no such type, or a key does not go with it; the message names the key first, if it is
    one.

    Examples
    --------
    >>> declared_type({"type": "time", "unit": "ms"}).unit
    'ms'
    >>> declared_type("float")
    Traceback (most recent call last):
    ValueError: expected one of "number", "category", "identifier", "text", "time", "vector", "ignore", got 'float'
    """
    table = {"type": spec} if isinstance(spec, str) else spec
    if not isinstance(table, Mapping):
        raise ValueError(f"expected the name of a type or a table, got {spec!r}")
    for key in table:
        if key not in _KEYS:
            raise ValueError(f"expected the keys {', '.join(_KEYS)}, got {key!r}")
    kind = table.get("type")
    if kind not in TYPES:
        raise ValueError(f"expected one of {_quoted(TYPES)}, got {'nothing' if kind is None else repr(kind)}")
    for key, wanted in (("unit", "time"), ("zone", "time"), ("decimal", "number")):
        if key in table and kind != wanted:
            raise ValueError(f'expected {key} with type = "{wanted}" only, got it with "{kind}"')
    if "decimal" in table and table["decimal"] not in SIGNS:
        raise ValueError(f"expected decimal to be one of {_quoted(SIGNS)}, got {table['decimal']!r}")
    unit: Any = table.get("unit", "s")
    zone = table.get("zone", "UTC")
    if unit not in get_args(TimeUnit):
        raise ValueError(f"expected the unit to be one of {_quoted(get_args(TimeUnit))}, got {unit!r}")
    try:
        time_zone = dt.UTC if zone == "UTC" else zoneinfo.ZoneInfo(zone)
    except (TypeError, ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise ValueError(f'expected the name of a time zone, as "Europe/Berlin", got {zone!r}') from None
    notation = SIGNS.get(table.get("decimal", ""), UNKNOWN)
    return DeclaredType(kind, cast("TimeUnit", unit), time_zone, notation, markers(table.get("missing", ())))


def markers(values: Iterable[Any]) -> frozenset[Any]:
    """Return the values that mean that there is none; numbers also as text.

    Raise a ValueError if one is neither a string nor a number.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"expected a list of strings and numbers as missing, got {values!r}")
    for value in (values := list(values)):
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ValueError(f"expected strings and numbers as missing, got {value!r}")
    numbers = [value for value in values if not isinstance(value, str)]
    return frozenset([*values, *map(str, numbers), *map(str, map(float, numbers))])


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


class ByPath(dict[Any, bool]):
    """Whether each field is meant, by its name or by the nearest object around it; a name that is not meant is false.

    `names` are meant with the fields inside, `single` without them.

    Examples
    --------
    >>> ignored = ByPath({"user": True, "user.age": False})
    >>> [ignored[name] for name in ("user", "user.town.zip", "user.age", "user.age.unit", "users", "size")]
    [True, True, False, False, False, False]
    """

    def __init__(self, names: Mapping[Any, bool], single: Iterable[Any] = ()) -> None:
        super().__init__(dict.fromkeys(single, True) | dict(names))
        self._names, self._single = dict(names), tuple(single)
        self._around = sorted(
            ((f"{name}.", is_meant) for name, is_meant in names.items()), key=lambda around: -len(around[0])
        )

    def __deepcopy__(self, memo: object) -> Self:
        """Return this table, whose answers stay as they are."""
        return self

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        """Return the table without looked up names, for another process or a file."""
        return type(self), (self._names, self._single)

    def __missing__(self, name: Any) -> bool:
        """Return the value of the nearest object around a field, and keep it."""
        if not isinstance(name, str):
            return False
        is_meant = next((value for path, value in self._around if name.startswith(path)), False)
        if len(self) < MOST_NAMES and len(name) <= LONGEST_NAME:
            self[name] = is_meant
        return is_meant


class VectorLengthError(InputError):
    """A vector of another length than most vectors of its field."""


def plain(value: Any) -> Any:
    """Return a number of NumPy, a decimal or a fraction as a number of Python, and other values unchanged.

    Examples
    --------
    >>> plain(np.float32(0.5)), plain(Decimal("7")), plain(Decimal("1.50")), plain("7")
    (0.5, 7, 1.5, '7')
    """
    kind = type(value)
    if kind is float or kind is int or kind is str:
        return value
    if isinstance(value, (np.number, np.bool_, np.str_)) or (isinstance(value, np.ndarray) and not value.ndim):
        value = value.item()
    if isinstance(value, Decimal):
        is_integer = value.is_finite() and 0 <= value.adjusted() < _DIGITS and value == int(value)
        return int(value) if is_integer or value == 0 else float(value)
    return float(value) if isinstance(value, Real) and not isinstance(value, (int, float)) else value


def as_category(value: Any) -> str | None:
    """Return the category of a text or a number, or ``None`` for infinity and for an integer of thousands of digits.

    3 and 3.0 are the same, and so are True, "True" and "true".

    Examples
    --------
    >>> as_category("V45"), as_category(3), as_category(3.0), as_category(2.5), as_category(True), as_category("True")
    ('V45', '3', '3', '2.5', 'true', 'true')
    """
    if isinstance(value, float):
        if math.isinf(value):
            return None
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else str(value)
    if isinstance(value, int) and value.bit_length() > LONGEST_INTEGER:
        return None
    text = str(value)
    return _TRUTH.get(text, text)


def convert(
    name: str, value: Any, declared: DeclaredType, length: int | None = None, notation: int = UNKNOWN
) -> dict[str, Any]:
    """Return the inputs that a value of a declared field stands for.

    `length` is the length of a vector, if it is known, and `notation` the notation of numbers that are written as text.
    Raise an InputError if the value does not fit.

    Examples
    --------
    >>> convert("note", "A river, a stream", DeclaredType("text"))
    {'note=a': 1.0, 'note=river': 1.0, 'note=stream': 1.0}
    >>> convert("at", "1970-01-02", DeclaredType("time"))
    {'at': 86400.0}
    >>> convert("v", [1, 2.5], DeclaredType("vector"))
    {'v.0': 1.0, 'v.1': 2.5}
    """
    value = plain(value)
    if declared.type == "vector":
        return _vector(name, value, length)
    if declared.type == "text":
        return _words(name, _scalar(name, value, "text", as_category))
    if declared.type == "time":
        return {name: _seconds(name, value, declared)}
    if declared.type == "category":
        return {name: _scalar(name, value, "category", as_category)}
    return {name: _scalar(name, value, "number", lambda value: _number(value, notation))}


def vector_length(value: Any) -> int | None:
    """Return the length of a vector, or ``None`` if it can be none."""
    is_vector = isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim == 1)
    return len(value) if is_vector and 0 < len(value) <= LONGEST_VECTOR else None


def _scalar(name: str, value: Any, wanted: str, convert_value: Callable[[Any], Any]) -> Any:
    """Return a converted text or number."""
    converted = convert_value(value) if isinstance(value, (str, int, float)) else None
    if converted is None:
        raise _unfit(name, value, wanted, _hint(value))
    return converted


def _number(value: float | str, notation: int) -> float | int | None:
    if not isinstance(value, str):
        return value
    number = read_any_number(value, notation)
    return None if number is None else number.value


def _words(name: str, text: str) -> dict[str, Any]:
    words = dict.fromkeys(_WORD.findall(text.lower()), 1.0)
    if len(words) > LONGEST_VECTOR:
        limit = f"{LONGEST_VECTOR:,} different words"
        raise InputError(f'Expected a text of at most {limit}, got {len(words):,} - at field "{name}"')
    return {f"{name}={word}": value for word, value in words.items()}


def _seconds(name: str, value: Any, declared: DeclaredType) -> float:
    """Return a time as seconds since 1970; the integer 20260724 is a date, as its text is."""
    if declared.unit == "s" and type(value) is int and value.bit_length() < 32 and _DATE.fullmatch(str(value)):
        value = str(value)
    try:
        return seconds_since_1970(value, declared.unit, declared.zone)
    except TimeUnitError as error:
        hint = "" if error.unit is None else f'; declare unit = "{error.unit}"'
        problem = f"{error}{hint}"
    except ValueError as error:
        problem = str(error)
    raise InputError(f'{problem} - at field "{name}"{_hint(value)}')


def _vector(name: str, value: Any, length: int | None) -> dict[str, Any]:
    if not isinstance(value, (list, tuple, np.ndarray)):
        raise _unfit(name, value, "vector", _hint(value))
    actual, wanted = vector_length(value), f"{length or LONGEST_VECTOR:,} numbers"
    if actual is None or actual != (length or actual):
        wanted = wanted if length else f"1 to {wanted}"
        raise VectorLengthError(f'Expected a vector of {wanted}, got {len(value):,} - at field "{name}"')
    inputs = {}
    for i, item in enumerate(map(plain, value)):
        if is_missing(item):
            continue
        if isinstance(item, bool) or not isinstance(item, (int, float)):
            raise _unfit(f"{name}.{i}", item, "number of a vector")
        inputs[f"{name}.{i}"] = float(item) if abs(item) < _LARGEST_FLOAT else item
    return inputs


def _unfit(name: str, value: Any, wanted: str, hint: str = "") -> InputError:
    got = f"{type(value).__name__} {shorten(value)}"
    return InputError(f'Expected a {wanted} as declared, got {got} - at field "{name}"{hint}')


def _hint(value: Any) -> str:
    return if_missing([value]) if is_marker(value) else ""
