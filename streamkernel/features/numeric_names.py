"""Known names: counts of the numbers and the strings under each, and the fields of names.

Among the values of a name, numbers are numbers and strings are indicators, so a few of the other kind do no harm. Only
a name that has settled on numbers refuses strings: after 16 numbers, if strings are less than 1 in 20. One that has
settled on strings accepts numbers.

Functions store only hashes of names. Results by name, such as importances, need the names of fields, but not the values
of strings, which are not stored: ``colour=red`` belongs to the field ``colour``.

Examples
--------
>>> known = add_names(NONE, {"age": 31, "colour": "red", "weight": None})
>>> check(known, {"age": "NA", "colour": 3.0, "weight": "heavy"})
>>> for age in range(15):
...     known = add_names(known, {"age": age})
>>> check(known, {"age": "NA"})
Traceback (most recent call last):
    ...
streamkernel.errors.InputError: Expected a number as learned before, or None if it is missing,
got str 'NA' - at x['age']
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from streamkernel.errors import DataWarning, InputError, shorten
from streamkernel.features.counter_rng import LARGEST_CACHED, hash64, size_of
from streamkernel.features.rows import I64, is_missing
from streamkernel.tensor_file import Tensors, require_tensor

MOST_NAMES = 1024
"""Names that are kept, and names whose fields are known, the first ones; under others anything is accepted."""
Fields = Mapping[int, Hashable]
SETTLES, RARE = 16, 20
"""A name settles after 16 values of one kind, if less than 1 in 20 of its values are of the other."""
LOOKED_AT, MOST_COUNTED = 64, 1024
"""Strings of a name that are compared with numbers, and values that are counted: a name that is mixed after these
remains so.
"""
_LONGEST_NUMBER = 32


def read_hash(name: Hashable, value: Any) -> int:
    """Return the hash of the name under which a field's value is read."""
    return hash64(f"{name}={value}" if isinstance(value, str) else name)


def read_fields(x: Mapping[Hashable, Any]) -> Fields:
    """Return the fields of an example, by the hashes of their names."""
    return {read_hash(name, value): name for name, value in x.items() if not is_missing(value)}


def add_fields(fields: Fields, read: Fields) -> Fields:
    """Return the fields with the fields of an example added up to the limit, or `fields` itself if none is new."""
    if len(fields) >= MOST_NAMES or read.keys() <= fields.keys():
        return fields
    return add_in_order(fields, {one: (0, name) for one, name in read.items()})


def add_in_order(fields: Fields, read: Mapping[int, tuple[int, Hashable]]) -> Fields:
    """Return the fields with others added up to the limit, in the order of the rows that are beside them."""
    if len(fields) >= MOST_NAMES or read.keys() <= fields.keys():
        return fields
    new = sorted((row, one) for one, (row, name) in read.items() if one not in fields and _is_kept(name))
    added = {one: _plain(read[one][1]) for _, one in new[: MOST_NAMES - len(fields)]}
    return {**fields, **added} if added else fields


def join_fields(fields: Fields, more: Fields) -> Fields:
    """Return the fields of both, up to the limit."""
    new = sorted(one for one in more if one not in fields)[: MOST_NAMES - len(fields)]
    return {**fields, **{one: more[one] for one in new}}


def pack_fields(fields: Fields) -> tuple[list[Any], I64]:
    """Return fields as JSON values, and each name's hash with the number of its field, shape (names, 2).

    Examples
    --------
    >>> known = add_fields({}, read_fields({"age": 31, "colour": "red", "weight": None}))
    >>> sorted(known.values()), unpack_fields(*pack_fields(known)) == known
    (['age', 'colour'], True)
    """
    by_hash = dict(sorted(fields.items()))
    numbers: dict[Hashable, int] = {}
    for name in by_hash.values():
        numbers.setdefault(name, len(numbers))
    pairs = np.array([(one, numbers[name]) for one, name in by_hash.items()], np.uint64).reshape(-1, 2)
    return [_to_json(name) for name in numbers], pairs.view(np.int64)


def unpack_fields(names: Sequence[Any], pairs: I64) -> Fields:
    """Return the fields that :func:`pack_fields` packed. Raise a ValueError if these are not packed fields."""
    if not isinstance(names, list) or len(names) > MOST_NAMES:
        raise ValueError(f"expected up to {MOST_NAMES} names as fields, got {names!r:.99}")
    fields = [_from_json(name) for name in names]
    numbers: dict[int, int] = dict(pairs.view(np.uint64).tolist())
    if len(numbers) < len(pairs) or len(numbers) > MOST_NAMES or {*numbers.values()} != {*range(len(fields))}:
        raise ValueError(f"expected different hashes of names, each with one of {len(fields)} fields")
    return {one: fields[number] for one, number in numbers.items()}


