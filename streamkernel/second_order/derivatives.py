"""The derivatives of a mixture by the inputs of one example: of its groups in their metrics, its linear functions, and
its nearest neighbours, which are treated as fixed.
"""

from __future__ import annotations

import numpy as np

from streamkernel.features.rows import F64, I64, Rows
from streamkernel.features.running_moments import moments_of, slopes_of
from streamkernel.features.scale_table import ScalesState, scale_rows
from streamkernel.learners.derivatives import check, directions_along, slopes
from streamkernel.learners.state import MEAN
from streamkernel.losses.compiled import SOFTMAX
from streamkernel.second_order import evaluation
from streamkernel.second_order.arrangement import Arrangement
from streamkernel.second_order.gradients import embed_rows
from streamkernel.second_order.influence import influence
from streamkernel.second_order.linear import slope
from streamkernel.second_order.linear_state import BOUND, NEIGHBOURS, PLACES, Linear
from streamkernel.second_order.mixture_state import BEFORE, COUNT, FIRST, OWNER, MixtureState, weights_by_column
from streamkernel.second_order.neighbours import CAUTION, LEAST_SQUARE, UNSEEN, in_order


def derivatives(mixture: Arrangement, scales: ScalesState, row: Rows) -> F64:
    """Return the derivatives of f by the values of one row, shape (columns, entries), zeros among them.

    Parameters
    ----------
    mixture
        The mixture.
    scales
        The scales that bring the values to its inputs; those of no names if it takes them as they are.
    row
        The row.

    Raises
    ------
    InputError
        If they are not known for the kernel.
    """
    check(mixture.directions.plan)
    function, scales = evaluation.copy_for_prediction(mixture.state, scales)
    scaled, is_scaled = row._replace(values=np.empty_like(row.values)), len(scales.table) > 0
    scale_rows(scales, row, scaled.values)
    found = _of_groups(mixture, function, scaled)
    order, ends = in_order(function.linear)
    near = 2 * len(function.layout) + 1 + len(function.linear.w)
    for weights, last in zip(weights_by_column(function)[near:], ends, strict=False):  # the others are 0
        found += weights[:, None] * _of_neighbours(function, scaled, order[:last])
    if is_scaled:
        found *= slopes_of(scales, moments_of(scales, row.hashes), row.values)
    found[:, row.readers == 0] = 0.0
    if len(function.linear.w):
        found += _of_linear(function, scales, row)
    return found


