"""Directions of pairs of inputs: features that depend on two inputs, or one, and the pairs that they are drawn from.

Among many inputs, isotropic features hardly see an effect of two of them, and gradients of f do not show it while f has
not learned it. But whether a function of a pair would reduce the loss can be asked without learning it. With the trial
functions u₁ = sin x and u₂ = 1 - cos x of each scaled input, both less their means, u₂ also less its regression on u₁,
and with ℓ' of f before it learns an example, less its part that a constant would remove,

    S = Σ ℓ' u_a(x_p) u_b(x_q),   V = Σ ℓ'² u_a(x_p)² u_b(x_q)²,   z² = S²/V

is the score test of Rao (1948) of the product, which has a mean of 1 if the product has no effect. A step on it is
expected to reduce the loss by ½(z² - 1)(Σ ℓ'²/Σ ℓ'')/n per example. A pair counts if its four z² add up to more than
chance lets any pair have. With p = q this finds effects of one input that are not linear.

Each feature of the block in pairs takes a pair, with a probability proportional to √gain, and the direction of its seed
along these k inputs, two or one, with a bandwidth of √k, because inputs have variance 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numba import types

from streamkernel import tensor_file, vectors
from streamkernel.features.compiled_kernel import BLOCK, ENTRIES, PLACE, SMALLEST, VECTOR, CompiledKernel
from streamkernel.features.counter_rng import (
    cos_sin_turns,
    counter_bits,
    log_unit,
    normal_pair,
    stream_of,
    unit_interval,
)
from streamkernel.features.directions import Directions
from streamkernel.features.rows import F32, F64, I64, ROWS
from streamkernel.jit import compiled, inlined, unit, work_array
from streamkernel.kernels import Kernel, MultiScale
from streamkernel.learners import schedule
from streamkernel.learners.embedding import directions_along
from streamkernel.learners.span import LARGEST_GRADIENT
from streamkernel.second_order.metric import METRIC, MOST_NAMES, NAMES, Metric, number_for, number_of

FROM = 512
"""Number of examples before a block may be in pairs; the sums begin again at each check from there on."""

AFTER = 128
"""Number of examples before the sums: errors at the first ones show what f has not learned yet."""

MOST = 64
"""Number of pairs of a block at most."""

BASE, PER_PAIR = 20.0, 2.0
"""A pair counts if the sum of its four z² is above BASE + PER_PAIR log(number of pairs): in noise, one does at
about one check in a thousand."""

TURN = 0.5 / math.pi

DEPENDENT = 0.01
"""If a smaller share of the variance of u₂ does not follow from u₁, as where an input has two values, u₂ is 0."""

NOWHERE = -1
"""In place of the group in pairs."""

EXAMPLES, SQUARES, CURVATURES, SLOPES, SEEN = range(5)
"""Entries of `totals`: n, Σ ℓ'², Σ ℓ'' and Σ ℓ' of the sums, and the number of examples of the moments."""


class Pairs(NamedTuple):
    """The sums over examples since the last check, and the block in pairs. Inputs have their numbers in the metric.

    Attributes
    ----------
    totals
        The number of examples, Σ ℓ'², Σ ℓ'' and Σ ℓ' of the sums, and the number of examples of the moments.
    moments
        Of the first inputs, Σ sin x and Σ (1 - cos x), Σ c₁², Σ c₁c₂ and Σ c₂² of both less their means, and the number
        of examples before these, shape (inputs, 6); later inputs wait for a check.
    sums, squares
        S and V, shape (2 inputs, 2 inputs), of which the upper triangles count.
    group
        The group in pairs, or NOWHERE, shape (1,).
    chosen, gains
        The pairs that have been chosen, shape (pairs, 2), and their gains when they were.
    inputs, along
        The two inputs of each feature, and its direction along them, shape (2, features).
    """

    totals: F64
    moments: F64
    sums: F64
    squares: F64
    group: I64
    chosen: I64
    gains: F64
    inputs: I64
    along: F32


PAIRS = types.NamedTuple(
    [
        types.float64[::1], types.float64[:, ::1], types.float64[:, ::1], types.float64[:, ::1], types.int64[::1],
        types.int64[:, ::1], types.float64[::1], types.int64[:, ::1], types.float32[:, ::1],
    ],
    Pairs,
)  # fmt: skip


class PairsRoom(NamedTuple):
    """Work arrays for the trial functions of a row, and their squares."""

    u: F64
    squared: F64


PAIRS_ROOM = types.NamedUniTuple(types.float64[::1], 2, PairsRoom)


@inlined(allocates=None)
def pairs_room(memory):  # type: ignore[no-untyped-def]
    """Return work arrays."""
    return PairsRoom(work_array(memory, 2 * MOST_NAMES, np.float64), work_array(memory, 2 * MOST_NAMES, np.float64))


@inlined(allocates=False)
def direction(since, c):  # type: ignore[no-untyped-def]
    """Return the entry of column c in the direction in which several columns are observed, `since` examples after the
    last reset: random, so that effects on different columns do not cancel, and another one after each check.
    """
    begun = schedule.compiled_last_due(since) if since >= FROM else 0
    return np.float64(normal_pair(counter_bits(np.uint64(begun), c))[0])


@unit(
    types.void(PAIRS, METRIC, ROWS, types.int64, types.int64, types.float64, types.float64, PAIRS_ROOM),
    is_late=True,
    allocates=False,
    error_model="numpy",
)
def observe(pairs, metric, rows, i, since, slope, curvature, work):  # type: ignore[no-untyped-def]
    """Add an example to the sums: row i of scaled values, where f has the derivatives `slope` and `curvature`.

    `since` is the number of examples before it since the model was last reset.
    """
    totals, u, squared, size = pairs.totals, work.u, work.squared, len(pairs.sums)
    if not max(abs(slope), curvature) <= LARGEST_GRADIENT or metric.counts[NAMES] == MOST_NAMES:
        return
    if since >= FROM and schedule.compiled_is_due(since):
        pairs.sums[:], pairs.squares[:], totals[:SEEN] = 0.0, 0.0, 0.0
    totals[SLOPES] += slope
    totals[CURVATURES] += curvature
    slope -= curvature * totals[SLOPES] / totals[CURVATURES] if totals[CURVATURES] > 0.0 else 0.0
    totals[EXAMPLES] += 1.0
    totals[SQUARES] += slope * slope
    totals[SEEN] += 1.0
    u[:size] = 0.0
    for j in range(rows.start[i], rows.start[i + 1]):
        number = number_for(metric, rows.hashes[j], rows.slots[j])
        if 0 <= 2 * number < size:
            cosine, sine = cos_sin_turns(np.float32(rows.values[j] * TURN))
            moments = pairs.moments[number]
            n = totals[SEEN] - moments[5]
            moments[0] += sine
            moments[1] += np.float32(1.0) - cosine
            a, b = sine - moments[0] / n, np.float32(1.0) - cosine - moments[1] / n
            moments[2] += a * a
            moments[3] += a * b
            moments[4] += b * b
            u[2 * number] = a
            if moments[2] * moments[4] - moments[3] * moments[3] > DEPENDENT * moments[2] * moments[4]:
                u[2 * number + 1] = b - moments[3] / moments[2] * a
    for k in range(size):
        squared[k] = u[k] * u[k]
    for k in range(size):
        if u[k] != 0.0:
            vectors.add(pairs.sums[k, k:size], u[k:size], slope * u[k])
            vectors.add(pairs.squares[k, k:size], squared[k:size], slope * slope * squared[k])


@unit(types.void(PAIRS, METRIC, ENTRIES, types.float64[::1], VECTOR), allocates=False)
def turns(pairs, metric, row, values, out):  # type: ignore[no-untyped-def]
    """Set `out` to ωᵀx of the features in pairs; `values` is a work array for the inputs."""
    for a in range(len(values)):
        values[a] = 0.0
    for j in range(row.counts[0]):
        number = number_of(metric, row.hashes[0, j])
        if number >= 0:
            values[number] = row.values[0, j]
    one, other, along = pairs.inputs[0], pairs.inputs[1], pairs.along
    for f in range(len(one)):
        out[f] = np.float32(along[0, f] * values[one[f]] + along[1, f] * values[other[f]])


@unit(types.void(PAIRS, VECTOR, types.float64[::1]), allocates=False)
def add_slopes(pairs, slopes, out):  # type: ignore[no-untyped-def]
    """Add the derivatives of f by the inputs to `out`, given `slopes` by ωᵀx of the features in pairs."""
    for f in range(pairs.inputs.shape[1]):
        out[pairs.inputs[0, f]] += slopes[f] * pairs.along[0, f]
        out[pairs.inputs[1, f]] += slopes[f] * pairs.along[1, f]


def empty(inputs: int = 0) -> Pairs:
    """Return the state before the first example, with room for the sums of a number of inputs."""
    return Pairs(
        totals=np.zeros(5),
        moments=np.zeros((inputs, 6)),
        sums=np.zeros((2 * inputs, 2 * inputs)),
        squares=np.zeros((2 * inputs, 2 * inputs)),
        group=np.full(1, NOWHERE),
        chosen=np.zeros((0, 2), np.int64),
        gains=np.zeros(0),
        inputs=np.zeros((2, 0), np.int64),
        along=np.zeros((2, 0), np.float32),
    )


def with_room(pairs: Pairs, inputs: int) -> Pairs:
    """Return the state with room for the sums of more inputs, unless there are too many."""
    more = inputs - len(pairs.moments) if inputs < MOST_NAMES else 0
    if more <= 0:
        return pairs
    sums, squares = (np.pad(array, (0, 2 * more)) for array in (pairs.sums, pairs.squares))
    moments = np.pad(pairs.moments, ((0, more), (0, 0)))
    moments[-more:, -1] = pairs.totals[SEEN]
    return pairs._replace(moments=moments, sums=sums, squares=squares)


def _variances(pairs: Pairs) -> F64:
    """Return the mean of u² of each trial function, by which u² is too large in V, because ℓ' has no mean."""
    _, _, first, both, second, before = pairs.moments.T
    left = second - np.divide(both * both, first, out=np.zeros_like(both), where=first > 0.0)
    n = np.maximum(pairs.totals[SEEN] - before, 1.0)
    return np.asarray(np.stack([first / n, np.maximum(left, 0.0) / n], axis=1).ravel())


