"""The random features of rows of examples as one matrix, and the exact kernel between rows."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from streamkernel.features import F64, Directions, Rows, check_values
from streamkernel.kernels import Gaussian
from streamkernel.random_features import RandomFeatures


class FeatureMap:
    """Rows to features φ(x), shape (rows, outputs), whose dot products estimate k(x, x').

    Parameters
    ----------
    kernel
        The kernel k; its parameters must be numbers.
    n_features
        Random features.
    seed
        Seed of the features.
    cache_bytes
        Memory for cached directions.

    Examples
    --------
    >>> phi = FeatureMap(Gaussian(1.0), n_features=5000, seed=1, cache_bytes=0)
    >>> rows = phi.directions.rows(["a"], np.array([[0.0], [1.0]]))
    >>> (phi(rows) @ phi(rows).T).round(1)
    array([[1. , 0.6],
           [0.6, 1. ]])
    >>> phi.exact(rows, rows).round(1)
    array([[1. , 0.6],
           [0.6, 1. ]])
    """

    def __init__(self, kernel: Gaussian, n_features: int, seed: int, cache_bytes: int) -> None:
        self._map = RandomFeatures(kernel, n_features, seed)
        self._map._directions = self.directions = Directions(seed, n_features, cache_bytes)
        self.directions.reserve(1)

    @property
    def kernel(self) -> Gaussian:
        """The kernel, which may be replaced by one with another bandwidth; the directions are the same."""
        return self._map._kernel

    @kernel.setter
    def kernel(self, kernel: Gaussian) -> None:
        self._map._kernel = kernel

    @property
    def n_outputs(self) -> int:
        """Columns of the matrix; the features of one direction stand side by side."""
        return len(self._map._names)

    def __call__(self, rows: Rows) -> F64:
        """Return the features of `rows`, shape (rows, outputs)."""
        return self._map._transform(rows)

    def row(self, x: Mapping[Hashable, Any]) -> Rows:
        """Return one example.

        Raises
        ------
        InputError
            If `x` is empty or a value is not a finite number.
        """
        row = self.directions.row(x)
        check_values(x, self.kernel.input_scale)
        return row

    def own(self, rows: Rows) -> Rows:
        """Return rows that another map made, as this one reads them."""
        return self.directions.restored(rows.start, rows.hashes, rows.values)

    def table(self, X: Any) -> Rows:
        """Return the rows of a data frame.

        Raises
        ------
        InputError
            If a value is not a finite number; names the column and the row.
        """
        return self._map._table(X)

    def exact(self, rows: Rows, others: Rows) -> F64:
        """Return k(x, x') for each of `rows` and each of `others`."""
        table, other_table = _examples(rows), _examples(others)
        return np.array([[self.kernel(x, x2) for x2 in other_table] for x in table])

    def diagonal(self, rows: Rows) -> F64:
        """Return k(x, x) for each of `rows`."""
        return np.array([self.kernel(x, x) for x in _examples(rows)])


def _examples(rows: Rows) -> list[dict[Hashable, float]]:
    """Return rows as examples whose names are hashes."""
    parts = (slice(a, b) for a, b in zip(rows.start[:-1], rows.start[1:], strict=True))
    return [dict(zip(rows.hashes[part].tolist(), rows.values[part].tolist(), strict=True)) for part in parts]
