"""The posterior of a Gaussian process by doubly stochastic gradients: its mean, and two estimates of its variance.

The process is y = f(x) + e with e ~ N(0, σ²) and f of mean 0 and covariance k; ν = σ²/n for n examples. Both classes
are given matrices of features φ(x), whose columns are blocks of the same width. A step takes a batch of B examples, and
moves one block: the first that is new, or an old one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkernel import tensor_file
from streamkernel.errors import DivergedError
from streamkernel.features.rows import F64
from streamkernel.learners.clipping import LARGEST_GRADIENT


class RidgeFunctions:
    """Functions f(x) = Σ_b φ_b(x)ᵀ α_b that minimise (1/2n) Σ_i ‖f(x_i) - y_i‖² + (ν/2)‖f‖², a column a function.

    With the targets themselves f is the posterior mean. With the targets k(x*_i, x) for given points x*_i, the
    posterior variance at x*_i is k(x*_i, x*_i) - f_i(x*_i). For m points it takes O(t m) memory after t blocks.

    Parameters
    ----------
    width
        Columns of φ that are one block.
    columns
        Functions.

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

        Raises
        ------
        InputError
            If the steps have diverged.
        """
        error = check_size(self(phi) - y)
        found = RidgeFunctions(self.width, self.alpha.shape[1])
        more = self.width if block == self.n_blocks else 0
        found.alpha = np.concatenate([self.alpha, np.zeros((more, self.alpha.shape[1]))])
        part = slice(block * self.width, (block + 1) * self.width)
        found.alpha *= 1.0 - gamma * nu
        found.alpha[part] -= gamma / len(phi) * (phi[:, part].T @ error)
        check_size(found.alpha)
        return found

    def tensors(self) -> dict[str, Any]:
        """Return the learned state as arrays that share nothing with this object."""
        return {"alpha": self.alpha.copy()}

    def restore(self, tensors: Mapping[str, Any], blocks: int) -> None:
        """Take over what :meth:`tensors` of functions with this many blocks returned.

        Raises
        ------
        ValueError
            If a tensor is missing or does not fit.
        """
        shape = blocks * self.width, self.alpha.shape[1]
        self.alpha = tensor_file.require_tensor(tensors, "alpha", np.float64, shape).copy()


class OperatorVariance:
    """The operator A = Σ_ij θ_ij φ_i(·) ⊗ φ'_j(·), for which the posterior variance at any x is k(x, x) - A(x, x).

    φ and φ' are two independent sets of features. A minimises (1/2n) Σ_i ‖k(x_i, ·) - A k(x_i, ·)‖² + (ν/2)‖A‖²; the
    solution is C (C + νI)⁻¹ with C = (1/n) Σ k(x_i, ·) ⊗ k(x_i, ·). Column t of θ is kept down to block t, until it is
    moved as an old block: O(t²) memory after t blocks.

    Parameters
    ----------
    width
        Columns of φ, and of φ', that are one block.

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

        Raises
        ------
        InputError
            If the steps have diverged.
        """
        a = check_size(self._apply(phi2))
        part = slice(block * self.width, (block + 1) * self.width)
        if block == self.n_blocks:
            change = np.concatenate([-a, phi[:, part]], axis=1)
            column = np.zeros((0, self.width))
        else:
            change = phi[:, : a.shape[1]] / self.n_blocks - a
            column = self.theta[block]
        found = OperatorVariance(self.width)
        found.theta = [(1.0 - gamma * nu) * other for other in self.theta]
        moved = gamma / len(phi) * (change.T @ phi2[:, part])
        moved[: len(column)] += (1.0 - gamma * nu) * column
        found.theta[block : block + 1] = [moved]
        for other in found.theta:
            check_size(other)
        return found

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
        """Take over what :meth:`tensors` of an operator with this many blocks returned.

        Raises
        ------
        ValueError
            If a tensor is missing or does not fit.
        """
        rows = tensor_file.require_tensor(tensors, "theta.rows", np.int64, (blocks,))
        least = self.width * np.arange(1, blocks + 1)
        if (rows % self.width != 0).any() or (rows < least).any() or (rows > blocks * self.width).any():
            raise ValueError(f"expected the lengths of {blocks} columns as theta.rows, got {rows.tolist()[:9]}")
        theta = tensor_file.require_tensor(tensors, "theta", np.float64, (int(rows.sum()), self.width))
        self.theta = [column.copy() for column in np.split(theta, np.cumsum(rows)[:-1])] if blocks else []


def check_size(values: F64) -> F64:
    """Return `values`, if they are of usable size.

    Raises
    ------
    InputError
        If they are not: the steps have diverged.
    """
    if not (np.abs(values) <= LARGEST_GRADIENT).all():
        raise DivergedError("The steps have diverged: refused the example; use a smaller step")
    return values
