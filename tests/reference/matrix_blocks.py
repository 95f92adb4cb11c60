"""DSPDC with matrices as the paper prints it, in plain NumPy: matrices are kept whole and nothing is maintained."""

from __future__ import annotations

import numpy as np


def nearest_psd(M):
    values, vectors = np.linalg.eigh((M + M.T) / 2)
    return vectors @ np.diag(np.maximum(values, 0.0)) @ vectors.T


def dual_maximum(loss, y, b, c, s):
    """argmax_β cβ - φ*(β) - (β - y)²/2s, by bisection of its falling derivative for the logistic loss."""
    if loss == "square":
        return (y + s * (c - b)) / (1 + s)
    if loss == "smooth_hinge":
        return b * np.clip(b * (y + s * (c - b)) / (1 + s), -1.0, 0.0)
    low, high = 0.0, 1.0  # of a = -bβ, where φ* = a log a + (1-a) log(1-a)
    for _ in range(200):
        a = (low + high) / 2
        slope = -b * c - np.log(a / (1 - a)) - (a + b * y) / s
        low, high = (a, high) if slope > 0 else (low, a)
    return -b * (low + high) / 2


def block_dspdc(D, b, loss, l2, X, y, draws, m, q, theta, tau, sigma):
    """Section 5.1 on (31): the iterates (X, y) after each draw (I, J)."""
    n, p = D.shape[:2]
    X, y, X_bar = X.copy(), y.copy(), X.copy()
    for rows, blocks in draws:
        y_old, X_old = y.copy(), X.copy()
        for i in rows:
            c = sum(np.trace(D[i, j].T @ X_bar[j]) for j in range(p))
            y[i] = dual_maximum(loss, y[i], b[i], c, sigma / n)
        y_bar = y_old + n / m * (y - y_old)
        for j in blocks:
            W = sum(y_bar[i] * D[i, j] for i in range(n))
            X[j] = nearest_psd((X[j] / tau - W / n) / (l2 + 1 / tau))
        X_bar = X_old + (theta + 1) * (X - X_old)
        yield X.copy(), y.copy()


def algorithm_3(near, far, task, loss, l2, X, y, draws, m, theta, tau, sigma):
    """Algorithm 3, with Z_{j,uvw} = Z_{uw} - Z_{uv}; task 1 has block 1, block 0 is common."""
    n, p = len(task), len(X) - 1
    Z = np.array([np.outer(f, f) - np.outer(g, g) for f, g in zip(far, near, strict=True)])
    C = [sum(np.outer(g, g) for g in near[task == j]) for j in range(1, p + 1)]
    C = [sum(C), *C]
    X, y, X_bar = X.copy(), y.copy(), X.copy()
    W = [sum(y[i] * Z[i] for i in range(n) if task[i] == j) + 0.0 * Z[0] for j in range(1, p + 1)]
    B = [0.0 * Z[0] for _ in range(p)]
    for rows, blocks in draws:
        y_old, X_old, B_old = y.copy(), X.copy(), B
        for i in rows:
            c = np.trace(Z[i] @ (X_bar[task[i]] + X_bar[0]))
            y[i] = dual_maximum(loss, y[i], 1.0, c, sigma / n)
        B = [sum((y[i] - y_old[i]) * Z[i] for i in rows if task[i] == j) + 0.0 * Z[0] for j in range(1, p + 1)]
        W = [W[j] + n / m * B[j] + (m - n) / m * B_old[j] for j in range(p)]
        for j in blocks:
            gradient = (sum(W) if j == 0 else W[j - 1]) / n + C[j] / n
            target = l2[0] * np.eye(len(Z[0])) if j == 0 else 0.0
            X[j] = nearest_psd((X[j] / tau + target - gradient) / (l2[j] + 1 / tau))
        X_bar = X_old + (theta + 1) * (X - X_old)
        yield X.copy(), y.copy()


def phi(loss, z, b):
    if loss == "square":
        return (z - b) ** 2 / 2
    if loss == "logistic":
        return np.logaddexp(0.0, -b * z)
    return np.where(b * z >= 1, 0.0, np.where(b * z <= 0, 0.5 - b * z, (1 - b * z) ** 2 / 2))


def objective(D, b, loss, l2, X):
    """(30)."""
    return phi(loss, np.einsum("ijab,jab->i", D, X), b).mean() + l2 / 2 * np.sum(X**2)


def large_margin_objective(near, far, task, loss, l2, X):
    """(33)."""
    near_by = np.array([g @ (X[j] + X[0]) @ g for g, j in zip(near, task, strict=True)])
    far_off = np.array([f @ (X[j] + X[0]) @ f for f, j in zip(far, task, strict=True)])
    pull = l2[0] / 2 * np.sum((X[0] - np.eye(len(X[0]))) ** 2)
    pull += sum(l2[j] / 2 * np.sum(X[j] ** 2) for j in range(1, len(X)))
    return pull + near_by.mean() + phi(loss, far_off - near_by, 1.0).mean()
