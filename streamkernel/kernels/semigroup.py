"""Kernels of the sum x + x', for inputs of at least 0: Laplace transforms, with features exp(-ωᵀx)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from streamkernel.errors import is_real
from streamkernel.features import distributions
from streamkernel.features.compiled_kernel import EXPONENTIAL
from streamkernel.kernels.base import FeatureRecipe, SimpleKernel, pairs


@dataclass(frozen=True)
class ExponentialSemigroup(SimpleKernel):
    """k(x, x') = exp(-β Σᵢ √(xᵢ + x'ᵢ)), for xᵢ at least 0; ω is Lévy with density β/(2√π) ω^(-3/2) exp(-β²/4ω).

    Parameters
    ----------
    beta : float, default 1.0
        The coefficient β > 0, in units of 1/√x.

    Raises
    ------
    ValueError
        If `beta` is not positive.

    References
    ----------
    Dai et al. 2014, Table 1, whose density lacks the square of β. Yang et al., "Random Laplace Feature Maps for
    Semigroup Kernels on Histograms", 2014.

    Examples
    --------
    >>> ExponentialSemigroup(beta=1.0)({"a": 1.0}, {"b": 1.0}).__round__(4)
    0.1353
    """

    beta: float = 1.0

    def __post_init__(self) -> None:
        """Check the parameter."""
        if not (is_real(self.beta) and 0 < self.beta <= 1e100):
            raise ValueError(f"Expected 0 < beta <= 1e100, got {self.beta!r}")

    @property
    def part(self) -> FeatureRecipe:
        """Exponentials: β²/2z² with z of N(0, 1) has the density above."""
        return FeatureRecipe(EXPONENTIAL, distributions.LEVY, scale=float(self.beta) ** 2, least=0.0)

    def exact(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2)."""
        return math.exp(-self.beta * math.fsum(math.sqrt(a + b) for a, b in pairs(x, x2)))


@dataclass(frozen=True)
class ReciprocalSemigroup(SimpleKernel):
    """k(x, x') = ∏ᵢ λ/(xᵢ + x'ᵢ + λ), for xᵢ at least 0; ω is exponential with rate λ.

    Parameters
    ----------
    rate : float, default 1.0
        The rate λ > 0, in units of x.

    Raises
    ------
    ValueError
        If `rate` is not positive.

    References
    ----------
    Dai et al. 2014, Table 1. Yang et al. 2014.

    Examples
    --------
    >>> ReciprocalSemigroup(rate=1.0)({"a": 1.0}, {"a": 2.0, "b": 1.0})
    0.125
    """

    rate: float = 1.0

    def __post_init__(self) -> None:
        """Check the parameter."""
        if not (is_real(self.rate) and 0 < self.rate < math.inf):
            raise ValueError(f"Expected rate > 0, got {self.rate!r}")

    @property
    def part(self) -> FeatureRecipe:
        """Exponentials."""
        return FeatureRecipe(EXPONENTIAL, distributions.EXPONENTIAL, scale=1.0 / self.rate, least=0.0)

    def exact(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2)."""
        return math.prod(self.rate / (a + b + self.rate) for a, b in pairs(x, x2))
