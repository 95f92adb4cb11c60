"""A standard scaler that missing values, strings and unusable numbers do not spoil."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np
from river import base
from river.utils.dataframe import into_frame

from streamkernel.errors import InputError, shorten
from streamkernel.features.compiled_kernel import LARGEST_VALUE
from streamkernel.features.frames import native_frame
from streamkernel.features.rows import F64, in_row, is_missing, number


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
    >>> from streamkernel import KernelRegressor, StandardScaler
    >>> scaler = StandardScaler()
    >>> for size in (10.0, None, 30.0):
    ...     scaler.learn_one({"size": size, "colour": "red"})
    >>> scaler.transform_one({"size": 40.0, "colour": "red"}), scaler.transform_one({"size": None})
    ({'size': 2.0, 'colour': 'red'}, {'size': None})
    >>> model = StandardScaler() | KernelRegressor(learner="dsg")
    """

    def __init__(self, with_std: bool = True) -> None:
        self.with_std = with_std
        self.counts: dict[Hashable, int] = {}
        self.means: dict[Hashable, float] = {}
        self.vars: dict[Hashable, float] = {}

    def learn_one(self, x: Mapping[Hashable, Any]) -> None:
        """Learn the numbers of an example.

        Parameters
        ----------
        x : dict
            The features by name.

        Raises
        ------
        InputError
            If a value is neither a finite number, a string nor missing. Nothing is learned then.
        """
        if not _has_only_numbers(x):
            x = {name: _number(name, value) for name, value in x.items() if not _passes(value)}
        counts, means, variances = self.counts, self.means, self.vars
        for name, value in x.items():
            n = counts.get(name, 0) + 1
            before, variance = means.get(name, 0.0), variances.get(name, 0.0)
            mean = before + (value - before) / n
            counts[name], means[name] = n, mean
            variances[name] = variance + ((value - before) * (value - mean) - variance) / n

    def transform_one(self, x: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Return an example with scaled numbers; one under a name that has not varied is 0.

        Parameters
        ----------
        x : dict
            The features by name.

        Raises
        ------
        InputError
            If a value is neither a finite number, a string nor missing.
        """
        has_only_numbers, means, found = _has_only_numbers(x), self.means, {}
        for name, value in x.items():
            if has_only_numbers or not _passes(value):
                unit = self._unit(name)
                number = value if has_only_numbers else _number(name, value)
                found[name] = (number - means[name]) / unit if unit else 0.0
            else:
                found[name] = value
        return found

    def learn_many(self, X: Any) -> None:
        """Learn the numbers of a table, as :meth:`learn_one` of its rows up to rounding.

        Parameters
        ----------
        X : data frame of shape (n_examples, n_fields)
            The features, one row per example.

        Raises
        ------
        InputError
            If a value is neither a finite number, a string nor missing. Nothing is learned then.
        """
        frame = into_frame(X)
        columns = {name: _numbers_in(name, frame.get_column(name).to_list()) for name in frame.columns}
        for name, values in columns.items():
            values = values[~np.isnan(values)]
            if len(values):
                n, mean, variance = self.counts.get(name, 0), self.means.get(name, 0.0), self.vars.get(name, 0.0)
                share, off = len(values) / (n + len(values)), float(values.mean()) - mean
                self.counts[name], self.means[name] = n + len(values), mean + share * off
                self.vars[name] = variance + share * (float(values.var()) - variance + (1.0 - share) * off * off)

    def transform_many(self, X: Any) -> Any:
        """Return a table with scaled numbers.

        Parameters
        ----------
        X : data frame of shape (n_examples, n_fields)
            The features, one row per example.

        Raises
        ------
        InputError
            If a value is neither a finite number, a string nor missing.
        """
        frame = into_frame(X)
        found: dict[Hashable, Any] = {}
        for name in frame.columns:
            values = frame.get_column(name).to_list()
            numbers, unit = _numbers_in(name, values), self._unit(name)
            scaled = (numbers - self.means[name]) / unit if unit else 0.0 * numbers
            found[name] = scaled
            if any(isinstance(value, str) for value in values):
                found[name] = [one if _passes(one) else new for one, new in zip(values, scaled.tolist(), strict=True)]
        return native_frame(found, X)

    def _unit(self, name: Hashable) -> float:
        """Return the divisor of a name, 0 if it is constant or new."""
        variance = self.vars.get(name, 0.0)
        return math.sqrt(variance) if self.with_std else float(name in self.means)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {}


def _has_only_numbers(x: Mapping[Hashable, Any]) -> bool:
    """Return whether all values are numbers of usable size."""
    values = x.values()
    if not {*map(type, values)} <= {float, int}:
        return False
    total = sum(values)
    return total == total and max(values, default=0.0) <= LARGEST_VALUE and min(values, default=0.0) >= -LARGEST_VALUE


def _passes(value: Any) -> bool:
    return isinstance(value, str) or is_missing(value)


def _number(name: Hashable, value: Any) -> float:
    found = number(value, f"x[{name!r}]", "a number or a string")
    if not abs(found) <= LARGEST_VALUE:
        raise InputError(f"Expected a number of usable size, got {shorten(value)} - at x[{name!r}]")
    return found


def _numbers_in(name: Hashable, values: list[Any]) -> F64:
    """Return the numbers of a column, NaN for missing values and strings."""
    found = np.full(len(values), np.nan)
    for i, value in enumerate(values):
        if not _passes(value):
            try:
                found[i] = _number(name, value)
            except InputError as error:
                raise in_row(error, i) from None
    return found
