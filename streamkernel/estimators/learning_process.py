"""A Gaussian process that learns its examples, the first of which decide its bandwidth and noise, in any threads."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from streamkernel.errors import InputError
from streamkernel.estimators import model_file
from streamkernel.features.rows import F64, Rows
from streamkernel.kernels import Kernel, bandwidth
from streamkernel.locking import OwnedLock, locked, on_copy
from streamkernel.posterior import posteriors
from streamkernel.posterior.posteriors import FeatureMap, Posterior

log = logging.getLogger(__name__)

Read = TypeVar("Read")


FirstExamples = tuple[tuple[Rows, float], ...]
"""Examples and their targets."""


class ProcessState(NamedTuple):
    """The state of a Gaussian process; everything that compiled code does not change is replaced in one assignment.

    `phis` are the features, for the paper's operator with a second set, ω'. `offset` is the origin of the targets, and
    `ratio` the noise in units of the prior variance of f. `first` are examples that still decide the bandwidth and the
    noise, with their targets; ``None`` once both are known. `journal` is an example that is being learned, its target,
    and how many examples the posterior had before.
    """

    phis: tuple[FeatureMap, ...]
    posterior: Posterior
    offset: float
    ratio: float
    first: FirstExamples | None
    journal: tuple[Rows, float, int] | None = None


class LearningProcess(model_file.Serializable):
    """A Gaussian process, and the order of changes in which it learns.

    Its state changes in one compiled call, or in one assignment of `_seen`. While an example is learned that decides
    bandwidth and noise, the state has a journal: the next call completes what follows from it.
    """

    kernel: Kernel | None
    noise: float | None
    _given: Kernel
    _lock: OwnedLock
    _seen: ProcessState

    def _new_posterior(self, phis: Sequence[FeatureMap], ratio: float) -> Posterior:
        """Return the posterior before the first example."""
        raise NotImplementedError

    def _read(self, read: Callable[[ProcessState], Read]) -> Read:
        """Read the state by a function, again if it was replaced meanwhile."""
        while True:
            seen = self._complete()
            found = read(seen)
            if self._seen.posterior is seen.posterior:  # else it may have learned an example before it was replaced
                return found

    @locked()
    def _learn(self, rows: Rows, y: F64) -> None:
        """Learn `rows` in order, except rows of weight 0."""
        self._recover()
        if not rows.weights.all():
            rows, y = rows.where(chosen := rows.weights > 0.0), y[chosen]
        done = 0
        while self._seen.first is not None and done < len(y):
            self._learn_first(rows.part(done, done + 1), float(y[done]))
            done += 1
        self._seen.posterior.learn(rows.part(done, len(y)), y[done:] - self._seen.offset)

    def _learn_first(self, row: Rows, y: float) -> None:
        """Learn one of the first examples, which are all learned again each time they are used; requires the lock."""
        seen = self._seen
        self._seen = seen._replace(journal=(row, y, seen.posterior.examples))
        try:  # before it counts: one that is refused decides nothing
            seen.posterior.learn(row, np.array([y - seen.offset]))
        finally:
            self._recover()

    def _complete(self) -> ProcessState:
        """Return the state after completing an interrupted change; a thread that learns completes its own."""
        if self._seen.journal is not None and not self._lock.locked():
            self._recover_locked()
        return self._seen

    @locked()
    def _recover_locked(self) -> None:
        self._recover()

    def _recover(self) -> None:
        """Complete the changes that follow from the learned examples; requires the lock."""
        seen = self._seen
        if seen.journal is None:
            return
        row, y, examples = seen.journal
        after = seen._replace(journal=None)
        if seen.posterior.examples > examples:
            first = (*(seen.first or ()), (row, y))
            after = after._replace(first=first)
            if len(first) == 1 or bandwidth.is_due(len(first)) or bandwidth.is_enough([row for row, _ in first]):
                after = self._decide(after, first)
        self._seen = after

    def _decide(self, seen: ProcessState, first: FirstExamples) -> ProcessState:
        """Return the state with bandwidth, origin of the targets and noise from the first examples, learned again."""
        choice = (0.5, 1.0, 2.0) if self.kernel is None and self.noise is None else (1.0,)
        phis, offset, ratio = choose_by_first(seen, first, self._given, choice, is_noise_given=self.noise is not None)
        posterior = self._new_posterior(phis, ratio)
        for known, target in first:
            try:
                posterior.learn(known, np.array([target - offset]))
            except InputError as error:
                log.warning("cannot learn an example again: %s", error)
        is_last = bandwidth.is_enough([row for row, _ in first])
        if is_last:
            log.info("%r and noise ratio %.3g, from the first examples", phis[0].kernel, ratio)
        return ProcessState(phis, posterior, offset, ratio, None if is_last else tuple(first))

    def _completed_copy(self) -> Self:
        """Return a copy that shares nothing that learning changes, after the change in progress or before it."""
        seen = self._seen
        posterior = copy.deepcopy(seen.posterior, {id(phi): phi for phi in seen.phis})
        twin = self._twin(_lock=OwnedLock(), _seen=seen._replace(posterior=posterior))
        twin._recover()
        return twin

    @locked(inside=on_copy)
    def _mean_and_variance(self, x: Any) -> tuple[float, float]:
        """Return the mean and the variance from one state."""
        self._recover()
        seen = self._seen
        row = seen.phis[0].row(x)
        mean = seen.offset + float(seen.posterior.mean(row)[0])
        return mean, float(seen.posterior.variance(row)[0]) + seen.posterior.noise


def choose_by_first(
    seen: ProcessState, first: FirstExamples, given: Kernel, choice: Sequence[float], *, is_noise_given: bool
) -> tuple[tuple[FeatureMap, ...], float, float]:
    """Return the features, the origin of the targets and the noise ratio chosen from the first examples.

    A bandwidth of the kernel `given` that is pending is one of the multiples in `choice` of the median distance of the
    examples. With `is_noise_given` the noise is known, and with it the origin.
    """
    rows, y = Rows.stack([row for row, _ in first]), np.array([y for _, y in first])
    phi, offset, ratio, kernels = seen.phis[0], seen.offset, seen.ratio, [seen.phis[0].kernel]
    if given.is_pending:
        kernels = [bandwidth.with_medians(given, phi.directions.plan, rows, multiple) for multiple in choice]
    if not is_noise_given:
        offset = float(np.average(y, weights=rows.weights))
        found = [(*_likelihood(phi.with_kernel(kernel), rows, y - offset), kernel) for kernel in kernels]
        _, ratio, kernels[0] = max(found, key=lambda candidate: candidate[0])
    return tuple(phi.with_kernel(kernels[0]) for phi in seen.phis), offset, ratio


def _likelihood(phi: FeatureMap, rows: Rows, y: F64) -> tuple[float, float]:
    """Return how likely the targets are with some features at best, and the ratio of noise it is with.

    Targets of noise σ²/w are √w times as large with noise σ², and so is f.
    """
    root = np.sqrt(rows.weights)
    features = phi(rows) * root[:, None]
    return posteriors.most_likely(features @ features.T + np.outer(root, root), y * root)
