"""The kernel regressor."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from river import base

from streamkernel import learners, losses
from streamkernel.estimators.explained import ExplainedModel
from streamkernel.estimators.targets import as_target
from streamkernel.estimators.weighting import as_weight, weights_of
from streamkernel.features.frames import n_rows, native_series, targets_of
from streamkernel.kernels import Kernel
from streamkernel.learners import state
from streamkernel.upkeep import Pruning, Refit

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame, IntoSeries


class KernelRegressor(ExplainedModel, base.MiniBatchRegressor):
    """A kernel machine for numbers that learns from a stream, in bounded memory.

    The prediction is an intercept plus a function f of the features, which grows by blocks of random features until
    `max_features` is reached. The intercept is the running mean of the targets; for the absolute, ε-insensitive and
    quantile losses it is learned along with f, so that far from all examples, where f says nothing, a quantile is not
    taken for the mean: it is between the mean and that quantile of all targets.

    Parameters
    ----------
    kernel
        The kernel, by default as for :class:`~streamkernel.KernelClassifier`: four bandwidths on scaled inputs.
    loss
        ``"square"``, ``"huber"``, ``"absolute"``, ``"quantile"``, ``"epsilon_insensitive"``, ``"correntropy"``, or one
        of :mod:`streamkernel.losses`. A loss without a bound on its derivative is clipped at the largest one seen,
        which at most doubles a step: one outlier does not ruin the model. ``"huber"`` with Newton steps has a δ of
        twice the recent mean error; ``losses.Huber(delta)``, and ``"huber"`` with ``learner="dsg"``, where δ is 1, have
        it in units of the targets.
    tau
        The quantile that ``loss="quantile"`` learns, between 0 and 1; by default the median.
    learner, max_features, l2, pruning, refit, cache_bytes, seed
        As for :class:`~streamkernel.KernelClassifier`. The absolute, ε-insensitive, quantile and correntropy losses
        need ``learner="dsg"``.

    Attributes
    ----------
    learner_ : learners.Newton or learners.DSG
        The learner that runs, with the values that ``"auto"`` stands for.
    n_features, n_seeds, n_steps, n_reused : int
        Random features, blocks, steps taken, and steps that moved an old block.
    n_prunings : int
        Times that the model has been made smaller.
    gap : float
        The certified primal-dual gap of the coefficients when they were refitted last.
    objective : float
        The running regularised loss.
    feature_importances_ : dict
        The share of each field in how much f changes with the inputs, after 256 examples.
    kernel_ : Kernel
        The kernel in use, with its bandwidths.

    Raises
    ------
    ValueError
        If a parameter is out of its range, `tau` is given with another loss, or a parameter does not go with the
        learner; names it.

    References
    ----------
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014.
    Li and Póczos, "Utilize Old Coordinates: Faster Doubly Stochastic Gradients for Kernel Methods", UAI 2016.
    Hazan, Agarwal and Kale, "Logarithmic regret algorithms for online convex optimization", Machine Learning 2007.

    Examples
    --------
    >>> from river import evaluate, metrics, preprocessing
    >>> from river.datasets import synth
    >>> from streamkernel import KernelRegressor

    >>> model = KernelRegressor()
    >>> evaluate.progressive_val_score(synth.Friedman(seed=1).take(5000), model, metrics.R2())
    R2: 0.91...

    What nine of ten targets are below:

    >>> model = preprocessing.StandardScaler() | KernelRegressor(loss="quantile", tau=0.9, learner="dsg")
    >>> below = 0
    >>> for x, y in synth.Friedman(seed=1).take(2000):
    ...     below += y <= model.predict_one(x)
    ...     model.learn_one(x, y)
    >>> below / 2000
    0.8935
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
        super().__init__(
            kernel=kernel,
            loss=_loss(loss, tau),
            learner=learner,
            max_features=max_features,
            l2=l2,
            pruning=pruning,
            refit=refit,
            cache_bytes=cache_bytes,
            seed=seed,
        )
        self.loss, self.tau = loss, tau

    @property
    def _intercept(self) -> int:
        return state.LEARNED if self._loss.directional else state.MEAN

    def learn_one(self, x: Mapping[Hashable, Any], y: float, w: float = 1.0) -> None:
        """Learn from one example.

        Parameters
        ----------
        x
            The features by name: numbers, or strings as indicators. A name that is missing, or whose value is ``None``
            or NaN, counts as 0; where no `kernel` is given, a number that most examples have counts as its mean. A
            string where a number was learned is refused.
        y
            The target.
        w
            The weight of the example, which counts as `w` examples. With 0 it changes nothing.

        Raises
        ------
        InputError
            If a value, `y` or `w` is unusable; names the field. The model is as it was before.
        """
        if w != 1.0:
            w = as_weight(w)
            if w == 0.0:
                as_target(y)
                self._check(x)
                return
        self._learn_event(x, as_target(y), w)

    def _target(self, y: Any) -> float:
        return as_target(y)

    def predict_one(self, x: Mapping[Hashable, Any], **kwargs: Any) -> float:
        """Return the prediction for one example.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string.
        """
        return float(self._score(x))

    def explain_one(
        self, x: Mapping[Hashable, Any], *, method: str = "gradient", n_orders: int = 32
    ) -> dict[Hashable, float]:
        """Return what each field of an example contributes to its prediction, in units of the target.

        Each field is compared with its running mean: the value that numbers have in the mean, and for a string the
        shares of its values. Models with a `kernel` or ``learner="dsg"`` know no means and compare with 0, as if the
        field were missing: put a ``StandardScaler`` in front of them.

        Parameters
        ----------
        x
            The features by name, as for :meth:`predict_one`.
        method
            ``"gradient"``: the exact gradient at `x` times the distance from the mean. It is fast, and tells what a
            small change would do; how far the prediction is from that of the mean it tells only where f is linear.
            ``"sampling"``: Shapley values, the mean change of the prediction when a field takes its value in `x` after
            others have, in random orders. They add up to the difference between the predictions for `x` and for
            the mean, up to rounding.
        n_orders
            Orders for ``"sampling"``, every second one the reverse of the one before. Where all sets of fields are
            no more than that takes, up to eight fields by default, the values are exact.

        Returns
        -------
        contributions
            By the names in `x`, in its order. A value that is missing has 0 if its field is usually there.

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
        return self._explain(x, lambda scores: scores[:, 0], method, n_orders)

    def learn_many(self, X: IntoDataFrame, y: IntoSeries, w: Any = None, *, verbose: bool = False) -> None:
        """Learn from the rows of a data frame in order: a fast way to say :meth:`learn_one` for each.

        Parameters
        ----------
        X
            The features, shape (examples, features), as for :class:`~streamkernel.KernelClassifier`.
        y
            The targets, shape (examples,).
        w
            Their weights, shape (examples,), as for :meth:`learn_one`; by default 1 each.
        verbose
            Whether to show a progress line on standard error.

        Raises
        ------
        InputError
            If a value, a target or a weight is unusable; names the column and the row. Nothing is learned.
        ValueError
            If there are not as many targets or weights as rows.
        """
        rows = n_rows(X)
        targets = np.array([as_target(target) for target in targets_of(y, rows)], np.float64)
        self._learn_table(X, targets, weights_of(w, rows), verbose=verbose)

    def predict_many(self, X: IntoDataFrame) -> Any:
        """Return the prediction for each row of a data frame.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string; names the column and the row.
        """
        return native_series(self._scores_in(X)[:, 0], X)


def _loss(loss: str | losses.Loss, tau: float | None) -> str | losses.Loss:
    """Return the loss that `loss` and `tau` name together."""
    if tau is None:
        return loss
    if loss != "quantile":
        raise ValueError(f'Expected tau with loss="quantile" only, got tau={tau!r} with loss={loss!r}')
    return losses.Quantile(tau)
