"""The notation of the number texts in each of some fields, learned from all their values or declared."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from streamkernel.field_types.number_texts import (
    COMMA,
    FEW,
    POINT,
    UNKNOWN,
    WHOLE,
    NumberText,
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

    Parameters
    ----------
    declared
        The declared notations by field; those of other fields are learned.

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
