"""The kernel classifier of several labels, any number of which may be true."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from river import base

from streamkernel import learners, losses
from streamkernel.errors import LabelError, shorten
from streamkernel.estimators.documentation import documented
from streamkernel.estimators.several_targets import SeveralTargetsModel, Targets
from streamkernel.estimators.tables import row_scores
from streamkernel.estimators.targets import sigmoid
from streamkernel.features.frames import native_frame
from streamkernel.kernels import Kernel

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame


@documented()
class KernelMultiLabelClassifier(SeveralTargetsModel, base.MultiLabelClassifier):
    """A kernel machine for several labels at once, each true or false, on one set of features.

    Each label has its own coefficients and mixture weights. Features, bandwidths and Gram matrices are computed once
    for all labels. The Gram matrices count each example with the largest second derivative of all labels' losses, so a
    label is learned a little more slowly than by a model of its own.

    The first example has all labels. Every later example must have the same ones, each true or false: a
    missing label is an error, because it says neither.

    Parameters
    ----------
    loss : str or losses.Loss, default "logistic"
        ``"logistic"``, ``"squared_hinge"`` or ``"smooth_hinge"``: the loss of each label. The hinge losses have no
        probabilities; those are then a sigmoid of the scores.
    learner : "newton" or learners.Newton, default "newton"
        The learning algorithm. ``"dsg"`` is refused.
    max_features : int or "auto", default "auto"
        The largest number of random features, as for :class:`~streamkernel.KernelClassifier`.

    Attributes
    ----------
    targets : tuple
        The names of the labels.
    learner_
    kernel_
    n_features
    objective : float
        The running loss, the mean over the labels.
    mixture_weights
    feature_importances_

    Examples
    --------
    >>> import random
    >>> from streamkernel import KernelMultiLabelClassifier
    >>> rng, model = random.Random(1), KernelMultiLabelClassifier(max_features=256)
    >>> for _ in range(500):
    ...     x = {"rain": rng.random(), "wind": rng.random()}
    ...     model.learn_one(x, {"wet": x["rain"] > 0.5, "storm": x["rain"] * x["wind"] > 0.4})
    >>> model.predict_one({"rain": 0.7, "wind": 0.1})
    {'wet': True, 'storm': False}
    >>> model.predict_proba_one({"rain": 0.9, "wind": 0.9})["storm"][True] > 0.9
    True
    """

    _for_classes = True
    _loss_names = ('"logistic"', '"squared_hinge"', '"smooth_hinge"')

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        loss: str | losses.Loss = "logistic",
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
        return Targets()

    def _number(self, y: Any, where: str) -> float:
        value = y.item() if isinstance(y, np.generic) else y
        if not isinstance(value, (bool, int, float)) or value not in (0, 1):
            raise LabelError(f"Expected True or False, got {shorten(y)} - at {where}")
        return float(value)

    def learn_one(self, x: Mapping[Hashable, Any], y: Mapping[Hashable, bool], w: float = 1.0) -> None:
        """Learn from one example.

        Parameters
        ----------
        y : dict
            Whether each label is true, all of them: Booleans, or the numbers 0 and 1.
        """
        self._learn_one(x, y, w)

    def predict_proba_one(  # type: ignore[override]
        self, x: Mapping[Hashable, Any]
    ) -> dict[Hashable, dict[bool, float]]:
        """Return the probabilities that each label is false and true, an empty dictionary before the first example."""
        up = {name: sigmoid(score) for name, score in self._scores_by_target(x).items()}
        return {name: {False: 1.0 - p, True: p} for name, p in up.items()}

    def predict_one(self, x: Mapping[Hashable, Any]) -> dict[Hashable, bool]:  # type: ignore[override]
        """Return whether each label is more likely true than false, an empty dictionary before the first example."""
        return {name: score > 0.0 for name, score in self._scores_by_target(x).items()}

    def learn_many(self, X: IntoDataFrame, y: IntoDataFrame, w: Any = None, *, verbose: bool = False) -> None:
        """Learn from the rows of a data frame in order, as :meth:`learn_one` of each row does, and faster.

        Parameters
        ----------
        y : data frame or array of shape (n_examples, n_labels)
            Whether the labels are true, one column each; the columns of an array are called 0, 1, and so on.
        """
        self._learn_rows(X, y, w, verbose)

    def predict_proba_many(self, X: IntoDataFrame) -> Any:
        """Return the probability that each label is true for each row: a data frame with a column for each label."""
        scores, state = row_scores(self._model, X)
        up = 0.5 * (1.0 + np.tanh(0.5 * scores))
        return native_frame({name: up[:, t] for name, t in state.labels.items()}, X)

    def predict_many(self, X: IntoDataFrame) -> Any:
        """Return whether each label is true for each row: a data frame with a column for each label."""
        scores, state = row_scores(self._model, X)
        return native_frame({name: scores[:, t] > 0.0 for name, t in state.labels.items()}, X)
