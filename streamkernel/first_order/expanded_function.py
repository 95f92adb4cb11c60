"""The function f(x) = Σ_b φ_b(x)ᵀ α_b that first-order steps learn: its coefficients and its evaluation.

The functions are the columns of f and, if there is an average, the columns of the average. Compiled code keeps α
without its scale in panels, ``coef[panel, column, component, feature]``, and the sums for the average after f.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from streamkernel import losses, rules, step_sizes
from streamkernel.features.compiled_kernel import BY_BLOCKS, SHARED
from streamkernel.features.counter_rng import domain_key
from streamkernel.features.dictionaries import FAST
from streamkernel.features.directions import Directions
from streamkernel.features.numeric_names import NumericNames
from streamkernel.features.rows import F32, F64, Rows
from streamkernel.features.scale_table import moments_of, slopes_of
from streamkernel.features.scaling import Scales, state_of
from streamkernel.first_order import bandwidths, single_event
from streamkernel.first_order.step_choices import precondition
from streamkernel.jit.calls import Arena
from streamkernel.kernels import Kernel, MultiScale
from streamkernel.kernels.program import KernelProgram
from streamkernel.learners import embedding, scoring, span, state
from streamkernel.learners.base import Learner
from streamkernel.learners.embedding import embed_rows
from streamkernel.learners.scoring import (
    DISTANCE2,
    LAST,
    MIXTURE,
    SCALE,
    SCALE_SUM,
    FirstOrder,
    Members,
)

_FEW = 16
"""Rows that are evaluated in place; for more, a copy of the function is evaluated without the interpreter's lock."""


def _total_weight(numbers: Any) -> float:
    return scoring.total_weight(int(numbers["averaging"]), max(1, int(numbers["steps"])))


def predicting(numbers: Any, functions: F64, members: Mapping[str, F64]) -> F64:
    """Return the function that predicts, from the current functions beside their averages.

    `functions` have the shape (blocks, components × features, functions), and `members` is the state of several
    bandwidths.
    """
    if numbers["averaging"] == LAST:
        return functions
    now, average = np.split(functions, 2, axis=-1)
    if members:
        weights = bandwidths.factors(members["member_weights"][1])
        of_now, of_average = weights.reshape(2, -1)[:, bandwidths.member_of(len(functions), weights), None, None]
        return np.asarray(of_now * now + of_average * average)
    return np.asarray(now + scoring.share(int(numbers["averaging"]), float(numbers["log_odds"])) * (average - now))


def to_blocks(numbers: Any, coef: F64, members: Members) -> F64:
    """Return the functions, shape (blocks, components × features, functions), from the record and its panels."""
    columns, block_size, functions = int(numbers["columns"]), int(numbers["block_size"]), coef.shape[1]
    blocks = coef.reshape(len(coef), functions, coef.shape[2], -1, block_size).transpose(0, 3, 2, 4, 1)
    blocks = blocks.reshape(-1, coef.shape[2] * block_size, functions)[: int(numbers["blocks"])]
    now, sums = blocks[:, :, :columns], blocks[:, :, columns:]
    scale, scale_sum = numbers["scale"], numbers["scale_sum"]
    if numbers["bandwidths"] > 1:
        steps = members.steps[bandwidths.member_of(len(blocks), members.weights[1])]
        scale, scale_sum = steps[:, SCALE, None, None], steps[:, SCALE_SUM, None, None]
    if functions == columns:
        return np.asarray(scale * now)
    average = (scale_sum * now - sums) / _total_weight(numbers)
    return np.concatenate([scale * now, average], axis=2)


