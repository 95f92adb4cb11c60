"""The kernel regressor."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from river import base

from streamkernel import learners, losses
from streamkernel.estimators import explaining
from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.outputs import Outputs
from streamkernel.estimators.tables import learn_table, row_scores
from streamkernel.estimators.targets import as_target
from streamkernel.estimators.weighting import as_weight, weights_of
from streamkernel.features.frames import n_rows, native_series, targets_of
from streamkernel.kernels import Kernel
from streamkernel.learners import state
from streamkernel.upkeep import Pruning, Refit

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame, IntoSeries


class KernelRegressor(KernelModel, base.MiniBatchRegressor):
    """A kernel machine for numbers that learns from a stream, in bounded memory.

    The prediction is an intercept plus a function f of the inputs, which grows by blocks of random features up to
    `max_features`. The intercept is the running mean of the targets. For the absolute, ε-insensitive and quantile
    losses it is learned with f: far from all examples, where f is 0, the prediction of a quantile is then between the
    mean and that quantile of all targets.

    Parameters
    ----------
    kernel : Kernel or None, default None
        The kernel, by default as for :class:`~streamkernel.KernelClassifier`: four bandwidths on scaled inputs.
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
    max_features : int or "auto" or None, default "auto"
        The largest number of random features, as for :class:`~streamkernel.KernelClassifier`.
    l2 : float, default 0.0
        The regularisation λ of the objective (λ/2)‖f‖² + E[ℓ(f(x), y)].
    pruning : Pruning or None, default None
        Periodic pruning to the most important features, in another thread.
    refit : Refit or None, default None
        Periodic solution of the coefficients on recent events, in another thread. It needs ``learner="dsg"``.
    cache_bytes : int, default 2**26
        Memory for random directions, in bytes.
    seed : int, default 0
        Seed of the random features. Models with the same seed have the same features.

    Attributes
    ----------
    learner_ : learners.Newton or learners.DSG
        The learner in use, with the values chosen for ``"auto"``.
    n_features, n_seeds, n_steps, n_reused : int
        Numbers of random features, of blocks, of steps, and of steps that moved an old block.
    n_prunings : int
        Number of prunings.
    gap : float
        The certified primal-dual gap of the coefficients at the last refit.
    objective : float
        The running regularised loss.
    feature_importances_ : dict
        The share of each field in the change of f with the inputs, available after 256 examples.
    kernel_ : Kernel
        The kernel in use, with its bandwidths.
    n_bounded_predictions, n_outlying_targets : int
        Numbers of learned examples whose prediction was limited to the range of targets, and whose target did not count
        in full because it was an outlier: with ``learner="dsg"`` in that range alone.
    mixture_weights : dict
        The weights of the functions that f is a mixture of, by kind.

    Raises
    ------
    ValueError
        If a parameter is out of its range or does not apply to the learner, or `tau` is given with another loss; the
        message names it.

    References
    ----------
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014.
    Li and Póczos, "Utilize Old Coordinates: Faster Doubly Stochastic Gradients for Kernel Methods", UAI 2016.
    Hazan, Agarwal and Kale, "Logarithmic regret algorithms for online convex optimization", Machine Learning 2007.

    Examples
    --------
    >>> from river import evaluate, metrics
    >>> from river.datasets import synth
    >>> from streamkernel import KernelRegressor, StandardScaler

    >>> model = KernelRegressor()
    >>> evaluate.progressive_val_score(synth.Friedman(seed=1).take(5000), model, metrics.R2())
    R2: 0.91...

    The 0.9-quantile, which nine of ten targets are below:

    >>> model = StandardScaler() | KernelRegressor(loss="quantile", tau=0.9, learner="dsg")
    >>> below = 0
    >>> for x, y in synth.Friedman(seed=1).take(2000):
    ...     below += y <= model.predict_one(x)
    ...     model.learn_one(x, y)
    >>> below / 2000
    0.9075
    """

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
        self.tau = tau
        super().__init__(
            kernel=kernel,
            loss=loss,
            learner=learner,
            max_features=max_features,
            l2=l2,
            pruning=pruning,
            refit=refit,
            cache_bytes=cache_bytes,
            seed=seed,
        )

    def _resolved_loss(self) -> losses.Loss:
        if self.tau is None:
            return super()._resolved_loss()
        if self.loss != "quantile":
            raise ValueError(f'Expected tau with loss="quantile" only, got tau={self.tau!r} with loss={self.loss!r}')
        return losses.Quantile(self.tau)

    def _outputs(self) -> Outputs:
        return Outputs(state.LEARNED if self._loss.directional else state.MEAN, as_target)

    feature_importances_ = explaining.feature_importances

    def learn_one(self, x: Mapping[Hashable, Any], y: float, w: float = 1.0) -> None:
        """Learn from one example.

        Parameters
        ----------
        x : dict
            The features by name: numbers, or strings as indicators. A name that is missing, or whose value is ``None``,
            NaN, NaT or ``pandas.NA``, counts as 0; where no `kernel` is given, a number that most examples have counts
            as its mean. A string is refused under a name that has had 16 numbers or more, and almost no strings.
        y : float
            The target.
        w : float, default 1.0
            The weight of the example, which counts as `w` examples. With 0 it changes nothing.

        Raises
        ------
        InputError
            If a value, `y` or `w` is invalid; the message names the field. The model is
            unchanged.
        """
        if type(w) is not float or w != 1.0:
            w = as_weight(w)
            if w == 0.0:
                as_target(y)
                self._model.check(x)
                return
        self._model.learn_event(x, as_target(y), w)

    def predict_one(self, x: Mapping[Hashable, Any]) -> float:
        """Return the prediction for one example.

        Parameters
        ----------
        x : dict
            The features by name, as for :meth:`learn_one`.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string.
        """
        return float(self._model.score(x)[0])

    def explain_one(
        self, x: Mapping[Hashable, Any], *, method: str = "gradient", n_orders: int = 32
    ) -> dict[Hashable, float]:
        """Return the contribution of each field of an example to its prediction, in units of the target.

        Each field is compared with its running mean: the mean of its numbers, or for a string the frequencies of its
        values. Models with a `kernel` or ``learner="dsg"`` have no running means and compare with 0, as if the field
        were missing; put a ``StandardScaler`` in front of them.

        Parameters
        ----------
        x : dict
            The features by name, as for :meth:`predict_one`.
        method : {"gradient", "sampling"}, default "gradient"
            ``"gradient"`` is the exact gradient of the random features at `x` times the distance from the mean, and for
            the linear functions and the nearest neighbours the mean of their changes when the field is set to its value
            in `x` alone and when it is set last. It is fast; the contributions add up to the change of the prediction
            only where f is linear.
            ``"sampling"`` is Shapley values: the mean change of the prediction when the field is set to its value in
            `x`, over random orders of the fields. They add up to the difference between the predictions for `x` and
            for the mean, up to rounding.
        n_orders : int, default 32
            Number of orders for ``"sampling"``; every second one is the reverse of the one before. If evaluating all
            sets of fields takes no more predictions, as for up to eight fields by default, the values are exact.

        Returns
        -------
        dict
            The contributions by the names in `x`, in its order. A missing value contributes 0 if its field is
            usually present.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string; or if the method is ``"gradient"`` and the gradient of
            this kernel is not known.
        ValueError
            If `method` or `n_orders` is out of its range.

        References
        ----------
        Štrumbelj and Kononenko, "Explaining prediction models and individual predictions with feature contributions",
        Knowledge and Information Systems 2014.

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
        found, _ = explaining.explain(self._model, x, lambda _: np.asarray, method, n_orders, self.seed)
        return {name: share for name, (share,) in found.items()}

    def learn_many(self, X: IntoDataFrame, y: IntoSeries, w: Any = None, *, verbose: bool = False) -> None:
        """Learn from the rows of a data frame in order, which is equivalent to :meth:`learn_one` for each, and faster.

        Parameters
        ----------
        X : data frame, array or sparse matrix of shape (n_examples, n_fields)
            The features, one row per example. An entry that a sparse matrix does not store is a zero.
        y : series or array_like of shape (n_examples,)
            The targets.
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
        rows = n_rows(X)
        targets = np.array([as_target(one, f"y, row {i}") for i, one in enumerate(targets_of(y, rows))], np.float64)
        learn_table(self._model, X, targets, weights_of(w, rows), verbose=verbose)

    def predict_many(self, X: IntoDataFrame) -> Any:
        """Return the prediction for each row of a data frame.

        Parameters
        ----------
        X : data frame, array or sparse matrix of shape (n_examples, n_fields)
            The features, one row per example.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string; the message names the column and the row.
        """
        return native_series(row_scores(self._model, X)[0][:, 0], X)
