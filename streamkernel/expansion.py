"""The learnt function f(x) = Σ_b φ_b(x)ᵀ α_b: its coefficients, and how they are evaluated, moved and kept."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from streamkernel import events, losses, model_file, rules, scoring, state, stepping, steps
from streamkernel.errors import InputError
from streamkernel.generator import domain_key
from streamkernel.kernels import Kernel
from streamkernel.kernels.plan import Plan
from streamkernel.learner import Learner
from streamkernel.places import LAST, Model, aligned
from streamkernel.rows import F32, F64, I64, Rows

UNLIMITED = 1 << 32
"""Seeds for each replica where the number of features has no cap."""

_CHUNK = 1024
"""Examples handed to one compiled call; between calls, room for new blocks is made."""


class Expansion(Learner):
    """A function that grows by blocks of seeded random features, and the steps that train it.

    Parameters
    ----------
    kernel
        The kernel k. Bandwidths that are pending count as 1.
    loss, rule, step
        What is minimised, which coordinate a step takes, and how far it goes.
    step_in_selves
        Whether γ is in units of 1/k(x, x): a step then moves f as far with every kernel.
    epsilon
        ε of the preconditioner (1/B) Σ φ_k(x_i) φ_k(x_i)ᵀ + εI of the block that a step moves; 0 for none.
    per_block
        Features in a block, F.
    max_features
        Hard cap on the number of features; ``None`` lets the rule grow for ever.
    batch
        Examples in a step, B.
    l2
        Regularisation λ of (λ/2)‖f‖² + E[ℓ(f(x), y)].
    columns
        Outputs of f.
    average
        Whether :meth:`scores` gives the averaged iterate f̂_t = (1/t) Σ f_i.
    intercept
        What f has added to it: ``state.NOTHING``; the running ``MEAN`` of the targets; ``LEARNT``, a constant that
        every step moves as it moves f; or ``MARGIN``, a threshold -τ that is learnt with f (Dai et al. 2014, section 4,
        novelty detection, where ν is `l2`).
    step_in_spreads
        Whether γ is in units of the spread, the running mean of the absolute error, and at most 1/λ.
    cache_bytes
        Memory for cached directions.
    seed
        Seed of the features.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> f = Expansion(kernels.Gaussian(1.0), losses.Square(), rules.CDSG(), steps.Constant(0.5), seed=1)
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
        step: steps.Step,
        *,
        step_in_selves: bool = False,
        epsilon: float = 0.0,
        per_block: int = 256,
        max_features: int | None = 1024,
        batch: int = 1,
        l2: float = 0.0,
        columns: int = 1,
        average: bool = False,
        intercept: int = state.NOTHING,
        step_in_spreads: bool = False,
        cache_bytes: int = 1 << 26,
        seed: int = 0,
    ) -> None:
        self.cap = (1 << 62) - 1 if max_features is None else max_features // per_block  # on blocks at first
        super().__init__(kernel, loss, step, per_block, self.cap, batch, l2, columns, intercept, cache_bytes, seed)
        self._constant = isinstance(step, steps.Constant)
        self._averages, self._epsilon = average, epsilon
        code, grow, reuse, self._longest = rule.parameters
        units = state.SELVES * step_in_selves + state.SPREADS * step_in_spreads
        key = int(domain_key(seed, "rule").view(np.int64))
        self.ints[state.RULE_CODE : state.INTERCEPT] = code, grow, reuse
        self.ints[state.RULE_KEY : state.PARTS] = key, units
        self._start()

    def start_again(self, kernel: Kernel, rows: Rows) -> None:
        """Forget all that was learnt and go on with other bandwidths, of which `rows` are the examples; the directions
        are the same.
        """
        self.directions.plan = Plan(kernel, self._seed)
        self._start()

    def _start(self) -> None:
        """Set everything to what it is before the first example."""
        self._reset()
        self.reals[state.LONGEST], self.reals[state.EPSILON] = self._longest, self._epsilon
        plan, width = self.directions.plan, self.directions.width
        self.coef: F64 = np.zeros((0, self.columns * (1 + self._averages), plan.outputs, width))
        self.beta: F64 = np.zeros((0, self.columns))
        self._phi = np.empty((0, plan.outputs, width), np.float32)
        self._gamma = np.array([self.step(1)], np.float64)
        self.pending: list[tuple[Rows, float]] = []
        self._reserve(1)

    @property
    def penalty(self) -> float:
        """(λ/2)‖f‖², with ‖f‖² = n Σ‖α_b‖² in the space of the n blocks' kernel (1/n) Σ φ_b(x)·φ_b(x')."""
        norm2 = self.reals[state.SCALE] ** 2 * max(self.reals[state.NORM2], 0.0)
        return float(0.5 * self.l2 * self.n_blocks * norm2)

    @property
    def last_step(self) -> float:
        """The last step η that the rule has taken; its check may have made it longer or shorter than γ."""
        return float(self.reals[state.ETA])

    def score_event(self, x: Mapping[Hashable, Any]) -> F64:
        """Return f at one example, shape (columns,), valid until the next call; its features are kept to learn from.

        Raises
        ------
        InputError
            If `x` is empty, or a value is no number, not finite or too large.
        """
        status = events.UNREAD
        if type(x) is dict:
            status = events.score_event(self._address, self.directions.last, id(x))
        if status == events.UNREAD:
            status = events.score_event(self._address, self.directions.example(x), 0)
        if status == state.BAD_VALUE:
            raise self._unusable(self.row(x))
        return self._predicted

    def scores(self, rows: Rows) -> F64:
        """Return f at each of `rows`, shape (rows, columns).

        Raises
        ------
        InputError
            If a value is not finite or too large.
        """
        out = np.empty((len(rows.start) - 1, 2, self.columns))
        self._model.table[LAST] = 0
        kernel = self.directions.kernel

        def evaluate(part: Rows, phi: F32, out: F64) -> int:
            return int(scoring.evaluate(self.ints, self.reals, *kernel, *part, self.coef, phi, out))

        self._evaluate(evaluate, rows, self._phi, out)
        return out[:, 1]

    def learn_event(self, x: Mapping[Hashable, Any], y: float) -> None:
        """Learn from one example, or keep it until there is a batch; raises what :meth:`learn` raises."""
        if self.batch > 1:
            self._gather(self.row(x), y)
            return
        if not self._constant:
            self._gamma[0] = self.step(int(self.ints[state.STEPS]) + 1)
        status = events.UNREAD
        if type(x) is dict:
            status = events.learn_event(self._address, self.directions.last, id(x), float(y))
        if status == events.UNREAD:
            status = events.learn_event(self._address, self.directions.example(x), 0, float(y))
        if status == events.NO_ROOM:
            self._reserve(self.n_blocks + 1)
            status = events.learn_event(self._address, self.directions.example(x), 0, float(y))
        if status == state.BAD_VALUE:
            raise self._unusable(self.row(x))
        if status == state.DIVERGED:
            raise self._diverged(y)

    def learn_one(self, row: Rows, y: float) -> None:
        """Learn from one row as :meth:`learn_event` does."""
        if self.batch > 1:
            self._gather(row, y)
        else:
            self._step(row, np.array([y], np.float64))

    def learn(self, rows: Rows, y: F64) -> None:
        """Learn from `rows` in order; what does not fill a batch waits for the next call.

        Raises
        ------
        InputError
            If a value is not finite or too large, or the steps have diverged. The rows before are learnt, or wait.
        """
        done = 0
        while done < len(y) and (self.pending or len(y) - done < self.batch):
            self._gather(rows.part(done, done + 1), float(y[done]))
            done += 1
        whole = done + (len(y) - done) // self.batch * self.batch
        for first in range(done, whole, _CHUNK * self.batch):
            last = min(first + _CHUNK * self.batch, whole)
            n = (last - first) // self.batch
            self._reserve(min(self.n_blocks + n, self.most_blocks))
            t = self.ints[state.STEPS]
            gammas = np.asarray(self.step(np.arange(t + 1, t + n + 1, dtype=np.float64)))
            try:
                self._steps(rows.part(first, last), y[first:last], gammas)
            except InputError:
                refused = first + self.refused
                batch = range(refused - self.refused % self.batch, refused)
                self.pending = [(rows.part(i, i + 1), float(y[i])) for i in batch]
                raise
        for i in range(whole, len(y)):
            self._gather(rows.part(i, i + 1), float(y[i]))

    def add_column(self) -> None:
        """Make room for one more class; a function of two classes in one column becomes one of three."""
        if self._is_binary:
            spread = self._split()
            self.coef = np.concatenate(
                [spread[None, :, None, None] * part for part in np.split(self.coef, 1 + self._averages, axis=1)],
                axis=1,
            )
            self.beta = self.beta * spread
        else:
            parts = np.split(self.coef, 1 + self._averages, axis=1)
            zeros = np.zeros_like(self.coef[:, :1])
            self.coef = np.concatenate([column for part in parts for column in (part, zeros)], axis=1)
            self.beta = np.concatenate([self.beta, np.zeros((len(self.beta), 1))], axis=1)
        self._add_columns()
        self.reals[state.NORM2] = np.square(self.coef[:, : self.columns]).sum()
        self._tell()

    @property
    def n_functions(self) -> int:
        """Columns of f, and as many of its average if there is one."""
        return self.columns * (1 + self._averages)

    def functions(self) -> F64:
        """Return the coefficients of f and of its average, shape (outputs, functions), outputs as :meth:`embedded`."""
        shape = len(self.coef), self.n_functions, self.coef.shape[2], -1, self.per_block
        flat = self.coef.reshape(shape).transpose(0, 3, 2, 4, 1).reshape(-1, self.n_functions)
        flat = flat[: self.n_blocks * self.per_block * self.coef.shape[2]]
        now, sums = flat[:, : self.columns], flat[:, self.columns :]
        if not self._averages:
            return float(self.reals[state.SCALE]) * now
        average = (self.reals[state.SCALE_SUM] * now - sums) / max(1, self.ints[state.STEPS])
        return np.concatenate([self.reals[state.SCALE] * now, average], axis=1)

    def with_functions(self, functions: F64, kept: I64 | None = None) -> dict[str, Any]:
        """Return what :meth:`restore` takes for these functions, of the features that are kept if these are told."""
        width, outputs = self.directions.width, self.coef.shape[2]
        blocks = self.n_blocks if kept is None else (len(kept) - 1) // self.per_block
        per_panel = width // self.per_block
        flat = functions.copy()
        flat[:, self.columns :] *= -self.ints[state.STEPS]
        coef = np.zeros((-(-blocks // per_panel) * per_panel, outputs, self.per_block, self.n_functions))
        coef[:blocks] = flat.reshape(blocks, outputs, self.per_block, self.n_functions)
        coef = coef.reshape(-1, per_panel, *coef.shape[1:]).transpose(0, 4, 2, 1, 3)
        numbers = self._numbers()
        numbers["ints"][state.BLOCKS] = blocks
        numbers["reals"][[state.SCALE, state.SCALE_SUM]] = 1.0, 0.0
        numbers["reals"][state.NORM2] = np.square(functions[:, : self.columns]).sum()
        beta = self.reals[state.SCALE] * self.beta[: self.n_blocks]
        learnt = {
            "coef": np.ascontiguousarray(coef.reshape(len(coef), self.n_functions, outputs, width)),
            "beta": beta if kept is None else np.tile(beta.sum(axis=0) / blocks, (blocks, 1)),
        } | (self._kept() if kept is None else {"kept": kept})
        return learnt | numbers | model_file.pack_examples("pending", self.pending)

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
            self.pending = []
        blocks, room = self.n_blocks, self.most_blocks - self.n_blocks
        if not blocks or self.directions.plan.is_sketch:
            return  # its features cannot be told one by one: replicas grow by the same blocks
        most = room // replicas + (number < room % replicas)
        following = self.next_number + number * min(-(-room // replicas), UNLIMITED)
        drawn = self.drawn(np.arange(blocks * self.per_block))
        learnt = self.tensors() | {"kept": np.concatenate([drawn, [[following - blocks, blocks + most, 0]]])}
        self.restore(learnt)

    def tensors(self) -> dict[str, Any]:
        """Return everything that has been learnt, as arrays that share nothing with this function."""
        features = self.n_blocks * self.per_block
        used = -(-features // self.directions.width)
        learnt = {"coef": self.coef[:used].copy(), "beta": self.beta[: self.n_blocks].copy()}
        return learnt | self._kept() | self._numbers() | model_file.pack_examples("pending", self.pending)

    def asked(self) -> dict[str, Any]:
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
        blocks = int(ints[state.BLOCKS])
        kept = self._kept_in(tensors)
        if kept is not None:
            most, features = int(kept[-1, 1]), len(kept) - 1
            if (
                features % self.per_block
                or features > blocks * self.per_block
                or not blocks <= most <= self.most_blocks
            ):
                raise ValueError(f"expected whole blocks as kept, {blocks} or less, got {features} features")
            self._pack(kept)
            self.most_blocks = self.ints[state.MOST_BLOCKS] = most
            self._start()
        width = self.directions.width
        panels = -(-blocks * self.per_block // width)
        coef = model_file.taken(tensors, "coef", np.float64, (panels, *self.coef.shape[1:]))
        beta = model_file.taken(tensors, "beta", np.float64, (blocks, self.columns))
        pending = model_file.unpack_examples("pending", tensors, self.directions) or []
        if len(pending) >= self.batch:
            raise ValueError(f"expected less than a batch of {self.batch} examples as pending, got {len(pending)}")
        self.check_targets([y for _, y in pending])
        self.ints[: state.COLUMNS], self.reals[: state.L2] = ints, reals
        self._reserve(max(1, blocks))
        self.coef[:panels], self.beta[:blocks] = coef, beta
        self.pending = pending
        self._model.table[LAST] = 0

    def _tell(self) -> None:
        """Tell the calls for single events where the arrays are; no example counts as scored then."""
        scores = np.empty((2, self.columns))
        self._predicted: F64 = scores[1]
        self._model = Model(
            self.per_block, self.ints, self.reals, *self.directions.kernel[:2], self.directions.place,
            self.directions.kept, self.coef, self.beta, self._phi, scores, self._gamma,
        )  # fmt: skip
        self._address = self._model.address

    def _gather(self, row: Rows, y: float) -> None:
        if not self.directions.plan.usable(row):
            raise self._unusable(row)
        if self.reals[state.SELF] == 0.0:
            self.scores(row)  # its features must be of usable size
        self.pending.append((row, y))
        if len(self.pending) == self.batch:
            batch, self.pending = self.pending, []
            try:
                self._step(Rows.stack([row for row, _ in batch]), np.array([target for _, target in batch], np.float64))
            except InputError:
                self.pending = batch[:-1]
                del self.pending[self.refused : self.refused + 1]  # or it would stop every batch from now on
                raise

    def _step(self, rows: Rows, y: F64) -> None:
        """Take one step."""
        self._reserve(min(self.n_blocks + 1, self.most_blocks))
        self._steps(rows, y, np.array([self.step(int(self.ints[state.STEPS]) + 1)], np.float64))

    def _steps(self, rows: Rows, y: F64, gammas: F64) -> None:
        self._model.table[LAST] = 0
        status, row = stepping.learn(
            self.ints, self.reals, *self.directions.kernel, *rows, y, gammas, self.coef, self.beta, self._phi
        )
        self.refused = row
        if status == state.BAD_VALUE:
            raise self._unusable(rows.part(row, row + 1))
        if status == state.DIVERGED:
            raise self._diverged(y[row])

    def _reserve(self, blocks: int) -> None:
        """Make room for `blocks` blocks in all arrays."""
        self.directions.reserve(blocks)
        room, width = (len(self.coef), len(self.beta)), self.directions.width
        panels = -(-blocks * self.per_block // width)
        if panels > len(self.coef):
            panels = min(max(panels, 2 * len(self.coef)), -(-self.most_blocks * self.per_block // width))
            self.coef = _grown(self.coef, panels)
            self._phi = _grown(self._phi, panels)
        if blocks > len(self.beta):
            self.beta = _grown(self.beta, panels * (width // self.per_block))
        if (len(self.coef), len(self.beta)) != room:
            self._tell()


def _grown(old: Any, length: int) -> Any:
    new = aligned((length, *old.shape[1:]), old.dtype)
    new[: len(old)] = old
    return new
