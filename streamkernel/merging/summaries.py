"""Summaries of functions for merging: immutable copies of their state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from streamkernel.features.rows import F64, I64, Rows
from streamkernel.merging.numbers import no_numbers
from streamkernel.second_order.linear.merging import LinearSummary
from streamkernel.second_order.metric import Metric
from streamkernel.second_order.neighbours.state import NeighboursSummary
from streamkernel.second_order.stored_mixture import OF_TARGETS

_BY_TARGET = "level", "weights", "signed", "positive", "lead", "mixer", "bounds", "span"
_BY_COLUMN = "moments", "newton", "steady"


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
    the cap. `span` is the range of the target and what belongs to it, shape (1, entries).
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

    @property
    def columns(self) -> int:
        """Outputs of f."""
        return int(self.beta.shape[1])

    def with_columns(self, columns: F64) -> FirstOrderSummary:
        """Return a summary whose columns are sums of this one's."""
        own = columns.shape[1]
        halves = np.split(self.functions, range(own, self.functions.shape[2], own), axis=2)
        functions = np.concatenate([half @ columns.T for half in halves], axis=2)
        return replace(self, functions=functions, beta=self.beta @ columns.T)

    def before(self) -> FirstOrderSummary:
        """Return the summary of the same function before its first example."""
        none = {name: getattr(self, name)[:0] for name in ("functions", "beta", "drawn")}
        return replace(self, numbers=no_numbers(), most=0, pending=[], **none)


@dataclass(frozen=True)
class SecondOrderSummary:
    """The summary of a mixture of groups for merging: copies of its arrays.

    `of_targets` is the scalar state of each target, records of :mod:`streamkernel.learners.state`; the first one has
    the counters. `span` is their range and what belongs to it, shape (targets, entries). `table` has blocks, bandwidth
    and first example of each group, shape (groups, 3). `kept` are features that are kept since the function was pruned.

    Of each group, `priors` and `units` are λ as a share and in the units of its factor, `rested` the examples that it
    left out at rest, `forgetting` its factor per example (groups that forget while others do not are at the end),
    `recent` sums of its recent losses; `grams` are A = RᵀR, shape (n, n), and `moments`, `newton` and `steady` are Aw,
    w, and the coefficients of the constant steps, shape (columns, n). `level` is the level of f, shape (columns, 1).

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
    level: F64
    weights: F64
    signed: F64
    positive: F64
    lead: F64
    mixer: F64
    bounds: F64
    standing: F64
    metric: Metric
    linear: LinearSummary
    neighbours: NeighboursSummary
    span: F64
    forgetting: F64
    recent: F64

    @property
    def numbers(self) -> Any:
        """The scalar state that counts for all targets."""
        return self.of_targets[0]

    @property
    def columns(self) -> int:
        """Outputs of f."""
        return int(self.level.shape[0])

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
        own: dict[str, Any] = {name: getattr(self, name)[at] for name in _BY_TARGET}
        own |= {name: [one[at] for one in getattr(self, name)] for name in _BY_COLUMN}
        near = self.neighbours.in_order(at)
        return replace(self, of_targets=numbers, linear=self.linear.in_order(at), neighbours=near, **own)

    def with_columns(self, columns: F64) -> SecondOrderSummary:
        """Return a summary whose columns are sums of this one's."""
        spread: dict[str, Any] = {name: [columns @ one for one in getattr(self, name)] for name in _BY_COLUMN}
        linear, near = self.linear.with_columns(columns), self.neighbours.with_columns(columns)
        return replace(self, level=columns @ self.level, linear=linear, neighbours=near, **spread)

    def before(self) -> SecondOrderSummary:
        """Return the summary of the same function before its first example."""
        zeros: dict[str, Any] = {name: [0.0 * one for one in getattr(self, name)] for name in _BY_COLUMN}
        return replace(
            self, of_targets=np.zeros_like(self.of_targets), rested=np.zeros_like(self.rested), grams=None, **zeros
        )
