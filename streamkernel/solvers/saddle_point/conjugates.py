"""The losses φ of the saddle-point solvers in the dual problem; compiled.

    min_x max_y  g(x) + (1/n) yᵀAx - (1/n) Σᵢ φᵢ*(yᵢ)

φ itself is `streamkernel.losses`: square ½(z - b)² for any b, logistic log(1 + exp(-bz)) and smooth hinge for b = ±1.
Each is (1/γ)-smooth, and y = 0 is feasible for each.
"""

from __future__ import annotations

import math

from streamkernel import losses
from streamkernel.jit import compiled, inlined
from streamkernel.losses.compiled import LOGISTIC, SQUARE, value

LOSSES: dict[str, losses.Loss] = {
    "square": losses.Square(),
    "logistic": losses.Logistic(),
    "smooth_hinge": losses.SmoothHinge(),
}
"""The losses that have a dual here; the strong convexity of φ* is γ = 1/curvature."""

_STEPS = 120


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
