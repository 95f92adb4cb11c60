"""Examples in compiled form: values of names, which are identified by their hashes."""

from __future__ import annotations

import datetime as dt
import math
import sys
from array import array
from collections.abc import Hashable, Mapping, Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from streamkernel.errors import InputError, shorten

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


class DerivedName(NamedTuple):
    """The name of an output of a transform inside a kernel, distinct from any name of an example."""

    space: int
    name: Hashable

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DerivedName) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((DerivedName, *self))


class Rows(NamedTuple):
    """Examples in compressed rows: the entries of row i are ``[start[i]:start[i + 1]]``.

    Entries of a row are in the order of their names' hashes, so sums do not depend on the order of keys. Bit l of
    `readers` says whether the kernel's part l reads the name. A row of weight w counts as w examples where it is
    learned.
    """

    start: I64
    slots: I64
    hashes: U64
    readers: I64
    values: F64
    weights: F64

    @classmethod
    def stack(cls, rows: Sequence[Rows]) -> Rows:
        """Return the concatenation of several rows objects."""
        starts, *columns = zip(*rows, strict=True)
        ends = accumulate(len(row.slots) for row in rows)
        start = np.concatenate(
            [starts[0], *(part_start[1:] + end for part_start, end in zip(starts[1:], ends, strict=False))]
        )
        return cls(start, *map(np.concatenate, columns))

    def names(self) -> tuple[U64, I64]:
        """Return the hashes of all names, sorted, and the index of each value's name."""
        n, d = len(self.start) - 1, int(self.start[min(1, len(self.start) - 1)])
        if n * d == len(self.hashes) and (np.diff(self.start) == d).all():
            hashes = self.hashes.reshape(n, d)
            if n and (hashes == hashes[0]).all():
                return hashes[0], np.tile(np.arange(d), n)
        hashes, of = np.unique(self.hashes, return_inverse=True)
        return hashes, of

    def table(self, of: I64, chosen: Any) -> F64:
        """Return the values of some names, shape (rows, names), 0 where one is missing; `of` as :meth:`names`.

        `chosen` are Booleans of all names.
        """
        values, is_chosen = np.zeros((len(self.start) - 1, np.count_nonzero(chosen))), chosen[of]
        rows = np.repeat(np.arange(len(values)), np.diff(self.start))
        values[rows[is_chosen], (np.cumsum(chosen) - 1)[of[is_chosen]]] = self.values[is_chosen]
        return values

    def part(self, first: int, last: int) -> Rows:
        """Return the rows ``first <= i < last``."""
        if last - first == len(self.start) - 1:
            return self
        a, b = self.start[first], self.start[last]
        entries: Any = (column[a:b] for column in self[1:-1])
        return Rows._make((self.start[first : last + 1] - a, *entries, self.weights[first:last]))

    def where(self, chosen: Any) -> Rows:
        """Return the chosen rows; `chosen` are Booleans of shape (rows,)."""
        lengths = np.diff(self.start)
        entries: Any = (column[np.repeat(chosen, lengths)] for column in self[1:-1])
        return Rows._make((np.concatenate([[0], np.cumsum(lengths[chosen])]), *entries, self.weights[chosen]))

    def with_weight(self, w: float) -> Rows:
        """Return the rows with one weight for all."""
        return self if w == 1.0 else self._replace(weights=np.full(len(self.weights), w))


def in_order(values: F64, of: I64) -> I64:
    """Return the order of values by their names, and of the values of each name by size; `of` as :meth:`Rows.names`."""
    order = np.argsort(values)
    small: Any = np.uint16 if len(of) and of.max() < 1 << 16 else np.int64  # 16 bits are sorted by counting
    return np.asarray(order[np.argsort(of[order].astype(small), kind="stable")])


ROWS = types.NamedTuple(
    [types.int64[::1], types.int64[::1], types.uint64[::1], types.int64[::1], types.float64[::1], types.float64[::1]],
    Rows,
)
"""The compiled type of rows."""


