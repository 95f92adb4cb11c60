"""The losses for classes and for numbers.

For classes `f` has one column if there are two, and one column a class otherwise. A class is given by its number: with
one column, 0 (or -1) stands for y = -1 and 1 for y = +1; with several, softmax takes the place of the logistic loss,
and the others are summed over the classes, one against the rest. For numbers `f` has one column, and a loss is a
function of the residual r = f - y.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from streamkernel.documentation import documented
from streamkernel.errors import is_real
from streamkernel.losses.loss import (
    CORRENTROPY,
    EPSILON_INSENSITIVE,
    HINGE,
    HUBER,
    LOGISTIC,
    QUANTILE,
    SIGMOID,
    SMOOTH_HINGE,
    SOFTMAX,
    SQUARE,
    SQUARED_HINGE,
    Loss,
)

SOURCE = """
References
----------
Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014, section 4.
"""
ERRORS = """
Raises
------
ValueError
    If the parameter is out of its range.
"""
"""Parts of docstrings that losses have in common."""


@documented(SOURCE)
@dataclass(frozen=True)
class Logistic(Loss):
    """log(1 + exp(-y f)); with more than two classes it is softmax.

    Examples
    --------
    >>> Logistic().value(0.0, 1), Logistic().derivative(0.0, 1)
    (0.693..., array([-0.5]))
    """

    code: ClassVar[int] = LOGISTIC
    curvature: ClassVar[float] = 0.25
    is_curved: ClassVar[bool] = True

    def load(self, columns: int = 1) -> int:
        """Load its formulas, or the formulas of the softmax for more than one column."""
        return super().load() if columns == 1 else Softmax().load()

    def bound(self, columns: int) -> float:
        """Return 1 for one column and √2 for the softmax of several."""
        return 1.0 if columns == 1 else math.sqrt(2.0)


@documented(SOURCE)
@dataclass(frozen=True)
class Softmax(Loss):
    """-log(exp(f_y) / Σ_c exp(f_c)), with a column for every class, even if they are two.

    Examples
    --------
    >>> Softmax().value([0.0, 0.0], 1), Softmax().derivative([0.0, 0.0], 1)
    (0.693..., array([ 0.5, -0.5]))
    """

    code: ClassVar[int] = SOFTMAX
    curvature: ClassVar[float] = 0.5
    is_curved: ClassVar[bool] = True

    def bound(self, columns: int) -> float:
        """Return √2."""
        return math.sqrt(2.0)


@documented(SOURCE)
@dataclass(frozen=True)
class Hinge(Loss):
    """max(0, 1 - y f).

    Examples
    --------
    >>> Hinge().value(0.25, 1), Hinge().value(0.25, -1)
    (0.75, 1.25)
    """

    code: ClassVar[int] = HINGE


@documented(SOURCE)
@dataclass(frozen=True)
class SquaredHinge(Loss):
    """max(0, 1 - y f)².

    Examples
    --------
    >>> SquaredHinge().value(0.5, 1), SquaredHinge().derivative(0.5, 1)
    (0.25, array([-1.]))
    """

    code: ClassVar[int] = SQUARED_HINGE
    curvature: ClassVar[float] = 2.0
    is_curved: ClassVar[bool] = True

    def bound(self, columns: int) -> float:
        """Return infinity."""
        return math.inf


@dataclass(frozen=True)
class SmoothHinge(Loss):
    """0 where y f ≥ 1, ½ - y f where y f ≤ 0, and ½(1 - y f)² between.

    References
    ----------
    Gu et al., "Asynchronous Doubly Stochastic Sparse Kernel Learning", AAAI 2018, Table 1.
    Yu, Lin and Yang, "Doubly Stochastic Primal-Dual Coordinate Method for Bilinear Saddle-Point Problem", eq. 3.

    Examples
    --------
    >>> SmoothHinge().value(-1.0, 1), SmoothHinge().value(0.5, 1)
    (1.5, 0.125)
    """

    code: ClassVar[int] = SMOOTH_HINGE
    is_curved: ClassVar[bool] = True


@dataclass(frozen=True)
class Sigmoid(Loss):
    """1 / (1 + exp(y f)): a smooth count of errors, not convex; examples that are far off count no more than others.

    References
    ----------
    Gu et al., "Asynchronous Doubly Stochastic Sparse Kernel Learning", AAAI 2018, Table 1.

    Examples
    --------
    >>> Sigmoid().value(0.0, 1), Sigmoid().derivative(0.0, 1)
    (0.5, array([-0.25]))
    """

    code: ClassVar[int] = SIGMOID
    curvature: ClassVar[float] = 1.0 / math.sqrt(108.0)

    def bound(self, columns: int) -> float:
        """Return ¼√columns."""
        return 0.25 * math.sqrt(columns)


@documented(SOURCE)
@dataclass(frozen=True)
class Square(Loss):
    """½(f - y)².

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


