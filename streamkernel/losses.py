"""Losses: their value, derivative and bounds, each formula written once, compiled.

Every loss is a small value that names its formula. `f` has one column for regression and for two classes, and one
column a class otherwise. A class is told by its number: with one column, 0 (or -1) stands for y = -1 and 1 for
y = +1; with several, softmax takes the place of the logistic loss, and the margin losses are summed over the
classes, one against the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["Hinge", "Huber", "Logistic", "Loss", "Softmax", "Square", "SquaredHinge", "named"]

F64 = npt.NDArray[np.float64]

_LOGISTIC, _SOFTMAX, _HINGE, _SQUARED_HINGE, _SQUARE, _HUBER = range(6)

NOVELTY, RATIO, TRUNCATED_RATIO = range(20, 23)
"""Losses of one estimator each, which brings their classes along: for them y is τ, or ±w for a weight w."""

LARGEST_EXPONENT = 50.0
"""From here on the tangent of exp stands for it."""


@njit(inline="always")
def _label(y, column, columns):  # type: ignore[no-untyped-def]
    """Return ±1 for a class, in its one column or against the rest."""
    positive = y > 0.0 if columns == 1 else column == int(y)
    return 1.0 if positive else -1.0


@njit(inline="always")
def _exp(f):  # type: ignore[no-untyped-def]
    """Return exp(f), or its tangent where that is too large."""
    return math.exp(min(f, LARGEST_EXPONENT)) * (1.0 + max(f - LARGEST_EXPONENT, 0.0))


@njit(cache=True)
def value(code, parameter, f, y):  # type: ignore[no-untyped-def]
    """Return ℓ(f, y) for the scores `f` of one example, shape (columns,)."""
    columns = len(f)
    if code == _SOFTMAX or (code == _LOGISTIC and columns > 1):
        top = f.max()
        return top + math.log(np.exp(f - top).sum()) - f[int(y)]
    total = 0.0
    for c in range(columns):
        t = _label(y, c, columns)
        if code == _LOGISTIC:
            m = t * f[c]
            total += math.log1p(math.exp(-abs(m))) + max(-m, 0.0)
        elif code == _HINGE:
            total += max(0.0, 1.0 - t * f[c])
        elif code == _SQUARED_HINGE:
            total += max(0.0, 1.0 - t * f[c]) ** 2
        elif code == _SQUARE:
            total += 0.5 * (f[c] - y) ** 2
        elif code == NOVELTY:
            total += max(0.0, y - f[c])
        elif code in (RATIO, TRUNCATED_RATIO):
            beyond = code == TRUNCATED_RATIO and f[c] <= -parameter
            dual = -math.exp(f[c] + parameter) if beyond else -1.0 - parameter - f[c]
            total += y * dual if y > 0.0 else -y * _exp(f[c])
        else:
            r = abs(f[c] - y)
            total += 0.5 * r * r if r <= parameter else parameter * (r - 0.5 * parameter)
    return total


@njit(cache=True)
def derivative(code, parameter, f, y, out):  # type: ignore[no-untyped-def]
    """Set `out`, shape (columns,), to ∂ℓ(f, y)/∂f."""
    columns = len(f)
    if code == _SOFTMAX or (code == _LOGISTIC and columns > 1):
        out[:] = np.exp(f - f.max())
        out /= out.sum()
        out[int(y)] -= 1.0
        return
    for c in range(columns):
        t = _label(y, c, columns)
        if code == _LOGISTIC:
            e = math.exp(-abs(f[c]))
            m = t * f[c]
            out[c] = -t * (e / (1.0 + e) if m > 0.0 else 1.0 / (1.0 + e))
        elif code == _HINGE:
            out[c] = -t if t * f[c] < 1.0 else 0.0
        elif code == _SQUARED_HINGE:
            out[c] = -2.0 * t * max(0.0, 1.0 - t * f[c])
        elif code == _SQUARE:
            out[c] = f[c] - y
        elif code == NOVELTY:
            out[c] = -1.0 if f[c] < y else 0.0
        elif code in (RATIO, TRUNCATED_RATIO):
            beyond = code == TRUNCATED_RATIO and f[c] <= -parameter
            slope = -math.exp(f[c] + parameter) if beyond else -1.0
            out[c] = y * slope if y > 0.0 else -y * math.exp(min(f[c], LARGEST_EXPONENT))
        else:
            out[c] = min(max(f[c] - y, -parameter), parameter)


@dataclass(frozen=True)
class Loss:
    """A loss ℓ(f, y), convex in f.

    Attributes
    ----------
    curvature
        The largest second derivative in f; 1 for the hinge, which has none. The default step is its inverse.
    for_classes
        Whether targets are classes or numbers; ``None`` for a loss of one estimator, which brings it along.
    """

    code: ClassVar[int]
    curvature: ClassVar[float] = 1.0
    for_classes: ClassVar[bool | None] = True

    @property
    def parameter(self) -> float:
        """The one number the formula takes, 0 where it takes none."""
        return 0.0

    def bound(self, columns: int) -> float:
        """Return the largest norm of the derivative over `columns` columns; infinity where there is none."""
        return math.sqrt(columns)

    def value(self, f: npt.ArrayLike, y: float) -> float:
        """Return ℓ(f, y).

        Parameters
        ----------
        f
            The score, or the scores of all classes.
        y
            The target: a number, a label -1 or +1, or the number of the class.

        Examples
        --------
        >>> Huber(delta=1.0).value(3.0, 1.0), Hinge().value(0.25, 1)
        (1.5, 0.75)
        """
        scores = np.atleast_1d(np.asarray(f, np.float64))
        return float(value(self.code, self.parameter, scores, float(y)))

    def derivative(self, f: npt.ArrayLike, y: float) -> F64:
        """Return ∂ℓ(f, y)/∂f, shape (columns,).

        Examples
        --------
        >>> Square().derivative(3.0, 1.0), Softmax().derivative([0.0, 0.0], 1)
        (array([2.]), array([ 0.5, -0.5]))
        """
        scores = np.atleast_1d(np.asarray(f, np.float64))
        out = np.empty_like(scores)
        derivative(self.code, self.parameter, scores, float(y), out)
        return out


@dataclass(frozen=True)
class Logistic(Loss):
    """log(1 + exp(-y f)); with more than two classes it is softmax."""

    code: ClassVar[int] = _LOGISTIC
    curvature: ClassVar[float] = 0.25

    def bound(self, columns: int) -> float:
        """Return 1 for one column and √2 for the softmax of several."""
        return 1.0 if columns == 1 else math.sqrt(2.0)


@dataclass(frozen=True)
class Softmax(Loss):
    """-log(exp(f_y) / Σ_c exp(f_c)), with a column for every class, even if they are two."""

    code: ClassVar[int] = _SOFTMAX
    curvature: ClassVar[float] = 0.5

    def bound(self, columns: int) -> float:
        """Return √2."""
        return math.sqrt(2.0)


@dataclass(frozen=True)
class Hinge(Loss):
    """max(0, 1 - y f)."""

    code: ClassVar[int] = _HINGE


@dataclass(frozen=True)
class SquaredHinge(Loss):
    """max(0, 1 - y f)²."""

    code: ClassVar[int] = _SQUARED_HINGE
    curvature: ClassVar[float] = 2.0

    def bound(self, columns: int) -> float:
        """Return infinity."""
        return math.inf


@dataclass(frozen=True)
class Square(Loss):
    """½(f - y)²."""

    code: ClassVar[int] = _SQUARE
    for_classes: ClassVar[bool | None] = False

    def bound(self, columns: int) -> float:
        """Return infinity."""
        return math.inf


@dataclass(frozen=True)
class Huber(Loss):
    """½r² where r = \\|f - y\\| is at most δ, and δ(r - ½δ) beyond.

    Parameters
    ----------
    delta
        The residual δ, in units of the target, from which on errors count linearly.

    Raises
    ------
    ValueError
        If `delta` is not positive.
    """

    delta: float = 1.0
    code: ClassVar[int] = _HUBER
    for_classes: ClassVar[bool | None] = False

    def __post_init__(self) -> None:
        """Check the parameter."""
        if not self.delta > 0:
            raise ValueError(f"Expected delta > 0, got {self.delta!r}")

    @property
    def parameter(self) -> float:
        """δ."""
        return self.delta

    def bound(self, columns: int) -> float:
        """Return δ."""
        return self.delta


_BY_NAME: dict[str, Loss] = {
    "logistic": Logistic(),
    "softmax": Softmax(),
    "hinge": Hinge(),
    "squared_hinge": SquaredHinge(),
    "square": Square(),
    "huber": Huber(),
}


def named(loss: str | Loss, for_classes: bool | None) -> Loss:
    """Return the loss of a name, or the loss itself, if it fits the task.

    Parameters
    ----------
    loss
        A loss or its name: ``"logistic"``, ``"softmax"``, ``"hinge"``, ``"squared_hinge"`` for classes,
        ``"square"``, ``"huber"`` for numbers.
    for_classes
        Whether the labels are classes or numbers; ``None`` for an estimator with a loss of its own.

    Raises
    ------
    ValueError
        If the name is unknown, or the loss is for the other task.

    Examples
    --------
    >>> named("huber", for_classes=False)
    Huber(delta=1.0)
    """
    fitting = [name for name, known in _BY_NAME.items() if known.for_classes == for_classes]
    found = loss if isinstance(loss, Loss) else _BY_NAME.get(loss)
    if found is None or found.for_classes != for_classes:
        kind = "classification" if for_classes else "regression"
        raise ValueError(f"Expected a loss for {kind}, one of {', '.join(fitting)}, got {loss!r}")
    return found
