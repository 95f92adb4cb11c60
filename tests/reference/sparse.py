"""AsyDSSKL as the paper prints it, Algorithm 2, for one column, in plain NumPy and float64."""

from __future__ import annotations

import numpy as np


def slope(name, f, y, sigma=1.0):
    """∂ℓ/∂f of the losses of Table 1, with y = ±1 for classes; square and correntropy with ½."""
    z = y * f
    if name == "logistic":
        return -y / (1.0 + np.exp(z))
    if name == "smooth_hinge":
        return -y * np.clip(1.0 - z, 0.0, 1.0)
    if name == "sigmoid":
        return -y * np.exp(z) / (1.0 + np.exp(z)) ** 2
    if name == "square":
        return f - y
    return (f - y) * np.exp(-(((f - y) / sigma) ** 2))


def value(name, f, y, sigma=1.0):
    """ℓ of Table 1, the sigmoid with the sign that makes errors dear."""
    z = y * f
    if name == "logistic":
        return np.log(1.0 + np.exp(-z))
    if name == "smooth_hinge":
        return np.where(z <= 0.0, 0.5 - z, 0.5 * np.maximum(0.0, 1.0 - z) ** 2)
    if name == "sigmoid":
        return 1.0 / (1.0 + np.exp(z))
    if name == "square":
        return 0.5 * (f - y) ** 2
    return 0.5 * sigma**2 * (1.0 - np.exp(-(((f - y) / sigma) ** 2)))


def full_gradient(name, X, y, w):
    """∇F(w) = (1/l) Σ ∇f_i(w), line 4."""
    return X.T @ slope(name, X @ w, y) / len(y)


def outer_iteration(name, X, y, w, samples, coordinates, step, l1):
    """Lines 3 to 12: the snapshot w̃, then a step for each drawn sample or batch and coordinate, by step = γ/L_max."""
    snapshot, w = w.copy(), w.copy()
    full = full_gradient(name, X, y, snapshot)
    for i, j in zip(samples, coordinates, strict=True):
        now, then = slope(name, X[i] @ w, y[i]) * X[i, j], slope(name, X[i] @ snapshot, y[i]) * X[i, j]
        u = w[j] - step * (np.mean(now - then) + full[j])
        w[j] = np.sign(u) * max(0.0, abs(u) - step * l1)
    return w
