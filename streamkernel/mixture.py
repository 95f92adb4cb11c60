"""Second-order learning: functions of groups of features, learnt by Newton and by constant steps, and their mixture."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streamkernel import growth, losses, mixing, model_file, newton_steps, schedule, state, steps
from streamkernel.groups import Group, Groups
from streamkernel.kernels import Kernel, Ladder
from streamkernel.kernels.plan import Plan
from streamkernel.learner import Learner
from streamkernel.rows import F32, F64, I64, Rows
from streamkernel.square_root import EIGHT

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
to what is to be learnt, and by then both are known."""


class Mixture(Learner):
    """A mixture of functions on seeded random features, which `streamkernel.mixing` explains.

    Parameters
    ----------
    kernel
        The kernel k. Bandwidths that are pending count as 1.
    loss
        What is minimised; it must have a second derivative.
    step
        γ of the constant steps, in units of 1/k(x, x).
    joint
        Whether all blocks are one group from the beginning, or what `streamkernel.growth` says.
    per_block, max_features
        Features in a block, F, and in all blocks at most.
    batch
        Examples in a Newton step, B; 1 for a number that grows from 8 to 64.
    forgetting
        What the Newton steps keep of the past at each example; 1 keeps all.
    l2, columns, intercept, cache_bytes, seed
        As for :class:`~streamkernel.expansion.Expansion`.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> step = steps.Constant(0.75)
    >>> f = Mixture(kernels.Gaussian(1.0), losses.Square(), step, joint=True, per_block=16, max_features=16)
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
        step: steps.Step,
        *,
        joint: bool = False,
        per_block: int = 256,
        max_features: int = 4096,
        batch: int = 1,
        forgetting: float = 1.0,
        l2: float = 0.0,
        columns: int = 1,
        intercept: int = state.NOTHING,
        cache_bytes: int = 1 << 26,
        seed: int = 0,
    ) -> None:
        self._forgetting = forgetting
        blocks = max_features // per_block if joint else min(max_features // per_block, growth.MOST)
        super().__init__(kernel, loss, step, per_block, blocks, batch, l2, columns, intercept, cache_bytes, seed)
        self._kernel = self.directions.plan.kernel
        self.outputs = per_block * self.directions.plan.outputs  # of a block
        self.room = -(-max(batch, newton_steps.LONGEST_BATCH) // EIGHT) * EIGHT
        self._stages = 0 if joint else growth.stages(blocks, self.outputs, LARGEST)
        self._alone = [blocks] if joint else [1] * min(growth.ALONE, blocks)  # the groups that begin at once
        numbers = sum(blocks**2 for blocks in self._alone) * self.outputs**2
        if numbers > LARGEST:
            raise ValueError(
                f"Expected second-order steps whose factors have at most {LARGEST:,} numbers, got {numbers:,}; "
                f"use fewer features_per_seed, or second_order=None"
            )
        self._start()

    def start_again(self, kernel: Kernel, rows: Rows) -> None:
        """Forget all that was learnt and go on with other bandwidths; `rows` decide λ."""
        self._kernel = kernel
        self._start()
        alone, n = len(self._alone), len(rows.start) - 1
        features = np.empty((n, sum(self._alone) * self.outputs), np.float32)
        mixing.embed_many((self.ints, self.reals), self.directions.kernel, tuple(rows), self._phi, features)
        by_group = features.reshape(n, alone, -1)
        own = np.square(by_group, dtype=np.float64).sum(axis=2).mean(axis=0)
        mean = np.square(by_group.mean(axis=0, dtype=np.float64)).sum(axis=1)
        likeness = (n * mean / np.where(own > 0.0, own, 1.0) - 1.0) / (n - 1)
        priors = PRIOR * np.square(1.0 - np.clip(likeness, 0.0, 1.0))
        self.priors[:alone] = np.maximum(priors, SMALLEST_PRIOR)

    def _start(self) -> None:
        """Set everything to what it is before the first example."""
        self._reset()
        self.reals[state.FORGETTING] = self._forgetting
        alone = len(self._alone)
        count = alone + 2 * (self._stages > 0)
        self.table: I64 = np.zeros((count, 3), np.int64)  # blocks, bandwidth and first example of each group
        self.table[:alone, 0] = self._alone
        self.table[:alone, 1] = np.arange(alone)
        self.level: F64 = np.zeros((self.columns, 1))
        self.weights: F64 = np.append(np.tile(np.where(np.arange(count) < alone, 0.5 / alone, 0.0), 2), 0.0)
        self.mixer: F64 = np.zeros((2 * count + 1, 2 * count + 1))
        self.bounds: F64 = np.zeros(2 * count + 2)
        self.standing: F64 = np.zeros(2 * count + 1)
        self.priors: F64 = np.full(count, 0.5 * PRIOR)
        self._arrange({})

    def _arrange(self, groups: Mapping[int, Group]) -> None:
        """Have these groups and empty ones, of the sizes in the table, and the features that they take."""
        blocks, alone = self.table[:, 0], len(self._alone)
        slots = range(len(self.table) - alone)
        firsts = np.array([*range(alone), *(growth.first_block(slot, self._stages) for slot in slots)])
        sizes = (blocks * self.outputs).tolist()
        all_groups = [groups.get(g) or Group.empty(n, self.columns, self.room) for g, n in enumerate(sizes)]
        self.groups = Groups(all_groups, (firsts * self.outputs).tolist())
        kernel = self._kernel
        if isinstance(kernel, Ladder) and blocks[alone:].any():
            multiples = np.resize(kernel.multiples, self.most_blocks)
            for first, (n, rung, _) in zip(firsts[alone:], self.table[alone:], strict=True):
                multiples[first : first + n] = multiples[rung]
            kernel = replace(kernel, multiples=tuple(multiples[: growth.MOST].tolist()))
        self.directions.plan = Plan(kernel, self._seed)
        used = int((firsts + blocks)[blocks > 0].max())
        if blocks[alone:].any():
            self.ints[state.BLOCKS] = used
        self.directions.reserve(used)
        panels = -(-used * self.per_block // self.directions.width)
        self._phi: F32 = np.empty((panels, self.directions.plan.outputs, self.directions.width), np.float32)

    def look(self) -> None:
        """Begin a larger group if it is time to."""
        seen, alone = int(self.ints[state.EXAMPLES]), len(self._alone)
        standing = self.standing[:-1].reshape(2, -1)
        multiples = np.resize(self._kernel.multiples if isinstance(self._kernel, Ladder) else 1.0, alone)
        rung = growth.bandwidth(standing[0, :alone], multiples.tolist())
        stage = growth.due(seen, self.groups.counts, self.table, standing, self._stages, rung)
        if not stage:
            return
        size = self.reals[state.SPREAD] if self.ints[state.INTERCEPT] == state.MEAN else 1.0
        g = alone + growth.slot(stage, self._stages)
        least = standing[0, self.table[:, 0] > 0].min()
        unexplained = least / self.standing[-1] if self.standing[-1] > 0.0 else 1.0
        self.priors[g] = self.priors[rung] * np.clip(unexplained, LEAST_UNEXPLAINED, 1.0)
        ended = [k for k in (alone, alone + 1) if k == g or stage == 1]
        kept = {k: self.groups[k] for k in range(len(self.groups)) if k not in ended}
        self.table[ended] = 0
        self.table[g] = 1 << stage, rung, seen
        self._arrange(kept)
        np.fill_diagonal(self.groups[g].factor, np.sqrt(self.prior(g)))
        functions = np.array([*ended, *(len(self.groups) + k for k in ended)])
        self.bounds[functions] = self.standing[functions] = 0.0
        if self.mixer.any():  # the targets have differed
            self.mixer = newton_steps.without(self.mixer, self.weights, functions, newton_steps.PULL * size)

    @property
    def kernel(self) -> Kernel:
        """The kernel, with its bandwidths as numbers."""
        return self._kernel

    @property
    def n_blocks(self) -> int:
        """Blocks in use, each of its own seed."""
        return int(min(self.ints[state.BLOCKS], self.table[:, 0].sum()))

    @property
    def penalty(self) -> float:
        """(λ/2)‖w‖² of the mixed function."""
        parts = zip(*self.weights[:-1].reshape(2, -1), self.groups, strict=True)
        return 0.5 * self.l2 * sum(float(np.square(v * own.newton + u * own.steady).sum()) for v, u, own in parts)

    @property
    def shares(self) -> dict[str, float]:
        """The weight in f of the functions that take Newton steps, of those that take constant ones, and of the level.

        Where the stream moves, the constant steps gain.
        """
        newton, steady = self.weights[:-1].reshape(2, -1).sum(axis=1).tolist()
        return {"newton": newton, "constant": steady, "level": float(self.weights[-1])}

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays but the cache of directions."""
        return super().nbytes + sum(part.nbytes for part in self.groups.flat)

    def score_event(self, x: Mapping[Hashable, Any]) -> F64:
        """Return f at one example, shape (columns,)."""
        scores: F64 = self.scores(self.row(x))[0]
        return scores

    def scores(self, rows: Rows) -> F64:
        """Return f at each of `rows`, shape (rows, columns).

        Raises
        ------
        InputError
            If a value is not finite or too large.
        """
        out = np.empty((len(rows.start) - 1, self.columns))
        flat = self.groups.flat
        model = self.groups.layout, flat.newton, flat.steady, self.level, self.weights
        told = (self.ints, self.reals), self.directions.kernel
        self._evaluate(lambda part, *to: int(mixing.evaluate(*told, tuple(part), model, *to)), rows, self._phi, out)
        return out

    def learn_event(self, x: Mapping[Hashable, Any], y: float) -> None:
        """Learn from one example; raises what :meth:`learn` raises."""
        self.learn_one(self.row(x), y)

    def learn_one(self, row: Rows, y: float) -> None:
        """Learn from one row as :meth:`learn` does."""
        self.learn(row, np.array([y], np.float64))

    def learn(self, rows: Rows, y: F64) -> None:
        """Learn from `rows` in order.

        Raises
        ------
        InputError
            If a value is not finite or too large, or the steps have diverged. The rows before are learnt.
        """
        done, n = 0, len(y)
        while done < n:
            last = min(n, done + schedule.until_due(int(self.ints[state.EXAMPLES])))
            self._learn(rows.part(done, last), y[done:last], done)
            done = last
            if self.looks and schedule.is_due(int(self.ints[state.EXAMPLES])):
                self.look()

    def _learn(self, rows: Rows, y: F64, done: int) -> None:
        """Learn `rows`, after so many of the same call."""
        t, n = int(self.ints[state.STEPS]), len(y)
        if isinstance(self.step, steps.Constant):
            gammas = np.full(n, self.step(1))
        else:
            gammas = np.asarray(self.step(np.arange(t + 1, t + n + 1, dtype=np.float64)), np.float64)
        factor, newton, steady, sums, gathered = self.groups.flat
        model = (
            self.groups.layout, factor, newton, steady, gathered, sums, self.level, self.weights, self.mixer,
            self.bounds, self.standing, self.priors, schedule.last_due(int(self.ints[state.EXAMPLES])),
            sum(self._alone), FOLLOW / self.loss.curvature,
        )  # fmt: skip
        told = (self.ints, self.reals), self.directions.kernel, tuple(rows), y, gammas
        status, row = mixing.learn(*told, model, self._phi)
        self.refused = done + row
        if status == state.BAD_VALUE:
            raise self._unusable(rows.part(row, row + 1))
        if status == state.DIVERGED:
            raise self._diverged(y[row])

    def settle(self) -> None:
        """Take the step that examples wait for."""
        factor, newton, _, sums, gathered = self.groups.flat
        mixing.settle(self.ints, self.reals, self.groups.layout, factor, newton, gathered, sums, self.priors)

    def add_column(self) -> None:
        """Make room for one more class; a function of two classes in one column becomes one of three."""
        split, is_binary = self._split()[:, None], self._is_binary

        def more(old: F64) -> F64:
            return split * old if is_binary else np.concatenate([old, np.zeros_like(old[:1])])

        self._add_columns()
        self.level = more(self.level)
        self._arrange(
            {
                g: Group(old.factor, more(old.newton), more(old.steady), more(old.sums), old.rows)
                for g, old in enumerate(self.groups)
            }
        )

    def tensors(self) -> dict[str, Any]:
        """Return everything that has been learnt, as arrays that share nothing with this function."""
        return self.asked() | self.groups.tensors(int(self.ints[state.WAITING]))

    def asked(self) -> dict[str, Any]:
        """Return of :meth:`tensors` what is needed to predict, which is small."""
        kept = {name: getattr(self, name).copy() for name in (*self._mixing(), "table")}
        return self._numbers() | kept | self._kept() | self.groups.functions()

    @property
    def is_joint(self) -> bool:
        """Whether all blocks are one group from the beginning."""
        return not self._stages and len(self._alone) == 1

    @property
    def next_number(self) -> int:
        """A number that no block of this function has been drawn with."""
        return self.most_blocks

    def memory(self, g: int) -> float:
        """Return how many examples the factor of a group tells of."""
        seen = int(self.ints[state.EXAMPLES] - self.table[g, 2])
        return max(1.0, min(float(seen), 1.0 / max(1.0 - self._forgetting, 1e-18)))

    def prior(self, g: int) -> float:
        """Return λ of a group, in the units of its factor."""
        own = self.reals[state.SELF] or self.reals[state.SQUARE] or 1.0
        return float(self.priors[g] * own * self.table[g, 0])

    def with_groups(self, kept: I64, groups: Sequence[Group]) -> dict[str, Any]:
        """Return what :meth:`restore` takes for groups of the features that are kept instead of its own."""
        asked = self.asked()
        asked["ints"][state.WAITING] = 0
        return asked | {"kept": kept} | Groups(groups, [0] * len(groups)).tensors(0)

    def _mixing(self) -> dict[str, tuple[int, ...]]:
        """Return the names and shapes of the arrays that are saved as they are."""
        count = 2 * len(self.table)
        return {
            "level": (self.columns, 1),
            "weights": (count + 1,),
            "mixer": (count + 1, count + 1),
            "bounds": (count + 2,),
            "standing": (count + 1,),
            "priors": (len(self.table),),
        }

    def restore(self, tensors: Mapping[str, Any], to_learn: bool = True) -> None:
        """Take over what :meth:`tensors` of a function with the same parameters returned.

        Where it is not `to_learn`, what :meth:`asked` returned is enough.

        Raises
        ------
        ValueError
            If a tensor is missing, does not fit, or holds what no function learns.
        """
        ints, reals = self._numbers_in(tensors)
        features = self._kept_in(tensors)
        if features is not None:
            self.per_block, rest = divmod(len(features) - 1, self.most_blocks)
            if rest or not self.per_block:
                raise ValueError(f"expected features of {self.most_blocks} blocks as kept, got {len(features) - 1}")
            self.ints[state.PER_BLOCK], self.outputs = self.per_block, self.per_block * self.directions.plan.outputs
            self._pack(features)
            self._start()
        kept = {name: model_file.taken(tensors, name, np.float64, shape) for name, shape in self._mixing().items()}
        waiting, examples = int(ints[state.WAITING]), int(ints[state.EXAMPLES])
        if (
            not waiting < max(self.batch, newton_steps.LONGEST_BATCH)
            or not waiting <= examples == ints[state.STEPS] < 1 << 62
        ):
            raise ValueError(f"expected counters of examples as ints, got {ints.tolist()}")
        if not ((kept["priors"] > 0.0) & (kept["priors"] <= 1.0)).all():
            raise ValueError(f"expected priors from 0 to 1, got {kept['priors'].tolist()}")
        if not ((kept["mixer"].diagonal() > 0.0).all() or not kept["mixer"].any()):
            raise ValueError("expected a mixer with a positive diagonal")
        if min(kept["bounds"].min(), kept["standing"].min(), reals[state.SPREAD]) < 0.0:
            raise ValueError("expected bounds, losses and a spread of at least 0")
        table = model_file.taken(tensors, "table", np.int64, self.table.shape)
        if not growth.possible(table, self._alone, self._stages, examples):
            raise ValueError(f"expected groups of blocks as table, got {table.tolist()}")
        self.table = table.copy()
        self._arrange({})
        used = max(int(self.ints[state.BLOCKS]), min(examples, sum(self._alone)))
        if ints[state.BLOCKS] != used:
            raise ValueError(f"expected {used} blocks, got {ints[state.BLOCKS]}")
        self.groups.restore(tensors, waiting, to_learn)
        for group in self.groups:
            if to_learn and not ((group.factor.diagonal() > 0.0).all() if examples else not group.factor.any()):
                raise ValueError("expected factors with positive diagonals")
        self.ints[: state.COLUMNS], self.reals[: state.L2] = ints, reals
        for name, value in kept.items():
            setattr(self, name, value.copy())
