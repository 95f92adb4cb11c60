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
    state, done = model.state, 0
    directions, before = state.learner.directions, state.numeric
    learnable = [label for label, w in zip(labels, weights.tolist(), strict=False) if w >= SMALLEST_WEIGHT]
    model.outputs.check(state.labels, learnable)
    with progress_line("Learning", show=verbose) as tell:
        for block, numeric in table_blocks(directions, X, before):
            size = len(block.start) - 1
            for first in range(0, size, SHOWN if verbose else max(1, size)):
                rows = block.part(first, min(first + SHOWN, size) if verbose else size)
                last = done + len(rows.start) - 1
                rows, part_labels, targets = rows._replace(weights=weights[done:last]), labels[done:last], y[done:last]
                chosen = rows.weights >= SMALLEST_WEIGHT
                if not chosen.all():
                    part_labels = (
                        [label for label, is_one in zip(part_labels, chosen, strict=True) if is_one]
                        if part_labels
                        else ()
                    )
                    rows, targets = rows.where(chosen), targets[chosen]
                model.learn_rows(rows, targets, directions, numeric, part_labels, before)
                before = numeric
                done = last
                tell(done / len(y), f"{done:,} of {len(y):,} rows")


def row_scores(model: Model, X: Any) -> tuple[F64, State]:
    """Return f of each row of a table, shape (rows, columns), and the state that all of them are from."""
    state = model.frozen()
    blocks = table_blocks(state.learner.directions, X, state.numeric)
    return np.concatenate([state.learner.scores(rows, state.scales) for rows, _ in blocks]), state


def class_probabilities(model: Model, X: Any, classes: Sequence[Any]) -> F64:
    """Return the probability of each class for each row of a table, shape (rows, classes).

    A class that the model has not learned has probability 0. The model must have learned at least one class.
    """
    scores, state = row_scores(model, X)
    learned = probabilities(state.learner.loss, scores, len(state.labels))
    shares = np.zeros((len(scores), len(classes)))
    for i, label in enumerate(classes):
        if label in state.labels:
            shares[:, i] = learned[:, state.labels[label]]
    return shares


def class_scores(model: Model, X: Any, classes: Sequence[Any]) -> F64:
    """Return the score of the second of two classes, shape (rows,), or of each of more, shape (rows, classes).

    A class that the model has not learned has the lowest score minus 1. The model must have learned at least one class.
    """
    scores, state = row_scores(model, X)
    labels = state.labels
    if len(classes) == 2 and len(labels) == 2:
        return label_scores(scores, labels, classes[1], False)
    by_label = {label: label_scores(scores, labels, label, False) for label in classes if label in labels}
    lower = np.min([*by_label.values()], axis=0) - 1.0
    by_class = np.stack([by_label.get(label, lower) for label in classes], axis=1)
    return by_class[:, 1] - by_class[:, 0] if len(classes) == 2 else by_class
