"""Refitting: the coefficients of a model's features on a window, to a certified gap."""

from __future__ import annotations

import logging

import numpy as np

from streamkernel import losses
from streamkernel.features.rows import F64, I64, Rows
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.learners import span
from streamkernel.solvers.progress import Tell
from streamkernel.solvers.saddle_point.conjugates import LOSSES
from streamkernel.solvers.saddle_point.saddle_point import minimise
from streamkernel.upkeep.tasks import Build, Function, Refit

log = logging.getLogger(__name__)


def refit(
    old: FirstOrderLearner, rows: Rows, y: F64, task: Refit, build: Build, tell: Tell | None = None
) -> tuple[Function, float | None]:
    """Return a function of the same features that minimises (1/n) Σ ℓ(f(x_i), y_i) + (λ/2)‖α‖², and the gap.

    An example of weight w counts w times, n in all.

    If f has several columns, each is solved separately against the rest, and the gap is the largest one. The softmax of
    several classes is not a sum over columns: the function is then unchanged, and there is no gap.

    Parameters
    ----------
    old
        The function.
    rows, y
        Examples and their targets, as it has learned them.
    task
        λ and the gap to reach.
    build
        Makes the new function.
    tell
        Called with the progress.
    """
    if isinstance(old.loss, losses.Logistic) and old.columns > 1:
        log.warning("Expected two classes to refit the logistic loss, got %d; not refitting", old.columns)
        return old, None
    (name,) = (name for name, loss in LOSSES.items() if old.loss == loss)
    drawn = _draw_examples(rows.weights)
    Z, y, before = old.embed_rows(rows).astype(np.float64)[drawn], y[drawn], old.functions()
    after, gaps = np.empty_like(before), []
    for c in range(old.columns):
        solution = minimise(Z, _targets(old, y, c), name, l2=task.l2, tol=task.tol, start=before[:, c], tell=tell)
        after[:, c :: old.columns] = solution.coef[:, None]
        gaps.append(solution.gap)
    new = build(old.columns)
    tensors = old.with_functions(after)
    if not old.loss.for_classes:  # predictions may be as far as the targets of these examples
        tensors["span"] = span.extended(tensors["span"], y)
    new.restore(tensors)
    return new, max(gaps)


def _draw_examples(weights: F64) -> I64:
    """Return a sample of equal length, in order, in which each example occurs in proportion to its weight.

    Examples
    --------
    >>> _draw_examples(np.array([1.0, 3.0, 0.5, 0.5])).tolist()
    [0, 1, 1, 2]
    """
    shares = np.cumsum(weights) / weights.sum()
    return np.searchsorted(shares, (np.arange(len(weights)) + 0.5) / len(weights))


def _targets(old: FirstOrderLearner, y: F64, column: int) -> F64:
    """Return the targets of one column: numbers minus the offset of f, or -1 and 1."""
    if not old.loss.for_classes:
        return y - float(old.numbers["offset"])
    return np.where(y > 0.0 if old.columns == 1 else y == column, 1.0, -1.0)
