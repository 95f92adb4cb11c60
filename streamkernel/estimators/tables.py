"""The rows of a table: learning from them in order, their scores, and the scores of their classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamkernel.estimators.model import Model
from streamkernel.estimators.model_state import State
from streamkernel.estimators.targets import SMALLEST_WEIGHT, label_scores, probabilities
from streamkernel.features.frames import table_blocks
from streamkernel.features.rows import F64
from streamkernel.solvers.progress import progress_line

SHOWN = 256
"""Rows between two moves of a progress line."""


def learn_table(
    model: Model, X: Any, y: F64, weights: F64, labels: Sequence[Any] = (), *, verbose: bool = False
) -> None:
    """Learn the rows of a table in order, except rows of weight 0."""
    found, done = model.state, 0
    directions, before = found.learner.directions, found.numeric
    known = [label for label, w in zip(labels, weights.tolist(), strict=False) if w >= SMALLEST_WEIGHT]
    model.outputs.check(found.labels, known)
    with progress_line("Learning", show=verbose) as tell:
        for block, numeric in table_blocks(directions, X, before):
            size = len(block.start) - 1
            for first in range(0, size, SHOWN if verbose else max(1, size)):
                rows = block.part(first, min(first + SHOWN, size) if verbose else size)
                last = done + len(rows.start) - 1
                rows, own, targets = rows._replace(weights=weights[done:last]), labels[done:last], y[done:last]
                chosen = rows.weights >= SMALLEST_WEIGHT
                if not chosen.all():
                    own = [label for label, is_one in zip(own, chosen, strict=True) if is_one] if own else ()
                    rows, targets = rows.where(chosen), targets[chosen]
                model.learn_rows(rows, targets, directions, numeric, own, before)
                before = numeric
                done = last
                tell(done / len(y), f"{done:,} of {len(y):,} rows")


def row_scores(model: Model, X: Any) -> tuple[F64, State]:
    """Return f of each row of a table, shape (rows, columns), and the state that all of them are from."""
    found = model.frozen()
    blocks = table_blocks(found.learner.directions, X, found.numeric)
    return np.concatenate([found.learner.scores(rows, found.scales) for rows, _ in blocks]), found


def class_probabilities(model: Model, X: Any, classes: Sequence[Any]) -> F64:
    """Return the probability of each class for each row of a table, shape (rows, classes).

    A class that the model has not learned has probability 0. The model must have learned at least one class.
    """
    scores, found = row_scores(model, X)
    known = probabilities(found.learner.loss, scores, len(found.labels))
    shares = np.zeros((len(scores), len(classes)))
    for i, label in enumerate(classes):
        if label in found.labels:
            shares[:, i] = known[:, found.labels[label]]
    return shares


def class_scores(model: Model, X: Any, classes: Sequence[Any]) -> F64:
    """Return the score of the second of two classes, shape (rows,), or of each of more, shape (rows, classes).

    A class that the model has not learned has the lowest score minus 1. The model must have learned at least one class.
    """
    scores, found = row_scores(model, X)
    labels = found.labels
    if len(classes) == 2 and len(labels) == 2:
        return label_scores(scores, labels, classes[1], False)
    known = {label: label_scores(scores, labels, label, False) for label in classes if label in labels}
    lower = np.min([*known.values()], axis=0) - 1.0
    own = np.stack([known.get(label, lower) for label in classes], axis=1)
    return own[:, 1] - own[:, 0] if len(classes) == 2 else own
