"""Losses for numbers, of the residual r = f - y; `f` has one column."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from streamkernel.errors import is_real
from streamkernel.losses.loss import CORRENTROPY, EPSILON_INSENSITIVE, HUBER, QUANTILE, SQUARE, Loss


@dataclass(frozen=True)
class Square(Loss):
    """½(f - y)².

    References
    ----------
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014, section 4.

    Examples
    --------
    >>> Square().value(3.0, 1.0), Square().derivative(3.0, 1.0)
    (2.0, array([2.]))
    """

    code: ClassVar[int] = SQUARE
    for_classes: ClassVar[bool | None] = False
    is_curved: ClassVar[bool] = True

    def bound(self, columns: int) -> float:
        """Return infinity."""
        return math.inf


@dataclass(frozen=True)
class Huber(Loss):
    r"""½r² where r = \|f - y\| is at most δ, and δ(r - ½δ) beyond.

    Parameters
    ----------
    delta : float, default 1.0
        The residual δ > 0, in units of the target, beyond which the loss is linear.

    Raises
    ------
    ValueError
        If `delta` is not positive.

    References
    ----------
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014, section 4.

    Examples
    --------
    >>> Huber(delta=1.0).value(3.0, 1.0), Huber(delta=1.0).derivative(3.0, 1.0)
    (1.5, array([1.]))
    """

    delta: float = 1.0
    code: ClassVar[int] = HUBER
    for_classes: ClassVar[bool | None] = False
    is_curved: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the parameter."""
        if not (is_real(self.delta) and self.delta > 0):
            raise ValueError(f"Expected delta > 0, got {self.delta!r}")

    @property
    def parameter(self) -> float:
        """δ."""
        return self.delta

    def bound(self, columns: int) -> float:
        """Return δ."""
        return self.delta


@dataclass(frozen=True)
class EpsilonInsensitive(Loss):
    r"""max(0, \|f - y\| - ε), the loss of support vector regression.

    Parameters
    ----------
    epsilon : float, default 0.1
        The largest residual ε ≥ 0 without a loss, in units of the target.

    Raises
    ------
    ValueError
        If `epsilon` is negative or not finite.

    References
    ----------
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014, section 4.

    Examples
    --------
    >>> EpsilonInsensitive(0.5).value(3.0, 1.0), EpsilonInsensitive(0.5).derivative(3.0, 1.0)
    (1.5, array([1.]))
    """

    epsilon: float = 0.1
    code: ClassVar[int] = EPSILON_INSENSITIVE
    for_classes: ClassVar[bool | None] = False
    directional: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the parameter."""
        if not (is_real(self.epsilon) and 0 <= self.epsilon < math.inf):
            raise ValueError(f"Expected a finite epsilon >= 0, got {self.epsilon!r}")

    @property
    def parameter(self) -> float:
        """ε."""
        return self.epsilon


@dataclass(frozen=True)
class Absolute(Loss):
    r"""\|f - y\|: f becomes the median. It is the ε-insensitive loss of ε = 0.

    References
    ----------
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014, section 4.

    Examples
    --------
    >>> Absolute().value(3.0, 1.0), Absolute().derivative(3.0, 1.0)
    (2.0, array([1.]))
    """

    code: ClassVar[int] = EPSILON_INSENSITIVE
    for_classes: ClassVar[bool | None] = False
    directional: ClassVar[bool] = True


@dataclass(frozen=True)
class Quantile(Loss):
    """max(τ(y - f), (1 - τ)(f - y)), the pinball loss: f becomes the τ-quantile.

    Parameters
    ----------
    tau : float, default 0.5
        The quantile τ, between 0 and 1: the share of targets that should be below f.

    Raises
    ------
    ValueError
        If `tau` is not between 0 and 1.

    References
    ----------
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014, section 4.

    Examples
    --------
    >>> Quantile(0.75).value(1.0, 3.0), Quantile(0.75).value(3.0, 1.0)
    (1.5, 0.5)
    """

    tau: float = 0.5
    code: ClassVar[int] = QUANTILE
    for_classes: ClassVar[bool | None] = False
    directional: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the parameter."""
        if not (is_real(self.tau) and 0 < self.tau < 1):
            raise ValueError(f"Expected 0 < tau < 1, got {self.tau!r}")

    @property
    def parameter(self) -> float:
        """τ."""
        return self.tau

    def bound(self, columns: int) -> float:
        """Return the larger of τ and 1 - τ."""
        return max(self.tau, 1.0 - self.tau)


@dataclass(frozen=True)
class Correntropy(Loss):
    """½σ²(1 - exp(-(f - y)²/σ²)): square near the target, flat far from it, so not convex; outliers do not count.

    Parameters
    ----------
    sigma : float, default 1.0
        The scale σ > 0 of the residual, in units of the target. If all targets are many σ from f, as they may be at
        first, nothing is learned.

    Raises
    ------
    ValueError
        If `sigma` is not positive and finite.

    References
    ----------
    Gu et al., "Asynchronous Doubly Stochastic Sparse Kernel Learning", AAAI 2018, Table 1.

    Examples
    --------
    >>> Correntropy(2.0).value(0.0, 0.0), Correntropy(2.0).value(0.0, 1e6)
    (0.0, 2.0)
    """

    sigma: float = 1.0
    code: ClassVar[int] = CORRENTROPY
    for_classes: ClassVar[bool | None] = False

    def __post_init__(self) -> None:
        """Check the parameter."""
        if not (is_real(self.sigma) and 0 < self.sigma < math.inf):
            raise ValueError(f"Expected a finite sigma > 0, got {self.sigma!r}")

    @property
    def parameter(self) -> float:
        """σ."""
        return self.sigma

    def bound(self, columns: int) -> float:
        """Return σ/√(2e), which the derivative reaches at r = σ/√2."""
        return self.sigma / math.sqrt(2.0 * math.e)
