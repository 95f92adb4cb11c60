"""Known names: those with numeric values, and the fields of names.

A string under the name of a number is an error.

Examples
--------
>>> known = add_names(NONE, {"age": 31, "colour": "red", "weight": None})
>>> check(known, {"age": None, "colour": 3.0, "weight": "heavy"})
>>> check(known, {"age": "NA"})
Traceback (most recent call last):
    ...
streamkernel.errors.InputError: Expected a number as learned before, or None if it is missing,
got str 'NA' - at x['age']
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from streamkernel.errors import InputError
from streamkernel.features.counter_rng import hash64
from streamkernel.features.field_names import Fields, add_fields, join_fields, read_hash
from streamkernel.features.rows import is_missing

MOST_NAMES = 1024
"""Names that are kept, the first ones; under others anything is accepted."""


class NumericNames(NamedTuple):
    """The names learned so far.

    Attributes
    ----------
    numbers
        The hashes of those that hold numbers.
    fields
        The fields of names by their hashes; ``None`` where they are not kept.
    """

    numbers: frozenset[int] = frozenset()
    fields: Fields | None = None


NONE = NumericNames()


def add_names(known: NumericNames, x: Mapping[Hashable, Any]) -> NumericNames:
    """Return the names with those of an example added, or `known` itself if none is new."""
    numbers, fields = known
    read = {hash64(name): name for name, value in x.items() if not isinstance(value, str) and not is_missing(value)}
    if len(numbers) < MOST_NAMES and not read.keys() <= numbers:
        numbers = _join(numbers, frozenset(read))
    if fields is not None:
        read.update((read_hash(name, value), name) for name, value in x.items() if isinstance(value, str))
        fields = add_fields(fields, read)
    return known if numbers is known.numbers and fields is known.fields else NumericNames(numbers, fields)


def join_names(known: NumericNames, more: NumericNames) -> NumericNames:
    """Return the names of both, up to the limit."""
    fields = known.fields
    if fields is not None and more.fields is not None:
        fields = join_fields(fields, more.fields)
    return NumericNames(_join(known.numbers, more.numbers), fields)


def _join(known: frozenset[int], more: frozenset[int]) -> frozenset[int]:
    return known | frozenset(sorted(more - known)[: MOST_NAMES - len(known)])


def check(known: NumericNames, x: Mapping[Hashable, Any]) -> None:
    """Raise an error for a string under the name of a number.

    Raises
    ------
    InputError
        If there is one; names the feature and the value.
    """
    for name, value in x.items():
        if isinstance(value, str) and hash64(name) in known.numbers:
            raise InputError(
                f"Expected a number as learned before, or None if it is missing, got str {value!r} - at x[{name!r}]"
            )
