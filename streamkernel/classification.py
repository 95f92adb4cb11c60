"""The kernel classifier."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from river import base, utils

from streamkernel import losses, rules, steps
from streamkernel.errors import InputError, LabelError
from streamkernel.estimator import KernelModel
from streamkernel.kernels import Kernel
from streamkernel.rows import F64
from streamkernel.upkeep import Compaction, Polish

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame, IntoSeries

Label = bool | str | int
"""What River takes for a label; a float is a label too."""


class KernelClassifier(KernelModel, base.MiniBatchClassifier):
    """A kernel machine for two or more classes that learns from a stream, in bounded memory.

    It stands where a linear classifier stood: numbers in, classes out. Classes appear as they come. The function
    grows by blocks of random features, to `max_features` at most; memory and time an event are bounded by that.

    With no arguments it needs no tuning and no scaler: inputs are brought to one scale as they come, there are four
    bandwidths, each block of features is learnt by second-order steps and by constant ones, and a mixture weighs them
    all by how they predict. Larger groups of blocks, learnt together, begin where more features are worth it; what is
    fast at first may so become several times slower. ``max_features=1024`` has none of them.

    Parameters
    ----------
    kernel
        The kernel; it reads inputs as they are. By default inputs are scaled by their running mean and deviation, and
        the kernel is a :class:`~streamkernel.kernels.Ladder` of Gaussians around the median distance between the first
        256 examples; with first-order learning, a Gaussian of 0.4 times that distance on inputs as they are. Until
        then the bandwidth is provisional, and the examples are learnt again each time it is taken anew.
    loss
        ``"logistic"`` (softmax with more than two classes), ``"softmax"``, ``"hinge"``, ``"squared_hinge"``,
        ``"smooth_hinge"``, ``"sigmoid"`` (each class against the rest with more than two), or one of
        :mod:`streamkernel.losses`.
    rule
        Which block a first-order step moves: :mod:`streamkernel.rules`; by default CDSG with steps of γ at most, which
        adds a block only where no old one is worth as much.
    features_per_seed
        Random features in one block; by default a quarter of `max_features`, with second-order steps 256 at most.
    batch_size
        Examples in one step. They are gathered over calls, so how events are grouped never changes the model. With 1,
        second-order steps gather more as there are more, from 8 to 64.
    max_features
        Cap on the number of random features, ``None`` for none; by default 4,096, with first-order steps 1,024. Memory
        and time of second-order steps grow with the square of the largest group, at most half of the features.
    l2
        Regularisation λ of (λ/2)‖f‖² + E[ℓ(f(x), y)].
    step
        Size of first-order steps, one of :mod:`streamkernel.steps`; by default a constant that suits the loss and
        k(x, x).
    preconditioning
        ε > 0 of the preconditioner (1/B) Σ φφᵀ + εI, the covariance over the batch of the block that a step moves,
        against which its gradient is solved (Dai et al. 2014, section 4); ``None`` for none. It wants large batches.
    average
        Predict with the average of all iterates instead of the last.
    cache_bytes
        Memory for random directions; what does not fit is regenerated at every use, with the same result.
    seed
        Seed of the random features. Models with one seed have the same features.
    second_order
        ``"block"``: blocks of features and larger groups of them are each learnt by Newton steps of their own and by
        constant steps, and a mixture weighs them. ``"full"``: one Newton step over all blocks from the beginning.
        ``None``: first-order steps alone, the doubly stochastic gradients of the papers. By default
        ``"block"``, or ``None`` where a rule, a step, `l2`, `average` or `preconditioning` is given, the loss has no
        second derivative, or there is no cap on the features or so many that the factors would take more than 2 GB.
    forgetting
        What second-order steps keep of the past at each example, in (0, 1]: 0.999 remembers about a thousand.
    compaction
        Prune the model to the features that matter from time to time, in another thread: a
        :class:`~streamkernel.upkeep.Compaction`.
    polish
        Solve the coefficients on recent events from time to time, in another thread, to a certified gap: a
        :class:`~streamkernel.upkeep.Polish`. It asks for first-order learning.

    Attributes
    ----------
    n_features, n_seeds, n_steps, n_reused : int
        Random features, blocks, steps taken, and steps that moved an old block.
    n_compactions : int
        Times that the model has been made smaller.
    gap : float
        The certified primal-dual gap of the coefficients when they were polished last.
    objective : float
        The running regularised loss.
    kernel_ : Kernel
        The kernel in use, with its bandwidths.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or second-order steps are asked for together with what they do not have.

    References
    ----------
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014.
    Li and Póczos, "Utilize Old Coordinates: Faster Doubly Stochastic Gradients for Kernel Methods", UAI 2016.
    Hazan, Agarwal and Kale, "Logarithmic Regret Algorithms for Online Convex Optimization", Machine Learning 2007.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from streamkernel import KernelClassifier

    >>> model = KernelClassifier()
    >>> evaluate.progressive_val_score(datasets.Bananas(), model, metrics.Accuracy())
    Accuracy: 89.8...%
    >>> model.n_features, model.n_reused
    (1536, 5296)
    """

    _for_classes = True

    def __init__(
        self,
        kernel: Kernel | None = None,
        loss: str | losses.Loss = "logistic",
        rule: rules.Rule | None = None,
        features_per_seed: int | None = None,
        batch_size: int = 1,
        max_features: int | str | None = "auto",
        l2: float = 0.0,
        step: steps.Step | None = None,
        preconditioning: float | None = None,
        average: bool = False,
        cache_bytes: int = 1 << 26,
        seed: int = 0,
        second_order: str | None = "auto",
        forgetting: float = 1.0,
        compaction: Compaction | None = None,
        polish: Polish | None = None,
    ) -> None:
        self.labels: dict[Label, int] = {}
        super().__init__(
            kernel,
            loss,
            rule,
            features_per_seed,
            batch_size,
            max_features,
            l2,
            step,
            preconditioning,
            average,
            cache_bytes,
            seed,
            second_order,
            forgetting,
            compaction,
            polish,
        )

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: Mapping[Hashable, Any], y: Label) -> None:
        """Learn from one example.

        Parameters
        ----------
        x
            The features by name: numbers, or strings as indicators. A name that is missing counts as 0.
        y
            The label: a string, a number or a Boolean.

        Raises
        ------
        InputError
            If `x` is empty or a value is neither a finite number nor a string, or `y` is no label; names the field.
            The model is as it was before.
        """
        try:
            number = self.labels.get(y)
        except TypeError:  # it has no hash
            number = None
        if number is None:
            self._learn_new(x, _checked(y))
        else:
            self._learn_example(x, number)

    def _target(self, y: Any) -> float:
        number = self.labels.get(_checked(y))
        if number is None:
            raise LabelError(f"Expected a label that the model has learnt, {[*self.labels]}, got {y!r} - at y")
        return number

    def _learn_new(self, x: Mapping[Hashable, Any], label: Label) -> None:
        """Learn the first example of a label; if it is refused, the label stays unknown."""
        before = self._description(), self._tensors()
        try:
            self._learn_example(x, self._add(label))
        except InputError:
            self._restore(*before)
            raise

    def predict_proba_one(self, x: Mapping[Hashable, Any], **kwargs: Any) -> dict[Label, float]:
        """Return the probability of each label seen so far.

        With the hinge losses and the sigmoid loss, which have no probabilities, these are the scores squashed by a
        sigmoid: they rank as the scores do, and are not calibrated.

        Raises
        ------
        InputError
            If `x` is empty or a value is neither a finite number nor a string.
        """
        scores = self._scores(x)
        if len(self.labels) == 2 and len(scores) == 1:  # the way most events go
            up = _sigmoid(float(scores[0]))
            return dict(zip(self.labels, (1.0 - up, up), strict=True))
        return dict(zip(self.labels, self._probabilities(scores[None])[0].tolist(), strict=True))

    def predict_one(self, x: Mapping[Hashable, Any], **kwargs: Any) -> Label | None:
        """Return the label of the highest score, ``None`` before the first label is learnt.

        Raises
        ------
        InputError
            If `x` is empty or a value is neither a finite number nor a string.
        """
        scores = self._scores(x)
        best = int(scores.argmax()) if len(scores) > 1 else scores.item() > 0.0 and len(self.labels) == 2
        return [*self.labels, None][best]

    def learn_many(self, X: IntoDataFrame, y: IntoSeries) -> None:
        """Learn from the rows of a data frame in order: a fast way to say :meth:`learn_one` for each.

        Parameters
        ----------
        X
            The features, shape (examples, features).
        y
            The labels, shape (examples,).

        Raises
        ------
        InputError
            If a value is unusable, or a label is none; names the column and the row. Nothing is learnt.
        """
        rows = self._table(X)
        labels = [_checked(label) for label in utils.dataframe.into_series(y).to_list()]
        numbers = np.empty(len(labels))
        start = 0
        for i, label in enumerate(labels):
            if label not in self.labels:  # the rows before it are learnt without it, as one by one
                self._learn(rows.part(start, i), numbers[start:i])
                start = i
                self._add(label)
            numbers[i] = self.labels[label]
        self._learn(rows.part(start, len(labels)), numbers[start:])

    def predict_proba_many(self, X: IntoDataFrame) -> Any:
        """Return the probabilities of the labels for each row of a data frame.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string; names the column and the row.
        """
        probabilities = self._probabilities(self._scores_of(self._table(X)))
        columns = {label: probabilities[:, i] for label, i in self.labels.items()}
        return utils.dataframe.to_native_frame(columns, like=utils.dataframe.into_frame(X))

    def predict_many(self, X: IntoDataFrame) -> Any:
        """Return the label of each row of a data frame.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string; names the column and the row.
        """
        frame = utils.dataframe.into_frame(X)
        rows = self._table(X)
        if not self.labels:
            return utils.dataframe.to_native_series(np.full(len(frame), None, object), name=None, like=frame)
        best = self._probabilities(self._scores_of(rows)).argmax(axis=1)
        labels = np.array(list(self.labels))[best] if _one_type(self.labels) else _objects(self.labels)[best]
        return utils.dataframe.to_native_series(labels, name=None, like=frame)

    def _probabilities(self, scores: F64) -> F64:
        """Return probabilities, shape (examples, labels), for scores, shape (examples, columns)."""
        if len(self.labels) < 2:
            return np.ones((len(scores), len(self.labels)))
        if isinstance(self._loss, (losses.Logistic, losses.Softmax)) and scores.shape[1] > 1:
            odds = np.exp(scores - scores.max(axis=1, keepdims=True))
            return np.asarray(odds / odds.sum(axis=1, keepdims=True))
        if scores.shape[1] == 1:
            up = np.array([_sigmoid(score) for score in scores[:, 0].tolist()]).reshape(-1, 1)
            return np.concatenate([1.0 - up, up], axis=1)
        sigmoids = 0.5 * (1.0 + np.tanh(0.5 * scores)) + 1e-300
        return np.asarray(sigmoids / sigmoids.sum(axis=1, keepdims=True))

    def _add(self, label: Label) -> int:
        """Make room for a label that is new, and return its number."""
        softmax = isinstance(self._loss, losses.Softmax)
        if len(self.labels) >= (1 if softmax else 2):
            self._learner.add_column()
            if self._upkeep is not None:
                self._upkeep.added_column()
        self.labels[label] = len(self.labels)
        return self.labels[label]

    def _description(self) -> dict[str, Any]:
        return super()._description() | {"labels": list(self.labels)}

    def _restore(self, description: Mapping[str, Any], tensors: dict[str, Any]) -> None:
        self.labels = {_checked(label): i for i, label in enumerate(description["labels"])}
        if len(self.labels) != len(description["labels"]):
            raise ValueError(f"expected labels that differ, got {description['labels']!r}")
        super()._restore(description, tensors)

    def _columns(self) -> int:
        if isinstance(self._loss, losses.Softmax):
            return max(1, len(self.labels))
        return 1 if len(self.labels) <= 2 else len(self.labels)


def _sigmoid(score: float) -> float:
    return 0.5 * (1.0 + math.tanh(0.5 * score))


def _checked(y: Any) -> Any:
    label = y.item() if isinstance(y, np.generic) else y
    if not isinstance(label, (bool, int, float, str)) or (isinstance(label, float) and not math.isfinite(label)):
        raise LabelError(
            f"Expected a label that is a string, a number or a Boolean, got {type(y).__name__} {y!r} - at y"
        )
    return label


def _one_type(labels: Mapping[Label, int]) -> bool:
    return len({type(label) for label in labels}) == 1


def _objects(labels: Mapping[Label, int]) -> Any:
    array = np.empty(len(labels), object)
    array[:] = list(labels)
    return array