def expected_gains(pairs: Pairs) -> F64:
    """Return by how much each pair of inputs is expected to reduce the mean loss, shape (inputs, inputs).

    The entries p ≤ q are for pairs; other entries, and entries that may be due to chance, are 0.

    Examples
    --------
    >>> pairs = empty(2)
    >>> pairs.totals[:3] = 100.0, 200.0, 100.0
    >>> pairs.sums[0, 2], pairs.squares[:] = 20.0, 8.0     # z² = 50 of sin x₀ sin x₁
    >>> expected_gains(pairs).round(2).tolist()
    [[0.0, 0.46], [0.0, 0.0]]
    """
    n, squares, curvatures, *_ = pairs.totals.tolist()
    s, v, inputs = np.triu(pairs.sums), np.triu(pairs.squares), len(pairs.moments)
    shape, diagonal = (inputs, 2, inputs, 2), np.arange(2 * inputs)
    v[diagonal, diagonal] = np.maximum(v.diagonal() - squares * np.square(_variances(pairs)), 0.5 * v.diagonal())
    with np.errstate(over="ignore", invalid="ignore"):  # sums of a file may be of any size
        score = np.divide(s * s, v, out=np.zeros_like(s), where=v > 0.0)
        gains = (score - (v > 0.0)).reshape(shape).sum(axis=(1, 3)) * (0.5 * squares / max(curvatures * n, 1e-300))
    is_sure = score.reshape(shape).sum(axis=(1, 3)) > BASE + PER_PAIR * math.log(max(inputs * (inputs + 1) / 2, 1.0))
    return np.where(is_sure & np.isfinite(gains), np.maximum(gains, 0.0), 0.0)


