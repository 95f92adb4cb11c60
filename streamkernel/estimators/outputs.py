"""The kind of y that a model learns: its numbers, its columns of f, and its part of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamkernel.estimators.model_state import State
from streamkernel.features.rows import F64, Rows
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.kernels import Kernel
from streamkernel.learners import state
from streamkernel.second_order.mixture import SecondOrderLearner

Learner = FirstOrderLearner | SecondOrderLearner
"""A function that learns."""


class ModelOutputs:
    """A y that is one number, or none; subclasses are of labels and of several targets.

    `intercept` is one of :mod:`streamkernel.learners.state`. `as_number` is ``None`` for models that are neither
    classifiers nor regressors.
    """

    are_several = False
    """Whether y is a dictionary of targets."""

    def __init__(self, intercept: int = state.NOTHING, as_number: Callable[[Any], float] | None = None) -> None:
        self.intercept, self._as_number = intercept, as_number

    def number(self, y: Any, labels: Mapping[Any, int], name: str) -> float:
        """Return the target of one example as a number, with the labels of a model and its name."""
        if self._as_number is None:
            raise ValueError(f"Expected a classifier or a regressor, got a {name}")
        return self._as_number(y)

    def check(self, known: Mapping[Any, int], labels: Sequence[Any]) -> None:
        """Raise an InputError if one of these labels cannot be learned after the known ones."""

    def number_labels(self, found: State, labels: Sequence[Any], y: F64, first: int, last: int) -> tuple[int, State]:
        """Set `y` to the numbers of labels, up to a new label after the first; a new first label is added.

        Return the index of that label, or `last`, and the state.
        """
        raise NotImplementedError

    def columns(self, labels: int) -> int:
        """Return the number of columns of f for a number of labels."""
        return 1

    def learner(self, new: Callable[..., Learner], kernel: Kernel, columns: int) -> Learner:
        """Return an untrained function with a number of columns."""
        return new(kernel, columns=columns)

    def new_own(self) -> Any:
        """Return the state of the outputs before the first example."""
        return None

    def weigh(self, rows: Rows, y: F64, found: State) -> Rows:
        """Return rows, which come after `found`, with the weights of their classes."""
        return rows

    def own_after(self, found: State, y: F64) -> Any:
        """Return the state of the outputs after these targets have been learned."""
        return found.own

    def describe(self, labels: Mapping[Any, int]) -> dict[str, Any]:
        """Return the labels for the description in a file."""
        return {}

    def labels_in(self, description: Mapping[str, Any]) -> dict[Any, int]:
        """Return the labels of a description."""
        return {}

    def tensors(self, own: Any) -> dict[str, Any]:
        """Return the state of the outputs as arrays that share nothing with it."""
        return {}

    def own_in(self, tensors: Mapping[str, Any]) -> Any:
        """Return the state of the outputs in a file."""
        return None
