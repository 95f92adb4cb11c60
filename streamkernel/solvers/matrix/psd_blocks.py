"""Operations of the block solvers on symmetric matrices; compiled."""

from __future__ import annotations

import math

import numpy as np

from streamkernel.jit import compiled
from streamkernel.solvers.saddle_point.conjugates import dual_step


@compiled(nogil=True)
def nearest_psd(M):  # type: ignore[no-untyped-def]
    """Return the positive semi-definite matrices nearest to the symmetric ones of `M`, shape (blocks, d, d)."""
    X = np.empty_like(M)
    for j in range(len(M)):
        values, vectors = np.linalg.eigh(M[j])
        first = np.searchsorted(values, 0.0)
        # The part of fewer eigenvectors is the cheaper one to put together.
        part = slice(first, None) if 2 * first >= len(values) else slice(0, first)
        V = np.ascontiguousarray(vectors[:, part])
        P = (V * values[part]) @ np.ascontiguousarray(V.T)
        P = P if 2 * first >= len(values) else M[j] - P
        X[j] = 0.5 * (P + P.T)
    return X


@compiled(nogil=True)
def dual_steps(code, y, b, c, s):  # type: ignore[no-untyped-def]
    """Return the dual steps of several examples; see `conjugates.dual_step`."""
    new = np.empty_like(y)
    for i in range(len(y)):
        new[i] = dual_step(code, y[i], b[i], c[i], s)
    return new


@compiled(nogil=True)
def pack(X):  # type: ignore[no-untyped-def]
    """Return the symmetric parts of matrices as vectors with the same inner products, shape (blocks, d(d+1)/2)."""
    blocks, d = X.shape[0], X.shape[1]
    out = np.empty((blocks, d * (d + 1) // 2))
    for j in range(blocks):
        k = 0
        for a in range(d):
            for c in range(a):
                out[j, k] = math.sqrt(0.5) * (X[j, a, c] + X[j, c, a])
                k += 1
            out[j, k] = X[j, a, a]
            k += 1
    return out


@compiled(nogil=True)
def unpack(v, d):  # type: ignore[no-untyped-def]
    """Return the symmetric matrices of `packed`, shape (blocks, d, d)."""
    out = np.empty((len(v), d, d))
    for j in range(len(v)):
        k = 0
        for a in range(d):
            for c in range(a):
                out[j, a, c] = out[j, c, a] = math.sqrt(0.5) * v[j, k]
                k += 1
            out[j, a, a] = v[j, k]
            k += 1
    return out
