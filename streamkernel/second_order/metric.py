"""The metric of new groups: the average gradient outer product of f.

The gradients of f show in which directions it changes,

    M = (1/N) Σ_i ∇f(x_i) ∇f(x_i)ᵀ

over the scaled inputs of every fourth example since the last check; with several outputs, each example uses the next
one. A group that starts in this metric has random directions ω' = M^½ ω instead of ω, with M scaled to the trace of the
identity, so that the distance of two examples is ‖M^½(x - x')‖ (Radhakrishnan, Beaglehole, Pandit and Belkin,
"Mechanism for feature learning in neural networks and backpropagation-free machine learning models", Science 2024).
Since ω'ᵀx = ωᵀ(M^½x), only the row is transformed: all groups share the directions, their seeds and their cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype, types

from streamkernel import tensor_file, vectors
from streamkernel.errors import MergeError
from streamkernel.features.compiled_kernel import ENTRIES, Entries
from streamkernel.features.directions import Directions
from streamkernel.features.rows import F64, I64, U64
from streamkernel.jit import inlined, unit, work_array
from streamkernel.learners.scoring import entries_room
from streamkernel.second_order import sensitivity
from streamkernel.second_order.growth import IN_PAIRS
from streamkernel.second_order.name_table import index, row_of
from streamkernel.second_order.sensitivity import SENSITIVITY, WEIGHT

MOST_NAMES = 128
"""Names that a metric has; where there are more, all groups are isotropic."""

CHANGED = 0.2
"""Two metrics are different if their M^½ differ by more than this fraction of their size."""

NAMES, GRADIENTS = 0, 1
"""Entries of `counts`."""

_ROWS = 2 * MOST_NAMES

_LARGEST = 1e3
"""No entry of M^½ is larger: its squares are those of names, 128 at most."""


class Metric(NamedTuple):
    """The names, the sums over gradients, and the metrics of groups.

    Attributes
    ----------
    counts
        The number of known names, and of gradients in the sums.
    names, slots
        Hashes of the names, and their indices in the cache of directions.
    keys, at
        The table of :mod:`streamkernel.second_order.name_table` that finds the number of a name.
    sums
        Σ ∇f ∇fᵀ, shape (most names, most names).
    known
        Names in the metric of each group, 0 if it is isotropic.
    roots
        M^½ of each group, shape (groups, names, names).
    sensitivities, totals
        How much f changes along each name, as :mod:`streamkernel.second_order.sensitivity` describes.
    """

    counts: I64
    names: U64
    slots: I64
    keys: U64
    at: I64
    sums: F64
    known: I64
    roots: F64
    sensitivities: Any
    totals: F64


METRIC = types.NamedTuple(
    [
        types.int64[::1], types.uint64[::1], types.int64[::1], types.uint64[::1], types.int64[::1],
        types.float64[:, ::1], types.int64[::1], types.float64[:, :, ::1],
        types.Array(from_dtype(SENSITIVITY), 1, "C"), types.float64[::1],
    ],
    Metric,
)  # fmt: skip


class MetricRoom(NamedTuple):
    """Work arrays for a row in a metric: its entries, and their values in the order of the metric's names."""

    row: Entries
    values: F64


METRIC_ROOM = types.NamedTuple([ENTRIES, types.float64[::1]], MetricRoom)


@inlined(allocates=None)
def metric_room(memory, longest):  # type: ignore[no-untyped-def]
    """Return work arrays for rows of at most `longest` entries."""
    return MetricRoom(entries_room(memory, 1, longest + MOST_NAMES), work_array(memory, MOST_NAMES, np.float64))


@inlined(allocates=False)
def number_of(metric, name):  # type: ignore[no-untyped-def]
    """Return the number of a name, or -1."""
    key = max(name, np.uint64(1))  # 0 is an empty row
    row = row_of(metric.keys, key)
    return metric.at[row] if metric.keys[row] == key else -1


@inlined(allocates=False)
def number_for(metric, name, slot):  # type: ignore[no-untyped-def]
    """Return the number of a name, a new one below the limit, or -1."""
    number, count = number_of(metric, name), metric.counts[NAMES]
    if number >= 0 or count == MOST_NAMES:
        return number
    key = max(name, np.uint64(1))
    row = row_of(metric.keys, key)
    metric.keys[row], metric.at[row], metric.names[count], metric.slots[count] = key, count, key, slot
    metric.counts[NAMES] = count + 1
    return count


