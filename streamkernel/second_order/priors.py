"""The regularisation λ of a group, in units of k(x, x), from examples and losses."""

from __future__ import annotations

import numpy as np

from streamkernel.features.rows import F32, F64

PRIOR = 0.06
SMALLEST = 1e-3
"""λ is PRIOR times (1 - κ)², but at least SMALLEST, where κ is the mean of k(x, x') over pairs of examples, in units of
k(x, x): if features hardly differ between examples, a function needs larger coefficients to separate these."""

UNKNOWN = 0.5 * PRIOR
"""λ before there are examples."""

LEAST_UNEXPLAINED = 0.01
"""λ of a larger group is proportional to the loss, in units of that of f = 0, but at least this: λ should equal the
ratio of noise to signal, which the loss estimates by then."""


def of_examples(by_group: F32) -> F64:
    """Return λ of groups from their features of some examples, shape (examples, groups, features).

    Examples
    --------
    >>> of_examples(np.eye(2, dtype=np.float32)[:, None]).round(3).tolist()  # nothing in common
    [0.06]
    >>> of_examples(np.ones((2, 1, 2), np.float32)).round(3).tolist()  # all in common
    [0.001]
    """
    n = len(by_group)
    own = np.square(by_group, dtype=np.float64).sum(axis=2).mean(axis=0)
    mean = np.square(by_group.mean(axis=0, dtype=np.float64)).sum(axis=1)
    likeness = (n * mean / np.where(own > 0.0, own, 1.0) - 1.0) / (n - 1)
    return np.asarray(np.maximum(PRIOR * np.square(1.0 - np.clip(likeness, 0.0, 1.0)), SMALLEST))


def unexplained_share(least: float, nothing: float) -> float:
    """Return the unexplained share of the loss.

    Parameters
    ----------
    least, nothing
        The smallest running loss of a function, and that of f = 0.

    Examples
    --------
    >>> unexplained_share(0.1, 0.5)
    0.2
    """
    return float(np.clip(least / nothing, 0.0, 1.0)) if nothing > 0.0 else 1.0


def of_new_group(prior: float, unexplained: float) -> float:
    """Return λ of a group that starts beside others.

    Parameters
    ----------
    prior
        λ of the single block of the same bandwidth.
    unexplained
        The unexplained share of the loss.

    Examples
    --------
    >>> of_new_group(0.06, 0.2)
    0.012
    """
    return float(prior * max(unexplained, LEAST_UNEXPLAINED))
