"""Triangular factors of Gram matrices, and solutions of systems with them."""

from __future__ import annotations

import numpy as np

from streamkernel.errors import MergeError
from streamkernel.features.rows import F64


def factor_of(gram: F64, least: float = 0.0) -> F64:
    """Return the upper triangle R for which RᵀR is a Gram matrix, up to rounding.

    Raises
    ------
    MergeError
        If the matrix is not finite, not square, or not positive by more than rounding.
    """
    from scipy.linalg.lapack import dpotrf

    if gram.shape != (len(gram), len(gram)) or not np.isfinite(gram).all():
        raise MergeError("Expected finite Gram matrices, got NaN or infinity, or another shape")
    more, most = 0.0, max(float(np.trace(gram)), least)
    while more <= most:
        lower, failed = dpotrf(gram.T, lower=1, clean=1)
        if not failed:
            factor: F64 = np.ascontiguousarray(lower.T)
            return factor
        more = max(2.0 * more, least, 1e-12 * float(np.trace(gram)) / len(gram))
        if not more > 0.0:
            break
        gram = gram + more * np.eye(len(gram))
    raise MergeError("Expected positive Gram matrices, got another one")


def solve(factor: F64, moments: F64) -> F64:
    """Return (RᵀR)⁻¹ times moments."""
    from scipy.linalg import cho_solve

    return np.asarray(cho_solve((factor, False), moments))
