"""The paper's posterior of f: by doubly stochastic gradients, with a variance for every x or for given points.

The process is y = f(x) + e with e ~ N(0, σ²) and f of mean 0 and covariance k; ν = σ²/n for n examples. The mean and
both estimates of its variance are learned from matrices of features φ(x), whose columns are blocks of the same width. A
step takes a batch of B examples, and moves one block: the first that is new, or an old one.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from streamkernel import step_sizes, tensor_file
from streamkernel.errors import DivergedError, InputError
from streamkernel.features import example_tensors
from streamkernel.features.counter_rng import counter_bits, domain_key
from streamkernel.features.rows import F64, Rows
from streamkernel.learners import span
from streamkernel.learners.span import ENTRIES, LARGEST_GRADIENT, bound_all, observe_all
from streamkernel.posterior.posteriors import FeatureMap, join, pieces, read_count


class RidgeFunctions:
    """Functions f(x) = Σ_b φ_b(x)ᵀ α_b that minimise (1/2n) Σ_i ‖f(x_i) - y_i‖² + (ν/2)‖f‖², a column a function.

    With the targets themselves f is the posterior mean. With the targets k(x*_i, x) for given points x*_i, the
    posterior variance at x*_i is k(x*_i, x*_i) - f_i(x*_i). For m points it takes O(t m) memory after t blocks. A block
    is `width` columns of φ.

    References
    ----------
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014, section 4.

    Examples
    --------
    >>> f = RidgeFunctions(width=1, columns=1)
    >>> f = f.after_step(np.array([[1.0]]), np.array([[2.0]]), block=0, gamma=0.5, nu=0.0)
    >>> f(np.array([[1.0]]))
    array([[1.]])
    """

    def __init__(self, width: int, columns: int) -> None:
        self.width = width
        self.alpha: F64 = np.zeros((0, columns))

    @property
    def n_blocks(self) -> int:
        """Blocks in the functions."""
        return len(self.alpha) // self.width

    def __call__(self, phi: F64) -> F64:
        """Return f for each row of features, shape (rows, columns)."""
        return phi[:, : len(self.alpha)] @ self.alpha

    @np.errstate(over="ignore", invalid="ignore")  # `check_size` refuses the result
    def after_step(self, phi: F64, y: F64, block: int, gamma: float, nu: float) -> RidgeFunctions:
        """Return the functions after a step on a batch with targets y, shape (B, columns).

            α_j ← (1 - γν) α_j   for all j
            α_t ← α_t - γ (1/B) Σ_b φ_t(x_b) (f(x_b) - y_b)ᵀ

        Raise an InputError if the steps have diverged.
        """
        error = check_size(self(phi) - y)
        after = RidgeFunctions(self.width, self.alpha.shape[1])
        more = self.width if block == self.n_blocks else 0
        after.alpha = np.concatenate([self.alpha, np.zeros((more, self.alpha.shape[1]))])
        part = slice(block * self.width, (block + 1) * self.width)
        after.alpha *= 1.0 - gamma * nu
        after.alpha[part] -= gamma / len(phi) * (phi[:, part].T @ error)
        check_size(after.alpha)
        return after

    def tensors(self) -> dict[str, Any]:
        """Return the learned state as arrays that share nothing with this object."""
        return {"alpha": self.alpha.copy()}

    def restore(self, tensors: Mapping[str, Any], blocks: int) -> None:
        """Restore the result of `tensors` with this many blocks; raises a ValueError if it does not fit."""
        shape = blocks * self.width, self.alpha.shape[1]
        self.alpha = tensor_file.require_tensor(tensors, "alpha", np.float64, shape).copy()


class OperatorVariance:
    """The operator A = Σ_ij θ_ij φ_i(·) ⊗ φ'_j(·), for which the posterior variance at any x is k(x, x) - A(x, x).

    φ and φ' are two independent sets of features. A minimises (1/2n) Σ_i ‖k(x_i, ·) - A k(x_i, ·)‖² + (ν/2)‖A‖²; the
    solution is C (C + νI)⁻¹ with C = (1/n) Σ k(x_i, ·) ⊗ k(x_i, ·). Column t of θ is kept down to block t, until it is
    moved as an old block: O(t²) memory after t blocks. A block is `width` columns of φ, and of φ'.

    References
    ----------
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014, appendix D.

    Examples
    --------
    >>> A, one = OperatorVariance(width=1), np.array([[1.0]])
    >>> for block in (0, 0, 0):
    ...     A = A.after_step(one, one, block, gamma=0.5, nu=0.0)
    >>> 1.0 - A(one, one)
    array([0.125])
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.theta: list[F64] = []
        """Block columns, each of shape (rows, width); rows below are 0."""

    @property
    def n_blocks(self) -> int:
        """Blocks in the operator."""
        return len(self.theta)

    def __call__(self, phi: F64, phi2: F64) -> F64:
        """Return A(x, x) for each row of features φ(x) and φ'(x)."""
        return np.asarray((phi[:, : self.n_blocks * self.width] * self._apply(phi2)).sum(axis=1))

    @np.errstate(over="ignore", invalid="ignore")  # `check_size` refuses the result
    def after_step(self, phi: F64, phi2: F64, block: int, gamma: float, nu: float) -> OperatorVariance:
        """Return the operator after a step on a batch, with a new block t and a_i(x) = Σ_j θ_ij φ'_j(x).

            θ_ij ← (1 - γν) θ_ij                          for all i ≤ j < t
            θ_it ← -γ (1/B) Σ_b a_i(x_b) φ'_t(x_b)ᵀ       for all i < t
            θ_tt ←  γ (1/B) Σ_b φ_t(x_b) φ'_t(x_b)ᵀ

        An old block t of N is moved in the same way, with k(x, ·) estimated by all blocks of φ:

            θ_it ← (1 - γν) θ_it - γ (1/B) Σ_b (a_i(x_b) - φ_i(x_b)/N) φ'_t(x_b)ᵀ    for all i ≤ N

        Raise an InputError if the steps have diverged.
        """
        a = check_size(self._apply(phi2))
        part = slice(block * self.width, (block + 1) * self.width)
        if block == self.n_blocks:
            change = np.concatenate([-a, phi[:, part]], axis=1)
            column = np.zeros((0, self.width))
        else:
            change = phi[:, : a.shape[1]] / self.n_blocks - a
            column = self.theta[block]
        after = OperatorVariance(self.width)
        after.theta = [(1.0 - gamma * nu) * other for other in self.theta]
        moved = gamma / len(phi) * (change.T @ phi2[:, part])
        moved[: len(column)] += (1.0 - gamma * nu) * column
        after.theta[block : block + 1] = [moved]
        for other in after.theta:
            check_size(other)
        return after

    def _apply(self, phi2: F64) -> F64:
        """Return a(x) = Σ_j θ_ij φ'_j(x) for each row of φ'(x)."""
        a = np.zeros((len(phi2), self.n_blocks * self.width))
        for j, column in enumerate(self.theta):
            a[:, : len(column)] += phi2[:, j * self.width : (j + 1) * self.width] @ column.T
        return a

    def tensors(self) -> dict[str, Any]:
        """Return the learned state as arrays that share nothing with this object."""
        stacked = np.concatenate([np.zeros((0, self.width)), *self.theta])
        return {"theta": stacked, "theta.rows": np.array([len(column) for column in self.theta], np.int64)}

    def restore(self, tensors: Mapping[str, Any], blocks: int) -> None:
        """Restore the result of `tensors` with this many blocks; raises a ValueError if it does not fit."""
        rows = tensor_file.require_tensor(tensors, "theta.rows", np.int64, (blocks,))
        least = self.width * np.arange(1, blocks + 1)
        if (rows % self.width != 0).any() or (rows < least).any() or (rows > blocks * self.width).any():
            raise ValueError(f"expected the lengths of {blocks} columns as theta.rows, got {rows.tolist()[:9]}")
        theta = tensor_file.require_tensor(tensors, "theta", np.float64, (int(rows.sum()), self.width))
        self.theta = [column.copy() for column in np.split(theta, np.cumsum(rows)[:-1])] if blocks else []


