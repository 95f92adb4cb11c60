"""The base class of losses, a small value that names a compiled formula; and the formulas of every loss.

Each loss has a number. Its formulas are functions of one score, and are members of the families `value`,
`derivative` and `curvature`, which take the scores of all columns; so a model compiles the formulas of its own loss
alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from numba import types

from streamkernel.jit import Family, inlined

LOGISTIC, SOFTMAX, HINGE, SQUARED_HINGE, SMOOTH_HINGE, SIGMOID = range(6)
SQUARE, HUBER, EPSILON_INSENSITIVE, QUANTILE, CORRENTROPY = range(6, 11)
NOVELTY, RATIO, TRUNCATED_RATIO = range(11, 14)
"""The last three are losses of one estimator each, which has them built in: their y is τ, or ±w for a weight w."""
LARGEST_EXPONENT = 50.0
"""The score beyond which exp is replaced by its tangent."""
_SCORES = types.float64[::1]
value = Family("loss_value", types.float64(types.float64, _SCORES, types.float64))
"""``value(loss, parameter, f, y)`` is ℓ(f, y) for the scores `f` of one example, shape (columns,)."""
derivative = Family("loss_derivative", types.void(types.float64, _SCORES, types.float64, _SCORES))
"""``derivative(loss, parameter, f, y, out)`` sets `out`, shape (columns,), to ∂ℓ(f, y)/∂f."""
curvature = Family("loss_curvature", types.void(types.float64, _SCORES, types.float64, _SCORES))
"""``curvature(loss, parameter, f, y, out)`` sets `out`, shape (columns,), to what a Newton step takes for ∂²ℓ(f,
y)/∂f_c².

Where a loss is straight, its second derivative would send a step anywhere. There it is |ℓ'| over the distance from
the bend for the Huber and smooth hinge losses, and a quarter of ℓ'² for the logistic one."""
F64 = npt.NDArray[np.float64]


def require(loss: int) -> None:
    """Load a loss for compiled code."""
    for family in (value, derivative, curvature):
        if loss in family:
            family.require(loss)


@inlined
def _label(y, column, columns):  # type: ignore[no-untyped-def]
    """Return ±1 for a class, in its one column or against the rest."""
    positive = y > 0.0 if columns == 1 else column == int(y)
    return 1.0 if positive else -1.0


def of_margins(loss: int, cost: Any, slope: Any, bend: Any = None) -> None:
    """Define formulas of the margin m = ±f and the parameter a, summed over columns, each class against the rest."""

    @value.member(loss)
    def margin_value(parameter, f, y):  # type: ignore[no-untyped-def]
        total = 0.0
        for c in range(len(f)):
            total += cost(_label(y, c, len(f)) * f[c])
        return total

    @derivative.member(loss)
    def margin_derivative(parameter, f, y, out):  # type: ignore[no-untyped-def]
        for c in range(len(f)):
            t = _label(y, c, len(f))
            out[c] = t * slope(t * f[c])

    if bend is not None:

        @curvature.member(loss)
        def margin_curvature(parameter, f, y, out):  # type: ignore[no-untyped-def]
            for c in range(len(f)):
                out[c] = bend(_label(y, c, len(f)) * f[c])


def of_scores(loss: int, cost: Any, slope: Any, bend: Any = None) -> None:
    """Define formulas of the score f, the target y and the parameter a."""

    @value.member(loss)
    def score_value(parameter, f, y):  # type: ignore[no-untyped-def]
        total = 0.0
        for c in range(len(f)):
            total += cost(f[c], y, parameter)
        return total

    @derivative.member(loss)
    def score_derivative(parameter, f, y, out):  # type: ignore[no-untyped-def]
        for c in range(len(f)):
            out[c] = slope(f[c], y, parameter)

    if bend is not None:

        @curvature.member(loss)
        def score_curvature(parameter, f, y, out):  # type: ignore[no-untyped-def]
            for c in range(len(f)):
                out[c] = bend(f[c], y, parameter)


@value.member(SOFTMAX)
def softmax_value(parameter, f, y):  # type: ignore[no-untyped-def]
    top, total = f.max(), 0.0
    for c in range(len(f)):
        total += math.exp(f[c] - top)
    return top + math.log(total) - f[int(y)]


