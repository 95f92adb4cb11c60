"""Labels and targets as they are given, and the probabilities of labels by their scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkernel import losses
from streamkernel.errors import LabelError
from streamkernel.features.rows import F64, number

Label = bool | str | int
"""What River takes for a label; a float is a label too."""

LARGEST_TARGET = 1e90


def as_label(y: Any) -> Any:
    """Return a label as a value of Python.

    Raises
    ------
    LabelError
        If it is no string, number or Boolean, or not finite.

    Examples
    --------
    >>> as_label(np.int64(3))
    3
    """
    label = y.item() if isinstance(y, np.generic) else y
    if not isinstance(label, (bool, int, float, str)) or (isinstance(label, float) and not math.isfinite(label)):
        raise LabelError(
            f"Expected a label that is a string, a number or a Boolean, got {type(y).__name__} {y!r} - at y"
        )
    return label


def as_target(y: Any) -> float:
    """Return a target as a number.

    Raises
    ------
    InputError
        If it is none.
    LabelError
        If it is too large.
    """
    target = number(y, "y")
    if not abs(target) <= LARGEST_TARGET:
        raise LabelError(f"Expected a finite number of usable size, got {y!r} - at y")
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


def label_array(labels: Mapping[Label, int]) -> Any:
    """Return labels as an array of their type, or of objects where they have several."""
    if len({type(label) for label in labels}) == 1:
        return np.array(list(labels))
    array = np.empty(len(labels), object)
    array[:] = list(labels)
    return array
