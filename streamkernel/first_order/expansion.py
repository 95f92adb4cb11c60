"""The function f(x) = Σ_b φ_b(x)ᵀ α_b that first-order steps learn: its coefficients, how it is evaluated and kept."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from streamkernel import losses, rules, step_sizes, tensor_file
from streamkernel.features import example_tensors
from streamkernel.features.counter_rng import domain_key
from streamkernel.features.dictionaries import FAST
from streamkernel.features.directions import Directions
from streamkernel.features.numeric_names import Names
from streamkernel.features.rows import F32, F64, I64, Rows
from streamkernel.first_order import sgd_step, single_event
from streamkernel.first_order.preconditioning import precondition
from streamkernel.jit.arena import Arena
from streamkernel.kernels import Kernel
from streamkernel.kernels.plan import Plan
from streamkernel.learners import scoring, state
from streamkernel.learners.base import Learner, Refused
from streamkernel.learners.embedding import embedded
from streamkernel.learners.scoring import FirstOrder

UNLIMITED = 1 << 32
"""Seeds for each replica where the number of features has no cap."""

_WORK = 1 << 20
"""Features times examples in one compiled call, about: other threads wait for it, a few milliseconds."""

_FEW = 16
"""Rows that are evaluated in place; for more, a copy of the function is evaluated without the interpreter's lock."""