@unit(types.void(ENTRIES, METRIC, types.int64, METRIC_ROOM), allocates=False)
def transform(row, metric, g, work):  # type: ignore[no-untyped-def]
    """Set `work` to M^½x in the metric of group g: first the names of the metric, then the others, unchanged."""
    n_names, root, x, out = metric.known[g], metric.roots[g], work.values, work.row
    for a in range(n_names):
        x[a] = 0.0
    n = n_names
    for j in range(row.counts[0]):
        number = number_of(metric, row.hashes[0, j])
        if 0 <= number < n_names:
            vectors.add(x[:n_names], root[number, :n_names], np.float64(row.values[0, j]))
        else:
            out.slots[0, n], out.hashes[0, n], out.values[0, n] = row.slots[0, j], row.hashes[0, j], row.values[0, j]
            n += 1
    for a in range(n_names):
        out.slots[0, a], out.hashes[0, a], out.values[0, a] = metric.slots[a], metric.names[a], np.float32(x[a])
    out.counts[0] = n


def empty(groups: int) -> Metric:
    """Return the metric of groups before the first example."""
    names: U64 = np.zeros(MOST_NAMES, np.uint64)
    keys: U64 = np.zeros(_ROWS, np.uint64)
    slots, at = np.zeros(MOST_NAMES, np.int64), np.zeros(_ROWS, np.int64)
    sums, n_names = np.zeros((MOST_NAMES, MOST_NAMES)), np.zeros(groups, np.int64)
    roots, (sensitivities, totals) = np.zeros((groups, 0, 0)), sensitivity.empty()
    return Metric(
        counts=np.zeros(2, np.int64),
        names=names,
        slots=slots,
        keys=keys,
        at=at,
        sums=sums,
        known=n_names,
        roots=roots,
        sensitivities=sensitivities,
        totals=totals,
    )


def of_names(names: U64, groups: int) -> Metric:
    """Return the metric of groups before the first gradient, with some names known."""
    metric = empty(groups)
    metric.names[: len(names)], metric.counts[NAMES] = names, len(names)
    index(metric.keys, metric.at, metric.names, 0, len(names))
    return metric


def with_places(metric: Metric, directions: Directions) -> Metric:
    """Return the metric with the indices of names in another cache."""
    slots, n = metric.slots.copy(), int(metric.counts[NAMES])
    slots[:n] = directions.places_of(metric.names[:n])
    return metric._replace(slots=slots)


def root_of(metric: Metric, unexplained: float, probe: int) -> F64 | None:
    """Return M^½, of the trace of the identity; ``None`` without gradients or with too many names.

    The part of the targets that f does not explain is noise in f and in its gradients. For an unexplained share s of
    the loss, M is replaced by (1 - d) M + dI with d = s³, so that noise alone makes no metric. If the block `probe` has
    a metric, d is at most its smallest eigenvalue, which is at least the d of that time: after an abrupt change f
    explains little, but most of the gradients are from before.
    """
    n = int(metric.counts[NAMES])
    sums = metric.sums[:n, :n]
    total = float(np.trace(sums))
    if not 2 <= n < MOST_NAMES or not np.isfinite(sums).all() or not total > 0.0:
        return None
    doubt = unexplained**3
    if metric.known[probe] == n:
        doubt = min(doubt, float(np.linalg.eigvalsh(metric.roots[probe, :n, :n])[0]) ** 2)
    squares, along = np.linalg.eigh((1.0 - doubt) * (n / total) * sums + doubt * np.eye(n))
    return np.asarray((along * np.sqrt(np.maximum(squares, 0.0))) @ along.T)


def is_same(metric: Metric, other: Metric, g: int) -> bool:
    """Return whether two functions have the same metric for a group."""
    k = int(metric.known[g])
    return (
        k == other.known[g]
        and np.array_equal(metric.names[:k], other.names[:k])
        and np.array_equal(metric.roots[g, :k, :k], other.roots[g, :k, :k])
    )


def merge_metrics(parts: Sequence[Metric], has: Any) -> Metric:
    """Return the metric of groups that learned separately, with the gradients of all parts.

    `parts` are metrics of functions, and `has` is a mask of the groups that each part has, shape (parts, groups); a
    group has the same metric in all of them. Raise a MergeError if the groups have more names together than a metric
    can have.
    """
    in_groups = [part.names[: part.known.max()] for part in parts]
    rest = [part.names[: part.counts[NAMES]] for part in parts]
    names = list(dict.fromkeys(name for own in (*in_groups, *rest) for name in own.tolist()))[:MOST_NAMES]
    merged = of_names(np.array(names, np.uint64), len(parts[0].known))
    places = {name: number for number, name in enumerate(names)}
    n_names = merged.known
    roots = np.zeros((len(n_names), len(names), len(names)))
    for part in parts:
        own = part.names[: part.counts[NAMES]].tolist()
        at = np.array([places[name] for name in own if name in places], np.int64)
        of = np.array([number for number, name in enumerate(own) if name in places], np.int64)
        merged.sums[np.ix_(at, at)] += part.sums[np.ix_(of, of)]
        merged.counts[GRADIENTS] += part.counts[GRADIENTS]
    for g in np.flatnonzero(has.any(axis=0)).tolist():
        own = parts[int(np.argmax(has[:, g]))]
        k = int(own.known[g])
        if not set(own.names[:k].tolist()) <= places.keys():
            raise MergeError(f"Expected metrics of at most {MOST_NAMES} names together, got more")
        at = np.array([places[name] for name in own.names[:k].tolist()], np.int64)
        n_names[g] = at.max(initial=-1) + 1
        np.fill_diagonal(roots[g], 1.0)
        roots[g][np.ix_(at, at)] = own.roots[g, :k, :k]
    table, totals = sensitivity.merge_tables(
        [part.sensitivities for part in parts], [float(part.totals[WEIGHT]) for part in parts]
    )
    return merged._replace(roots=roots, sensitivities=table, totals=totals)


