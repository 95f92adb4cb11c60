"""The schedule of Newton steps, and the Newton steps of the mixture's weights; compiled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from streamkernel import vectors
from streamkernel.features.rows import F64, I64
from streamkernel.jit import inlined, unit
from streamkernel.learners.clipping import LARGEST_GRADIENT, clip
from streamkernel.learners.state import NUMBERS_TYPE
from streamkernel.second_order import square_root
from streamkernel.second_order.evaluation import mix_scores
from streamkernel.second_order.mixture_state import BORN, COUNT, MIXER, SQUARES_BEFORE, Mixer
from streamkernel.second_order.positive import LARGEST_LEAD, mix, sweep
from streamkernel.second_order.targets import TARGETS_ROOM, loss_of, set_derivatives
from streamkernel.second_order.tiles import EIGHT

FLATTEST = 1e-3
"""Lower bound on ℓ'': where the loss is flat, A still has to include the examples."""

MEMORY = 0.9995
"""Forgetting factor ρ of the mixture per example."""

FEW = 200.0
"""Number of examples that the mixture remembers after a new class."""

LONGEST_BATCH, LONGEST_OF_MANY = 64, 128
MANY = 4096
"""A Newton step has at most `LONGEST_BATCH` examples; while a group has `MANY` outputs, `LONGEST_OF_MANY`, because
reading R takes most of the time of such a step."""

GROWING = 256
"""Number of examples after which Newton steps take eight more each."""

SEVERAL = 4
"""Newton steps take at least eight examples for each target, up to four targets, because each adds a solution."""

SETTLING = 256
"""Number of examples that a new group learns before it is mixed: with fewer examples than outputs, it overfits."""

PULL = 10.0
"""λ of the mixture, in units of the size of the targets."""

_MATRIX = types.float64[:, ::1]


@inlined(allocates=False)
def begin(layout, factor, g, prior):  # type: ignore[no-untyped-def]
    """Set R of group g to its value without examples, for A = λI; R must be 0."""
    n, before = layout[g, COUNT], layout[g, SQUARES_BEFORE]
    for d in range(n):
        factor[before + d * (n + 1)] = math.sqrt(prior)


@inlined(allocates=False)
def _add_diagonal(mixer, more, row):  # type: ignore[no-untyped-def]
    """Set R to that of A + cI."""
    root = math.sqrt(more)
    for i in range(len(mixer)):
        for k in range(len(mixer)):
            row[k] = root if k == i else 0.0
        square_root.rotate_small(mixer, row)


@inlined(allocates=False)
def _has_settled(numbers, layout, k):  # type: ignore[no-untyped-def]
    """Return whether function k is old enough to be mixed: its group did not start recently, unless the model did."""
    born = layout[k % len(layout), BORN]
    return k >= 2 * len(layout) or born == numbers.restarted or numbers.examples - born >= SETTLING


@unit(
    types.void(NUMBERS_TYPE, types.int64[:, ::1], MIXER, _MATRIX, TARGETS_ROOM, types.float64),
    allocates=False,
)
def weigh(state, layout, own, f, targets, w):  # type: ignore[no-untyped-def]
    """Take a Newton step of each target's u on wℓ(Σ_k u_k f_k, y) of an example of weight w, with the size s² of y.

        A ← A + w Σ_c ℓ''_c f_c f_cᵀ,   u ← u - w A⁻¹ Σ_c ℓ'_c f_c

    and, once per as many examples as there are v, A ← ρA + (1 - ρ)λs²I for all of them. Where s² exceeds its
    maximum so far, λI in A grows as much: the first targets are a poor estimate of it. f_k counts as 0 while a group is
    new. p takes a sweep, and v follows from both (:mod:`streamkernel.second_order.positive`).
    """
    count, columns = f.shape
    g, h = own.room[0, :columns], own.room[1, :columns]
    of_signed, of_positive = own.room[4, :columns], own.room[5, :columns]
    mix_scores(own.signed, len(state), f, of_signed)
    mix_scores(own.positive, len(state), f, of_positive)
    set_derivatives(state, targets, of_signed, g, h)
    for t in range(len(state)):
        if targets.sizes[t] > 0.0:
            first, last = t * count, (t + 1) * count
            bounds = own.bounds[first + 2 * t : last + 2 * t + 2]
            weights, mixer, signed = own.weights[first:last], own.mixer[first:last], own.signed[first:last]
            mine = Mixer(weights, mixer, signed, own.positive[first:last], own.lead[t : t + 1], bounds, own.room)
            ahead = loss_of(state, targets, t, of_signed) - loss_of(state, targets, t, of_positive)
            _weigh_target(state[0], layout, mine, f, targets, t, w, ahead)


@inlined(allocates=False)
def _weigh_target(numbers, layout, own, f, targets, t, w, ahead):  # type: ignore[no-untyped-def]
    """Take the step of target t, with the derivatives in the first two rows of the work arrays, and with the loss of u
    less that of p.
    """
    count, columns = f.shape
    weights, mixer, bounds, room = own.weights, own.mixer, own.bounds, own.room
    size, width = targets.sizes[t], columns // len(targets.sizes)
    g, h, row, gradient = room[0, :columns], room[1, :columns], room[2, :count], room[3, :count]
    before = bounds[count + 1] if mixer[0, 0] > 0.0 else 0.0
    if size > before:
        _add_diagonal(mixer, PULL * (size - before), row)
        bounds[count + 1] = max(bounds[count + 1], size)
    if numbers.loss_bound >= LARGEST_GRADIENT:
        bounds[count] = clip(g[t * width : (t + 1) * width], bounds[count], LARGEST_GRADIENT)
    signed, positive = own.signed, own.positive
    for k in range(count):
        gradient[k] = 0.0
    for c in range(t * width, (t + 1) * width):
        root = math.sqrt(w * max(h[c], FLATTEST))
        for k in range(count):
            score = f[k, c] if _has_settled(numbers, layout, k) else 0.0
            gradient[k] += w * g[c] * score
            row[k] = root * score
        square_root.rotate_small(mixer, row)
    if numbers.steps % count == 0:
        kept = MEMORY**count
        root = math.sqrt(kept)
        for i in range(count):
            vectors.multiply(mixer[i], root)
        _add_diagonal(mixer, (1.0 - kept) * PULL * size, row)
    square_root.solve_small(mixer, gradient)
    if vectors.within(gradient, 1.0, LARGEST_GRADIENT):
        for k in range(count):
            signed[k] -= gradient[k]
    sweep(mixer, signed, positive, row)
    if abs(ahead) < LARGEST_GRADIENT:
        own.lead[0] = min(max(MEMORY * own.lead[0] + w * ahead / size, -LARGEST_LEAD), LARGEST_LEAD)
    mix(signed, positive, own.lead[0], weights)


def without(mixer: F64, weights: F64, gone: I64, pull: float) -> tuple[F64, F64]:
    """Return the mixer without some functions, and their weights u.

    The other functions keep their u, so that those similar to the removed ones take over.

    Parameters
    ----------
    mixer, weights
        R with RᵀR = A, and u.
    gone
        The functions that are removed.
    pull
        Their entries of A from then on.
    """
    stays = np.setdiff1d(np.arange(len(mixer)), gone)
    left, found = (
        np.where(np.isin(np.arange(len(mixer)), gone), weights, 0.0),
        np.where(np.isin(np.arange(len(mixer)), gone), 0.0, weights),
    )
    moment = mixer.T @ (mixer @ left)
    small: Any = np.linalg.qr(mixer[:, stays], mode="r")
    small *= np.where(np.diag(small) < 0.0, -1.0, 1.0)[:, None]
    factor = np.zeros_like(mixer)
    factor[np.ix_(stays, stays)] = small
    factor[gone, gone] = math.sqrt(pull)
    found[stays] += np.linalg.solve(small, np.linalg.solve(small.T, moment[stays]))
    return factor, found


def less_certain(mixer: F64, seen: int) -> F64:
    """Return the mixer as if it had learned `FEW` examples of `seen`, or unchanged if there were no more.

    Examples
    --------
    >>> less_certain(np.eye(2), 100).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    >>> np.square(less_certain(20.0 * np.eye(1), 100_000)).round(6).tolist()  # a tenth of A = 400, and 0.9 λ
    [[49.0]]
    """
    known = (1.0 - MEMORY**seen) / (1.0 - MEMORY)
    if known <= FEW or not mixer.any():
        return mixer.copy()
    kept = FEW / known
    lower = np.linalg.cholesky(kept * (mixer.T @ mixer) + (1.0 - kept) * PULL * np.eye(len(mixer)))
    return np.ascontiguousarray(lower.T)


@inlined(allocates=False)
def turns(n, batch, kept):  # type: ignore[no-untyped-def]
    """Return S and T for a group of n outputs: a tenth of the examples that it remembers, and all of them."""
    gone = max(1.0 - kept, 1e-9)
    return max(batch, min(n, int(0.1 / gone))), max(batch, min(n, int(1.0 / gone)))


@inlined(allocates=False)
def is_turn(seen, batch, every):  # type: ignore[no-untyped-def]
    """Return whether the step of the last `batch` of all examples seen is one that comes once in `every` examples."""
    return seen // every > (seen - batch) // every


def longest(outputs: I64) -> int:
    """Return the largest number of examples of a Newton step, from the outputs of each group.

    Examples
    --------
    >>> longest(np.array([512, 2048])), longest(np.array([512, 4096]))
    (64, 128)
    """
    most = LONGEST_BATCH
    for n in outputs:
        if n >= MANY:
            most = LONGEST_OF_MANY
    return most


def due(seen: int, batch: int, kept: float, targets: int, most: int) -> int:
    """Return the number of examples of a Newton step: B, or if B is 1 a number that grows with the model's examples.

    Examples
    --------
    >>> [due(seen, 1, 1.0, targets=1, most=64) for seen in (1, 1000, 100_000)]
    [8, 24, 64]
    >>> [due(seen, 1, 1.0, targets=8, most=128) for seen in (1, 1000, 100_000)]
    [32, 32, 128]
    """
    if batch > 1:
        return batch
    memory = 0.1 / max(1.0 - kept, 0.1 / most)
    eights = max(seen // GROWING, min(targets, SEVERAL))
    return max(min(eights * EIGHT, most, int(memory)) // EIGHT, 1) * EIGHT


def applied_after(due: int) -> int:
    """Return how many of the next `due` examples are buffered when a spread step is applied.

    It is applied before the next step is due, so that no event waits for both.

    Examples
    --------
    >>> applied_after(64)
    62
    """
    return max(due - 2, 1)


_longest: Any = inlined(longest)
compiled_due: Any = inlined(due)
compiled_applied_after: Any = inlined(applied_after)
"""The same for compiled code."""


@inlined(allocates=False)
def due_after(state, seen):  # type: ignore[no-untyped-def]
    """Return the number of examples of the next Newton step of a model that has seen a number of examples."""
    numbers, most = state.numbers[0], _longest(state.layout[:, COUNT])
    return compiled_due(seen, numbers.batch_size, numbers.forgetting, len(state.numbers), most)
