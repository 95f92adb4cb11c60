"""The last targets as inputs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from streamkernel.features.rows import is_missing
from streamkernel.time_series.history import HistoryTransformer


class LastTarget(HistoryTransformer):
    """The last targets that are known, as the inputs ``target_lag_1`` (the newest), ``target_lag_2``, ...

    A number is an input as it is. A label that is a string or a Boolean is a string, which the models of this library
    take as an indicator.

    Parameters
    ----------
    n_lags : int, default 1
        Targets that are added.
    key : str or None, default None
        A field, such as the name of a sensor: the last targets come from examples with the same value in it.
    as_category : bool, default False
        Whether numbers are labels too, and become strings.
    max_keys : int, default 10_000
        Keys that are remembered; beyond, the one that was not seen for longest is forgotten.

    Raises
    ------
    ValueError
        If `n_lags` or `max_keys` is less than 1.

    Examples
    --------
    >>> from streamkernel import LastTarget
    >>> last = LastTarget(n_lags=2, key="shop")
    >>> for y in (7.0, 8.0, 9.0):
    ...     last.learn_one({"shop": "north"}, y)
    >>> last.transform_one({"shop": "north", "hour": 3})
    {'shop': 'north', 'hour': 3, 'target_lag_1': 9.0, 'target_lag_2': 8.0}
    >>> last.transform_one({"shop": "south", "hour": 3})
    {'shop': 'south', 'hour': 3}
    """

    def __init__(
        self, n_lags: int = 1, key: str | None = None, as_category: bool = False, max_keys: int = 10_000
    ) -> None:
        super().__init__(n_lags, key, max_keys)
        self.as_category = as_category

    def names(self) -> list[str]:
        """Return the names of all inputs that it can add."""
        return [f"target_lag_{i}" for i in range(1, self.n_lags + 1)]

    def learn_one(self, x: Mapping[Hashable, Any], y: Any = None) -> None:
        """Record the target of an example; a missing one changes nothing.

        Parameters
        ----------
        x : dict
            The features by name.
        y : float or label or None, default None
            The target.
        """
        if is_missing(y):
            return
        if isinstance(y, Mapping):
            raise TypeError(f"Expected one target, got a dictionary of {len(y)} - at y")
        is_label = self.as_category or isinstance(y, bool) or not isinstance(y, (int, float))
        self._remember(x, str(y) if is_label else y)

    def _inputs(self, recent: list[Any]) -> dict[Hashable, Any]:
        return dict(zip(self.names(), recent, strict=False))