def new_gain(pairs: Pairs, gains: F64) -> float:
    """Return the expected gain of all pairs together that have not been chosen yet."""
    return float(gains.sum() - gains[tuple(pairs.chosen.T)].sum())


def with_group(pairs: Pairs, group: int, gains: F64, metric: Metric, directions: Directions) -> Pairs:
    """Return the state with the block `group` in the pairs that gain most, then and now."""
    gains = gains.copy()
    at = tuple(pairs.chosen.T)
    gains[at] = np.maximum(gains[at], pairs.gains)
    order = np.argsort(-gains, axis=None, kind="stable")[: min(MOST, np.count_nonzero(gains))]
    chosen = np.ascontiguousarray(np.stack(np.unravel_index(order, gains.shape), axis=1), np.int64)
    new = pairs._replace(group=np.array([group]), chosen=chosen, gains=gains.ravel()[order])
    return with_directions(new, metric, directions)


def without_group(pairs: Pairs) -> Pairs:
    """Return the state without a block in pairs."""
    first = empty()
    return pairs._replace(
        group=first.group, chosen=first.chosen, gains=first.gains, inputs=first.inputs, along=first.along
    )


def without_sums(pairs: Pairs) -> Pairs:
    """Return the state whose sums begin again."""
    totals = pairs.totals.copy()
    totals[:SEEN] = 0.0
    return pairs._replace(totals=totals, sums=np.zeros_like(pairs.sums), squares=np.zeros_like(pairs.squares))


