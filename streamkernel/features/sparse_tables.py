"""Sparse matrices as rows of examples: an entry that is not stored is a zero, at no cost where zeros add nothing.

If inputs are neither scaled nor transformed by the kernel, a zero is equivalent to an absent name, to the same bits.
Otherwise it is a value like any other: such a matrix is read in blocks of rows with their zeros, up to MOST_NAMES
columns. In a wider matrix, for which this would cost too much, an entry that is not stored is an absent name.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from streamkernel.errors import InputError
from streamkernel.features import numeric_names
from streamkernel.features.counter_rng import hash64
from streamkernel.features.directions import Directions
from streamkernel.features.numeric_names import Column, NumericNames
from streamkernel.features.rows import I64, Rows, in_row

ENTRIES = 1 << 20
"""Entries of a block of rows that have their zeros, about: 40 MB."""


def is_sparse(X: Any) -> bool:
    """Return whether X is a sparse matrix or array of SciPy."""
    return hasattr(X, "tocsr")


def reads_zeros(directions: Directions, X: Any, numeric: NumericNames) -> bool:
    """Return whether the model reads the zeros of a sparse matrix as values."""
    return (numeric.fields is not None or directions.plan.transforms) and X.shape[1] <= numeric_names.MOST_NAMES


def as_csr(X: Any) -> Any:
    """Return a sparse matrix as compressed rows of numbers without duplicates or stored zeros.

    Raises
    ------
    InputError
        If it has no columns, not two dimensions, no numbers, or an entry outside.
    """
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise InputError(f"Expected a sparse matrix of numbers of two dimensions, got one of {X.dtype}, {X.shape}")
    if not X.shape[1]:
        raise InputError("Expected at least one feature, got a sparse matrix without columns")
    check_positions(X)
    found = X.tocsr().astype(np.float64)
    if found is X or not (found.has_canonical_format and found.data.all()):
        found = found.copy()
        found.sum_duplicates()
        found.eliminate_zeros()
    return found


def check_positions(X: Any) -> None:
    """Raise an error if an entry of a sparse matrix has a position outside of it.

    SciPy trusts positions, and would read and write other memory.

    Raises
    ------
    InputError
        If there is one, or if the arrays of the matrix do not have the right lengths.
    """
    if X.format not in ("coo", "csc", "bsr"):
        X = X.tocsr()
    height, width = X.shape
    if X.format == "coo":
        lines, ends, positions = 1, np.array([0, len(X.data)]), [(X.row, height), (X.col, width)]
    else:
        tall, wide = getattr(X, "blocksize", (1, 1))
        lines, across = (width, height) if X.format == "csc" else (height // tall, width // wide)
        ends, positions = X.indptr, [(X.indices, across)]
    are_inside = len(ends) == lines + 1 and ends[0] == 0 and ends[-1] <= len(X.data) and (ends[1:] >= ends[:-1]).all()
    for one, size in positions:
        are_inside &= len(one) == len(X.data) and (not len(one) or (one.min() >= 0 and one.max() < size))
    if not are_inside:
        raise InputError(f"Expected a sparse matrix with all entries inside of it, got one of {X.shape} with others")


def sparse_rows(directions: Directions, X: Any, numeric: NumericNames) -> tuple[Rows, NumericNames]:
    """Return the stored entries of a sparse matrix, whose columns are called 0, 1, 2, ..., as rows.

    NaN is a missing value.

    Parameters
    ----------
    directions
        The directions that read the rows.
    X
        The matrix, shape (examples, features).
    numeric
        The names that have been learned.

    Returns
    -------
    rows, numeric
        The rows, and the names with those of the columns.

    Raises
    ------
    InputError
        If a value is not finite or outside of the kernel's domain; names the column and the row.
    """
    X = as_csr(X)
    n = X.shape[0]
    columns, places = np.unique(X.indices, return_inverse=True)
    names = columns.tolist()
    row_of = np.repeat(np.arange(n), np.diff(X.indptr))
    if directions.plan.transforms:
        found = [directions.row(_example(X, i)) for i in range(n)]
        rows = Rows.stack(found) if found else directions.rows([], np.zeros((0, 0)))
    else:
        hashes = np.array([hash64(name) for name in names], np.uint64)
        kept = ~np.isnan(X.data)
        order = np.lexsort((hashes[places], row_of))
        order = order[kept[order]]
        read = places[order]
        start = np.concatenate([[0], np.cumsum(np.bincount(row_of[kept], minlength=n))]).astype(np.int64)
        slots, readers = directions.places_of(hashes), directions.plan.readers(names)
        rows = Rows(start, slots[read], hashes[read], readers[read], X.data[order], np.ones(n))
    for i in range(n) if not directions.plan.usable(rows) else ():
        try:
            directions.plan.check(_example(X, i))
        except InputError as error:
            raise in_row(error, i) from None
    return rows, _with_columns(numeric, X, names, places, row_of)


def _example(X: Any, i: int) -> dict[Hashable, float]:
    """Return the stored entries of a row of compressed rows as an example."""
    part = slice(X.indptr[i], X.indptr[i + 1])
    return dict(zip(X.indices[part].tolist(), X.data[part].tolist(), strict=True))


def _with_columns(known: NumericNames, X: Any, names: list[int], places: I64, row_of: I64) -> NumericNames:
    """Return the known names with those of columns added; `places` are the entries' columns among `names`.

    An entry that is not stored is a zero, or in a wide matrix an absent name.
    """
    missing = np.isnan(X.data)
    _, first, stored = np.unique(places, return_index=True, return_counts=True)
    n = stored if X.shape[1] > numeric_names.MOST_NAMES else np.full(len(names), X.shape[0])
    n = n - np.bincount(places[missing], minlength=len(names))
    columns: dict[Hashable, Column] = {}
    for name, row, count in zip(names, row_of[first].tolist(), n.tolist(), strict=True):
        if count:
            columns[name] = Column(numeric_names.count_of(known, name).plus_numbers(count), {None: row})
    return numeric_names.with_columns(known, columns)
