"""The random features of rows of examples as one matrix, and the exact kernel between rows."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from streamkernel.features.directions import Directions
from streamkernel.features.frames import table_rows
from streamkernel.features.rows import F64, Rows
from streamkernel.kernels import Kernel
from streamkernel.kernels.program import KernelProgram
from streamkernel.learners import scoring


class FeatureMap:
    """Rows to features φ(x), shape (rows, outputs), whose dot products estimate k(x, x').

    Parameters
    ----------
    kernel
        The kernel k. Bandwidths that are pending count as 1.
    n_features
        Random features.
    seed
        Seed of the features.
    cache_bytes
        Memory for cached directions.

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
        self.directions = Directions(KernelProgram(kernel, seed, in_blocks=False), n_features, cache_bytes)
        self.directions.reserve(1)

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        return self.directions.plan.kernel

    def with_kernel(self, kernel: Kernel) -> FeatureMap:
        """Return the same map, with the same directions, for a kernel with other bandwidths.

        Raises
        ------
        ValueError
            If it is another kernel.
        """
        plan = KernelProgram(kernel, self._seed, in_blocks=False)
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
        """Return the features of `rows`, shape (rows, outputs).

        Raises
        ------
        InputError
            If a row has no usable features.
        """
        out = np.empty((len(rows.start) - 1, self.n_outputs))
        plan, kernel = self.directions.plan, self.directions.kernel
        bad = scoring.transform(self.n_features, plan.outputs, kernel, rows, out)
        if bad >= 0:
            raise self.directions.plan.unusable(rows.part(bad, bad + 1))
        return out

    def row(self, x: Mapping[Hashable, Any]) -> Rows:
        """Return an example as a row.

        Raises
        ------
        InputError
            If `x` is empty, or a value is neither a finite number nor a string, or is outside of the kernel's domain.
        """
        row = self.directions.row(x)
        self.directions.plan.check(x)
        return row

    def table(self, X: Any) -> Rows:
        """Return the rows of a data frame.

        Raises
        ------
        InputError
            If a value is unusable; names the column and the row.
        """
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
        found = []
        for i in range(len(rows.start) - 1):
            _, _, hashes, readers, values, _ = rows.part(i, i + 1)
            entries = list(zip(hashes.tolist(), readers.tolist(), values.tolist(), strict=True))
            found.append([{name: value for name, read, value in entries if read >> part & 1} for part in parts])
        return found
