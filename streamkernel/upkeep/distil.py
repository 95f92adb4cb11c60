"""Functions of few features that approximate given functions; compiled."""

from __future__ import annotations

import math

import numpy as np

from streamkernel import losses, vectors
from streamkernel.jit import compiled
from streamkernel.second_order import square_root

ROWS = 64
"""Rows that are reflected at once."""


@compiled(nogil=True)
def bends(code, parameter, f, y, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]`` to the largest ∂²ℓ(f_i, y_i)/∂f_c² over the columns c."""
    h = np.empty(f.shape[1])
    for i in range(len(f)):
        losses.curvature(code, parameter, f[i], y[i], h)
        out[i] = h.max()


@compiled(nogil=True)
def distil(Z, weights, targets, prior, factor, w):  # type: ignore[no-untyped-def]
    """Set `w`, shape (functions, outputs), to those that minimise prior‖w‖² + Σ_i weight_i (z_iᵀw - target_i)².

    Set `factor` to R with RᵀR = prior I + Σ weight zzᵀ. `targets` have the shape (rows, functions).
    """
    n, outputs = Z.shape
    rows = np.zeros((ROWS, outputs), np.float32)
    factor[:] = np.float32(0.0)
    w[:] = 0.0
    for j in range(outputs):
        factor[j, j] = math.sqrt(prior)
    for first in range(0, n, ROWS):
        rows[:] = np.float32(0.0)
        for i in range(first, min(first + ROWS, n)):
            vectors.add(rows[i - first], Z[i], np.float32(math.sqrt(weights[i])))
            for t in range(len(w)):
                vectors.add(w[t], Z[i], weights[i] * targets[i, t])
        square_root.rotate(factor, rows)
    for t in range(len(w)):
        square_root.solve(factor, w[t])
