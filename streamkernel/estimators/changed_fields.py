"""Fields of numbers that become categories while a model learns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streamkernel.features.counter_rng import hash64


def take_texts(model: Any, x: Mapping[str, Any]) -> None:
    """Let a model take the texts of an example as categories, also where it has learned numbers.

    Parameters
    ----------
    model
        A model; one without names of numeric fields stays as it is.
    x
        The example.

    Examples
    --------
    >>> from streamkernel import KernelClassifier
    >>> model = KernelClassifier()
    >>> model.learn_one({"plan": 3}, True)
    >>> take_texts(model, {"plan": "basic"})
    >>> model.learn_one({"plan": "basic"}, False)
    """
    state: Any = getattr(model, "_state", None)
    numeric = getattr(state, "numeric", None)
    if numeric is None:
        return
    texts = {hash64(name) for name, value in x.items() if isinstance(value, str)} & numeric.numbers
    if texts:
        directions = state.learner.directions
        for record in (directions.last, *list(directions.store.records.values())):
            record.is_numeric = False  # so that numbers are noticed again
        model._state = replace(state, numeric=numeric._replace(numbers=numeric.numbers - texts))
