"""Second-order learning: functions of groups of features, learnt by Newton and by constant steps, and their mixture."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from streamkernel import losses, mixing, model_file, state, steps
from streamkernel.kernels import Kernel
from streamkernel.kernels.plan import Plan
from streamkernel.learner import Learner
from streamkernel.rows import F32, F64, Rows
from streamkernel.square_root import EIGHT

LARGEST = 1 << 29
"""Numbers in all factors at most: 2 GB."""

PRIOR = 0.06
SMALLEST_PRIOR = 1e-3
"""λ is this times (1 - κ)², where κ is the mean of k(x, x') over pairs of examples, in units of k(x, x): what hardly
differs from example to example needs larger coefficients to tell them apart."""


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
    groups
        Groups that the features stand in; each has a factor of its own.
    per_block, max_features
        Features in a block, F, and in all blocks.
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
    >>> f = Mixture(kernels.Gaussian(1.0), losses.Square(), step, groups=1, per_block=16, max_features=16)
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
        groups: int,
        per_block: int = 256,
        max_features: int = 1024,
        batch: int = 1,
        forgetting: float = 1.0,
        l2: float = 0.0,
        columns: int = 1,
        intercept: int = state.NOTHING,
        cache_bytes: int = 1 << 26,
        seed: int = 0,
    ) -> None:
        self.groups, self._forgetting = groups, forgetting
        blocks = max_features // per_block
        super().__init__(kernel, loss, step, per_block, blocks, batch, l2, columns, intercept, cache_bytes, seed)
        self._start()

    def start_again(self, kernel: Kernel, rows: Rows) -> None:
        """Forget all that was learnt and go on with other bandwidths; `rows` decide λ."""
        self.directions.plan = Plan(kernel, self._seed)
        self._start()
        n = len(rows.start) - 1
        features = np.empty((n, self.groups, self.outputs), np.float32)
        mixing.embed_many((self.ints, self.reals), self.directions.kernel, tuple(rows), self._phi, features)
        own = np.square(features, dtype=np.float64).sum(axis=2).mean(axis=0)
        mean = np.square(features.mean(axis=0, dtype=np.float64)).sum(axis=1)
        likeness = (n * mean / np.where(own > 0.0, own, 1.0) - 1.0) / (n - 1)
        self.priors[:] = np.maximum(PRIOR * np.square(1.0 - np.clip(likeness, 0.0, 1.0)), SMALLEST_PRIOR)

    def _start(self) -> None:
        """Set everything to what it is before the first example."""
        self._reset()
        self.reals[state.FORGETTING] = self._forgetting
        plan, groups, columns = self.directions.plan, self.groups, self.columns
        self.outputs = self.most_blocks // groups * self.per_block * plan.outputs
        if groups * self.outputs**2 > LARGEST:
            raise ValueError(
                f"Expected second-order steps whose factors have at most {LARGEST:,} numbers, got {groups} groups of "
                f"{self.outputs:,} outputs; use fewer features_per_seed, or second_order=None"
            )
        room = -(-max(self.batch, mixing.LONGEST_BATCH) // EIGHT) * EIGHT
        self.factor: F32 = np.zeros((groups, self.outputs, self.outputs), np.float32)
        self.newton: F64 = np.zeros((groups, columns, self.outputs))
        self.steady, self.sums = np.zeros_like(self.newton), np.zeros_like(self.newton)
        self.rows: F32 = np.zeros((groups, room, self.outputs), np.float32)
        self.weights: F64 = np.full(2 * groups, 0.5 / groups)
        self.mixer: F64 = np.zeros((2 * groups, 2 * groups))
        self.bounds: F64 = np.zeros(2 * groups + 1)
        self.priors: F64 = np.full(groups, 0.5 * PRIOR)
        self.directions.reserve(self.most_blocks)
        panels = -(-self.most_blocks * self.per_block // self.directions.width)
        self._phi: F32 = np.empty((panels, plan.outputs, self.directions.width), np.float32)

    @property
    def penalty(self) -> float:
        """(λ/2)‖w‖² of the mixed function."""
        newton, steady = self.weights.reshape(2, self.groups, 1, 1)
        return float(0.5 * self.l2 * np.square(newton * self.newton + steady * self.steady).sum())

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
        model = self.newton, self.steady, self.weights
        bad = mixing.evaluate((self.ints, self.reals), self.directions.kernel, tuple(rows), model, self._phi, out)
        if bad >= 0:
            raise self._unusable(rows.part(bad, bad + 1))
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
        t, n = int(self.ints[state.STEPS]), len(y)
        if isinstance(self.step, steps.Constant):
            gammas = np.full(n, self.step(1))
        else:
            gammas = np.asarray(self.step(np.arange(t + 1, t + n + 1, dtype=np.float64)), np.float64)
        model = (
            self.factor, self.newton, self.steady, self.rows, self.sums, self.weights, self.mixer, self.bounds,
            self.priors,
        )  # fmt: skip
        told = (self.ints, self.reals), self.directions.kernel, tuple(rows), y, gammas
        status, row = mixing.learn(*told, model, self._phi)
        self.refused = row
        if status == state.BAD_VALUE:
            raise self._unusable(rows.part(row, row + 1))
        if status == state.DIVERGED:
            raise self._diverged(y[row])

    def add_column(self) -> None:
        """Make room for one more class; a function of two classes in one column becomes one of three."""
        for name in ("newton", "steady", "sums"):
            old = getattr(self, name)
            more = [self._split()[:, None] * old] if self._is_binary else [old, np.zeros_like(old[:, :1])]
            setattr(self, name, np.concatenate(more, axis=1))
        self._add_columns()

    def tensors(self) -> dict[str, Any]:
        """Return everything that has been learnt, as arrays that share nothing with this function."""
        upper = np.triu_indices(self.outputs)
        waiting = int(self.ints[state.WAITING])
        kept = {name: getattr(self, name).copy() for name in self._kept()}
        factor = np.ascontiguousarray(self.factor[:, *upper])  # as files have it
        return self._numbers() | kept | {"factor": factor, "rows": self.rows[:, :waiting].copy()}

    def _kept(self) -> dict[str, tuple[int, ...]]:
        """Return the names and shapes of the arrays that are saved as they are."""
        functions = self.groups, self.columns, self.outputs
        count = 2 * self.groups
        shapes = [functions] * 3 + [(count,), (count, count), (count + 1,), (self.groups,)]
        return dict(zip(("newton", "steady", "sums", "weights", "mixer", "bounds", "priors"), shapes, strict=True))

    def restore(self, tensors: Mapping[str, Any]) -> None:
        """Take over what :meth:`tensors` of a function with the same parameters returned.

        Raises
        ------
        ValueError
            If a tensor is missing, does not fit, or holds what no function learns.
        """
        ints, reals = self._numbers_in(tensors)
        kept = {name: model_file.taken(tensors, name, np.float64, shape) for name, shape in self._kept().items()}
        triangle = self.outputs * (self.outputs + 1) // 2
        factor = model_file.taken(tensors, "factor", np.float32, (self.groups, triangle))
        upper = np.triu_indices(self.outputs)
        waiting, examples = int(ints[state.WAITING]), int(ints[state.EXAMPLES])
        if (
            not waiting < max(self.batch, mixing.LONGEST_BATCH)
            or not waiting <= examples == ints[state.STEPS] < 1 << 62
        ):
            raise ValueError(f"expected counters of examples as ints, got {ints.tolist()}")
        rows = model_file.taken(tensors, "rows", np.float32, (self.groups, waiting, self.outputs))
        if not ((kept["priors"] > 0.0) & (kept["priors"] <= 1.0)).all():
            raise ValueError(f"expected priors from 0 to 1, got {kept['priors'].tolist()}")
        diagonals = factor[:, upper[0] == upper[1]], kept["mixer"].diagonal()
        if not ((diagonals[0] > 0.0).all() if examples else not factor.any()):
            raise ValueError("expected factors with positive diagonals")
        if not ((diagonals[1] > 0.0).all() or not kept["mixer"].any()):
            raise ValueError("expected a mixer with a positive diagonal")
        if (kept["bounds"] < 0.0).any() or reals[state.SPREAD] < 0.0:
            raise ValueError("expected bounds and a spread of at least 0")
        self.ints[: state.COLUMNS], self.reals[: state.L2] = ints, reals
        for name, value in kept.items():
            setattr(self, name, value.copy())
        self.factor[:, *upper] = factor
        self.rows[:, :waiting] = rows
