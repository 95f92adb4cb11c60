"""Fields of numbers that become categories while a model learns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from river import compose

from streamkernel.estimators.base import KernelModel
from streamkernel.features.counter_rng import hash64
from streamkernel.features.numeric_names import MOST_COUNTED, SETTLES, Count

BOTH = Count(MOST_COUNTED // 2, MOST_COUNTED // 2)
"""The counts of a name that accepts numbers and strings from now on."""


def take_texts(model: Any, x: Mapping[str, Any]) -> None:
    """Let a model take the texts of an example as categories, also where it has learned numbers.

    Who calls this has found that the field has both. A number there is noticed again. The model may be at the end of a
    pipeline or in a wrapper; others than ours stay as they are.

    Examples
    --------
    >>> from streamkernel import KernelClassifier
    >>> model = KernelClassifier()
    >>> model.learn_one({"plan": 3}, True)
    >>> take_texts(model, {"plan": "basic"})
    >>> model.learn_one({"plan": "basic"}, False)
    """
    while model is not None:
        if isinstance(model, compose.Pipeline):
            model = list(model.steps.values())[-1]
        if hasattr(getattr(model, "_state", None), "numeric"):
            _take(model, x)
        model = getattr(model, "model", None) or getattr(model, "classifier", None)


def _take(model: KernelModel, x: Mapping[str, Any]) -> None:
    counts, mixed = model._state.numeric.counts, {}
    for name, value in x.items():
        if isinstance(value, str):
            count = counts.get(one := hash64(name))
            if count is not None and count.numbers >= SETTLES and count.is_number:
                mixed[one] = BOTH
    if mixed:
        model._model.count_names(mixed)
