"""The derivatives of the groups of a mixture, in their metrics, by the inputs of one example."""

from __future__ import annotations

import numpy as np

from streamkernel.features.rows import F64, Rows
from streamkernel.features.running_moments import moments_of, slopes_of
from streamkernel.features.scale_table import ScalesState, scale_rows
from streamkernel.learners.derivatives import check, directions_along, slopes
from streamkernel.second_order import evaluation, slots
from streamkernel.second_order.arrangement import Arrangement
from streamkernel.second_order.gradients import embed_rows
from streamkernel.second_order.mixture_state import BEFORE, COUNT, FIRST, OWNER, MixtureState, weights_by_column


def derivatives(mixture: Arrangement, scales: ScalesState, row: Rows) -> F64:
    """Return the derivatives of Σ v_k f_k over the functions of groups by the values of one row, shape (columns,
    entries), zeros among them.

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
    scaled = row._replace(values=np.empty_like(row.values))
    scale_rows(scales, row, scaled.values)
    found = _of_groups(mixture, function, scaled)
    if len(scales.table):
        found *= slopes_of(scales, moments_of(scales, row.hashes), row.values)
    found[:, row.readers == 0] = 0.0
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
        v, u = weights[function.slots[slots.NEWTON] + g], weights[function.slots[slots.STEADY] + g]
        coefficients[:, first : first + n] += v * newton + u * steady
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
