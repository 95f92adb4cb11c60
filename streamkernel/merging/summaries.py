"""Summaries of functions for merging, and the merging of their counters, running means, scales and columns.

The scales in use may have changed in one part; the moments are of all events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from streamkernel.errors import MergeError
from streamkernel.features.rows import F64, I64, Rows
from streamkernel.features.scale_table import HORIZON, MOST_NAMES
from streamkernel.features.scaling import MOMENTS
from streamkernel.learners import schedule
from streamkernel.learners.span import BOUNDED, LEAST, SPREAD, USUAL
from streamkernel.learners.state import LEARNED_INTS, LEARNED_REALS, NUMBERS
from streamkernel.second_order.linear.merging import LinearSummary
from streamkernel.second_order.metric import Metric
from streamkernel.second_order.neighbours.state import NeighboursSummary, neighbour_functions
from streamkernel.second_order.pairs import Pairs
from streamkernel.second_order.slots import slots_of
from streamkernel.second_order.small_functions import FUNCTIONS
from streamkernel.second_order.stored_mixture import OF_TARGETS

_MEANS = ("mean_square", "mean_fourth")
"""Means over all examples, whatever their weights."""
_BY_TARGET = "small", "weights", "signed", "positive", "lead", "mixer", "bounds", "span"
_BY_COLUMN = "moments", "newton", "steady"


def add_parts(parts: Sequence[Any], base: Any) -> Any:
    """Return the base plus each part's increase."""
    return sum(parts[1:], parts[0]) - (len(parts) - 1) * base


def no_numbers() -> Any:
    """Return the scalar state before the first example."""
    return np.zeros(1, NUMBERS)[0]


class CountingSummary(Protocol):
    """A summary with the scalar state of a function."""

    @property
    def numbers(self) -> Any:
        """The record of :mod:`streamkernel.learners.state`."""

    @property
    def is_mean(self) -> bool:
        """Whether the offset is a mean over all examples."""

    @property
    def span(self) -> F64:
        """The range of each target and what belongs to it, shape (targets, entries)."""


def merge_numbers(parts: Sequence[CountingSummary], base: CountingSummary, weights: F64) -> Any:
    """Return the merged learned part of the scalar state, as a record of :mod:`streamkernel.learners.state`."""
    numbers, root, merged = [part.numbers for part in parts], base.numbers, no_numbers()
    for name in LEARNED_INTS:
        merged[name] = add_parts([int(part[name]) for part in numbers], int(root[name]))
    merged["blocks"], merged["buffered"] = max(part["blocks"] for part in numbers), 0
    for name in LEARNED_REALS:
        merged[name] = np.array([part[name] for part in numbers]) @ weights
    merged["scale"], merged["scale_sum"] = 1.0, 0.0
    merged["gradient_sum"] = add_parts([float(part["gradient_sum"]) for part in numbers], float(root["gradient_sum"]))
    merged["weight"] = add_parts([float(part["weight"]) for part in numbers], float(root["weight"]))
    merged["gradient_bound"] = max(part["gradient_bound"] for part in numbers)
    merged["last_step"] = numbers[-1]["last_step"]
    means = {"examples": _MEANS, "weight": ("offset", "predicted_offset") if parts[0].is_mean else ()}
    for count, names in means.items():
        for name in names:
            sums = [float(part[count]) * float(part[name]) for part in numbers]
            merged[name] = add_parts(sums, float(root[count]) * float(root[name])) / (float(merged[count]) or 1.0)
    return merged


def merge_spans(parts: Sequence[CountingSummary], base: CountingSummary) -> F64:
    """Return the range of each target and the other entries of its span, over all parts, shape (targets × entries,)."""
    spans = np.array([part.span for part in parts if part.numbers["examples"]] or [np.zeros_like(parts[0].span)])
    root = base.span if base.numbers["examples"] else np.zeros_like(spans[0])
    merged = spans.max(axis=0)
    merged[:, LEAST] = spans[:, :, LEAST].min(axis=0)
    merged[:, [SPREAD, USUAL]] = spans[:, :, [SPREAD, USUAL]].mean(axis=0)
    merged[:, BOUNDED:] = root[:, BOUNDED:] + (spans - root)[:, :, BOUNDED:].sum(axis=0)
    return np.asarray(merged.ravel())


