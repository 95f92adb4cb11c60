"""Data frames of any library that River takes, as rows of examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from river import utils

from streamkernel.errors import InputError
from streamkernel.features import Directions
from streamkernel.rows import Rows, number


def table_rows(directions: Directions, X: Any) -> Rows:
    """Return the rows of the data frame `X`; strings are indicators, as in an example.

    Raises
    ------
    InputError
        If there is no column, a column holds neither numbers nor strings, or a value is not finite or outside of the
        kernel's domain; names the column and the row.
    """
    frame = utils.dataframe.into_frame(X)
    names = frame.columns
    if not names:
        raise InputError("Expected at least one feature, got a data frame without columns")
    table = np.asarray(frame.to_native())
    if table.dtype.kind in "biuf" and table.ndim == 2 and not directions.plan.transforms:  # a glance for them all
        found = directions.rows(names, np.asarray(table, np.float64))
        if directions.plan.usable(found):
            return found
    columns = [frame.get_column(name) for name in names]
    strings = False
    for name, column in zip(names, columns, strict=True):
        if not (column.dtype.is_numeric() or str(column.dtype) == "Boolean"):
            strings |= _has_strings(name, column.to_list())
    if len(frame) and (strings or directions.plan.transforms):  # a transform may tell 1 from 1.0
        found = _examples(directions, names, list(zip(*(column.to_list() for column in columns), strict=True)))
    else:
        found = directions.rows(names, np.asarray(utils.dataframe.to_numpy(frame), np.float64))
    if not directions.plan.usable(found):
        for i, values in enumerate(zip(*(column.to_list() for column in columns), strict=True)):
            try:
                directions.plan.check(dict(zip(names, values, strict=True)))
            except InputError as error:
                raise _in_row(error, i) from None
    return found


def _examples(directions: Directions, names: Sequence[str], table: Sequence[Sequence[Any]]) -> Rows:
    """Return rows that are not alike, one by one."""
    found = []
    for i, values in enumerate(table):
        try:
            found.append(directions.row(dict(zip(names, values, strict=True))))
        except InputError as error:
            raise _in_row(error, i) from None
    return Rows.stack(found)


def _has_strings(name: str, values: Sequence[Any]) -> bool:
    """Return whether a column holds strings; raise the error that names its first value that is no number either."""
    for i, value in enumerate(values):
        if not isinstance(value, str):
            number(value, f"X[{name!r}], row {i}", "a number or a string")
    return any(isinstance(value, str) for value in values)


def _in_row(error: InputError, i: int) -> InputError:
    return InputError(f"{str(error).replace('at x[', 'at X[')}, row {i}")
