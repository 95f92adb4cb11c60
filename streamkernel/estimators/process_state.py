"""The state of a Gaussian process, and the choices made from its first examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from streamkernel.features.rows import F64, Rows
from streamkernel.kernels import Kernel, bandwidth
from streamkernel.posterior import marginal_likelihood
from streamkernel.posterior.feature_matrix import FeatureMap
from streamkernel.posterior.posteriors import Posterior

FirstExamples = tuple[tuple[Rows, float], ...]
"""Examples and their targets."""


class ProcessState(NamedTuple):
    """The state of a Gaussian process; everything that compiled code does not change is replaced in one assignment.

    Attributes
    ----------
    phis
        The features; for the paper's operator a second set, ω', as well.
    posterior
        The posterior of f.
    offset
        The origin of the targets.
    ratio
        The noise in units of the prior variance of f.
    first
        Examples that still decide the bandwidth and the noise, with their targets; ``None`` once both are known.
    journal
        An example that is being learned, its target, and how many examples the posterior had before.
    """

    phis: tuple[FeatureMap, ...]
    posterior: Posterior
    offset: float
    ratio: float
    first: FirstExamples | None
    journal: tuple[Rows, float, int] | None = None


def choose_by_first(
    seen: ProcessState, first: FirstExamples, given: Kernel, choice: Sequence[float], *, is_noise_given: bool
) -> tuple[tuple[FeatureMap, ...], float, float]:
    """Return the features, the origin of the targets and the noise ratio chosen from the first examples.

    Parameters
    ----------
    seen
        The state so far.
    first
        The examples.
    given
        The kernel; a bandwidth that is pending is one of the multiples in `choice` of their median distance.
    choice
        The multiples.
    is_noise_given
        Whether the noise is known, and with it the origin.
    """
    rows, y = Rows.stack([row for row, _ in first]), np.array([y for _, y in first])
    phi, offset, ratio, kernels = seen.phis[0], seen.offset, seen.ratio, [seen.phis[0].kernel]
    if given.is_pending:
        kernels = [bandwidth.with_medians(given, phi.directions.plan, rows, multiple) for multiple in choice]
    if not is_noise_given:
        offset = float(np.average(y, weights=rows.weights))
        found = [(*_likelihood(phi.with_kernel(kernel), rows, y - offset), kernel) for kernel in kernels]
        _, ratio, kernels[0] = max(found, key=lambda candidate: candidate[0])
    return tuple(phi.with_kernel(kernels[0]) for phi in seen.phis), offset, ratio


def _likelihood(phi: FeatureMap, rows: Rows, y: F64) -> tuple[float, float]:
    """Return how likely the targets are with some features at best, and the ratio of noise it is with.

    Targets of noise σ²/w are √w times as large with noise σ², and so is f.
    """
    root = np.sqrt(rows.weights)
    features = phi(rows) * root[:, None]
    return marginal_likelihood.most_likely(features @ features.T + np.outer(root, root), y * root)
