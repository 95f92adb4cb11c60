"""The kernel regressor."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from river import base, utils

from streamkernel import losses, rules, stepping, steps
from streamkernel.errors import InputError
from streamkernel.estimator import KernelModel
from streamkernel.features import number
from streamkernel.kernels import Gaussian

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame, IntoSeries

LARGEST_TARGET = 1e90


class KernelRegressor(KernelModel, base.MiniBatchRegressor):
    """A kernel machine for numbers that learns from a stream, in bounded memory.

    The prediction is the running mean of the targets plus a function f of the features, which grows by blocks of
    random features until `max_features` is reached.

    Parameters
    ----------
    kernel
        The kernel; by default a Gaussian of 0.4 times the median distance between the first 256 examples.
    loss
        ``"square"``, ``"huber"``, or one of :mod:`streamkernel.losses`. A loss without a bound on its derivative is
        clipped at the largest one seen, which at most doubles a step: one outlier does not ruin the model.
    rule, features_per_seed, batch_size, max_features, l2, step, average, cache_bytes, seed
        As for :class:`~streamkernel.KernelClassifier`.

    Attributes
    ----------
    n_features, n_seeds, n_steps, n_reused : int
        Random features, blocks, steps taken, and steps that moved an old block.
    objective : float
        The running regularised loss.
    sigma : float
        The bandwidth in use.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    References
    ----------
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014.
    Li and Póczos, "Utilize Old Coordinates: Faster Doubly Stochastic Gradients for Kernel Methods", UAI 2016.

    Examples
    --------
    >>> from river import evaluate, metrics, preprocessing
    >>> from river.datasets import synth
    >>> from streamkernel import KernelRegressor

    >>> model = preprocessing.StandardScaler() | KernelRegressor()
    >>> evaluate.progressive_val_score(synth.Friedman(seed=1).take(5000), model, metrics.R2())
    R2: 0.773075
    """

    _for_classes = False
    _intercept = stepping.MEAN

    def __init__(
        self,
        kernel: Gaussian | None = None,
        loss: str | losses.Loss = "square",
        rule: rules.Rule | None = None,
        features_per_seed: int | None = None,
        batch_size: int = 1,
        max_features: int | None = 1024,
        l2: float = 0.0,
        step: steps.Step | None = None,
        average: bool = False,
        cache_bytes: int = 1 << 26,
        seed: int = 0,
    ) -> None:
        super().__init__(
            kernel,
            loss,
            rule,
            features_per_seed,
            batch_size,
            max_features,
            l2,
            step,
            average,
            cache_bytes,
            seed,
        )

    def learn_one(self, x: Mapping[Hashable, Any], y: float) -> None:
        """Learn from one example.

        Parameters
        ----------
        x
            The features, numbers by name. A name that is missing counts as 0.
        y
            The target.

        Raises
        ------
        InputError
            If `x` is empty, or a value or `y` is not a finite number; names the field. The model is as it was before.
        """
        self._learn_example(x, _checked(y))

    def predict_one(self, x: Mapping[Hashable, Any], **kwargs: Any) -> float:
        """Return the prediction for one example.

        Raises
        ------
        InputError
            If `x` is empty or a value is not a finite number.
        """
        return float(self._scores(x)[0])

    def learn_many(self, X: IntoDataFrame, y: IntoSeries) -> None:
        """Learn from the rows of a data frame in order: a fast way to say :meth:`learn_one` for each.

        Parameters
        ----------
        X
            The features, shape (examples, features).
        y
            The targets, shape (examples,).

        Raises
        ------
        InputError
            If a value or a target is not a finite number; names the column and the row. Nothing is learnt.
        """
        targets = [_checked(target) for target in utils.dataframe.into_series(y).to_list()]
        self._learn(self._table(X), np.array(targets, np.float64))

    def predict_many(self, X: IntoDataFrame) -> Any:
        """Return the prediction for each row of a data frame.

        Raises
        ------
        InputError
            If a value is not a finite number; names the column and the row.
        """
        predictions = self._expansion.scores(self._table(X))[:, 0]
        return utils.dataframe.to_native_series(predictions, name=None, like=utils.dataframe.into_frame(X))


def _checked(y: Any) -> float:
    target = number(y, "y")
    if not abs(target) <= LARGEST_TARGET:
        raise InputError(f"Expected a finite number of usable size, got {y!r} - at y")
    return target
