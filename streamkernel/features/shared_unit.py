"""Whether many inputs share a unit, as pixels and coordinates of embeddings do: decided by the first examples.

Scaled inputs have a deviation of 1 each. Where inputs share a unit, their deviations say which of them matter: the
first components of an embedding vary most. Where they have units of their own, deviations say nothing, and one unit
for all would hide the inputs of small numbers. So the error of kernel ridge regression tells: with
K_ij = exp(-2‖x_i - x_j‖²/m²), m the median distance, and B = (K + I/10)⁻¹, the residual of an example that is left out
is

    r_i = (B y)_i/B_ii

(Craven and Wahba 1978). A unit is shared if it makes the mean of r² smaller by two standard errors.
"""

from __future__ import annotations

import numpy as np

from streamkernel.features.rows import F64

MOST_OWN = 127
"""Up to this number of inputs, the metric tells which of them matter."""

LEAST = 32
"""Number of examples that may tell."""

RIDGE = 0.1
"""The part of a target's variance that is noise, over the part that is not."""

ERRORS = 2.0
"""Standard errors by which the shared unit must be better."""


def is_shared(table: F64, deviations: F64, targets: F64) -> bool:
    """Return whether the examples are predicted better with their inputs in one unit.

    Parameters
    ----------
    table
        Inputs of deviation 1, shape (examples, inputs).
    deviations
        Their deviations in the unit they are given in, up to a factor, shape (inputs,).
    targets
        Numbers, or an indicator of each class, shape (examples, columns).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> table, small = rng.normal(size=(256, 200)), np.arange(200) < 190
    >>> deviations = np.where(small, 0.01, 1.0)
    >>> is_shared(table, deviations, table[:, 190:]), is_shared(table, deviations, table[:, :10])
    (True, False)
    """
    if len(table) < LEAST:
        return False
    better = _squared_residuals(table, targets) - _squared_residuals(table * deviations, targets)
    return bool(better.mean() > ERRORS * better.std() / np.sqrt(len(better)))


def _squared_residuals(table: F64, targets: F64) -> F64:
    """Return the sum over columns of r_i² for each example."""
    table, targets = table - table.mean(axis=0), targets - targets.mean(axis=0)
    n, products = len(table), table @ table.T
    norms = products.diagonal()
    squares = np.maximum(norms[:, None] + norms - 2.0 * products, 0.0)
    median = np.median(squares[np.triu_indices(n, 1)])
    if not median > 0.0:
        return np.asarray(np.square(targets).sum(axis=1))
    inverse = np.linalg.inv(np.exp(squares / (-0.5 * median)) + RIDGE * np.eye(n))
    return np.asarray(np.square(inverse @ targets / inverse.diagonal()[:, None]).sum(axis=1))
