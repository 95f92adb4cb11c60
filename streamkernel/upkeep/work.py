"""Execution of a task on a function, or on a whole model: refitting and pruning."""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from streamkernel import losses, vectors
from streamkernel.errors import InputError
from streamkernel.features.compiled_kernel import PLACE, RUNG
from streamkernel.features.rows import F32, F64, I64, Rows
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.jit import compiled
from streamkernel.learners import span
from streamkernel.second_order import square_root
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.second_order.slots import NEWTON, SMALL, STEADY
from streamkernel.second_order.weights import positive_weights
from streamkernel.solvers.progress import Tell
from streamkernel.solvers.saddle_point import minimise
from streamkernel.solvers.saddle_problem import LOSSES
from streamkernel.solvers.sparse import largest_l1, minimise_sparse
from streamkernel.upkeep.tasks import Build, Function, Pruning, Refit, Task, kept_blocks

log = logging.getLogger(__name__)
ROWS = 64
"""Rows that are reflected at once."""
PRICES = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
"""l1 in units of the largest that makes sense, from few features to many."""
EPOCHS = 60
RIDGE = 1e-4
"""In units of the mean square of an output."""
PULL = 1e-3
"""The penalty that keeps a mixture's weights close to the old ones, in units of the mean square of its functions."""


def refit(
    old: FirstOrderLearner, rows: Rows, y: F64, task: Refit, build: Build, tell: Tell | None = None
) -> tuple[Function, float | None]:
    """Return a function of the same features that minimises (1/n) Σ ℓ(f(x_i), y_i) + (λ/2)‖α‖², and the gap.

    An example of weight w counts w times, n in all.

    If f has several columns, each is solved separately against the rest, and the gap is the largest one. The softmax of
    several classes is not a sum over columns: the function is then unchanged, and there is no gap. `task` has λ and the
    gap to reach.
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


@compiled(nogil=True)
def bends(code, parameter, f, y, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]`` to the largest ∂²ℓ(f_i, y_i)/∂f_c² over the columns c."""
    h = np.empty(f.shape[1])
    for i in range(len(f)):
        losses.curvature(code, parameter, f[i], y[i], h)
        out[i] = h.max()


@compiled(nogil=True)
def distil(Z, weights, targets, prior, factor, w):  # type: ignore[no-untyped-def]
    """Set `w`, shape (functions, outputs), to the minimiser of prior‖w‖² + Σ_i weight_i (z_iᵀw - target_i)².

    Set `factor` to R with RᵀR = prior I + Σ weight zzᵀ. `targets` have the shape (rows, functions).
    """
    n, outputs = Z.shape
    rows = np.zeros((ROWS, outputs), np.float32)
    factor[:] = np.float32(0.0)
    w[:] = 0.0
    for j in range(outputs):
        factor[j, j] = math.sqrt(prior)
    for first in range(0, n, ROWS):
        rows[:] = np.float32(0.0)
        for i in range(first, min(first + ROWS, n)):
            vectors.add(rows[i - first], Z[i], np.float32(math.sqrt(weights[i])))
            for t in range(len(w)):
                vectors.add(w[t], Z[i], weights[i] * targets[i, t])
        square_root.rotate(factor, rows)
    for t in range(len(w)):
        square_root.solve(factor, w[t])


def prune(old: Function, rows: Rows, y: F64, keep: float, build: Build, tell: Tell | None = None) -> Function:
    """Return a function of some of the features of `old` that approximates it on `rows` and can continue learning.

    `old` need not be able to learn. `keep` is the share of the maximum number of features that the new function may
    have.
    """
    new = build(old.columns)
    tell = tell or (lambda done, text: None)
    new.restore(
        _mixture(old, rows, y, keep, tell) if isinstance(old, SecondOrderLearner) else _expansion(old, rows, keep, tell)
    )
    return new


def _expansion(old: FirstOrderLearner, rows: Rows, keep: float, tell: Tell) -> dict[str, Any]:
    """Return the tensors of a first-order function of some of the features."""
    blocks, most = kept_blocks(old.cap, keep)
    count = blocks * old.block_size
    Z = old.embed_rows(rows)
    targets = Z @ old.functions()
    chosen = _choose_features(old, Z, targets, count, lambda done, text: tell(0.9 * done, text))
    last = [[old.next_number - blocks, most, 0]]
    coefficients, _ = _distil_coefficients(Z[:, _outputs(old, chosen, old.block_size)], targets, rows.weights, 0.0)
    return old.with_functions(coefficients.T, np.concatenate([old.features_at(chosen), last]))


