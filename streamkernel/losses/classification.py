"""Losses for classes.

`f` has one column for two classes, and one column a class otherwise. A class is given by its number: with one column, 0
(or -1) stands for y = -1 and 1 for y = +1; with several, softmax takes the place of the logistic loss, and the others
are summed over the classes, one against the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from streamkernel.losses.loss import HINGE, LOGISTIC, SIGMOID, SMOOTH_HINGE, SOFTMAX, SQUARED_HINGE, Loss


@dataclass(frozen=True)
class Logistic(Loss):
    """log(1 + exp(-y f)); with more than two classes it is softmax.

    References
    ----------
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014, section 4.

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


@dataclass(frozen=True)
class Softmax(Loss):
    """-log(exp(f_y) / Σ_c exp(f_c)), with a column for every class, even if they are two.

    References
    ----------
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014, section 4.

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


@dataclass(frozen=True)
class Hinge(Loss):
    """max(0, 1 - y f).

    References
    ----------
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014, section 4.

    Examples
    --------
    >>> Hinge().value(0.25, 1), Hinge().value(0.25, -1)
    (0.75, 1.25)
    """

    code: ClassVar[int] = HINGE


@dataclass(frozen=True)
class SquaredHinge(Loss):
    """max(0, 1 - y f)².

    References
    ----------
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014, section 4.

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
