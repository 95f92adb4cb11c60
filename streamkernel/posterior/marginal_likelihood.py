"""The marginal likelihood of a few examples under a Gaussian process of unknown noise and scale."""

from __future__ import annotations

import numpy as np

from streamkernel.features.rows import F64

USUAL = 0.1
"""The ratio that is taken for the most likely one before any example."""

_RATIOS = np.logspace(-5.0, 2.0, 141)


def most_likely(gram: F64, y: F64) -> tuple[float, float]:
    """Return the largest log likelihood of y ~ N(0, s²(G + λI)), up to a constant, and its noise λ in units of s².

    With the eigenvalues g of G = U diag(g) Uᵀ and ỹ = Uᵀy, the best s² is s²(λ) = (1/n) Σ ỹ²/(g + λ), and the log
    likelihood is -½(n log s²(λ) + Σ log(g + λ)). A prior of one decade around ``USUAL`` keeps two examples from
    deciding everything; with a hundred examples its influence is gone.

    Parameters
    ----------
    gram
        G, the kernel between the examples, shape (examples, examples).
    y
        Their targets, of mean 0.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> f = generator.normal(size=100)[:, None] + np.zeros(5)
    >>> y = f.ravel() + 0.1 * generator.normal(size=500)
    >>> _, ratio = most_likely(np.kron(np.eye(100), np.ones((5, 5))), y)
    >>> 0.008 < ratio < 0.012
    True
    """
    largest = np.abs(y).max()
    if largest == 0.0:
        return 0.0, USUAL
    g, U = np.linalg.eigh(gram)
    g, rotated = np.maximum(g, 0.0), U.T @ (y / largest)
    variances = g + _RATIOS[:, None]
    scale = (rotated**2 / variances).mean(axis=1)
    prior = np.log10(_RATIOS / USUAL) ** 2
    log_likelihood = -0.5 * (len(y) * np.log(scale) + np.log(variances).sum(axis=1) + prior)
    best = int(np.argmax(log_likelihood))
    return float(log_likelihood[best]), float(_RATIOS[best])
