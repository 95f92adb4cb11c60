"""Earlier values of fields as inputs."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from streamkernel.features.rows import is_missing
from streamkernel.time_series.history import HistoryTransformer


class Lags(HistoryTransformer):
    """Fields of the examples before, as the inputs ``temperature_lag_1`` (the newest), ``temperature_lag_2``, ...

    Parameters
    ----------
    fields : sequence of str
        The fields.
    n_lags : int, default 1
        Examples that are added.
    key : str or None, default None
        A field, such as the name of a sensor: the examples before are those with the same value in it.
    max_keys : int, default 10_000
        Keys that are remembered; beyond, the one that was not seen for longest is forgotten.

    Raises
    ------
    ValueError
        If there is no field, or `n_lags` or `max_keys` is less than 1.

    Examples
    --------
    >>> from streamkernel import Lags
    >>> lags = Lags(["load"], n_lags=2)
    >>> for load in (0.1, 0.4, 0.9):
    ...     lags.learn_one({"load": load})
    >>> lags.transform_one({"load": 1.0})
    {'load': 1.0, 'load_lag_1': 0.9, 'load_lag_2': 0.4}
    """

    def __init__(self, fields: Sequence[str], n_lags: int = 1, key: str | None = None, max_keys: int = 10_000) -> None:
        if isinstance(fields, str) or not fields:
            raise ValueError(f"Expected a list of at least one field, got {fields!r}")
        super().__init__(n_lags, key, max_keys)
        self.fields = fields

    def names(self) -> list[str]:
        """Return the names of all inputs that it can add."""
        return [f"{field}_lag_{i}" for field in self.fields for i in range(1, self.n_lags + 1)]

    def learn_one(self, x: Mapping[Hashable, Any], y: Any = None) -> None:
        """Record the fields of an example, unless that was done at its arrival.

        Parameters
        ----------
        x : dict
            The features by name.
        y : object, default None
            Is not looked at.
        """
        if not any(name in x for name in self.names()):
            self.observe(x)

    def observe(self, x: Mapping[Hashable, Any]) -> None:
        """Record the fields of an example.

        Parameters
        ----------
        x : dict
            The features by name.
        """
        values = [x.get(field) for field in self.fields]
        self._remember(x, [None if is_missing(value) else value for value in values])

    def _inputs(self, recent: list[Any]) -> dict[Hashable, Any]:
        return {
            f"{field}_lag_{lag}": values[i]
            for i, field in enumerate(self.fields)
            for lag, values in enumerate(recent, start=1)
            if values[i] is not None
        }

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"fields": ["x"]}
