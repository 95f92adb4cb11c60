"""The factors of A = UV as the solvers store them, and their preparation."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

F64 = npt.NDArray[np.float64]
Order = npt.NDArray[np.int64] | slice


class Factors(NamedTuple):
    """A = UV as the rows of U and the columns of V, each an array or a sparse matrix in CSR; None is the identity."""

    U: Any
    V: Any

    @property
    def shape(self) -> tuple[int, int, int]:
        """n, p and d."""
        if self.U is None:
            return self.V.shape[1], self.V.shape[0], self.V.shape[1]
        return self.U.shape[0], self.U.shape[1] if self.V is None else self.V.shape[0], self.U.shape[1]

    def scores(self, x: F64) -> F64:
        """Return Ax."""
        v = x if self.V is None else self.V.T @ x
        return np.asarray(v if self.U is None else self.U @ v)

    def slopes(self, y: F64) -> F64:
        """Return Aᵀy."""
        u = y if self.U is None else self.U.T @ y
        return np.asarray(u if self.V is None else self.V @ u)

    def centre(self) -> tuple[Factors, F64]:
        """Return A with centred columns, and the subtracted means; a sparse U does not change."""
        if sparse.issparse(self.U):
            return self, np.zeros(self.shape[1])
        mean = self.U.mean(axis=0)
        return self._replace(U=self.U - mean), np.asarray(mean if self.V is None else self.V @ mean)

    def form(self, *, by_rows: bool) -> Factors:
        """Return A times the identity: by rows, so that Aᵀy is maintained, or by columns, so that Ax is."""
        A = self.U if self.V is None else self.U @ self.V.T
        if by_rows:
            return Factors(A, None)
        return Factors(None, A.T.tocsr() if sparse.issparse(A) else np.ascontiguousarray(A.T))

    def with_constant(self, value: float) -> Factors:
        """Return A with one more column, of this value."""
        if self.U is None:
            return Factors(None, _stack([[self.V], [np.full((1, self.V.shape[1]), value)]]))
        U = _stack([[self.U, np.full((self.U.shape[0], 1), value)]])
        if self.V is None:
            return Factors(U, None)
        p, d = self.V.shape
        return Factors(U, _stack([[self.V, np.zeros((p, 1))], [np.zeros((1, d)), np.ones((1, 1))]]))

    def reorder(self, rows: Order, columns: Order) -> Factors:
        """Return A with its rows and its columns in these orders."""
        U, V = self.U, self.V
        U, V = (U, _take(V, rows, axis=1)) if U is None else (_take(U, rows, axis=0), V)
        U, V = (_take(U, columns, axis=1), V) if V is None else (U, _take(V, columns, axis=0))
        return Factors(U, V)


def _take(A: Any, order: Order, axis: int) -> Any:
    if isinstance(order, slice):
        return A
    return (
        np.ascontiguousarray(A.take(order, axis))
        if isinstance(A, np.ndarray)
        else A[order]
        if axis == 0
        else A[:, order]
    )


def _stack(blocks: list[list[Any]]) -> Any:
    """Return a matrix of blocks: sparse if its first one is."""
    if sparse.issparse(blocks[0][0]):
        return sparse.block_array([[sparse.csr_array(part) for part in row] for row in blocks], format="csr")
    return np.block(blocks)
