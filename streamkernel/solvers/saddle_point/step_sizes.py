"""The step sizes of DSPDC."""

from __future__ import annotations

import math
from typing import NamedTuple


class StepSizes(NamedTuple):
    """θ of the extrapolation, and the primal and dual steps τ and σ."""

    theta: float
    tau: float
    sigma: float


def step_sizes(
    n: int,
    p: int,
    m: float,
    q: float,
    scale: float,
    convexity: float,
    gamma: float,
    *,
    weight: float = 1.0,
    for_gap: bool = True,
) -> StepSizes:
    """Return the steps of Theorem 2, or of Theorem 1.

    With S = (np/mq) √(Λ/(nλγ)) and K = max(n/m, p/q) + S, where Theorem 2 has 2K in place of K,

        θ = (p/q)(1 - 1/K)
        τ = (p/qλ) / ((n/m - p/q) + √((n/m - p/q)² + 4S²))
        σ = (n²/mγ) / ((p/q - n/m) + √((n/m - p/q)² + 4S²))

    Parameters
    ----------
    n, p, m, q
        Numbers of dual and primal coordinates, and of those in a step.
    scale
        Λ, at least the largest squared spectral norm of a block of m rows and q columns for the theorems to hold.
    convexity
        λ, the strong convexity of g.
    gamma
        γ, the strong convexity of φ*.
    weight
        The primal weight: τ is multiplied and σ divided by it.
    for_gap
        Whether θ is as in Theorem 2, which bounds the gap, or of Theorem 1, the distance.

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
    steps = (max(rows, columns) + root) * (2.0 if for_gap else 1.0)
    wide = math.hypot(rows - columns, 2.0 * root)
    # Where the two terms nearly cancel, a - b is (a² - b²)/(a + b).
    tau_below = wide + (rows - columns) if rows >= columns else 4.0 * root**2 / (wide + (columns - rows))
    sigma_below = wide + (columns - rows) if columns >= rows else 4.0 * root**2 / (wide + (rows - columns))
    tau = columns / convexity / tau_below
    sigma = n * rows / gamma / sigma_below
    return StepSizes(columns * (1.0 - 1.0 / steps), tau * weight, sigma / weight)
