"""First-order learning: a function that grows by blocks of seeded random features, and the steps that train it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Self

import numpy as np

from streamkernel import tensor_file
from streamkernel.features import example_tensors
from streamkernel.features.dictionaries import FAST
from streamkernel.features.directions import Directions
from streamkernel.features.numeric_names import NumericNames
from streamkernel.features.rows import F64, I64, Rows
from streamkernel.features.scale_table import use_moments
from streamkernel.features.scaling import NOT_SCALED, Scales, state_of
from streamkernel.first_order import bandwidths, expanded_function, sgd_step, single_event
from streamkernel.first_order.expanded_function import ExpandedFunction, function_in
from streamkernel.first_order.sgd_step import Scaling
from streamkernel.first_order.step_choices import UNLIMITED
from streamkernel.kernels import Kernel
from streamkernel.learners import span, state
from streamkernel.learners.base import RefusedError
from streamkernel.learners.scoring import DISTANCE2, GRADIENTS2, SURE

_WORK = 1 << 20
"""Features times examples in one compiled call, about: other threads wait for it, a few milliseconds."""


class FirstOrderLearner(ExpandedFunction):
    """A function that grows by blocks of seeded random features, and the steps that train it.

    Parameters are those of :class:`~streamkernel.first_order.expanded_function.ExpandedFunction`.

    Examples
    --------
    >>> from streamkernel import kernels, losses, rules, step_sizes
    >>> f = FirstOrderLearner(kernels.Gaussian(1.0), losses.Square(), rules.CDSG(), step_sizes.Constant(0.5), seed=1)
    >>> row = f.row({"x": 1.0})
    >>> f.learn(row, np.array([2.0]))
    >>> f.scores(row).round(6)
    array([[1.]])
    """

    def _start(self, columns: int, intercept: int) -> None:
        super()._start(columns, intercept)
        self._pending: tuple[int, list[tuple[Rows, float]]] = (0, [])

    def to_predict_apart(self) -> Self:
        """Return a copy that shares no changing state."""
        twin = self._twin(self.directions.apart())
        twin._arena, twin._pending = self._arena.copy(), (0, [])
        return twin

    def copy(self) -> Self:
        """Return a copy, also in the middle of a step, that shares nothing that learning changes."""
        twin, (since, waiting) = self._twin(self.directions), self._pending
        twin._arena, twin._pending = self._arena.copy(), (since, [*waiting])
        return twin

    @property
    def pending(self) -> list[tuple[Rows, float]]:
        """The buffered examples."""
        since, waiting = self._pending
        return waiting if since == self.examples else []  # or a step has taken them

    @property
    def n_offered(self) -> int:
        """Learned and buffered examples."""
        return self.examples + len(self.pending)

    def tensors(self) -> dict[str, Any]:
        """Return the learned state as arrays that share nothing with this function."""
        arena, pending = self._arena.copy(), self._pending
        numbers = arena["numbers"][0]
        blocks = int(numbers["blocks"])
        used = -(-blocks * self.block_size // self.directions.width)
        learned = {"coef": arena["coef"][:used].copy(), "beta": arena["beta"][:blocks].copy()}
        learned["span"] = arena["span"].copy()
        waiting = pending[1] if pending[0] == numbers["examples"] else []
        return (
            learned
            | example_tensors.pack_kept(self.directions.kept)
            | state.pack_learned(numbers)
            | bandwidths.state_of(arena)
            | example_tensors.pack_examples("pending", waiting)
        )

    def to_predict(self) -> dict[str, Any]:
        """Return the part of :meth:`tensors` needed for predictions: all of it, because it is small."""
        return self.tensors()

    def restore(self, tensors: Mapping[str, Any], to_learn: bool = True) -> None:
        """Restore the result of `tensors`, always such that it can learn; raises a ValueError if it does not fit."""
        learned = self._read_learned(tensors)
        blocks = int(learned["blocks"])
        kept = example_tensors.unpack_kept(tensors)
        columns, numbers = self.columns, self.numbers.copy()
        if kept is not None:
            most, features = int(kept[-1, 1]), len(kept) - 1
            if (
                features % self.block_size
                or features > blocks * self.block_size
                or not blocks <= most <= self.most_blocks
            ):
                raise ValueError(f"expected whole blocks as kept, {blocks} or less, got {features} features")
            self.directions = Directions(self.directions.plan, self.block_size, self.directions.cache_bytes, kept)
            self.most_blocks = numbers["most_blocks"] = most
            numbers["doubles"] = bandwidths.doubles(self.directions)
        width = self.directions.width
        panels = -(-blocks * self.block_size // width)
        coef = tensor_file.require_tensor(tensors, "coef", np.float64, (panels, *self.coef.shape[1:]))
        beta = tensor_file.require_tensor(tensors, "beta", np.float64, (blocks, columns))
        pending = example_tensors.unpack_examples("pending", tensors, self.directions) or []
        if len(pending) >= self.batch_size:
            raise ValueError(f"expected less than a batch of {self.batch_size} examples, got {len(pending)}")
        self.check_targets([y for _, y in pending])
        if min(learned["gradient_sum"], learned["distance2"]) < 0.0:
            raise ValueError("expected squares of norms, got numbers below 0")
        if not abs(learned["log_odds"]) <= SURE:
            raise ValueError(f"expected log odds from {-SURE} to {SURE}, got {learned['log_odds']}")
        entries = span.restored(tensors)
        members = bandwidths.require_state(tensors, int(numbers["bandwidths"]), columns)
        numbers["bandwidths"] = len(members.get("member_steps", "1"))  # a pruned mixture is a single function
        state.set_learned(numbers, learned)
        self._set_arena(numbers, coef, beta, entries, members)
        self._pending = (self.examples, pending)
        self.directions.reserve(max(1, blocks))
        use_moments.load()  # single events do not load it

    def start_over(self, kernel: Kernel, rows: Rows) -> FirstOrderLearner:
        """Return an untrained function of the same directions, with other bandwidths, which were taken from `rows`."""
        twin = self._twin(self.directions.with_plan(self._plan(kernel)))
        twin._kernel = kernel
        twin._start(self.columns, int(self.numbers["intercept"]))
        return twin

    def learn_event(
        self, x: Mapping[Hashable, Any], y: float, w: float, numeric: NumericNames, scales: Scales | None = None
    ) -> bool:
        """Learn from one example of weight w, if a single compiled call is enough; return whether it was.

        Any thread may call it at any time. If it returns false, nothing has changed, and :meth:`learn_one` is needed.
        Raise an InputError if a value is not a number.
        """
        if not self._learns_events:
            return False
        directions, gamma = self.directions, self._gamma
        if gamma is None:
            gamma = float(self.step(int(self.numbers["steps"]) + 1))
        memory, record, example = self._arena.memory, directions.last, (float(y), float(w), gamma)
        counts, table = NOT_SCALED if scales is None else scales.state  # without a call, as each event comes here
        learn, changes = single_event.learn_event.call, self.may_restructure
        if record.is_settled and type(x) is FAST:
            cache = directions.store.table
            status = learn(memory, cache, record.memory, counts, table, changes, id(x), example)
            if status != state.UNREAD:
                return bool(status == state.DONE)
        record, plain = directions.example(x, numeric)
        if not record.is_settled and directions.adds_names(x, numeric):
            return False
        cache = directions.store.table
        status = learn(memory, cache, record.memory, counts, table, changes, id(plain), example)
        return bool(status == state.DONE)

    def learn_events(
        self, xs: list[dict[Hashable, Any]], y: F64, largest: float, scales: Scales | None = None
    ) -> tuple[F64, F64]:
        """Score and learn examples of the weight 1 in order, with the same bits as one after the other, in one compiled
        call.

        It ends before the first one that needs more than this call, or has a value beyond ±`largest`. It returns the
        scores of each example before it was learned, shape (learned, columns), and its unscaled values, shape (learned,
        names).
        """
        directions, memory = self.directions, self._arena.memory
        record, done = directions.last, 0
        scores, values = np.empty((len(xs), self._columns)), np.empty((len(xs), len(record.names)))
        if self._learns_events and record.is_settled and {*map(type, xs)} == {FAST}:
            steps = np.empty((len(xs), 2))
            steps[:, 0] = y
            steps[:, 1] = self._gammas(len(xs))
            scaling, table = self._scaling(scales, is_new=True), directions.store.table
            learn = single_event.score_and_learn.call
            done = learn(memory, table, record.memory, scaling, id(xs), largest, steps, (values, scores))
        return scores[:done], values[:done]

    def bet_on_pairs(self, rows: Rows, most: float, wealth: F64) -> int:
        """Learn pairs of rows with the targets 0 and 1, after a bet on each, as `sgd_step.bet_and_learn` does; return
        how many.
        """
        n = 2 * (len(wealth) - 1)
        self._reserve(min(self.n_blocks + n, self.most_blocks))
        call = sgd_step.bet_and_learn
        return int(call(function_in(self._arena), self.directions.kernel, rows, self._gammas(n), most, wealth))

    def learn_one(self, row: Rows, y: float) -> None:
        """Learn from one row as :meth:`learn` does."""
        self.learn(row, np.array([y], np.float64))

    def learn_again(self, rows: Rows, y: F64, scales: Scales | None = None) -> None:
        """Learn from rows that the scales have observed."""
        self.learn(rows, y, scales, is_new=False)

    def learn(
        self, rows: Rows, y: F64, scales: Scales | None = None, read: F64 | None = None, *, is_new: bool = True
    ) -> None:
        """Learn from `rows` in order, as :meth:`Learner.learn` does; an incomplete batch stays in the buffer.

        With `is_new` the scales observe the rows, each when it is learned.
        """
        read = np.empty_like(rows.values) if read is None else read
        done, batch, start = 0, self.batch_size, rows.start
        while done < len(y) and (self.pending or len(y) - done < batch):
            self._gather(rows, y, done, scales, read, is_new)
            done += 1
        whole = done + (len(y) - done) // batch * batch
        while done < whole:
            features = max(1, self.n_blocks) * self.block_size
            n = min(max(1, _WORK // (features * batch)), (whole - done) // batch)
            t, last = int(self.numbers["steps"]), done + n * batch
            scaled = read[start[done] : start[last]]
            try:
                self._steps(rows.part(done, last), y[done:last], self._gammas(n), scales, scaled, is_new)
            except RefusedError as refused:
                done += (int(self.numbers["steps"]) - t) * batch
                before = range(done, done + refused.row % batch)
                self._pending = (self.examples, [(rows.part(i, i + 1), float(y[i])) for i in before])
                raise refused.error from None
            done = last
        for i in range(whole, len(y)):
            self._gather(rows, y, i, scales, read, is_new)

    def _gather(self, rows: Rows, y: F64, i: int, scales: Scales | None, read: F64, is_new: bool) -> None:
        """Buffer row i, set its part of `read` to its scaled values, and take a step if the batch is complete."""
        row = rows.part(i, i + 1)
        scaled = row if scales is None else scales(row)
        if not self.directions.plan.usable(scaled):
            raise self._unusable(row)
        if self.directions.plan.itself == 0.0:
            self.scores(row, scales)  # its features must be of usable size
        read[rows.start[i] : rows.start[i + 1]] = scaled.values
        if self._pending[0] != self.examples:
            self._pending = (self.examples, [])
        waiting = self._pending[1]
        if len(waiting) + 1 < self.batch_size:
            waiting.append((row, float(y[i])))
            return
        batch = [*waiting, (row, float(y[i]))]
        together, targets = Rows.stack([row for row, _ in batch]), np.array([target for _, target in batch], np.float64)
        try:
            self._steps(together, targets, self._gammas(1), scales, np.empty_like(together.values), is_new)
        except RefusedError as refused:  # without the one that is refused, or it would stop every batch from now on
            self._pending = (self.examples, [one for i, one in enumerate(waiting) if i != refused.row])
            raise refused.error from None

    def _gammas(self, n: int) -> F64:
        """Return the sizes of the next steps."""
        if self._gamma is not None:
            return np.full(n, self._gamma)
        t = int(self.numbers["steps"])
        return np.asarray(self.step(np.arange(t + 1, t + n + 1, dtype=np.float64)))

    def _steps(self, rows: Rows, y: F64, gammas: F64, scales: Scales | None, read: F64, is_new: bool) -> None:
        """Take a step for each of `gammas`; raise an error that contains the refused row."""
        learn = sgd_step.learn_apart if self._is_alone else sgd_step.learn
        self._reserve(min(self.n_blocks + len(gammas), self.most_blocks))
        status, row, kernel = state.NO_ROOM, 0, self.directions.kernel
        while status == state.NO_ROOM:
            scaling, first = self._scaling(scales, is_new=is_new), int(row // self.batch_size)
            status, row = learn(function_in(self._arena), scaling, kernel, rows, read, y, gammas, first)
            if status == state.NO_ROOM and scales is not None:
                scales.grow()
        if status == state.BAD_VALUE:
            raise RefusedError(row, self._unusable(rows.part(row, row + 1)))
        if status == state.DIVERGED:
            raise RefusedError(row, self._divergence_error(y[row]))

    def _scaling(self, scales: Scales | None, *, is_new: bool) -> Scaling:
        """Return how the next examples are scaled, for compiled code."""
        if scales is not None:
            use_moments.load()
        return Scaling(state_of(scales), is_new, self.may_restructure)

    def _reserve(self, blocks: int) -> None:
        """Allocate a number of blocks."""
        self.directions.reserve(blocks)
        old, width = self._arena, self.directions.width
        if blocks <= len(old["beta"]):
            return
        panels = max(-(-blocks * self.block_size // width), 2 * len(old["coef"]))
        copy = old.copy(single_event.close)
        new = self._new_arena(copy["numbers"][0], min(panels, -(-self.most_blocks * self.block_size // width)))
        new["coef"][: len(copy["coef"])], new["beta"][: len(copy["beta"])] = copy["coef"], copy["beta"]
        new["span"][:] = copy["span"]
        bandwidths.set_state(new, bandwidths.state_of(copy))
        self._arena = new

    def restructure(self, before: int) -> None:
        """Forget the features of the last example: the scales may have changed."""
        self.numbers["last_example"] = 0

    def close(self) -> None:
        """Stop learning single events until :meth:`open` is called."""
        self.numbers["closed"] = 1

    def open(self) -> None:
        """Allow learning of single events again."""
        self.numbers["closed"] = 0

    def with_column(self) -> FirstOrderLearner:
        """Return a copy for one more class; a function of two classes in one column becomes one of three.

        This function learns no single event until :meth:`open` is called.
        """
        old = self._arena.copy(single_event.close)
        numbers = self._with_column(old["numbers"][0])
        coef, beta = expanded_function.with_column(old["coef"], old["beta"], self._split() if self._is_binary else None)
        numbers["squared_norm"] = np.square(coef[:, : numbers["columns"]]).sum()
        if self._is_binary:  # two scores replace one
            numbers["distance2"] *= np.square(self._split()).sum()
            numbers["gradient_sum"] *= 2.0
            steps = bandwidths.members_in(old).steps
            steps[:, GRADIENTS2] *= 2.0
            steps[:, DISTANCE2] *= np.square(self._split()).sum()
        twin = self._twin(self.directions)
        twin._set_arena(numbers, coef, beta, old["span"], bandwidths.state_of(old))
        twin._pending = (self.examples, [*self.pending])
        return twin

    def with_functions(self, functions: F64, kept: I64 | None = None, distance2: float | None = None) -> dict[str, Any]:
        """Return the tensors for :meth:`restore` with these functions, of the kept features if these are given.

        It is then a single function, also where functions of several bandwidths were mixed before. `distance2` is
        ‖f‖², if it is not to be computed from the coefficients.
        """
        blocks = self.n_blocks if kept is None else (len(kept) - 1) // self.block_size
        numbers = self.numbers.copy()
        beta = numbers["scale"] * self.beta[: self.n_blocks]
        numbers["blocks"], numbers["scale"], numbers["scale_sum"] = blocks, 1.0, 0.0
        numbers["squared_norm"] = np.square(functions[:, : self.columns]).sum()
        numbers["distance2"] = blocks * numbers["squared_norm"] if distance2 is None else distance2
        learned = {
            "coef": expanded_function.to_panels(numbers, functions, self.directions.width),
            "beta": beta if kept is None else np.tile(beta.sum(axis=0) / blocks, (blocks, 1)),
            "span": self.span.copy(),
        } | (example_tensors.pack_kept(self.directions.kept) if kept is None else {"kept": kept})
        return learned | state.pack_learned(numbers) | example_tensors.pack_examples("pending", self.pending)

    def divide(self, number: int, replicas: int) -> None:
        """Become one of several replicas: the remaining growth is divided, each block with another seed.

        Buffered examples stay with the first replica. `number` counts the replicas from 0.
        """
        super().divide(number, replicas)
        if number:
            self._pending = (self.examples, [])
        blocks, growth = self.n_blocks, self.most_blocks - self.n_blocks
        if not blocks or self.directions.plan.is_sketch:
            return  # its features are not drawn one by one: replicas grow by the same blocks
        most = growth // replicas + (number < growth % replicas)
        following = self.next_number + number * min(-(-growth // replicas), UNLIMITED)
        drawn = self.features_at(np.arange(blocks * self.block_size))
        learned = self.tensors() | {"kept": np.concatenate([drawn, [[following - blocks, blocks + most, 0]]])}
        self.restore(learned)