def _is_kept(name: Hashable) -> bool:
    """Return whether a name is serializable and short enough to keep."""
    if isinstance(name, tuple):
        return size_of(name) <= LARGEST_CACHED and all(map(_is_kept, name))
    if isinstance(name, (float, np.floating)):
        return math.isfinite(name)
    if isinstance(name, str):
        return len(name) <= LARGEST_CACHED
    return isinstance(name, (int, np.integer, np.bool_))


def _plain(name: Any) -> Hashable:
    """Return a name as Python values."""
    if isinstance(name, tuple):
        return tuple(map(_plain, name))
    return name.item() if isinstance(name, np.generic) else name  # type: ignore[no-any-return]


def _to_json(name: Any) -> Any:
    return [_to_json(part) for part in name] if isinstance(name, tuple) else name


def _from_json(name: Any) -> Hashable:
    decoded = tuple(map(_from_json, name)) if isinstance(name, list) else name
    if not _is_kept(decoded):
        raise ValueError(f"expected a string, a number or a list of these as the name of a field, got {name!r:.99}")
    return decoded


class Count(NamedTuple):
    """The values of a name: numbers, strings, and how many of the first strings are numbers as text.

    A name that has settled counts no further numbers.
    """

    numbers: int = 0
    strings: int = 0
    as_text: int = 0

    @property
    def is_number(self) -> bool:
        """Whether the name has settled on numbers."""
        return self.numbers >= SETTLES and RARE * self.strings < self.numbers + self.strings

    @property
    def is_text(self) -> bool:
        """Whether the name has settled on strings, or will never settle."""
        total = self.numbers + self.strings
        return total >= MOST_COUNTED or (self.strings >= SETTLES and RARE * self.numbers < total)

    @property
    def is_final(self) -> bool:
        """Whether nothing more is counted."""
        return self.is_number or (self.is_text and self.strings >= LOOKED_AT) or sum(self[:2]) >= MOST_COUNTED

    def plus(self, value: Any) -> Count:
        """Return the count with a value that is not missing, or itself if nothing changes."""
        numbers, strings, _ = self
        if not strings and not isinstance(value, str):  # most values
            return self if numbers >= SETTLES else Count(numbers + 1)
        if self.is_final:
            return self
        if isinstance(value, str):
            is_number = self.strings < LOOKED_AT and type(value) is str and _is_number(value)
            return Count(self.numbers, self.strings + 1, self.as_text + is_number)
        return self if self.is_text else self._replace(numbers=self.numbers + 1)

    def plus_numbers(self, n: int) -> Count:
        """Return the count with n numbers."""
        for _ in range(n):
            before, self = self, self.plus(0.0)
            if self is before:
                break
        return self


class NumericNames(NamedTuple):
    """The names learned so far.

    `counts` are the values of names by their hashes, and `fields` the fields; ``None`` where they are not kept.
    """

    counts: Mapping[int, Count] = {}
    fields: Fields | None = None

    @property
    def numbers(self) -> frozenset[int]:
        """The hashes of the names that have had numbers."""
        return frozenset(one for one, count in self.counts.items() if count.numbers)


class Column(NamedTuple):
    """A column of a table: its name's count with it, and the first row of each string, and of a number as ``None``."""

    total: Count
    first: Mapping[str | None, int]


NONE = NumericNames()


_NEW = Count()


def add_names(numeric: NumericNames, x: Mapping[Hashable, Any]) -> NumericNames:
    """Return the names with the values of an example added, or `numeric` itself if nothing changes."""
    numeric, counts, changed = add_fields_of(numeric, x), numeric.counts, {}
    for name, value in x.items():
        if not is_missing(value):
            one = hash64(name)
            before = counts.get(one, _NEW)
            count = before.plus(value)
            if count is not before:
                changed[one] = count
    more = _with(counts, changed)
    return numeric if more is counts else numeric._replace(counts=more)


def adds_values(numeric: NumericNames, x: Mapping[Hashable, Any]) -> bool:
    """Return whether a value of an example is counted."""
    counts, new = numeric.counts, None if len(numeric.counts) >= MOST_NAMES else _NEW
    for name, value in x.items():
        count = counts.get(hash64(name), new)
        if count is not None and not is_missing(value) and count.plus(value) is not count:
            return True
    return False


def add_fields_of(numeric: NumericNames, x: Mapping[Hashable, Any]) -> NumericNames:
    """Return the names with the fields of an example added, or `numeric` itself if none is new."""
    if numeric.fields is None:
        return numeric
    fields = add_fields(numeric.fields, read_fields(x))
    return numeric if fields is numeric.fields else numeric._replace(fields=fields)


def are_final(numeric: NumericNames, x: Mapping[Hashable, Any]) -> bool:
    """Return whether no value under the names of an example, nor a missing one, would be counted."""
    counts, is_full = numeric.counts, len(numeric.counts) >= MOST_NAMES
    example_counts = (counts.get(hash64(name)) for name in x)
    return all(is_full if count is None else count.is_final for count in example_counts)


