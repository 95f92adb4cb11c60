"""Kernels of the dot product ⟨x, x'⟩."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from streamkernel.documentation import documented
from streamkernel.errors import is_count, is_real
from streamkernel.features import distributions
from streamkernel.features.compiled_kernel import ARC_COSINE, MOST_DEGREE, SIGN_PRODUCTS, SKETCH
from streamkernel.kernels.base import KERNEL, FeatureRecipe, SimpleKernel, pairs


@dataclass(frozen=True)
class DotProduct(SimpleKernel):
    """k(x, x') = Σₙ aₙ ⟨x, x'⟩ⁿ with aₙ at least 0: a feature is √(a_N/P[N]) ∏_{i≤N} ωᵢᵀx with ωᵢ of ±1.

    The degree N of a feature is drawn with P[N = n] ∝ 2^-(n+1) over the n with aₙ > 0. The features' variance grows
    like ‖x‖²ⁿ: scale inputs to a norm of about 1 (``kernel.of("unit")`` does).

    Parameters
    ----------
    coefficients : tuple of float, default (1.0, 1.0)
        The coefficients a₀, a₁, ..., at most 32. Truncate an infinite series where its terms are negligible:
        ``[1 / math.factorial(n) for n in range(20)]`` is exp(⟨x, x'⟩).

    Raises
    ------
    ValueError
        If there are no coefficients or more than 32, or one is negative.

    References
    ----------
    Dai et al. 2014, Table 1. Kar and Karnick, "Random Feature Maps for Dot Product Kernels", 2012.

    Examples
    --------
    >>> DotProduct([1.0, 2.0, 1.0])({"a": 2.0}, {"a": 1.0, "b": 1.0})
    9.0
    """

    coefficients: tuple[float, ...] = (1.0, 1.0)

    def __post_init__(self) -> None:
        try:
            coefficients = tuple(float(a) for a in self.coefficients)
        except (TypeError, ValueError):
            raise ValueError(f"Expected numbers as coefficients, got {self.coefficients!r}") from None
        if (
            not 1 <= len(coefficients) <= MOST_DEGREE + 1
            or not all(0 <= a < math.inf for a in coefficients)
            or not any(coefficients)
        ):
            raise ValueError(f"Expected 1 to {MOST_DEGREE + 1} coefficients of at least 0, got {self.coefficients!r}")
        object.__setattr__(self, "coefficients", coefficients)

    @property
    def part(self) -> FeatureRecipe:
        """Products of projections, with the cumulative probabilities of the degrees and √(aₙ/P[n])."""
        halves = [0.5 ** (n + 1) if a > 0 else 0.0 for n, a in enumerate(self.coefficients)]
        chances = [half / math.fsum(halves) for half in halves]
        below = [*itertools.accumulate(chances), *[1.0] * MOST_DEGREE][: MOST_DEGREE + 1]
        weights = [math.sqrt(a / chance) if a else 0.0 for a, chance in zip(self.coefficients, chances, strict=True)]
        constant = self.coefficients[0] if not any(self.coefficients[1:]) else 0.0
        order = max(n for n, a in enumerate(self.coefficients) if a)
        return FeatureRecipe(SIGN_PRODUCTS, distributions.SIGNS, order=order, table=(*below, *weights), itself=constant)

    def exact(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2)."""
        dot = math.fsum(a * b for a, b in pairs(x, x2))
        return math.fsum(a * dot**n for n, a in enumerate(self.coefficients))


@documented(KERNEL)
@dataclass(frozen=True)
class Polynomial(SimpleKernel):
    """k(x, x') = (⟨x, x'⟩ + c)ᵖ, by TensorSketch: the circular convolution of p count sketches of (x, √c).

    A block is one sketch into as many buckets as it has features: larger blocks have fewer collisions.

    Parameters
    ----------
    degree : int, default 2
        The degree p, from 1 to 31.
    c : float, default 1.0
        The constant c of at least 0; with 0 the features are products of exactly p inputs.

    References
    ----------
    Dai et al. 2014, Table 1. Pham and Pagh, "Fast and Scalable Polynomial Kernels via Explicit Feature Maps", 2013.

    Examples
    --------
    >>> Polynomial(degree=2, c=1.0)({"a": 2.0}, {"a": 1.0, "b": 1.0})
    9.0
    """

    degree: int = 2
    c: float = 1.0

    def __post_init__(self) -> None:
        if not (is_count(self.degree, 1) and self.degree <= MOST_DEGREE):
            raise ValueError(f"Expected an integer from 1 to {MOST_DEGREE} as degree, got {self.degree!r}")
        if not (is_real(self.c) and 0 <= self.c < math.inf):
            raise ValueError(f"Expected c >= 0, got {self.c!r}")

    @property
    def part(self) -> FeatureRecipe:
        """Count sketches, which need no drawn direction."""
        return FeatureRecipe(SKETCH, distributions.SIGNS, shape=math.sqrt(self.c), order=self.degree)

    def exact(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2)."""
        return float((math.fsum(a * b for a, b in pairs(x, x2)) + self.c) ** self.degree)


@documented(KERNEL)
@dataclass(frozen=True)
class ArcCosine(SimpleKernel):
    """k(x, x') = (1/π) ‖x‖ⁿ ‖x'‖ⁿ Jₙ(θ), θ the angle between x and x': a layer of infinitely many units.

    J₀ = π - θ, J₁ = sin θ + (π - θ) cos θ, J₂ = 3 sin θ cos θ + (π - θ)(1 + 2 cos² θ). A feature is the unit √2 (ωᵀx)ⁿ
    where ωᵀx > 0, with ω of N(0, I). At x = 0 no unit is active, and k is 0, also for n = 0.

    Parameters
    ----------
    order : int, default 1
        The order n: 0 (step functions), 1 (rectified linear units) or 2 (their squares).

    References
    ----------
    Dai et al. 2014, Table 1. Cho and Saul, "Kernel Methods for Deep Learning", 2009.

    Examples
    --------
    >>> ArcCosine(order=0)({"a": 1.0}, {"b": 3.0}), ArcCosine(order=1)({"a": 2.0}, {"a": 3.0})
    (0.5, 6.0)
    """

    order: int = 1

    def __post_init__(self) -> None:
        if not (is_count(self.order, 0) and self.order <= 2):
            raise ValueError(f"Expected order to be 0, 1 or 2, got {self.order!r}")

    @property
    def part(self) -> FeatureRecipe:
        """Rectified powers of projections."""
        return FeatureRecipe(ARC_COSINE, distributions.NORMAL, order=int(self.order))

    def exact(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2)."""
        norm, norm2 = math.hypot(*x.values()), math.hypot(*x2.values())
        if norm == 0.0 or norm2 == 0.0:
            return 0.0
        units = [(a / norm, b / norm2) for a, b in pairs(x, x2)]
        # 2 atan2(|u - v|, |u + v|): exact for small angles, unlike the arc cosine.
        theta = 2.0 * math.atan2(math.hypot(*(a - b for a, b in units)), math.hypot(*(a + b for a, b in units)))
        c, s, rest = math.cos(theta), math.sin(theta), math.pi - theta
        angular = (rest, s + rest * c, 3.0 * s * c + rest * (1.0 + 2.0 * c * c))[self.order]
        return (norm * norm2) ** self.order * angular / math.pi
