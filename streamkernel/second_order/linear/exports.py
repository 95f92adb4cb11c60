"""The linear function in exports: an affine function of some inputs, and indicators of values that these have."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamkernel.features.rows import F64, U64
from streamkernel.second_order.linear.few_values import columns_of_values
from streamkernel.second_order.linear.state import BOUND, PLACES, Linear, places_of
from streamkernel.second_order.linear.steps import LARGEST_SCORE, REACH, SMALLEST_SHARE

SAME = 1e-6
"""Largest distance of an input from a value that it has, in standard deviations."""


def freeze(linear: Linear, hashes: U64, sizes: F64) -> dict[str, Any]:
    """Return the arrays of the function of the inputs of these hashes; `sizes` are the mean squares of the targets."""
    if not len(linear.w):
        return {}
    places = places_of(linear, hashes)
    has_place, width = places > 0, len(linear.w) // len(sizes)
    units = np.where(has_place, linear.scales[places, 1], 1.0)
    return {
        "linear.centre": np.where(has_place, linear.scales[places, 0], 0.0),
        "linear.unit": units,
        "linear.w": np.where(has_place[:, None], linear.w[:, places].T, 0.0),
        "linear.constant": linear.w[:, 0],
        **_of_values(linear, hashes, units),
        **({"linear.bound": np.array(float(linear.counts[BOUND]))} if linear.counts[BOUND] else {}),
        "linear.reach": np.repeat(_reach(linear.errors, sizes), width),
    }


def _of_values(linear: Linear, hashes: U64, units: F64) -> dict[str, Any]:
    """Return the inputs with few values among these, those values, and the weights of their indicators.

    `units` are the deviations of the inputs. Values are compared with a tolerance, because an affine function before
    the model may be computed in another way.
    """
    at = np.flatnonzero(linear.scales[: linear.counts[PLACES], 1] < 0.0)
    columns = columns_of_values(np.maximum(hashes, np.uint64(1)), linear.names[at], linear.scales[at, 0])
    at, columns = at[columns >= 0], columns[columns >= 0]
    if not len(at):
        return {}
    weights = (linear.w[:, at] / -linear.scales[at, 1]).T
    return {
        "values.columns": columns,
        "values.values": linear.scales[at, 0],
        "values.tolerance": SAME * units[columns],
        "values.w": weights,
    }


def _reach(errors: F64, sizes: F64) -> F64:
    """Return the bound of the linear function for each target, as :func:`second_order.linear.steps.reach` does."""
    positive = np.where(sizes > 0.0, sizes, 1.0)
    bounds = REACH * np.sqrt(positive) / np.maximum(errors / positive, SMALLEST_SHARE)
    return np.where(sizes > 0.0, bounds, LARGEST_SCORE)