def _mixture(old: SecondOrderLearner, rows: Rows, y: F64, keep: float, tell: Tell) -> dict[str, Any]:
    """Return the tensors of a second-order function of smaller blocks; each group keeps some of its features."""
    smaller = max(1, int(keep * old.block_size))
    places = np.arange(old.most_blocks * smaller)
    kept = np.stack([old.next_number + places // smaller, places % smaller, places // smaller], axis=1)
    Z, f, weights = old.embed_rows(rows), old.scores(rows), np.empty(len(y))
    bends(int(old.numbers["loss"]), old.loss.parameter, f, y, weights)
    weights *= rows.weights
    groups, near = [], np.zeros((len(old.arrays.weights), len(y), old.columns))
    slots = old.arrays.slots
    near[slots[SMALL] :] = old.scores_of_others(rows).transpose(1, 0, 2)
    of_groups: dict[int, I64] = {}
    for g, (group, (first, n, *_, owner)) in enumerate(zip(old.groups, old.groups.layout.tolist(), strict=True)):
        block, blocks = first // old.outputs, n // old.outputs
        small = group.emptied(blocks * smaller * old.directions.plan.outputs)
        groups.append(small)
        if not n:
            continue
        z = Z[:, first : first + n]
        targets = z @ np.concatenate([group.newton, group.steady]).T
        if owner not in of_groups:
            of_groups[owner] = _choose_features(old, z, targets, blocks * smaller, lambda done, text: None)
        chosen = of_groups[owner]
        tell((g + 1) / len(old.groups), f"group {g + 1}")
        at = slice(block * smaller, (block + blocks) * smaller)
        drawn = old.features_at(block * old.block_size + chosen)
        kept[at, : PLACE + 1] = drawn[:, : PLACE + 1]
        if old.is_joint:
            kept[at, RUNG] = drawn[:, RUNG]
        memory, prior = old.memory(g) / len(y), old.prior(g)
        z_kept = z[:, _outputs(old, chosen, smaller)] * np.float32(math.sqrt(old.block_size / smaller))
        coefficients, factor = _distil_coefficients(z_kept, targets, weights, prior / memory)
        near[slots[[NEWTON, STEADY]] + g] = (z_kept @ coefficients.T).reshape(len(y), 2, -1).transpose(1, 0, 2)
        small.newton[:], small.steady[:] = np.split(coefficients, 2)
        small.factor[:] = math.sqrt(memory) * factor
    learned = old.with_groups(np.concatenate([kept, [[0, 0, 0]]]), groups)
    signed = _weights(old, near.reshape(len(near), -1), f - float(old.numbers["predicted_offset"]))
    mixers = np.split(learned["mixer"], len(learned["lead"]))
    pairs = zip(mixers, signed.reshape(len(mixers), -1), strict=True)
    positive = np.concatenate([positive_weights(mixer, u) for mixer, u in pairs])
    return learned | {"weights": signed, "signed": signed, "positive": positive, "lead": np.zeros(len(mixers))}


def _weights(old: SecondOrderLearner, functions: F64, f: F64) -> F64:
    """Return the weights with which functions, shape (functions, values), best approximate f, close to the old ones."""
    gram = functions @ functions.T
    pull = PULL * max(float(gram.diagonal().mean()), 1e-300)
    solved = np.linalg.solve(gram + pull * np.eye(len(gram)), functions @ f.ravel() + pull * old.arrays.weights)
    return np.asarray(solved, np.float64)


def _outputs(old: Function, features: I64, per_block: int) -> I64:
    """Return the outputs of some features in the order of blocks of a given size."""
    block, place = np.divmod(features, old.block_size)
    outputs = old.directions.plan.outputs
    outputs_of = (block * outputs + np.arange(outputs)[:, None]) * old.block_size + place  # (outputs, features)
    return np.ascontiguousarray(outputs_of.reshape(outputs, -1, per_block).transpose(1, 0, 2)).ravel()


def _choose_features(old: Function, Z: F32, targets: F64, count: int, tell: Tell) -> I64:
    """Return the positions of the features with the largest parts in sparse approximations, in ascending order.

    Each of the functions, of which `targets` are the values in columns, chooses as many.
    """
    outputs = old.directions.plan.outputs
    by_feature = _outputs(old, np.arange(Z.shape[1] // outputs), 1)
    scale = float(np.sqrt(np.square(Z).mean(dtype=np.float64))) or 1.0
    z = np.ascontiguousarray(Z[:, by_feature]) / np.float32(scale)
    worth = np.zeros((targets.shape[1], Z.shape[1] // outputs))
    for c, target in enumerate(targets.T):
        y = target / (target.std() or 1.0)
        start, top = None, largest_l1(z, y, losses.Square(), group=outputs)
        for price in PRICES if top > 0.0 else ():
            start = minimise_sparse(
                z, y, losses.Square(), l1=price * top, group=outputs, max_epochs=EPOCHS, tol=0.1, start=start
            ).coef
            worth[c] = np.linalg.norm(start.reshape(-1, outputs), axis=1)
            kept = np.count_nonzero(worth[c])
            tell((c + min(1.0, kept * len(worth) / count)) / len(worth), f"{kept} features")
            if kept * len(worth) >= count:
                break
    ranks = np.argsort(np.argsort(-worth, axis=1, kind="stable"), axis=1, kind="stable").min(axis=0)
    return np.sort(np.argsort(ranks, kind="stable")[:count])


def _distil_coefficients(Z: F32, targets: F64, weights: F64, prior: float) -> tuple[F64, F32]:
    """Return the coefficients, shape (functions, outputs), that best approximate the targets, and their factor."""
    coefficients, factor = np.empty((targets.shape[1], Z.shape[1])), np.empty((Z.shape[1], Z.shape[1]), np.float32)
    least = RIDGE * float(np.square(Z).mean(dtype=np.float64) * weights.sum())
    distil(np.ascontiguousarray(Z), weights, targets, max(prior, least), factor, coefficients)
    return coefficients, factor


def do_task(
    task: Task, function: Function, rows: Rows, y: F64, build: Build, tell: Tell | None = None
) -> tuple[Function, float | None]:
    """Return the result of a task, and its gap if it has one; raises a ValueError if it cannot be applied."""
    if isinstance(task, Pruning):
        if isinstance(function, SecondOrderLearner) and function.is_packed:
            raise ValueError("Expected a second-order model that has not been pruned, got a pruned one")
        return prune(function, rows, y, task.keep, build, tell), None
    if not isinstance(task, Refit) or not isinstance(function, FirstOrderLearner):
        raise ValueError('Expected a model with learner="dsg" to refit, got one that takes Newton steps')
    return refit(function, rows, y, task, build, tell)


class SupportsTasks(Protocol):
    """A model to which tasks can be applied."""

    def run_task(
        self, task: Task, events: Sequence[tuple[Mapping[Hashable, Any], Any]], tell: Tell | None
    ) -> float | None:
        """Apply a task on some events, and return its gap if it has one."""


def apply(
    task: Task, model: SupportsTasks, events: Iterable[tuple[Mapping[Hashable, Any], Any]], tell: Tell | None = None
) -> float | None:
    """Apply a task to a model immediately.

    Parameters
    ----------
    task : Task
        A :class:`~streamkernel.upkeep.Pruning` or a :class:`~streamkernel.upkeep.Refit`. Its `window` is the number of
        last events that are used; its `every` has no effect.
    model : SupportsTasks
        A classifier or a regressor, which is changed.
    events : iterable of tuple of dict and target
        Features and targets.
    tell : Tell or None, default None
        Called with the progress.

    Returns
    -------
    float or None
        The primal-dual gap that a refit ended with.

    Raises
    ------
    InputError
        If there are fewer than two events, or an event has a label that the model does not know or a target that is
        not a number.
    ValueError
        If the task cannot be applied to this model.

    Examples
    --------
    >>> from streamkernel import KernelRegressor, upkeep
    >>> model = KernelRegressor(learner="dsg")
    >>> events = [({"x": i % 10}, float(i % 10)) for i in range(1000)]
    >>> for x, y in events:
    ...     model.learn_one(x, y)
    >>> upkeep.apply(upkeep.Refit(tol=1e-6), model, events) <= 1e-6
    True
    >>> upkeep.apply(upkeep.Pruning(), model, events)
    >>> model.n_features
    1024
    """
    last = [*events][-task.window :]
    if len(last) < 2:
        raise InputError(f"Expected two events or more, got {len(last)}")
    return model.run_task(task, last, tell)
