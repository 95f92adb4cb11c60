"""The kernel regressor."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from river import base

from streamkernel import learners, losses
from streamkernel.documentation import documented
from streamkernel.estimators import explaining
from streamkernel.estimators.base import KernelModel, learn_table, row_scores
from streamkernel.estimators.outputs import ModelOutputs
from streamkernel.estimators.targets import as_target, as_weight, weights_of
from streamkernel.features.frames import n_rows, native_series, targets_of
from streamkernel.kernels import Kernel
from streamkernel.learners import state
from streamkernel.upkeep import Pruning, Refit

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame, IntoSeries


@documented()
class KernelRegressor(KernelModel, base.MiniBatchRegressor):
    """A kernel machine for numbers that learns from a stream, in bounded memory.

    The prediction is an intercept plus a function f of the inputs, which grows by blocks of random features up to
    `max_features`. The intercept is the running mean of the targets. For the absolute, ε-insensitive and quantile
    losses it is learned with f: far from all examples, where f is 0, the prediction of a quantile is then between the
    mean and that quantile of all targets.

    Parameters
    ----------
    loss : str or losses.Loss, default "square"
        ``"square"``, ``"huber"``, ``"absolute"``, ``"quantile"``, ``"epsilon_insensitive"``, ``"correntropy"``, or one
        of :mod:`streamkernel.losses`. An unbounded derivative is clipped at the largest one so far, which at most
        doubles per step, so one outlier does not ruin the model. With Newton steps, δ of ``"huber"`` is twice the
        recent mean error. δ of ``losses.Huber(delta)`` is in units of the targets, and so is δ = 1 of ``"huber"`` with
        ``learner="dsg"``.
    tau : float or None, default None
        The quantile of ``loss="quantile"``, between 0 and 1; the median if it is ``None``.
    learner : "newton" or "dsg" or learners.Newton or learners.DSG, default "newton"
        As for :class:`~streamkernel.KernelClassifier`. The absolute, ε-insensitive, quantile and correntropy losses
        need ``"dsg"``.

    Attributes
    ----------
    learner_
    kernel_
    n_features
    n_prunings
    gap
    objective
    n_bounded_predictions
    mixture_weights
    feature_importances_

    Examples
    --------
    >>> from river import evaluate, metrics
    >>> from river.datasets import synth
    >>> from streamkernel import KernelRegressor

    >>> model = KernelRegressor()
    >>> evaluate.progressive_val_score(synth.Friedman(seed=1).take(5000), model, metrics.R2())
    R2: 0.91...

    The 0.9-quantile, which nine of ten targets are below:

    >>> model = KernelRegressor(loss="quantile", tau=0.9, learner="dsg")
    >>> below = 0
    >>> for x, y in synth.Friedman(seed=1).take(2000):
    ...     below += y <= model.predict_one(x)
    ...     model.learn_one(x, y)
    >>> below / 2000
    0.904
    """

    tau: float | None
    _for_classes = False

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        loss: str | losses.Loss = "square",
        tau: float | None = None,
        learner: str | learners.Newton | learners.DSG = "newton",
        max_features: int | str | None = "auto",
        l2: float = 0.0,
        pruning: Pruning | None = None,
        refit: Refit | None = None,
        cache_bytes: int = 1 << 26,
        seed: int = 0,
    ) -> None:
        self._make(locals())

    def _resolved_loss(self) -> losses.Loss:
        if self.tau is None:
            return super()._resolved_loss()
        if self.loss != "quantile":
            raise ValueError(f'Expected tau with loss="quantile" only, got tau={self.tau!r} with loss={self.loss!r}')
        return losses.Quantile(self.tau)

    def _outputs(self) -> ModelOutputs:
        return ModelOutputs(state.LEARNED if self._loss.directional else state.MEAN, as_target)

    @property
    def feature_importances_(self) -> dict[Hashable, float]:
        """The share of each field in the variation of f with the inputs; shares add up to 1, the largest first."""
        return explaining.importances(self._model.frozen())

    def learn_one(self, x: Mapping[Hashable, Any], y: float, w: float = 1.0) -> None:
        """Learn from one example."""
        if type(w) is not float or w != 1.0:
            w = as_weight(w)
            if w == 0.0:
                as_target(y)
                self._model.check(x)
                return
        self._model.learn_event(x, as_target(y), w)

    def predict_one(self, x: Mapping[Hashable, Any]) -> float:
        """Return the prediction for one example."""
        return float(self._model.score(x)[0])

    def explain_one(
        self, x: Mapping[Hashable, Any], *, method: str = "gradient", n_orders: int = 32
    ) -> dict[Hashable, float]:
        """Return the contribution of each field of an example to its prediction, in units of the target.

        Examples
        --------
        >>> import random
        >>> from streamkernel import KernelRegressor
        >>> rng, model = random.Random(1), KernelRegressor(max_features=256)
        >>> for _ in range(1000):
        ...     x = {"size": rng.gauss(80.0, 20.0), "floor": rng.randint(0, 5)}
        ...     model.learn_one(x, 3000.0 * x["size"] + 5000.0 * x["floor"])
        >>> found = model.explain_one({"size": 100.0, "floor": 0}, method="sampling")
        >>> {name: round(value, -4) for name, value in found.items()}
        {'size': 60000.0, 'floor': -10000.0}
        >>> {name: round(share, 2) for name, share in model.feature_importances_.items()}
        {'size': 0.98, 'floor': 0.02}
        """
        contributions, _ = explaining.explain(self._model, x, lambda _: np.asarray, method, n_orders, self.seed)
        return {name: share for name, (share,) in contributions.items()}

    def learn_many(self, X: IntoDataFrame, y: IntoSeries, w: Any = None, *, verbose: bool = False) -> None:
        """Learn from the rows of a data frame in order, as :meth:`learn_one` of each row does, and faster."""
        rows = n_rows(X)
        targets = np.array([as_target(one, f"y, row {i}") for i, one in enumerate(targets_of(y, rows))], np.float64)
        learn_table(self._model, X, targets, weights_of(w, rows), verbose=verbose)

    def predict_many(self, X: IntoDataFrame) -> Any:
        """Return the prediction for each row of a data frame."""
        return native_series(row_scores(self._model, X)[0][:, 0], X)
