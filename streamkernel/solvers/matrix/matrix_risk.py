"""Matrix risk minimisation: a loss of linear functions of several positive semi-definite matrices."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from streamkernel import losses
from streamkernel.jit import compiled
from streamkernel.solvers.matrix import matrix_blocks as psd
from streamkernel.solvers.matrix.matrix_blocks import F64, Ints, MatrixProblem
from streamkernel.solvers.matrix.matrix_search import MatrixSolution, solve
from streamkernel.solvers.saddle_point.conjugates import LOSSES

_SHARE = 20


class DenseBlocks:
    """Data of n · p symmetric matrices that are all different, kept as vectors of their lower triangles."""

    def __init__(self, D: F64) -> None:
        self.n, self.p, self.d = D.shape[:3]
        self._A = np.stack([psd.pack(np.ascontiguousarray(D[:, j])) for j in range(self.p)])

    def forward(self, X: F64, blocks: Ints, rows: Ints) -> F64:
        """Return Σ_j ⟨D_i^j, X_j⟩ over `blocks`, whose matrices are `X`, for each of `rows`."""
        return np.asarray(_forward(self._A, psd.pack(X), blocks, rows))

    def backward(self, y: F64, rows: Ints, blocks: Ints) -> F64:
        """Return Σ_i y_i D_i^j over `rows`, whose numbers are `y`, for each of `blocks`."""
        return np.asarray(psd.unpack(_backward(self._A, y, rows, blocks), self.d))


# Rows are in ascending order: as many as there are are all of them, one product of a matrix and a vector a block.


@compiled(nogil=True)
def _forward(A, v, blocks, rows):  # type: ignore[no-untyped-def]
    out = np.zeros(len(rows))
    for k in range(len(blocks)):
        if len(rows) == A.shape[1]:
            out += np.dot(A[blocks[k]], v[k])
            continue
        for r in range(len(rows)):
            out[r] += np.dot(A[blocks[k], rows[r]], v[k])
    return out


@compiled(nogil=True)
def _backward(A, y, rows, blocks):  # type: ignore[no-untyped-def]
    out = np.zeros((len(blocks), A.shape[2]))
    for k in range(len(blocks)):
        if len(rows) == A.shape[1]:
            out[k] = np.dot(y, A[blocks[k]])
            continue
        for r in range(len(rows)):
            row, weight = A[blocks[k], rows[r]], y[r]
            for a in range(len(row)):
                out[k, a] += weight * row[a]
    return out


def matrix_risk(
    D: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    loss: str | losses.Loss = "smooth_hinge",
    l2: float = 0.01,
    m: int | None = None,
    q: int | None = None,
    tol: float = 1e-6,
    max_steps: int = 100_000,
    seed: int = 0,
    verbose: bool = False,
) -> MatrixSolution:
    """Minimise (1/n) Σ_i φ_i(Σ_j ⟨D_i^j, X_j⟩) + (λ/2) Σ_j ‖X_j‖² over positive semi-definite matrices X_j.

    Doubly stochastic primal-dual coordinate steps: each changes m of the n dual numbers and q of the p matrices. Step
    sizes are chosen from the data, and it stops at a certified distance from the optimum.

    Parameters
    ----------
    D
        The data, shape (n, p, d, d); of each matrix the symmetric part counts.
    b
        The labels, shape (n,): -1 and 1, or any numbers for the square loss.
    loss
        φ: ``"smooth_hinge"``, ``"logistic"``, ``"square"``, or a loss of these.
    l2
        λ > 0.
    m
        Dual numbers per step, from 1 to n; all by default, because they cost little compared with matrices.
    q
        Matrices per step, from 1 to p; a twentieth by default. All of them is SPDC.
    tol
        The gap between the primal and the dual objective to stop at.
    max_steps
        The maximum number of steps.
    seed
        The seed of the random choices; the same seed gives the same matrices.
    verbose
        Whether to show a progress line. Ctrl-C ends the work and returns the best so far in any case.

    Returns
    -------
    MatrixSolution
        The matrices, the dual numbers, the objective, the gap, and how they were arrived at.

    Raises
    ------
    ValueError
        If an argument has another shape, is not finite or out of its range.

    References
    ----------
    Yu, Lin and Yang, "Doubly Stochastic Primal-Dual Coordinate Method for Bilinear Saddle-Point Problem", section 5.2.

    Examples
    --------
    >>> import numpy as np
    >>> D = np.random.default_rng(0).normal(size=(50, 4, 3, 3))
    >>> b = np.sign(np.trace(D, axis1=2, axis2=3).sum(axis=1))
    >>> found = matrix_risk(D, b, l2=0.1, tol=1e-9)
    >>> found.X.shape, found.converged, round(found.objective, 6)
    ((4, 3, 3), True, 0...)
    """
    data = np.asarray(D, np.float64)
    if data.ndim != 4 or data.shape[2] != data.shape[3] or 0 in data.shape:
        raise ValueError(f"Expected D of shape (n, p, d, d), got {data.shape}")
    if not np.isfinite(data).all():
        raise ValueError("Expected finite numbers in D, got NaN or infinity")
    n, p = data.shape[:2]
    phi = dual_loss(loss)
    labels = np.asarray(b, np.float64)
    if labels.shape != (n,):
        raise ValueError(f"Expected b of shape ({n},), one label for each of the examples of D, got {labels.shape}")
    if not np.isfinite(labels).all():
        raise ValueError("Expected finite numbers in b, got NaN or infinity")
    if phi.for_classes and not np.isin(labels, (-1.0, 1.0)).all():
        raise ValueError(f"Expected labels b of -1 and 1 for {phi!r}, got {np.unique(labels)[:5]}")
    positive("l2", l2)
    m, q = within("m", n if m is None else m, n), within("q", math.ceil(p / _SHARE) if q is None else q, p)
    problem = MatrixProblem(DenseBlocks(data), phi, labels, np.full(p, float(l2)), np.zeros((p, *data.shape[2:])))
    return solve(
        problem,
        m,
        q,
        tol=positive("tol", tol),
        max_steps=within("max_steps", max_steps, None),
        seed=seed,
        verbose=verbose,
        what="Matrix risk minimisation",
    )


def dual_loss(loss: str | losses.Loss) -> losses.Loss:
    """Return a loss, given by name or itself, that has a dual here."""
    found = LOSSES.get(loss) if isinstance(loss, str) else loss
    if found is None or found not in LOSSES.values():
        raise ValueError(f"Expected a loss of {', '.join(LOSSES)}, got {loss!r}")
    found.load()
    return found


def positive(name: str, value: float) -> float:
    """Return the value if it is finite and above 0."""
    if not (isinstance(value, (int, float, np.number)) and 0 < value < math.inf):
        raise ValueError(f"Expected {name} > 0 and finite, got {value!r}")
    return float(value)


def within(name: str, value: int, most: int | None) -> int:
    """Return the value if it is a whole number from 1 to `most`."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < 1 or (most is not None and value > most):
        raise ValueError(f"Expected {name} of 1 {f'to {most}' if most else 'or more'}, got {value!r}")
    return int(value)