def to_panels(numbers: Any, matrix: F64, width: int) -> F64:
    """Return panels of `width` features with the functions of a matrix, whose scale is 1 and whose sum of scales 0."""
    columns, size, components = int(numbers["columns"]), int(numbers["block_size"]), int(numbers["components"])
    functions, per_panel = matrix.shape[1], width // size
    blocks = len(matrix) // (components * size)
    flat = matrix.copy()
    flat[:, columns:] *= -_total_weight(numbers)
    coef = np.zeros((-(-blocks // per_panel) * per_panel, components, size, functions))
    coef[:blocks] = flat.reshape(blocks, components, size, functions)
    coef = coef.reshape(-1, per_panel, *coef.shape[1:]).transpose(0, 4, 2, 1, 3)
    return np.ascontiguousarray(coef.reshape(len(coef), functions, components, width))


def with_column(coef: F64, beta: F64, split: F64 | None) -> tuple[F64, F64]:
    """Return panels and β with one more column of zeros, or with one column split into as many as `split` has."""
    parts = np.split(coef, coef.shape[1] // beta.shape[1], axis=1)
    if split is not None:
        coef = np.concatenate([split[None, :, None, None] * part for part in parts], axis=1)
        return coef, beta * split
    zeros = np.zeros_like(coef[:, :1])
    coef = np.concatenate([column for part in parts for column in (part, zeros)], axis=1)
    return coef, np.concatenate([beta, np.zeros((len(beta), 1))], axis=1)


class ExpandedFunction(Learner):
    """A function f(x) = Σ_b φ_b(x)ᵀ α_b on blocks of seeded random features: its arrays, and its predictions.

    Bandwidths of the kernel that are pending count as 1. `rule` chooses the block of a step, which has `block_size` = F
    features, from `batch_size` = B examples; `l2` is λ of (λ/2)‖f‖² + E[ℓ(f(x), y)]. Without `max_features` the rule
    may add features without end.

    With `per_k_xx` γ is in units of 1/k(x, x): a step then moves f by the same amount with every kernel. With
    `per_error` γ is in units of the running mean of the absolute error, and at most 1/λ. With `automatic` a step moves
    all blocks, by a size that follows from the gradients so far; γ is then the step size of a learned intercept.
    `epsilon` is ε of the preconditioner (1/B) Σ φ_k(x_i) φ_k(x_i)ᵀ + εI of the block that a step moves; 0 for none.

    `average` is the function that :meth:`scores` evaluates: ``scoring.LAST``, f; ``AVERAGE``, f̂_t = (1/t) Σ f_i; or
    a ``MIXTURE`` of f with an average that forgets the first steps. `intercept` is the constant that is added to f:
    ``state.NOTHING``; the running ``MEAN`` of the targets; ``LEARNED``, a constant that every step moves as it moves f;
    or ``MARGIN``, a threshold -τ that is learned with f (Dai et al. 2014, section 4, novelty detection, where ν is
    `l2`).
    """

    order: ClassVar[str] = "first"

    def __init__(
        self,
        kernel: Kernel,
        loss: losses.Loss,
        rule: rules.Rule,
        step: step_sizes.Step,
        *,
        per_k_xx: bool = False,
        epsilon: float = 0.0,
        block_size: int = 256,
        max_features: int | None = 1024,
        batch_size: int = 1,
        l2: float = 0.0,
        columns: int = 1,
        average: int = LAST,
        intercept: int = state.NOTHING,
        per_error: bool = False,
        automatic: bool = False,
        cache_bytes: int = 1 << 26,
        seed: int = 0,
    ) -> None:
        self.cap = (1 << 62) - 1 if max_features is None else max_features // block_size  # on blocks at first
        super().__init__(
            loss, step, block_size=block_size, most_blocks=self.cap, batch_size=batch_size, l2=l2, seed=seed
        )
        self._averaging, self._epsilon, self._rule, self._kernel = int(average), epsilon, rule, kernel
        self.directions = Directions(self._plan(kernel), block_size, cache_bytes)
        self._gamma = float(step(1)) if isinstance(step, step_sizes.Constant) else None
        self._units = state.PER_K_XX * per_k_xx + state.PER_ERROR * per_error + state.AUTOMATIC * automatic
        self._learns_events = batch_size == 1 and FAST is not None
        self._is_alone = False  # whether no other thread uses it
        if epsilon > 0.0:
            precondition.require(0)
        self._start(columns, intercept)

    def frozen(self, scales: Scales | None = None) -> tuple[Self, Scales | None]:
        """Return copies that learning does not change, as :meth:`Learner.frozen` does."""
        if self._is_alone:
            return self, scales
        twin = self._twin(self.directions)
        twin._is_alone = True
        while True:
            before = -1 if scales is None else int(scales.state.counts[0]["n"])
            twin._arena, copied = self._arena.copy(), None if scales is None else scales.copy()
            if scales is None or before == scales.state.counts[0]["n"]:  # else an example came between the two copies
                return twin, copied

    def make_private(self) -> Self:
        """Declare that no other thread will use this function, and return it; learning then blocks no thread."""
        self._is_alone = True
        return self

    def make_shared(self) -> Self:
        """Declare that other threads may use this function from now on, and return it."""
        self._is_alone = False
        return self

    def _twin(self, directions: Any) -> Self:
        """Return a copy that shares all arrays."""
        twin: Self = object.__new__(type(self))
        vars(twin).update(vars(self), directions=directions)
        return twin

    def _start(self, columns: int, intercept: int) -> None:
        """Reset everything to the state before the first example."""
        plan = self.directions.plan
        numbers = self._new_numbers(plan, columns, intercept)
        numbers["bandwidths"], numbers["doubles"] = self._bandwidths(plan.kernel), bandwidths.doubles(self.directions)
        code, n_new, n_reused, ratio = self._rule.parameters
        key = int(domain_key(self._seed, "rule").view(np.int64))
        numbers["rule"], numbers["n_new"], numbers["n_reused"], numbers["max_step_ratio"] = code, n_new, n_reused, ratio
        numbers["rule_key"], numbers["step_units"], numbers["ridge"] = key, self._units, self._epsilon
        numbers["averaging"] = self._averaging
        self._arena, self._columns = self._new_arena(numbers, 1), columns
        bandwidths.start(self._arena)
        self.directions.reserve(1)

    def _plan(self, kernel: Kernel) -> KernelProgram:
        """Return the program of a kernel; several functions begin with the widest one."""
        if not isinstance(kernel, MultiScale) or self._bandwidths(kernel) == 1:
            return KernelProgram(kernel, self._seed, BY_BLOCKS)
        multiples = tuple(sorted(kernel.multiples, reverse=True))
        halves = all(2.0 * b == a for a, b in itertools.pairwise(multiples))
        return KernelProgram(replace(kernel, multiples=multiples), self._seed, SHARED if halves else BY_BLOCKS)

    def _bandwidths(self, kernel: Kernel) -> int:
        """Return the number of functions: one for each bandwidth of a `MultiScale`, with automatic steps on events."""
        is_single = self._averaging == MIXTURE and self.batch_size == 1 and not self._epsilon
        if not (isinstance(kernel, MultiScale) and is_single and self.loss.is_curved):
            return 1
        bandwidths.load()
        return len(kernel.multiples)

    def _new_arena(self, numbers: Any, panels: int) -> Arena:
        directions = self.directions
        return single_event.new_arena(
            numbers, directions.plan, directions.kept, directions.width, panels, self._averaging != LAST
        )

    @property
    def kernel(self) -> Kernel:
        """The kernel, with its bandwidths as numbers."""
        return self._kernel

    @property
    def numbers(self) -> Any:
        """The scalar state."""
        return self._arena["numbers"][0]

    @property
    def coef(self) -> F64:
        """α without its scale, shape (panels, columns, components, features), with the sums for the average after C."""
        return self._arena["coef"]  # type: ignore[no-any-return]

    @property
    def beta(self) -> F64:
        """β without its scale, shape (blocks, columns), with spare capacity; 0 with steps of automatic size."""
        return self._arena["beta"]  # type: ignore[no-any-return]

    @property
    def span(self) -> F64:
        """The range of the targets, entries of :mod:`streamkernel.learners.span`."""
        return self._arena["span"]  # type: ignore[no-any-return]

    @property
    def of_targets(self) -> tuple[int, int]:
        """Numbers of predictions that were bounded, and of targets that did not extend the range in full."""
        return span.counts(self.span)

    @property
    def penalty(self) -> float:
        """(λ/2)‖f‖², with ‖f‖² = n Σ‖α_b‖² in the space of the n blocks' kernel (1/n) Σ φ_b(x)·φ_b(x')."""
        numbers = self.numbers
        if numbers["bandwidths"] > 1:
            return float(0.5 * self.l2 * bandwidths.members_in(self._arena).steps[:, DISTANCE2].sum())
        norm2 = numbers["scale"] ** 2 * max(numbers["squared_norm"], 0.0)
        return float(0.5 * self.l2 * self.n_blocks * norm2)

    @property
    def last_step(self) -> float:
        """The last step η, which a check may have made longer or shorter than γ."""
        return float(self.numbers["last_step"])

    @property
    def next_step(self) -> float:
        """γ of the next step; with steps of automatic size the last one, which the next one is close to."""
        return self.last_step if self._units & state.AUTOMATIC else super().next_step

    @property
    def shares(self) -> dict[str, float]:
        """The weight of each multiple of the bandwidth, of f_m and its average; empty for a single function."""
        (_, _, members), kernel = self.parts(), self.directions.plan.kernel
        if not members or not isinstance(kernel, MultiScale):
            return {}
        weights = members["member_weights"][1].reshape(2, -1).sum(axis=0)
        return {f"bandwidth {m:g}": float(w) for m, w in zip(kernel.multiples, weights, strict=True)}

    @property
    def nbytes(self) -> int:
        """Size of all arrays except the cache of directions."""
        return int(self._arena.memory.nbytes)

    def embed_rows(self, rows: Rows) -> F32:
        """Return the features of all blocks for each of `rows`, shape (rows, components × features)."""
        return embed_rows(self.numbers, self.directions, rows, self.n_blocks)

    def score_event(
        self, x: Mapping[Hashable, Any], numeric: NumericNames | None = None, scales: Scales | None = None
    ) -> Any:
        """Return f at one example, a float, or an array of shape (columns,) if there are several.

        Raise an InputError if a value is not a number, not finite or too large.
        """
        directions, memory = self.directions, self._arena.memory
        if self._columns > 1:
            return self._scores_event(x, numeric, scales)
        score, (counts, table) = single_event.score_event.call, state_of(scales)
        if type(x) is FAST:  # most events
            f = score(memory, directions.store.table, directions.last.memory, counts, table, id(x))
            if f == f:
                return f
        if FAST:
            record, plain = directions.example(x, numeric)
            f = score(memory, directions.store.table, record.memory, counts, table, id(plain))
            if f == f:
                return f
        return float(self.scores(directions.row(x, numeric), scales)[0, 0])

    def _scores_event(self, x: Mapping[Hashable, Any], numeric: NumericNames | None, scales: Scales | None) -> F64:
        """Return the several columns of f at one example."""
        directions, memory, (counts, table) = self.directions, self._arena.memory, state_of(scales)
        out: F64 = np.empty(self._columns)
        if type(x) is FAST and single_event.scores_event(
            memory, directions.store.table, directions.last.memory, counts, table, id(x), out
        ):
            return out
        if FAST:
            record, plain = directions.example(x, numeric)
            if single_event.scores_event(memory, directions.store.table, record.memory, counts, table, id(plain), out):
                return out
        return np.asarray(self.scores(directions.row(x, numeric), scales)[0])

    def scores(self, rows: Rows, scales: Scales | None = None) -> F64:
        """Return f at each of `rows`, as :meth:`Learner.scores` does."""
        few, kernel = len(rows.start) - 1 <= _FEW, self.directions.kernel
        frozen, scales = (self, scales) if few else self.frozen(scales)
        arena, scaling = frozen._arena, state_of(scales)
        out = np.empty((len(rows.start) - 1, 3, int(arena["numbers"][0]["columns"])))

        def evaluate(rows: Rows, out: F64) -> int:
            if few:
                return int(scoring.evaluate(function_in(arena), scaling, kernel, rows, out))
            function = function_in(arena)
            function = function._replace(phi=np.empty_like(arena["phi"]), members=function.members.copy())
            return int(scoring.evaluate_copy(function, scaling, kernel, rows, out))

        self._evaluate(evaluate, rows, out)
        return out[:, 1]

    def derivatives(self, row: Rows, scales: Scales | None = None) -> F64:
        """Return the derivatives of f by the values of one row, as :meth:`Learner.derivatives` does."""
        directions, size = self.directions, self.block_size
        embedding.check_derivatives(directions.plan)
        frozen, scales = self.frozen(scales)
        functions, scaled = frozen.predicting().T, row if scales is None else scales(row)
        z = frozen.embed_rows(scaled)[0]
        along = embedding.directions_along(directions.kernel, size, row.hashes, len(z) // 2)
        derivatives = embedding.slopes(directions.kernel, size, z, functions) @ along.T
        if scales is not None:
            derivatives *= slopes_of(scales.state, moments_of(scales.state, row.hashes), row.values)
        derivatives[:, row.readers == 0] = 0.0
        return np.asarray(derivatives)

    def _set_arena(self, numbers: Any, coef: F64, beta: F64, entries: F64, members: Mapping[str, F64]) -> None:
        """Create an arena with these coefficients, entries of the targets' span, and arrays of several functions."""
        arena = self._new_arena(numbers, max(1, len(coef)))
        bandwidths.set_state(arena, members)
        arena["coef"][: len(coef)], arena["beta"][: len(beta)], arena["span"][:] = coef, beta, entries
        self._arena, self._columns = arena, int(numbers["columns"])

    @property
    def n_functions(self) -> int:
        """Columns of f, and as many of its average if there is one."""
        return self.columns * (1 + (self._averaging != LAST))

    def functions(self) -> F64:
        """Return the coefficients of f and of its average, shape (components × features, functions) as
        :meth:`embed_rows`.

        Of several bandwidths both are the mixture that predicts.
        """
        numbers, blocks, members = self.parts()
        if members:
            mixture = predicting(numbers, blocks, members)
            blocks = np.concatenate([mixture, mixture], axis=2)
        return np.asarray(blocks.reshape(-1, self.n_functions))

    def parts(self) -> tuple[Any, F64, dict[str, F64]]:
        """Return the scalar state, the functions of each block, shape (blocks, components × features, functions), and
        the state of several bandwidths, which is empty for a single function.
        """
        arena = self._arena.copy()
        numbers = arena["numbers"][0]
        return numbers, to_blocks(numbers, arena["coef"], bandwidths.members_in(arena)), bandwidths.state_of(arena)

    def predicting(self) -> F64:
        """Return the coefficients of the predicting function, shape (components × features, columns)."""
        return np.asarray(predicting(*self.parts()).reshape(-1, self.columns))


def function_in(arena: Arena) -> FirstOrder:
    """Return the function in an arena."""
    return FirstOrder(arena["numbers"], arena["coef"], arena["beta"], arena["phi"], arena["span"], arena["members"])
