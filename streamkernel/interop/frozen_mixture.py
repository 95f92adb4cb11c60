"""The mixture of a frozen function: coefficients with weights multiplied in, linear functions, neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamkernel.features.rows import F64, U64
from streamkernel.learners.state import MEAN
from streamkernel.second_order.linear.few_values import columns_of_values
from streamkernel.second_order.linear.state import BOUND, PLACES, Linear
from streamkernel.second_order.linear.steps import LARGEST_SCORE, REACH, SMALLEST_SHARE
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.second_order.mixture_state import BEFORE, COUNT, FIRST, weights_by_column
from streamkernel.second_order.neighbours.search import in_order, influence
from streamkernel.second_order.span import limits

SAME = 1e-6
"""Largest distance of an input from a value that it has, in standard deviations."""


def coefficients(learner: SecondOrderLearner) -> F64:
    """Return Σ v_k w_k over the functions of random features, shape (outputs, columns)."""
    state, columns = learner.arrays, learner.columns
    weights = weights_by_column(state)
    groups, n = len(state.layout), max(1, learner.n_positions) * learner.outputs
    ends = state.layout[:, FIRST] + state.layout[:, COUNT]
    found = np.zeros((max(n, int(ends.max())), columns))
    for g, own in enumerate(state.layout):
        here, of = (
            slice(own[FIRST], own[FIRST] + own[COUNT]),
            slice(columns * own[BEFORE], columns * (own[BEFORE] + own[COUNT])),
        )
        for v, w in ((weights[g], state.newton), (weights[groups + g], state.steady)):
            found[here] += v * w[of].reshape(columns, -1).T
    return found[:n]


def others(learner: SecondOrderLearner, hashes: U64) -> dict[str, Any]:
    """Return the level, the linear functions, the neighbours and the bounds, with the inputs of these hashes."""
    state, numbers, targets = learner.arrays, learner.arrays.numbers, learner.n_targets
    own, near, weights = state.linear, state.neighbours, weights_by_column(state)
    count, used = len(own.w), int(own.counts[PLACES])
    _, _, level, first, first_near, _ = state.slots.tolist()
    arrays: dict[str, Any] = {"constant": weights[level] * state.level[:, 0]}
    place = {int(name): i for i, name in enumerate(own.names[:used]) if i > 0}
    places = np.array([place.get(int(one), 0) for one in hashes])  # 0 is the constant's
    if count:
        has_place = places > 0
        arrays["linear.centre"] = np.where(has_place, own.scales[places, 0], 0.0)
        arrays["linear.unit"] = np.where(has_place, own.scales[places, 1], 1.0)
        arrays["linear.w"] = np.where(has_place[:, None], own.w[:, :, places].transpose(0, 2, 1), 0.0)
        arrays["linear.constant"] = own.w[:, :, 0]
        arrays |= _of_values(own, hashes, arrays["linear.unit"])
        arrays["linear.share"] = weights[first:first_near]
        if own.counts[BOUND]:
            arrays["linear.bound"] = np.array(float(own.counts[BOUND]))
        reach = _reach(own.errors.reshape(count, targets), numbers["error_scale"])
        arrays["linear.reach"] = np.repeat(reach, learner.columns // targets, axis=1)
    order, ends = in_order(near, own)
    if ends:
        arrays["near.counts"], arrays["near.share"] = np.array(ends), weights[first_near : first_near + len(ends)]
        columns = [(place, column) for column, place in enumerate(places.tolist()) if 0 < place < len(near.points)]
        by_place = sorted(columns)
        arrays["near.columns"] = np.array([column for _, column in by_place], np.int64)
        at = [place for place, _ in by_place]
        arrays["near.influence"] = influence(own, len(near.points), state.metric.sensitivities)[at]
        arrays["near.points"] = near.points[at][:, order]
        arrays["near.answers"] = near.answers.reshape(targets, -1)[:, order]
        arrays["near.weights"] = near.weights[order]
    if numbers["intercept"][0] == MEAN and numbers["examples"][0] > 0:
        low, high, least, most = np.array(limits(state.span, numbers["error_scale"])) - numbers["predicted_offset"]
        if len(weights) > first_near + len(ends):  # the others say 0
            low, high = np.minimum(low, np.maximum(least, 0.0)), np.maximum(high, np.minimum(most, 0.0))
        arrays["span"] = np.array([low, high, least, most])
    return arrays


def _of_values(own: Linear, hashes: U64, units: F64) -> dict[str, Any]:
    """Return the inputs with few values among these, those values, and the weights of their indicators.

    `units` are the deviations of the inputs. Values are compared with a tolerance, because an affine function before
    the model may be computed in another way.
    """
    at = np.flatnonzero(own.scales[: own.counts[PLACES], 1] < 0.0)
    columns = columns_of_values(np.maximum(hashes, np.uint64(1)), own.names[at], own.scales[at, 0])
    at, columns = at[columns >= 0], columns[columns >= 0]
    if not len(at):
        return {}
    weights = (own.w[:, :, at] / -own.scales[at, 1]).transpose(0, 2, 1)
    return {
        "values.columns": columns,
        "values.values": own.scales[at, 0],
        "values.tolerance": SAME * units[columns],
        "values.w": weights,
    }


def _reach(errors: F64, sizes: F64) -> F64:
    """Return the bounds of the linear functions for each target, as :func:`streamkernel.second_order.linear.reach`
    does.
    """
    known = np.where(sizes > 0.0, sizes, 1.0)
    bounds = REACH * np.sqrt(known) / np.maximum(errors / known, SMALLEST_SHARE)
    return np.where(sizes > 0.0, bounds, LARGEST_SCORE)