@inlined
def _probabilities(f, out):  # type: ignore[no-untyped-def]
    """Set `out` to the softmax of the scores."""
    top, total = f.max(), 0.0
    for c in range(len(f)):
        out[c] = math.exp(f[c] - top)
        total += out[c]
    for c in range(len(f)):
        out[c] /= total


@derivative.member(SOFTMAX)
def softmax_derivative(parameter, f, y, out):  # type: ignore[no-untyped-def]
    _probabilities(f, out)
    out[int(y)] -= 1.0


@curvature.member(SOFTMAX)
def softmax_curvature(parameter, f, y, out):  # type: ignore[no-untyped-def]
    _probabilities(f, out)
    for c in range(len(f)):
        off = out[c] - 1.0 if c == int(y) else out[c]
        out[c] = max(out[c] * (1.0 - out[c]), 0.25 * off * off)


@inlined
def _miss(m):  # type: ignore[no-untyped-def]
    """Return the probability of the other class, 1 / (1 + exp(m))."""
    e = math.exp(-abs(m))
    return (e if m > 0.0 else 1.0) / (1.0 + e)


@inlined
def _logistic_bend(m):  # type: ignore[no-untyped-def]
    off = _miss(m)
    return max(off * (1.0 - off), 0.25 * off * off)


of_margins(
    LOGISTIC,
    inlined(lambda m: math.log1p(math.exp(-abs(m))) + max(-m, 0.0)),
    inlined(lambda m: -_miss(m)),
    _logistic_bend,
)


of_margins(
    HINGE,
    inlined(lambda m: max(0.0, 1.0 - m)),
    inlined(lambda m: -1.0 if m < 1.0 else 0.0),
)  # fmt: skip


of_margins(
    SQUARED_HINGE,
    inlined(lambda m: max(0.0, 1.0 - m) ** 2),
    inlined(lambda m: -2.0 * max(0.0, 1.0 - m)),
    inlined(lambda m: 2.0 if m < 1.0 else 0.0),
)


of_margins(
    SMOOTH_HINGE,
    inlined(lambda m: 0.5 - m if m <= 0.0 else 0.5 * max(0.0, 1.0 - m) ** 2),
    inlined(lambda m: -min(max(0.0, 1.0 - m), 1.0)),
    inlined(lambda m: 1.0 / max(1.0, 1.0 - m) if m < 1.0 else 0.0),
)


of_margins(SIGMOID, _miss, inlined(lambda m: -math.exp(-abs(m)) / (1.0 + math.exp(-abs(m))) ** 2))


of_scores(
    SQUARE,
    inlined(lambda f, y, parameter: 0.5 * (f - y) ** 2),
    inlined(lambda f, y, parameter: f - y),
    inlined(lambda f, y, parameter: 1.0),
)


@inlined
def _huber(f, y, delta):  # type: ignore[no-untyped-def]
    r = f - y
    return 0.5 * r * r if abs(r) <= delta else delta * (abs(r) - 0.5 * delta)


of_scores(
    HUBER,
    _huber,
    inlined(lambda f, y, delta: min(max(f - y, -delta), delta)),
    inlined(lambda f, y, delta: delta / max(delta, abs(f - y))),
)


of_scores(
    EPSILON_INSENSITIVE,
    inlined(lambda f, y, epsilon: max(0.0, abs(f - y) - epsilon)),
    inlined(lambda f, y, epsilon: math.copysign(1.0, f - y) if abs(f - y) > epsilon else 0.0),
)


of_scores(
    QUANTILE,
    inlined(lambda f, y, tau: max(-tau * (f - y), (1.0 - tau) * (f - y))),
    inlined(lambda f, y, tau: 1.0 - tau if f - y >= 0.0 else -tau),
)


of_scores(
    CORRENTROPY,
    inlined(lambda f, y, sigma: -0.5 * sigma**2 * math.expm1(-(((f - y) / sigma) ** 2))),
    inlined(lambda f, y, sigma: (f - y) * math.exp(-(((f - y) / sigma) ** 2))),
)


