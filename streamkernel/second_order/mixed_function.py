"""The function f = Σ v_k f_k of second-order learning: its parts and its predictions."""

from __future__ import annotations

import copy
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np

from streamkernel import losses, step_sizes
from streamkernel.features.directions import Directions
from streamkernel.features.rows import F32, F64, I64, Rows
from streamkernel.features.scaling import NOT_SCALED, Scales, state_of
from streamkernel.jit import direct
from streamkernel.kernels import Kernel
from streamkernel.kernels.program import KernelProgram
from streamkernel.learners import span, state
from streamkernel.learners.base import Learner
from streamkernel.locking import holding, undivided
from streamkernel.second_order import evaluation, growth, learning, newton, recency, slots
from streamkernel.second_order.arrangement import Arrangement, Arranger
from streamkernel.second_order.gradients import embed_rows
from streamkernel.second_order.linear.state import FORGETTING, prior
from streamkernel.second_order.mixture_state import RESTED, Groups, MixtureState, with_own_row
from streamkernel.second_order.neighbours.state import STORED
from streamkernel.second_order.small_functions import FUNCTIONS

LARGEST = 1 << 29
"""Numbers in all factors at most: 2 GB."""

_FEW = 4
"""Rows that are evaluated in place; for more, a copy of the function is evaluated without the interpreter's lock."""


