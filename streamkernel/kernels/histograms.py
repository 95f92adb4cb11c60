"""Kernels of histograms: sums and products over the features, and functions of the sum x + x'.

**Sums**, for inputs of at least 0: each is homogeneous, kᵢ(x, x') = √(x x') K(log x - log x'), and K is the Fourier
transform of a density from which ω is drawn for every name (Vedaldi and Zisserman, "Efficient Additive Kernels via
Explicit Feature Maps", 2012).

**Products**, for inputs above -c: functions of the differences of log(x + c), so that their features are cosines and
sines of ωᵀlog(x + c) (Li, Ionescu, Sminchisescu 2010). Here the logarithm is of 1 + x/c, which changes no product of
features and is 0 for a missing value.

**Functions of x + x'**, for inputs of at least 0: Laplace transforms, with features exp(-ωᵀx).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from streamkernel.documentation import documented
from streamkernel.errors import is_real
from streamkernel.features import distributions
from streamkernel.features.compiled_kernel import ADDITIVE, EXPONENTIAL, LINEAR, LOG, PHASE, ROOT
from streamkernel.kernels.base import KERNEL, FeatureRecipe, SimpleKernel, pairs


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


@dataclass(frozen=True)
class _Skewed(SimpleKernel):
    c: float = 1.0

    _measure: ClassVar[int]
    _spread: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if not (is_real(self.c) and 1e-100 <= self.c < math.inf):
            raise ValueError(f"Expected c > 0, got {self.c!r}")

    @property
    def part(self) -> FeatureRecipe:
        """Phases of log(1 + x/c)."""
        scale, least = self._spread / (2.0 * math.pi), math.nextafter(-self.c, 0.0)
        return FeatureRecipe(PHASE, self._measure, scale, LOG, shift=float(self.c), least=least, itself=1.0)


@documented(KERNEL)
@dataclass(frozen=True)
class SkewedChiSquared(_Skewed):
    """k(x, x') = ∏ᵢ 2√(xᵢ + c)√(x'ᵢ + c)/(xᵢ + x'ᵢ + 2c), for xᵢ above -c; ω has the density sech(πω) for each name.

    Parameters
    ----------
    c : float, default 1.0
        The shift c > 0, in units of x: the scale at which counts differ.

    References
    ----------
    Dai et al. 2014, Table 1. Li, Ionescu and Sminchisescu, "Random Fourier Approximations for Skewed Multiplicative
    Histogram Kernels", 2010.

    Examples
    --------
    >>> SkewedChiSquared(c=1.0)({"a": 3.0}, {"b": 0.0})
    0.8
    """

    _measure: ClassVar[int] = distributions.SECH

    def exact(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2)."""
        return math.prod(_sech(0.5 * (math.log(a + self.c) - math.log(b + self.c))) for a, b in pairs(x, x2))


@documented(KERNEL)
@dataclass(frozen=True)
class SkewedIntersection(_Skewed):
    """k(x, x') = ∏ᵢ min(√((xᵢ + c)/(x'ᵢ + c)), √((x'ᵢ + c)/(xᵢ + c))), for xᵢ above -c; ω is Cauchy(0, ½).

    Parameters
    ----------
    c : float, default 1.0
        The shift c > 0, in units of x.

    References
    ----------
    Dai et al. 2014, Table 1. Li, Ionescu and Sminchisescu 2010.

    Examples
    --------
    >>> SkewedIntersection(c=1.0)({"a": 3.0}, {"b": 0.0})
    0.5
    """

    _measure: ClassVar[int] = distributions.CAUCHY
    _spread: ClassVar[float] = 0.5

    def exact(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2)."""
        return math.exp(-0.5 * math.fsum(abs(math.log(a + self.c) - math.log(b + self.c)) for a, b in pairs(x, x2)))


def _sech(z: float) -> float:
    return 2.0 * math.exp(-abs(z)) / (1.0 + math.exp(-2.0 * abs(z)))


@documented(KERNEL)
@dataclass(frozen=True)
class ExponentialSemigroup(SimpleKernel):
    """k(x, x') = exp(-β Σᵢ √(xᵢ + x'ᵢ)), for xᵢ at least 0; ω is Lévy with density β/(2√π) ω^(-3/2) exp(-β²/4ω).

    Parameters
    ----------
    beta : float, default 1.0
        The coefficient β > 0, in units of 1/√x.

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
        if not (is_real(self.beta) and 0 < self.beta <= 1e100):
            raise ValueError(f"Expected 0 < beta <= 1e100, got {self.beta!r}")

    @property
    def part(self) -> FeatureRecipe:
        """Exponentials: β²/2z² with z of N(0, 1) has the density above."""
        return FeatureRecipe(EXPONENTIAL, distributions.LEVY, scale=float(self.beta) ** 2, least=0.0)

    def exact(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2)."""
        return math.exp(-self.beta * math.fsum(math.sqrt(a + b) for a, b in pairs(x, x2)))


@documented(KERNEL)
@dataclass(frozen=True)
class ReciprocalSemigroup(SimpleKernel):
    """k(x, x') = ∏ᵢ λ/(xᵢ + x'ᵢ + λ), for xᵢ at least 0; ω is exponential with rate λ.

    Parameters
    ----------
    rate : float, default 1.0
        The rate λ > 0, in units of x.

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
        if not (is_real(self.rate) and 0 < self.rate < math.inf):
            raise ValueError(f"Expected rate > 0, got {self.rate!r}")

    @property
    def part(self) -> FeatureRecipe:
        """Exponentials."""
        return FeatureRecipe(EXPONENTIAL, distributions.EXPONENTIAL, scale=1.0 / self.rate, least=0.0)

    def exact(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2)."""
        return math.prod(self.rate / (a + b + self.rate) for a, b in pairs(x, x2))
