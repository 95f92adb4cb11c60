"""DSPDC as its paper prints it, in the paper's notation."""

from __future__ import annotations

import math
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from streamkernel.estimators.parameters import require_at_least
from streamkernel.features.rows import F64
from streamkernel.solvers.saddle_problem import LOSSES, as_factors, as_targets, dual_step

__all__ = ["DSPDC"]


class DSPDC:
    """Doubly stochastic primal-dual coordinates on a dense matrix (Yu, Lin and Yang, Algorithm 1).

    It solves min_x max_y (λ₂/2)‖x‖² + λ₁‖x‖₁ + (1/n) yᵀAx - (1/n) Σ_i φ_i*(y_i). A step draws m rows I and q columns J,
    uniformly and without replacement:

        y_i ← argmax_β (1/n) ⟨A_i, x̄⟩ β - φ_i*(β)/n - (β - y_i)²/2σ      for i in I       (10)
        ȳ   = y_before + (n/m) (y - y_before)                                              (11)
        x_j ← argmin_α (1/n) ⟨A^j, ȳ⟩ α + g_j(α) + (α - x_j)²/2τ          for j in J       (12)
        x̄   = x_before + (θ + 1) (x - x_before)                                            (13)

    With S = (np/mq) √(Λ/(nλ₂γ)) and K = max(n/m, p/q) + S, the parameters of Theorem 1 are

        θ = (p/q) (1 - 1/K)                                                                (14)
        τ = (p/qλ₂) / ((n/m - p/q) + √((n/m - p/q)² + 4S²))                                (15)
        σ = (n²/mγ) / ((p/q - n/m) + √((n/m - p/q)² + 4S²))                                (16)

    and Theorem 2 has 2K for K in θ. The squared distance from the solution falls in expectation by 1 - 1/K in a step.
    The product np/mq is outside of the root, which the print leaves open.

    Parameters
    ----------
    A : array of shape (n, p)
        The data.
    b : array of shape (n,)
        The targets: numbers for the square loss, else labels -1 and 1.
    loss : {"square", "logistic", "smooth_hinge"}, default "square"
        The loss φ.
    l2 : float
        The penalty λ₂ > 0.
    l1 : float, default 0.0
        The penalty λ₁.
    m : int, default 1
        The number of rows in a step.
    q : int, default 1
        The number of columns in a step.
    theorem : {1, 2}, default 1
        The theorem that θ is from: 1 bounds the distance from the solution, 2 the gap.
    scale : float or None, default None
        Λ. By default it is Λ_{q,m} of (8), the largest squared norm of a block of m rows and q columns, where m or q is
        1 or both are all, and else an upper bound of it.
    seed : int, default 0
        The seed of the draws.

    Attributes
    ----------
    x : array of shape (p,)
        The primal solution.
    y : array of shape (n,)
        The dual solution.
    theta, tau, sigma : float
        The parameters θ, τ and σ.
    rate : float
        The theorem's factor for a step, 1 - 1/K or 1 - 1/2K.

    Raises
    ------
    ValueError
        If a parameter is invalid.

    References
    ----------
    Yu, Lin and Yang, "Doubly Stochastic Primal-Dual Coordinate Method for Bilinear Saddle-Point Problem", 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkernel import research
    >>> A = np.random.default_rng(0).standard_normal((40, 6))
    >>> b = A @ np.array([1.0, -1.0, 0.0, 0.0, 2.0, 0.0])
    >>> research.DSPDC(A, b, l2=0.1).run(10_000).x.round(2)
    array([ 0.93, -0.88,  0.06, -0.01,  1.8 ,  0.04])
    """

    def __init__(
        self,
        A: npt.ArrayLike,
        b: npt.ArrayLike,
        loss: str = "square",
        *,
        l2: float,
        l1: float = 0.0,
        m: int = 1,
        q: int = 1,
        theorem: Literal[1, 2] = 1,
        scale: float | None = None,
        seed: int = 0,
    ) -> None:
        if loss not in LOSSES:
            raise ValueError(f"Expected a loss of {', '.join(LOSSES)}, got {loss!r}")
        self.A: F64 = as_factors(A).U
        n, p = self.A.shape
        self.b, self.l1, self.l2, self.m, self.q = as_targets(b, n, loss, intercept=False), l1, l2, m, q
        require_at_least(1, m=m, q=q)
        if m > n or q > p:
            raise ValueError(f"Expected m <= {n} and q <= {p}, got m={m} and q={q}")
        if not (0.0 < l2 < math.inf and 0.0 <= l1 < math.inf):
            raise ValueError(f"Expected l2 > 0 and l1 >= 0, got l2={l2!r} and l1={l1!r}")
        if theorem not in (1, 2):
            raise ValueError(f"Expected theorem to be 1 or 2, got {theorem!r}")
        self._loss, gamma = LOSSES[loss], 1.0 / LOSSES[loss].curvature
        self.scale = self._largest_block() if scale is None else scale
        rows, columns = n / m, p / q
        s = rows * columns * math.sqrt(self.scale / (n * l2 * gamma))
        k = theorem * (max(rows, columns) + s)
        root = math.sqrt((rows - columns) ** 2 + 4.0 * s**2)
        self.theta, self.rate = columns * (1.0 - 1.0 / k), 1.0 - 1.0 / k
        self.tau = columns / l2 / ((rows - columns) + root)
        self.sigma = n * rows / gamma / ((columns - rows) + root)
        self.x, self.x_bar, self.y = np.zeros(p), np.zeros(p), np.zeros(n)
        self._rng = np.random.default_rng(seed)

    def run(self, steps: int) -> Self:
        """Take more steps.

        Parameters
        ----------
        steps : int
            The number of steps.
        """
        for _ in range(steps):
            self._step()
        return self

    def _step(self) -> None:
        n, p = self.A.shape
        rows, columns = (self._rng.choice(size, chosen, replace=False) for size, chosen in ((n, self.m), (p, self.q)))
        y, x = self.y.copy(), self.x.copy()
        for i in rows:  # (10), times n
            y[i] = dual_step(self._loss.code, y[i], self.b[i], self.A[i] @ self.x_bar, self.sigma / n)
        y_bar = self.y + n / self.m * (y - self.y)
        down = x[columns] - self.tau * (y_bar @ self.A[:, columns]) / n
        shrunk = np.sign(down) * np.maximum(np.abs(down) - self.tau * self.l1, 0.0)
        x[columns] = shrunk / (1.0 + self.tau * self.l2)
        self.x_bar = self.x + (self.theta + 1.0) * (x - self.x)
        self.x, self.y = x, y

    def _largest_block(self) -> float:
        """Return Λ_{q,m} if the sizes of blocks allow it, else an upper bound."""
        n, p = self.A.shape
        squares = self.A**2
        of_row = np.sort(squares, axis=1)[:, p - self.q :].sum(axis=1).max()  # Λ_{q,1}
        of_column = np.sort(squares, axis=0)[n - self.m :].sum(axis=0).max()  # Λ_{1,m}
        return float(min(np.linalg.norm(self.A, 2) ** 2, self.m * of_row, self.q * of_column))
