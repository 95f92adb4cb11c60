"""River's scalers as an offset and a factor for each input."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from river import preprocessing

from streamkernel.estimators.standard_scaler import StandardScaler


def check(steps: Iterable[Any]) -> None:
    """Raise a ValueError that names a step which is not one of the scalers."""
    for step in steps:
        kind = type(_inner(step))
        if kind not in _KINDS:
            kinds = ", ".join(dict.fromkeys(one.__name__ for one in _KINDS))
            raise ValueError(f"Expected one of {kinds} in front of the model, got a {kind.__name__}")


def names_of(step: Any) -> Iterable[Hashable]:
    """Return the names that a scaler has learned."""
    inner = _inner(step)
    return getattr(inner, _KINDS[type(inner)][0])  # type: ignore[no-any-return]


def together(steps: Sequence[Any], names: Sequence[Hashable | None]) -> dict[str, Any]:
    """Return the total offset and factor of successive scalers for each input.

    Examples
    --------
    >>> scaler = preprocessing.MinMaxScaler()
    >>> for x in (2.0, 6.0):
    ...     scaler.learn_one({"x": x})
    >>> {name: array.tolist() for name, array in together([scaler], ["x", "other"]).items()}
    {'first.centre': [2.0, 0.0], 'first.factor': [0.25, 0.0]}
    """
    if not steps:
        return {}
    centre, factor = np.zeros(len(names)), np.ones(len(names))
    for step in steps:
        subtracted, multiplied = np.array([_of(step, name) for name in names]).T
        centre += np.divide(subtracted, factor, out=np.zeros(len(names)), where=factor != 0.0)
        factor = factor * multiplied
    return {"first.centre": centre, "first.factor": factor}


def _is_on_fields(step: Any) -> bool:
    """Return whether a step is limited to some fields, as in a run; only then has its module been imported."""
    fields = sys.modules.get("streamkernel.engine.fields")
    return fields is not None and isinstance(step, fields.OnFields)


def _inner(step: Any) -> Any:
    return step.transformer if _is_on_fields(step) else step


def _of(step: Any, name: Hashable | None) -> tuple[float, float]:
    """Return the offset and the factor of a step for a name."""
    if name not in names_of(step):
        passes = _is_on_fields(step) or isinstance(step, StandardScaler)
        return 0.0, float(passes)  # River's scalers return 0 for names that they have not learned
    inner = _inner(step)
    subtracted, divisor = _KINDS[type(inner)][1](inner, name)
    return subtracted, 1.0 / divisor if divisor else 0.0


def _value(found: Any) -> float:
    """Return a number, or the value of a statistic."""
    return float(found.get() if hasattr(found, "get") else found)


def _standard(step: Any, name: Hashable) -> tuple[float, float]:
    return _value(step.means[name]), _value(step.vars[name]) ** 0.5 if step.with_std else 1.0


def _least_to_most(step: Any, name: Hashable) -> tuple[float, float]:
    low = _value(step.min[name])
    return low, _value(step.max[name]) - low


def _by_largest(step: Any, name: Hashable) -> tuple[float, float]:
    return 0.0, _value(step.abs_max[name])


_KINDS: dict[type, tuple[str, Any]] = {
    preprocessing.StandardScaler: ("means", _standard),
    StandardScaler: ("means", _standard),
    preprocessing.MinMaxScaler: ("min", _least_to_most),
    preprocessing.MaxAbsScaler: ("abs_max", _by_largest),
}
"""The scalers, with the attributes that hold each name's offset and divisor."""
