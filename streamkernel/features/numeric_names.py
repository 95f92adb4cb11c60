"""The names under which numbers have been learned, by their hashes: a string under one of them is refused.

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
from typing import Any

from streamkernel.errors import InputError
from streamkernel.features.counter_rng import hash64
from streamkernel.features.rows import is_missing

MOST_NAMES = 1024
"""Names that are kept, the first ones; under others anything is accepted."""

Names = frozenset[int]
NONE: Names = frozenset()


def add_names(known: Names, x: Mapping[Hashable, Any]) -> Names:
    """Return the names with those of an example that hold numbers; `known` itself if there is no new one."""
    if len(known) >= MOST_NAMES:
        return known
    numeric = {hash64(name) for name, value in x.items() if not isinstance(value, str) and not is_missing(value)}
    return known if numeric <= known else join_names(known, frozenset(numeric))


def join_names(known: Names, more: Names) -> Names:
    """Return the names of both, as far as there is room."""
    return known | frozenset(sorted(more - known)[: MOST_NAMES - len(known)])


def check(known: Names, x: Mapping[Hashable, Any]) -> None:
    """Raise an error if a string stands where a number was learned.

    Raises
    ------
    InputError
        If there is one; names the feature and the value.
    """
    for name, value in x.items():
        if isinstance(value, str) and hash64(name) in known:
            raise InputError(
                f"Expected a number as learned before, or None if it is missing, got str {value!r} - at x[{name!r}]"
            )