of_scores(
    NOVELTY,
    inlined(lambda f, threshold, parameter: max(0.0, threshold - f)),
    inlined(lambda f, threshold, parameter: -1.0 if f < threshold else 0.0),
)


@inlined
def _exp(f):  # type: ignore[no-untyped-def]
    """Return exp(f), or its tangent where that is too large."""
    return math.exp(min(f, LARGEST_EXPONENT)) * (1.0 + max(f - LARGEST_EXPONENT, 0.0))


@inlined
def _exp_slope(f):  # type: ignore[no-untyped-def]
    return math.exp(min(f, LARGEST_EXPONENT))


of_scores(
    RATIO,
    inlined(lambda f, w, rho: w * (-1.0 - rho - f) if w > 0.0 else -w * _exp(f)),
    inlined(lambda f, w, rho: -w if w > 0.0 else -w * _exp_slope(f)),
)


@inlined
def _truncated_ratio(f, w, rho):  # type: ignore[no-untyped-def]
    if w <= 0.0:
        return -w * _exp(f)
    return w * (-math.exp(f + rho) if f <= -rho else -1.0 - rho - f)


@inlined
def _truncated_ratio_slope(f, w, rho):  # type: ignore[no-untyped-def]
    if w <= 0.0:
        return -w * _exp_slope(f)
    return -w * math.exp(f + rho) if f <= -rho else -w


of_scores(TRUNCATED_RATIO, _truncated_ratio, _truncated_ratio_slope)


@dataclass(frozen=True)
class Loss:
    """A loss ℓ(f, y); all losses except :class:`Sigmoid` and :class:`Correntropy` are convex in f.

    Attributes
    ----------
    curvature : float
        The largest absolute second derivative in f; 1 where there is none. The default step is its inverse.
    for_classes : bool or None
        ``True`` if targets are classes, ``False`` if they are numbers, ``None`` for a loss of one estimator.
    directional : bool
        Whether the derivative depends only on the sign of the error; the default step is then in units of the targets.
    is_curved : bool
        Whether the loss is convex with a second derivative, so that second-order steps are possible.
    """

    code: ClassVar[int]
    curvature: ClassVar[float] = 1.0
    for_classes: ClassVar[bool | None] = True
    directional: ClassVar[bool] = False
    is_curved: ClassVar[bool] = False

    @property
    def parameter(self) -> float:
        """The parameter of the formula, 0 without one."""
        return 0.0

    def load(self, columns: int = 1) -> int:
        """Load the compiled formulas for a number of columns, and return their code.

        Parameters
        ----------
        columns : int, default 1
            The number of columns of f.
        """
        require(self.code)
        return self.code

    def bound(self, columns: int) -> float:
        """Return the largest norm of the derivative over `columns` columns, which may be infinite.

        Parameters
        ----------
        columns : int
            The number of columns of f.
        """
        return math.sqrt(columns)

    def value(self, f: npt.ArrayLike, y: float) -> float:
        """Return ℓ(f, y).

        Parameters
        ----------
        f : array_like
            The score, or the scores of all classes.
        y : float
            The target: a number, a label -1 or +1, or the number of the class.

        Examples
        --------
        >>> from streamkernel.losses import Hinge, Huber
        >>> Huber(delta=1.0).value(3.0, 1.0), Hinge().value(0.25, 1)
        (1.5, 0.75)
        """
        scores = np.atleast_1d(np.asarray(f, np.float64))
        return float(value(self.load(len(scores)), self.parameter, scores, float(y)))

    def derivative(self, f: npt.ArrayLike, y: float) -> F64:
        """Return ∂ℓ(f, y)/∂f, shape (columns,); a subderivative at a kink.

        Examples
        --------
        >>> from streamkernel.losses import Softmax, Square
        >>> Square().derivative(3.0, 1.0), Softmax().derivative([0.0, 0.0], 1)
        (array([2.]), array([ 0.5, -0.5]))
        """
        scores = np.atleast_1d(np.asarray(f, np.float64))
        out = np.empty_like(scores)
        derivative(self.load(len(scores)), self.parameter, scores, float(y), out)
        return out
