"""The fields of names, by the hashes of the names: ``colour=red`` belongs to the field ``colour``.

Functions store only hashes of names. Results by name, such as importances, need the names of fields, but not the values
of strings, which are not stored.

Examples
--------
>>> known = add_fields({}, read_fields({"age": 31, "colour": "red", "weight": None}))
>>> sorted(known.values())
['age', 'colour']
>>> unpack(*pack(known)) == known
True
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from streamkernel.features.counter_rng import LARGEST_CACHED, hash64, size_of
from streamkernel.features.rows import I64, is_missing

MOST_NAMES = 1024
"""Names whose fields are known, the first ones."""

Fields = Mapping[int, Hashable]


def read_hash(name: Hashable, value: Any) -> int:
    """Return the hash of the name under which a field's value is read."""
    return hash64(f"{name}={value}" if isinstance(value, str) else name)


def read_fields(x: Mapping[Hashable, Any]) -> Fields:
    """Return the fields of an example, by the hashes of their names."""
    return {read_hash(name, value): name for name, value in x.items() if not is_missing(value)}


def add_fields(known: Fields, read: Fields) -> Fields:
    """Return the fields with the fields of an example added up to the limit, or `known` itself if none is new."""
    if len(known) >= MOST_NAMES or read.keys() <= known.keys():
        return known
    return add_in_order(known, {one: (0, name) for one, name in read.items()})


def add_in_order(known: Fields, read: Mapping[int, tuple[int, Hashable]]) -> Fields:
    """Return the fields with others added up to the limit, in the order of the rows that are beside them."""
    if len(known) >= MOST_NAMES or read.keys() <= known.keys():
        return known
    new = sorted((row, one) for one, (row, name) in read.items() if one not in known and _is_kept(name))
    added = {one: _plain(read[one][1]) for _, one in new[: MOST_NAMES - len(known)]}
    return {**known, **added} if added else known


def join_fields(known: Fields, more: Fields) -> Fields:
    """Return the fields of both, up to the limit."""
    new = sorted(one for one in more if one not in known)[: MOST_NAMES - len(known)]
    return {**known, **{one: more[one] for one in new}}


def pack(known: Fields) -> tuple[list[Any], I64]:
    """Return fields as JSON values, and each name's hash with the number of its field, shape (names, 2)."""
    by_hash = dict(sorted(known.items()))
    numbers: dict[Hashable, int] = {}
    for name in by_hash.values():
        numbers.setdefault(name, len(numbers))
    pairs = np.array([(one, numbers[name]) for one, name in by_hash.items()], np.uint64).reshape(-1, 2)
    return [_to_json(name) for name in numbers], pairs.view(np.int64)


def unpack(names: Sequence[Any], pairs: I64) -> Fields:
    """Return the fields that :func:`pack` packed.

    Raises
    ------
    ValueError
        If these are not packed fields.
    """
    if not isinstance(names, list) or len(names) > MOST_NAMES:
        raise ValueError(f"expected up to {MOST_NAMES} names as fields, got {names!r:.99}")
    fields = [_from_json(name) for name in names]
    known: dict[int, int] = dict(pairs.view(np.uint64).tolist())
    if len(known) < len(pairs) or len(known) > MOST_NAMES or {*known.values()} != {*range(len(fields))}:
        raise ValueError(f"expected different hashes of names, each with one of {len(fields)} fields")
    return {one: fields[number] for one, number in known.items()}


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
    found = tuple(map(_from_json, name)) if isinstance(name, list) else name
    if not _is_kept(found):
        raise ValueError(f"expected a string, a number or a list of these as the name of a field, got {name!r:.99}")
    return found
