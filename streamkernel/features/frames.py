"""Data frames of any library that River accepts, arrays and sparse matrices, as rows of examples."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from river import utils

from streamkernel.errors import InputError
from streamkernel.features import numeric_names
from streamkernel.features.counter_rng import hash64
from streamkernel.features.directions import Directions
from streamkernel.features.numeric_names import Column, NumericNames
from streamkernel.features.rows import I64, Rows, in_row, is_missing, number

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

    Raise an InputError if it has no columns, not two dimensions, no numbers, or an entry outside.
    """
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise InputError(f"Expected a sparse matrix of numbers of two dimensions, got one of {X.dtype}, {X.shape}")
    if not X.shape[1]:
        raise InputError("Expected at least one feature, got a sparse matrix without columns")
    check_positions(X)
    compressed = X.tocsr().astype(np.float64)
    if compressed is X or not (compressed.has_canonical_format and compressed.data.all()):
        compressed = compressed.copy()
        compressed.sum_duplicates()
        compressed.eliminate_zeros()
    return compressed


def check_positions(X: Any) -> None:
    """Raise an error if an entry of a sparse matrix has a position outside of it.

    SciPy trusts positions, and would read and write other memory. The error, an InputError, is also raised if the
    arrays of the matrix do not have the right lengths.
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

    NaN is a missing value. `numeric` are the names that have been learned; they come back with the names of the
    columns. Raise an InputError if a value is not finite or outside of the kernel's domain; names the column and the
    row.
    """
    X = as_csr(X)
    n = X.shape[0]
    columns, places = np.unique(X.indices, return_inverse=True)
    names = columns.tolist()
    row_of = np.repeat(np.arange(n), np.diff(X.indptr))
    if directions.plan.transforms:
        examples = [directions.row(_example(X, i)) for i in range(n)]
        rows = Rows.stack(examples) if examples else directions.rows([], np.zeros((0, 0)))
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


def _with_columns(numeric: NumericNames, X: Any, names: list[int], places: I64, row_of: I64) -> NumericNames:
    """Return the known names with names of columns added; `places` are the entries' columns among `names`.

    An entry that is not stored is a zero, or in a wide matrix an absent name.
    """
    missing = np.isnan(X.data)
    _, first, stored = np.unique(places, return_index=True, return_counts=True)
    n = stored if X.shape[1] > numeric_names.MOST_NAMES else np.full(len(names), X.shape[0])
    n = n - np.bincount(places[missing], minlength=len(names))
    columns: dict[Hashable, Column] = {}
    for name, row, count in zip(names, row_of[first].tolist(), n.tolist(), strict=True):
        if count:
            columns[name] = Column(numeric_names.count_of(numeric, name).plus_numbers(count), {None: row})
    return numeric_names.with_columns(numeric, columns)


def table_rows(directions: Directions, X: Any, numeric: NumericNames = numeric_names.NONE) -> tuple[Rows, NumericNames]:
    """Return the rows of a data frame, or of an array or sparse matrix of numbers, whose columns are called 0, 1, ...

    Strings are indicators, and values are missing, as in an example. `numeric` are the names that have been learned;
    they come back with the names of the columns. Raise an InputError if there is no column, a column holds neither
    numbers nor strings, or a value is not finite, outside of the kernel's domain or a string where a number was
    learned; names the column and the row.
    """
    if is_sparse(X):
        if not reads_zeros(directions, X, numeric):
            return sparse_rows(directions, X, numeric)
        check_positions(X)
        X = X.toarray()
    if isinstance(X, np.ndarray):
        if X.ndim != 2 or X.dtype.kind not in "biuf":
            raise InputError(f"Expected a data frame or an array of numbers of two dimensions, got {_shape(X)}")
        import pandas as pd  # takes a third of a second

        X = pd.DataFrame(X)
    frame = _into_frame(X)
    names = frame.columns
    if not names:
        raise InputError("Expected at least one feature, got a data frame without columns")
    table = np.asarray(frame.to_native())
    if table.dtype.kind in "biuf" and table.ndim == 2 and not directions.plan.transforms:  # one check for all columns
        rows = directions.rows(names, np.asarray(table, np.float64))
        if directions.plan.usable(rows):
            return rows, numeric_names.with_columns(numeric, _of_numbers(numeric, names, ~np.isnan(table)))
    columns = [frame.get_column(name) for name in names]
    are_plain = not directions.plan.transforms  # a transform may distinguish 1 from 1.0
    for name, column in zip(names, columns, strict=True):
        if not (column.dtype.is_numeric() or str(column.dtype) == "Boolean"):
            are_plain &= not _needs_rows(name, column.to_list())
    before = numeric
    numeric = numeric_names.with_columns(
        before, {name: _of_column(before, name, column) for name, column in zip(names, columns, strict=True)}
    )
    numeric_names.warn_of_numbers(before, numeric, names)
    if len(frame) and not are_plain:
        in_rows = list(zip(*(column.to_list() for column in columns), strict=True))
        rows = _examples(directions, names, in_rows)
    else:
        rows = directions.rows(names, np.asarray(utils.dataframe.to_numpy(frame), np.float64))
    if not directions.plan.usable(rows):
        for i, values in enumerate(zip(*(column.to_list() for column in columns), strict=True)):
            try:
                directions.plan.check(dict(zip(names, values, strict=True)))
            except InputError as error:
                raise in_row(error, i) from None
    return rows, numeric


