"""The value and the derivative of every loss, each formula written once, compiled; losses are told by their codes."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

LOGISTIC, SOFTMAX, HINGE, SQUARED_HINGE, SMOOTH_HINGE, SIGMOID = range(6)
SQUARE, HUBER, EPSILON_INSENSITIVE, QUANTILE, CORRENTROPY = range(6, 11)
NOVELTY, RATIO, TRUNCATED_RATIO = range(11, 14)
"""Losses of one estimator each, which brings their classes along: for them y is τ, or ±w for a weight w."""

LARGEST_EXPONENT = 50.0
"""From here on the tangent of exp stands for it."""


@njit(inline="always")
def _label(y, column, columns):  # type: ignore[no-untyped-def]
    """Return ±1 for a class, in its one column or against the rest."""
    positive = y > 0.0 if columns == 1 else column == int(y)
    return 1.0 if positive else -1.0


@njit(inline="always")
def _exp(f):  # type: ignore[no-untyped-def]
    """Return exp(f), or its tangent where that is too large."""
    return math.exp(min(f, LARGEST_EXPONENT)) * (1.0 + max(f - LARGEST_EXPONENT, 0.0))


@njit(cache=True)
def value(code, parameter, f, y):  # type: ignore[no-untyped-def]
    """Return ℓ(f, y) for the scores `f` of one example, shape (columns,)."""
    columns = len(f)
    if code == SOFTMAX or (code == LOGISTIC and columns > 1):
        top = f.max()
        return top + math.log(np.exp(f - top).sum()) - f[int(y)]
    total = 0.0
    for c in range(columns):
        m, r = _label(y, c, columns) * f[c], f[c] - y
        if code == LOGISTIC:
            total += math.log1p(math.exp(-abs(m))) + max(-m, 0.0)
        elif code == HINGE:
            total += max(0.0, 1.0 - m)
        elif code == SQUARED_HINGE:
            total += max(0.0, 1.0 - m) ** 2
        elif code == SMOOTH_HINGE:
            total += 0.5 - m if m <= 0.0 else 0.5 * max(0.0, 1.0 - m) ** 2
        elif code == SIGMOID:
            e = math.exp(-abs(m))
            total += (e if m > 0.0 else 1.0) / (1.0 + e)
        elif code == SQUARE:
            total += 0.5 * r**2
        elif code == HUBER:
            total += 0.5 * r * r if abs(r) <= parameter else parameter * (abs(r) - 0.5 * parameter)
        elif code == EPSILON_INSENSITIVE:
            total += max(0.0, abs(r) - parameter)
        elif code == QUANTILE:
            total += max(-parameter * r, (1.0 - parameter) * r)
        elif code == NOVELTY:
            total += max(0.0, -r)
        elif code in (RATIO, TRUNCATED_RATIO):
            beyond = code == TRUNCATED_RATIO and f[c] <= -parameter
            dual = -math.exp(f[c] + parameter) if beyond else -1.0 - parameter - f[c]
            total += y * dual if y > 0.0 else -y * _exp(f[c])
        else:
            total -= 0.5 * parameter**2 * math.expm1(-((r / parameter) ** 2))
    return total


@njit(cache=True)
def derivative(code, parameter, f, y, out):  # type: ignore[no-untyped-def]
    """Set `out`, shape (columns,), to ∂ℓ(f, y)/∂f."""
    columns = len(f)
    if code == SOFTMAX or (code == LOGISTIC and columns > 1):
        out[:] = np.exp(f - f.max())
        out /= out.sum()
        out[int(y)] -= 1.0
        return
    for c in range(columns):
        t = _label(y, c, columns)
        m, r = t * f[c], f[c] - y
        if code == LOGISTIC:
            e = math.exp(-abs(m))
            out[c] = -t * (e if m > 0.0 else 1.0) / (1.0 + e)
        elif code == HINGE:
            out[c] = -t if m < 1.0 else 0.0
        elif code == SQUARED_HINGE:
            out[c] = -2.0 * t * max(0.0, 1.0 - m)
        elif code == SMOOTH_HINGE:
            out[c] = -t * min(max(0.0, 1.0 - m), 1.0)
        elif code == SIGMOID:
            e = math.exp(-abs(m))
            out[c] = -t * e / (1.0 + e) ** 2
        elif code == SQUARE:
            out[c] = r
        elif code == HUBER:
            out[c] = min(max(r, -parameter), parameter)
        elif code == EPSILON_INSENSITIVE:
            out[c] = math.copysign(1.0, r) if abs(r) > parameter else 0.0
        elif code == QUANTILE:
            out[c] = 1.0 - parameter if r >= 0.0 else -parameter
        elif code == NOVELTY:
            out[c] = -1.0 if r < 0.0 else 0.0
        elif code in (RATIO, TRUNCATED_RATIO):
            beyond = code == TRUNCATED_RATIO and f[c] <= -parameter
            slope = -math.exp(f[c] + parameter) if beyond else -1.0
            out[c] = y * slope if y > 0.0 else -y * math.exp(min(f[c], LARGEST_EXPONENT))
        else:
            out[c] = r * math.exp(-((r / parameter) ** 2))


@njit(cache=True)
def curvature(code, parameter, f, y, out):  # type: ignore[no-untyped-def]
    """Set `out`, shape (columns,), to what a Newton step takes for ∂²ℓ(f, y)/∂f_c², for the losses that have one.

    Where a loss is straight, its second derivative would send a step anywhere. There it is |ℓ'| over the distance from
    the bend for the Huber and smooth hinge losses, and a quarter of ℓ'² for the logistic one.
    """
    columns = len(f)
    if code == SOFTMAX or (code == LOGISTIC and columns > 1):
        out[:] = np.exp(f - f.max())
        out /= out.sum()
        for c in range(columns):
            off = out[c] - 1.0 if c == int(y) else out[c]
            out[c] = max(out[c] * (1.0 - out[c]), 0.25 * off * off)
        return
    for c in range(columns):
        m, r = _label(y, c, columns) * f[c], f[c] - y
        if code == LOGISTIC:
            e = math.exp(-abs(m))
            off = (e if m > 0.0 else 1.0) / (1.0 + e)
            out[c] = max(off * (1.0 - off), 0.25 * off * off)
        elif code == SQUARED_HINGE:
            out[c] = 2.0 if m < 1.0 else 0.0
        elif code == SMOOTH_HINGE:
            out[c] = 1.0 / max(1.0, 1.0 - m) if m < 1.0 else 0.0
        elif code == HUBER:
            out[c] = parameter / max(parameter, abs(r))
        else:
            out[c] = 1.0