def without_gradients(metric: Metric) -> Metric:
    """Return the metric without the gradients since the last check."""
    counts = metric.counts.copy()
    counts[GRADIENTS] = 0
    return metric._replace(counts=counts, sums=np.zeros_like(metric.sums))


def is_replaced(metric: Metric, g: int, root: F64, is_best: bool) -> bool:
    """Return whether M^½ replaces the one of a group, from which it has to differ.

    While the group is the best of its size, only a more decided metric does, whose M^½ has the smaller trace: with few
    examples since an abrupt change, gradients are mostly noise, which has no direction.
    """
    n_names = int(metric.known[g])
    present = metric.roots[g, :n_names, :n_names]
    if n_names != len(root):
        return True
    if is_best and np.trace(root) >= np.trace(present):
        return False
    return bool(np.linalg.norm(present - root) > CHANGED * np.linalg.norm(root))


def with_groups(metric: Metric, begun: list[int], ended: list[int], root: F64 | None) -> Metric:
    """Return the metric after some groups have ended and others start in M^½."""
    n_names = metric.known.copy()
    n_names[ended] = 0
    if root is not None:
        n_names[begun] = len(root)
    most = int(n_names.max())
    roots = np.zeros((len(n_names), most, most))
    for g, n in enumerate(n_names.tolist()):
        roots[g, :n, :n] = root if g in begun and root is not None else metric.roots[g, :n, :n]
    return metric._replace(known=n_names, roots=roots)


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
        **sensitivity.tensors(metric.sensitivities, metric.totals),
    }


def restore(stored: Mapping[str, Any], table: I64, alone: int, directions: Directions) -> Metric:
    """Return the metric in a file, or an empty one; raise a ValueError if a tensor is missing or does not fit.

    `table` has blocks, bandwidth and first example of each group, the first `alone` of which have a single block.
    """
    groups, in_metric = len(table), (table[:, 0] > 0) & (table[:, 1] >= alone) & (table[:, 1] < IN_PAIRS * alone)
    if "metric.names" not in stored:
        if in_metric.any():
            raise ValueError("expected a metric for groups that are in one, got none")
        return empty(groups)
    names = tensor_file.require_tensor(stored, "metric.names", np.int64, (None,)).view(np.uint64)
    n = len(names)
    if n > MOST_NAMES or len(np.unique(names)) < n:
        raise ValueError(f"expected up to {MOST_NAMES} different hashes as metric.names, got {n} others")
    metric = of_names(names, groups)
    sizes = tensor_file.require_tensor(stored, "metric.known", np.int64, (groups,))
    if ((sizes < 0) | (sizes > n)).any() or ((sizes > 0) != in_metric).any():
        raise ValueError(f"expected names of groups in a metric as metric.known, got {sizes.tolist()}")
    flat = tensor_file.require_tensor(stored, "metric.roots", np.float64, (int(np.square(sizes).sum()),))
    (gradients,) = tensor_file.require_tensor(stored, "metric.gradients", np.int64, (1,)).tolist()
    sums = tensor_file.require_tensor(stored, "metric.sums", np.float64, (n, n))
    if gradients < 0 or not (np.abs(flat) <= _LARGEST).all() or not (sums.diagonal() >= 0.0).all():
        raise ValueError("expected sums over gradients and roots of them as metric.*, got other numbers")
    metric.sums[:n, :n], metric.counts[GRADIENTS] = sums, gradients
    most, done = int(sizes.max(initial=0)), 0
    roots = np.zeros((groups, most, most))
    for g, k in enumerate(sizes.tolist()):
        roots[g, :k, :k] = flat[done : done + k * k].reshape(k, k)
        done += k * k
    table, totals = sensitivity.restore(stored)
    return with_places(metric._replace(known=sizes.copy(), roots=roots, sensitivities=table, totals=totals), directions)
