"""A standard scaler that missing values, strings and unusable numbers do not spoil."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np
from river import preprocessing
from river.utils.dataframe import into_frame

from streamkernel.errors import InputError
from streamkernel.features.compiled_kernel import LARGEST_VALUE
from streamkernel.features.frames import native_frame
from streamkernel.features.rows import F64, in_row, is_missing, number


class StandardScaler(preprocessing.StandardScaler):
    """River's ``StandardScaler`` for examples as they come: a missing value or a string passes unchanged.

    It subtracts each number's running mean, and divides by its running deviation. A missing value stays missing, which
    the model behind it reads as 0, the mean. River's own fails at ``None`` and at strings, and after one NaN or
    infinity it returns only NaN for this field.

    Put it in front of models with ``learner="dsg"`` or with a `kernel`. Others scale their inputs themselves.

    Parameters
    ----------
    with_std : bool, default True
        Whether to divide by the deviation.
    window_size : int or None, default None
        Numbers of each field that decide its mean and deviation, the last ones; ``None`` for all.

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
        super().learn_one(x)  # type: ignore[no-untyped-call]

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
        if _has_only_numbers(x) and x.keys() <= self.means.keys():
            scaled: dict[Hashable, Any] = super().transform_one(x)  # type: ignore[no-untyped-call]
            return scaled
        found: dict[Hashable, Any] = {}
        for name, value in x.items():
            found[name] = value
            if not _passes(value):
                mean, unit = self._scale(name)
                found[name] = (_number(name, value) - mean) / unit if unit else 0.0
        return found

    def learn_many(self, X: Any) -> None:
        """Learn the numbers of a table, as :meth:`learn_one` of its rows up to rounding.

        Parameters
        ----------
        X : DataFrame
            The features, one row per example.

        Raises
        ------
        InputError
            If a value is neither a finite number, a string nor missing. Nothing is learned then.
        """
        frame = into_frame(X)
        columns = {name: _numbers_in(name, frame.get_column(name).to_list()) for name in frame.columns}
        if self.window_size is not None:
            rows: Any = frame.iter_rows(named=True)
            for x in rows:
                self.learn_one(x)
            return
        for name, values in columns.items():
            values = values[~np.isnan(values)]
            if len(values):
                share = len(values) / (self.counts[name] + len(values))
                off = float(values.mean()) - self.means[name]
                self.counts[name] += len(values)
                self.means[name] += share * off
                if self.with_std:
                    self.vars[name] += share * (float(values.var()) - self.vars[name] + (1.0 - share) * off * off)

    def transform_many(self, X: Any) -> Any:
        """Return a table with scaled numbers.

        Parameters
        ----------
        X : DataFrame
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
            numbers, (mean, unit) = _numbers_in(name, values), self._scale(name)
            scaled = (numbers - mean) / unit if unit else 0.0 * numbers
            found[name] = scaled
            if any(isinstance(value, str) for value in values):
                found[name] = [one if _passes(one) else new for one, new in zip(values, scaled.tolist(), strict=True)]
        return native_frame(found, X)

    def _scale(self, name: Hashable) -> tuple[float, float]:
        """Return the mean and the deviation of a name; a deviation of 0 if it has not varied."""
        if name not in self.means:
            return 0.0, 0.0
        mean, unit = _value(self.means[name]), 1.0
        return mean, _value(self.vars[name]) ** 0.5 if self.with_std else unit

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
        raise InputError(f"Expected a number of usable size, got {value!r} - at x[{name!r}]")
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


def _value(found: Any) -> float:
    """Return a number, or the value of a statistic."""
    return float(found.get() if hasattr(found, "get") else found)
