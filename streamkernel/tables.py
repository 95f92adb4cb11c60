"""Data frames of any library that River takes, as rows of examples."""

from __future__ import annotations

from typing import Any

import numpy as np
from river import utils

from streamkernel.errors import InputError
from streamkernel.features import LARGEST_VALUE, Directions, Rows, number


def table_rows(directions: Directions, X: Any, scale: float) -> Rows:
    """Return the rows of the data frame `X`, whose values are used times `scale`.

    Raises
    ------
    InputError
        If there is no column, a column holds no numbers, or a value is not finite; names the column and the row.
    """
    frame = utils.dataframe.into_frame(X)
    if not frame.columns:
        raise InputError("Expected at least one feature, got a data frame without columns")
    for name in frame.columns:
        column = frame.get_column(name)
        if not (column.dtype.is_numeric() or str(column.dtype) == "Boolean"):
            _check_column(name, column.to_list())
    values = utils.dataframe.to_numpy(frame)
    bad = np.argwhere(~(np.abs(values) * scale <= LARGEST_VALUE))
    if len(bad):
        i, j = (int(place) for place in bad[0])
        got, where = float(values[i, j]), f"X[{frame.columns[j]!r}], row {i}"
        raise InputError(f"Expected a finite number of usable size, got {got!r} - at {where}")
    return directions.rows(frame.columns, values)


def _check_column(name: str, values: list[Any]) -> None:
    """Raise the error that names the first value of a column that is no number; there may be none."""
    for i, value in enumerate(values):
        number(value, f"X[{name!r}], row {i}")
