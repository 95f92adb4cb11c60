"""Estimators whose y is a dictionary, on one set of features: a regressor, and a classifier of labels."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from river import base

from streamkernel import learners, losses
from streamkernel.documentation import documented
from streamkernel.errors import InputError, LabelError, shorten
from streamkernel.estimators import explaining
from streamkernel.estimators.base import KernelModel, learn_table, row_scores
from streamkernel.estimators.model_state import State
from streamkernel.estimators.outputs import LabelForms, Learner, ModelOutputs
from streamkernel.estimators.targets import as_label, as_target, as_weight, sigmoid, weights_of
from streamkernel.features.frames import columns_of, n_rows, native_frame
from streamkernel.features.rows import F64
from streamkernel.kernels import Kernel
from streamkernel.learners import Newton, state
from streamkernel.second_order.mixture import SecondOrderLearner

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame


class Targets(ModelOutputs):
    """A y that is a dictionary of numbers, one for each target."""

    are_several = True

    def check(self, learned: Mapping[Any, int], labels: Sequence[Any]) -> None:
        """Raise an InputError if an example does not have the targets of the first one, in their order."""
        expected = tuple(learned) or (labels[0] if labels else ())
        for names in labels:
            if names != expected:
                _check_names(expected, names)
                raise InputError(f"Expected targets in the order {list(expected)}, got {list(names)} - at y")

    def number_labels(
        self, model_state: State, labels: Sequence[Any], y: F64, first: int, last: int
    ) -> tuple[int, State]:
        """Return that all rows are usable, and the state with room for their targets."""
        if not model_state.labels and isinstance(model_state.learner, SecondOrderLearner):
            names = labels[first]
            learner = model_state.learner.with_targets(len(names))
            model_state = replace(model_state, learner=learner, labels={name: i for i, name in enumerate(names)})
        return last, model_state

    def learner(self, new: Callable[..., Learner], kernel: Kernel, columns: int) -> Learner:
        """Return an untrained function with a number of targets."""
        function = new(kernel, columns=1)
        return function.with_targets(columns) if isinstance(function, SecondOrderLearner) else function

    def columns(self, labels: int) -> int:
        """Return the number of columns of f for a number of targets."""
        return max(1, labels)

    def describe(self, labels: Mapping[Any, int]) -> dict[str, Any]:
        """Return the names of the targets in their order."""
        return {"targets": list(labels)}

    def labels_in(self, description: Mapping[str, Any]) -> dict[Any, int]:
        """Return the names of the targets of a description, with their columns."""
        labels = {as_label(name): i for i, name in enumerate(description["targets"])}
        if len(LabelForms(labels)) != len(description["targets"]):
            raise ValueError(f"expected targets that differ, got {description['targets']!r}")
        return labels


@documented()
class SeveralTargetsModel(KernelModel):
    """A kernel model of several targets, which the first example that it learns has.

    Each target has its own coefficients, mixture weights, range and scale. All have the features, bandwidths and Gram
    matrices in common, which are most of the cost of an event.
    """

    def _make(self, parameters: Mapping[str, Any]) -> None:
        super()._make(parameters)
        if not isinstance(self._options, Newton):
            raise ValueError(f'Expected learner="newton" or learners.Newton for several targets, got {self.learner!r}')

    def _resolved_loss(self) -> losses.Loss:
        loss, names = super()._resolved_loss(), ", ".join(self._loss_names)
        if not loss.is_curved or isinstance(loss, losses.Softmax):
            raise ValueError(f"Expected loss as one of {names} for several targets, got {self.loss!r}")
        return loss

    @property
    def feature_importances_(self) -> dict[Hashable, float]:
        """The share of each field in the variation of f with the inputs; shares add up to 1, the largest first."""
        return explaining.importances(self._model.frozen())

    _loss_names: tuple[str, ...]
    """The losses that several targets can have."""

    @property
    def targets(self) -> tuple[Hashable, ...]:
        """The names of the targets, in the order of the first example; empty before."""
        return tuple(self._state.labels)

    def _number(self, y: Any, where: str) -> float:
        """Return one target as a number; an error says `where` it is."""
        raise NotImplementedError

    def learn_one(self, x: Mapping[Hashable, Any], y: Mapping[Hashable, Any], w: float = 1.0) -> None:
        """Learn from one example.

        Parameters
        ----------
        y : dict
            The targets by name, all of them. A label is true or false, or the number 1 or 0.
        """
        if not isinstance(y, Mapping):
            raise TypeError(f"Expected y as a dictionary of targets by name, got {type(y).__name__}")
        learned = self.targets
        names = learned or _new_names(y)
        _check_names(names, tuple(y))
        numbers, w = np.array([self._number(y[name], f"y[{name!r}]") for name in names]), as_weight(w)
        if w == 0.0:
            self._model.check(x)
            return
        self._model.learn_event(x, numbers, w, [names], is_new=not learned)

    def explain_one(
        self, x: Mapping[Hashable, Any], *, method: str = "gradient", n_orders: int = 32
    ) -> dict[Hashable, dict[Hashable, float]]:
        """Return the contribution of each field of an example to each target.

        They are in units of the target, or of a label's score: with the logistic loss its log-odds. The dictionary is
        empty before the first example. All targets are explained by the same evaluations of the model.

        Returns
        -------
        dict
            For each target, the contributions by the names in `x`, in its order.
        """
        shares, model_state = explaining.explain(self._model, x, lambda _: np.asarray, method, n_orders, self.seed)
        return {
            target: {name: by_target[t] for name, by_target in shares.items()}
            for target, t in model_state.labels.items()
        }

    def learn_many(self, X: IntoDataFrame, y: IntoDataFrame, w: Any = None, *, verbose: bool = False) -> None:
        """Learn from the rows of a data frame in order, as :meth:`learn_one` of each row does, and faster.

        Parameters
        ----------
        y : data frame or array of shape (n_examples, n_targets)
            The targets, one column each; the columns of an array are called 0, 1, and so on.
        """
        rows, columns = n_rows(X), columns_of(y)
        names = self.targets or _new_names(columns)
        _check_names(names, tuple(columns))
        numbers = np.empty((rows, len(names)))
        for t, name in enumerate(names):
            if len(columns[name]) != rows:
                raise ValueError(f"Expected as many targets as rows, got {len(columns[name])} and {rows} rows")
            numbers[:, t] = [self._number(one, f"y[{name!r}], row {i}") for i, one in enumerate(columns[name])]
        learn_table(self._model, X, numbers, weights_of(w, rows), [names] * rows, verbose=verbose)

    def _scores_by_target(self, x: Mapping[Hashable, Any]) -> dict[Hashable, float]:
        """Return f(x) of each target; empty before the first example."""
        scores, model_state = self._model.score(x)
        return dict(zip(model_state.labels, np.atleast_1d(scores).tolist(), strict=True)) if model_state.labels else {}


def _new_names(targets: Iterable[Hashable]) -> tuple[Hashable, ...]:
    """Return the names of the targets of a first example.

    Raise a LabelError if two are one key of a JSON object, such as 1 and "1".
    """
    names, forms = tuple(map(as_label, targets)), LabelForms()
    for name in names:
        if name in forms:
            both = f"{forms.of(name)!r} and {name!r}"
            raise LabelError(f"Expected one form of a target's name, got {both}, which are one key in JSON - at y")
        forms.add(name)
    return names


def _check_names(names: Sequence[Hashable], got: Sequence[Hashable]) -> None:
    """Raise an error if the targets given are not the targets of the model.

    Examples
    --------
    >>> _check_names(("a", "b"), ("b",))
    Traceback (most recent call last):
    streamkernel.errors.LabelError: Expected the targets ['a', 'b'], got ['b'] - at y
    """
    if not got:
        raise LabelError("Expected at least one target, got none - at y")
    if len(names) != len(got) or set(names) != set(got):
        raise LabelError(f"Expected the targets {list(names)}, got {list(got)} - at y")


@documented()
class KernelMultiTargetRegressor(SeveralTargetsModel, base.MultiTargetRegressor):  # type: ignore[misc]  # y, not Y
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
        self._make(locals())

    def _outputs(self) -> Targets:
        return Targets(state.MEAN)

    def _number(self, y: Any, where: str) -> float:
        return as_target(y, where)

    def predict_one(self, x: Mapping[Hashable, Any]) -> dict[Hashable, float]:
        """Return the prediction of each target, an empty dictionary before the first example."""
        return self._scores_by_target(x)

    def predict_many(self, X: IntoDataFrame) -> Any:
        """Return the predictions for each row of a data frame: a data frame with a column for each target."""
        scores, model_state = row_scores(self._model, X)
        return native_frame({name: scores[:, t] for name, t in model_state.labels.items()}, X)


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
        self._make(locals())

    def _outputs(self) -> Targets:
        return Targets()

    def _number(self, y: Any, where: str) -> float:
        value = y.item() if isinstance(y, np.generic) else y
        if not isinstance(value, (bool, int, float)) or value not in (0, 1):
            raise LabelError(f"Expected True or False, got {shorten(y)} - at {where}")
        return float(value)

    def predict_proba_one(  # type: ignore[override]
        self, x: Mapping[Hashable, Any]
    ) -> dict[Hashable, dict[bool, float]]:
        """Return the probabilities that each label is false and true, an empty dictionary before the first example."""
        up = {name: sigmoid(score) for name, score in self._scores_by_target(x).items()}
        return {name: {False: 1.0 - p, True: p} for name, p in up.items()}

    def predict_one(self, x: Mapping[Hashable, Any]) -> dict[Hashable, bool]:  # type: ignore[override]
        """Return whether each label is more likely true than false, an empty dictionary before the first example."""
        return {name: score > 0.0 for name, score in self._scores_by_target(x).items()}

    def predict_proba_many(self, X: IntoDataFrame) -> Any:
        """Return the probability that each label is true for each row: a data frame with a column for each label."""
        scores, model_state = row_scores(self._model, X)
        up = 0.5 * (1.0 + np.tanh(0.5 * scores))
        return native_frame({name: up[:, t] for name, t in model_state.labels.items()}, X)

    def predict_many(self, X: IntoDataFrame) -> Any:
        """Return whether each label is true for each row: a data frame with a column for each label."""
        scores, model_state = row_scores(self._model, X)
        return native_frame({name: scores[:, t] > 0.0 for name, t in model_state.labels.items()}, X)
