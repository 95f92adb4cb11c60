"""The learnt function f(x) = Σ_b φ_b(x)ᵀ α_b: its coefficients, and how they are evaluated, moved and kept."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from streamkernel import losses, model_file, rules, steps, stepping
from streamkernel.errors import InputError
from streamkernel.features import F64, I64, Directions, Rows, domain_key
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
        per_block: int = 64,
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
        self.most_blocks = (1 << 62) if max_features is None else max_features // per_block
        self.directions = Directions(seed, per_block, cache_bytes)
        self._rule = rule.parameters
        self._rule_key = domain_key(seed, "rule")
        self.columns = columns
        self._averages = average
        self._intercept = intercept
        self.start_again(kernel)

    def start_again(self, kernel: Gaussian) -> None:
        """Forget all that was learnt and go on with another bandwidth; the directions are the same."""
        self._scale = kernel.input_scale
        self._variance = kernel.feature_variance / self.per_block
        width = self.directions.width
        self.counts: I64 = np.zeros(4, np.int64)
        self.state: F64 = np.array([1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
        self.coef: F64 = np.zeros((0, self.columns * (1 + self._averages), 2, width))
        self.beta: F64 = np.zeros((0, self.columns))
        self._phi = np.empty((0, 2, width), np.float32)
        self.pending: list[tuple[Rows, float]] = []
        self._last: tuple[Rows, bytes, int, F64] | None = None
        self._reserve(1)

    @property
    def n_blocks(self) -> int:
        """Blocks, each of its own seed."""
        return int(self.counts[stepping.BLOCKS])

    @property
    def objective(self) -> float:
        """The running regularised loss: ℓ(f(x), y) before each example is learnt, averaged, plus (λ/2)‖f‖²."""
        return float(self.state[stepping.LOSS] + 0.5 * self.l2 * self.state[stepping.NORM2])

    def row(self, x: Mapping[Hashable, Any]) -> Rows:
        """Return one example as this function reads it."""
        return self.directions.row(x)

    def scores(self, rows: Rows) -> F64:
        """Return f at each of `rows`, shape (rows, columns).

        Raises
        ------
        InputError
            If a value is not finite or too large.
        """
        dots = self._evaluate(rows)
        current = dots[:, : self.columns]
        t = self.counts[stepping.STEPS]
        if not self._averages or t == 0:
            return np.asarray(self.state[stepping.SCALE] * current + self.state[stepping.MEAN])
        average = (self.state[stepping.SCALE_SUM] * current - dots[:, self.columns :]) / t
        return np.asarray(average + self.state[stepping.MEAN])

    def learn(self, rows: Rows, y: F64) -> None:
        """Learn from `rows` in order; what does not fill a batch waits for the next call.

        Raises
        ------
        InputError
            If a value is not finite or too large, or the steps have diverged. The rows before are learnt.
        """
        if self.batch == 1:
            self._steps(rows, y)
            return
        for i in range(len(y)):
            row = rows.part(i, i + 1)
            if not np.all(np.abs(row.values) * self._scale <= stepping.LARGEST_VALUE):
                raise _unusable(row)
            self.pending.append((row, float(y[i])))
            if len(self.pending) == self.batch:
                batch, self.pending = self.pending, []
                self._steps(Rows.stack([row for row, _ in batch]), np.array([target for _, target in batch]))

    def add_column(self) -> None:
        """Make room for one more class; a function of two classes in one column becomes one of three.

        The margin f splits into the scores -f/2 and f/2 where the loss becomes softmax, and into -f and f
        where each class is learnt against the rest.
        """
        if self.columns == 1 and not isinstance(self.loss, losses.Softmax):
            half = 0.5 if isinstance(self.loss, losses.Logistic) else 1.0
            spread = np.array([-half, half, 0.0])
            self.coef = np.concatenate(
                [spread[None, :, None, None] * part for part in np.split(self.coef, 1 + self._averages, axis=1)], axis=1
            )
            self.beta = self.beta * spread
            self.columns = 3
        else:
            parts = np.split(self.coef, 1 + self._averages, axis=1)
            zeros = np.zeros_like(self.coef[:, :1])
            self.coef = np.concatenate([column for part in parts for column in (part, zeros)], axis=1)
            self.beta = np.concatenate([self.beta, np.zeros((len(self.beta), 1))], axis=1)
            self.columns += 1
        self._last = None

    def tensors(self) -> dict[str, Any]:
        """Return everything that has been learnt, as arrays that share nothing with this function."""
        features = self.n_blocks * self.per_block
        used = -(-features // self.directions.width)
        learnt = {"coef": self.coef[:used].copy(), "beta": self.beta[: self.n_blocks].copy()}
        counters = {"counts": self.counts.copy(), "state": self.state.copy()}
        return learnt | counters | model_file.pack_examples("pending", self.pending)

    def restore(self, tensors: Mapping[str, Any]) -> None:
        """Take over what :meth:`tensors` of a function with the same parameters returned."""
        self.counts, self.state = tensors["counts"].copy(), tensors["state"].copy()
        self._reserve(max(1, self.n_blocks))
        self.coef[: len(tensors["coef"])] = tensors["coef"]
        self.beta[: self.n_blocks] = tensors["beta"]
        self.pending = model_file.unpack_examples("pending", tensors, self.directions) or []

    def _evaluate(self, rows: Rows) -> F64:
        last = self._last
        if last is not None and self._is_last(last, rows):
            return last[3]
        dots = np.empty((len(rows.start) - 1, self.coef.shape[1]))
        features = self.n_blocks * self.per_block
        bad = stepping.evaluate(self._draw(), rows, features, self.coef, self._phi, dots)
        if bad >= 0:
            raise _unusable(rows.part(bad, bad + 1))
        self._last = (rows, rows.values.tobytes(), int(self.counts[stepping.STEPS]), dots) if len(dots) == 1 else None
        return dots

    def _is_last(self, last: tuple[Rows, bytes, int, F64], rows: Rows) -> bool:
        """Say whether `rows` is the one row evaluated last, with the present coefficients."""
        return (
            rows.hashes is last[0].hashes
            and last[2] == self.counts[stepping.STEPS]
            and rows.values.tobytes() == last[1]
        )

    def _steps(self, rows: Rows, y: F64) -> None:
        for first in range(0, len(y), _CHUNK * self.batch):
            part = y[first : first + _CHUNK * self.batch]
            n = len(part) // self.batch
            some = rows if len(part) == len(y) else rows.part(first, first + len(part))
            last, self._last = self._last, None
            if last is not None and self.batch == 1 and n == 1 and self._is_last(last, some):
                dots, known = last[3], np.ones(1, np.bool_)
            else:
                dots, known = np.empty((len(part), self.coef.shape[1])), np.zeros(len(part), np.bool_)
            self._reserve(min(self.n_blocks + n, self.most_blocks))
            t = self.counts[stepping.STEPS]
            status, row = stepping.learn(
                self._draw(), some, part, dots, known, self.step(np.arange(t + 1, t + n + 1, dtype=np.float64)),
                (self.loss.code, self.loss.parameter), self._rule,
                (self._rule_key, self.columns, self.l2, self.batch, self.most_blocks,
                 self.loss.bound(self.columns), self._variance, self._intercept),
                self.coef, self.beta, self.counts, self.state, self._phi,
            )  # fmt: skip
            if status == stepping.BAD_VALUE:
                raise _unusable(some.part(row, row + 1))
            if status == stepping.DIVERGED:
                raise InputError(
                    f"The steps have diverged: refused the derivative of the loss at target {part[row]!r} "
                    f"(step {int(self.counts[stepping.STEPS]) + 1}); use a smaller step"
                )

    def _draw(self) -> tuple[Any, Any, int, float]:
        return self.directions.key, self.directions.cache, self.per_block, self._scale

    def _reserve(self, blocks: int) -> None:
        """Make room for `blocks` blocks in all arrays."""
        self.directions.reserve(blocks)
        panels = -(-blocks * self.per_block // self.directions.width)
        if panels > len(self.coef):
            panels = min(max(panels, 2 * len(self.coef)), -(-self.most_blocks * self.per_block // self.directions.width))
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
