"""Algorithms 1 and 2 of Yu, Lin and Yang as they are printed, in plain NumPy; the blocks of each step are given."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq


def conjugate(loss, y, b):
    """φ*(y)."""
    if loss == "square":
        return 0.5 * y**2 + b * y
    a = -b * y
    if not 0.0 <= a <= 1.0:
        return np.inf
    if loss == "smooth_hinge":
        return 0.5 * a**2 - a
    return sum(s * np.log(s) for s in (a, 1.0 - a) if s > 0.0)


def value(loss, z, b):
    """φ(z)."""
    if loss == "square":
        return 0.5 * (z - b) ** 2
    if loss == "logistic":
        return np.logaddexp(0.0, -b * z)
    return np.select([b * z >= 1.0, b * z <= 0.0], [0.0, 0.5 - b * z], 0.5 * (1.0 - b * z) ** 2)


def dual_prox(loss, y, b, c, sigma, n):
    """(10): argmax_β (1/n) c β - φ*(β)/n - (β - y)²/2σ, where its derivative is 0 or at an end."""
    if loss == "square":
        return (c / n - b / n + y / sigma) / (1.0 / n + 1.0 / sigma)
    if loss == "smooth_hinge":
        return b * np.clip(b * (c / n - b / n + y / sigma) / (1.0 / n + 1.0 / sigma), -1.0, 0.0)

    def slope(a):  # of -log(a/(1 - a)) and the rest, with β = -ba
        return -b * c / n - (np.log(a) - np.log1p(-a)) / n - (a + b * y) / sigma

    return -b * brentq(slope, 1e-300, 1.0 - 1e-16, xtol=1e-16, rtol=1e-14)


def primal_prox(x, slope, tau, l1, l2):
    """(12): argmin_α slope α + (l2/2)α² + l1|α| + (α - x)²/2τ."""
    down = x - tau * slope
    return np.sign(down) * np.maximum(np.abs(down) - tau * l1, 0.0) / (1.0 + tau * l2)


def algorithm1(A, b, loss, l1, l2, sizes, blocks, n_over_m):
    """Yield x and y after each step."""
    n, p = A.shape
    theta, tau, sigma = sizes
    x, y, x_bar = np.zeros(p), np.zeros(n), np.zeros(p)
    for rows, columns in blocks:
        new_y = y.copy()
        for i in rows:
            new_y[i] = dual_prox(loss, y[i], b[i], A[i] @ x_bar, sigma, n)
        y_bar = y + n_over_m * (new_y - y)
        new_x = x.copy()
        for j in columns:
            new_x[j] = primal_prox(x[j], A[:, j] @ y_bar / n, tau, l1, l2)
        x_bar = x + (theta + 1.0) * (new_x - x)
        x, y = new_x, new_y
        yield x, y


def algorithm2(U, V, b, loss, l1, l2, sizes, blocks, n_over_m):
    """Yield x and y after each step, with (23) taking the products with ū."""
    n, p = len(U), V.shape[1]
    theta, tau, sigma = sizes
    x, y = np.zeros(p), np.zeros(n)
    u, v, v_bar = U.T @ y, V @ x, V @ x
    for rows, columns in blocks:
        new_y = y.copy()
        for i in rows:
            new_y[i] = dual_prox(loss, y[i], b[i], U[i] @ v_bar, sigma, n)
        u_bar = u + n_over_m * U.T @ (new_y - y)
        u = u + U.T @ (new_y - y)
        new_x = x.copy()
        for j in columns:
            new_x[j] = primal_prox(x[j], V[:, j] @ u_bar / n, tau, l1, l2)
        v_bar = v + (theta + 1.0) * V @ (new_x - x)
        v = v + V @ (new_x - x)
        x, y = new_x, new_y
        yield x, y


def primal(A, b, loss, l1, l2, x, c=0.0):
    """P(x)."""
    return np.mean(value(loss, A @ x + c, b)) + 0.5 * l2 * x @ x + l1 * np.abs(x).sum()


def dual(A, b, loss, l1, l2, y):
    """D(y) = -g*(-Aᵀy/n) - (1/n) Σ φ*(y)."""
    over = np.maximum(np.abs(A.T @ y) / len(y) - l1, 0.0)
    return -(over @ over) / (2.0 * l2) - np.mean([conjugate(loss, *pair) for pair in zip(y, b, strict=True)])
