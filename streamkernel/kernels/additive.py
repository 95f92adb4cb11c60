"""Kernels of histograms that are sums over the features, for inputs of at least 0.

Each is homogeneous: kᵢ(x, x') = √(x x') K(log x - log x'), and K is the Fourier transform of a density from which ω is
drawn for every name (Vedaldi and Zisserman, "Efficient Additive Kernels via Explicit Feature Maps", 2012).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from streamkernel.features import distributions
from streamkernel.features.compiled_kernel import ADDITIVE, LINEAR, ROOT
from streamkernel.kernels.base import FeatureRecipe, SimpleKernel, pairs


@dataclass(frozen=True)
class Hellinger(SimpleKernel):
    """k(x, x') = Σᵢ √(xᵢ x'ᵢ), for xᵢ at least 0: a feature is ωᵀ√x with ω of ±1.

    References
    ----------
    Dai et al. 2014, Table 1, whose factor 2 is for ω of 0 and 1.

    Examples
    --------
    >>> Hellinger()({"a": 4.0, "b": 1.0}, {"a": 1.0})
    2.0
    """

    @property
    def part(self) -> FeatureRecipe:
        """Projections of √x."""
        return FeatureRecipe(LINEAR, distributions.RADEMACHER, transform=ROOT, least=0.0)

    def exact(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2)."""
        return math.fsum(math.sqrt(a) * math.sqrt(b) for a, b in pairs(x, x2))


@dataclass(frozen=True)
class _Homogeneous(SimpleKernel):
    """Features Σᵢ sᵢ √xᵢ exp(iω log xᵢ), with signs sᵢ that make products of two names vanish on average."""

    _measure: ClassVar[int]
    _spread: ClassVar[float] = 1.0

    @property
    def part(self) -> FeatureRecipe:
        """Signed sums of phases."""
        return FeatureRecipe(ADDITIVE, self._measure, shape=self._spread / (2.0 * math.pi), least=0.0)


@dataclass(frozen=True)
class ChiSquared(_Homogeneous):
    """k(x, x') = Σᵢ 2xᵢx'ᵢ/(xᵢ + x'ᵢ), for xᵢ at least 0; ω has the density sech(πω).

    References
    ----------
    Dai et al. 2014, Table 1. Vedaldi and Zisserman 2012.

    Examples
    --------
    >>> ChiSquared()({"a": 1.0, "b": 1.0}, {"a": 3.0})
    1.5
    """

    _measure: ClassVar[int] = distributions.SECH

    def exact(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2)."""
        return math.fsum(2.0 * a * (b / (a + b)) for a, b in pairs(x, x2) if a > 0.0 and b > 0.0)


@dataclass(frozen=True)
class Intersection(_Homogeneous):
    """k(x, x') = Σᵢ min(xᵢ, x'ᵢ), for xᵢ at least 0; ω is Cauchy(0, ½).

    References
    ----------
    Dai et al. 2014, Table 1, whose density integrates to ½. Vedaldi and Zisserman 2012.

    Examples
    --------
    >>> Intersection()({"a": 1.0, "b": 1.0}, {"a": 3.0})
    1.0
    """

    _measure: ClassVar[int] = distributions.CAUCHY
    _spread: ClassVar[float] = 0.5

    def exact(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2)."""
        return math.fsum(min(a, b) for a, b in pairs(x, x2))


@dataclass(frozen=True)
class JensenShannon(_Homogeneous):
    """k(x, x') = Σᵢ ½xᵢ log₂((xᵢ + x'ᵢ)/xᵢ) + ½x'ᵢ log₂((xᵢ + x'ᵢ)/x'ᵢ), for xᵢ at least 0.

    ω has the density sech(πω)/(1 + 4ω²), normalised, so that k(x, x) = Σ xᵢ.

    References
    ----------
    Dai et al. 2014, Table 1. Vedaldi and Zisserman 2012.

    Examples
    --------
    >>> JensenShannon()({"a": 1.0, "b": 1.0}, {"a": 1.0})
    1.0
    """

    _measure: ClassVar[int] = distributions.JENSEN_SHANNON

    def exact(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2)."""
        both = [(a, b, math.log2(a + b)) for a, b in pairs(x, x2) if a > 0.0 and b > 0.0]
        return math.fsum(0.5 * (a * (log - math.log2(a)) + b * (log - math.log2(b))) for a, b, log in both)
