"""Kernels of the difference x - x', through Bochner's theorem: cosines and sines of random projections."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from streamkernel.errors import is_real
from streamkernel.features import distributions
from streamkernel.features.compiled_kernel import PHASE
from streamkernel.kernels.base import FeatureRecipe, SimpleKernel, pairs

_SHORTEST = 1e-300
_LARGE_NU = 50.0


class Stationary(SimpleKernel):
    """A kernel of (x - x')/σ, or of (x - x')/ℓ, whose length may be taken from the stream."""

    _length: ClassVar[str] = "sigma"
    _measure: ClassVar[int]
    median_factor: float

    def __post_init__(self) -> None:
        """Check the parameters."""
        length, factor = getattr(self, self._length), self.median_factor
        if length != "median" and not (is_real(length) and _SHORTEST < float(length) < math.inf):
            raise ValueError(f'Expected {self._length} to be a positive number or "median", got {length!r}')
        if not (is_real(factor) and 0 < factor < math.inf):
            raise ValueError(f"Expected median_factor > 0, got {factor!r}")

    @property
    def norm(self) -> int:
        """Of the distance whose median the length is a multiple of."""
        return 2

    @property
    def length(self) -> float:
        """σ or ℓ; it must be known."""
        return float(getattr(self, self._length))

    @property
    def is_pending(self) -> bool:
        """Whether the length is still to be taken from a stream."""
        return bool(getattr(self, self._length) == "median")

    @property
    def part(self) -> FeatureRecipe:
        """Phases ωᵀx, counted in turns of the circle."""
        return FeatureRecipe(PHASE, self._measure, scale=1.0 / (2.0 * math.pi * self.length), itself=1.0)

    def pending(self, median_factor: float) -> Stationary:
        """Return the kernel whose length is to be taken from the stream."""
        return replace(self, **{self._length: "median", "median_factor": median_factor})

    def with_medians(self, medians: Iterator[float]) -> Stationary:
        """Return the kernel whose length, if it is pending, is `median_factor` times the next median distance."""
        median = next(medians)
        return (
            replace(self, **{self._length: self.median_factor * median, "median_factor": 1.0})
            if self.is_pending
            else self
        )


@dataclass(frozen=True)
class _Sigma(Stationary):
    sigma: float | Literal["median"] = "median"
    median_factor: float = 1.0


@dataclass(frozen=True)
class Gaussian(_Sigma):
    """k(x, x') = exp(-‖x - x'‖² / 2σ²), whose random directions are N(0, 1/σ²) in every dimension.

    Parameters
    ----------
    sigma : float or "median", default "median"
        The bandwidth σ > 0, in units of x. ``"median"`` is the median distance between the first 256 examples that a
        model learns.
    median_factor : float, default 1.0
        The factor of the median distance, greater than 0; used with ``"median"``.

    Raises
    ------
    ValueError
        If `sigma` is neither a positive number nor ``"median"``, or `median_factor` is not positive.

    References
    ----------
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014, Table 1.

    Examples
    --------
    >>> Gaussian(sigma=1.0)({"a": 1.0}, {"a": 1.0, "b": 1.0}).__round__(4)
    0.6065
    """

    _measure: ClassVar[int] = distributions.NORMAL

    def exact(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2)."""
        return math.exp(-0.5 * math.fsum(((a - b) / self.length) ** 2 for a, b in pairs(x, x2)))


@dataclass(frozen=True)
class Laplacian(_Sigma):
    """k(x, x') = exp(-‖x - x'‖₁ / σ), whose random directions are Cauchy(0, 1/σ) in every dimension.

    It is rough: a function that it learns may have kinks everywhere.

    Parameters
    ----------
    sigma : float or "median", default "median"
        The scale σ > 0, in units of x. ``"median"`` is the median of the distances ‖x - x'‖₁ between the first 256
        examples.
    median_factor : float, default 1.0
        The factor of the median distance, greater than 0; used with ``"median"``.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    References
    ----------
    Dai et al. 2014, Table 1.

    Examples
    --------
    >>> Laplacian(sigma=2.0)({"a": 1.0}, {"a": 0.0, "b": 1.0}).__round__(4)
    0.3679
    """

    _measure: ClassVar[int] = distributions.CAUCHY

    @property
    def norm(self) -> int:
        """Of ‖x - x'‖₁."""
        return 1

    def exact(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2)."""
        return math.exp(-math.fsum(abs(a - b) / self.length for a, b in pairs(x, x2)))


@dataclass(frozen=True)
class Cauchy(_Sigma):
    """k(x, x') = ∏ᵢ 1 / (1 + (xᵢ - x'ᵢ)²/σ²), whose random directions are Laplace(0, 1/σ) in every dimension.

    The paper prints a 2 in the numerator, which would make k(x, x) = 2ᵈ; here it is 1.

    Parameters
    ----------
    sigma : float or "median", default "median"
        The scale σ > 0, in units of x. ``"median"`` is the median distance between the first 256 examples.
    median_factor : float, default 1.0
        The factor of the median distance, greater than 0; used with ``"median"``.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    References
    ----------
    Dai et al. 2014, Table 1.

    Examples
    --------
    >>> Cauchy(sigma=1.0)({"a": 1.0}, {"b": 1.0})
    0.25
    """

    _measure: ClassVar[int] = distributions.LAPLACE

    def exact(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2)."""
        return math.prod(1.0 / (1.0 + ((a - b) / self.length) ** 2) for a, b in pairs(x, x2))