class MixedFunction(Learner):
    """A mixture of functions on seeded random features, f = Σ v_k f_k: its arrays, and its predictions.

    Parameters
    ----------
    kernel
        The kernel k. Bandwidths that are pending count as 1.
    loss
        The loss to minimise; it must have a second derivative.
    step
        γ of the constant steps, in units of 1/k(x, x).
    joint
        Whether all blocks are one group from the beginning; otherwise groups grow (`streamkernel.second_order.growth`).
    block_size, max_features
        Features in a block, F, and in all blocks at most.
    batch_size
        Examples in a Newton step, B; 1 for a number that grows from 8 to 64 or 128.
    forgetting
        The factor of the past in the Newton steps at each example; 1 forgets nothing. ``None`` is 1 with an additional
        group that forgets, which detects a misleading past (`streamkernel.second_order.recency`), and with a linear
        function that forgets.
    has_metric
        Whether new groups may draw their features in a metric that is learned.
    is_linear
        Whether there is a function linear in the inputs, and three of the nearest neighbours.
    loss_per_error
        The parameter of the loss in units of the mean |f(x) - y|; 0 keeps the parameter of the loss.
    l2, columns, intercept, cache_bytes, seed
        As for :class:`~streamkernel.first_order.expansion.FirstOrderLearner`.
    """

    order: ClassVar[str] = "second"
    _live: Arrangement

    def __init__(
        self,
        kernel: Kernel,
        loss: losses.Loss,
        step: step_sizes.Step,
        *,
        joint: bool = False,
        block_size: int = 256,
        max_features: int = 4096,
        batch_size: int = 1,
        forgetting: float | None = 1.0,
        l2: float = 0.0,
        columns: int = 1,
        intercept: int = state.NOTHING,
        is_linear: bool = False,
        cache_bytes: int = 1 << 26,
        seed: int = 0,
        has_metric: bool = False,
        loss_per_error: float = 0.0,
    ) -> None:
        blocks = max_features // block_size if joint else min(max_features // block_size, growth.MOST)
        super().__init__(loss, step, block_size=block_size, most_blocks=blocks, batch_size=batch_size, l2=l2, seed=seed)
        directions = Directions(KernelProgram(kernel, seed), block_size, cache_bytes)
        self._kernel, self._loss_per_error = directions.plan.kernel, loss_per_error
        self._forgetting = 1.0 if forgetting is None else forgetting
        outputs = block_size * directions.plan.outputs
        self._arranger = Arranger(
            alone=(blocks,) if joint else (1,) * min(growth.ALONE, blocks),
            stages=0 if joint else growth.stages(blocks, outputs, LARGEST),
            outputs=outputs,
            batch_size=batch_size,
            most_blocks=blocks,
            seed=seed,
            has_metric=has_metric and not joint and blocks >= growth.ALONE and directions.plan.is_plain,
            is_linear=is_linear,
            linear_prior=prior(loss),
            linear_forgetting=FORGETTING if forgetting is None else forgetting,
            is_saturated=is_linear and bool(loss.for_classes),
            window=STORED if is_linear and (loss.for_classes or intercept == state.MEAN) else 0,
            forgetting=recency.KEPT if forgetting is None and not joint else 0.0,
        )
        self.is_unfinished = self._is_private = False
        self._undivided = undivided()
        self._take_direct_calls()
        numbers = sum(blocks**2 for blocks in self._arranger.alone) * outputs**2
        if numbers > LARGEST:
            raise ValueError(
                f"Expected second-order steps whose factors have at most {LARGEST:,} numbers, got {numbers:,}; "
                'use fewer features_per_seed or learner="dsg"'
            )
        self._untrained = directions, np.array([self._new_numbers(directions.plan, columns, intercept)])

    def __getattr__(self, name: str) -> Arrangement:
        """Return the state of an untrained function, which takes no memory before it is used."""
        if name != "_live":
            raise AttributeError(f"{type(self).__name__} has no attribute {name}")
        live: Arrangement = vars(self).setdefault(name, self._first(*self._untrained))  # another thread may be faster
        return live

    def _first(self, directions: Directions, like: Any) -> Arrangement:
        """Return the state of an untrained function with as many targets and columns."""
        columns, targets, intercept = int(like[0]["columns"]), len(like), int(like[0]["intercept"])
        numbers = np.repeat(np.array([self._new_numbers(directions.plan, columns // targets, intercept)]), targets)
        numbers["columns"] = columns
        numbers["forgetting"], numbers["loss_per_error"] = self._forgetting, self._loss_per_error
        return self._arranger.first(self._kernel, directions, numbers)

    def _twin(self) -> Self:
        """Return a copy that shares everything."""
        twin: Self = object.__new__(type(self))
        vars(twin).update(vars(self))
        twin._take_direct_calls()
        return twin

    def _take_direct_calls(self) -> None:
        """Create this function's own direct calls for single events."""
        self._learn_directly, self._evaluate_directly = direct(learning.learn), direct(evaluation.evaluate)
        self._advance_directly = direct(newton.advance)

    def copy(self) -> Self:
        """Return a copy, also in the middle of a step, that shares nothing that learning changes."""
        twin, live = self._twin(), self._live
        copied = live._replace(state=with_own_row(live.state))
        twin._live = copy.deepcopy(copied, {id(live.directions): live.directions})
        return twin

    def advance(self, *, is_all: bool) -> None:
        """Compute all units of the step in progress, or the ones that are due, without the interpreter's lock."""
        advance = newton.advance if is_all else self._advance_directly
        holding(self._undivided, advance, self._live.state, is_all)

    def to_predict_apart(self) -> Self:
        """Return a copy that only predicts, in any number of threads, and shares no changing state."""
        twin = self._twin()
        twin._live, twin._is_private = self._live.to_predict_apart(NOT_SCALED), True
        return twin

    def frozen(self, scales: Scales | None = None) -> tuple[Self, Scales | None]:
        """Return copies that learning does not change, as :meth:`Learner.frozen` does."""
        if self._is_private:
            return self, scales
        while True:
            live, scales_state = self._live, state_of(scales)
            function, scaling = evaluation.copy_for_prediction(live.state, scales_state)
            if live is self._live and (scales is None or scales_state is scales.state):  # else one has been replaced
                twin = self._twin()
                twin._live, twin._is_private, twin.is_unfinished = live._replace(state=function), True, False
                return twin, None if scales is None else Scales(scaling)

    def make_private(self) -> Self:
        """Declare that no other thread will use this function, and return it; learning then blocks no thread."""
        self._is_private = True
        return self

    def make_shared(self) -> Self:
        """Declare that other threads may use this function from now on, and return it."""
        self._is_private = False
        return self

    @property
    def numbers(self) -> Any:
        """The scalar state; with several targets, the state of the first."""
        return self._live.state.numbers[0]

    @property
    def n_targets(self) -> int:
        """Targets, which divide the columns among them."""
        return len(self._live.state.numbers)

    directions: Directions = property(attrgetter("_live.directions"))  # type: ignore[assignment]  # replaced with the arrays

    @property
    def arrays(self) -> MixtureState:
        """The arrays; changing them changes the function."""
        return self._live.state

    @property
    def groups(self) -> Groups:
        """The groups."""
        return self._live.groups

    @property
    def table(self) -> I64:
        """Blocks, bandwidth and first example of each group."""
        return self._live.table

    @property
    def kernel(self) -> Kernel:
        """The kernel, with its bandwidths as numbers."""
        return self._kernel

    @property
    def n_positions(self) -> int:
        """Blocks with a position, some of which may be empty."""
        return int(self.numbers["blocks"])

    @property
    def n_blocks(self) -> int:
        """Blocks in use, each with its own seed."""
        live = self._live
        return int(min(live.state.numbers["blocks"][0], live.table[: self._arranger.ordinary, 0].sum()))

    @property
    def penalty(self) -> float:
        """(λ/2)‖w‖² of the mixed function."""
        return 0.5 * self.l2 * self._live.squared_norm()

    @property
    def shares(self) -> dict[str, float]:
        """The weight in f of functions that take Newton steps, of those that take constant ones, of each small one,
        of the linear one, and of the nearest neighbours; of several targets the mean.

        Where the stream drifts, the share of constant steps grows.
        """
        state = self._live.state
        _, steady, small, linear, near, _ = state.slots.tolist()
        v = state.weights.reshape(len(state.numbers), -1).mean(axis=0)
        parts = np.split(v, [steady, *range(small, linear + 1), near])
        kinds = "newton", "constant", *(function.NAME for function in FUNCTIONS), "linear", "neighbours"
        return {kind: float(weights.sum()) for kind, weights in zip(kinds, parts, strict=True) if len(weights)}

    @property
    def of_targets(self) -> tuple[int, int]:
        """Numbers of predictions that were bounded, and of targets that did not count in full, at examples learned."""
        return span.counts(self._live.state.span)

    @property
    def nbytes(self) -> int:
        """Size of all arrays except the cache of directions."""
        parts = [part if isinstance(part, tuple) else (part,) for part in self._live.state]
        return sum(array.nbytes for part in parts for array in part)

    def embed_rows(self, rows: Rows) -> F32:
        """Return the features of all blocks for each of `rows`, shape (rows, components × features)."""
        return embed_rows(self._live.state, self.directions, rows, self.n_positions)

    def scores(self, rows: Rows, scales: Scales | None = None) -> F64:
        """Return f at each of `rows`, shape (rows, columns), with their values brought to `scales` unless it is None.

        Raise an InputError if a value is not finite or too large.
        """
        n = len(rows.start) - 1
        if n > _FEW or self._is_private:
            copied, scales = self.frozen(scales)
            live, scaling = copied._live, state_of(scales)
            out = np.empty((n, len(live.state.small)))
            self._evaluate(partial(evaluation.evaluate_copy, live.state, scaling, live.directions.kernel), rows, out)
            return out
        while True:
            live, scaling = self._live, state_of(scales)
            out = np.empty((n, len(live.state.small)))
            evaluate = self._evaluate_directly if n == 1 else evaluation.evaluate
            bad = evaluate(live.state, scaling, live.directions.kernel, rows, out)
            if bad >= 0:
                raise self._unusable(rows.part(bad, bad + 1))
            if live is self._live and (scales is None or scaling is scales.state):  # else one has been replaced
                return out

    def derivatives(self, row: Rows, scales: Scales | None = None) -> F64:
        """Return the derivatives by the values of one row, as :meth:`Learner.derivatives` does, of the groups' part."""
        live, scaling = self._live, state_of(scales)
        return evaluation.derivatives(live.state, live.directions, scaling, row)

    def others(self, rows: Rows, scales: Scales | None = None) -> F64:
        """Return the part of f without derivatives, as :meth:`Learner.others` does: without the groups' functions."""
        function = self._live.state
        weights = evaluation.weights_by_column(function)[function.slots[slots.SMALL] :]
        scaling = state_of(scales)
        return np.asarray(np.einsum("kc,nkc->nc", weights, evaluation.scores_of_others(function, scaling, rows)))

    def scores_of_others(self, rows: Rows, scales: Scales | None = None) -> F64:
        """Return the scores of the functions other than the groups', shape (rows, functions, columns)."""
        return evaluation.scores_of_others(self._live.state, state_of(scales), rows)

    @property
    def outputs(self) -> int:
        """Outputs of a block."""
        return self._arranger.outputs

    @property
    def linear_forgetting(self) -> float:
        """The forgetting factor of the linear function per example."""
        return self._arranger.linear_forgetting

    @property
    def is_joint(self) -> bool:
        """Whether all blocks are one group from the beginning."""
        return not self._arranger.stages and len(self._arranger.alone) == 1

    @property
    def next_number(self) -> int:
        """The number of the next block, which no block of this function has had."""
        return self.most_blocks

    def memory(self, g: int) -> float:
        """Return the number of examples that the factor of a group represents."""
        seen = int(self.numbers["examples"] - self.table[g, 2] - self._live.state.sampled[g, RESTED])
        return max(1.0, min(float(seen), 1.0 / max(1.0 - float(self._live.state.kept[g]), 1e-18)))

    def prior(self, g: int) -> float:
        """Return λ of a group, in the units of its factor."""
        return self._live.prior(g)
