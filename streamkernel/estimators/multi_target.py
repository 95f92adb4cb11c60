"""The kernel regressor of several targets."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from river import base

from streamkernel import learners, losses
from streamkernel.estimators.documentation import documented
from streamkernel.estimators.several_targets import SeveralTargetsModel, Targets
from streamkernel.estimators.tables import row_scores
from streamkernel.estimators.targets import as_target
from streamkernel.features.frames import native_frame
from streamkernel.kernels import Kernel
from streamkernel.learners import state

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame


@documented()
class KernelMultiTargetRegressor(SeveralTargetsModel, base.MultiTargetRegressor):
    """A kernel machine for several numbers at once, on one set of features.

    It learns what a :class:`~streamkernel.KernelRegressor` for each target would learn, with its default learner, in a
    fraction of the time: features, bandwidths and Gram matrices are computed once. Each target has its own
    coefficients, mixture weights and scale, so targets may be in different units. Groups of features are added and
    removed by the mean of the targets' losses, each over its mean square.

    The first example has all targets. Every later example must have the same ones: a missing target is an
    error, because the Gram matrices count an example for all targets or for none.

    Parameters
    ----------
    loss : str or losses.Loss, default "square"
        ``"square"`` or ``"huber"``, or one of :mod:`streamkernel.losses` that has a second derivative: the loss of each
        target. δ of ``"huber"`` is twice the recent mean error of the target.
    learner : "newton" or learners.Newton, default "newton"
        The learning algorithm. ``"dsg"`` is refused.
    max_features : int or "auto", default "auto"
        The largest number of random features, as for :class:`~streamkernel.KernelClassifier`.

    Attributes
    ----------
    targets
    learner_
    kernel_
    n_features
    objective : float
        The running loss: the mean over the targets of their losses, each over the target's mean square.
    n_bounded_predictions
    mixture_weights
    feature_importances_

    Examples
    --------
    >>> from river import evaluate, metrics
    >>> from river.datasets import synth
    >>> from streamkernel import KernelMultiTargetRegressor

    >>> stream = ((x, {"y": y, "squared": y * y}) for x, y in synth.Friedman(seed=1).take(2000))
    >>> model = KernelMultiTargetRegressor()
    >>> evaluate.progressive_val_score(stream, model, metrics.multioutput.MacroAverage(metrics.R2()))
    MacroAverage(R2): 0.8...
    """

    _for_classes = False
    _loss_names = ('"square"', '"huber"')

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        loss: str | losses.Loss = "square",
        learner: str | learners.Newton = "newton",
        max_features: int | str = "auto",
        l2: float = 0.0,
        cache_bytes: int = 1 << 26,
        seed: int = 0,
    ) -> None:
        super().__init__(
            kernel=kernel,
            loss=loss,
            learner=learner,
            max_features=max_features,
            l2=l2,
            cache_bytes=cache_bytes,
            seed=seed,
        )

    def _outputs(self) -> Targets:
        return Targets(state.MEAN)

    def _number(self, y: Any, where: str) -> float:
        return as_target(y, where)

    def learn_one(  # type: ignore[override]  # River's takes other keywords
        self, x: Mapping[Hashable, Any], y: Mapping[Hashable, float], w: float = 1.0
    ) -> None:
        """Learn from one example.

        Parameters
        ----------
        y : dict
            The targets by name, all of them.
        """
        self._learn_one(x, y, w)

    def predict_one(self, x: Mapping[Hashable, Any]) -> dict[Hashable, float]:
        """Return the prediction of each target, an empty dictionary before the first example."""
        return self._scores_by_target(x)

    def learn_many(self, X: IntoDataFrame, y: IntoDataFrame, w: Any = None, *, verbose: bool = False) -> None:
        """Learn from the rows of a data frame in order, as :meth:`learn_one` of each row does, and faster.

        Parameters
        ----------
        y : data frame or array of shape (n_examples, n_targets)
            The targets, one column each; the columns of an array are called 0, 1, and so on.
        """
        self._learn_rows(X, y, w, verbose)

    def predict_many(self, X: IntoDataFrame) -> Any:
        """Return the predictions for each row of a data frame: a data frame with a column for each target."""
        scores, found = row_scores(self._model, X)
        return native_frame({name: scores[:, t] for name, t in found.labels.items()}, X)
