"""The letters of a stream that were redriven: all before a position, and ranges of numbers after it."""

from __future__ import annotations

import base64
import json
import zlib
from bisect import bisect_right

LONGEST_NOTE = 4000
"""Largest length of a note in characters; brokers accept 4,096 bytes by default (``offset.metadata.max.bytes``)."""


class Driven:
    """A set of numbers that were added in ascending order within each pass.

    Attributes
    ----------
    base : int
        The first number that is not in the set.

    Examples
    --------
    >>> driven = Driven()
    >>> for number in (0, 1, 4, 5):
    ...     driven.add(number)
    >>> [number in driven for number in (1, 2, 4, 6)], driven.base
    ([True, False, True, False], 2)
    >>> driven.add(2, 4)
    >>> driven.base, driven.note()
    (6, '')
    """

    def __init__(self, base: int = 0, note: str = "") -> None:
        self.base = base
        self._starts: list[int] = []
        self._ends: list[int] = []
        if note:
            at = base
            numbers = json.loads(zlib.decompress(base64.b64decode(note)))
            for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
                self._starts.append(at + gap)
                at += gap + length
                self._ends.append(at)

    def __contains__(self, number: int) -> bool:
        """Return whether a number is in the set."""
        at = bisect_right(self._starts, number)
        return number < self.base or (at > 0 and number < self._ends[at - 1])

    def add(self, number: int, end: int | None = None) -> None:
        """Add a number, or all from it up to an end."""
        end = number + 1 if end is None else end
        if number <= self.base:
            self.base = max(self.base, end)
        else:
            first = bisect_right(self._ends, number - 1)  # the first range that overlaps or adjoins it
            last = bisect_right(self._starts, end)
            starts, ends = self._starts[first:last], self._ends[first:last]
            self._starts[first:last] = [min([number, *starts])]
            self._ends[first:last] = [max([end, *ends])]
        while self._starts and self._starts[0] <= self.base:
            self.base = max(self.base, self._ends.pop(0))
            self._starts.pop(0)

    def note(self) -> str:
        """Return the ranges after the base as text.

        Raises
        ------
        ValueError
            If there are too many for a note.
        """
        if not self._starts:
            return ""
        numbers, at = [], self.base
        for start, end in zip(self._starts, self._ends, strict=True):
            numbers += [start - at, end - start]
            at = end
        text = base64.b64encode(zlib.compress(json.dumps(numbers, separators=(",", ":")).encode(), 9)).decode()
        if len(text) > LONGEST_NOTE:
            raise ValueError(
                f"Expected few letters left out between those sent back, got {len(self._starts):,} gaps, whose list is "
                "too long for brokers; redrive all letters up to here first, with --limit and without a filter"
            )
        return text
