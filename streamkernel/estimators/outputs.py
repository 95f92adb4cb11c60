"""The kinds of y that a model learns: their numbers, their columns of f, and their part of a file.

Labels of one text in several forms, as ``1`` and ``"1"``, which would be one key of a JSON object twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streamkernel.errors import LabelError, TooManyClassesError, shorten
from streamkernel.estimators.model_state import State
from streamkernel.estimators.targets import Label, as_label, balanced_weights, class_counts
from streamkernel.features.rows import F64, Rows
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.kernels import Kernel
from streamkernel.learners import state
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.tensor_file import require_tensor

Learner = FirstOrderLearner | SecondOrderLearner
"""A function that learns."""
_BOOLEANS = (("false", "False"), ("true", "True"))
"""Texts of ``False`` and ``True`` in JSON and in Python, which has them equal to 0 and 1."""


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

    def check(self, learned: Mapping[Any, int], labels: Sequence[Any]) -> None:
        """Raise an InputError if one of these labels cannot be learned after the known ones."""

    def number_labels(
        self, model_state: State, labels: Sequence[Any], y: F64, first: int, last: int
    ) -> tuple[int, State]:
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

    def weigh(self, rows: Rows, y: F64, model_state: State) -> Rows:
        """Return rows, which come after `model_state`, with the weights of their classes."""
        return rows

    def own_after(self, model_state: State, y: F64) -> Any:
        """Return the state of the outputs after these targets have been learned."""
        return model_state.own

    def describe(self, labels: Mapping[Any, int]) -> dict[str, Any]:
        """Return the labels for the description in a file."""
        return {}

    def labels_in(self, description: Mapping[str, Any]) -> dict[Any, int]:
        """Return the labels of a description."""
        return {}

    def tensors(self, outputs_state: Any) -> dict[str, Any]:
        """Return the state of the outputs as arrays that share nothing with it."""
        return {}

    def own_in(self, tensors: Mapping[str, Any], labels: int) -> Any:
        """Return the state of the outputs in a file, which has a number of labels."""
        return None


class LabelForms:
    """The form that each label had when it came first; other forms with its text are converted to it.

    `labels` are in the order in which they came.

    Examples
    --------
    >>> forms = LabelForms([1, "no"])
    >>> forms.known(["1", 1.0, "no", "yes", "no"]), forms.of("yes")
    ([1, 1, 'no'], 'yes')
    """

    def __init__(self, labels: Iterable[Any] = ()) -> None:
        self._forms: dict[Any, Any] = {}
        for label in labels:
            self.add(label)

    def __contains__(self, label: Any) -> bool:
        return label in self._forms

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def labels(self) -> list[Any]:
        """The labels in their first forms, in the order in which they came."""
        return list(dict.fromkeys(self._forms.values()))

    def add(self, label: Any) -> None:
        """Add a label, unless it is known in some form."""
        if label not in self._forms:
            self._forms[label] = label
            for other in namesakes(label):
                self._forms.setdefault(other, label)

    def of(self, label: Any) -> Any:
        """Return the first form of a label, which is the label itself if it is new."""
        return self._forms.get(label, label)

    def known(self, labels: Sequence[Any]) -> list[Any]:
        """Return the first forms of labels, up to a label that is new."""
        forms = list(map(self._forms.get, labels))
        return forms[: forms.index(None)] if None in forms else forms


def namesakes(label: Any) -> list[Any]:
    """Return other labels with the text of a label: the texts of a number, or the number whose text it is.

    Examples
    --------
    >>> namesakes(7), namesakes("7"), namesakes("07"), namesakes(True), namesakes("no")
    (['7', '7.0'], [7], [], ['1', '1.0', 'true', 'True'], [])
    """
    if not isinstance(label, str):
        return _texts(label)
    number = _number(label)
    return [number] if number is not None and label in _texts(number) else []


def _number(text: str) -> Any:
    for value, texts in zip((False, True), _BOOLEANS, strict=True):
        if text in texts:
            return value
    try:
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError:
        return None


def _texts(number: Any) -> list[str]:
    """Return a number as JSON and Python write it, as an integer and as a float."""
    if not abs(number) < 1e300:
        return []
    if number == int(number) and abs(number) < 1 << 64:
        whole = int(number)
        texts = [str(whole), *_exponents(float(number))]
        return [*texts, *(_BOOLEANS[whole] if whole in (0, 1) else ())]
    return _exponents(float(number))


def _exponents(number: float) -> list[str]:
    """Return the text of a float in Python, and in JSON if it is another one: ``1e-07`` and ``1e-7``."""
    text = repr(number)
    return list(dict.fromkeys((text, text.replace("e+", "e").replace("e-0", "e-"))))


class Classes(ModelOutputs):
    """A y that is a label.

    With `is_softmax` each label has a column of f; otherwise two labels have one column. With `is_balanced` examples
    are weighted by the counts of their labels, which are the additional state of the model.
    """

    def __init__(self, most: int, *, is_softmax: bool, is_balanced: bool) -> None:
        super().__init__()
        self.most, self.is_softmax, self.is_balanced = most, is_softmax, is_balanced

    def number(self, y: Any, labels: Mapping[Any, int], name: str) -> float:
        """Return the number of a label."""
        number = labels.get(as_label(y))
        if number is None:
            learned = shorten([*labels])
            raise LabelError(f"Expected a label that the model has learned, {learned}, got {shorten(y)} - at y")
        return number

    def check(self, learned: Mapping[Any, int], labels: Sequence[Any]) -> None:
        """Raise an InputError if there are too many labels, or two forms of one."""
        new = dict.fromkeys(label for label in labels if label not in learned)
        if new and len(learned) + len(new) > self.most:
            label = list(new)[max(0, self.most - len(learned))]
            raise TooManyClassesError(
                f"Expected at most {self.most} labels (max_classes), got one more, {shorten(label)} - at y"
            )
        came = {label: label for label in (*learned, *new)} if new else {}
        for label in new:
            for other in namesakes(label):
                if other in came:
                    both = f"{shorten(came[other])} and {shorten(label)}"
                    raise LabelError(f"Expected one form of a label, got {both}, which are one key in JSON - at y")

    def number_labels(
        self, model_state: State, labels: Sequence[Any], y: F64, first: int, last: int
    ) -> tuple[int, State]:
        """Set `y` to the numbers of labels, up to a new label after the first; a new first label is added."""
        for i in range(first, last):
            number = model_state.labels.get(labels[i])
            if number is None:
                if i > first:
                    return i, model_state
                model_state = self.with_label(model_state, labels[i])
                number = model_state.labels[labels[i]]
            y[i] = number
        return last, model_state

    def with_label(self, model_state: State, label: Label) -> State:
        """Return the state extended by a new label."""
        if len(model_state.labels) >= (1 if self.is_softmax else 2):
            upkeep = None if model_state.upkeep is None else model_state.upkeep.with_column()
            model_state = replace(model_state, learner=model_state.learner.with_column(), upkeep=upkeep)
        return replace(model_state, labels={**model_state.labels, label: len(model_state.labels)})

    def columns(self, labels: int) -> int:
        """Return the number of columns of f for a number of labels."""
        if self.is_softmax:
            return max(1, labels)
        return 1 if labels <= 2 else labels

    def new_own(self) -> Any:
        """Return the counts of examples by label."""
        return np.zeros(0) if self.is_balanced else None

    def weigh(self, rows: Rows, y: F64, model_state: State) -> Rows:
        """Return rows with the weights of their classes."""
        if model_state.own is None:
            return rows
        counts = class_counts(model_state.own, np.zeros(0), len(model_state.labels))
        return rows._replace(weights=rows.weights * balanced_weights(y, counts))

    def own_after(self, model_state: State, y: F64) -> Any:
        """Return the counts of examples by label after these were learned."""
        return None if model_state.own is None else class_counts(model_state.own, y, len(model_state.labels))

    def describe(self, labels: Mapping[Any, int]) -> dict[str, Any]:
        """Return the labels in their order."""
        return {"labels": list(labels)}

    def labels_in(self, description: Mapping[str, Any]) -> dict[Any, int]:
        """Return the labels of a description."""
        labels = {as_label(label): i for i, label in enumerate(description["labels"])}
        if len(LabelForms(labels)) != len(description["labels"]):
            raise ValueError(f"expected labels that differ, got {description['labels']!r}")
        return labels

    def tensors(self, outputs_state: Any) -> dict[str, Any]:
        """Return the counts of examples by label."""
        return {} if outputs_state is None else {"class_counts": outputs_state.copy()}

    def own_in(self, tensors: Mapping[str, Any], labels: int) -> Any:
        """Return the counts of examples by label in a file."""
        if not self.is_balanced:
            return None
        counts = require_tensor(tensors, "class_counts", np.float64, (None,))
        if (counts < 0.0).any() or len(counts) > labels:
            raise ValueError(f"expected numbers of examples of {labels} labels as class_counts, got {counts.tolist()}")
        return counts
