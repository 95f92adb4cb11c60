"""The base class of losses: a small value that names a compiled formula."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from streamkernel.losses import compiled

F64 = npt.NDArray[np.float64]


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
        compiled.require(self.code)
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
        return float(compiled.value(self.load(len(scores)), self.parameter, scores, float(y)))

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
        compiled.derivative(self.load(len(scores)), self.parameter, scores, float(y), out)
        return out
