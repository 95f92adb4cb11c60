"""What the classifier and the regressor share: parameters, the first examples, the numbers a dashboard shows."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, NamedTuple, Self

import numpy as np

from streamkernel import losses, step_sizes, tensor_file
from streamkernel.errors import InputError
from streamkernel.estimators import model_file, model_merging
from streamkernel.features import example_tensors, numeric_names, scaling
from streamkernel.features.directions import Directions
from streamkernel.features.frames import table_rows
from streamkernel.features.rows import F64, Rows
from streamkernel.first_order.expansion import Expansion
from streamkernel.kernels import Gaussian, Kernel, Ladder, bandwidth
from streamkernel.learners import options as learners
from streamkernel.learners import state
from streamkernel.learners.options import DSG, Newton
from streamkernel.locking import locked
from streamkernel.second_order.mixture import Mixture
from streamkernel.upkeep import Pruning, Refit
from streamkernel.upkeep.scheduler import Upkeep

log = logging.getLogger(__name__)

Choice = str | Newton | DSG
"""A value of the parameter `learner`."""

DEFAULT_KERNEL = Gaussian("median", median_factor=0.4)
MANY_BANDWIDTHS = Ladder(Gaussian("median"), (0.25, 0.5, 1.5, 6.0))

LARGEST_BLOCK = 256
"""Features in a block at most, unless `features_per_seed` says otherwise."""


@dataclass(slots=True)
class State:
    """All that a model has learned. What compiled code does not change in place is replaced, in one assignment.

    Attributes
    ----------
    learner
        The function.
    scales
        The scales of inputs, ``None`` if they are taken as they are.
    first
        Examples that still decide the bandwidths, with their targets; ``None`` once these are known.
    labels
        The numbers of labels, in the order in which they came.
    upkeep
        What is done to the function from time to time, ``None`` if nothing is.
    numeric
        The names that hold numbers.
    own
        What a subclass keeps besides.
    journal
        What is being learned, ``None`` if nothing is.
    is_direct
        Whether one call of the function is all that learning from an example takes.
    """

    learner: Expansion | Mixture
    scales: scaling.Scales | None
    first: tuple[tuple[Rows, float], ...] | None
    labels: Mapping[Any, int]
    upkeep: Upkeep | None
    numeric: numeric_names.Names = numeric_names.NONE
    own: Any = None
    journal: Journal | None = None
    is_direct: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_direct = self.first is None and self.scales is None and self.upkeep is None and self.own is None

    def scores(self, rows: Rows) -> F64:
        """Return f of each row, shape (rows, columns)."""
        if isinstance(self.learner, Mixture):
            return self.learner.scores(rows, self.scales)
        return self.learner.scores(rows)


class Journal(NamedTuple):
    """Examples that are being learned: after an interruption it says what is still to be done, or to be undone.

    Attributes
    ----------
    before
        The state to go back to if none of them is learned.
    rows, y
        The examples.
    read
        Their values as the function reads them, of those that are learned.
    offered
        Examples that the function had been offered before.
    own
        What a subclass keeps once they are learned.
    """

    before: State
    rows: Rows
    y: F64
    read: F64
    offered: int
    own: Any = None


class KernelModel(model_file.Portable):
    """A River estimator around a function of random features.

    Any number of threads may predict, also while one learns. Learning, saving and merging take turns. An exception or a
    signal, wherever it comes, leaves the model as it was before an example or as it is after it.
    """

    _for_classes: bool | None
    _default_kernel: Kernel = DEFAULT_KERNEL

    def __init__(
        self,
        *,
        kernel: Kernel | None,
        loss: str | losses.Loss,
        learner: Choice,
        max_features: int | str | None,
        l2: float,
        cache_bytes: int,
        seed: int,
        pruning: Pruning | None = None,
        refit: Refit | None = None,
    ) -> None:
        if kernel is not None and not isinstance(kernel, Kernel):
            raise ValueError(f"Expected kernel as one of streamkernel.kernels or None, got {kernel!r}")
        if max_features is not None and not isinstance(max_features, str):
            _at_least(1, max_features=max_features)
        elif max_features not in ("auto", None):
            raise ValueError(f'Expected max_features to be an integer, "auto" or None, got {max_features!r}')
        _at_least(0, cache_bytes=cache_bytes)
        if not isinstance(seed, (int, np.integer)):
            raise ValueError(f"Expected seed to be an integer, got {seed!r}")
        if isinstance(l2, str) or not 0.0 <= l2 < math.inf:
            raise ValueError(f"Expected l2 >= 0, got {l2!r}")
        self.kernel = kernel
        self.loss = loss
        self.learner: Choice | None = learner
        self.max_features = max_features
        self.l2 = l2
        self.cache_bytes = cache_bytes
        self.seed = seed
        self.pruning = pruning
        self.refit = refit
        self._loss = losses.named(loss, self._for_classes)
        self._check_learner()
        self._cap, self._options = self._resolved()
        is_second_order = isinstance(self._options, Newton)
        self._wanted = kernel or (MANY_BANDWIDTHS if is_second_order else self._default_kernel)
        self._lock = Lock()
        self._state = State(
            learner=self._new_learner(self._wanted, 1),
            scales=scaling.Scales() if is_second_order and kernel is None else None,
            first=() if self._wanted.is_pending or is_second_order else None,
            labels={},
            upkeep=None,
            own=self._new_own(),
        )
        self._state = replace(self._state, upkeep=self._new_upkeep())

    @property
    def _learner(self) -> Expansion | Mixture:
        return self._state.learner

    @property
    def learner_(self) -> Newton | DSG:
        """The learner that runs, with the values that ``"auto"`` stands for where these are numbers."""
        return self._options

    @property
    def kernel_(self) -> Kernel:
        """The kernel in use; bandwidths that are taken from the stream are provisional during the first examples."""
        return self._learner.kernel

    @property
    def n_features(self) -> int:
        """Random features in the model, a cos/sin pair counted once."""
        return self.n_seeds * self._learner.block_size

    @property
    def n_seeds(self) -> int:
        """Blocks in the model, each of one seed."""
        return self._learner.n_blocks

    @property
    def n_steps(self) -> int:
        """Steps taken."""
        return int(self._learner.numbers["steps"])

    @property
    def n_reused(self) -> int:
        """Steps that moved an old block."""
        return int(self._learner.numbers["reused_steps"])

    @property
    def n_prunings(self) -> int:
        """Times that the model has been made smaller."""
        upkeep = self._state.upkeep
        return 0 if upkeep is None else upkeep.n_prunings

    @property
    def gap(self) -> float:
        """The certified primal-dual gap of the coefficients when they were refitted last; NaN before."""
        upkeep = self._state.upkeep
        return math.nan if upkeep is None else upkeep.gap

    @property
    def objective(self) -> float:
        """The running regularised loss, about the last thousand examples, each before it was learned."""
        return self._learner.objective

    @property
    def _intercept(self) -> int:
        """What f has added to it."""
        return state.NOTHING

    @property
    def _is_stochastic(self) -> bool:
        return False

    def _default_step(self) -> step_sizes.Step:
        """Return the step that is safe untuned."""
        return step_sizes.Constant(default_gamma(self._loss))

    def _new_own(self) -> Any:
        """Return what a subclass keeps besides, before the first example."""
        return None

    def _check_learner(self) -> None:
        """Raise a ValueError if a parameter does not go with the learner; names it."""
        if isinstance(learners.chosen(self.learner), DSG):
            return
        got = f"got learner={self.learner!r}"
        if not self._loss.is_curved:
            raise ValueError(
                f'Expected learner="dsg" with loss={self.loss!r}, which has no second derivative to take Newton steps '
                f"with, {got}"
            )
        for name, value, is_given in (
            ("max_features", None, self.max_features is None),
            ("refit", self.refit, self.refit is not None),
        ):
            if is_given:
                raise ValueError(f'Expected learner="dsg" with {name}={value!r}, {got}')

    def _resolved(self) -> tuple[int | None, Newton | DSG]:
        """Return the cap on the features, ``None`` for none, and the learner with numbers in place of "auto"."""
        cap, options = self.max_features, learners.chosen(self.learner)
        is_second_order = isinstance(options, Newton)
        if isinstance(cap, str):
            cap = 16 * LARGEST_BLOCK if is_second_order else 4 * LARGEST_BLOCK
        block_size = options.features_per_seed
        if isinstance(block_size, str):
            quarter = max(1, (cap or 4 * LARGEST_BLOCK) // 4)
            block_size = min(LARGEST_BLOCK, quarter) if is_second_order else quarter
        if cap is not None and cap < block_size:
            raise ValueError(f"Expected max_features to hold one block of features_per_seed={block_size}, got {cap}")
        options = replace(options, features_per_seed=block_size)
        if isinstance(options, Newton):
            step = learners.as_step(options.step_size) or step_sizes.Constant(0.75 / self._loss.curvature)
            forgetting = 1.0 if isinstance(options.forgetting, str) else options.forgetting
            options = replace(options, step_size=step, forgetting=forgetting)
        return cap, options

    def _new_learner(self, kernel: Kernel, columns: int) -> Expansion | Mixture:
        options: Any = self._options
        step = learners.as_step(options.step_size)
        shared: dict[str, Any] = {
            "block_size": options.features_per_seed,
            "l2": self.l2,
            "columns": columns,
            "intercept": self._intercept,
            "cache_bytes": self.cache_bytes,
            "seed": self.seed,
        }
        if isinstance(options, Newton):
            return Mixture(
                kernel,
                self._loss,
                step or self._default_step(),
                joint=options.joint,
                max_features=self._cap or 0,
                batch_size=options.batch_size or 1,
                forgetting=float(options.forgetting),
                **shared,
            )
        return Expansion(
            kernel,
            self._loss,
            options.rule,
            step or self._default_step(),
            per_k_xx=step is None and options.preconditioner is None,
            epsilon=options.preconditioner or 0.0,
            max_features=self._cap,
            batch_size=options.batch_size,
            average=options.averaging,
            per_error=step is None and self._loss.directional,
            **shared,
        )

    def _new_upkeep(self) -> Upkeep | None:
        """Return what is done to the model from time to time; ``None`` if nothing is."""
        for name, kind in (("pruning", Pruning), ("refit", Refit)):
            if not isinstance(getattr(self, name), kind | None):
                raise ValueError(f"Expected {name} as a {kind.__name__} or None, got {getattr(self, name)!r}")
        tasks = [task for task in (self.pruning, self.refit) if task is not None]
        for task in tasks:
            task.check(self._learner, self.max_features)
        return Upkeep.new(tasks, self._with_columns) if tasks else None

    def _target(self, y: Any) -> float:
        """Return a target as a number."""
        raise ValueError(f"Expected a classifier or a regressor, got a {type(self).__name__}")

    def _with_columns(self, columns: int) -> Expansion | Mixture:
        """Return a function with a number of columns that has learned nothing, with the bandwidths in use."""
        return self._new_learner(self.kernel_, columns)

    def _score(self, x: Mapping[Hashable, Any]) -> Any:
        """Return f(x): a float, or an array of shape (columns,) if there are several."""
        found = self._state
        try:
            if found.is_direct:
                return found.learner.score_event(x, found.numeric)
            found = self._complete()
            scores = found.scores(found.learner.directions.row(x, found.numeric))[0]
        except (InputError, TypeError, AttributeError):
            self._check(x)
            raise
        return float(scores[0]) if len(scores) == 1 else scores

    def _scores_of(self, rows: Rows) -> F64:
        """Return f of each row, shape (rows, columns)."""
        return self._complete().scores(rows)

    def _check(self, x: Any) -> None:
        """Raise the error that says best why an example cannot be used, if there is one."""
        if not isinstance(x, Mapping):
            raise TypeError(f"Expected x as a dictionary of features by name, got {type(x).__name__}")
        self._learner.directions.plan.check(x)

    def _complete(self) -> State:
        """Return the state, with what an interruption has left to be done; another thread that learns does it
        itself."""
        found = self._state
        if (found.journal is not None or found.learner.is_unfinished) and not self._lock.locked():
            self._recovered()
        return self._state

    @locked
    def _recovered(self) -> State:
        """Return the state without anything that an interruption has left to be done."""
        self._recover()
        return self._state

    def _learn_event(self, x: Mapping[Hashable, Any], y: float) -> None:
        """Learn from one example."""
        found = self._state
        try:
            if not (found.is_direct and found.learner.learn_event(x, y, found.numeric)):
                directions = found.learner.directions
                row = directions.row(x, found.numeric)
                self._learn(row, np.array([y], np.float64), directions, directions.with_numeric(x, found.numeric))
        except (InputError, TypeError, AttributeError):
            self._check(x)
            raise

    @locked
    def _learn(
        self, rows: Rows, y: F64, directions: Directions, numeric: numeric_names.Names, labels: Sequence[Any] = ()
    ) -> None:
        """Learn `rows` in order.

        Parameters
        ----------
        rows, y
            The examples, and their targets as numbers.
        directions
            Those that the rows were made with.
        numeric
            The names that hold numbers in these examples or before.
        labels
            The labels of the examples, if some may be new; `y` is set to their numbers.
        """
        self._recover()
        self._check_labels(labels)
        done = 0
        while done < len(y):
            found, last = self._state, len(y)
            if directions.store is not found.learner.directions.store:  # another function has taken its place
                directions = found.learner.directions
                rows = directions.adopt_rows(rows)
            if found.first is not None:
                last = done + 1
            elif found.upkeep is not None:
                last = min(last, done + found.upkeep.until_due())
            if labels:
                last, found = self._labelled(found, labels, y, done, last)
            if found.numeric is not numeric:
                found = replace(found, numeric=numeric_names.join_names(found.numeric, numeric))
            self._offer(rows.part(done, last), y[done:last], found)
            done = last

    def _labelled(self, found: State, labels: Sequence[Any], y: F64, first: int, last: int) -> tuple[int, State]:
        """Set `y` to the numbers of labels, up to the first new one but that of the first example, for which there
        is room.

        Return which one that is, and the state.
        """
        for i in range(first, last):
            number = found.labels.get(labels[i])
            if number is None:
                if i > first:
                    return i, found
                found = self._with_label(found, labels[i])
                number = found.labels[labels[i]]
            y[i] = number
        return last, found

    def _check_labels(self, labels: Sequence[Any]) -> None:
        """Raise an InputError if not all of these labels can be learned."""

    def _with_label(self, found: State, label: Any) -> State:
        """Return the state with room for a new label."""
        raise NotImplementedError

    def _offer(self, rows: Rows, y: F64, after: State, own: Any = None) -> None:
        """Learn rows in order with a state that may know a new label, and make the changes that follow; with the
        lock."""
        learner, read = after.learner, np.empty_like(rows.values)
        self._learner.close()  # an event in another thread waits for the lock
        learner.close()
        self._state = replace(after, journal=Journal(self._state, rows, y, read, learner.offered, own))
        try:
            if isinstance(learner, Mixture):
                learner.learn(rows, y, after.scales, read)
            else:
                read[:] = rows.values
                learner.learn(rows, y)
        finally:
            self._recover()

    def _recover(self) -> None:
        """Make the changes that follow from what is learned, or undo those that nothing followed from; with the
        lock."""
        found = self._state
        found.learner.finish()
        journal = found.journal
        if journal is None:
            found.learner.open()
            return
        learned = found.learner.offered - journal.offered
        if learned <= 0:
            self._state = journal.before
        else:
            rows = journal.rows._replace(values=journal.read).part(0, learned)
            after = replace(found, journal=None, own=found.own if journal.own is None else journal.own)
            self._state = self._followed(after, journal.rows.part(0, learned), rows, journal.y[:learned])
        self._learner.open()

    def _followed(self, found: State, rows: Rows, read: Rows, y: F64) -> State:
        """Return the state after examples have been learned; `read` are the rows as the function reads them."""
        if found.first is not None:
            first = (*found.first, (rows, float(y[0])))
            is_due = bandwidth.is_due(len(first)) or bandwidth.is_enough([row for row, _ in first])
            return self._restarted(found, first) if is_due else replace(found, first=first)
        if found.upkeep is not None:
            learner, upkeep = found.upkeep.observe(found.learner, read, y)
            return replace(found, learner=learner, upkeep=upkeep)
        return found

    def _restarted(self, found: State, first: tuple[tuple[Rows, float], ...]) -> State:
        """Return the state in which scales and bandwidths are those of the first examples, which are learned again."""
        rows = Rows.stack([row for row, _ in first])
        scales = found.scales
        if scales is not None:
            scales = scales.copy()
            scales.use_moments()
            rows = scales(rows)
        plan = found.learner.directions.plan
        learner = found.learner.start_over(bandwidth.with_medians(self._wanted, plan, rows), rows)
        for i, (_, target) in enumerate(first):
            try:
                learner.learn_one(rows.part(i, i + 1), target)
            except InputError as error:
                log.warning("%s cannot learn an example again with a new bandwidth: %s", type(self).__name__, error)
        if not bandwidth.is_enough([row for row, _ in first]):
            return replace(found, learner=learner, scales=scales, first=first)
        log.info("%s took %r from the first %d examples", type(self).__name__, learner.kernel, len(first))
        return replace(found, learner=learner, scales=scales, first=None)

    def _table(self, X: Any) -> Rows:
        return table_rows(self._learner.directions, X, self._state.numeric)[0]

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {}

    def merge(self, *others: Self, base: Self | None = None) -> Self:
        """Become what this model and others are together, as if one had learned from the events of all.

        First-order functions become their mean, weighted by events; of second-order ones the Gram matrices add up
        (:mod:`streamkernel.merging`). Labels, moments of the inputs and counters are those of all.

        Parameters
        ----------
        *others
            Models of the same parameters, kernel and scales; they stay as they are, but take the step first that
            their last examples wait for.
        base
            The model that all of them were, if they went on from one; what they have in common then counts once.

        Returns
        -------
        self

        Raises
        ------
        MergeError
            If a parameter, the kernel in use, the scales of inputs or features differ, a model has not yet seen the
            examples that decide its bandwidths, or the base cannot be what they went on from, or had examples waiting
            for a batch that one of several has learnt. This model stays as it was.

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
        >>> round(south.predict_one({"x": 0.5}), 1)
        -0.3
        >>> model = north.merge(south)
        >>> round(model.predict_one({"x": 0.5}), 1), round(model.predict_one({"x": -0.5}), 1), model.n_steps
        (0.4, 0.4, 2000)
        """

        def merge() -> None:
            model_merging.check([self, *others], base)
            root = None if base is None else model_merging.summarize(base)
            before = None if root is None else root.events
            model_merging.merge_into(self, [model_merging.summarize(model, before) for model in (self, *others)], root)

        models = {id(model): model for model in (self, *others, base) if isinstance(model, KernelModel)}
        _while_still([models[key] for key in sorted(models)], merge)  # in one order: no two wait for each other
        return self

    @locked
    def run_task(self, task: Any, events: Sequence[tuple[Mapping[Hashable, Any], Any]], tell: Any = None) -> Any:
        """Do a task on some events at once, and return its gap if it has one; see :func:`streamkernel.upkeep.apply`.

        Raises
        ------
        ValueError
            If it cannot be done to this model.
        """
        task.check(self._learner, self.max_features)
        from streamkernel.upkeep.work import done

        directions = self._learner.directions
        rows = Rows.stack([directions.row(x) for x, _ in events])
        y = np.array([self._target(y) for _, y in events], np.float64)
        self._recover()
        found = self._state
        rows = found.learner.directions.adopt_rows(rows)
        read = rows if found.scales is None else found.scales(rows)
        learner, gap = done(task, found.learner, read, y, self._with_columns, tell)
        self._state = replace(found, learner=learner)
        return gap

    @locked
    def _to_predict(self) -> Self:
        """Return a copy that only predicts, in any number of threads, and shares nothing that learning changes."""
        twin: Self = object.__new__(type(self))
        vars(twin).update(vars(self))
        self._recover()
        found = self._state
        scales = None if found.scales is None else found.scales.copy()
        learner = found.learner.to_predict_apart()
        twin._lock = Lock()
        twin._state = State(learner, scales, found.first, found.labels, None, found.numeric, found.own)
        return twin

    @property
    def _is_young(self) -> bool:
        """Whether the examples are still to come that decide bandwidths and scales."""
        return self._state.first is not None or self._learner.examples < bandwidth.FIRST

    @locked
    def _settle(self) -> None:
        """Take the step that examples wait for."""
        self._recover()
        self._learner.settle()

    @locked
    def _keep_still(self, others: Sequence[KernelModel], do: Callable[[], None]) -> None:
        """Do something while no thread learns with this model or others."""
        self._recover()
        try:
            self._learner.close()
            _while_still(others, do)
        finally:
            self._learner.open()

    def _divide(self, number: int, replicas: int) -> None:
        """Become one of several replicas that learn apart, are merged, and restructure themselves only then."""
        self._learner.may_restructure = False
        if isinstance(self._learner, Expansion):
            self._learner.divide(number, replicas)

    def _look(self) -> None:
        """Take the scales anew, and begin a larger group if it is time to."""
        if self._state.scales is not None:
            self._state.scales.use_moments()
        if isinstance(self._learner, Mixture):
            self._learner.grow_if_due()

    def _description(self) -> dict[str, Any]:
        """Return what the model is, apart from its tensors and its parameters: JSON values and kernels."""
        return {"kernel": self.kernel_, "columns": self._learner.columns}

    def _tensors(self) -> dict[str, Any]:
        """Return what it has learned, as arrays that share nothing with it."""
        found = self._state
        first = {} if found.first is None else example_tensors.pack_examples("first", found.first)
        scales = {} if found.scales is None else found.scales.tensors()
        upkeep = {} if found.upkeep is None else found.upkeep.tensors()
        return (
            found.learner.tensors()
            | first
            | scales
            | upkeep
            | example_tensors.pack_hashes("numeric_names", found.numeric)
        )

    @locked
    def _described(self) -> tuple[dict[str, Any], tensor_file.Tensors]:
        self._recover()
        return self._description(), self._tensors()

    def _restore(self, description: Mapping[str, Any], tensors: dict[str, Any]) -> None:
        labels = self._labels_in(description)
        learner = self._new_learner(model_file.kernel_in(description, self._wanted), self._columns(len(labels)))
        if description["columns"] != learner.columns:
            raise ValueError(f"expected {learner.columns} columns, got {description['columns']!r}")
        learner.restore(tensors)
        scales = None if self._state.scales is None else scaling.Scales()
        if scales is not None:
            scales.restore(tensors)
        first = example_tensors.unpack_examples("first", tensors, learner.directions)
        learner.check_targets([y for _, y in first or []])
        if len(first or []) >= bandwidth.FIRST:
            raise ValueError(f"expected less than {bandwidth.FIRST} first examples")
        known = None if first is None else tuple(first)
        numeric, own = example_tensors.unpack_hashes("numeric_names", tensors), self._own_in(tensors)
        self._state = State(learner, scales, known, labels, self._new_upkeep(), numeric, own)
        upkeep = self._state.upkeep
        if upkeep is not None and "upkeep.numbers" in tensors:  # a copy that only predicts has none
            self._state = replace(self._state, upkeep=upkeep.restored(learner, tensors))  # its job reads the kernel

    def _labels_in(self, description: Mapping[str, Any]) -> dict[Any, int]:
        """Return the labels that a description has."""
        return {}

    def _own_in(self, tensors: Mapping[str, Any]) -> Any:
        """Return what a subclass keeps besides."""
        return None

    def _columns(self, labels: int) -> int:
        """Return how many columns f has for a number of labels."""
        return 1


def default_gamma(loss: losses.Loss) -> float:
    """Return the constant step that is safe untuned: a quarter of the inverse of the loss's curvature, at most 1.

    It is in units of the mean absolute error where the loss is directional.
    """
    return min(1.0, 0.25 / loss.curvature)


def _while_still(models: Sequence[KernelModel], do: Callable[[], None]) -> None:
    """Do something while no thread learns with any of the models."""
    if models:
        models[0]._keep_still(models[1:], do)
    else:
        do()


def _at_least(least: int, **values: int) -> None:
    for name, value in values.items():
        if not isinstance(value, (int, np.integer)) or value < least:
            raise ValueError(f"Expected an integer {name} >= {least}, got {value!r}")


def refuse_weights(w: Any) -> None:
    """Raise a ValueError for weights of examples."""
    raise ValueError(f"Expected no weight other than 1, for weights are not supported yet, got w={w!r}")
