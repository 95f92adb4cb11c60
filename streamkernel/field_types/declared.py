"""A declared type of a field, with the keys that go with it."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

from streamkernel.field_types.number_texts import (
    COMMA,
    FEW,
    POINT,
    UNKNOWN,
    WHOLE,
    NumberText,
    TimeUnit,
    notation_of,
    read_any_number,
)

WINDOW = 2048
"""Counts of a field are halved when it has more texts than this, so that newer ones weigh more."""

COMMON = 0.05
"""The share of whole numbers below 1,000 above which a field that shows no fractions has thousands apart."""

SIGNS = {".": POINT, ",": COMMA}
"""The notation by the sign before a fraction."""


class Notations:
    """Reads texts of fields that are numbers, in the notation of each field.

    `declared` are the declared notations by field; other fields learn theirs.

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
        self._declared = dict(declared or {})
        self._counts: dict[str, list[int]] = {}

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
        own = self._counts.setdefault(name, [0, 0, 0])
        own[0] += 1
        own[1] += number.notation
        is_whole = number.value.is_integer() and not number.notation and number.other_value is None
        own[2] += is_whole and abs(number.value) < 1000.0
        if own[0] > WINDOW:
            own[:] = [int(count / 2) for count in own]

    def state(self) -> dict[str, list[int]]:
        """Return the number of texts of each field, and their evidence."""
        return {name: list(own) for name, own in sorted(self._counts.items())}

    def restore(self, counts: Mapping[str, Sequence[int]], names: Collection[str]) -> None:
        """Replace what has been learned of some fields, and forget others."""
        self._counts = {name: list(counts[name]) for name in names if name in counts}

    def join(self, counts: Mapping[str, Sequence[int]], names: Collection[str]) -> None:
        """Continue with what has been learned here or elsewhere, for each field from more values."""
        self.restore(
            self._counts | {n: own for n, own in counts.items() if own[0] > self._counts.get(n, [0])[0]}, names
        )


TYPES = ("number", "category", "identifier", "text", "time", "vector", "ignore")
OF_TEXTS = ("category", "identifier", "text")
"""Types whose values are read from the texts that a source has, not from the numbers that these may look like."""

LABEL_TYPES = ("number", "category")
"""Types of a label."""

_KEYS = ("type", "unit", "zone", "decimal", "missing")

Spec = str | Mapping[str, Any]
"""The name of a type, or a table with its name as ``type`` and more keys."""


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
        found = dt.UTC if zone == "UTC" else zoneinfo.ZoneInfo(zone)
    except (TypeError, ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise ValueError(f'expected the name of a time zone, as "Europe/Berlin", got {zone!r}') from None
    notation = SIGNS.get(table.get("decimal", ""), UNKNOWN)
    return DeclaredType(kind, cast("TimeUnit", unit), found, notation, markers(table.get("missing", ())))


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