def check_size(values: F64) -> F64:
    """Return `values`, if they are of usable size. Raise an InputError if they are not: the steps have diverged."""
    if not (np.abs(values) <= LARGEST_GRADIENT).all():
        raise DivergedError("The steps have diverged: refused the example; use a smaller step")
    return values


class Stochastic:
    """The paper's posterior: a mean, and a variance by the operator or for points given in advance.

    Each step takes the next B examples and a block of features: a new one, or at the cap a random old one. ν is σ²/n
    for the n examples seen so far. `phis` are the features, which are divided into `blocks`; for the operator two
    independent sets of them. `noise` is σ², `batch` B and `step` γ_t. `points` are the rows whose variance is learned;
    ``None`` for the operator. The seed is of the choice of old blocks.
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

        Raise an InputError if the steps have diverged. The batches before are learned.
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

        Raise an InputError if a row is none of the points that were given in advance.
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

    `f` is the mean, and `A` the part of the variance that the examples explain; `span` are entries of
    :mod:`streamkernel.learners.span`.
    """

    f: RidgeFunctions
    A: OperatorVariance | RidgeFunctions
    steps: int
    pending: tuple[tuple[Rows, float], ...]
    span: F64


def point_rows(phi: FeatureMap, points: Sequence[Mapping[str, float]]) -> Rows:
    """Return points that are given in advance as rows; their names must be strings, as a file keeps them.

    Raise a ValueError if there is none, a name is not a string, or a value is no finite number.
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
