"""The metrics of a mixture in files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkernel import tensor_file
from streamkernel.features.directions import Directions
from streamkernel.features.rows import I64
from streamkernel.second_order import sensitivity_state
from streamkernel.second_order.metric import GRADIENTS, MOST_NAMES, NAMES, Metric, empty, of_names, with_places

_LARGEST = 1e3
"""No entry of M^½ is larger: its squares are those of names, 128 at most."""


def tensors(metric: Metric) -> dict[str, Any]:
    """Return the tensors of a metric; none before the first gradient."""
    n = int(metric.counts[NAMES])
    if not n:
        return {}
    return {
        "metric.names": metric.names[:n].view(np.int64).copy(),
        "metric.gradients": metric.counts[GRADIENTS:].copy(),
        "metric.sums": metric.sums[:n, :n].copy(),
        "metric.known": metric.known.copy(),
        "metric.roots": np.concatenate([metric.roots[g, :k, :k].ravel() for g, k in enumerate(metric.known)]),
        **sensitivity_state.tensors(metric.sensitivities, metric.totals),
    }


def restore(given: Mapping[str, Any], table: I64, alone: int, directions: Directions) -> Metric:
    """Return the metric in a file, or an empty one.

    Parameters
    ----------
    given
        The tensors of the file.
    table
        Blocks, bandwidth and first example of each group.
    alone
        Groups of single blocks.
    directions
        The directions of the function.

    Raises
    ------
    ValueError
        If a tensor is missing or does not fit.
    """
    groups, in_metric = len(table), (table[:, 0] > 0) & (table[:, 1] >= alone)
    if "metric.names" not in given:
        if in_metric.any():
            raise ValueError("expected a metric for groups that are in one, got none")
        return empty(groups)
    names = tensor_file.require_tensor(given, "metric.names", np.int64, (None,)).view(np.uint64)
    n = len(names)
    if n > MOST_NAMES or len(np.unique(names)) < n:
        raise ValueError(f"expected up to {MOST_NAMES} different hashes as metric.names, got {n} others")
    metric = of_names(names, groups)
    known = tensor_file.require_tensor(given, "metric.known", np.int64, (groups,))
    if ((known < 0) | (known > n)).any() or ((known > 0) != in_metric).any():
        raise ValueError(f"expected names of groups in a metric as metric.known, got {known.tolist()}")
    flat = tensor_file.require_tensor(given, "metric.roots", np.float64, (int(np.square(known).sum()),))
    (gradients,) = tensor_file.require_tensor(given, "metric.gradients", np.int64, (1,)).tolist()
    sums = tensor_file.require_tensor(given, "metric.sums", np.float64, (n, n))
    if gradients < 0 or not (np.abs(flat) <= _LARGEST).all() or not (sums.diagonal() >= 0.0).all():
        raise ValueError("expected sums over gradients and roots of them as metric.*, got other numbers")
    metric.sums[:n, :n], metric.counts[GRADIENTS] = sums, gradients
    most, done = int(known.max(initial=0)), 0
    roots = np.zeros((groups, most, most))
    for g, k in enumerate(known.tolist()):
        roots[g, :k, :k] = flat[done : done + k * k].reshape(k, k)
        done += k * k
    table, totals = sensitivity_state.restore(given)
    return with_places(metric._replace(known=known.copy(), roots=roots, sensitivities=table, totals=totals), directions)