def table_blocks(directions: Directions, X: Any, numeric: NumericNames) -> Iterator[tuple[Rows, NumericNames]]:
    """Yield the rows of a table, in several blocks if a sparse matrix is read with its zeros.

    It raises the errors of :func:`table_rows` before the first block.
    """
    if not (is_sparse(X) and reads_zeros(directions, X, numeric)) or directions.plan.transforms:
        yield table_rows(directions, X, numeric)
        return
    sparse_rows(directions, X, numeric)  # an error comes before the first block
    X, step = X.tocsr(), max(1, ENTRIES // X.shape[1])
    for i in range(0, X.shape[0] or 1, step):
        rows, numeric = table_rows(directions, X[i : i + step], numeric)
        yield rows, numeric


def n_rows(X: Any) -> int:
    """Return the number of rows of a table."""
    return int(np.prod(X.shape[:1])) if _is_array(X) else len(_into_frame(X))


def targets_of(y: Any, rows: int, what: str = "targets") -> list[Any]:
    """Return targets or weights as a list, from a series of any library, an array or a list.

    Raise a ValueError if there are not as many as rows.
    """
    if isinstance(y, (list, tuple)):
        targets = list(y)
    elif isinstance(y, np.ndarray):
        targets = y.reshape(-1).tolist() if y.ndim <= 1 or y.shape[1:] == (1,) else y.tolist()
    elif hasattr(y, "to_pylist"):  # an array of pyarrow
        targets = y.to_pylist()
    else:
        try:
            targets = utils.dataframe.into_series(y).to_list()
        except TypeError:
            raise TypeError(f"Expected {what} as a series, an array or a list, got {type(y).__name__}") from None
    if len(targets) != rows:
        raise ValueError(f"Expected as many {what} as rows, got {len(targets)} {what} and {rows} rows")
    return targets


def columns_of(Y: Any) -> dict[Hashable, list[Any]]:
    """Return the columns of a table of targets by name; columns of an array are called 0, 1, and so on.

    Raise a ValueError if it is an array of another shape.

    Examples
    --------
    >>> columns_of(np.eye(2))
    {0: [1.0, 0.0], 1: [0.0, 1.0]}
    """
    if _is_array(Y):
        if is_sparse(Y) or Y.ndim != 2:
            raise ValueError(f"Expected y as a data frame or an array with a column for each target, got {_shape(Y)}")
        return {t: Y[:, t].tolist() for t in range(Y.shape[1])}
    frame = _into_frame(Y, "y as a data frame or an array with a column for each target")
    return {name: frame.get_column(name).to_list() for name in frame.columns}


def native_series(values: Any, X: Any) -> Any:
    """Return predictions in the type that matches `X`: a series of its library, or an array."""
    if _is_array(X):
        return values
    return utils.dataframe.to_native_series(values, name=None, like=_into_frame(X))


def native_frame(columns: Mapping[Hashable, Any], X: Any) -> Any:
    """Return columns of predictions in the type that matches `X`: a data frame of its library, or an array."""
    if _is_array(X):
        return np.column_stack([*columns.values()]) if columns else np.zeros((X.shape[0], 0))
    return utils.dataframe.to_native_frame(columns, like=_into_frame(X))


def _into_frame(X: Any, what: str = "a data frame, an array or a sparse matrix") -> Any:
    """Return a data frame of any library as one of narwhals."""
    try:
        return utils.dataframe.into_frame(X)
    except TypeError:
        raise TypeError(f"Expected {what}, got {type(X).__name__}") from None


def _is_array(X: Any) -> bool:
    return isinstance(X, np.ndarray) or is_sparse(X)


def _shape(X: Any) -> str:
    return f"an array of {X.dtype} of shape {X.shape}"


def _examples(directions: Directions, names: Sequence[str], table: Sequence[Sequence[Any]]) -> Rows:
    """Return rows that differ in their fields, one by one."""
    rows = []
    for i, values in enumerate(table):
        try:
            rows.append(directions.row(dict(zip(names, values, strict=True))))
        except InputError as error:
            raise in_row(error, i) from None
    return Rows.stack(rows)


def _of_numbers(numeric: NumericNames, names: Sequence[Hashable], present: Any) -> dict[Hashable, Column]:
    """Return the columns of names with numbers; `present`, shape (rows, names), says where there is one."""
    counts, first = present.sum(axis=0).tolist(), present.argmax(axis=0).tolist() if len(present) else []
    totals = (numeric_names.count_of(numeric, name).plus_numbers(n) for name, n in zip(names, counts, strict=True))
    return {
        name: Column(total, {None: row} if n else {})
        for name, total, n, row in zip(names, totals, counts, first or counts, strict=True)
    }


def _of_column(numeric: NumericNames, name: str, column: Any) -> Column:
    """Return the column of a name; raise an error for a string if the name has settled on numbers."""
    values = column.to_list()
    if column.dtype.is_numeric() or str(column.dtype) == "Boolean":
        return _of_numbers(
            numeric, [name], np.array([[not is_missing(value)] for value in values], bool).reshape(-1, 1)
        )[name]
    first: dict[str | None, int] = {}
    count = numeric_names.count_of(numeric, name)
    for i, value in enumerate(values):
        if not is_missing(value):
            if isinstance(value, str) and count.is_number:
                raise in_row(numeric_names.refusal(name, value), i)
            count = count.plus(value)
            first.setdefault(value if isinstance(value, str) else None, i)
    return Column(count, first)


def _needs_rows(name: str, values: Sequence[Any]) -> bool:
    """Return whether a column has strings or missing values; raise the error for its first unusable value."""
    needs = False
    for i, value in enumerate(values):
        if isinstance(value, str) or is_missing(value):
            needs = True
        else:
            number(value, f"X[{name!r}], row {i}", "a number or a string")
    return needs
