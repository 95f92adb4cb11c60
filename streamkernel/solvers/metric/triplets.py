"""Large-margin triplets of several tasks, and their linear map."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamkernel.losses import Loss
from streamkernel.solvers.matrix.matrix_blocks import F64, Ints, MatrixProblem


def neighbours(X: F64, y: Ints, k: int) -> tuple[Ints, Ints, Ints]:
    """Return u, v, w of the triplets of one task: v one of the k nearest of u's class, w the nearest of another.

    Where a class has fewer than k others, all of them are taken; a class of one example gives none, nor does a task
    of one class.

    Examples
    --------
    >>> u, v, w = neighbours(np.array([[0.0], [1.0], [3.0], [4.0]]), np.array([0, 0, 1, 1]), k=1)
    >>> list(zip(u.tolist(), v.tolist(), w.tolist()))
    [(0, 1, 2), (1, 0, 2), (2, 3, 1), (3, 2, 1)]
    """
    squares, none = np.square(X).sum(axis=1), np.empty(0, np.intp)
    found = [(none, none, none)]
    for label in np.unique(y):
        of, others = np.flatnonzero(y == label), np.flatnonzero(y != label)
        count = min(k, len(of) - 1)
        if count == 0 or len(others) == 0:
            continue
        distances = squares[of] - 2.0 * X[of] @ X[of].T
        np.fill_diagonal(distances, np.inf)
        near = of[np.argsort(distances, axis=1, kind="stable")[:, :count]]
        far = others[np.argmin(squares[others] - 2.0 * X[of] @ X[others].T, axis=1)]
        found.append((np.repeat(of, count), near.ravel(), np.repeat(far, count)))
    u, v, w = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.argsort(u, kind="stable")
    return u[order], v[order], w[order]


@dataclass
class Triplets:
    """Data of rank 2: Z_i = f fᵀ - g gᵀ for the block 0 of all tasks, and the same for the block of its own task.

    Parameters
    ----------
    far, near
        f = z_u - z_w and g = z_u - z_v, shape (n, d), the tasks one after the other.
    ends
        Where each task ends.
    """

    far: F64
    near: F64
    ends: Ints

    def __post_init__(self) -> None:
        """Count the triplets of each task."""
        (self.n, self.d), self.p = self.far.shape, len(self.ends) + 1

    def forward(self, X: F64, blocks: Ints, rows: Ints) -> F64:
        """Return ⟨Z_i, X_0 + X_j⟩ for each of `rows` of task j, without the matrices that are not in `blocks`."""
        own = {int(j): X[k] for k, j in enumerate(blocks)}
        out = np.zeros(len(rows))
        for task, part in enumerate(self._parts(rows), start=1):
            if part.stop > part.start and (task in own or 0 in own):
                M = own.get(task, 0.0) + own.get(0, 0.0)
                f, g = self._of(rows, part)
                out[part] = np.einsum("ij,ij->i", f @ M, f) - np.einsum("ij,ij->i", g @ M, g)
        return out

    def backward(self, y: F64, rows: Ints, blocks: Ints) -> F64:
        """Return Σ_i y_i Z_i over `rows`, whose numbers are `y`, for each of `blocks`."""
        parts, every = list(self._parts(rows)), len(blocks) == self.p
        out = np.zeros((len(blocks), self.d, self.d))
        for k, j in enumerate(blocks):
            part = parts[j - 1] if j else slice(0, 0 if every else len(rows))
            if part.stop > part.start:
                f, g = self._of(rows, part)
                weights = y[part, None]
                out[k] = f.T @ (weights * f) - g.T @ (weights * g)
        if every:
            out[blocks == 0] = out.sum(axis=0)
        return out

    def pulls(self) -> F64:
        """Return C_j = Σ g gᵀ over the pairs of task j, and of all tasks for block 0, shape (p, d, d)."""
        own = [self.near[part].T @ self.near[part] for part in self._parts(np.arange(self.n))]
        return np.stack([sum(own), *own])

    def _parts(self, rows: Ints) -> list[slice]:
        """Return the range of each task in `rows`, which are in ascending order."""
        stops = np.searchsorted(rows, self.ends)
        return [slice(a, b) for a, b in zip([0, *stops[:-1]], stops, strict=True)]

    def _of(self, rows: Ints, part: slice) -> tuple[F64, F64]:
        """Return f and g of a part of `rows`."""
        at = rows[part]
        if at[-1] - at[0] + 1 == len(at):
            return self.far[at[0] : at[-1] + 1], self.near[at[0] : at[-1] + 1]
        return self.far[at], self.near[at]


def large_margin(data: Triplets, loss: Loss, l2_common: float, l2_task: float) -> tuple[MatrixProblem, float]:
    """Return problem (33) in the form of `matrix_blocks`, and the constant that its objective lacks.

    λ/2 ‖X - T‖² + ⟨C, X⟩/n is λ/2 ‖X - M‖² + λ/2 (‖T‖² - ‖M‖²) with M = T - C/nλ; T is I for X_0, and 0 for the others.
    """
    l2 = np.array([l2_common] + [l2_task] * (data.p - 1))
    targets = np.zeros((data.p, data.d, data.d))
    targets[0] = np.eye(data.d)
    centers = targets - data.pulls() / (data.n * l2[:, None, None])
    squares = (np.square(targets) - np.square(centers)).sum(axis=(1, 2))
    return MatrixProblem(data, loss, np.ones(data.n), l2, centers), float(0.5 * l2 @ squares)
