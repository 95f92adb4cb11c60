"""The common base of the estimators: parameters, properties for users and dashboards, and the rows of tables."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np

from streamkernel import losses, step_sizes
from streamkernel.errors import is_real
from streamkernel.estimators import model_merging
from streamkernel.estimators.model import Model, while_still
from streamkernel.estimators.model_file import Serializable, describe_model, restore_model
from streamkernel.estimators.model_state import State
from streamkernel.estimators.outputs import Learner, ModelOutputs
from streamkernel.estimators.parameters import (
    DELTA_PER_ERROR,
    check_shared,
    choose_learner,
    mixes_bandwidths,
    new_function,
    require_at_least,
)
from streamkernel.estimators.targets import SMALLEST_WEIGHT, label_scores, probabilities
from streamkernel.features.frames import table_blocks
from streamkernel.features.rows import F64
from streamkernel.kernels import Gaussian, Kernel, MultiScale
from streamkernel.learners import DSG, LARGEST_L2, LEAST_L2, Newton
from streamkernel.solvers.progress import progress_line
from streamkernel.tensor_file import Tensors
from streamkernel.upkeep import Pruning, Refit

Choice = str | Newton | DSG
"""A value of the parameter `learner`."""

DEFAULT_KERNEL = Gaussian("median", median_factor=0.4)
MANY_BANDWIDTHS = MultiScale(Gaussian("median"), (0.25, 0.5, 1.5, 6.0))
MIXED_BANDWIDTHS = MultiScale(Gaussian("median"), (0.8, 0.4, 0.2, 0.1))
"""For functions of one bandwidth each: the angles of one are twice the angles of the one before."""

ROWS_SHOWN = 256
"""Rows between two moves of a progress line."""


class KernelModel(Serializable):
    """A River estimator: parameters, and the model of random features that it owns.

    Any number of threads may predict, also while one learns. Learning, saving and merging take turns. An exception or a
    signal, wherever it comes, leaves the model as it was before an example or as it is after it.
    """

    _for_classes: bool | None
    _default_kernel: Kernel = DEFAULT_KERNEL
    _scales_inputs = True
    """Whether inputs are scaled where `kernel` is None."""
    _default_learner: Choice | None = None
    """The learner if `learner` may be None, and is."""

    kernel: Kernel | None
    loss: str | losses.Loss
    learner: Choice | None
    max_features: int | str | None
    l2: float
    cache_bytes: int
    seed: int
    pruning: Pruning | None = None
    refit: Refit | None = None

    def _make(self, parameters: Mapping[str, Any]) -> None:
        """Set the parameters of a constructor, which its ``locals()`` are, as attributes, and make the model."""
        for name, value in parameters.items():
            if name != "self":
                setattr(self, name, value)
        check_shared(self.kernel, self.cache_bytes, self.seed)
        max_features, l2 = self.max_features, self.l2
        if max_features is not None and not isinstance(max_features, str):
            require_at_least(1, max_features=max_features)
        elif max_features not in ("auto", None):
            raise ValueError(f'Expected max_features to be an integer, "auto" or None, got {max_features!r}')
        if not (is_real(l2) and (l2 == 0.0 or LEAST_L2 <= l2 <= LARGEST_L2)):
            raise ValueError(f"Expected l2 as 0, or from {LEAST_L2:g} to {LARGEST_L2:g}, got {l2!r}")
        self._loss = self._resolved_loss()
        learner = self._default_learner if self.learner is None else self.learner
        is_mixed = self.kernel is None and self._default_step() is None
        is_mixed = is_mixed and mixes_bandwidths(learner, self._loss, max_features)
        cap, self._options = choose_learner(
            learner,
            self._loss,
            loss=self.loss,
            max_features=max_features,
            refit=self.refit,
            is_mixed=is_mixed,
        )
        for name, kind in (("pruning", Pruning), ("refit", Refit)):
            if not isinstance(getattr(self, name), kind | None):
                raise ValueError(f"Expected {name} as a {kind.__name__} or None, got {getattr(self, name)!r}")
        is_second_order, outputs, kernel = isinstance(self._options, Newton), self._outputs(), self.kernel
        if kernel is None:
            kernel = MIXED_BANDWIDTHS if is_mixed else MANY_BANDWIDTHS if is_second_order else self._default_kernel
        new_learner = partial(
            new_function,
            self._options,
            loss=self._loss,
            default_step=self._default_step(),
            cap=cap,
            is_scaled=self._scales_inputs and self.kernel is None,
            loss_per_error=DELTA_PER_ERROR if self.loss == "huber" else 0.0,
            l2=l2,
            intercept=outputs.intercept,
            cache_bytes=self.cache_bytes,
            seed=self.seed,
        )
        self._model = Model(
            type(self).__name__,
            outputs,
            kernel,
            new_learner,
            tasks=[task for task in (self.pruning, self.refit) if task is not None],
            max_features=max_features,
            is_scaled=self._scales_inputs and self.kernel is None,
            has_first=is_second_order,
        )

    def _resolved_loss(self) -> losses.Loss:
        """Return the loss that the parameters name."""
        return losses.resolve_loss(self.loss, self._for_classes)

    def _outputs(self) -> ModelOutputs:
        """Return the kind of y."""
        raise NotImplementedError

    def _default_step(self) -> step_sizes.Step | None:
        """Return the step size for ``step_size="auto"``, or ``None`` for steps of automatic size."""
        return None

    @property
    def _learner(self) -> Learner:
        return self._model.learner

    @property
    def _state(self) -> State:
        return self._model.state

    @property
    def _events(self) -> int:
        return int(self._learner.examples)

    @property
    def _is_provisional(self) -> bool:
        return self._model.is_provisional

    @property
    def kernel_(self) -> Kernel:
        """The kernel in use; bandwidths that are taken from the stream are provisional during the first examples."""
        return self._learner.kernel

    @property
    def learner_(self) -> Newton | DSG:
        """The learner in use, with numbers in place of ``"auto"`` where these are known."""
        return self._options

    @property
    def n_features(self) -> int:
        """Random features in the model, a cos/sin pair counted once."""
        return self.n_seeds * self._learner.block_size

    @property
    def n_seeds(self) -> int:
        """Blocks in the model, each with its own seed."""
        return self._learner.n_blocks

    @property
    def n_steps(self) -> int:
        """Steps taken."""
        return int(self._learner.numbers["steps"])

    @property
    def n_reused(self) -> int:
        """Steps that changed an existing block."""
        return int(self._learner.numbers["reused_steps"])

    @property
    def n_prunings(self) -> int:
        """Number of times that the model has been pruned."""
        upkeep = self._state.upkeep
        return 0 if upkeep is None else upkeep.n_prunings

    @property
    def gap(self) -> float:
        """The certified primal-dual gap of the last refit; NaN before the first."""
        upkeep = self._state.upkeep
        return math.nan if upkeep is None else upkeep.gap

    @property
    def objective(self) -> float:
        """The running regularised loss, about the last thousand examples, each before it was learned."""
        return self._model.frozen().learner.objective

    @property
    def n_bounded_predictions(self) -> int:
        """Learned examples whose prediction, before they were learned, was outside of the range of targets and was
        moved to its bound; of several targets the sum. It is 0 for classes.
        """
        return self._learner.of_targets[0]

    @property
    def n_outlying_targets(self) -> int:
        """Targets far outside of the range of those before that did not count in full: in what a second-order learner
        learns, or in the range that limits the predictions of a first-order one; counted in the same way.
        """
        return self._learner.of_targets[1]

    @property
    def mixture_weights(self) -> dict[str, float]:
        """The weights of the functions in the mixture f, by kind.

        The kinds are the functions that take Newton steps, those that take constant ones, the level, those linear in
        the inputs, and the nearest neighbours. The weight of constant steps grows if the stream drifts. First-order
        learners have a weight for each multiple of the bandwidth, and none with a single one.
        """
        return dict(self._model.frozen().learner.shares)

    def _describe(self) -> tuple[dict[str, Any], Tensors]:
        return describe_model(self._model)

    def _restore(self, description: Mapping[str, Any], tensors: Tensors) -> None:
        restore_model(self._model, description, tensors)

    def merge(self, *others: Self, base: Self | None = None) -> Self:
        """Merge other models into this one, as if it had learned the events of all.

        The merged first-order function is the mean of the functions, weighted by events; for second-order functions the
        Gram matrices are added (:mod:`streamkernel.merging`). Labels, moments of the inputs and counters include those
        of all.

        Parameters
        ----------
        *others
            Models of the same parameters, kernel and scales, each once. They do not change, except that they first take
            the step for their buffered examples.
        base
            The model from which all of them continued, if there is one; its events then count once.

        Returns
        -------
        self

        Raises
        ------
        MergeError
            If models differ in a parameter, the kernel in use, the scales of inputs or the features; if a model has not
            yet learned the examples that determine its bandwidths; if a model comes twice, or all have more than 2^53
            events, as after many merges of the same models; if the models cannot have continued from the base;
            or if several of them have learned examples that were buffered in the base. This model then does not change.

        Examples
        --------
        >>> import random
        >>> from streamkernel import KernelRegressor, kernels, learners
        >>> rng = random.Random(1)
        >>> kernel = kernels.Gaussian(1.0)
        >>> learner = learners.Newton(joint=True)
        >>> north, south = (KernelRegressor(kernel, learner=learner, max_features=256) for _ in range(2))
        >>> for _ in range(1000):
        ...     (x, z) = (rng.random(), rng.random())
        ...     north.learn_one({"x": x}, x)
        ...     south.learn_one({"x": -z}, z)
        >>> round(south.predict_one({"x": 0.5}), 2)
        -0.05
        >>> model = north.merge(south)
        >>> round(model.predict_one({"x": 0.5}), 1), round(model.predict_one({"x": -0.5}), 1), model.n_steps
        (0.4, 0.4, 2000)
        """

        def merge() -> None:
            model_merging.check([self, *others], base)
            root = None if base is None else model_merging.summarize(base)
            model_merging.merge_into(self, [model_merging.summarize(model) for model in (self, *others)], root)

        models = {id(one): one._model for one in (self, *others, base) if isinstance(one, KernelModel)}
        while_still([models[key] for key in sorted(models)], merge)  # a fixed order prevents deadlocks
        return self

    def run_task(self, task: Any, events: Sequence[tuple[Mapping[Hashable, Any], Any]], tell: Any = None) -> Any:
        """Apply a task on some events at once, and return its gap if it has one; see :func:`streamkernel.upkeep.apply`.

        Raises
        ------
        ValueError
            If the task cannot be applied to this model.
        """
        return self._model.run_task(task, events, tell)


def learn_table(
    model: Model, X: Any, y: F64, weights: F64, labels: Sequence[Any] = (), *, verbose: bool = False
) -> None:
    """Learn the rows of a table in order, except rows of weight 0."""
    state, done = model.state, 0
    directions, before = state.learner.directions, state.numeric
    learnable = [label for label, w in zip(labels, weights.tolist(), strict=False) if w >= SMALLEST_WEIGHT]
    model.outputs.check(state.labels, learnable)
    with progress_line("Learning", show=verbose) as tell:
        for block, numeric in table_blocks(directions, X, before):
            size = len(block.start) - 1
            for first in range(0, size, ROWS_SHOWN if verbose else max(1, size)):
                rows = block.part(first, min(first + ROWS_SHOWN, size) if verbose else size)
                last = done + len(rows.start) - 1
                rows, part_labels, targets = rows._replace(weights=weights[done:last]), labels[done:last], y[done:last]
                chosen = rows.weights >= SMALLEST_WEIGHT
                if not chosen.all():
                    part_labels = (
                        [label for label, is_one in zip(part_labels, chosen, strict=True) if is_one]
                        if part_labels
                        else ()
                    )
                    rows, targets = rows.where(chosen), targets[chosen]
                model.learn_rows(rows, targets, directions, numeric, part_labels, before)
                before = numeric
                done = last
                tell(done / len(y), f"{done:,} of {len(y):,} rows")


def row_scores(model: Model, X: Any) -> tuple[F64, State]:
    """Return f of each row of a table, shape (rows, columns), and the state that all of them are from."""
    state = model.frozen()
    blocks = table_blocks(state.learner.directions, X, state.numeric)
    return np.concatenate([state.learner.scores(rows, state.scales) for rows, _ in blocks]), state


def class_probabilities(model: Model, X: Any, classes: Sequence[Any]) -> F64:
    """Return the probability of each class for each row of a table, shape (rows, classes).

    A class that the model has not learned has probability 0. The model must have learned at least one class.
    """
    scores, state = row_scores(model, X)
    learned = probabilities(state.learner.loss, scores, len(state.labels))
    shares = np.zeros((len(scores), len(classes)))
    for i, label in enumerate(classes):
        if label in state.labels:
            shares[:, i] = learned[:, state.labels[label]]
    return shares


def class_scores(model: Model, X: Any, classes: Sequence[Any]) -> F64:
    """Return the score of the second of two classes, shape (rows,), or of each of more, shape (rows, classes).

    A class that the model has not learned has the lowest score minus 1. The model must have learned at least one class.
    """
    scores, state = row_scores(model, X)
    labels = state.labels
    if len(classes) == 2 and len(labels) == 2:
        return label_scores(scores, labels, classes[1], False)
    by_label = {label: label_scores(scores, labels, label, False) for label in classes if label in labels}
    lower = np.min([*by_label.values()], axis=0) - 1.0
    by_class = np.stack([by_label.get(label, lower) for label in classes], axis=1)
    return by_class[:, 1] - by_class[:, 0] if len(classes) == 2 else by_class