def numbers(x: Mapping[Hashable, Any]) -> dict[Hashable, float]:
    """Return `x` with its strings as indicators, without the values that are missing.

    ``{"colour": "red"}`` is ``{"colour=red": 1.0}``. Every kernel can read an indicator: 1 is in the domain of all of
    them, and an absent category counts as 0, like any missing name. So a string has the effect of a one-hot encoder
    that knows all categories. A missing value is one for which :func:`is_missing` is true: the name counts as absent.
    Raise an InputError if a value is neither a number, a string nor missing, or an indicator has the name of another
    feature.

    Examples
    --------
    >>> numbers({"colour": "red", "size": 3, "weight": None})
    {'size': 3.0, 'colour=red': 1.0}
    """
    x = {
        name: value for name, value in x.items() if (value == value if type(value) in _PLAIN else not is_missing(value))
    }
    inputs = {
        name: value if type(value) is float else number(value, f"x[{_name_as_text(name)}]", "a number or a string")
        for name, value in x.items()
        if not isinstance(value, str)
    }
    for name, value in x.items():
        if isinstance(value, str):
            indicator = (
                DerivedName(name.space, f"{name.name}={value}") if isinstance(name, DerivedName) else f"{name}={value}"
            )
            if indicator in inputs or indicator in x:
                where = f"x[{_name_as_text(name)}]"
                raise InputError(f"Expected one feature of a name, got two of {_name_as_text(indicator)} - at {where}")
            inputs[indicator] = 1.0
    return inputs


def check_dictionary(x: Any) -> None:
    """Raise a TypeError for an example that is no dictionary, such as a row of a data frame.

    A Series iterates over its values, which would then be taken for the names of features.
    """
    if not isinstance(x, Mapping):
        raise TypeError(f"Expected x as a dictionary of features by name, got {type(x).__name__}")


def is_missing(value: Any) -> bool:
    """Return whether a value is ``None``, NaN of any type, ``pandas.NA`` or NaT, a missing time.

    Examples
    --------
    >>> [is_missing(value) for value in (None, float("nan"), np.datetime64("NaT"), 0.0, "")]
    [True, True, True, False, False]
    """
    if isinstance(value, _MAY_BE_NAN):
        return bool(value != value)
    if isinstance(value, Decimal):
        return value.is_nan()  # a signalling NaN cannot be compared
    return value is None or value is getattr(sys.modules.get("pandas"), "NA", None)


_PLAIN = frozenset({float, int, str})
"""Types of most values, which are missing only if they are not equal to themselves."""

_MAY_BE_NAN = (float, np.floating, dt.date, np.datetime64, np.timedelta64)
"""Types with a missing value that is not equal to itself; NaT of pandas is a ``datetime``."""


def number(value: Any, where: str, expected: str = "a number") -> float:
    """Return `value` as a float. Raise an InputError if it is not a number; names the place."""
    try:
        return float(array("d", (value,))[0])
    except (TypeError, ValueError):  # a signalling NaN of a decimal is the second
        if isinstance(value, (dt.date, np.datetime64)):
            expected += ", which streamkernel.Calendar or streamkernel.Fields makes of a time"
        raise InputError(f"Expected {expected}, got {type(value).__name__} {shorten(value)} - at {where}") from None
    except OverflowError:
        digits = int(math.log10(abs(int(value)))) + 1  # Python refuses to write the longest integers as text
        raise InputError(
            f"Expected {expected} of usable size, got an integer of {digits} digits - at {where}"
        ) from None


def in_row(error: InputError, i: int) -> InputError:
    """Return the error of an example as the error of row i of a table."""
    return InputError(f"{str(error).replace('at x[', 'at X[')}, row {i}")


def _name_as_text(name: Hashable) -> str:
    """Return a name as users write it."""
    return f"{name.name!r} of a transform" if isinstance(name, DerivedName) else repr(name)
