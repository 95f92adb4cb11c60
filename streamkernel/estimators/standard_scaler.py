"""A standard scaler that missing values, strings and unusable numbers do not spoil."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Mapping
from math import sqrt
from typing import Any

import numpy as np
from river import base
from river.utils.dataframe import into_frame

from streamkernel.documentation import documented
from streamkernel.errors import InputError, shorten
from streamkernel.features.compiled_kernel import LARGEST_VALUE
from streamkernel.features.frames import native_frame
from streamkernel.features.rows import F64, in_row, is_missing, number

_NUMBERS = {float, int}

_ERRORS = """
Raises
------
InputError
    If a value is neither a finite number, a string nor missing. Nothing changes then.
"""
_ONE = f"""
Parameters
----------
x : dict
    The features by name.
{_ERRORS}"""
_MANY = f"""
Parameters
----------
X : data frame of shape (n_examples, n_fields)
    The features, one row per example.
{_ERRORS}"""


@documented("", {"learn_one": _ONE, "transform_one": _ONE, "learn_many": _MANY, "transform_many": _MANY})
class StandardScaler(base.MiniBatchTransformer):
    """A scaler to mean 0 and deviation 1 for examples as they come: a missing value or a string passes unchanged.

    It subtracts each number's running mean, and divides by its running deviation. A missing value stays missing, which
    the model behind it reads as 0, the mean. River's own fails at ``None`` and at strings, and after one NaN or
    infinity it returns only NaN for this field.

    Put it in front of models with ``learner="dsg"`` or with a `kernel`. Others scale their inputs themselves.

    Parameters
    ----------
    with_std : bool, default True
        Whether to divide by the deviation.

    Examples
    --------
    >>> from streamkernel import KernelRegressor, StandardScaler, kernels
    >>> scaler = StandardScaler()
    >>> for size in (10.0, None, 30.0):
    ...     scaler.learn_one({"size": size, "colour": "red"})
    >>> scaler.transform_one({"size": 40.0, "colour": "red"}), scaler.transform_one({"size": None})
    ({'size': 2.0, 'colour': 'red'}, {'size': None})
    >>> model = StandardScaler() | KernelRegressor(kernels.Laplacian())
    """

    def __init__(self, with_std: bool = True) -> None:
        self.with_std = with_std
        self.counts: dict[Hashable, int] = {}
        self.means: dict[Hashable, float] = {}
        self.vars: dict[Hashable, float] = {}

    def learn_one(self, x: Mapping[Hashable, Any]) -> None:
        """Learn the numbers of an example."""
        if not _has_only_numbers(x):
            x = {name: _number(name, value) for name, value in x.items() if not _passes(value)}
        counts, means, variances = dict(x), dict(x), dict(x)  # copies are faster than dictionaries that grow
        count_of, mean_of, variance_of = self.counts.get, self.means.get, self.vars.get
        for name, value in x.items():
            n, before, variance = count_of(name, 0) + 1, mean_of(name, 0.0), variance_of(name, 0.0)
            mean = before + (value - before) / n
            counts[name], means[name] = n, mean
            variances[name] = variance + ((value - before) * (value - mean) - variance) / n
        self._take(counts, means, variances)

    def transform_one(self, x: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Return an example with scaled numbers; one under a name that has not varied is 0."""
        fields = self._with_scales(x, x.values())
        if _has_only_numbers(x):
            return {name: (value - mean) / sqrt(square) if square else 0.0 for name, value, mean, square in fields}
        scaled: dict[Hashable, Any] = {}
        for name, value, mean, square in fields:
            if _passes(value):
                scaled[name] = value
            else:
                number = _number(name, value)
                scaled[name] = (number - mean) / sqrt(square) if square else 0.0
        return scaled

    def learn_many(self, X: Any) -> None:
        """Learn the numbers of a table, as :meth:`learn_one` of its rows up to rounding."""
        frame = into_frame(X)
        columns = {name: _numbers_in(name, frame.get_column(name).to_list()) for name in frame.columns}
        counts: dict[Hashable, int] = {}
        means: dict[Hashable, float] = {}
        variances: dict[Hashable, float] = {}
        for name, values in columns.items():
            values = values[~np.isnan(values)]
            if len(values):
                n, mean, variance = self.counts.get(name, 0), self.means.get(name, 0.0), self.vars.get(name, 0.0)
                share, off = len(values) / (n + len(values)), float(values.mean()) - mean
                counts[name], means[name] = n + len(values), mean + share * off
                variances[name] = variance + share * (float(values.var()) - variance + (1.0 - share) * off * off)
        self._take(counts, means, variances)

    def transform_many(self, X: Any) -> Any:
        """Return a table with scaled numbers."""
        frame = into_frame(X)
        new_columns: dict[Hashable, Any] = {}
        columns = [frame.get_column(name).to_list() for name in frame.columns]
        for name, values, mean, square in self._with_scales(frame.columns, columns):
            numbers = _numbers_in(name, values)
            scaled = (numbers - mean) / sqrt(square) if square else 0.0 * numbers
            new_columns[name] = scaled
            if any(isinstance(value, str) for value in values):
                new_columns[name] = [
                    one if _passes(one) else new for one, new in zip(values, scaled.tolist(), strict=True)
                ]
        return native_frame(new_columns, X)

    # The next two methods read and change the dictionaries in one call of C code, where no other thread interrupts.

    def _take(self, *new: dict[Hashable, Any]) -> None:
        """Replace the counts, means and variances of some names."""
        deque(map(dict.update, (self.counts, self.means, self.vars), new), maxlen=0)  # type: ignore[arg-type]

    def _with_scales(self, names: Collection[Hashable], values: Iterable[Any]) -> list[tuple[Any, Any, Any, Any]]:
        """Return each name and value with the mean, and the squared divisor, nothing if the name is constant or new."""
        fields = [*zip(names, values, map(self.means.get, names), map(self.vars.get, names), strict=True)]
        return fields if self.with_std else [(name, value, mean, mean is not None) for name, value, mean, _ in fields]


def _has_only_numbers(x: Mapping[Hashable, Any]) -> bool:
    """Return whether all values are numbers of usable size."""
    values = x.values()
    return {*map(type, values)} <= _NUMBERS and sum(map(abs, values)) <= LARGEST_VALUE  # neither of NaN


def _passes(value: Any) -> bool:
    return isinstance(value, str) or is_missing(value)


def _number(name: Hashable, value: Any) -> float:
    converted = number(value, f"x[{name!r}]", "a number or a string")
    if not abs(converted) <= LARGEST_VALUE:
        raise InputError(f"Expected a number of usable size, got {shorten(value)} - at x[{name!r}]")
    return converted


def _numbers_in(name: Hashable, values: list[Any]) -> F64:
    """Return the numbers of a column, NaN for missing values and strings."""
    numbers = np.full(len(values), np.nan)
    for i, value in enumerate(values):
        if not _passes(value):
            try:
                numbers[i] = _number(name, value)
            except InputError as error:
                raise in_row(error, i) from None
    return numbers
