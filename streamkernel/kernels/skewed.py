"""Kernels of histograms that are products over the features, for inputs above -c (Li, Ionescu, Sminchisescu 2010).

They are functions of the differences of log(x + c), so their features are cosines and sines of ωᵀlog(x + c). Here the
logarithm is that of 1 + x/c, which changes no product of features and is 0 for a missing value.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from streamkernel.errors import is_real
from streamkernel.features import distributions
from streamkernel.features.compiled_kernel import LOG, PHASE
from streamkernel.kernels.base import FeatureRecipe, SimpleKernel, pairs


@dataclass(frozen=True)
class _Skewed(SimpleKernel):
    c: float = 1.0

    _measure: ClassVar[int]
    _spread: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        """Check the parameter."""
        if not (is_real(self.c) and 1e-100 <= self.c < math.inf):
            raise ValueError(f"Expected c > 0, got {self.c!r}")

    @property
    def part(self) -> FeatureRecipe:
        """Phases of log(1 + x/c)."""
        scale, least = self._spread / (2.0 * math.pi), math.nextafter(-self.c, 0.0)
        return FeatureRecipe(PHASE, self._measure, scale, LOG, shift=float(self.c), least=least, itself=1.0)


@dataclass(frozen=True)
class SkewedChiSquared(_Skewed):
    """k(x, x') = ∏ᵢ 2√(xᵢ + c)√(x'ᵢ + c)/(xᵢ + x'ᵢ + 2c), for xᵢ above -c; ω has the density sech(πω) for each name.

    Parameters
    ----------
    c : float, default 1.0
        The shift c > 0, in units of x: the scale at which counts differ.

    Raises
    ------
    ValueError
        If `c` is not positive.

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


@dataclass(frozen=True)
class SkewedIntersection(_Skewed):
    """k(x, x') = ∏ᵢ min(√((xᵢ + c)/(x'ᵢ + c)), √((x'ᵢ + c)/(xᵢ + c))), for xᵢ above -c; ω is Cauchy(0, ½).

    Parameters
    ----------
    c : float, default 1.0
        The shift c > 0, in units of x.

    Raises
    ------
    ValueError
        If `c` is not positive.

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