def with_columns(numeric: NumericNames, columns: Mapping[Hashable, Column]) -> NumericNames:
    """Return the names with the columns of a table added, as row by row, or `numeric` itself if nothing changes."""
    counts, fields = numeric
    changed = {hash64(name): column for name, column in columns.items() if column.total is not count_of(numeric, name)}
    if changed:
        rows = {one: min(column.first.values()) for one, column in changed.items()}
        counts = _with(counts, {one: column.total for one, column in changed.items()}, rows)
    if fields is not None:
        read: dict[int, tuple[int, Hashable]] = {}
        for name, column in columns.items():
            read.update((read_hash(name, value), (row, name)) for value, row in column.first.items())
        fields = add_in_order(fields, read)
    return numeric if counts is numeric.counts and fields is numeric.fields else NumericNames(counts, fields)


def join_names(numeric: NumericNames, more: NumericNames) -> NumericNames:
    """Return the names of both, up to the limit, with the larger counts."""
    fields = numeric.fields
    if fields is not None and more.fields is not None:
        fields = join_fields(fields, more.fields)
    counts = numeric.counts
    larger = {one: Count(*map(max, counts.get(one, _NEW), count)) for one, count in more.counts.items()}
    return NumericNames(_with(counts, larger), fields)


def _with(counts: Mapping[int, Count], changed: Mapping[int, Count], rows: Mapping[int, int] = {}) -> Any:
    """Return the counts with changed ones, up to the limit; new ones in the order of their rows and hashes."""
    new = sorted((rows.get(one, 0), one) for one in changed if one not in counts)[: MOST_NAMES - len(counts)]
    old = {one: count for one, count in changed.items() if one in counts}
    return {**counts, **old, **{one: changed[one] for _, one in new}} if old or new else counts


def check(numeric: NumericNames, x: Mapping[Hashable, Any]) -> None:
    """Raise an error for a string under a name that has settled on numbers.

    It is an InputError that names the feature and the value.
    """
    counts = numeric.counts
    for name, value in x.items():
        if isinstance(value, str):
            count = counts.get(hash64(name))
            if count is not None and count.numbers >= SETTLES and count.is_number:
                raise refusal(name, value)


def refusal(name: Hashable, value: str) -> InputError:
    """Return the error for a string under a name that has settled on numbers."""
    return InputError(
        f"Expected a number as learned before, or None if it is missing, got str {shorten(value)} - at x[{name!r}]"
    )


def count_of(numeric: NumericNames, name: Hashable) -> Count:
    """Return the count of a name."""
    return numeric.counts.get(hash64(name), _NEW)


def warn_of_numbers(before: NumericNames, after: NumericNames, names: Iterable[Hashable]) -> None:
    """Warn of fields whose first 64 strings, which have just become known, are numbers in more than 9 of 10 cases."""
    for name in names:
        count = count_of(after, name)
        if count.strings >= LOOKED_AT > count_of(before, name).strings and 10 * count.as_text > 9 * LOOKED_AT:
            message = (
                f"field {name!r}: {count.as_text} of {LOOKED_AT} texts are numbers, and learned as categories; "
                f"pass float(x[{name!r}]), or put streamkernel.Fields({{{name!r}: 'number'}}) in front"
            )
            warnings.warn(message, DataWarning, stacklevel=5)


def pack(counts: Mapping[int, Count]) -> Tensors:
    """Return names as tensors, none if there are none: a row for each, its hash and its count."""
    table = np.array([(one, *count) for one, count in sorted(counts.items())], np.uint64).view(np.int64)
    return {"names": table} if len(table) else {}


def unpack(tensors: Mapping[str, Any]) -> Mapping[int, Count]:
    """Return the names that :func:`pack` packed. Raise a ValueError if the tensor does not fit."""
    if "names" not in tensors:
        return {}
    table = require_tensor(tensors, "names", np.int64, (None, len(Count._fields) + 1))
    hashes, counts = table[:, 0].view(np.uint64).tolist(), table[:, 1:]
    if len({*hashes}) < len(hashes) or len(hashes) > MOST_NAMES or not (counts >= 0).all():
        raise ValueError(f"expected up to {MOST_NAMES} different hashes as names, and counts of their values")
    return {one: Count(*count) for one, count in zip(hashes, counts.tolist(), strict=True)}


def _is_number(text: str) -> bool:
    """Return whether a text is a number.

    Examples
    --------
    >>> [_is_number(text) for text in ("0.5", "-1e3", "", "red")]
    [True, True, False, False]
    """
    try:
        return len(text) <= _LONGEST_NUMBER and float(text) == float(text)
    except ValueError:
        return False
