"""Where a stream is dense: what is novel in it, and the ratio of the densities of two streams."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from river import base

from streamkernel import learners, losses, rules, step_sizes, tensor_file
from streamkernel.documentation import documented
from streamkernel.errors import InputError, is_real, shorten
from streamkernel.estimators.base import KernelModel, learn_table, row_scores
from streamkernel.estimators.model import Model
from streamkernel.estimators.outputs import ModelOutputs
from streamkernel.features.frames import n_rows, native_series
from streamkernel.features.numeric_names import NumericNames
from streamkernel.features.rows import Rows
from streamkernel.kernels import Gaussian, Kernel
from streamkernel.learners import state
from streamkernel.locking import locked
from streamkernel.losses.loss import NOVELTY, RATIO, TRUNCATED_RATIO

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
    _scales_inputs = False
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


@dataclass(frozen=True)
class Ratio(losses.Loss):
    """w r*(-exp f) = -w(1 + f) for an event of q, w exp(f) for one of p; the target is +w for q and -w for p."""

    code: ClassVar[int] = RATIO
    for_classes: ClassVar[bool | None] = None

    def bound(self, columns: int) -> float:
        """Return infinity."""
        return math.inf


@dataclass(frozen=True)
class TruncatedRatio(Ratio):
    """The same with r* of r(t) = max(0, ρ - log t): -exp(f + ρ) where f ≤ -ρ, and -(1 + ρ + f) above."""

    rho: float = 0.0
    code: ClassVar[int] = TRUNCATED_RATIO

    @property
    def parameter(self) -> float:
        """ρ."""
        return self.rho


class Sides(ModelOutputs):
    """Events of p and of q, whose counts and running losses without weights are the additional state of the model."""

    def new_own(self) -> Any:
        """Return the counts of events of p and q, and their running losses without weights."""
        return np.zeros(2, np.int64), np.zeros(2)

    def tensors(self, outputs_state: Any) -> dict[str, Any]:
        """Return the counts and the losses."""
        counts, running = outputs_state
        return {"counts": counts.copy(), "losses": running.copy()}

    def own_in(self, tensors: Mapping[str, Any], labels: int) -> Any:
        """Return the counts and the losses in a file."""
        counts = tensor_file.require_tensor(tensors, "counts", np.int64, (2,))
        if (counts < 0).any():
            raise ValueError(f"expected numbers of events as counts, got {counts.tolist()}")
        return counts, tensor_file.require_tensor(tensors, "losses", np.float64, (2,))


@documented()
class KernelDensityRatio(KernelModel, base.Estimator):
    """Learns log q(x)/p(x) from events of two streams, in any mixture, in bounded memory.

    A divergence between p and q is E_q[r(p/q)] for a convex r with r(1) = 0, and has the variational form

        E_q[r(p/q)] = - min over f of  E_p[exp f] + E_q[r*(-exp f)],

    where r*(χ) = sup over t of χt - r(t) is the Fenchel dual of r. The model takes steps on the right-hand side plus
    (λ/2)‖f‖². (Dai et al. 2014, eq. 8, has p and q exchanged: E_q[exp f] - E_p[f] is smallest where
    q exp f = p, which is f = log p/q.)

    * ``divergence="kl"``: r(t) = -log t and r*(χ) = -1 - log(-χ), so the loss is E_p[exp f] - E_q[1 + f]. Pointwise
      p exp f - q f is smallest where p exp f = q, which is f = log q/p, and minus the smallest value is KL(q‖p).
    * ``divergence="novelty"``: r(t) = max(0, ρ - log t). In χt - r(t) the best t is -1/χ if that is below exp ρ, and
      exp ρ otherwise, so r*(χ) = -1 - ρ - log(-χ) for χ < -exp(-ρ), and χ exp ρ for -exp(-ρ) ≤ χ ≤ 0. Pointwise the
      loss is as before where f > -ρ, and (p - q exp ρ) exp f below: f is log q/p where that is above -ρ, and decreases
      where it is not. The model does not distinguish small ratios, and a prediction is at least -ρ.

    Streams of unequal length are weighted by the inverse of their shares π of the events so far, so that both
    expectations have equal weight: an event of the rarer stream has the weight 2, one of the other
    2π_rare/π_frequent. λ is scaled by 2π_rare, so the minimum is that of the function above, and a rare stream does
    not lengthen steps.

    Parameters
    ----------
    kernel : Kernel or None, default None
        The kernel; by default a Gaussian of the median distance between the first 256 events.
    divergence : {"kl", "novelty"}, default "kl"
        The divergence: Kullback-Leibler, or its truncation, as above.
    rho : float, default 0.0
        With ``"novelty"``, ρ ≤ 0: ratios q/p below exp(-ρ) are not distinguished.
    learner : str or learners.DSG or None, default None
        ``"dsg"``, or :class:`~streamkernel.learners.DSG` with its options. The default is `DSG` with
        ``rule=rules.DSG()``: a new block at each step, up to the cap. (The steps of `rules.CDSG` depend on the
        derivative, whose size differs between p and q, so the result is biased.) ``step_size="auto"`` is the constant
        0.02.
    max_features : int or None, default 1024
        The largest number of random features; ``None`` is no limit.
    l2 : float, default 0.001
        The regularisation λ. Where q has events and p has none, log q/p is infinite, and only λ bounds f.

    Attributes
    ----------
    divergence_ : float
        The running estimate of the divergence.
    learner_
    kernel_
    n_features

    References
    ----------
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014, section 4, eq. 8.
    Nguyen, Wainwright and Jordan, "Estimating Divergence Functionals and the Likelihood Ratio by Convex Risk
    Minimization", IEEE Transactions on Information Theory 56, 2010.
    Smola, Song and Teo, "Relative Novelty Detection", AISTATS 2009.

    Examples
    --------
    >>> import random
    >>> from streamkernel import KernelDensityRatio, learners, rules
    >>> learner = learners.DSG(rule=rules.DSG(), averaging=True)
    >>> model, generator = KernelDensityRatio(learner=learner), random.Random(1)
    >>> for _ in range(5000):  # q = N(1, 1) and p = N(0, 1): log q/p = x - ½, and KL(q‖p) = ½
    ...     model.learn_one({"x": generator.gauss(1.0, 1.0)}, True)
    ...     model.learn_one({"x": generator.gauss(0.0, 1.0)}, False)
    >>> [round(model.predict_one({"x": x}), 1) for x in (-1.0, 0.0, 1.0, 2.0)]
    [-1.5, -0.5, 0.4, 1.4]
    >>> round(model.divergence_, 1)
    0.5
    """

    divergence: str
    rho: float
    _for_classes = None
    _scales_inputs = False
    _default_kernel = Gaussian("median")
    _default_learner = learners.DSG(rule=rules.DSG())

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        divergence: Literal["kl", "novelty"] = "kl",
        rho: float = 0.0,
        learner: str | learners.DSG | None = None,
        max_features: int | None = 1024,
        l2: float = 0.001,
        cache_bytes: int = 1 << 26,
        seed: int = 0,
    ) -> None:
        if divergence not in ("kl", "novelty"):
            raise ValueError(f'Expected divergence to be "kl" or "novelty", got {divergence!r}')
        if not (is_real(rho) and -math.inf < rho <= 0.0):
            raise ValueError(f"Expected rho <= 0, got {rho!r}")
        loss = Ratio() if divergence == "kl" else TruncatedRatio(float(rho))
        self._make({**locals(), "loss": loss})

    @property
    def divergence_(self) -> float:
        """The divergence of q from p, over the last thousand events of each, evaluated before learning.

        -E_p[exp f] - E_q[r*(-exp f)] is a lower bound, up to sampling error, of KL(q‖p) with ``divergence="kl"`` and of
        E_q[max(0, ρ + log q/p)] with ``divergence="novelty"``. It is 0 until events of both streams have been learned.
        """
        counts, running = self._state.own
        return -float(running.sum()) if counts.all() else 0.0

    def _outputs(self) -> Sides:
        return Sides()

    def learn_one(self, x: Mapping[Hashable, Any], y: bool) -> None:
        """Learn from one event.

        Parameters
        ----------
        y : bool
            ``True`` for an event of q, ``False`` for an event of p.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string, or `y` is not a Boolean. The model is unchanged.
        """
        if not isinstance(y, (bool, np.bool_)):
            raise InputError(f"Expected True for an event of q or False for one of p, got {shorten(y)} - at y")
        model = self._model
        try:
            model_state = model.state
            row, numeric = model_state.learner.directions.learnable_row(x, model_state.numeric)
            _learn_side(model, row, int(y), numeric, self.l2)
        except (InputError, TypeError, AttributeError, IndexError):
            model.check(x)
            raise

    def predict_one(self, x: Mapping[Hashable, Any]) -> float:
        """Return the estimate of log q(x)/p(x), or with ``divergence="novelty"`` of its maximum with -ρ."""
        f = float(self._model.score(x)[0])
        return f if self.divergence == "kl" else max(f, -self.rho)

    def _default_step(self) -> step_sizes.Step:
        return step_sizes.Constant(0.02)


@locked()
def _learn_side(model: Model, row: Rows, side: int, numeric: NumericNames, l2: float) -> None:
    """Learn from one event of p, side 0, or of q, side 1."""
    model.recover()
    model_state, sign = model.state, 1.0 if side else -1.0
    f = float(model_state.learner.scores(row, model_state.scales)[0, 0])
    counts, running = (part.copy() for part in model_state.own)
    counts[side] += 1
    rarer, count = counts.min() + 1, counts[side] + 1
    loss = model_state.learner.loss.value(f, sign)
    running[side] += (loss - running[side]) / min(counts[side], state.HORIZON)
    model_state.learner.numbers["l2"] = l2 * 2.0 * rarer / (counts.sum() + 2)
    model_state = replace(model_state, numeric=numeric)
    model.offer(row, np.array([sign * 2.0 * rarer / count]), model_state, (counts, running))
