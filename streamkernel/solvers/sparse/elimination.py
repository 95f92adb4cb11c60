"""Backward elimination of features: the least important one is dropped at each step."""

from __future__ import annotations

import numpy as np

from streamkernel.features.rows import F64


def eliminate(H: F64, coef: F64, group: int, most: int) -> F64:
    """Return coefficients with at most a given number of non-zero groups.

    At the minimum of a function with the curvature H, setting w(h) = 0 increases it by ½ w(h)ᵀ [(H⁻¹)_hh]⁻¹ w(h), if
    all other coefficients are adjusted: w ← w - (H⁻¹)_·h [(H⁻¹)_hh]⁻¹ w(h).

    Parameters
    ----------
    H
        The curvature, positive definite, shape (outputs, outputs), the same for each column.
    coef
        Coefficients, shape (outputs, columns). The last output belongs to no group and always stays.
    group
        Number of consecutive outputs in a group.
    most
        Number of groups to keep.

    References
    ----------
    Hassibi and Stork, "Second Order Derivatives for Network Pruning: Optimal Brain Surgeon", 1992.
    """
    C, w = np.linalg.inv(H), coef.copy()
    groups = np.arange(len(w) - 1).reshape(-1, group)
    while len(groups) > most:
        own = w[groups]
        costs = (own * np.linalg.solve(C[groups[:, :, None], groups[:, None, :]], own)).sum(axis=(1, 2))
        least = int(np.argmin(costs))
        out, groups = groups[least], np.delete(groups, least, axis=0)
        follow = np.linalg.solve(C[np.ix_(out, out)], C[out]).T
        w -= follow @ w[out]
        C -= follow @ C[out]
        w[out] = C[out] = C[:, out] = 0.0
    return w
