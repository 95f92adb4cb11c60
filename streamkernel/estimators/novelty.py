"""The kernel novelty detector."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from river import base

from streamkernel import learners, losses, rules, step_sizes
from streamkernel.estimators.base import KernelModel
from streamkernel.features.frames import n_rows, native_series
from streamkernel.kernels import Kernel
from streamkernel.learners import state
from streamkernel.losses import compiled

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame

MEMORY = 500
"""Events after which a support vector has faded to 1/e with the default step."""


@dataclass(frozen=True)
class Novelty(losses.Loss):
    """max(0, τ - f), where the threshold τ is the target."""

    code: ClassVar[int] = compiled.NOVELTY
    for_classes: ClassVar[bool | None] = None


class KernelNoveltyDetector(KernelModel, base.AnomalyDetector):
    """A one-class support vector machine that learns from a stream, in bounded memory.

    It learns a function f that is large where events are common, and a threshold τ that a fraction `nu` of the events
    stays below, by

        min over f, τ of  E[max(0, τ - f(x))] + (ν/2)‖f‖² - ντ.

    An event below the threshold pulls f up where it is, by γφ(x), and τ down by γ(1 - ν); any other event moves only τ,
    up by γν. All coefficients shrink by 1 - γν at each step. Scores are comparable between events of one time; what
    is a large score depends on the kernel.

    Parameters
    ----------
    kernel
        The kernel; by default a Gaussian of 0.4 times the median distance between the first 256 events.
    nu
        The fraction ν of the events to score above 0, strictly between 0 and 1. It is the regularisation too: with a
        small one f is made of few events, and ranks less well.
    learner
        One of :mod:`streamkernel.learners`, or ``"dsg"``. By default `DSG` with ``rule=rules.DSG()``: a new block at
        each step, up to the cap.
        (The derivative has one sign, so `rules.CDSG` never finds an old block that is worth a longer step.) With
        ``step_size="auto"`` the step is the constant 1/(500 ν), with which an event has faded to 1/e of its weight 500
        events later. Longer memory needs a smaller one.
    max_features, cache_bytes, seed
        As for :class:`~streamkernel.KernelClassifier`.

    Attributes
    ----------
    threshold : float
        The threshold τ.
    objective : float
        The running value of what is minimised.
    n_features, n_seeds, n_steps, n_reused, kernel_
        As for :class:`~streamkernel.KernelClassifier`.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    References
    ----------
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014, section 4.
    Schölkopf et al., "Estimating the Support of a High-Dimensional Distribution", Neural Computation 13, 2001.

    Examples
    --------
    >>> import math
    >>> from streamkernel import KernelNoveltyDetector
    >>> detector = KernelNoveltyDetector()
    >>> for i in range(1000):  # points on a circle
    ...     detector.learn_one({"x": math.cos(i), "y": math.sin(i)})
    >>> on, inside, outside = {"x": 0.6, "y": 0.8}, {"x": 0.0, "y": 0.0}, {"x": 3.0, "y": 0.0}
    >>> [round(detector.score_one(x), 2) for x in (on, inside, outside)]
    [0.0, 0.03, 0.19]
    """

    _for_classes = None

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        nu: float = 0.5,
        learner: str | learners.DSG | None = None,
        max_features: int | None = 1024,
        cache_bytes: int = 1 << 26,
        seed: int = 0,
    ) -> None:
        if isinstance(nu, str) or not 0.0 < nu < 1.0:
            raise ValueError(f"Expected 0 < nu < 1, got {nu!r}")
        self.nu = nu
        super().__init__(
            kernel=kernel,
            loss=Novelty(),
            learner=learners.DSG(rule=rules.DSG()) if learner is None else learner,
            max_features=max_features,
            l2=nu,
            cache_bytes=cache_bytes,
            seed=seed,
        )
        self.learner = learner

    @property
    def _intercept(self) -> int:
        return state.MARGIN

    @property
    def threshold(self) -> float:
        """The threshold τ."""
        return -float(self._learner.numbers["offset"])

    @property
    def objective(self) -> float:
        """The running value of E[max(0, τ - f(x))] + (ν/2)‖f‖² - ντ."""
        return super().objective - self.nu * self.threshold

    def learn_one(self, x: Mapping[Hashable, Any]) -> None:
        """Learn from one event.

        Parameters
        ----------
        x
            The features by name: numbers, or strings as indicators. A name that is missing, or whose value is ``None``
            or NaN, counts as 0. A string where a number was learned is refused.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string; names the field.
            The model is as it was before.
        """
        self._learn_event(x, 0.0)

    def score_one(self, x: Mapping[Hashable, Any]) -> float:
        """Return τ - f(x): the higher, the more unlike what was learned.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string.
        """
        return -float(self._score(x))

    def learn_many(self, X: IntoDataFrame, *, verbose: bool = False) -> None:
        """Learn from the rows of a data frame in order: a fast way to say :meth:`learn_one` for each.

        Parameters
        ----------
        X
            The features, shape (examples, features), as for :class:`~streamkernel.KernelClassifier`.
        verbose
            Whether to show a progress line on standard error.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string; names the column and the row. Nothing is learned.
        """
        rows = n_rows(X)
        self._learn_table(X, np.zeros(rows), np.ones(rows), verbose=verbose)

    def score_many(self, X: IntoDataFrame) -> Any:
        """Return the score of each row of a data frame.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string; names the column and the row.
        """
        return native_series(-self._scores_in(X)[:, 0], X)

    def _default_step(self) -> step_sizes.Step:
        return step_sizes.Constant(1.0 / (MEMORY * self.nu))