class Expansion(Learner):
    """A function that grows by blocks of seeded random features, and the steps that train it.

    Parameters
    ----------
    kernel
        The kernel k. Bandwidths that are pending count as 1.
    loss, rule, step
        What is minimised, which coordinate a step takes, and how far it goes.
    per_k_xx
        Whether γ is in units of 1/k(x, x): a step then moves f as far with every kernel.
    epsilon
        ε of the preconditioner (1/B) Σ φ_k(x_i) φ_k(x_i)ᵀ + εI of the block that a step moves; 0 for none.
    block_size
        Features in a block, F.
    max_features
        Hard cap on the number of features; ``None`` lets the rule grow without end.
    batch_size
        Examples in a step, B.
    l2
        Regularisation λ of (λ/2)‖f‖² + E[ℓ(f(x), y)].
    columns
        Outputs of f.
    average
        Whether :meth:`scores` gives the averaged iterate f̂_t = (1/t) Σ f_i.
    intercept
        What f has added to it: ``state.NOTHING``; the running ``MEAN`` of the targets; ``LEARNED``, a constant that
        every step moves as it moves f; or ``MARGIN``, a threshold -τ that is learned with f (Dai et al. 2014,
        section 4, novelty detection, where ν is `l2`).
    per_error
        Whether γ is in units of the running mean of the absolute error, and at most 1/λ.
    cache_bytes
        Memory for cached directions.
    seed
        Seed of the features.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> f = Expansion(kernels.Gaussian(1.0), losses.Square(), rules.CDSG(), step_sizes.Constant(0.5), seed=1)
    >>> row = f.row({"x": 1.0})
    >>> f.learn(row, np.array([2.0]))
    >>> f.scores(row).round(6)
    array([[1.]])
    """

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
        average: bool = False,
        intercept: int = state.NOTHING,
        per_error: bool = False,
        cache_bytes: int = 1 << 26,
        seed: int = 0,
    ) -> None:
        self.cap = (1 << 62) - 1 if max_features is None else max_features // block_size  # on blocks at first
        super().__init__(
            loss, step, block_size=block_size, most_blocks=self.cap, batch_size=batch_size, l2=l2, seed=seed
        )
        self.directions = Directions(Plan(kernel, seed), block_size, cache_bytes)
        self._gamma = float(step(1)) if isinstance(step, step_sizes.Constant) else None
        self._averages, self._epsilon, self._rule = average, epsilon, rule
        self._units = state.PER_K_XX * per_k_xx + state.PER_ERROR * per_error
        self._learns_events = batch_size == 1 and FAST is not None
        self._is_alone = False  # whether no other thread uses it
        if epsilon > 0.0:
            precondition.require(0)
        self._start(columns, intercept)

    def restarted(self, kernel: Kernel, rows: Rows) -> Expansion:
        """Return a function of the same parameters that has learned nothing, with other bandwidths.

        The directions are the same. `rows` are the examples that the bandwidths are taken from.
        """
        twin = self._twin(self.directions.with_plan(Plan(kernel, self._seed)))
        twin._start(self.columns, int(self.numbers["intercept"]))
        return twin

    def to_predict_apart(self) -> Expansion:
        """Return a copy that shares nothing that learning changes."""
        twin = self._twin(self.directions.apart())
        twin._arena, twin._pending = self._arena.copy(), (0, [])
        return twin

    def alone(self) -> Expansion:
        """Declare that no other thread will use this function, and return it; it then learns without holding others
        up."""
        self._is_alone = True
        return self

    def shared(self) -> Expansion:
        """Declare that other threads may use this function from now on, and return it."""
        self._is_alone = False
        return self

    def _twin(self, directions: Any) -> Expansion:
        """Return a copy that shares all arrays."""
        twin: Expansion = object.__new__(type(self))
        vars(twin).update(vars(self), directions=directions)
        return twin

    def _start(self, columns: int, intercept: int) -> None:
        """Set everything to what it is before the first example."""
        plan = self.directions.plan
        numbers = self._new_numbers(plan, columns, intercept)
        code, n_new, n_reused, ratio = self._rule.parameters
        key = int(domain_key(self._seed, "rule").view(np.int64))
        numbers["rule"], numbers["n_new"], numbers["n_reused"], numbers["max_step_ratio"] = code, n_new, n_reused, ratio
        numbers["rule_key"], numbers["step_units"], numbers["ridge"] = key, self._units, self._epsilon
        self._arena, self._columns = self._new_arena(numbers, 1), columns
        self._pending: tuple[int, list[tuple[Rows, float]]] = (0, [])
        self.directions.reserve(1)

    def _new_arena(self, numbers: Any, panels: int) -> Arena:
        directions = self.directions
        return single_event.new_arena(
            numbers, directions.plan, directions.kept, directions.width, panels, self._averages
        )

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
        """β without its scale, shape (blocks, columns), with room for more blocks."""
        return self._arena["beta"]  # type: ignore[no-any-return]

    @property
    def pending(self) -> list[tuple[Rows, float]]:
        """The examples that wait for a batch."""
        since, waiting = self._pending
        return waiting if since == self.examples else []  # or a step has taken them

    @property
    def offered(self) -> int:
        """Examples that have been learned or wait for a batch."""
        return self.examples + len(self.pending)

    @property
    def penalty(self) -> float:
        """(λ/2)‖f‖², with ‖f‖² = n Σ‖α_b‖² in the space of the n blocks' kernel (1/n) Σ φ_b(x)·φ_b(x')."""
        numbers = self.numbers
        norm2 = numbers["scale"] ** 2 * max(numbers["squared_norm"], 0.0)
        return float(0.5 * self.l2 * self.n_blocks * norm2)

    @property
    def last_step(self) -> float:
        """The last step η that the rule has taken; its check may have made it longer or shorter than γ."""
        return float(self.numbers["last_step"])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays but the cache of directions."""
        return int(self._arena.memory.nbytes)

    def embedded(self, rows: Rows) -> F32:
        """Return the features of all blocks for each of `rows`, shape (rows, components × features)."""
        return embedded(self.numbers, self.directions, rows, self.n_blocks)

    def score_event(self, x: Mapping[Hashable, Any], numeric: Names | None = None) -> Any:
        """Return f at one example, a float, or an array of shape (columns,) if there are several.

        Raises
        ------
        InputError
            If a value is no number, not finite or too large.
        """
        directions, memory = self.directions, self._arena.memory
        if self._columns > 1:
            return self._scores_event(x, numeric)
        if type(x) is FAST:  # what most events are
            score = single_event.score_event(memory, directions.store.table, directions.last.memory, id(x))
            if score == score:
                return score
        if FAST:
            record, plain = directions.example(x, numeric)
            score = single_event.score_event(memory, directions.store.table, record.memory, id(plain))
            if score == score:
                return score
        return float(self.scores(directions.row(x, numeric))[0, 0])

    def _scores_event(self, x: Mapping[Hashable, Any], numeric: Names | None) -> F64:
        """Return the several columns of f at one example."""
        directions, memory = self.directions, self._arena.memory
        out: F64 = np.empty(self._columns)
        if type(x) is FAST and single_event.scores_event(
            memory, directions.store.table, directions.last.memory, id(x), out
        ):
            return out
        if FAST:
            record, plain = directions.example(x, numeric)
            if single_event.scores_event(memory, directions.store.table, record.memory, id(plain), out):
                return out
        return np.asarray(self.scores(directions.row(x, numeric))[0])

    def scores(self, rows: Rows) -> F64:
        """Return f at each of `rows`, shape (rows, columns).

        Raises
        ------
        InputError
            If a value is not finite or too large.
        """
        arena, kernel = self._arena, self.directions.kernel
        out = np.empty((len(rows.start) - 1, 2, int(arena["numbers"][0]["columns"])))
        if len(out) <= _FEW:
            self._evaluate(lambda rows, out: int(scoring.evaluate(_function(arena), kernel, rows, out)), rows, out)
        else:
            copy = arena if self._is_alone else arena.copy()

            def evaluate(rows: Rows, out: F64) -> int:
                function = _function(copy)._replace(phi=np.empty_like(copy["phi"]))
                return int(scoring.evaluate_copy(function, kernel, rows, out))

            self._evaluate(evaluate, rows, out)
        return out[:, 1]

    def learn_event(self, x: Mapping[Hashable, Any], y: float, numeric: Names) -> bool:
        """Learn from one example if no more is needed for it than one compiled call; return whether it is learned.

        Any thread may call it at any time. Where it returns false nothing is changed, and :meth:`learn_one` is needed.

        Raises
        ------
        InputError
            If a value is no number.
        """
        if not self._learns_events:
            return False
        directions, gamma = self.directions, self._gamma
        if gamma is None:
            gamma = float(self.step(int(self.numbers["steps"]) + 1))
        memory, record, y = self._arena.memory, directions.last, float(y)
        if record.is_numeric and type(x) is FAST:
            status = single_event.learn_event(memory, directions.store.table, record.memory, id(x), y, gamma)
            if status != state.UNREAD:
                return bool(status == state.DONE)
        record, plain = directions.example(x, numeric)
        if not record.is_numeric and directions.with_numeric(x, numeric) is not numeric:
            return False
        status = single_event.learn_event(memory, directions.store.table, record.memory, id(plain), y, gamma)
        return bool(status == state.DONE)

    def learn_one(self, row: Rows, y: float) -> None:
        """Learn from one row as :meth:`learn` does."""
        if self.batch_size > 1:
            self._gather(row, y)
            return
        try:
            self._steps(
                row, np.array([y], np.float64), np.array([self.step(int(self.numbers["steps"]) + 1)], np.float64)
            )
        except Refused as refused:
            raise refused.error from None

    def learn(self, rows: Rows, y: F64) -> None:
        """Learn from `rows` in order; what does not fill a batch waits for the next call.

        Raises
        ------
        InputError
            If a value is not finite or too large, or the steps have diverged. The rows before are learned, or wait.
        """
        done, batch = 0, self.batch_size
        while done < len(y) and (self.pending or len(y) - done < batch):
            self._gather(rows.part(done, done + 1), float(y[done]))
            done += 1
        whole = done + (len(y) - done) // batch * batch
        while done < whole:
            features = max(1, self.n_blocks) * self.block_size
            n = min(max(1, _WORK // (features * batch)), (whole - done) // batch)
            t = int(self.numbers["steps"])
            gammas = np.asarray(self.step(np.arange(t + 1, t + n + 1, dtype=np.float64)))
            try:
                self._steps(rows.part(done, done + n * batch), y[done : done + n * batch], gammas)
            except Refused as refused:
                done += (int(self.numbers["steps"]) - t) * batch
                before = range(done, done + refused.row % batch)
                self._pending = (self.examples, [(rows.part(i, i + 1), float(y[i])) for i in before])
                raise refused.error from None
            done += n * batch
        for i in range(whole, len(y)):
            self._gather(rows.part(i, i + 1), float(y[i]))

    def _gather(self, row: Rows, y: float) -> None:
        """Let an example wait for a batch, and take a step if it is complete."""
        if not self.directions.plan.usable(row):
            raise self._unusable(row)
        if self.directions.plan.itself == 0.0:
            self.scores(row)  # its features must be of usable size
        if self._pending[0] != self.examples:
            self._pending = (self.examples, [])
        waiting = self._pending[1]
        if len(waiting) + 1 < self.batch_size:
            waiting.append((row, y))
            return
        batch = [*waiting, (row, y)]
        try:
            self._steps(
                Rows.stack([row for row, _ in batch]),
                np.array([target for _, target in batch], np.float64),
                np.array([self.step(int(self.numbers["steps"]) + 1)], np.float64),
            )
        except Refused as refused:  # without the one that is refused, or it would stop every batch from now on
            self._pending = (self.examples, [one for i, one in enumerate(waiting) if i != refused.row])
            raise refused.error from None

    def _steps(self, rows: Rows, y: F64, gammas: F64) -> None:
        """Take a step for each of `gammas`; raises what says which row was refused."""
        learn = sgd_step.learn_apart if self._is_alone else sgd_step.learn
        self._reserve(min(self.n_blocks + len(gammas), self.most_blocks))
        status, row = learn(_function(self._arena), self.directions.kernel, rows, y, gammas)
        if status == state.BAD_VALUE:
            raise Refused(row, self._unusable(rows.part(row, row + 1)))
        if status == state.DIVERGED:
            raise Refused(row, self._diverged(y[row]))

    def _reserve(self, blocks: int) -> None:
        """Make room for a number of blocks."""
        self.directions.reserve(blocks)
        old, width = self._arena, self.directions.width
        if blocks <= len(old["beta"]):
            return
        panels = max(-(-blocks * self.block_size // width), 2 * len(old["coef"]))
        copy = old.copy(single_event.close)
        new = self._new_arena(copy["numbers"][0], min(panels, -(-self.most_blocks * self.block_size // width)))
        new["coef"][: len(copy["coef"])], new["beta"][: len(copy["beta"])] = copy["coef"], copy["beta"]
        self._arena = new

    def close(self) -> None:
        """Learn no single event any more until :meth:`open` is called."""
        self.numbers["closed"] = 1

    def open(self) -> None:
        """Learn single events again."""
        self.numbers["closed"] = 0

    def with_column(self) -> Expansion:
        """Return a copy with room for one more class; a function of two classes in one column becomes one of three.

        This function learns no event any more until :meth:`open` is called.
        """
        old = self._arena.copy(single_event.close)
        numbers, coef, beta = self._with_column(old["numbers"][0]), old["coef"], old["beta"]
        parts = np.split(coef, 1 + self._averages, axis=1)
        if self._is_binary:
            spread = self._split()
            coef = np.concatenate([spread[None, :, None, None] * part for part in parts], axis=1)
            beta = beta * spread
        else:
            zeros = np.zeros_like(coef[:, :1])
            coef = np.concatenate([column for part in parts for column in (part, zeros)], axis=1)
            beta = np.concatenate([beta, np.zeros((len(beta), 1))], axis=1)
        numbers["squared_norm"] = np.square(coef[:, : numbers["columns"]]).sum()
        twin = self._twin(self.directions)
        twin._set_arena(numbers, coef, beta)
        twin._pending = (self.examples, [*self.pending])
        return twin

    def _set_arena(self, numbers: Any, coef: F64, beta: F64) -> None:
        """Have an arena with these coefficients."""
        arena = self._new_arena(numbers, max(1, len(coef)))
        arena["coef"][: len(coef)], arena["beta"][: len(beta)] = coef, beta
        self._arena, self._columns = arena, int(numbers["columns"])

    @property
    def n_functions(self) -> int:
        """Columns of f, and as many of its average if there is one."""
        return self.columns * (1 + self._averages)

    def functions(self) -> F64:
        """Return the coefficients of f and of its average, shape (components × features, functions) as
        :meth:`embedded`."""
        arena = self._arena.copy()
        numbers, coef = arena["numbers"][0], arena["coef"]
        shape = len(coef), self.n_functions, coef.shape[2], -1, self.block_size
        flat = coef.reshape(shape).transpose(0, 3, 2, 4, 1).reshape(-1, self.n_functions)
        flat = flat[: int(numbers["blocks"]) * self.block_size * coef.shape[2]]
        now, sums = flat[:, : self.columns], flat[:, self.columns :]
        if not self._averages:
            return np.asarray(float(numbers["scale"]) * now)
        average = (numbers["scale_sum"] * now - sums) / max(1, numbers["steps"])
        return np.concatenate([numbers["scale"] * now, average], axis=1)

    def with_functions(self, functions: F64, kept: I64 | None = None) -> dict[str, Any]:
        """Return what :meth:`restore` takes for these functions, of the features that are kept if these are given."""
        width, components = self.directions.width, self.coef.shape[2]
        blocks = self.n_blocks if kept is None else (len(kept) - 1) // self.block_size
        per_panel = width // self.block_size
        numbers = self.numbers.copy()
        flat = functions.copy()
        flat[:, self.columns :] *= -numbers["steps"]
        coef = np.zeros((-(-blocks // per_panel) * per_panel, components, self.block_size, self.n_functions))
        coef[:blocks] = flat.reshape(blocks, components, self.block_size, self.n_functions)
        coef = coef.reshape(-1, per_panel, *coef.shape[1:]).transpose(0, 4, 2, 1, 3)
        beta = numbers["scale"] * self.beta[: self.n_blocks]
        numbers["blocks"], numbers["scale"], numbers["scale_sum"] = blocks, 1.0, 0.0
        numbers["squared_norm"] = np.square(functions[:, : self.columns]).sum()
        learned = {
            "coef": np.ascontiguousarray(coef.reshape(len(coef), self.n_functions, components, width)),
            "beta": beta if kept is None else np.tile(beta.sum(axis=0) / blocks, (blocks, 1)),
        } | (self._kept() if kept is None else {"kept": kept})
        return learned | state.learned(numbers) | example_tensors.pack_examples("pending", self.pending)

    def divide(self, number: int, replicas: int) -> None:
        """Become one of several replicas: what is left to grow is divided, each block of another seed.

        Examples that wait for a batch are those of the first replica.

        Parameters
        ----------
        number
            Which of the replicas this is, from 0 on.
        replicas
            How many there are.
        """
        if number:
            self._pending = (self.examples, [])
        blocks, room = self.n_blocks, self.most_blocks - self.n_blocks
        if not blocks or self.directions.plan.is_sketch:
            return  # its features are not drawn one by one: replicas grow by the same blocks
        most = room // replicas + (number < room % replicas)
        following = self.next_number + number * min(-(-room // replicas), UNLIMITED)
        drawn = self.drawn(np.arange(blocks * self.block_size))
        learned = self.tensors() | {"kept": np.concatenate([drawn, [[following - blocks, blocks + most, 0]]])}
        self.restore(learned)

    def tensors(self) -> dict[str, Any]:
        """Return everything that has been learned, as arrays that share nothing with this function."""
        arena, pending = self._arena.copy(), self._pending
        numbers = arena["numbers"][0]
        blocks = int(numbers["blocks"])
        used = -(-blocks * self.block_size // self.directions.width)
        learned = {"coef": arena["coef"][:used].copy(), "beta": arena["beta"][:blocks].copy()}
        waiting = pending[1] if pending[0] == numbers["examples"] else []
        return learned | self._kept() | state.learned(numbers) | example_tensors.pack_examples("pending", waiting)

    def to_predict(self) -> dict[str, Any]:
        """Return of :meth:`tensors` what is needed to predict: all, which is small."""
        return self.tensors()

    def restore(self, tensors: Mapping[str, Any], to_learn: bool = True) -> None:
        """Take over what :meth:`tensors` of a function with the same parameters returned; it always can learn.

        Raises
        ------
        ValueError
            If a tensor is missing, does not fit, or holds what no function learns.
        """
        ints, reals = self._numbers_in(tensors)
        blocks = int(ints[0])
        kept = self._kept_in(tensors)
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
        width = self.directions.width
        panels = -(-blocks * self.block_size // width)
        coef = tensor_file.require_tensor(tensors, "coef", np.float64, (panels, *self.coef.shape[1:]))
        beta = tensor_file.require_tensor(tensors, "beta", np.float64, (blocks, columns))
        pending = example_tensors.unpack_examples("pending", tensors, self.directions) or []
        if len(pending) >= self.batch_size:
            raise ValueError(f"expected less than a batch of {self.batch_size} examples, got {len(pending)}")
        self.check_targets([y for _, y in pending])
        state.set_learned(numbers, ints, reals)
        self._set_arena(numbers, coef, beta)
        self._pending = (self.examples, pending)
        self.directions.reserve(max(1, blocks))


def _function(arena: Arena) -> FirstOrder:
    """Return the function in an arena."""
    return FirstOrder(arena["numbers"], arena["coef"], arena["beta"], arena["phi"])
