"""The learnt function f(x) = Σ_b φ_b(x)ᵀ α_b: its coefficients, and how they are evaluated, moved and kept."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from streamkernel import losses, model_file, rules, stepping, steps
from streamkernel.errors import InputError
from streamkernel.features import F64, I64, LARGEST_VALUE, Directions, Rows, domain_key
from streamkernel.kernels import Gaussian

_CHUNK = 1024
"""Examples handed to one compiled call; between calls, room for new blocks is made."""


class Expansion:
    """A function that grows by blocks of seeded random features, and the steps that train it.

    Parameters
    ----------
    kernel
        The kernel k; its parameters must be numbers.
    loss, rule, step
        What is minimised, which coordinate a step takes, and how far it goes.
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
        Whether f has the running mean of the targets added to it.
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
        kernel: Gaussian,
        loss: losses.Loss,
        rule: rules.Rule,
        step: steps.Step,
        *,
        per_block: int = 256,
        max_features: int | None = 1024,
        batch: int = 1,
        l2: float = 0.0,
        columns: int = 1,
        average: bool = False,
        intercept: bool = False,
        cache_bytes: int = 1 << 26,
        seed: int = 0,
    ) -> None:
        self.loss, self.step = loss, step
        self.batch, self.l2, self.per_block = batch, l2, per_block
        self.directions = Directions(seed, per_block, cache_bytes)
        self._averages = average
        code, grow, reuse, self._longest = rule.parameters
        self.most_blocks = (1 << 62) if max_features is None else max_features // per_block
        keys = (int(self.directions.key), int(domain_key(seed, "rule")))
        self.ints: I64 = np.zeros(stepping.N_INTS, np.int64)
        self.ints[stepping.COLUMNS :] = np.array(
            [columns, per_block, batch, self.most_blocks, loss.code, code, grow, reuse, intercept, *keys],
            np.uint64,
        ).view(np.int64)
        self.reals: F64 = np.zeros(stepping.N_REALS)
        self.start_again(kernel)

    def start_again(self, kernel: Gaussian) -> None:
        """Forget all that was learnt and go on with another bandwidth; the directions are the same."""
        self.ints[: stepping.COLUMNS] = 0
        self.reals[: stepping.INPUT_SCALE] = 0.0
        self.reals[stepping.SCALE] = 1.0
        self.reals[stepping.INPUT_SCALE :] = [
            kernel.input_scale,
            self.l2,
            self.loss.parameter,
            self.loss.bound(self.columns),
            kernel.feature_variance / self.per_block,
            self._longest,
        ]
        width = self.directions.width
        self.coef: F64 = np.zeros((0, self.columns * (1 + self._averages), 2, width))
        self.beta: F64 = np.zeros((0, self.columns))
        self._phi = np.empty((0, 2, width), np.float32)
        self._make_room_for_one()
        self._target, self._gamma = np.empty(1), np.empty(1)
        self.pending: list[tuple[Rows, float]] = []
        self._reserve(1)

    @property
    def columns(self) -> int:
        """Outputs of f."""
        return int(self.ints[stepping.COLUMNS])

    @property
    def n_blocks(self) -> int:
        """Blocks, each of its own seed."""
        return int(self.ints[stepping.BLOCKS])

    @property
    def objective(self) -> float:
        """The running regularised loss: ℓ(f(x), y) before each example is learnt, averaged, plus (λ/2)‖f‖²."""
        return float(self.reals[stepping.LOSS] + 0.5 * self.l2 * self.reals[stepping.NORM2])

    def row(self, x: Mapping[Hashable, Any]) -> Rows:
        """Return one example as this function reads it."""
        return self.directions.row(x)

    def score_one(self, row: Rows) -> F64:
        """Return f at one row, shape (columns,); its features are kept for :meth:`learn_one`.

        Raises
        ------
        InputError
            If a value is not finite or too large.
        """
        values = row.values.tobytes()
        if not self._is_last(row, values):
            self._last = None
            self._evaluate(row, self._one)
            self._last = (row.hashes, values)
        return self._predicted

    def scores(self, rows: Rows) -> F64:
        """Return f at each of `rows`, shape (rows, columns).

        Raises
        ------
        InputError
            If a value is not finite or too large.
        """
        self._last = None
        out = np.empty((len(rows.start) - 1, 2, self.columns))
        self._evaluate(rows, out)
        return out[:, 1]

    def learn_one(self, row: Rows, y: float) -> None:
        """Learn from one row, or keep it until there is a batch; raises what :meth:`learn` raises."""
        if self.batch > 1:
            self._gather(row, y)
            return
        known = self._is_last(row, row.values.tobytes())
        self._target[0] = y
        self._gamma[0] = self.step(int(self.ints[stepping.STEPS]) + 1)
        if self.ints[stepping.BLOCKS] == len(self.beta):
            self._reserve(min(self.n_blocks + 1, self.most_blocks))
        self._step(row, self._target, known, self._gamma)

    def learn(self, rows: Rows, y: F64) -> None:
        """Learn from `rows` in order; what does not fill a batch waits for the next call.

        Raises
        ------
        InputError
            If a value is not finite or too large, or the steps have diverged. The rows before are learnt.
        """
        if self.batch > 1:
            for i in range(len(y)):
                self._gather(rows.part(i, i + 1), float(y[i]))
            return
        for first in range(0, len(y), _CHUNK):
            n = min(_CHUNK, len(y) - first)
            self._reserve(min(self.n_blocks + n, self.most_blocks))
            t = self.ints[stepping.STEPS]
            gammas = np.asarray(self.step(np.arange(t + 1, t + n + 1, dtype=np.float64)))
            self._step(rows.part(first, first + n), y[first : first + n], False, gammas)

    def add_column(self) -> None:
        """Make room for one more class; a function of two classes in one column becomes one of three.

        The margin f splits into the scores -f/2 and f/2 where the loss becomes softmax, and into -f and f
        where each class is learnt against the rest.
        """
        if self.columns == 1 and not isinstance(self.loss, losses.Softmax):
            half = 0.5 if isinstance(self.loss, losses.Logistic) else 1.0
            spread = np.array([-half, half, 0.0])
            self.coef = np.concatenate(
                [spread[None, :, None, None] * part for part in np.split(self.coef, 1 + self._averages, axis=1)],
                axis=1,
            )
            self.beta = self.beta * spread
            self.ints[stepping.COLUMNS] = 3
        else:
            parts = np.split(self.coef, 1 + self._averages, axis=1)
            zeros = np.zeros_like(self.coef[:, :1])
            self.coef = np.concatenate([column for part in parts for column in (part, zeros)], axis=1)
            self.beta = np.concatenate([self.beta, np.zeros((len(self.beta), 1))], axis=1)
            self.ints[stepping.COLUMNS] += 1
        self.reals[stepping.LOSS_BOUND] = self.loss.bound(self.columns)
        self._make_room_for_one()

    def tensors(self) -> dict[str, Any]:
        """Return everything that has been learnt, as arrays that share nothing with this function."""
        features = self.n_blocks * self.per_block
        used = -(-features // self.directions.width)
        learnt = {"coef": self.coef[:used].copy(), "beta": self.beta[: self.n_blocks].copy()}
        counters = {
            "ints": self.ints[: stepping.COLUMNS].copy(),
            "reals": self.reals[: stepping.INPUT_SCALE].copy(),
        }
        return learnt | counters | model_file.pack_examples("pending", self.pending)

    def restore(self, tensors: Mapping[str, Any]) -> None:
        """Take over what :meth:`tensors` of a function with the same parameters returned."""
        self.ints[: stepping.COLUMNS], self.reals[: stepping.INPUT_SCALE] = tensors["ints"], tensors["reals"]
        self._reserve(max(1, self.n_blocks))
        self.coef[: len(tensors["coef"])] = tensors["coef"]
        self.beta[: self.n_blocks] = tensors["beta"]
        self.pending = model_file.unpack_examples("pending", tensors, self.directions) or []

    def _make_room_for_one(self) -> None:
        """Make the arrays that one row's scores are put into: the present ones, and the prediction."""
        self._one = np.empty((1, 2, self.columns))
        self._predicted: F64 = self._one[0, 1]
        self._last: tuple[Any, bytes] | None = None

    def _evaluate(self, rows: Rows, out: F64) -> None:
        bad = stepping.evaluate(self.ints, self.reals, self.directions.cache, *rows, self.coef, self._phi, out)
        if bad >= 0:
            raise _unusable(rows.part(bad, bad + 1))

    def _is_last(self, row: Rows, values: bytes) -> bool:
        """Say whether `row` is the one whose scores and features are at hand."""
        return self._last is not None and self._last[0] is row.hashes and self._last[1] == values

    def _gather(self, row: Rows, y: float) -> None:
        if not np.all(np.abs(row.values) * self.reals[stepping.INPUT_SCALE] <= LARGEST_VALUE):
            raise _unusable(row)
        self.pending.append((row, y))
        if len(self.pending) == self.batch:
            batch, self.pending = self.pending, []
            self._reserve(min(self.n_blocks + 1, self.most_blocks))
            self._gamma[0] = self.step(int(self.ints[stepping.STEPS]) + 1)
            targets = np.array([target for _, target in batch])
            self._step(Rows.stack([row for row, _ in batch]), targets, False, self._gamma)

    def _step(self, rows: Rows, y: F64, known: bool, gammas: F64) -> None:
        self._last = None
        status, row = stepping.learn(
            self.ints, self.reals, self.directions.cache, *rows,
            y, known, self._one, gammas, self.coef, self.beta, self._phi,
        )  # fmt: skip
        if status == stepping.BAD_VALUE:
            raise _unusable(rows.part(row, row + 1))
        if status == stepping.DIVERGED:
            raise InputError(
                f"The steps have diverged: refused the derivative of the loss at target {y[row]!r} "
                f"(step {int(self.ints[stepping.STEPS]) + 1}); use a smaller step"
            )

    def _reserve(self, blocks: int) -> None:
        """Make room for `blocks` blocks in all arrays."""
        self.directions.reserve(blocks)
        panels = -(-blocks * self.per_block // self.directions.width)
        if panels > len(self.coef):
            panels = min(
                max(panels, 2 * len(self.coef)),
                -(-self.most_blocks * self.per_block // self.directions.width),
            )
            self.coef = _grown(self.coef, panels)
            self._phi = _grown(self._phi, panels)
        if blocks > len(self.beta):
            self.beta = _grown(self.beta, panels * (self.directions.width // self.per_block))


def _grown(old: Any, length: int) -> Any:
    new = np.zeros((length, *old.shape[1:]), old.dtype)
    new[: len(old)] = old
    return new


def _unusable(row: Rows) -> InputError:
    worst = max(row.values, key=lambda value: math.inf if math.isnan(value) else abs(value))
    return InputError(f"Expected finite numbers of usable size, got {float(worst)!r}")