def union(lists: Sequence[Sequence[Any]]) -> list[Any]:
    """Return all labels in order of appearance.

    Examples
    --------
    >>> union([["a", "b"], ["c", "b"]])
    ['a', 'b', 'c']
    """
    return list(dict.fromkeys(label for labels in lists for label in labels))


def columns_of(labels: Sequence[Any], together: Sequence[Any], is_binary: bool, half: float) -> F64:
    """Return the matrix that maps the columns of a model with `labels` to the columns of one with all labels.

    With `is_binary` two labels are one column, which is the margin of the second one. `half` is the factor of a margin
    in the columns of its two labels, if there are more than two labels.

    Examples
    --------
    >>> columns_of(["a", "b"], ["b", "a"], True, 0.5)
    array([[-1.]])
    >>> columns_of(["a", "c"], ["a", "b", "c"], True, 0.5)
    array([[-0.5],
           [ 0. ],
           [ 0.5]])
    >>> columns_of(["b", "a"], ["a", "b", "c"], False, 0.5)
    array([[0., 1.],
           [1., 0.],
           [0., 0.]])
    """
    if is_binary and len(together) <= 2:
        return np.array([[1.0 if list(labels) == list(together)[: len(labels)] else -1.0]])
    places = [list(together).index(label) for label in labels]
    if is_binary and len(labels) <= 2:
        matrix = np.zeros((len(together), 1))
        matrix[places, 0] = (-half, half)[: len(labels)]
        return matrix
    matrix = np.zeros((max(1, len(together)), max(1, len(labels))))
    matrix[places, range(len(labels))] = 1.0
    return matrix


