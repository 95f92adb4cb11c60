"""The paper's posterior of f: by doubly stochastic gradients, with a variance for every x or for given points."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from streamkernel import step_sizes
from streamkernel.errors import InputError
from streamkernel.features import example_tensors
from streamkernel.features.counter_rng import counter_bits, domain_key
from streamkernel.features.rows import F64, Rows
from streamkernel.learners import span
from streamkernel.learners.span import ENTRIES, bound_all, observe_all
from streamkernel.posterior.feature_matrix import FeatureMap
from streamkernel.posterior.posteriors import join, pieces, read_count
from streamkernel.posterior.stochastic import OperatorVariance, RidgeFunctions


class Stochastic:
    """The paper's posterior: a mean, and a variance by the operator or for points given in advance.

    Each step takes the next B examples and a block of features: a new one, or at the cap a random old one. ν is σ²/n
    for the n examples seen so far.

    Parameters
    ----------
    phis
        The features; for the operator two independent sets of them.
    blocks
        Blocks they are divided into.
    batch
        B.
    noise
        σ².
    step
        γ_t.
    points
        The rows whose variance is learned; ``None`` for the operator.
    seed
        Seed of the choice of old blocks.
    """

    def __init__(
        self,
        phis: Sequence[FeatureMap],
        blocks: int,
        batch: int,
        noise: float,
        step: step_sizes.Step,
        points: Rows | None,
        seed: int,
    ) -> None:
        self._phis, self._blocks, self._batch, self._step = phis, blocks, batch, step
        self.noise = noise
        self._points, self._places = points, {} if points is None else {key: i for i, key in enumerate(_keys(points))}
        self._key = domain_key(seed, "rule")
        width = phis[0].n_outputs // blocks
        A = OperatorVariance(width) if points is None else RidgeFunctions(width, columns=len(points.start) - 1)
        self._learned = _Learned(RidgeFunctions(width, columns=1), A, 0, (), np.zeros(ENTRIES))

    @property
    def examples(self) -> int:
        """Examples that have been learned or wait for a batch."""
        learned = self._learned
        return learned.steps * self._batch + len(learned.pending)

    @property
    def of_targets(self) -> tuple[int, int]:
        """Numbers of predictions that were bounded, and of targets that did not extend the range in full."""
        return span.counts(self._learned.span)

    def learn(self, rows: Rows, y: F64) -> None:
        """Learn from `rows` in order; what does not fill a batch waits for the next call.

        Raises
        ------
        InputError
            If the steps have diverged. The batches before are learned.
        """
        for i, target in enumerate(y.tolist()):
            row = rows.part(i, i + 1)
            if self._phis[0].directions.plan.itself == 0.0:  # its features must be of usable size in all maps
                for phi in self._phis:
                    phi(phi.directions.adopt_rows(row))
            pending = (*self._learned.pending, (row, target))
            if len(pending) < self._batch:
                self._learned = self._learned._replace(pending=pending)
            else:
                batch = Rows.stack([row for row, _ in pending])
                self._learned = self._after_step(batch, np.array([[target] for _, target in pending]))

    def _after_step(self, rows: Rows, y: F64) -> _Learned:
        """Return the state after a step on a batch."""
        f, A, steps_taken, _, entries = self._learned
        n = (steps_taken + 1) * self._batch
        gamma, nu = float(self._step(steps_taken + 1)), self.noise / n
        block = min(steps_taken, self._blocks)
        if block == self._blocks:
            block = int(counter_bits(self._key, steps_taken) % np.uint64(self._blocks))
        root = np.sqrt(rows.weights)[:, None]  # the gradient of the error, and the error, in units of its noise
        phi = self._features(rows)
        entries = entries.copy()
        observe_all(entries, y[:, 0].copy(), 0.0, f(phi)[:, 0].copy(), float(n - self._batch))
        phi *= root
        if isinstance(A, OperatorVariance):
            A = A.after_step(phi, self._features2(rows) * root, block, gamma, nu)
        elif self._points is not None:
            A = A.after_step(phi, self._phis[0].exact(rows, self._points) * root, block, gamma, nu)
        return _Learned(f.after_step(phi, y * root, block, gamma, nu), A, steps_taken + 1, (), entries)

    def mean(self, rows: Rows) -> F64:
        """Return the mean of f(x) for each row, in the range of the targets and of the prior mean."""
        learned = self._learned
        means = join(learned.f(self._features(piece))[:, 0] for _, piece in pieces(rows))
        bound_all(learned.span, means)
        return means

    def variance(self, rows: Rows) -> F64:
        """Return the variance of f(x) for each row; while A is learned it may be too small, never below 0.

        Raises
        ------
        InputError
            If a row is none of the points that were given in advance.
        """
        A = self._learned.A
        return join(self._variance(A, piece) for _, piece in pieces(rows))

    def _variance(self, A: OperatorVariance | RidgeFunctions, rows: Rows) -> F64:
        phi = self._features(rows)
        if isinstance(A, OperatorVariance):
            explained = A(phi, self._features2(rows))
        else:
            places = [self._places.get(key) for key in _keys(rows)]
            if None in places:
                raise InputError("Expected one of the given points, got another x")
            explained = A(phi)[np.arange(len(phi)), np.array(places, np.int64)]
        return np.maximum(0.0, self._phis[0].diagonal(rows) - explained)

    def _features(self, rows: Rows) -> F64:
        """Return φ(x), each block of which estimates k by itself."""
        return math.sqrt(self._blocks) * self._phis[0](rows)

    def _features2(self, rows: Rows) -> F64:
        """Return φ'(x)."""
        return math.sqrt(self._blocks) * self._phis[1](self._phis[1].directions.adopt_rows(rows))

    def tensors(self) -> dict[str, Any]:
        """Return the learned state."""
        f, A, steps_taken, pending, entries = self._learned
        learned = {f"mean.{name}": tensor for name, tensor in f.tensors().items()} | A.tensors()
        counters = {"count": np.array([steps_taken], np.int64), "span": entries.copy()}
        return learned | counters | example_tensors.pack_examples("pending", pending)

    def restore(self, tensors: Mapping[str, Any]) -> None:
        """Restore the result of `tensors`; raises a ValueError if it does not fit."""
        steps_taken = read_count(tensors)
        blocks = min(steps_taken, self._blocks)
        f, A, *_ = self._learned
        entries = span.restored(tensors)
        f.restore({"alpha": tensors.get("mean.alpha")}, blocks)
        A.restore(tensors, blocks)
        pending = example_tensors.unpack_examples("pending", tensors, self._phis[0].directions) or []
        if len(pending) >= self._batch:
            raise ValueError(f"expected less than a batch of {self._batch} examples, got {len(pending)}")
        self._learned = _Learned(f, A, steps_taken, tuple(pending), entries)


