"""A hash table from names to their indices; compiled.

It is at least twice as long as there are names, so that there is always an empty row, and a power of 2.
"""

from __future__ import annotations

import numpy as np

from streamkernel.features.counter_rng import mix
from streamkernel.jit import compiled, inlined


@inlined(allocates=False)
def row_of(keys, key):  # type: ignore[no-untyped-def]
    """Return the row of a name in the table, or the empty row for it."""
    last = np.uint64(len(keys) - 1)
    row = key & last
    while keys[row] != key and keys[row] != np.uint64(0):
        row = (row + np.uint64(1)) & last
    return row


@inlined(forceinline=True)
def value_key(name, value):  # type: ignore[no-untyped-def]
    """Return the hash of a value of a name, which is a hash itself."""
    bits = np.float64(value + 0.0).view(np.uint64)  # -0 becomes 0
    return max(mix(name ^ mix(bits + np.uint64(1))), np.uint64(1))


@inlined(forceinline=True)
def square_key(name):  # type: ignore[no-untyped-def]
    """Return the hash of the square of a name, which is a hash itself."""
    return max(mix(~mix(name)), np.uint64(1))


@compiled
def index(keys, at, names, first, n):  # type: ignore[no-untyped-def]
    """Add the names at the indices ``first <= i < n``."""
    for place in range(first, n):
        row = row_of(keys, names[place])
        keys[row], at[row] = names[place], place


@compiled
def places_of_squares(names, n):  # type: ignore[no-untyped-def]
    """Return the indices below n of names and of their squares, shape (squares, 2)."""
    out, count = np.empty((n, 2), np.int64), 0
    for place in range(1, n):
        key = square_key(names[place])
        for square in range(place + 1, n):
            if names[square] == key:
                out[count, 0], out[count, 1] = place, square
                count += 1
    return out[:count].copy()
