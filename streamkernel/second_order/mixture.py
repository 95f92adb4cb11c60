"""Second-order learning: functions of groups of features, learned by Newton and by constant steps, and their
mixture."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from streamkernel import losses, step_sizes
from streamkernel.estimators import model_file
from streamkernel.features.directions import Directions
from streamkernel.features.numeric_names import Names
from streamkernel.features.rows import F32, F64, I64, Rows
from streamkernel.features.scale_table import COUNTS, SCALE, ScalesState
from streamkernel.features.scaling import Scales
from streamkernel.kernels import Kernel, Ladder
from streamkernel.kernels.plan import Plan
from streamkernel.learners import schedule, state
from streamkernel.learners.base import Learner
from streamkernel.learners.embedding import embedded
from streamkernel.second_order import evaluation, growth, learning, newton_step
from streamkernel.second_order.groups import Groups
from streamkernel.second_order.learning import Examples, Options
from streamkernel.second_order.mixture_state import Group, MixtureState
from streamkernel.second_order.square_root import EIGHT

LARGEST = 1 << 29
"""Numbers in all factors at most: 2 GB."""

PRIOR = 0.06
SMALLEST_PRIOR = 1e-3
"""λ is this times (1 - κ)², where κ is the mean of k(x, x') over pairs of examples, in units of k(x, x): what hardly
differs from example to example needs larger coefficients to tell them apart."""

FOLLOW = 0.075
"""The step of the level, over the loss's curvature."""

LEAST_UNEXPLAINED = 0.01
"""λ of a larger group is in proportion to the loss, in units of that of f = 0, but at least this: it is what noise is
to what is to be learned, and by then both are known."""

_FEW = 4
"""Rows that are evaluated in place; for more, a copy of the function is evaluated without the interpreter's lock."""

_NOT_SCALED = ScalesState(np.zeros(1, COUNTS), np.zeros(0, SCALE))


class _Live(NamedTuple):
    """All of a mixture that changes other than in place: it is replaced in one assignment.

    Attributes
    ----------
    state
        The arrays.
    groups
        The groups, which share them.
    directions
        The directions, with the bandwidths of all blocks.
    table
        Blocks, bandwidth and first example of each group.
    """

    state: MixtureState
    groups: Groups
    directions: Directions
    table: I64


class Mixture(Learner):
    """A mixture of functions on seeded random features, which `streamkernel.second_order.learning` explains.

    Parameters
    ----------
    kernel
        The kernel k. Bandwidths that are pending count as 1.
    loss
        What is minimised; it must have a second derivative.
    step
        γ of the constant steps, in units of 1/k(x, x).
    joint
        Whether all blocks are one group from the beginning, or as in `streamkernel.second_order.growth`.
    block_size, max_features
        Features in a block, F, and in all blocks at most.
    batch_size
        Examples in a Newton step, B; 1 for a number that grows from 8 to 64.
    forgetting
        What the Newton steps keep of the past at each example; 1 keeps all.
    l2, columns, intercept, cache_bytes, seed
        As for :class:`~streamkernel.first_order.expansion.Expansion`.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> step = step_sizes.Constant(0.75)
    >>> f = Mixture(kernels.Gaussian(1.0), losses.Square(), step, joint=True, block_size=16, max_features=16)
    >>> row = f.row({"x": 1.0})
    >>> for _ in range(1000):
    ...     f.learn(row, np.array([2.0]))
    >>> f.scores(row).round(2)
    array([[2.]])
    """

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
        forgetting: float = 1.0,
        l2: float = 0.0,
        columns: int = 1,
        intercept: int = state.NOTHING,
        cache_bytes: int = 1 << 26,
        seed: int = 0,
    ) -> None:
        blocks = max_features // block_size if joint else min(max_features // block_size, growth.MOST)
        super().__init__(loss, step, block_size=block_size, most_blocks=blocks, batch_size=batch_size, l2=l2, seed=seed)
        directions = Directions(Plan(kernel, seed), block_size, cache_bytes)
        self._kernel, self._forgetting = directions.plan.kernel, forgetting
        self.outputs = block_size * directions.plan.outputs  # of a block
        self.room = -(-max(batch_size, newton_step.LONGEST_BATCH) // EIGHT) * EIGHT
        self._stages = 0 if joint else growth.stages(blocks, self.outputs, LARGEST)
        self._alone = [blocks] if joint else [1] * min(growth.ALONE, blocks)  # the groups that begin at once
        self.is_unfinished = self._is_private = False
        numbers = sum(blocks**2 for blocks in self._alone) * self.outputs**2
        if numbers > LARGEST:
            raise ValueError(
                f"Expected second-order steps whose factors have at most {LARGEST:,} numbers, got {numbers:,}; "
                f"use fewer features_per_seed, or second_order=None"
            )
        self._live = self._new_live(directions, columns, intercept)

    def _new_live(self, directions: Directions, columns: int, intercept: int) -> _Live:
        """Return what a function is before its first example."""
        numbers = self._new_numbers(directions.plan, columns, intercept)
        numbers["forgetting"] = self._forgetting
        alone = len(self._alone)
        count = alone + 2 * (self._stages > 0)
        table: I64 = np.zeros((count, 3), np.int64)  # blocks, bandwidth and first example of each group
        table[:alone, 0] = self._alone
        table[:alone, 1] = np.arange(alone)
        functions = 2 * count + 1
        mixing_state = {
            "level": np.zeros((columns, 1)),
            "weights": np.append(np.tile(np.where(np.arange(count) < alone, 0.5 / alone, 0.0), 2), 0.0),
            "mixer": np.zeros((functions, functions)),
            "bounds": np.zeros(functions + 1),
            "losses": np.zeros(functions),
            "priors": np.full(count, 0.5 * PRIOR),
        }
        return self._arranged(directions, numbers, table, {}, mixing_state)

    def _arranged(
        self, directions: Directions, numbers: Any, table: I64, groups: Mapping[int, Group], arrays: Mapping[str, F64]
    ) -> _Live:
        """Return a mixture of these groups and empty ones, of the sizes in the table, and the features that they
        take."""
        blocks, alone = table[:, 0], len(self._alone)
        slots = range(len(table) - alone)
        firsts = np.array([*range(alone), *(growth.first_block(slot, self._stages) for slot in slots)])
        sizes, columns = (blocks * self.outputs).tolist(), int(numbers["columns"])
        all_groups = [groups.get(g) or Group.empty(n, columns, self.room) for g, n in enumerate(sizes)]
        found = Groups(all_groups, (firsts * self.outputs).tolist())
        kernel = self._kernel
        if isinstance(kernel, Ladder) and blocks[alone:].any():
            multiples = np.resize(kernel.multiples, self.most_blocks)
            for first, (n, rung, _) in zip(firsts[alone:], table[alone:], strict=True):
                multiples[first : first + n] = multiples[rung]
            kernel = replace(kernel, multiples=tuple(multiples[: growth.MOST].tolist()))
        used = int((firsts + blocks)[blocks > 0].max())
        numbers = numbers.copy()
        if blocks[alone:].any():
            numbers["blocks"] = used
        directions = directions.with_plan(Plan(kernel, self._seed))
        directions.reserve(used)
        return _live(numbers, found, directions, table, **arrays)

    def restarted(self, kernel: Kernel, rows: Rows) -> Mixture:
        """Return a function of the same parameters that has learned nothing, with other bandwidths; `rows` decide λ."""
        twin = self._twin()
        twin._kernel = kernel
        directions = self.directions.with_plan(Plan(kernel, self._seed))
        live = twin._live = twin._new_live(directions, self.columns, int(self.numbers["intercept"]))
        alone, n = len(self._alone), len(rows.start) - 1
        by_group = embedded(self.numbers, live.directions, rows, sum(self._alone)).reshape(n, alone, -1)
        own = np.square(by_group, dtype=np.float64).sum(axis=2).mean(axis=0)
        mean = np.square(by_group.mean(axis=0, dtype=np.float64)).sum(axis=1)
        likeness = (n * mean / np.where(own > 0.0, own, 1.0) - 1.0) / (n - 1)
        priors = PRIOR * np.square(1.0 - np.clip(likeness, 0.0, 1.0))
        live.state.priors[:alone] = np.maximum(priors, SMALLEST_PRIOR)
        return twin

    def _twin(self) -> Mixture:
        """Return a copy that shares everything."""
        twin: Mixture = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def to_predict_apart(self) -> Mixture:
        """Return a copy that only predicts, in any number of threads, and shares nothing that learning changes.

        It lacks the factors, which are nearly all of a large function.
        """
        twin, live = self._twin(), self._live
        nothing: F32 = np.zeros(0, np.float32)
        numbers, newton, steady, level, weights, _ = evaluation.copy_to_predict(live.state, _NOT_SCALED)
        copied = {"newton": newton, "steady": steady, "rows": nothing, "factor": nothing}
        state = live.state._replace(numbers=numbers, level=level, weights=weights, **copied)
        groups = live.groups.with_flat(**copied)
        twin._live = _Live(state, groups, live.directions.apart(), live.table)
        twin._is_private = True
        return twin

    def alone(self) -> Mixture:
        """Declare that no other thread will use this function, and return it; it then learns without holding others
        up."""
        self._is_private = True
        return self

    def shared(self) -> Mixture:
        """Declare that other threads may use this function from now on, and return it."""
        self._is_private = False
        return self

    @property
    def numbers(self) -> Any:
        """The scalar state."""
        return self._live.state.numbers[0]

    @property
    def directions(self) -> Directions:  # type: ignore[override]  # it is replaced together with the arrays
        """The random directions of its features."""
        return self._live.directions

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
        """Blocks that have a position, of which some may be empty."""
        return int(self.numbers["blocks"])

    @property
    def n_blocks(self) -> int:
        """Blocks in use, each of its own seed."""
        live = self._live
        return int(min(live.state.numbers["blocks"][0], live.table[:, 0].sum()))

    @property
    def penalty(self) -> float:
        """(λ/2)‖w‖² of the mixed function."""
        live = self._live
        flat, sizes = live.groups.flat, live.groups.counts * self.columns
        newton, steady = (np.repeat(v, sizes) for v in live.state.weights[:-1].reshape(2, -1))
        return 0.5 * self.l2 * float(np.square(newton * flat.newton + steady * flat.steady).sum())

    @property
    def shares(self) -> dict[str, float]:
        """The weight in f of the functions that take Newton steps, of those that take constant ones, and of the level.

        Where the stream moves, the constant steps gain.
        """
        weights = self._live.state.weights
        newton, steady = weights[:-1].reshape(2, -1).sum(axis=1).tolist()
        return {"newton": newton, "constant": steady, "level": float(weights[-1])}

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays but the cache of directions."""
        return sum(part.nbytes for part in self._live.state)

    def embedded(self, rows: Rows) -> F32:
        """Return the features of all blocks for each of `rows`, shape (rows, components × features)."""
        return embedded(self.numbers, self.directions, rows, self.n_positions)

    def score_event(self, x: Mapping[Hashable, Any], numeric: Names | None = None) -> Any:
        """Return f at one example, a float, or an array of shape (columns,) if there are several."""
        scores = self.scores(self.directions.row(x, numeric))[0]
        return float(scores[0]) if len(scores) == 1 else scores

    def scores(self, rows: Rows, scales: Scales | None = None) -> F64:
        """Return f at each of `rows`, shape (rows, columns).

        Parameters
        ----------
        rows
            The rows.
        scales
            The scales to bring their values to; ``None`` to take them as they are.

        Raises
        ------
        InputError
            If a value is not finite or too large.
        """
        while True:
            live, known = self._live, _NOT_SCALED if scales is None else scales.state
            out = np.empty((len(rows.start) - 1, len(live.state.level)))
            function, scaling, kernel = live.state, known, live.directions.kernel
            if len(out) <= _FEW and not self._is_private:
                bad = evaluation.evaluate(function, scaling, kernel, rows, out)
                if bad >= 0:
                    raise self._unusable(rows.part(bad, bad + 1))
            else:
                if not self._is_private:
                    numbers, newton, steady, level, weights, table = evaluation.copy_to_predict(function, known)
                    copied = {"numbers": numbers, "newton": newton, "steady": steady, "level": level}
                    function, scaling = function._replace(weights=weights, **copied), known._replace(table=table)
                self._evaluate(partial(evaluation.evaluate_copy, function, scaling, kernel), rows, out)
            if live is self._live and (scales is None or known is scales.state):  # or one of them is of another time
                return out

    def learn_event(self, x: Mapping[Hashable, Any], y: float, numeric: Names) -> bool:
        """Return false: more than one call is needed to learn from an example."""
        return False

    def learn_one(self, row: Rows, y: float) -> None:
        """Learn from one row as :meth:`learn` does."""
        self.learn(row, np.array([y], np.float64))

    def learn(self, rows: Rows, y: F64, scales: Scales | None = None, read: F64 | None = None) -> None:
        """Learn from `rows` in order.

        Parameters
        ----------
        rows, y
            The examples and their targets.
        scales
            The scales to bring the values to, which then count them; ``None`` to take values as they are.
        read
            Is set to the values as they are scaled, of the rows that are learned.

        Raises
        ------
        InputError
            If a value is not finite or too large, or the steps have diverged. The rows before are learned.
        """
        self.finish()
        t, n, done = int(self.numbers["steps"]), len(y), 0
        read = np.empty_like(rows.values) if read is None else read
        if isinstance(self.step, step_sizes.Constant):
            gammas = np.full(n, self.step(1))
        else:
            gammas = np.asarray(self.step(np.arange(t + 1, t + n + 1, dtype=np.float64)), np.float64)
        examples = Examples(rows, y, gammas, read)
        learn = learning.learn_apart if self._is_private else learning.learn
        while done < n:
            live, scaling = self._live, _NOT_SCALED if scales is None else scales.state
            seen = int(self.numbers["examples"])
            last = min(n, done + schedule.until_due(seen))
            options = Options(
                restructured=schedule.last_due(seen),
                growing=sum(self._alone),
                follow=FOLLOW / self.loss.curvature,
                may_take=self.may_restructure,
            )
            self.is_unfinished = True
            status, done = learn(live.state, scaling, live.directions.kernel, examples, done, last, options)
            if status == state.NO_ROOM and scales is not None:
                scales.grow()
            self.finish()
            if status == state.BAD_VALUE:
                raise self._unusable(
                    rows.part(done, done + 1)._replace(values=read[rows.start[done] : rows.start[done + 1]])
                )
            if status == state.DIVERGED:
                raise self._diverged(y[done])

    def finish(self) -> None:
        """Take the Newton step that is due, and begin a larger group if it is time to."""
        if not self.is_unfinished:
            return
        numbers = self.numbers
        batch = int(numbers["buffered"])
        due = newton_step.due(int(numbers["examples"]), self.batch_size, self._forgetting)
        if numbers["is_prepared"] or batch >= max(due, 1):
            self.settle()
        examples = int(self.numbers["examples"])
        if self.may_restructure and schedule.is_due(examples) and self.numbers["looked_at"] != examples:
            self.look()
        self.is_unfinished = False

    def settle(self) -> None:
        """Take the step that examples wait for."""
        function = self._live.state
        numbers = function.numbers[0]
        if not numbers["buffered"]:
            return
        self.is_unfinished = True
        if not numbers["is_prepared"]:
            if numbers["step_k_xx"] == 0.0:  # after a file was read
                numbers["step_k_xx"] = numbers["k_xx"] or numbers["mean_square"] or 1.0
            learning.prepare_step(function)
        learning.apply_step(function)

    def look(self) -> None:
        """Begin a larger group if it is time to."""
        live, alone = self._live, len(self._alone)
        function, table = live.state, live.table
        numbers, priors = function.numbers[0].copy(), function.priors.copy()
        seen = int(numbers["examples"])
        losses_of = function.losses[:-1].reshape(2, -1)
        multiples = np.resize(self._kernel.multiples if isinstance(self._kernel, Ladder) else 1.0, alone)
        rung = growth.bandwidth(losses_of[0, :alone], multiples.tolist())
        stage = growth.due(seen, live.groups.counts, table, losses_of, self._stages, rung)
        if not stage:
            function.numbers["looked_at"] = seen
            return
        size = numbers["error_scale"] if numbers["intercept"] == state.MEAN else 1.0
        g = alone + growth.slot(stage, self._stages)
        least = losses_of[0, table[:, 0] > 0].min()
        unexplained = least / function.losses[-1] if function.losses[-1] > 0.0 else 1.0
        priors[g] = priors[rung] * np.clip(unexplained, LEAST_UNEXPLAINED, 1.0)
        ended = [k for k in (alone, alone + 1) if k == g or stage == 1]
        kept = {k: live.groups[k] for k in range(len(live.groups)) if k not in ended}
        table = table.copy()
        table[ended] = 0
        table[g] = 1 << stage, rung, seen
        functions = np.array([*ended, *(len(live.groups) + k for k in ended)])
        bounds, running, mixer, weights = (
            getattr(function, name).copy() for name in ("bounds", "losses", "mixer", "weights")
        )
        bounds[functions] = running[functions] = 0.0
        if mixer.any():  # the targets have differed
            mixer, weights = newton_step.without(mixer, weights, functions, newton_step.PULL * size)
        numbers["looked_at"] = seen
        arrays = {"level": function.level, "weights": weights, "mixer": mixer, "bounds": bounds, "losses": running}
        new = self._arranged(live.directions, numbers, table, kept, arrays | {"priors": priors})
        np.fill_diagonal(new.groups[g].factor, np.sqrt(_prior(new, g)))
        self._live = new

    def with_column(self) -> Mixture:
        """Return a copy with room for one more class; a function of two classes in one column becomes one of three."""
        split, is_binary, live = self._split()[:, None], self._is_binary, self._live

        def more(old: F64) -> F64:
            return split * old if is_binary else np.concatenate([old, np.zeros_like(old[:1])])

        groups = {
            g: Group(old.factor, more(old.newton), more(old.steady), more(old.sums), old.rows)
            for g, old in enumerate(live.groups)
        }
        function = live.state
        names = ("weights", "mixer", "bounds", "losses", "priors")
        arrays = {name: getattr(function, name).copy() for name in names} | {"level": more(function.level)}
        twin = self._twin()
        numbers = self._with_column(function.numbers[0])
        twin._live = self._arranged(live.directions, numbers, live.table, groups, arrays)
        return twin

    def tensors(self) -> dict[str, Any]:
        """Return everything that has been learned, as arrays that share nothing with this function."""
        return self.to_predict() | self.groups.tensors(int(self.numbers["buffered"]))

    def to_predict(self) -> dict[str, Any]:
        """Return of :meth:`tensors` what is needed to predict, which is small."""
        live = self._live
        kept = {name: getattr(live.state, own).copy() for name, own in _IN_FILES.items()}
        return (
            state.learned(live.state.numbers[0])
            | kept
            | {"table": live.table.copy()}
            | self._kept()
            | live.groups.functions()
        )

    @property
    def is_joint(self) -> bool:
        """Whether all blocks are one group from the beginning."""
        return not self._stages and len(self._alone) == 1

    @property
    def next_number(self) -> int:
        """A number that no block of this function has been drawn with."""
        return self.most_blocks

    def memory(self, g: int) -> float:
        """Return how many examples the factor of a group holds."""
        seen = int(self.numbers["examples"] - self.table[g, 2])
        return max(1.0, min(float(seen), 1.0 / max(1.0 - self._forgetting, 1e-18)))

    def prior(self, g: int) -> float:
        """Return λ of a group, in the units of its factor."""
        return _prior(self._live, g)

    def with_groups(self, kept: I64, groups: Sequence[Group]) -> dict[str, Any]:
        """Return what :meth:`restore` takes for groups of the features that are kept instead of its own."""
        found = self.to_predict()
        found["ints"][state.LEARNED_INTS.index("buffered")] = 0
        return found | {"kept": kept} | Groups(groups, [0] * len(groups)).tensors(0)

    def restore(self, tensors: Mapping[str, Any], to_learn: bool = True) -> None:
        """Take over what :meth:`tensors` of a function with the same parameters returned.

        Where it is not `to_learn`, what :meth:`to_predict` returned is enough.

        Raises
        ------
        ValueError
            If a tensor is missing, does not fit, or holds what no function learns.
        """
        ints, reals = self._numbers_in(tensors)
        features, directions = self._kept_in(tensors), self.directions
        if features is not None:
            self.block_size, rest = divmod(len(features) - 1, self.most_blocks)
            if rest or not self.block_size:
                raise ValueError(f"expected features of {self.most_blocks} blocks as kept, got {len(features) - 1}")
            self.outputs = self.block_size * directions.plan.outputs
            directions = Directions(directions.plan, self.block_size, directions.cache_bytes, features)
        empty = self._new_live(directions, self.columns, int(self.numbers["intercept"]))
        shapes = {name: getattr(empty.state, own).shape for name, own in _IN_FILES.items()}
        kept = {name: model_file.taken(tensors, name, np.float64, shape) for name, shape in shapes.items()}
        blocks, steps_taken, _, examples, waiting = ints.tolist()
        if (
            not waiting < max(self.batch_size, newton_step.LONGEST_BATCH)
            or not waiting <= examples == steps_taken < 1 << 62
        ):
            raise ValueError(f"expected counters of examples as ints, got {ints.tolist()}")
        if not ((kept["priors"] > 0.0) & (kept["priors"] <= 1.0)).all():
            raise ValueError(f"expected priors from 0 to 1, got {kept['priors'].tolist()}")
        if not ((kept["mixer"].diagonal() > 0.0).all() or not kept["mixer"].any()):
            raise ValueError("expected a mixer with a positive diagonal")
        error_scale = reals[state.LEARNED_REALS.index("error_scale")]
        if min(kept["bounds"].min(), kept["standing"].min(), error_scale) < 0.0:
            raise ValueError("expected bounds, losses and a spread of at least 0")
        table = model_file.taken(tensors, "table", np.int64, empty.table.shape)
        if not growth.possible(table, self._alone, self._stages, examples):
            raise ValueError(f"expected groups of blocks as table, got {table.tolist()}")
        arrays = {own: kept[name].copy() for name, own in _IN_FILES.items()}
        live = self._arranged(directions, empty.state.numbers[0], table.copy(), {}, arrays)
        used = max(int(live.state.numbers["blocks"][0]), min(examples, sum(self._alone)))
        if blocks != used:
            raise ValueError(f"expected {used} blocks, got {blocks}")
        live.groups.restore(tensors, waiting, to_learn)
        for group in live.groups:
            if to_learn and not ((group.factor.diagonal() > 0.0).all() if examples else not group.factor.any()):
                raise ValueError("expected factors with positive diagonals")
        state.set_learned(live.state.numbers[0], ints, reals)
        live.state.numbers["looked_at"] = examples
        self._live = live


_IN_FILES = {
    "level": "level", "weights": "weights", "mixer": "mixer", "bounds": "bounds", "standing": "losses", "priors":
    "priors",
}  # fmt: skip
"""The names that arrays of the state have in files."""


def _live(numbers: Any, groups: Groups, directions: Directions, table: I64, **arrays: F64) -> _Live:
    """Return a mixture of arrays."""
    flat = groups.flat
    function = MixtureState(
        numbers=np.array([numbers], state.NUMBERS),
        layout=groups.layout,
        factor=flat.factor,
        rows=flat.rows,
        sums=flat.sums,
        newton=flat.newton,
        steady=flat.steady,
        **arrays,
    )
    return _Live(function, groups, directions, table)


def _prior(live: _Live, g: int) -> float:
    """Return λ of a group, in the units of its factor."""
    numbers = live.state.numbers[0]
    own = numbers["k_xx"] or numbers["mean_square"] or 1.0
    return float(live.state.priors[g] * own * live.table[g, 0])
