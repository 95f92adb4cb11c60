"""The last values of each key, in bounded memory, as inputs of the examples that follow."""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from river import base, compose

from streamkernel.errors import InputError, shorten
from streamkernel.features.rows import is_missing
from streamkernel.time_series.calendar import Calendar


class HistoryTransformer(base.Transformer):
    """A transformer that adds earlier values to an example.

    A River pipeline transforms an example before the step learns it, as with all steps that learn from targets. So a
    model learns with the inputs that it predicts with.

    Parameters
    ----------
    n_lags : int
        Values that are kept for each key.
    key : str or None
        The field that groups examples; ``None`` for one group.
    max_keys : int
        Keys that are remembered; beyond, the one that was not seen for longest is forgotten.

    Raises
    ------
    ValueError
        If `n_lags` or `max_keys` is less than 1.
    """

    def __init__(self, n_lags: int, key: str | None, max_keys: int) -> None:
        for name, value in (("n_lags", n_lags), ("max_keys", max_keys)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"Expected {name} as an integer of at least 1, got {value!r}")
        self.n_lags = n_lags
        self.key = key
        self.max_keys = max_keys
        self._known: OrderedDict[Any, list[Any]] = OrderedDict()

    @property
    def _supervised(self) -> bool:
        return True

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all inputs that it can add."""

    @abstractmethod
    def _inputs(self, recent: list[Any]) -> dict[Hashable, Any]:
        """Return the inputs with the last values of a key, the newest first."""

    def transform_one(self, x: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Return an example with the earlier values that are known.

        Inputs of these names that the example already has, as `with_history` adds them, do not change.
        """
        names = self.names()
        if any(name in x for name in names):
            return {name: value for name, value in x.items() if value is not None or name not in names}
        return {**x, **self._inputs(self._known.get(self._key_of(x), []))}

    def with_history(self, x: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Return an example with all inputs of `names`, ``None`` for unknown values; they stay with the example."""
        names = self.names()
        if any(name in x for name in names):
            return dict(x)
        unknown: dict[Hashable, Any] = dict.fromkeys(names)
        return {**x, **unknown, **self.transform_one(x)}

    def observe(self, x: Mapping[Hashable, Any]) -> None:
        """Record the known part of an example when it arrives, before its target is known."""

    def _key_of(self, x: Mapping[Hashable, Any]) -> Any:
        key = None if self.key is None else x.get(self.key)
        if not isinstance(key, Hashable):
            raise InputError(f"Expected a key as a string or a number, got {shorten(key)} - at x[{self.key!r}]")
        return None if is_missing(key) else key

    def _remember(self, x: Mapping[Hashable, Any], value: Any) -> None:
        key = self._key_of(x)
        self._known[key] = [value, *self._known.get(key, [])][: self.n_lags]
        self._known.move_to_end(key)
        if len(self._known) > self.max_keys:
            self._known.popitem(last=False)


def with_history(model: Any, x: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return an example with the earlier values known at its arrival, for a target that arrives later.

    The model predicts and learns the result, so it learns with the inputs it predicted with, and not with targets that
    were unknown at the time of the prediction.

    Parameters
    ----------
    model : object
        A pipeline that begins with :class:`~streamkernel.LastTarget` or :class:`~streamkernel.Lags`; any other model
        adds nothing.
    x : dict
        The features by name.

    Examples
    --------
    >>> from streamkernel import KernelRegressor, LastTarget
    >>> model = LastTarget() | KernelRegressor()
    >>> model.learn_one({"a": 1.0}, 5.0)
    >>> with_history(model, {"a": 2.0})
    {'a': 2.0, 'target_lag_1': 5.0}
    """
    example = add_history(model, x)
    observe(model, x)
    return example


def add_history(model: Any, x: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the result of `with_history`, without recording the example."""
    example = dict(x)
    for step in first_steps(model):
        example = step.with_history(example)
    return example


def observe(model: Any, x: Mapping[Any, Any]) -> None:
    """Let the first steps of a pipeline record an example that arrives without its target."""
    for step in first_steps(model):
        step.observe(x)


def history_names(model: Any) -> list[str]:
    """Return the names of the inputs that `with_history` adds."""
    return [name for step in first_steps(model) for name in step.names()]


def first_steps(model: Any) -> Iterator[HistoryTransformer]:
    """Yield the steps at the beginning of a pipeline that add earlier values; a calendar may be among them."""
    for step in model.steps.values() if isinstance(model, compose.Pipeline) else ():
        if isinstance(step, HistoryTransformer):
            yield step
        elif not isinstance(step, Calendar):
            return
