"""Pruning: the most important features of a function stay, and its coefficients are fitted to its predictions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streamkernel import losses, vectors
from streamkernel.features.compiled_kernel import PLACE, RUNG
from streamkernel.features.rows import F32, F64, I64, Rows
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.jit import compiled
from streamkernel.second_order import square_root
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.second_order.mixture_state import Group
from streamkernel.second_order.weights import positive_weights
from streamkernel.solvers.progress import Tell
from streamkernel.solvers.sparse.sparse import largest_l1, minimise_sparse
from streamkernel.upkeep.tasks import Build, Function, kept_blocks

ROWS = 64
"""Rows that are reflected at once."""

PRICES = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
"""l1 in units of the largest that makes sense, from few features to many."""

EPOCHS = 60

RIDGE = 1e-4
"""In units of the mean square of an output."""

PULL = 1e-3
"""The penalty that keeps a mixture's weights close to the old ones, in units of the mean square of its functions."""


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

    Parameters
    ----------
    old
        The function; it need not be able to learn.
    rows, y
        Examples and their targets, as it has learned them.
    keep
        The share of the maximum number of features that the new function may have.
    build
        Makes the new function.
    tell
        Called with the progress.
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
    level = 2 * len(old.groups)
    near[level], near[level + 1 :] = old.arrays.level[:, 0], old.scores_of_others(rows).transpose(1, 0, 2)
    of_groups: dict[int, I64] = {}
    for g, (group, (first, n, *_, owner)) in enumerate(zip(old.groups, old.groups.layout.tolist(), strict=True)):
        block, blocks = first // old.outputs, n // old.outputs
        small = Group.empty(blocks * smaller * old.directions.plan.outputs, old.columns, old.room)
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
        near[[g, len(old.groups) + g]] = (z_kept @ coefficients.T).reshape(len(y), 2, -1).transpose(1, 0, 2)
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
