"""A first-order function with its buffered examples as arrays, and restored from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from streamkernel import tensor_file
from streamkernel.features import example_tensors, kept_features
from streamkernel.features.directions import Directions
from streamkernel.features.rows import Rows
from streamkernel.first_order.expanded_function import ExpandedFunction
from streamkernel.learners import averaging, span, state


class StoredExpansion(ExpandedFunction):
    """A function with its buffered examples, as files store it.

    Parameters are those of :class:`~streamkernel.first_order.expanded_function.ExpandedFunction`.
    """

    def _start(self, columns: int, intercept: int) -> None:
        super()._start(columns, intercept)
        self._pending: tuple[int, list[tuple[Rows, float]]] = (0, [])

    def to_predict_apart(self) -> Self:
        """Return a copy that shares no changing state."""
        twin = super().to_predict_apart()
        twin._pending = (0, [])
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
            | kept_features.pack(self.directions.kept)
            | state.pack_learned(numbers)
            | example_tensors.pack_examples("pending", waiting)
        )

    def to_predict(self) -> dict[str, Any]:
        """Return the part of :meth:`tensors` needed for predictions: all of it, because it is small."""
        return self.tensors()

    def restore(self, tensors: Mapping[str, Any], to_learn: bool = True) -> None:
        """Restore what :meth:`tensors` of a function with the same parameters returned; it can always learn.

        Raises
        ------
        ValueError
            If a tensor is missing, does not fit, or has values that no function can learn.
        """
        learned = self._read_learned(tensors)
        blocks = int(learned["blocks"])
        kept = kept_features.unpack(tensors)
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
        if min(learned["gradient_sum"], learned["distance2"]) < 0.0:
            raise ValueError("expected squares of norms, got numbers below 0")
        if not abs(learned["log_odds"]) <= averaging.SURE:
            raise ValueError(f"expected log odds from {-averaging.SURE} to {averaging.SURE}, got {learned['log_odds']}")
        entries = span.restored(tensors)
        state.set_learned(numbers, learned)
        self._set_arena(numbers, coef, beta, entries)
        self._pending = (self.examples, pending)
        self.directions.reserve(max(1, blocks))