class _Learned(NamedTuple):
    """The learned state of a stochastic posterior, which is replaced in one assignment.

    Attributes
    ----------
    f, A
        The mean, and the part of the variance that the examples explain.
    steps
        Steps taken.
    pending
        Buffered examples.
    span
        The range of the targets, entries of :mod:`streamkernel.learners.span`.
    """

    f: RidgeFunctions
    A: OperatorVariance | RidgeFunctions
    steps: int
    pending: tuple[tuple[Rows, float], ...]
    span: F64


def point_rows(phi: FeatureMap, points: Sequence[Mapping[str, float]]) -> Rows:
    """Return points that are given in advance as rows; their names must be strings, as a file keeps them.

    Raises
    ------
    ValueError
        If there is none, a name is not a string, or a value is no finite number.
    """
    for x in points:
        if not all(isinstance(name, str) for name in x):
            raise ValueError(f"Expected points with strings as names, got {list(x)!r}")
    if not len(points):
        raise ValueError("Expected at least one point, got none")
    return Rows.stack([phi.row(x) for x in points])  # type: ignore[arg-type]  # Mapping is invariant


def _keys(rows: Rows) -> Sequence[Hashable]:
    """Return a key for each row that is equal for equal examples; a missing name counts as 0."""
    keys = []
    for a, b in zip(rows.start[:-1], rows.start[1:], strict=True):
        used = rows.values[a:b] != 0.0
        keys.append((rows.hashes[a:b][used].tobytes(), rows.values[a:b][used].tobytes()))
    return keys
