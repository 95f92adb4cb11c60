"""The interface of posteriors of f given the examples, and their common functions."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from streamkernel import tensor_file
from streamkernel.features.compiled_kernel import BY_FEATURES
from streamkernel.features.directions import Directions
from streamkernel.features.frames import table_rows
from streamkernel.features.rows import F64, Rows
from streamkernel.kernels import Kernel
from streamkernel.kernels.program import KernelProgram
from streamkernel.learners import scoring

_CHUNK = 64
"""Rows whose features are in memory at once."""
USUAL = 0.1
"""The ratio that is taken for the most likely one before any example."""
_RATIOS = np.logspace(-5.0, 2.0, 141)


class Posterior(Protocol):
    """The posterior of f, with y = f(x) + e, e ~ N(0, σ²)."""

    @property
    def noise(self) -> float:
        """σ²."""

    @property
    def examples(self) -> int:
        """Number of examples learned or buffered for a batch."""

    @property
    def of_targets(self) -> tuple[int, int]:
        """Numbers of predictions that were bounded, and of targets that did not extend the range in full."""

    def learn(self, rows: Rows, y: F64) -> None:
        """Learn from `rows` in order."""

    def mean(self, rows: Rows) -> F64:
        """Return the mean of f(x) for each row, in the range of the targets and of the prior mean."""

    def variance(self, rows: Rows) -> F64:
        """Return the variance of f(x) for each row."""

    def tensors(self) -> dict[str, Any]:
        """Return the learned state."""

    def restore(self, tensors: Mapping[str, Any]) -> None:
        """Restore the result of `tensors`; raises a ValueError if it does not fit."""


def pieces(rows: Rows) -> Iterator[tuple[slice, Rows]]:
    """Yield parts of rows, few enough for their features to be in memory at once."""
    n = len(rows.start) - 1
    for first in range(0, n, _CHUNK):
        last = min(first + _CHUNK, n)
        yield slice(first, last), rows.part(first, last)


def join(parts: Iterator[F64]) -> F64:
    """Return the results for parts of rows as one array."""
    return np.concatenate([np.zeros(0), *parts])


def read_count(tensors: Mapping[str, Any]) -> int:
    """Return the counter that was saved; raises a ValueError if there is none."""
    (count,) = tensor_file.require_tensor(tensors, "count", np.int64, (1,))
    if not 0 <= count < 1 << 53:  # it may be a float in memory
        raise ValueError(f"expected a count, got {count}")
    return int(count)


class FeatureMap:
    """Rows to features φ(x), shape (rows, outputs), whose dot products estimate k(x, x').

    Bandwidths of the kernel that are pending count as 1.

    Examples
    --------
    >>> from streamkernel.kernels import Gaussian
    >>> phi = FeatureMap(Gaussian(1.0), n_features=5000, seed=1, cache_bytes=0)
    >>> rows = phi.directions.rows(["a"], np.array([[0.0], [1.0]]))
    >>> (phi(rows) @ phi(rows).T).round(1)
    array([[1. , 0.6],
           [0.6, 1. ]])
    >>> phi.exact(rows, rows).round(1)
    array([[1. , 0.6],
           [0.6, 1. ]])
    """

    def __init__(self, kernel: Kernel, n_features: int, seed: int, cache_bytes: int) -> None:
        self.n_features, self._seed = n_features, seed
        self.directions = Directions(KernelProgram(kernel, seed, turns=BY_FEATURES), n_features, cache_bytes)
        self.directions.reserve(1)

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        return self.directions.plan.kernel

    def with_kernel(self, kernel: Kernel) -> FeatureMap:
        """Return a map of the same directions for other bandwidths; raises a ValueError if it is another kernel."""
        plan = KernelProgram(kernel, self._seed, turns=BY_FEATURES)
        if not plan.has_directions_of(self.directions.plan):
            raise ValueError(f"expected {self.kernel!r} with other bandwidths, got {kernel!r}")
        twin: FeatureMap = object.__new__(FeatureMap)
        vars(twin).update(vars(self), directions=self.directions.with_plan(plan))
        return twin

    @property
    def n_outputs(self) -> int:
        """Columns of the matrix; the outputs of one feature are adjacent."""
        return self.n_features * self.directions.plan.outputs

    def __call__(self, rows: Rows) -> F64:
        """Return the features of `rows`, shape (rows, outputs). Raise an InputError if a row has no usable features."""
        out = np.empty((len(rows.start) - 1, self.n_outputs))
        scale = 1.0 / math.sqrt(self.n_features)
        bad = scoring.transform(self.directions.kernel, rows, self.n_features, scale, out)
        if bad >= 0:
            raise self.directions.plan.unusable(rows.part(bad, bad + 1))
        return out

    def row(self, x: Mapping[Hashable, Any]) -> Rows:
        """Return an example as a row.

        Raise an InputError if `x` is empty, or a value is neither a finite number nor a string, or is outside of the
        kernel's domain.
        """
        row = self.directions.row(x)
        self.directions.plan.check(x)
        return row

    def table(self, X: Any) -> Rows:
        """Return the rows of a data frame. Raise an InputError if a value is unusable; names the column and the row."""
        return table_rows(self.directions, X)[0]

    def exact(self, rows: Rows, others: Rows) -> F64:
        """Return k(x, x') for each of `rows` and each of `others`."""
        table, other_table = self._examples(rows), self._examples(others)
        return np.array([[self._value(x, x2) for x2 in other_table] for x in table])

    def diagonal(self, rows: Rows) -> F64:
        """Return k(x, x) for each of `rows`."""
        return np.array([self._value(x, x) for x in self._examples(rows)])

    def _value(self, x: list[dict[Hashable, float]], x2: list[dict[Hashable, float]]) -> float:
        """Return Σ_t w_t ∏ k_part of two examples, from the values that each part reads."""
        plan = self.directions.plan
        values = [part.exact(a, b) for (part, _), a, b in zip(plan.parts, x, x2, strict=True)]
        return math.fsum(weight * math.prod(values[i] for i in parts) for weight, parts in plan.terms)

    def _examples(self, rows: Rows) -> list[list[dict[Hashable, float]]]:
        """Return for each row the values that each part reads, by the hashes of names."""
        parts = range(len(self.directions.plan.parts))
        examples = []
        for i in range(len(rows.start) - 1):
            _, _, hashes, readers, values, _ = rows.part(i, i + 1)
            entries = list(zip(hashes.tolist(), readers.tolist(), values.tolist(), strict=True))
            examples.append([{name: value for name, read, value in entries if read >> part & 1} for part in parts])
        return examples


def most_likely(gram: F64, y: F64) -> tuple[float, float]:
    """Return the largest log likelihood of y ~ N(0, s²(G + λI)), up to a constant, and its noise λ in units of s².

    With the eigenvalues g of G = U diag(g) Uᵀ and ỹ = Uᵀy, the best s² is s²(λ) = (1/n) Σ ỹ²/(g + λ), and the log
    likelihood is -½(n log s²(λ) + Σ log(g + λ)). A prior of one decade around ``USUAL`` keeps two examples from
    deciding everything; with a hundred examples its influence is gone. `gram` is G, the kernel between the examples,
    shape (examples, examples); their targets y have mean 0.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> f = generator.normal(size=100)[:, None] + np.zeros(5)
    >>> y = f.ravel() + 0.1 * generator.normal(size=500)
    >>> _, ratio = most_likely(np.kron(np.eye(100), np.ones((5, 5))), y)
    >>> 0.008 < ratio < 0.012
    True
    """
    largest = np.abs(y).max()
    if largest == 0.0:
        return 0.0, USUAL
    g, U = np.linalg.eigh(gram)
    g, rotated = np.maximum(g, 0.0), U.T @ (y / largest)
    variances = g + _RATIOS[:, None]
    scale = (rotated**2 / variances).mean(axis=1)
    prior = np.log10(_RATIOS / USUAL) ** 2
    log_likelihood = -0.5 * (len(y) * np.log(scale) + np.log(variances).sum(axis=1) + prior)
    best = int(np.argmax(log_likelihood))
    return float(log_likelihood[best]), float(_RATIOS[best])