@compiled
def _draw(key, features, names, weights, out):  # type: ignore[no-untyped-def]
    """Set `out` to the pair of each feature, given by its block and its place there: the first event of a race in which
    pairs have exponential times. So another pair changes only the features that it takes.

    `names` has the names of each pair's inputs, shape (pairs, 2).
    """
    for f in range(len(out)):
        least = np.float32(math.inf)
        for k in range(len(weights)):
            stream = stream_of(stream_of(key, features[f, 0], names[k, 0]), 0, names[k, 1])
            time = -log_unit(unit_interval(counter_bits(stream, features[f, 1]))) / weights[k]
            if time < least:
                least, out[f] = time, k


def _scale_of(compiled_kernel: CompiledKernel, kernel: Kernel, block: int) -> float:
    """Return the factor by which a block of bandwidth 1, in units of the kernel's, multiplies inputs."""
    part = compiled_kernel.parts[0]
    if not isinstance(kernel, MultiScale):
        return float(part["scale"])
    multiple = kernel.multiples[block % len(kernel.multiples)]
    return float(part["scale"] * part["table"][block % part["order"]] * multiple)


def with_directions(pairs: Pairs, metric: Metric, directions: Directions) -> Pairs:
    """Return the state with the features of its block drawn."""
    g, kernel, size = int(pairs.group[0]), directions.kernel, directions.block_size
    names = metric.names[: metric.counts[NAMES]]
    features: I64 = np.stack([np.full(size, g), np.arange(size)], axis=1)
    if directions.is_packed:
        features = directions.kept[g * size : (g + 1) * size, [BLOCK, PLACE]]
    which, part = np.zeros(size, np.int64), kernel.parts[0]
    weights = np.sqrt(pairs.gains / pairs.gains.max()).astype(np.float32)
    _draw(part["key"], np.ascontiguousarray(features), names[pairs.chosen], np.maximum(weights, SMALLEST), which)
    inputs = pairs.chosen[which].T
    is_pair = inputs[0] != inputs[1]
    entries = directions_along(kernel, size, names, (g + 1) * size)[:, g * size :]
    along = entries[inputs, np.arange(size)] / (2.0 * math.pi * _scale_of(kernel, directions.plan.kernel, g))
    along *= np.stack([np.where(is_pair, math.sqrt(0.5), 1.0), math.sqrt(0.5) * is_pair])
    return pairs._replace(inputs=np.ascontiguousarray(inputs), along=np.ascontiguousarray(along, np.float32))


def changed_features(before: Pairs, after: Pairs) -> Any:
    """Return which features of a block in pairs have other directions."""
    return ((before.inputs != after.inputs) | (before.along != after.along)).any(axis=0)


