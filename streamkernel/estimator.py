"""What the classifier and the regressor share: parameters, the first examples, the numbers a dashboard shows."""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Self

import numpy as np

from streamkernel import bandwidth, losses, merging, model_file, rules, scaling, schedule, state, steps
from streamkernel.errors import InputError
from streamkernel.expansion import Expansion
from streamkernel.growth import ALONE
from streamkernel.kernels import Gaussian, Kernel, Ladder
from streamkernel.mixture import LARGEST, Mixture
from streamkernel.rows import F64, Rows
from streamkernel.tables import table_rows
from streamkernel.upkeep import Compaction, Polish
from streamkernel.upkeep.keeper import Upkeep

log = logging.getLogger(__name__)


DEFAULT_KERNEL = Gaussian("median", multiple=0.4)
MANY_BANDWIDTHS = Ladder(Gaussian("median"), (0.25, 0.5, 1.5, 6.0))
DEFAULT_RULE = rules.CDSG(longest=1.0)

LARGEST_BLOCK = 256
"""Features in a block where nothing else is said."""


class KernelModel(model_file.Portable):
    """A River estimator around one :class:`~streamkernel.expansion.Expansion`."""

    _for_classes: bool | None
    _default_kernel: Kernel = DEFAULT_KERNEL
    _default_rule: rules.Rule = DEFAULT_RULE

    def __init__(
        self,
        kernel: Kernel | None,
        loss: str | losses.Loss,
        rule: rules.Rule | None,
        features_per_seed: int | None,
        batch_size: int,
        max_features: int | str | None,
        l2: float,
        step: steps.Step | None,
        preconditioning: float | None,
        average: bool,
        cache_bytes: int,
        seed: int,
        second_order: str | None,
        forgetting: float,
        compaction: Compaction | None = None,
        polish: Polish | None = None,
    ) -> None:
        _at_least(1, batch_size=batch_size)
        if max_features is not None and not isinstance(max_features, str):
            _at_least(1, max_features=max_features)
        elif max_features not in ("auto", None):
            raise ValueError(f'Expected max_features to be an integer, "auto" or None, got {max_features!r}')
        if features_per_seed is not None:
            _at_least(1, features_per_seed=features_per_seed)
        _at_least(0, cache_bytes=cache_bytes)
        if not isinstance(seed, (int, np.integer)):
            raise ValueError(f"Expected seed to be an integer, got {seed!r}")
        if not isinstance(average, (bool, np.bool_)):
            raise ValueError(f"Expected average to be a Boolean, got {average!r}")
        if isinstance(l2, str) or not 0.0 <= l2 < math.inf:
            raise ValueError(f"Expected l2 >= 0, got {l2!r}")
        if preconditioning is not None and (isinstance(preconditioning, str) or not 0.0 < preconditioning < math.inf):
            raise ValueError(f"Expected preconditioning > 0, got {preconditioning!r}")
        if isinstance(forgetting, str) or not 0.0 < forgetting <= 1.0:
            raise ValueError(f"Expected 0 < forgetting <= 1, got {forgetting!r}")
        self.kernel = kernel
        self.loss = loss
        self.rule = rule
        self.features_per_seed = features_per_seed
        self.batch_size = batch_size
        self.max_features = max_features
        self.l2 = l2
        self.step = step
        self.preconditioning = preconditioning
        self.average = average
        self.cache_bytes = cache_bytes
        self.seed = seed
        self.second_order = second_order
        self.forgetting = forgetting
        self.compaction = compaction
        self.polish = polish
        self._loss = losses.named(loss, self._for_classes)
        self._order = self._chosen_order()
        self._cap, self._per_block = self._sizes()
        self._wanted = kernel or (MANY_BANDWIDTHS if self._order else self._default_kernel)
        self._learner = self._new_learner(self._wanted, 1)
        self._scales = scaling.Scales() if self._order and kernel is None else None
        # Examples that still decide the bandwidths, with their targets; None once they are known.
        self._first: list[tuple[Rows, float]] | None = [] if self._wanted.is_pending or self._order else None
        self._upkeep = self._new_upkeep()

    @property
    def kernel_(self) -> Kernel:
        """The kernel in use; bandwidths that are taken from the stream are provisional during the first examples."""
        return self._learner.kernel

    @property
    def n_features(self) -> int:
        """Random features in the model, a cos/sin pair counted once."""
        return self.n_seeds * self._learner.per_block

    @property
    def n_seeds(self) -> int:
        """Blocks in the model, each of one seed."""
        return self._learner.n_blocks

    @property
    def n_steps(self) -> int:
        """Steps taken."""
        return int(self._learner.ints[state.STEPS])

    @property
    def n_reused(self) -> int:
        """Steps that moved an old block."""
        return int(self._learner.ints[state.REUSED])

    @property
    def n_compactions(self) -> int:
        """Times that the model has been made smaller."""
        return 0 if self._upkeep is None else self._upkeep.n_compactions

    @property
    def gap(self) -> float:
        """The certified primal-dual gap of the coefficients when they were polished last; NaN before."""
        return math.nan if self._upkeep is None else self._upkeep.gap

    @property
    def objective(self) -> float:
        """The running regularised loss, about the last thousand examples, each before it was learnt."""
        return self._learner.objective

    @property
    def _intercept(self) -> int:
        """What f has added to it."""
        return state.NOTHING

    @property
    def _is_stochastic(self) -> bool:
        return False

    def _default_step(self) -> steps.Step:
        """Return the step that is safe untuned."""
        return steps.Constant(default_gamma(self._loss))

    def _chosen_order(self) -> str | None:
        """Return "block" or "full" for second-order steps, None for first-order ones."""
        if self.second_order not in ("auto", "block", "full", None):
            raise ValueError(f'Expected second_order to be "auto", "block", "full" or None, got {self.second_order!r}')
        first_order = {
            name: getattr(self, name)
            for name in ("rule", "preconditioning", "polish")
            if getattr(self, name) is not None
        } | ({"average": True} if self.average else {})
        if not self._loss.is_curved:
            first_order["loss"] = self.loss
        if self.max_features is None:
            first_order["max_features"] = None
        order = self.second_order
        if order == "auto":
            too_large = ALONE * (2 * (self.features_per_seed or LARGEST_BLOCK)) ** 2 > LARGEST
            order = None if first_order or self.step is not None or self.l2 > 0.0 or too_large else "block"
        elif order and first_order:
            name, value = next(iter(first_order.items()))
            raise ValueError(f"Expected second_order=None with {name}={value!r}, got {order!r}")
        if order is None and self.forgetting < 1.0:
            raise ValueError(f"Expected second-order steps with forgetting={self.forgetting!r}, got first-order ones")
        return order

    def _sizes(self) -> tuple[int | None, int]:
        """Return the cap on the features, ``None`` for none, and the features in a block."""
        cap = self.max_features
        if isinstance(cap, str):
            cap = 16 * LARGEST_BLOCK if self._order else 4 * LARGEST_BLOCK
        quarter = max(1, (cap or 4 * LARGEST_BLOCK) // 4)
        per_block = self.features_per_seed or (min(LARGEST_BLOCK, quarter) if self._order else quarter)
        if cap is not None and cap < per_block:
            raise ValueError(f"Expected max_features to hold one block of features_per_seed={per_block}, got {cap}")
        return cap, per_block

    def _new_learner(self, kernel: Kernel, columns: int) -> Expansion | Mixture:
        if self._order:
            return Mixture(
                kernel,
                self._loss,
                self.step or steps.Constant(0.75 / self._loss.curvature),
                joint=self._order == "full",
                per_block=self._per_block,
                max_features=self._cap or 0,
                batch=self.batch_size,
                forgetting=self.forgetting,
                l2=self.l2,
                columns=columns,
                intercept=self._intercept,
                cache_bytes=self.cache_bytes,
                seed=self.seed,
            )
        return Expansion(
            kernel,
            self._loss,
            self.rule or self._default_rule,
            self.step or self._default_step(),
            step_in_selves=self.step is None and self.preconditioning is None,
            epsilon=self.preconditioning or 0.0,
            per_block=self._per_block,
            max_features=self._cap,
            batch=self.batch_size,
            l2=self.l2,
            columns=columns,
            average=self.average,
            intercept=self._intercept,
            step_in_spreads=self.step is None and self._loss.directional,
            cache_bytes=self.cache_bytes,
            seed=self.seed,
        )

    def _new_upkeep(self) -> Upkeep | None:
        """Return what is done to the model from time to time; ``None`` if nothing is."""
        for name, kind in (("compaction", Compaction), ("polish", Polish)):
            if not isinstance(getattr(self, name), kind | None):
                raise ValueError(f"Expected {name} as a {kind.__name__} or None, got {getattr(self, name)!r}")
        tasks = [task for task in (self.compaction, self.polish) if task is not None]
        for task in tasks:
            task.check(self)
        return Upkeep(tasks, self._with_columns) if tasks else None

    def _target(self, y: Any) -> float:
        """Return a target as a number."""
        raise ValueError(f"Expected a classifier or a regressor, got a {type(self).__name__}")

    def _with_columns(self, columns: int) -> Expansion | Mixture:
        """Return a function of so many columns that has learnt nothing, with the bandwidths in use."""
        return self._new_learner(self.kernel_, columns)

    def _learn(self, rows: Rows, y: F64) -> None:
        """Learn `rows` in order."""
        done = 0
        while self._first is not None and done < len(y):
            self._learn_first(rows.part(done, done + 1), float(y[done]), self._first)
            done += 1
        while done < len(y):
            last = len(y) if self._scales is None else min(len(y), done + schedule.until_due(self._scales.n))
            last = last if self._upkeep is None else min(last, done + self._upkeep.until_due())
            self._learn_rows(rows.part(done, last), y[done:last])
            done = last

    def _learn_rows(self, rows: Rows, y: F64) -> None:
        """Learn rows with the scales in use, and then count them in the scales."""
        learnt, read = len(y), self._scaled(rows)
        try:
            self._learner.learn(read, y)
        except InputError:
            learnt = self._learner.refused
            raise
        finally:
            if self._scales is not None:
                self._scales.observe(rows if learnt == len(y) else rows.part(0, learnt))
                if learnt and self._learner.looks and schedule.is_due(self._scales.n):
                    self._scales.take()
            if self._upkeep is not None and learnt:
                self._learner = self._upkeep.saw(self._learner, read.part(0, learnt), y[:learnt])

    def _learn_first(self, row: Rows, y: float, first: list[tuple[Rows, float]]) -> None:
        """Learn one of the first examples, which decide the bandwidth and are learnt again each time it changes."""
        self._learner.learn_one(self._scaled(row), y)  # before it counts: an example that is refused decides nothing
        first.append((row, y))
        if self._scales is not None:
            self._scales.observe(row)
        if bandwidth.is_due(len(first)):
            self._start_again(first)

    def _start_again(self, first: list[tuple[Rows, float]]) -> None:
        """Take the scales and the bandwidths from the examples so far and learn them again, in order."""
        if self._scales is not None:
            self._scales.take()
        plan, rows = self._learner.directions.plan, self._scaled(Rows.stack([row for row, _ in first]))
        self._learner.start_again(bandwidth.with_medians(self._wanted, plan, rows), rows)
        for i, (_, target) in enumerate(first):
            try:
                self._learner.learn_one(rows.part(i, i + 1), target)
            except InputError as error:
                log.warning("%s cannot learn an example again with a new bandwidth: %s", type(self).__name__, error)
        if len(first) == bandwidth.FIRST:
            self._first = None
            log.info(
                "%s took %r from the first %d examples",
                type(self).__name__,
                self.kernel_,
                len(first),
            )

    def _scaled(self, rows: Rows) -> Rows:
        """Return rows as the learner reads them."""
        return rows if self._scales is None else self._scales(rows)

    def _scores(self, x: Mapping[Hashable, Any]) -> F64:
        """Return f(x), shape (columns,)."""
        try:
            if self._scales is None:
                return self._learner.score_event(x)
            scores: F64 = self._scores_of(self._learner.row(x))[0]
        except InputError:
            self._learner.directions.plan.check(x)
            raise
        return scores

    def _scores_of(self, rows: Rows) -> F64:
        """Return f of each row, shape (rows, columns)."""
        return self._learner.scores(self._scaled(rows))

    def _learn_example(self, x: Mapping[Hashable, Any], y: float) -> None:
        try:
            if self._first is not None:
                self._learn_first(self._learner.row(x), y, self._first)
            elif self._scales is None:
                self._learner.learn_event(x, y)
                if self._upkeep is not None:
                    self._learner = self._upkeep.saw(self._learner, self._learner.row(x), np.array([y], np.float64))
            else:
                self._learn_rows(self._learner.row(x), np.array([y]))
        except InputError:
            self._learner.directions.plan.check(x)
            raise

    def _table(self, X: Any) -> Rows:
        return table_rows(self._learner.directions, X)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {}

    def merge(self, *others: Self, base: Self | None = None) -> Self:
        """Become what this model and others are together, as if one had learnt from the events of all.

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
        >>> from streamkernel import KernelRegressor, kernels
        >>> rng = random.Random(1)
        >>> kernel = kernels.Gaussian(1.0)
        >>> north, south = (KernelRegressor(kernel, max_features=256, second_order="full") for _ in range(2))
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
        merging.check([self, *others], base)
        root = None if base is None else merging.summary(base)
        before = None if root is None else root.events
        merging.merged(self, [merging.summary(model, before) for model in (self, *others)], root)
        return self

    def _divide(self, number: int, replicas: int) -> None:
        """Become one of several replicas that learn apart, are merged, and look at themselves only then."""
        self._learner.looks = False
        if isinstance(self._learner, Expansion):
            self._learner.divide(number, replicas)

    def _look(self) -> None:
        """Look whether the scales are off, or there is more to be learnt, as is done from time to time."""
        if self._scales is not None:
            self._scales.take()
        if isinstance(self._learner, Mixture):
            self._learner.look()

    def _description(self) -> dict[str, Any]:
        return {"kernel": self.kernel_, "columns": self._learner.columns}

    def _tensors(self) -> dict[str, Any]:
        first = {} if self._first is None else model_file.pack_examples("first", self._first)
        scales = {} if self._scales is None else self._scales.tensors()
        upkeep = {} if self._upkeep is None else self._upkeep.tensors()
        return self._learner.tensors() | first | scales | upkeep

    def _restore(self, description: Mapping[str, Any], tensors: dict[str, Any]) -> None:
        self._learner = self._new_learner(model_file.kernel_in(description, self._wanted), self._columns())
        if description["columns"] != self._learner.columns:
            raise ValueError(f"expected {self._learner.columns} columns, got {description['columns']!r}")
        self._learner.restore(tensors)
        if self._scales is not None:
            self._scales.restore(tensors)
        self._first = model_file.unpack_examples("first", tensors, self._learner.directions)
        self._learner.check_targets([y for _, y in self._first or []])
        if len(self._first or []) >= bandwidth.FIRST:
            raise ValueError(f"expected less than {bandwidth.FIRST} first examples")
        if self._upkeep is not None and "upkeep.numbers" in tensors:  # a copy that is only asked has none
            self._upkeep.restore(self._learner, tensors)

    def _columns(self) -> int:
        """Return how many columns f has for the labels seen."""
        return 1


def default_gamma(loss: losses.Loss) -> float:
    """Return the constant step that is safe untuned: a quarter of the inverse of the loss's curvature, at most 1.

    It is in units of the spread of the residuals where the loss is directional.
    """
    return min(1.0, 0.25 / loss.curvature)


def _at_least(least: int, **values: int) -> None:
    for name, value in values.items():
        if not isinstance(value, (int, np.integer)) or value < least:
            raise ValueError(f"Expected an integer {name} >= {least}, got {value!r}")
