"""The mixture of a frozen function: coefficients with weights multiplied in, linear functions, neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamkernel.features.rows import F64, U64
from streamkernel.learners.state import MEAN
from streamkernel.second_order.evaluation import BEYOND
from streamkernel.second_order.linear import LARGEST_SCORE, REACH, SMALLEST_SHARE
from streamkernel.second_order.linear_state import PLACES, REMEMBERED
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.second_order.mixture_state import BEFORE, COUNT, FIRST


def coefficients(learner: SecondOrderLearner) -> F64:
    """Return Σ v_k w_k over the functions of random features, shape (outputs, columns)."""
    state, columns = learner.arrays, learner.columns
    groups, n = len(state.layout), max(1, learner.n_positions) * learner.outputs
    ends = state.layout[:, FIRST] + state.layout[:, COUNT]
    found = np.zeros((max(n, int(ends.max())), columns))
    for g, own in enumerate(state.layout):
        here, of = (
            slice(own[FIRST], own[FIRST] + own[COUNT]),
            slice(columns * own[BEFORE], columns * (own[BEFORE] + own[COUNT])),
        )
        for v, w in ((state.weights[g], state.newton), (state.weights[groups + g], state.steady)):
            found[here] += v * w[of].reshape(columns, -1).T
    return found[:n]


def others(learner: SecondOrderLearner, hashes: U64) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the level, the linear functions, the neighbours and the bounds, with the inputs of these hashes."""
    state, numbers = learner.arrays, learner.numbers
    own, level = state.linear, 2 * len(state.layout)
    count, used = len(own.w), int(own.counts[PLACES])
    near = level + 1 + count
    arrays: dict[str, Any] = {"constant": state.weights[level] * state.level[:, 0]}
    about: dict[str, Any] = {"linear": state.weights[level + 1 : near].tolist()}
    place = {int(name): i for i, name in enumerate(own.names[:used]) if i > 0}
    places = np.array([place.get(int(one), 0) for one in hashes])  # 0 is that of the constant
    if count:
        has_place = places > 0
        arrays["linear.centre"] = np.where(has_place, own.scales[places, 0], 0.0)
        arrays["linear.unit"] = np.where(has_place, own.scales[places, 1], 1.0)
        arrays["linear.w"] = np.where(has_place[:, None], own.w[:, :, places].transpose(0, 2, 1), 0.0)
        arrays["linear.constant"] = own.w[:, :, 0]
        arrays["linear.reach"] = _reach(own.errors, float(numbers["error_scale"]))
    known = min(int(own.counts[REMEMBERED]), len(own.answers))
    if len(state.weights) > near and known:
        about["near"] = float(state.weights[near])
        in_order = [(place, column) for column, place in enumerate(places.tolist()) if 0 < place < len(own.points)]
        by_place = sorted(in_order)
        arrays["near.columns"] = np.array([column for _, column in by_place], np.int64)
        arrays["near.points"] = own.points[[place for place, _ in by_place], :known]
        arrays["near.answers"], arrays["near.weights"] = own.answers[:known], own.weights[:known]
    if numbers["intercept"] == MEAN and numbers["examples"] > 0:
        low, high = state.span
        more, added = BEYOND * (high - low), float(numbers["predicted_offset"])
        low, high = low - more - added, high + more - added
        if len(state.weights) > near and not known:  # then they say 0
            low, high = min(low, 0.0), max(high, 0.0)
        arrays["span"] = np.array([low, high])
    return about, arrays


def _reach(errors: F64, size: float) -> F64:
    """Return the bound of the linear functions, as :func:`streamkernel.second_order.linear.reach` does."""
    if size == 0.0:
        return np.full(len(errors), LARGEST_SCORE)
    return np.asarray(REACH * np.sqrt(size) / np.maximum(errors / size, SMALLEST_SHARE))
