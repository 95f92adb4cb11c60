"""The kernel regressor of several targets."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from river import base

from streamkernel import learners, losses
from streamkernel.estimators.several_targets import SeveralTargetsModel, Targets
from streamkernel.estimators.tables import row_scores
from streamkernel.estimators.targets import as_target
from streamkernel.features.frames import native_frame
from streamkernel.kernels import Kernel
from streamkernel.learners import state

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame


class KernelMultiTargetRegressor(SeveralTargetsModel, base.MultiTargetRegressor):
    """A kernel machine for several numbers at once, on one set of features.

    It learns what a :class:`~streamkernel.KernelRegressor` for each target would learn, with its default learner, in a
    fraction of the time: features, bandwidths and Gram matrices are computed once. Each target has its own
    coefficients, mixture weights and scale, so targets may be in different units. Groups of features are added and
    removed by the mean of the targets' losses, each over its mean square.

    The targets are those of the first example. Every later example must have the same ones: a missing target is an
    error, because the Gram matrices count an example for all targets or for none.

    Parameters
    ----------
    kernel : Kernel or None, default None
        The kernel, as for :class:`~streamkernel.KernelClassifier`: by default four bandwidths on scaled inputs.
    loss : str or losses.Loss, default "square"
        ``"square"`` or ``"huber"``, or one of :mod:`streamkernel.losses` that has a second derivative: the loss of each
        target. δ of ``"huber"`` is twice the recent mean error of the target.
    learner : "newton" or learners.Newton, default "newton"
        The learning algorithm. ``"dsg"`` is refused.
    max_features : int or "auto", default "auto"
        The largest number of random features, as for :class:`~streamkernel.KernelClassifier`.
    l2 : float, default 0.0
        The regularisation λ of each target's objective.
    cache_bytes : int, default 2**26
        Memory for random directions, in bytes.
    seed : int, default 0
        Seed of the random features.

    Attributes
    ----------
    targets : tuple
        The names of the targets.
    learner_ : learners.Newton
        The learner in use, with the values chosen for ``"auto"``.
    n_features, n_seeds, n_steps : int
        Numbers of random features, of blocks and of steps.
    objective : float
        The running loss: the mean over the targets of their losses, each over the target's mean square.
    kernel_ : Kernel
        The kernel in use, with its bandwidths.
    n_bounded_predictions, n_outlying_targets : int
        As for :class:`~streamkernel.KernelRegressor`, the sums over the targets.
    mixture_weights : dict
        The weights of the functions in the mixture by kind, the mean over the targets.

    Raises
    ------
    ValueError
        If a parameter is out of its range or does not go with several targets; the message names it.

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
        x : dict
            The features by name, as for :class:`~streamkernel.KernelRegressor`.
        y : dict
            The targets by name, all of them.
        w : float, default 1.0
            The weight of the example, which counts as `w` examples. With 0 it changes nothing.

        Raises
        ------
        InputError
            If a value, a target or `w` is invalid, or the targets are not those of the first example; the message names
            the field. The model is unchanged.
        """
        self._learn_one(x, y, w)

    def predict_one(self, x: Mapping[Hashable, Any]) -> dict[Hashable, float]:
        """Return the prediction of each target, an empty dictionary before the first example.

        Parameters
        ----------
        x : dict
            The features by name, as for :meth:`learn_one`.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string.
        """
        return self._scores_by_target(x)

    def learn_many(self, X: IntoDataFrame, y: IntoDataFrame, w: Any = None, *, verbose: bool = False) -> None:
        """Learn from the rows of a data frame in order, which is equivalent to :meth:`learn_one` for each, and faster.

        Parameters
        ----------
        X : data frame, array or sparse matrix of shape (n_examples, n_fields)
            The features, one row per example.
        y : data frame or array of shape (n_examples, n_targets)
            The targets, one column each; the columns of an array are called 0, 1, and so on.
        w : float or array_like of shape (n_examples,), default None
            The weights, as for :meth:`learn_one`; 1 each by default.
        verbose : bool, default False
            Whether to show a progress line on standard error.

        Raises
        ------
        InputError
            If a value, a target or a weight is unusable; names the column and the row. Nothing is learned.
        ValueError
            If the number of targets or weights differs from that of rows.
        """
        self._learn_rows(X, y, w, verbose)

    def predict_many(self, X: IntoDataFrame) -> Any:
        """Return the predictions for each row of a data frame: a data frame with a column for each target.

        Parameters
        ----------
        X : data frame, array or sparse matrix of shape (n_examples, n_fields)
            The features, one row per example. For an array the predictions are an array.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string; the message names the column and the row.
        """
        scores, found = row_scores(self._model, X)
        return native_frame({name: scores[:, t] for name, t in found.labels.items()}, X)
