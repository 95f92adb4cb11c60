"""The saddle-point problem of DSPDC: the factors of A = UV, losses in the dual problem, objectives, and step sizes.

The problem with losses φ is

    min_x max_y  g(x) + (1/n) yᵀAx - (1/n) Σᵢ φᵢ*(yᵢ)

φ itself is `streamkernel.losses`: square ½(z - b)² for any b, logistic log(1 + exp(-bz)) and smooth hinge for b = ±1.
Each is (1/γ)-smooth, and y = 0 is feasible for each.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from streamkernel import losses
from streamkernel.errors import InputError
from streamkernel.jit import compiled, inlined
from streamkernel.losses.loss import LOGISTIC, SQUARE, derivative, value

F64 = npt.NDArray[np.float64]
Order = npt.NDArray[np.int64] | slice
LOSSES: dict[str, losses.Loss] = {
    "square": losses.Square(),
    "logistic": losses.Logistic(),
    "smooth_hinge": losses.SmoothHinge(),
}
"""The losses that have a dual here; the strong convexity of φ* is γ = 1/curvature."""
_STEPS = 120


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


def as_factors(U: Any, V: Any = None) -> Factors:
    """Return A = UV, or A = U without V, as float64, stored by rows."""
    if V is None:
        return Factors(_matrix(U, "A"), None)
    U, V = _matrix(U, "U"), _matrix(V, "V")
    if U.shape[1] != V.shape[0]:
        raise InputError(f"Expected A = UV with as many columns of U as rows of V, got shapes {U.shape} and {V.shape}")
    return Factors(U, V.T.tocsr() if sparse.issparse(V) else np.ascontiguousarray(V.T))


def _matrix(A: Any, name: str) -> Any:
    if sparse.issparse(A):
        A = sparse.csr_array(A, dtype=np.float64)
    else:
        try:
            A = np.ascontiguousarray(A, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"Expected numbers in {name}, got {type(A).__name__}: {error}") from None
    if A.ndim != 2 or 0 in A.shape:
        raise InputError(f"Expected {name} of shape (rows, columns), none of them 0, got {A.shape}")
    if not np.isfinite(A.data if sparse.issparse(A) else A).all():
        raise InputError(f"Expected finite numbers in {name}, got NaN or infinity")
    return A


def as_targets(b: npt.ArrayLike, n: int, loss: str, *, intercept: bool) -> F64:
    """Return the targets as float64, if they suit the loss."""
    targets = as_vector(b, n, "b")
    if loss != "square" and not np.isin(targets, (-1.0, 1.0)).all():
        raise InputError(f"Expected labels -1 and 1 in b for the {loss} loss, got {np.unique(targets)[:5]}")
    if loss != "square" and intercept and np.ptp(targets) == 0.0:
        raise InputError(f"Expected both labels in b where there is an intercept, got {targets[0]:g} alone")
    return targets


def as_vector(values: npt.ArrayLike, length: int, name: str) -> F64:
    """Return finite numbers as float64."""
    vector = np.array(values, np.float64)
    if vector.shape != (length,):
        raise InputError(f"Expected {name} of shape ({length},), got {vector.shape}")
    if not np.isfinite(vector).all():
        raise InputError(f"Expected finite numbers in {name}, got NaN or infinity")
    return vector


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


class StepSizes(NamedTuple):
    """θ of the extrapolation, and the primal and dual steps τ and σ."""

    theta: float
    tau: float
    sigma: float


def step_sizes(
    n: int, p: int, m: float, q: float, scale: float, convexity: float, gamma: float, *, weight: float = 1.0
) -> StepSizes:
    """Return the steps of Theorem 2, which bounds the gap.

    With S = (np/mq) √(Λ/(nλγ)) and K = max(n/m, p/q) + S,

        θ = (p/q)(1 - 1/2K)
        τ = (p/qλ) / ((n/m - p/q) + √((n/m - p/q)² + 4S²))
        σ = (n²/mγ) / ((p/q - n/m) + √((n/m - p/q)² + 4S²))

    n, p, m and q are the numbers of dual and primal coordinates, and of those in a step. `scale` is Λ, at least the
    largest squared spectral norm of a block of m rows and q columns for the theorems to hold; `convexity` is λ, the
    strong convexity of g, and `gamma` γ of φ*. τ is multiplied and σ divided by the primal `weight`.

    References
    ----------
    Yu, Lin and Yang, "Doubly Stochastic Primal-Dual Coordinate Method for Bilinear Saddle-Point Problem", (14) to (18).

    Examples
    --------
    With equal ratios, τσ = nmq/4pΛ:

    >>> steps = step_sizes(n=100, p=10, m=10, q=1, scale=2.0, convexity=0.1, gamma=1.0)
    >>> round(steps.tau * steps.sigma, 9) == 100 * 10 * 1 / (4 * 10 * 2.0)
    True
    """
    rows, columns = n / m, p / q
    root = rows * columns * math.sqrt(scale / (n * convexity * gamma))
    steps = 2.0 * (max(rows, columns) + root)
    wide = math.hypot(rows - columns, 2.0 * root)
    # Where the two terms nearly cancel, a - b is (a² - b²)/(a + b).
    tau_below = wide + (rows - columns) if rows >= columns else 4.0 * root**2 / (wide + (columns - rows))
    sigma_below = wide + (columns - rows) if columns >= rows else 4.0 * root**2 / (wide + (rows - columns))
    tau = columns / convexity / tau_below
    sigma = n * rows / gamma / sigma_below
    return StepSizes(columns * (1.0 - 1.0 / steps), tau * weight, sigma / weight)


@inlined(inline="always")
def _entropy(a):  # type: ignore[no-untyped-def]
    """Return a log a, which is 0 at 0."""
    return a * math.log(a) if a > 0.0 else 0.0


@compiled
def conjugate(code, y, b):  # type: ignore[no-untyped-def]
    """Return φ*(y) = max_z yz - φ(z), infinity where y is not feasible."""
    if code == SQUARE:
        return 0.5 * y * y + b * y
    a = -b * y
    if not 0.0 <= a <= 1.0:
        return math.inf
    if code == LOGISTIC:
        return _entropy(a) + _entropy(1.0 - a)
    return 0.5 * a * a - a


@compiled(nogil=True)
def mean_loss(code, z, b):  # type: ignore[no-untyped-def]
    """Return (1/n) Σ φᵢ(zᵢ)."""
    total = 0.0
    for i in range(len(z)):
        total += value(code, 0.0, z[i : i + 1], b[i])
    return total / len(z)


@compiled(nogil=True)
def mean_conjugate(code, y, b):  # type: ignore[no-untyped-def]
    """Return (1/n) Σ φᵢ*(yᵢ)."""
    total = 0.0
    for i in range(len(y)):
        total += conjugate(code, y[i], b[i])
    return total / len(y)


@compiled
def dual_step(code, y, b, c, s):  # type: ignore[no-untyped-def]
    """Return argmax_β cβ - φ*(β) - (β - y)²/2s.

    That is (10) of the paper times n, with c = ⟨Aᵢ, x̄⟩ and s = σ/n.
    """
    if code != LOGISTIC:
        beta = (y + s * (c - b)) / (1.0 + s)
        return beta if code == SQUARE else b * min(max(b * beta, -1.0), 0.0)
    # With β = -b/(1 + exp(-u)) the maximum is where u + (a(u) - a₀)/s + bc = 0, which rises in u; it lies between the
    # logit of a₀ and -bc. Newton's steps are taken as long as each is at most half of the one before.
    a0 = -b * y
    u, other = math.log(max(a0, 1e-300) / max(1.0 - a0, 1e-300)), -b * c
    low, high = min(u, other), max(u, other)
    before = high - low
    for _ in range(_STEPS):
        e = math.exp(-abs(u))
        a = (1.0 if u >= 0.0 else e) / (1.0 + e)
        h = u + (a - a0) / s + b * c
        if h > 0.0:
            high = u
        else:
            low = u
        step = h / (1.0 + a * (1.0 - a) / s)
        if not (low <= u - step <= high and abs(step) <= 0.5 * before):
            step = u - 0.5 * (low + high)
        before = abs(step)
        u -= step
        if before <= 1e-15 * max(1.0, abs(u)):
            break
    e = math.exp(-abs(u))
    return -b * (1.0 if u >= 0.0 else e) / (1.0 + e)


class SaddlePointProblem(NamedTuple):
    """min (1/n) Σᵢ φᵢ(aᵢᵀx) + Σⱼ (l2ⱼ/2) xⱼ² + l1ⱼ|xⱼ|, where the coordinate with l2ⱼ = 0, if any, is an intercept.

    Its column of A is constant.
    """

    A: Factors
    b: F64
    code: int
    l2: F64
    l1: F64
    constant: float
    """The constant value of the intercept's column; 0 without an intercept."""

    def primal(self, x: F64) -> tuple[float, F64]:
        """Return P at x with the best intercept, and that x."""
        scores = self.A.scores(x)
        if self.constant:
            x = x.copy()
            c = self.best_intercept(scores)
            x[self.l2 == 0.0] += c / self.constant
            scores = scores + c
        return float(mean_loss(self.code, scores, self.b) + 0.5 * self.l2 @ (x * x) + self.l1 @ np.abs(x)), x

    def dual(self, y: F64) -> tuple[float, F64]:
        """Return D at y, or at a feasible point near it, and that point.

        D(y) = -(1/n) Σᵢ φᵢ*(yᵢ) - Σⱼ max(|(Aᵀy)ⱼ|/n - l1ⱼ, 0)²/2l2ⱼ
        """
        y = self.feasible(y)
        there = self.l2 > 0.0
        over = np.maximum(np.abs(self.A.slopes(y)) / len(y) - self.l1, 0.0)[there]
        return float(-mean_conjugate(self.code, y, self.b) - 0.5 * (over * over) @ (1.0 / self.l2[there])), y

    def feasible(self, y: F64) -> F64:
        """Return y, or with an intercept a y near it that sums to 0."""
        if not self.constant:
            return y
        if self.code == SQUARE:
            return np.asarray(y - y.mean())
        up, down = y[self.b < 0.0].sum(), -y[self.b > 0.0].sum()
        least = min(up, down)
        return y * np.where(self.b < 0.0, least / up if up else 0.0, least / down if down else 0.0)

    def best_dual(self, scores: F64) -> F64:
        """Return φ', the best y for these scores."""
        return np.asarray(_derivatives(self.code, scores, self.b))

    def best_intercept(self, scores: F64) -> float:
        """Return the best c to add to these scores."""
        if self.code == SQUARE or not np.isfinite(scores).all():
            return float((self.b - scores).mean())

        from scipy.optimize import brentq  # importing it takes long, and models need the losses of this module

        def slope(c: float) -> float:
            return float(_derivatives(self.code, scores + c, self.b).mean())

        reach = 1.0
        while slope(-reach) > 0.0 or slope(reach) < 0.0:
            reach *= 2.0
        return float(brentq(slope, -reach, reach, xtol=1e-14))


@compiled(nogil=True)
def _derivatives(code, scores, b):  # type: ignore[no-untyped-def]
    out = np.empty_like(scores)
    for i in range(len(b)):
        derivative(code, 0.0, scores[i : i + 1], b[i], out[i : i + 1])
    return out