def along_inputs(pairs: Pairs, metric: Metric, hashes: Any) -> F32:
    """Return the directions of the features in pairs along inputs of these hashes, shape (inputs, features)."""
    size = pairs.inputs.shape[1]
    out: F32 = np.zeros((MOST_NAMES, size), np.float32)
    for inputs, along in zip(pairs.inputs, pairs.along, strict=True):
        out[inputs, np.arange(size)] += along
    number = {name: i for i, name in enumerate(metric.names[: metric.counts[NAMES]].tolist())}
    at = np.array([number.get(max(name, 1), MOST_NAMES) for name in hashes.tolist()], np.int64)
    return np.concatenate([out, np.zeros((1, size), np.float32)])[at]


def tensors_to_predict(pairs: Pairs) -> dict[str, Any]:
    """Return the tensors of the block in pairs, if there is one."""
    return {} if pairs.group[0] == NOWHERE else {"pairs.chosen": pairs.chosen.copy(), "pairs.gains": pairs.gains.copy()}


def tensors_to_learn(pairs: Pairs) -> dict[str, Any]:
    """Return the tensors of the sums, with their upper triangles; none before there are any."""
    if not len(pairs.moments):
        return {}
    upper = np.triu_indices(len(pairs.sums))
    sums = {f"pairs.{name}": getattr(pairs, name)[upper] for name in ("sums", "squares")}
    return {"pairs.totals": pairs.totals.copy(), "pairs.moments": pairs.moments.copy(), **sums}


def restore(stored: Mapping[str, Any], g: int, metric: Metric, directions: Directions) -> Pairs:
    """Return the pairs in a file, where group `g` is in them, or NOWHERE; raise a ValueError if a tensor is missing or
    does not fit.
    """
    count, pairs = int(metric.counts[NAMES]), empty()
    if "pairs.totals" in stored:
        moments = tensor_file.require_tensor(stored, "pairs.moments", np.float64, (None, 6))
        if len(moments) > MOST_NAMES:
            raise ValueError(f"expected up to {MOST_NAMES} inputs as pairs.moments, got {len(moments)}")
        pairs, upper = empty(len(moments)), np.triu_indices(2 * len(moments))
        pairs.totals[:] = tensor_file.require_tensor(stored, "pairs.totals", np.float64, (5,))
        pairs.moments[:] = moments
        for name in ("sums", "squares"):
            array = tensor_file.require_tensor(stored, f"pairs.{name}", np.float64, upper[0].shape)
            getattr(pairs, name)[upper] = array
        are_moments = (np.abs(moments) <= 4.0 * pairs.totals[SEEN]).all() and (moments[:, [2, 4]] >= 0.0).all()
        least = min(np.delete(pairs.totals, SLOPES).min(), pairs.squares.min(initial=0.0))
        unnamed = moments[count:].any() or pairs.sums[:, 2 * count :].any() or pairs.squares[:, 2 * count :].any()
        if unnamed or not are_moments or not (moments[:, -1] <= pairs.totals[SEEN]).all() or least < 0.0:
            raise ValueError("expected sums over examples as pairs.*, got other numbers")
    if g == NOWHERE and "pairs.chosen" in stored:
        raise ValueError("expected a block in pairs with pairs.chosen, got none in the table")
    if g == NOWHERE:
        return pairs
    chosen = tensor_file.require_tensor(stored, "pairs.chosen", np.int64, (None, 2))
    gains = tensor_file.require_tensor(stored, "pairs.gains", np.float64, (len(chosen),))
    are_pairs = 0 < len(np.unique(chosen, axis=0)) == len(chosen) <= MOST and 0 <= chosen.min() <= chosen.max() < count
    if not are_pairs or (chosen[:, 0] > chosen[:, 1]).any() or not ((gains > 0.0) & (gains < np.inf)).all():
        raise ValueError(f"expected different pairs of {count} inputs, and their gains, as pairs.*, got others")
    new = pairs._replace(group=np.array([g]), chosen=chosen.copy(), gains=gains.copy())
    return with_directions(with_room(new, int(chosen.max()) + 1), metric, directions)