@dataclass(frozen=True)
class Matern(Stationary):
    """The Matérn kernel: 2^(1-ν)/Γ(ν) rᵛ K_ν(r) with r = √(2ν) ‖x - x'‖/ℓ.

    The larger ν, the smoother the functions that it learns. Its random directions are multivariate t: normal ones times
    √(2ν/χ²_2ν)/ℓ, one χ² for each feature.

    Parameters
    ----------
    nu : float, default 1.5
        The smoothness ν, from 0.01 to 10¹⁰: ½ is exp(-‖x - x'‖/ℓ), and for ν → ∞ it becomes :class:`Gaussian`.
    length_scale : float or "median", default "median"
        The length ℓ > 0, in units of x. ``"median"`` is the median distance between the first 256 examples.
    median_factor : float, default 1.0
        The factor of the median distance, greater than 0; used with ``"median"``.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    References
    ----------
    Dai et al. 2014, Table 1. Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, eq. 4.14.

    Examples
    --------
    >>> Matern(nu=0.5, length_scale=2.0)({"a": 1.0}, {"a": 3.0}).__round__(4)
    0.3679
    """

    nu: float = 1.5
    length_scale: float | Literal["median"] = "median"
    median_factor: float = 1.0

    _length: ClassVar[str] = "length_scale"

    def __post_init__(self) -> None:
        """Check the parameters."""
        super().__post_init__()
        if not (is_real(self.nu) and 0.01 <= self.nu <= 1e10):
            raise ValueError(f"Expected 0.01 <= nu <= 1e10, got {self.nu!r}")

    @property
    def part(self) -> FeatureRecipe:
        """Phases with one χ² for each feature."""
        scale = 1.0 / (2.0 * math.pi * self.length)
        return FeatureRecipe(PHASE, distributions.STUDENT, scale=scale, shape=float(self.nu), itself=1.0)

    def exact(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2)."""
        from scipy.special import gammaln, kve

        r = math.sqrt(2.0 * self.nu * math.fsum(((a - b) / self.length) ** 2 for a, b in pairs(x, x2)))
        if r == 0.0:
            return 1.0
        if self.nu > _LARGE_NU:
            return _smooth_matern(self.nu, r)
        logarithm = (1.0 - self.nu) * math.log(2.0) - gammaln(self.nu) + self.nu * math.log(r) - r
        return float(min(1.0, math.exp(logarithm) * kve(self.nu, r)))


def _smooth_matern(nu: float, r: float) -> float:
    """Return 2^(1-ν)/Γ(ν) rᵛ K_ν(r) for a large ν, where K_ν overflows (Abramowitz and Stegun 1964, 9.7.8 and 6.1.41).

    With s² = 1 + (r/ν)² the expansions of both functions leave exp(ν(1 - s + log ½(1 + s)))/√s and corrections.
    """
    square = (r / nu) ** 2
    s = math.sqrt(1.0 + square)
    half, t = 0.5 * square / (1.0 + s), 1.0 / s  # ½(s - 1) without its rounding
    u1, u2 = (3.0 * t - 5.0 * t**3) / 24.0, (81.0 * t**2 - 462.0 * t**4 + 385.0 * t**6) / 1152.0
    correction = math.log1p(-u1 / nu + u2 / nu**2) - 1.0 / (12.0 * nu)
    return min(1.0, math.exp(nu * (math.log1p(half) - 2.0 * half) + correction) / math.sqrt(s))