def _of_groups(mixture: Arrangement, function: MixtureState, row: Rows) -> F64:
    """Return the derivatives of the groups' predictions by the scaled values."""
    numbers, layout, metric = function.numbers[0], function.layout, function.metric
    size, groups, columns = int(numbers["block_size"]), len(layout), int(numbers["columns"])
    z = np.zeros(int((layout[:, FIRST] + layout[:, COUNT]).max()), np.float32)
    own = embed_rows(function, mixture.directions, row, int(numbers["blocks"]))[0]
    z[: len(own)] = own[: len(z)]
    coefficients, weights = np.zeros((columns, len(z))), weights_by_column(function)[:, :, None]
    for g, (first, n, before) in enumerate(layout[:, [FIRST, COUNT, BEFORE]].tolist()):
        here = slice(columns * before, columns * (before + n))
        newton, steady = function.newton[here].reshape(columns, n), function.steady[here].reshape(columns, n)
        coefficients[:, first : first + n] += weights[g] * newton + weights[groups + g] * steady
    kernel = mixture.directions.kernel
    own_slopes = slopes(kernel, size, z, coefficients)
    along = directions_along(kernel, size, row.hashes, len(z) // 2)
    most = int(metric.known.max(initial=0))
    along_metric = directions_along(kernel, size, metric.names[:most], len(z) // 2)
    number = {name: i for i, name in enumerate(metric.names[:most].tolist())}
    numbers_of = np.array([number.get(max(name, 1), most) for name in row.hashes.tolist()], np.int64)
    found = np.zeros((columns, len(row.hashes)))
    for g in np.flatnonzero((layout[:, COUNT] > 0) & (layout[:, OWNER] == np.arange(groups))).tolist():
        known, first, last = int(metric.known[g]), layout[g, FIRST] // 2, (layout[g, FIRST] + layout[g, COUNT]) // 2
        of_group, is_known = own_slopes[:, first:last], numbers_of < known
        by_metric = of_group @ along_metric[:known, first:last].T @ metric.roots[g, :known, :known]
        found[:, ~is_known] += of_group @ along[~is_known, first:last].T
        found[:, is_known] += by_metric[:, numbers_of[is_known]]
    return found


def _places(linear: Linear, row: Rows) -> I64:
    """Return the index of each name of a row, or 0 for unknown names."""
    number = {name: i for i, name in enumerate(linear.names[: linear.counts[PLACES]].tolist())}
    return np.array([number.get(max(name, 1), 0) for name in row.hashes.tolist()], np.int64)


def _of_neighbours(function: MixtureState, row: Rows, among: I64) -> F64:
    """Return the derivatives of the prediction of the nearest of some stored examples by the scaled values.

    ∂ω_i/∂x = (∂(w_i/d_i)/∂x - ω_i Σ_j ∂(w_j/d_j)/∂x)/Σ_j w_j/d_j,   ∂(w_i/d_i)/∂x = w_i a(x_i - x)/d_i³
    """
    linear, numbers = function.linear, function.numbers[0]
    places = _places(linear, row)
    point = np.zeros(len(linear.points))
    counts = (places > 0) & (places < len(point))
    point[places[counts]] = row.values[counts]
    ways = linear.points[:, among].T - point
    counting = influence(linear, function.metric.sensitivities)
    squares = np.maximum(np.square(ways) @ counting, LEAST_SQUARE)
    nearest = np.argsort(squares, kind="stable")[:NEIGHBOURS]
    inverse, ways = linear.weights[among[nearest]] * squares[nearest] ** -0.5, counting * ways[nearest]
    answers = linear.answers.reshape(len(function.numbers), -1)[:, among[nearest]]
    shares, slopes_of_inverse = inverse / inverse.sum(), ways * (inverse / squares[nearest])[:, None]
    by_point = (slopes_of_inverse - shares[:, None] * slopes_of_inverse.sum(axis=0)) / inverse.sum()
    if numbers["intercept"] == MEAN:
        gradient = answers @ by_point
    else:
        columns = len(function.level) // len(answers)
        spread = 1.0 if numbers["loss"] == SOFTMAX else 2.0
        gradient = np.concatenate([_of_classes(own, columns, spread, shares, by_point) for own in answers])
    return np.where(counts, CAUTION * gradient[:, np.where(counts, places, 0)], 0.0)


def _of_classes(answers: F64, columns: int, spread: float, shares: F64, by_point: F64) -> F64:
    """Return the derivatives of the scores of a target's classes by the point, shape (columns, entries)."""
    is_of = answers == np.arange(max(columns, 2))[:, None]
    k = len(answers)
    gradient = k * (is_of @ by_point) / (k * (is_of @ shares) + UNSEEN)[:, None]
    found = gradient[1:] - gradient[0] if columns == 1 else spread * (gradient - gradient.mean(axis=0))
    return np.asarray(found, np.float64)


def _of_linear(function: MixtureState, scales: ScalesState, row: Rows) -> F64:
    """Return the derivatives of the linear functions' predictions by the values; 0 for one at its bound."""
    linear: Linear = function.linear
    places = _places(linear, row)
    centre, divisor = linear.scales[places].T if len(scales.table) else (np.zeros(len(places)), np.ones(len(places)))
    per_value = np.where((places > 0) & (divisor > 0.0), 1.0 / np.where(divisor > 0.0, divisor, 1.0), 0.0)
    w = linear.w[:, :, places]
    raw = linear.w[:, :, 0] + w @ ((row.values - centre) * per_value)
    base = 2 * len(function.layout) + 1
    mixture_weights = weights_by_column(function)
    said = np.empty((1, len(mixture_weights) - base, raw.shape[1]))
    evaluation.scores_of_others(function, scales, row, row, said)
    own = said[0, : len(raw)]
    slopes = slope(linear, own) * (bool(linear.counts[BOUND]) | (np.abs(own) >= (1.0 - 1e-9) * np.abs(raw)))
    weights = mixture_weights[base : base + len(raw)] * slopes
    return np.asarray((weights[:, :, None] * w * per_value).sum(axis=0))
