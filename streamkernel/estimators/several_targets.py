"""Estimators whose y is a dictionary, on one set of features: their common part, and the regressor."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from river import base

from streamkernel import learners, losses
from streamkernel.errors import InputError, LabelError
from streamkernel.estimators import explaining
from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.documentation import documented
from streamkernel.estimators.model_state import State
from streamkernel.estimators.outputs import LabelForms, Learner, ModelOutputs
from streamkernel.estimators.tables import learn_table, row_scores
from streamkernel.estimators.targets import as_label, as_target, as_weight, weights_of
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

    def __init__(self, **parameters: Any) -> None:
        super().__init__(**parameters)
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

    def _numbers(self, y: Any) -> tuple[tuple[Hashable, ...], F64, bool]:
        """Return the names of the targets of an example, their numbers, and whether they are the first.

        Raise an InputError if they are not the targets of the first example, or one is unusable.
        """
        if not isinstance(y, Mapping):
            raise TypeError(f"Expected y as a dictionary of targets by name, got {type(y).__name__}")
        learned = self.targets
        names = learned or _new_names(y)
        _check_names(names, tuple(y))
        return names, np.array([self._number(y[name], f"y[{name!r}]") for name in names]), not learned

    def _learn_one(self, x: Mapping[Hashable, Any], y: Any, w: float) -> None:
        """Learn from one example of the weight w."""
        names, numbers, is_new = self._numbers(y)
        w = as_weight(w)
        if w == 0.0:
            self._model.check(x)
            return
        self._model.learn_event(x, numbers, w, [names], is_new=is_new)

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

    def _learn_rows(self, X: Any, Y: Any, w: Any, verbose: bool) -> None:
        """Learn from the rows of a table in order, with the columns of another one as targets."""
        rows, columns = n_rows(X), columns_of(Y)
        names = self.targets or _new_names(columns)
        _check_names(names, tuple(columns))
        numbers = np.empty((rows, len(names)))
        for t, name in enumerate(names):
            if len(columns[name]) != rows:
                raise ValueError(f"Expected as many targets as rows, got {len(columns[name])} and {rows} rows")
            numbers[:, t] = [self._number(y, f"y[{name!r}], row {i}") for i, y in enumerate(columns[name])]
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
        scores, model_state = row_scores(self._model, X)
        return native_frame({name: scores[:, t] for name, t in model_state.labels.items()}, X)
