"""Means and deviations of inputs by name, as used for scales."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamkernel.features.rows import F64, U64
from streamkernel.features.scale_moments import HALF, RATHER_NOT
from streamkernel.features.scale_table import EDGE, LIGHT, SCALE, ScalesState


class Moments(NamedTuple):
    """For each name: its mean and deviation, whether it is usually present, and its row in the table of scales.

    Absent values of names that are usually absent count as 0. Unknown names have zeros.
    """

    mean: F64
    deviation: F64
    is_usual: Any
    rows: Any


def moments_of(scales: ScalesState, hashes: U64) -> Moments:
    """Return the moments of names, by their hashes."""
    table, counts = scales.table, scales.counts[0]
    rows = _rows_of(table, hashes)
    present = rows["present"]
    least = np.where((rows["spread"] > 0.0) & (rows["centre"] != 0.0), RATHER_NOT, HALF) * counts["weight"]
    is_usual = (present > 0.0) & (present >= least)
    share = rows["count"] / np.maximum(np.where(is_usual, present, counts["weight"]), 1e-300)
    mean = share * rows["mean"]
    squares = share * rows["squares"] / np.maximum(rows["count"], 1e-300) + mean * rows["mean"] * (1.0 - share)
    return Moments(mean, np.sqrt(np.maximum(squares, 0.0)), is_usual, rows)


def slopes_of(scales: ScalesState, moments: Moments, values: F64) -> F64:
    """Return the derivatives of scaled values by values."""
    counts, rows = scales.counts[0], moments.rows
    newness = max(1.0, LIGHT * counts["taken"] ** 0.25)
    is_scaled = (rows["spread"] > 0.0) | (rows["centre"] != 0.0)
    unit = np.where(is_scaled, rows["unit"], 1.0)
    size = np.abs(np.where(is_scaled, (values - rows["centre"]) / unit, values))
    return np.asarray(EDGE / np.maximum(size, EDGE) / np.where(is_scaled, unit, newness))


def _rows_of(table: Any, hashes: U64) -> Any:
    """Return the rows of names in the table of scales, zeros for unknown names."""
    keys, last, found = table["key"], len(table) - 1, np.zeros(len(hashes), SCALE)
    for j, key in enumerate(np.maximum(hashes, 1).tolist()):
        i = key & last
        while keys[i] != key and keys[i]:
            i = (i + 1) & last
        found[j] = table[i]
    return found
