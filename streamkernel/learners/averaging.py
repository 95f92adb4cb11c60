"""Averages of the iterates f_1, f_2, ..., and the share of an average in predictions.

The plain average weighs all iterates equally, as in the theory. With steps of automatic size, another one weighs f_t by
t(t + 1)(t + 2)/6, so that it forgets the first steps (Shamir and Zhang, "Stochastic Gradient Descent for Non-smooth
Optimization", 2013, with η = 3), and a prediction is f + v (f̂ - f). The share v of the average follows from the losses
ℓ that both have had on the last examples, in units of the running loss:

    v = 1 / (1 + exp(-s)),    s ← (1 - 1/50) s + (ℓ(f) - ℓ(f̂)) / running loss
"""

from __future__ import annotations

import math

LAST, AVERAGE, MIXTURE = range(3)
"""The function that predicts: the last iterate, the plain average, or a mixture of the last iterate and an average."""

SURE = 40.0
"""Bound on s: beyond it a share is 0 or 1 in floating point."""

_RECENT = 50.0


def weight(averaging: int, t: float) -> float:
    """Return the weight of the function after step `t`.

    Examples
    --------
    >>> [weight(MIXTURE, t) for t in (1, 2, 3)], weight(AVERAGE, 3)
    ([1.0, 4.0, 10.0], 1.0)
    """
    return t * (t + 1.0) * (t + 2.0) / 6.0 if averaging == MIXTURE else 1.0


def total_weight(averaging: int, t: float) -> float:
    """Return the sum of the weights of the functions after `t` steps.

    Examples
    --------
    >>> [total_weight(MIXTURE, t) for t in (1, 2, 3)], total_weight(AVERAGE, 3)
    ([1.0, 5.0, 15.0], 3.0)
    """
    return t * (t + 1.0) * (t + 2.0) * (t + 3.0) / 24.0 if averaging == MIXTURE else float(t)


def share(averaging: int, log_odds: float) -> float:
    """Return the share of the average in predictions.

    Examples
    --------
    >>> share(MIXTURE, 0.0), share(MIXTURE, SURE), share(LAST, 0.0), share(AVERAGE, 0.0)
    (0.5, 1.0, 0.0, 1.0)
    """
    if averaging == MIXTURE:
        return 1.0 / (1.0 + math.exp(-log_odds))
    return 1.0 if averaging == AVERAGE else 0.0


def preferred(log_odds: float, gain: float) -> float:
    """Return s after an example for which the average was better by `gain`, in units of the running loss."""
    return max(-SURE, min(SURE, log_odds - log_odds / _RECENT + gain))
