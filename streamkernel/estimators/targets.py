"""Labels, targets and weights from users, and the probabilities of labels from their scores."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

import numpy as np

from streamkernel import losses
from streamkernel.errors import InputError, LabelError, shorten
from streamkernel.features.frames import targets_of
from streamkernel.features.rows import F64, number

Label = bool | str | int
"""The types of labels in River; a float is a label too."""
LARGEST_TARGET = 1e90
LARGEST_WEIGHT = 1e9
"""Weights beyond lose what other examples say to rounding."""
SMALLEST_WEIGHT = sys.float_info.min
"""Weights below have few digits left, and half of one may be 0: they count as 0."""
ClassWeight = Mapping[Label, float] | Literal["balanced"] | None
"""The type of `class_weight`."""


def as_label(y: Any, where: str = "y") -> Any:
    """Return a label as a Python value; an error says `where` it is.

    Raise a LabelError if it is not a string, number or Boolean, or not finite.

    Examples
    --------
    >>> as_label(np.int64(3))
    3
    """
    label = y.item() if isinstance(y, np.generic) else y
    if not isinstance(label, (bool, int, float, str)) or (isinstance(label, float) and not math.isfinite(label)):
        raise LabelError(
            "Expected a label that is a string, a number or a Boolean, "
            f"got {type(y).__name__} {shorten(y)} - at {where}"
        )
    return label


def as_target(y: Any, where: str = "y") -> float:
    """Return a target as a number; an error says `where` it is.

    Raise an InputError if it is none, a LabelError if it is too large.
    """
    target = number(y, where)
    if not abs(target) <= LARGEST_TARGET:
        raise LabelError(f"Expected a finite number of usable size, got {shorten(y)} - at {where}")
    return target


def sigmoid(score: float) -> float:
    """Return 1 / (1 + exp(-score))."""
    return 0.5 * (1.0 + math.tanh(0.5 * score))


def probabilities(loss: losses.Loss, scores: F64, labels: int) -> F64:
    """Return probabilities, shape (examples, labels), for scores, shape (examples, columns)."""
    if labels < 2:
        return np.ones((len(scores), labels))
    if isinstance(loss, (losses.Logistic, losses.Softmax)) and scores.shape[1] > 1:
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))
    if scores.shape[1] == 1:
        up = np.array([sigmoid(score) for score in scores[:, 0].tolist()]).reshape(-1, 1)
        return np.concatenate([1.0 - up, up], axis=1)
    sigmoids = 0.5 * (1.0 + np.tanh(0.5 * scores)) + 1e-300
    return np.asarray(sigmoids / sigmoids.sum(axis=1, keepdims=True))


def probabilities_of(loss: losses.Loss, labels: Collection[Label], score: Any) -> dict[Label, float]:
    """Return the probabilities of the labels for one example, from its score or its scores, an array."""
    if type(score) is float and len(labels) == 2:  # what most events are
        return of_two_labels(labels, (score,))[0]
    shares = probabilities(loss, np.array(score).reshape(1, -1), len(labels))[0]
    return dict(zip(labels, shares.tolist(), strict=True))


def of_two_labels(labels: Iterable[Label], scores: Iterable[float]) -> list[dict[Label, float]]:
    """Return the probabilities of two labels for each of some log-odds of the second.

    Examples
    --------
    >>> of_two_labels(["no", "yes"], [0.0])
    [{'no': 0.5, 'yes': 0.5}]
    """
    first, second = labels
    ups = [0.5 * (1.0 + math.tanh(0.5 * score)) for score in scores]  # `sigmoid` of each, without a call
    return [{first: 1.0 - up, second: up} for up in ups]


def label_of(names: tuple[Any, ...], score: Any) -> Label | None:
    """Return the label of the highest score for one example, from its score or its scores, an array.

    `names` are the labels and ``None``.

    Examples
    --------
    >>> label_of(("no", "yes", None), -0.5), label_of((None,), 0.0)
    ('no', None)
    """
    best = score > 0.0 and len(names) == 3 if type(score) is float else score.argmax()
    label: Label | None = names[best]
    return label


def label_array(labels: Mapping[Label, int]) -> Any:
    """Return labels as an array of their type, or of objects if their types differ."""
    if len({type(label) for label in labels}) == 1:
        return np.array(list(labels))
    array = np.empty(len(labels), object)
    array[:] = list(labels)
    return array


def larger(labels: Mapping[Label, int]) -> Label:
    """Return the larger of two labels, or the later one if they cannot be compared.

    Examples
    --------
    >>> larger({True: 0, False: 1}), larger({"b": 0, 1: 1})
    (True, 1)
    """
    first, second = labels
    try:
        return first if first > second else second  # type: ignore[operator]
    except TypeError:
        return second


def label_scores(scores: F64, labels: Mapping[Label, int], label: Label | None, is_log_probability: bool) -> F64:
    """Return the score of a label, shape (examples,), from scores of shape (examples, columns).

    For one of two labels it is the log-odds. For one of more it is the score of its column; if the scores are
    log-probabilities up to a constant, their mean is subtracted. With fewer than two labels it is 0.

    Examples
    --------
    >>> label_scores(np.array([[2.0]]), {"no": 0, "yes": 1}, "no", True)
    array([-2.])
    >>> label_scores(np.array([[2.0, 1.0, 0.0]]), {"a": 0, "b": 1, "c": 2}, "a", True)
    array([1.])
    """
    if label is None or len(labels) < 2:
        return np.zeros(len(scores))
    number = labels[label]
    if len(labels) == 2:
        odds = scores[:, 0] if scores.shape[1] == 1 else scores[:, 1] - scores[:, 0]
        return np.asarray(odds if number == 1 else -odds)
    return np.asarray(scores[:, number] - (scores.mean(axis=1) if is_log_probability else 0.0))


def as_weight(w: Any, where: str = "w") -> float:
    """Return the weight of an example as a number; one too small for all digits of a number is 0.

    Raise an InputError if it is not a number, or out of its range.

    Examples
    --------
    >>> as_weight(2), as_weight(1e-310)
    (2.0, 0.0)
    """
    weight = number(w, where)
    if not 0.0 <= weight <= LARGEST_WEIGHT:
        raise InputError(f"Expected a weight from 0 to {LARGEST_WEIGHT:.0e}, got {shorten(w)} - at {where}")
    return weight if weight >= SMALLEST_WEIGHT else 0.0


def weights_of(w: Any, rows: int) -> F64:
    """Return the weights of rows from one number, a series of any library, an array or a list; 1 each for ``None``.

    Raise an InputError that names the row if a weight is unusable, a ValueError if their number differs from the number
    of rows.
    """
    if w is None:
        return np.ones(rows)
    if isinstance(w, (int, float, np.number)):
        return np.full(rows, as_weight(w))
    return np.array([as_weight(one, f"w, row {i}") for i, one in enumerate(targets_of(w, rows, "weights"))], np.float64)


def check_class_weight(class_weight: Any) -> None:
    """Raise an error if `class_weight` is invalid."""
    if class_weight is None or class_weight == "balanced":
        return
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            f'Expected class_weight as None, "balanced" or a dictionary of weights by label, got {class_weight!r}'
        )
    for label, w in class_weight.items():
        as_label(label)
        as_weight(w, f"class_weight[{label!r}]")


def balanced_weights(y: F64, counts: F64) -> F64:
    """Return the weights min n/n_y of examples in order, which give all classes the weight of the rarest.

    `y` are the numbers of their classes, and `counts` the examples of each class before, shape (classes,).

    Examples
    --------
    >>> balanced_weights(np.array([0.0, 1.0, 1.0, 0.0]), np.array([3.0, 0.0])).tolist()
    [1.0, 1.0, 1.0, 0.4]
    """
    totals, weights = counts.tolist(), []
    for one in y.astype(np.int64).tolist():
        totals[one] += 1.0
        weights.append(min(filter(None, totals)) / totals[one])
    return np.array(weights)


def class_counts(counts: F64, y: F64, labels: int) -> F64:
    """Return the number of examples of each class, shape (labels,), after examples of these class numbers."""
    totals: F64 = np.bincount(y.astype(np.int64), minlength=labels).astype(np.float64)
    totals[: len(counts)] += counts
    return totals