def merge_scales(parts: Sequence[Mapping[str, Any]], base: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the tensors of the merged :class:`~streamkernel.features.scaling.Scales`.

    A part has k values of mean m and sum of squares M about the mean. Relative to one c for all parts of a name (Chan,
    Golub and LeVeque 1983), k, s = k(m - c) and q = M + k(m - c)² are sums over the parts, in which the base counts
    once. The last value comes from the first part.

    The scale in use of a name is the base's, or the scale of the part that has changed it since. What the other parts
    have learned is added as it is: a model that changes a scale keeps what it has learned, too. `parts` and `base` are
    results of `Scales.tensors`. Raise a MergeError if a name is scaled differently: without a base at all, with a base
    by two parts that have changed it.
    """
    everything = [*parts, *([] if base is None else [base])]
    names: I64 = np.unique(np.concatenate([part["scales.names"] for part in everything]).view(np.uint64)).view(np.int64)
    is_present = np.zeros((len(everything), len(names)), bool)
    moments = np.zeros((len(everything), len(names), len(MOMENTS)))
    in_use = np.zeros((len(everything), len(names), 2))
    for i, part in enumerate(everything):
        at = np.searchsorted(names.view(np.uint64), part["scales.names"].view(np.uint64))
        is_present[i, at], moments[i, at], in_use[i, at] = True, part["scales.moments"], part["scales.in_use"]
    first = is_present.argmax(axis=0)
    every = np.arange(len(names))
    before = in_use[first, every] if base is None else in_use[-1]  # of a name that is new it is 0
    has_changed = is_present & (in_use != before).any(axis=2)
    now = np.where(has_changed.any(axis=0)[:, None], in_use[has_changed.argmax(axis=0), every], before)
    differ = has_changed.any(axis=0) if base is None else (has_changed & (in_use != now).any(axis=2)).any(axis=0)
    units = [float(part.get("scales.common", np.zeros(1))[0]) for part in everything]
    others = {unit for unit in units if unit != units[-1]}
    differ |= len(others) > (base is not None)
    unit = next(iter(others), units[-1])
    if differ.any():
        raise MergeError(
            f"Expected models with equal scales of their inputs, got {differ.sum()} of {len(names)} inputs on other "
            "scales; give both a kernel, or let both continue from one model and merge them before both change scales"
        )
    centre = moments[first, every, 1]
    off = np.where(is_present, moments[:, :, 1] - centre, 0.0)
    weights, n = (np.stack([part[f"scales.{name}"] for part in everything]) for name in ("weights", "n"))
    share = np.ones(len(everything))
    if base is not None:
        left = [_share_left(base, part) for part in parts]
        share[-1] = np.prod(left) - sum(left)
    sums = (moments[:, :, 0], moments[:, :, 0] * off, moments[:, :, 2] + moments[:, :, 0] * off**2, weights[:, :1])
    count, s, q, (weight,) = (share @ values for values in sums)
    mean = np.divide(s, count, out=np.zeros_like(s), where=count > 0.0)
    columns = [np.minimum(count, weight), centre + mean, np.maximum(q - s * mean, 0.0)]
    columns += [np.clip(share @ moments[:, :, i], 0.0, weight) for i in range(3, len(MOMENTS) - 1)]
    columns.append(moments[first, every, -1])
    kept = slice(MOST_NAMES)
    common = {"scales.common": np.array([unit])} if unit > 0.0 else {}
    return common | {
        "scales.n": add_parts([*n[: len(parts)]], n[-1] if base is not None else 0),
        "scales.weights": np.array([weight, weights[:, 1].max()]),
        "scales.names": names[kept],
        "scales.moments": np.stack(columns, axis=1)[kept],
        "scales.in_use": now[kept],
    }


def _share_left(base: Mapping[str, Any], part: Mapping[str, Any]) -> float:
    """Return the weight that the moments of a base still have in a part, whose moments are halved periodically."""
    (n,), (last,), weight, left = base["scales.n"], part["scales.n"], base["scales.weights"][0], 1.0
    if part["scales.weights"][0] == weight + last - n:
        return left
    while left > 0.0 and (due := n + schedule.until_due(int(n))) <= last:
        n, weight = due, weight + due - n
        if weight >= HORIZON:
            weight, left = 0.5 * weight, 0.5 * left
    return left


class PrunableSummary(Protocol):
    """A summary of a function that may have been pruned."""

    @property
    def kept(self) -> I64:
        """The kept features."""


@dataclass(frozen=True)
class FirstOrderSummary:
    """The summary of a function of blocks for merging: copies of its arrays.

    `numbers` is a record of :mod:`streamkernel.learners.state`; with `is_mean` the offset is a mean over all examples.
    `functions` are the coefficients of f, and of its average where there is one: shape (blocks, outputs of a block,
    functions); `beta` are β of each block, shape (blocks, columns). `drawn` has block, position and bandwidth that each
    feature was drawn with, shape (blocks, features in a block, 3). `next` is the number of the next block, and `most`
    the cap. `span` is the range of the target and what belongs to it, shape (1, entries). `members` is the state of
    several functions, whose sum f is.
    """

    numbers: Any
    is_mean: bool
    functions: F64
    beta: F64
    drawn: I64
    next: int
    most: int
    pending: list[tuple[Rows, float]]
    span: F64
    members: Mapping[str, F64]

    @property
    def columns(self) -> int:
        """Outputs of f."""
        return int(self.beta.shape[1])

    def with_columns(self, columns: F64) -> FirstOrderSummary:
        """Return a summary whose columns are sums of this one's."""
        count = columns.shape[1]
        halves = np.split(self.functions, range(count, self.functions.shape[2], count), axis=2)
        functions = np.concatenate([half @ columns.T for half in halves], axis=2)
        return replace(self, functions=functions, beta=self.beta @ columns.T)

    def before(self) -> FirstOrderSummary:
        """Return the summary of the same function before its first example."""
        none = {name: getattr(self, name)[:0] for name in ("functions", "beta", "drawn")}
        members = {name: np.zeros_like(array) for name, array in self.members.items()}
        return replace(self, numbers=no_numbers(), most=0, pending=[], members=members, **none)


@dataclass(frozen=True)
class SecondOrderSummary:
    """The summary of a mixture of groups for merging: copies of its arrays.

    `of_targets` is the scalar state of each target, records of :mod:`streamkernel.learners.state`; the first one has
    the counters. `span` is their range and what belongs to it, shape (targets, entries). `table` has blocks, bandwidth
    and first example of each group, shape (groups, 3). `kept` are features that are kept since the function was pruned.

    Of each group, `priors` and `units` are λ as a share and in the units of its factor, `rested` the examples that it
    left out at rest, `forgetting` its factor per example (a group that forgets while others do not is the last one),
    `recent` sums of its recent losses, `evidence` D_k of a change; `grams` are A = RᵀR, shape (n, n), and `moments`,
    `newton` and `steady` are Aw, w, and the coefficients of the constant steps, shape (columns, n). `centring` are the
    sums of wℓ''φ and wℓ''cφ in A, shape (1 + targets, n). `small` are the numbers of small functions.

    The mixture has of each target its `weights`, `signed` of any sign and `positive` ones, `lead` D, the Gram matrix
    `mixer` and `bounds` on gradients; `standing` are running losses.
    """

    of_targets: Any
    is_mean: bool
    table: I64
    kept: I64
    priors: F64
    units: F64
    rested: I64
    grams: list[F64] | None
    moments: list[F64]
    newton: list[F64]
    steady: list[F64]
    centring: list[F64]
    small: F64
    weights: F64
    signed: F64
    positive: F64
    lead: F64
    mixer: F64
    bounds: F64
    standing: F64
    metric: Metric
    pairs: Pairs
    linear: LinearSummary
    neighbours: NeighboursSummary
    span: F64
    forgetting: F64
    recent: F64
    evidence: F64

    @property
    def numbers(self) -> Any:
        """The scalar state that counts for all targets."""
        return self.of_targets[0]

    @property
    def columns(self) -> int:
        """Outputs of f."""
        return int(self.small.shape[0])

    @property
    def slots(self) -> I64:
        """The first slot of each kind of function."""
        near = neighbour_functions(self.neighbours.capacity)
        return slots_of(len(self.table), len(FUNCTIONS), int(len(self.linear.w) > 0), near)

    @property
    def has_forgetting(self) -> bool:
        """Whether the last group forgets while others do not."""
        return bool(self.forgetting[-1] != self.forgetting[0])

    def clock(self, g: int) -> int:
        """Return the time by the clock of a group, which stands while it rests: examples without those left out."""
        return int(self.numbers["examples"] - self.rested[g])

    def of_target(self, t: int) -> SecondOrderSummary:
        """Return a summary with the scalar state of one target, with the counters of all."""
        numbers = self.of_targets[:1].copy()
        for name in OF_TARGETS:
            numbers[name] = self.of_targets[name][t]
        return replace(self, of_targets=numbers)

    def in_order(self, order: Sequence[int]) -> SecondOrderSummary:
        """Return a summary with the targets, which have a column each, in another order."""
        at, numbers = np.array(order), self.of_targets.copy()
        for name in OF_TARGETS:
            numbers[name] = self.of_targets[name][at]
        arrays: dict[str, Any] = {name: getattr(self, name)[at] for name in _BY_TARGET}
        arrays |= {name: [one[at] for one in getattr(self, name)] for name in _BY_COLUMN}
        arrays["centring"] = [one[np.append(0, 1 + at)] if len(one) else one for one in self.centring]
        near = self.neighbours.in_order(at)
        return replace(self, of_targets=numbers, linear=self.linear.in_order(at), neighbours=near, **arrays)

    def with_columns(self, columns: F64) -> SecondOrderSummary:
        """Return a summary whose columns are sums of this one's."""
        spread: dict[str, Any] = {name: [columns @ one for one in getattr(self, name)] for name in _BY_COLUMN}
        linear, near = self.linear.with_columns(columns), self.neighbours.with_columns(columns)
        return replace(self, small=columns @ self.small, linear=linear, neighbours=near, **spread)

    def before(self) -> SecondOrderSummary:
        """Return the summary of the same function before its first example."""
        names = *_BY_COLUMN, "centring"
        zeros: dict[str, Any] = {name: [0.0 * one for one in getattr(self, name)] for name in names}
        return replace(
            self, of_targets=np.zeros_like(self.of_targets), rested=np.zeros_like(self.rested), grams=None, **zeros
        )