@documented(ERRORS + SOURCE)
@dataclass(frozen=True)
class Huber(Loss):
    r"""½r² where r = \|f - y\| is at most δ, and δ(r - ½δ) beyond.

    Parameters
    ----------
    delta : float, default 1.0
        The residual δ > 0, in units of the target, beyond which the loss is linear.

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
        if not (is_real(self.delta) and self.delta > 0):
            raise ValueError(f"Expected delta > 0, got {self.delta!r}")

    @property
    def parameter(self) -> float:
        """δ."""
        return self.delta

    def bound(self, columns: int) -> float:
        """Return δ."""
        return self.delta


@documented(ERRORS + SOURCE)
@dataclass(frozen=True)
class EpsilonInsensitive(Loss):
    r"""max(0, \|f - y\| - ε), the loss of support vector regression.

    Parameters
    ----------
    epsilon : float, default 0.1
        The largest residual ε ≥ 0 without a loss, in units of the target.

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
        if not (is_real(self.epsilon) and 0 <= self.epsilon < math.inf):
            raise ValueError(f"Expected a finite epsilon >= 0, got {self.epsilon!r}")

    @property
    def parameter(self) -> float:
        """ε."""
        return self.epsilon


@documented(SOURCE)
@dataclass(frozen=True)
class Absolute(Loss):
    r"""\|f - y\|: f becomes the median. It is the ε-insensitive loss of ε = 0.

    Examples
    --------
    >>> Absolute().value(3.0, 1.0), Absolute().derivative(3.0, 1.0)
    (2.0, array([1.]))
    """

    code: ClassVar[int] = EPSILON_INSENSITIVE
    for_classes: ClassVar[bool | None] = False
    directional: ClassVar[bool] = True


@documented(ERRORS + SOURCE)
@dataclass(frozen=True)
class Quantile(Loss):
    """max(τ(y - f), (1 - τ)(f - y)), the pinball loss: f becomes the τ-quantile.

    Parameters
    ----------
    tau : float, default 0.5
        The quantile τ, between 0 and 1: the share of targets that should be below f.

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
        if not (is_real(self.tau) and 0 < self.tau < 1):
            raise ValueError(f"Expected 0 < tau < 1, got {self.tau!r}")

    @property
    def parameter(self) -> float:
        """τ."""
        return self.tau

    def bound(self, columns: int) -> float:
        """Return the larger of τ and 1 - τ."""
        return max(self.tau, 1.0 - self.tau)


@documented(ERRORS + SOURCE)
@dataclass(frozen=True)
class Correntropy(Loss):
    """½σ²(1 - exp(-(f - y)²/σ²)): square near the target, flat far from it, so not convex; outliers do not count.

    Parameters
    ----------
    sigma : float, default 1.0
        The scale σ > 0 of the residual, in units of the target. If all targets are many σ from f, as they may be at
        first, nothing is learned.

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
        if not (is_real(self.sigma) and 0 < self.sigma < math.inf):
            raise ValueError(f"Expected a finite sigma > 0, got {self.sigma!r}")

    @property
    def parameter(self) -> float:
        """σ."""
        return self.sigma

    def bound(self, columns: int) -> float:
        """Return σ/√(2e), which the derivative reaches at r = σ/√2."""
        return self.sigma / math.sqrt(2.0 * math.e)
