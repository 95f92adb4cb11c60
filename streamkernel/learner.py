"""What every function of seeded random features that learns from a stream has, however it learns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from streamkernel import losses, mixing, model_file, state, steps, threads
from streamkernel.errors import DivergedError, InputError
from streamkernel.features import Directions
from streamkernel.forms import BLOCK
from streamkernel.kernels import Kernel
from streamkernel.kernels.plan import Plan
from streamkernel.rows import F32, F64, I64, Rows


class Learner:
    """The directions, the loss, and the numbers that `streamkernel.state` names.

    Parameters
    ----------
    kernel
        The kernel k. Bandwidths that are pending count as 1.
    loss, step
        What is minimised, and the step size.
    per_block, most_blocks
        Features in a block, and cap on the blocks.
    batch
        Examples in a step.
    l2
        Regularisation λ.
    columns
        Outputs of f.
    intercept
        What is added to f.
    cache_bytes
        Memory for cached directions.
    seed
        Seed of the features.
    """

    def __init__(
        self,
        kernel: Kernel,
        loss: losses.Loss,
        step: steps.Step,
        per_block: int,
        most_blocks: int,
        batch: int,
        l2: float,
        columns: int,
        intercept: int,
        cache_bytes: int,
        seed: int,
    ) -> None:
        self.loss, self.step, self.batch, self.l2, self.per_block = loss, step, batch, l2, per_block
        self.most_blocks, self._seed = most_blocks, seed
        self.directions = Directions(Plan(kernel, seed), per_block, cache_bytes)
        plan = self.directions.plan
        self.ints: I64 = np.zeros(state.N_INTS, np.int64)
        self.ints[state.COLUMNS : state.RULE_CODE] = columns, per_block, batch, most_blocks, loss.code
        self.ints[state.INTERCEPT] = intercept
        self.ints[state.PARTS :] = len(plan.parts), len(plan.terms), plan.outputs
        self.reals: F64 = np.zeros(state.N_REALS)
        self.looks = True  # a replica does not look at itself, so that all of them stay alike

    def _reset(self) -> None:
        """Set the numbers to what they are before the first example."""
        self.ints[: state.COLUMNS] = 0
        self.reals[: state.L2] = 0.0
        self.reals[state.SCALE] = 1.0
        self.reals[state.L2] = self.l2
        self.reals[state.LOSS_PARAMETER] = self.loss.parameter
        self.reals[state.LOSS_BOUND] = self.loss.bound(self.columns)
        self.reals[state.SELF] = self.directions.plan.itself

    @property
    def kernel(self) -> Kernel:
        """The kernel, with its bandwidths as numbers."""
        return self.directions.plan.kernel

    @property
    def columns(self) -> int:
        """Outputs of f."""
        return int(self.ints[state.COLUMNS])

    @property
    def n_blocks(self) -> int:
        """Blocks, each of its own seed."""
        return int(self.ints[state.BLOCKS])

    @property
    def penalty(self) -> float:
        """The regularisation of f."""
        raise NotImplementedError

    @property
    def objective(self) -> float:
        """The running regularised loss: ℓ(f(x), y) before each example is learnt, averaged, plus :attr:`penalty`."""
        return float(self.reals[state.LOSS]) + self.penalty

    @property
    def last_step(self) -> float | None:
        """The last step η that a rule has taken; ``None`` without a rule."""
        return None

    @property
    def shares(self) -> dict[str, float]:
        """The weight in f of what takes Newton steps, constant steps, and of the level; empty without a mixture."""
        return {}

    def embedded(self, rows: Rows) -> F32:
        """Return the features of all blocks for each of `rows`, shape (rows, outputs), by block, output and place."""
        outputs = self.n_positions * self.per_block * self.directions.plan.outputs
        features = np.empty((len(rows.start) - 1, outputs), np.float32)
        panels = -(-self.n_positions * self.per_block // self.directions.width)
        phi = np.empty((panels, self.directions.plan.outputs, self.directions.width), np.float32)
        mixing.embed_many((self.ints, self.reals), self.directions.kernel, tuple(rows), phi, features)
        return features

    @property
    def n_positions(self) -> int:
        """Blocks that have a place, of which some may be empty."""
        return int(self.ints[state.BLOCKS])

    def settle(self) -> None:
        """Take the step that examples wait for, though there are not yet as many as it takes."""

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays but the cache of directions."""
        return sum(part.nbytes for part in vars(self).values() if isinstance(part, np.ndarray))

    @property
    def is_packed(self) -> bool:
        """Whether the first blocks are of features that were kept when the function was made smaller."""
        return len(self.directions.kept) > 1

    def drawn(self, positions: I64) -> I64:
        """Return what `streamkernel.forms` says of the features at these positions: block, place and rung of each."""
        kept, block = self.directions.kept, positions // self.per_block
        features: I64 = np.stack([block + kept[-1, BLOCK], positions % self.per_block, block], axis=1)
        packed = positions < len(kept) - 1
        features[packed] = kept[positions[packed]]
        return features

    @property
    def next_number(self) -> int:
        """A number that no block of this function has been drawn with."""
        return int(self.n_positions + self.directions.kept[-1, BLOCK])

    def _pack(self, kept: I64) -> None:
        """Have the features that are kept as the first ones."""
        self.directions = Directions(self.directions.plan, self.per_block, self.directions.cache_bytes, kept)

    def _kept(self) -> dict[str, Any]:
        """Return what is kept, as a tensor, if anything is."""
        return {"kept": self.directions.kept.copy()} if self.is_packed else {}

    def _kept_in(self, tensors: Mapping[str, Any]) -> I64 | None:
        """Return what is kept by `tensors`, ``None`` if nothing is.

        Raises
        ------
        ValueError
            If these are not features that a function can keep.
        """
        if "kept" not in tensors:
            return None
        kept: I64 = model_file.taken(tensors, "kept", np.int64, (None, 3))
        if len(kept) < 2 or (kept < 0).any() or (kept >= 1 << 62).any() or kept[-1, 2]:
            raise ValueError("expected features of whole blocks as kept")
        return kept

    def row(self, x: Mapping[Hashable, Any]) -> Rows:
        """Return one example as this function reads it."""
        return self.directions.row(x)

    def check_targets(self, targets: Sequence[float]) -> None:
        """Raise a ValueError if the loss is for classes and one of `targets` is the number of none."""
        classes = range(max(1 if isinstance(self.loss, losses.Softmax) else 2, self.columns))
        if self.loss.for_classes and not all(y in classes for y in targets):
            raise ValueError(f"expected the numbers of {len(classes)} classes as targets, got {list(targets)[:9]}")

    def _split(self) -> F64:
        """Return how the one column of two classes becomes three columns of classes.

        The margin f splits into the scores -f/2 and f/2 where the loss becomes softmax, and into -f and f where each
        class is learnt against the rest.
        """
        half = 0.5 if isinstance(self.loss, losses.Logistic) else 1.0
        return np.array([-half, half, 0.0])

    @property
    def _is_binary(self) -> bool:
        return self.columns == 1 and not isinstance(self.loss, losses.Softmax)

    def _add_columns(self) -> None:
        """Count one more column, or three instead of one."""
        self.ints[state.COLUMNS] += 2 if self._is_binary else 1
        self.reals[state.LOSS_BOUND] = self.loss.bound(self.columns)

    def _numbers(self) -> dict[str, Any]:
        """Return the numbers that are learnt, as tensors."""
        return {"ints": self.ints[: state.COLUMNS].copy(), "reals": self.reals[: state.L2].copy()}

    def _numbers_in(self, tensors: Mapping[str, Any]) -> tuple[I64, F64]:
        """Return the numbers in `tensors`.

        Raises
        ------
        ValueError
            If they are not what can be learnt.
        """
        ints = model_file.taken(tensors, "ints", np.int64, (state.COLUMNS,))
        reals = model_file.taken(tensors, "reals", np.float64, (state.L2,))
        blocks = int(ints[state.BLOCKS])
        if (ints < 0).any() or blocks > min(self.most_blocks, ints[state.STEPS]) or reals[state.SCALE] == 0.0:
            raise ValueError(f"expected counters of steps as ints, got {ints.tolist()}")
        return ints, reals

    def _evaluate(self, evaluate: Callable[[Rows, F32, F64], int], rows: Rows, phi: F32, out: F64) -> None:
        """Evaluate rows into `out`, in as many threads as there may be, each with room of its own for the features φ.

        Raises
        ------
        InputError
            If a row is unusable, which `evaluate` says by its number.
        """

        def part(first: int, last: int) -> int:
            return evaluate(rows.part(first, last), np.empty_like(phi) if first else phi, out[first:last])

        bad = threads.first_unusable(len(out), part)
        if bad >= 0:
            raise self._unusable(rows.part(bad, bad + 1))

    def _unusable(self, row: Rows) -> InputError:
        return self.directions.plan.unusable(row)

    def _diverged(self, y: float) -> InputError:
        return DivergedError(
            f"The steps have diverged: refused the derivative of the loss at target {np.float64(y)!r} "
            f"(step {int(self.ints[state.STEPS]) + 1}); use a smaller step"
        )
