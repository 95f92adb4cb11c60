"""Kernels of the difference x - x', through Bochner's theorem: cosines and sines of random projections."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from streamkernel.documentation import documented
from streamkernel.errors import is_real
from streamkernel.features import distributions
from streamkernel.features.compiled_kernel import MULTI_SCALE, PHASE
from streamkernel.kernels.base import KERNEL, FeatureRecipe, Kernel, SimpleKernel, pairs

_SHORTEST = 1e-300
_LARGE_NU = 50.0


class Stationary(SimpleKernel):
    """A kernel of (x - x')/σ, or of (x - x')/ℓ, whose length may be taken from the stream."""

    _length: ClassVar[str] = "sigma"
    _measure: ClassVar[int]
    median_factor: float

    def __post_init__(self) -> None:
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


@documented(KERNEL)
@dataclass(frozen=True)
class Gaussian(_Sigma):
    """k(x, x') = exp(-‖x - x'‖² / 2σ²), whose random directions are N(0, 1/σ²) in every dimension.

    Examples
    --------
    >>> Gaussian(sigma=1.0)({"a": 1.0}, {"a": 1.0, "b": 1.0}).__round__(4)
    0.6065
    """

    _measure: ClassVar[int] = distributions.NORMAL

    def exact(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2)."""
        return math.exp(-0.5 * math.fsum(((a - b) / self.length) ** 2 for a, b in pairs(x, x2)))


@documented(KERNEL)
@dataclass(frozen=True)
class Laplacian(_Sigma):
    """k(x, x') = exp(-‖x - x'‖₁ / σ), whose random directions are Cauchy(0, 1/σ) in every dimension.

    It is rough: a function that it learns may have kinks everywhere.

    Parameters
    ----------
    sigma : float or "median", default "median"
        The scale σ > 0, in units of x. ``"median"`` is the median of the distances ‖x - x'‖₁ between the first 256
        examples.

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


@documented(KERNEL)
@dataclass(frozen=True)
class Cauchy(_Sigma):
    """k(x, x') = ∏ᵢ 1 / (1 + (xᵢ - x'ᵢ)²/σ²), whose random directions are Laplace(0, 1/σ) in every dimension.

    The paper prints a 2 in the numerator, which would make k(x, x) = 2ᵈ; here it is 1.

    Examples
    --------
    >>> Cauchy(sigma=1.0)({"a": 1.0}, {"b": 1.0})
    0.25
    """

    _measure: ClassVar[int] = distributions.LAPLACE

    def exact(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2)."""
        return math.prod(1.0 / (1.0 + ((a - b) / self.length) ** 2) for a, b in pairs(x, x2))


@documented(KERNEL)
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


_MOST = 64
_LARGEST = 1e3


@dataclass(frozen=True)
class MultiScale(SimpleKernel):
    """k(x, x') = (1/M) Σₘ k₁(x/m, x'/m): the mean of a stationary kernel over M multiples m of its bandwidth.

    Block b of a model uses the multiple number b mod M, so the features estimate k if the number of blocks is a
    multiple of M. Without blocks, as in :class:`~streamkernel.RandomFeatures`, features use the multiples in turn. A
    feature costs as much as one of k₁. Learners weigh the functions of the multiples by their losses:
    :class:`~streamkernel.learners.Newton`, and :class:`~streamkernel.learners.DSG` with single events and steps of
    automatic size.

    Parameters
    ----------
    kernel : Stationary
        The kernel k₁, one of Gaussian, Laplacian, Cauchy and Matern. Its bandwidth may be ``"median"``.
    multiples : tuple of float, default (0.25, 0.5, 1.0, 2.0)
        The multiples m, at most 64 of them, from 0.001 to 1000.

    Raises
    ------
    ValueError
        If `kernel` is not one of these, a multiple is out of its range, or there are no multiples or more than 64.
        Models refuse a product of two such kernels, because equal multiples would always be paired.

    References
    ----------
    The mixture of random features over bandwidths is the one of a sum of kernels, Dai et al. 2014, Theorem 3, drawn in
    turns instead of at random.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> k = MultiScale(kernels.Laplacian(1.0), (0.5, 1.0))
    >>> k({"a": 1.0}, {"a": 0.0}).__round__(4)
    0.2516
    """

    kernel: Stationary
    multiples: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0)

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Stationary):
            raise ValueError(f"Expected a kernel with a bandwidth for a MultiScale, got {self.kernel!r}")
        try:
            multiples = tuple(float(m) for m in self.multiples)
        except (TypeError, ValueError):
            raise ValueError(f"Expected numbers as multiples, got {self.multiples!r}") from None
        if not 1 <= len(multiples) <= _MOST or not all(1.0 / _LARGEST <= m <= _LARGEST for m in multiples):
            raise ValueError(
                f"Expected 1 to {_MOST} multiples from {1.0 / _LARGEST:g} to {_LARGEST:g}, got {self.multiples!r}"
            )
        object.__setattr__(self, "multiples", multiples)

    @property
    def norm(self) -> int:
        """That of the kernel."""
        return self.kernel.norm

    @property
    def is_pending(self) -> bool:
        """Whether the bandwidth is still to be taken from a stream."""
        return self.kernel.is_pending

    def with_medians(self, medians: Iterator[float]) -> Kernel:
        """Return the same of the kernel with its bandwidth taken from a median distance."""
        return replace(self, kernel=self.kernel.with_medians(medians))

    @property
    def part(self) -> FeatureRecipe:
        """Phases in units of the shortest bandwidth, and what each multiple multiplies them by, at most 1."""
        part, least = self.kernel.part, min(self.multiples)
        factors = tuple(least / m for m in self.multiples)
        return part._replace(form=MULTI_SCALE, scale=part.scale / least, order=len(factors), table=factors)

    def exact(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2)."""
        values = [
            self.kernel.exact(*({name: v / m for name, v in one.items()} for one in (x, x2))) for m in self.multiples
        ]
        return math.fsum(values) / len(values)
