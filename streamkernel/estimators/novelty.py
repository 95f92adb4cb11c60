"""The kernel novelty detector."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from river import base

from streamkernel import learners, losses, rules, step_sizes
from streamkernel.documentation import documented
from streamkernel.errors import is_real
from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.outputs import ModelOutputs
from streamkernel.estimators.tables import learn_table, row_scores
from streamkernel.features.frames import n_rows, native_series
from streamkernel.kernels import Kernel
from streamkernel.learners import state
from streamkernel.losses.loss import NOVELTY

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame

MEMORY = 500
"""Events after which a support vector has faded to 1/e with the default step."""


@dataclass(frozen=True)
class Novelty(losses.Loss):
    """max(0, τ - f), where the threshold τ is the target."""

    code: ClassVar[int] = NOVELTY
    for_classes: ClassVar[bool | None] = None


@documented()
class KernelNoveltyDetector(KernelModel, base.AnomalyDetector):
    """A one-class support vector machine that learns from a stream, in bounded memory.

    It learns a function f that is large where events are common, and a threshold τ such that f(x) < τ for a fraction
    `nu` of the events, by

        min over f, τ of  E[max(0, τ - f(x))] + (ν/2)‖f‖² - ντ.

    An event below the threshold increases f at x by γφ(x) and decreases τ by γ(1 - ν); any other event only increases
    τ, by γν. All coefficients shrink by 1 - γν at each step. Scores of events at about the same time are comparable;
    the magnitude of a large score depends on the kernel.

    Parameters
    ----------
    kernel : Kernel or None, default None
        The kernel; by default a Gaussian of 0.4 times the median distance between the first 256 events.
    nu : float, default 0.5
        The fraction ν of events with a score above 0, strictly between 0 and 1. It is also the regularisation: with a
        small value, f depends on few events and ranks less well.
    learner : str or learners.DSG or None, default None
        ``"dsg"``, or :class:`~streamkernel.learners.DSG` with its options. The default is `DSG` with
        ``rule=rules.DSG()``: a new block at each step, up to the cap. (The derivative has one sign, so `rules.CDSG`
        never finds an old block with a longer step.) With ``step_size="auto"`` the step is the constant 1/(500 ν), so
        that the weight of an event falls to 1/e after 500 events. A longer memory needs a smaller step.
    max_features : int or None, default 1024
        The largest number of random features; ``None`` is no limit.

    Attributes
    ----------
    threshold : float
        The threshold τ.
    objective : float
        The running value of the objective.
    learner_
    kernel_
    n_features

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

    nu: float
    _for_classes = None
    _default_learner = learners.DSG(rule=rules.DSG())

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
        if not (is_real(nu) and 0.0 < nu < 1.0):
            raise ValueError(f"Expected 0 < nu < 1, got {nu!r}")
        self._make(locals() | {"loss": Novelty(), "l2": nu})

    def _outputs(self) -> ModelOutputs:
        return ModelOutputs(state.MARGIN)

    @property
    def threshold(self) -> float:
        """The threshold τ."""
        return -float(self._learner.numbers["offset"])

    @property
    def objective(self) -> float:
        """The running value of E[max(0, τ - f(x))] + (ν/2)‖f‖² - ντ."""
        learner = self._model.frozen().learner
        return learner.objective + self.nu * float(learner.numbers["offset"])

    def learn_one(self, x: Mapping[Hashable, Any]) -> None:
        """Learn from one event.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string; the message names the field. The model is unchanged.
        """
        self._model.learn_event(x, 0.0)

    def score_one(self, x: Mapping[Hashable, Any]) -> float:
        """Return τ - f(x), which is higher for events that differ more from those learned."""
        return -float(self._model.score(x)[0])

    def learn_many(self, X: IntoDataFrame, *, verbose: bool = False) -> None:
        """Learn from the rows of a data frame in order, as :meth:`learn_one` of each row does, and faster.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string; the message names the column and the row. Nothing is
            learned.
        """
        rows = n_rows(X)
        learn_table(self._model, X, np.zeros(rows), np.ones(rows), verbose=verbose)

    def score_many(self, X: IntoDataFrame) -> Any:
        """Return the score of each row of a data frame."""
        return native_series(-row_scores(self._model, X)[0][:, 0], X)

    def _default_step(self) -> step_sizes.Step:
        return step_sizes.Constant(1.0 / (MEMORY * self.nu))
