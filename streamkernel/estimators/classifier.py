"""The kernel classifier."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from river import base

from streamkernel import learners, losses
from streamkernel.documentation import documented
from streamkernel.errors import LabelError, shorten
from streamkernel.estimators import explaining
from streamkernel.estimators.base import KernelModel, learn_table, row_scores
from streamkernel.estimators.explaining import Score
from streamkernel.estimators.model_state import State
from streamkernel.estimators.outputs import Classes
from streamkernel.estimators.parameters import require_at_least
from streamkernel.estimators.targets import (
    SMALLEST_WEIGHT,
    ClassWeight,
    Label,
    as_label,
    as_weight,
    check_class_weight,
    label_array,
    label_of,
    label_scores,
    larger,
    probabilities,
    probabilities_of,
    weights_of,
)
from streamkernel.features.frames import n_rows, native_frame, native_series, targets_of
from streamkernel.kernels import Kernel
from streamkernel.upkeep import Pruning, Refit

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame, IntoSeries


@documented()
class KernelClassifier(KernelModel, base.MiniBatchClassifier):
    """A kernel machine for two or more classes that learns from a stream, in bounded memory.

    It replaces a linear classifier: inputs are dictionaries of numbers and strings, and classes need not be declared.
    The function grows by blocks of random features up to `max_features`, which bounds memory and time per event.

    With no arguments it needs no tuning and no scaler. It scales inputs, uses four bandwidths, learns each block of
    features by Newton steps and by constant steps, and weighs the resulting functions by their loss. Larger groups of
    blocks are added where more features reduce the loss, so the time per event can become several times longer.
    ``max_features=1024`` leaves no room for such groups.

    Parameters
    ----------
    kernel : Kernel or None, default None
        The kernel, which reads unscaled inputs. By default inputs are scaled by their running mean and standard
        deviation, and the kernel is a :class:`~streamkernel.kernels.MultiScale` of Gaussians around the median distance
        between the first 256 examples. During these the bandwidth is provisional, and the examples are learned again
        each time it changes. With ``learners.DSG`` of fewer than 4,096 features, batches, fixed steps or a loss without
        a second derivative, the kernel is a Gaussian of 0.4 times that distance.
    loss : str or losses.Loss, default "logistic"
        ``"logistic"`` (softmax with more than two classes), ``"softmax"``, ``"hinge"``, ``"squared_hinge"``,
        ``"smooth_hinge"``, ``"sigmoid"`` (each class against the rest with more than two), or one of
        :mod:`streamkernel.losses`. ``"hinge"`` and ``"sigmoid"`` need ``learner="dsg"``.
    learner : "newton" or "dsg" or learners.Newton or learners.DSG, default "newton"
        The learning algorithm, by name or with its options. :class:`~learners.Newton` takes second-order steps.
        :class:`~learners.DSG` takes doubly stochastic gradient steps, in constant and shorter time per event.
    max_features : int or "auto" or None, default "auto"
        The largest number of random features; ``"auto"`` is 4,096, or 1,024 where first-order steps have a `kernel` or
        a single bandwidth. ``None`` is no limit and needs ``learner="dsg"``. Memory and time of Newton steps grow with
        the square of the largest group, which has at most half of the features.
    class_weight : dict or "balanced" or None, default None
        Factors of the weights of examples, by label; 1 for other labels. ``"balanced"`` is m/n, where n is the number
        of examples of the label so far and m that of the rarest label, so that all labels have the same total
        weight. Predicted probabilities describe the weighted classes, and often rank them worse: prefer to move the
        threshold. Prefer weights up to 1 to large weights of rare labels, because the regularisation is chosen for
        examples of weight 1.
    max_classes : int, default 100
        The largest number of labels; an example with another label is refused. Time and memory grow with each label.

    Attributes
    ----------
    learner_
    kernel_
    n_features
    n_prunings
    gap
    objective
    mixture_weights
    feature_importances_

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from streamkernel import KernelClassifier

    >>> model = KernelClassifier()
    >>> evaluate.progressive_val_score(datasets.Bananas(), model, metrics.Accuracy())
    Accuracy: 89.8...%
    >>> model.n_features, model.n_reused
    (1024, 5296)
    """

    class_weight: ClassWeight
    max_classes: int
    _for_classes = True

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        loss: str | losses.Loss = "logistic",
        learner: str | learners.Newton | learners.DSG = "newton",
        max_features: int | str | None = "auto",
        l2: float = 0.0,
        class_weight: ClassWeight = None,
        pruning: Pruning | None = None,
        refit: Refit | None = None,
        cache_bytes: int = 1 << 26,
        seed: int = 0,
        max_classes: int = 100,
    ) -> None:
        require_at_least(2, max_classes=max_classes)
        check_class_weight(class_weight)
        self._make(locals())

    def _outputs(self) -> Classes:
        is_balanced = self.class_weight == "balanced"
        return Classes(self.max_classes, is_softmax=isinstance(self._loss, losses.Softmax), is_balanced=is_balanced)

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def _has_class_weights(self) -> bool:
        return isinstance(self.class_weight, Mapping)

    @property
    def labels(self) -> Mapping[Label, int]:
        """The labels seen so far, with their numbers, in the order in which they came."""
        return self._model.state.labels

    @property
    def feature_importances_(self) -> dict[Hashable, float]:
        """The share of each field in the variation of f with the inputs; shares add up to 1, the largest first."""
        return explaining.importances(self._model.frozen())

    def learn_one(self, x: Mapping[Hashable, Any], y: Label, w: float = 1.0) -> None:
        """Learn from one example. One of weight 0 does not add a new label.

        Parameters
        ----------
        y : bool or int or str
            The label, always in one form: after ``1``, the text ``"1"`` is refused, because in JSON both are one key.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string, `y` is not a label or exceeds `max_classes` labels, or
            `w` is invalid; the message names the field. The model is unchanged.
        """
        model = self._model
        if type(w) is not float or w != 1.0 or (self.class_weight is not None and self._has_class_weights):
            w = as_weight(w) * self._weight_of(y)
            if w < SMALLEST_WEIGHT:
                as_label(y)
                model.check(x)
                return
        try:
            number = model.state.labels.get(y)
        except TypeError:  # it has no hash
            as_label(y)
            raise
        if number is not None:
            model.learn_event(x, number, w, (y,))
        else:
            model.learn_event(x, None, w, (as_label(y),), is_new=True)

    def _weight_of(self, label: Any) -> float:
        """Return the weight of a label in a dictionary of class weights, 1 without one."""
        return self.class_weight.get(as_label(label), 1.0) if isinstance(self.class_weight, Mapping) else 1.0

    def predict_proba_one(self, x: Mapping[Hashable, Any]) -> dict[Label, float]:  # type: ignore[override]
        """Return the probability of each label learned so far.

        The dictionary is empty before the first label, and has one label with probability 1 before the second. A
        sampler of active learning therefore needs some labelled examples first.

        The hinge losses and the sigmoid loss have no probabilities. With them the values are a sigmoid of the scores:
        they have the order of the scores and are not calibrated.
        """
        score, state = self._model.score(x)
        return probabilities_of(self._loss, state.labels, score)

    def predict_one(self, x: Mapping[Hashable, Any]) -> Label | None:  # type: ignore[override]
        """Return the label of the highest score, ``None`` before the first label is learned."""
        score, state = self._model.score(x)
        return label_of(state.names, score)

    def explain_one(
        self, x: Mapping[Hashable, Any], *, label: Label | None = None, method: str = "gradient", n_orders: int = 32
    ) -> dict[Hashable, float]:
        """Return the contribution of each field of an example to the score of a label, positive if it is more likely.

        With two labels the score is the log-odds of the label; with more, its log-probability minus the mean over all
        labels. With the hinge losses and the sigmoid loss it is the raw score, which is not a log-probability.

        Parameters
        ----------
        label : bool or int or str or None, default None
            The label, which the model has learned; by default the predicted one, or of two labels the larger one:
            ``True``, 1, ``"yes"``.

        Examples
        --------
        >>> import random
        >>> from streamkernel import KernelClassifier
        >>> rng, model = random.Random(1), KernelClassifier(max_features=256)
        >>> for _ in range(1000):
        ...     x = {"rain": rng.random(), "wind": rng.random(), "day": rng.choice(["Mo", "Tu", "We"])}
        ...     model.learn_one(x, x["rain"] + 0.2 * x["wind"] > 0.6)
        >>> found = model.explain_one({"rain": 0.9, "wind": 0.4, "day": "Mo"})
        >>> max(found, key=found.get), found["rain"] > 0.0
        ('rain', True)
        """

        def scores_in(state: State) -> Score:
            labels, wanted = state.labels, label
            if wanted is None and len(labels) == 2:
                wanted = larger(labels)
            elif wanted is None:
                wanted = label_of(state.names, state.learner.score_event(x, state.numeric, state.scales))
            elif as_label(wanted) not in labels:
                learned, got = shorten([*labels]), shorten(wanted)
                raise LabelError(f"Expected a label that the model has learned, {learned}, got {got} - at label")
            centred = isinstance(self._loss, (losses.Logistic, losses.Softmax))
            return lambda scores: label_scores(scores, labels, wanted, centred)[:, None]

        contributions, _ = explaining.explain(self._model, x, scores_in, method, n_orders, self.seed)
        return {name: share for name, (share,) in contributions.items()}

    def learn_many(self, X: IntoDataFrame, y: IntoSeries, w: Any = None, *, verbose: bool = False) -> None:
        """Learn from the rows of a data frame in order, as :meth:`learn_one` of each row does, and faster.

        Parameters
        ----------
        y : series or array_like of shape (n_examples,)
            The labels, at most `max_classes` different ones.
        """
        rows = n_rows(X)
        labels = [as_label(label, f"y, row {i}") for i, label in enumerate(targets_of(y, rows))]
        weights = weights_of(w, rows)
        if self._has_class_weights:
            weights = weights * [self._weight_of(label) for label in labels]
        learn_table(self._model, X, np.empty(rows), weights, labels, verbose=verbose)

    def predict_proba_many(self, X: IntoDataFrame) -> Any:
        """Return the probabilities of the labels for each row of a data frame."""
        scores, state = row_scores(self._model, X)
        shares = probabilities(self._loss, scores, len(state.labels))
        return native_frame({label: shares[:, i] for label, i in state.labels.items()}, X)

    def predict_many(self, X: IntoDataFrame) -> Any:
        """Return the label of each row of a data frame."""
        scores, state = row_scores(self._model, X)
        if not state.labels:
            return native_series(np.full(len(scores), None, object), X)
        best = probabilities(self._loss, scores, len(state.labels)).argmax(axis=1)
        return native_series(label_array(state.labels)[best], X)
