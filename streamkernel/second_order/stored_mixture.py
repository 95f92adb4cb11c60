"""A mixture as arrays of a file, and restored from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from streamkernel.features import kept_features
from streamkernel.features.directions import Directions
from streamkernel.features.rows import I64
from streamkernel.learners import state
from streamkernel.second_order import mixture_files
from streamkernel.second_order.groups import Groups
from streamkernel.second_order.linear import state as linear
from streamkernel.second_order.mixed_function import MixedFunction
from streamkernel.second_order.mixture_state import Group
from streamkernel.second_order.neighbours import state as neighbours


class StoredMixture(MixedFunction):
    """A mixture as files hold it.

    Parameters are those of :class:`~streamkernel.second_order.mixed_function.MixedFunction`.
    """

    def tensors(self) -> dict[str, Any]:
        """Return the learned state as arrays that share nothing with this function."""
        self.advance(is_all=True)
        numbers = self.numbers
        groups = self.groups.tensors(int(numbers["buffered"]), bool(numbers["working"]))
        return self.to_predict() | groups | mixture_files.sampling_tensors(self._live)

    def to_predict(self) -> dict[str, Any]:
        """Return the part of :meth:`tensors` needed for predictions, which is small."""
        return mixture_files.tensors_to_predict(self._live, kept_features.pack(self.directions.kept))

    def with_groups(self, kept: I64, groups: Sequence[Group]) -> dict[str, Any]:
        """Return the tensors for :meth:`restore` with groups of the kept features instead of the present groups."""
        numbers = self.numbers.copy()
        numbers["buffered"] = 0
        learned = self.to_predict() | state.pack_learned(numbers)
        return learned | {"kept": kept} | Groups(groups, [0] * len(groups)).tensors(0)

    def restore(self, tensors: Mapping[str, Any], to_learn: bool = True) -> None:
        """Restore the state that :meth:`tensors` of a function with the same parameters returned.

        Without `to_learn`, the result of :meth:`to_predict` is enough.

        Raises
        ------
        ValueError
            If a tensor is missing, does not fit, or has values that no function can learn.
        """
        learned = self._read_learned(tensors)
        forgetting = self._arranger.forgetting if mixture_files.has_forgetting(tensors) else ()
        self._arranger = replace(
            self._arranger,
            linear=linear.count(tensors),
            is_saturated=linear.bound(tensors) > 0,
            window=neighbours.stored(tensors),
            forgetting=forgetting,
        )
        features, directions = kept_features.unpack(tensors), self.directions
        if features is not None:
            self.block_size, rest = divmod(len(features) - 1, self.most_blocks)
            if rest or not self.block_size:
                raise ValueError(f"expected features of {self.most_blocks} blocks as kept, got {len(features) - 1}")
            self._arranger = replace(self._arranger, outputs=self.block_size * directions.plan.outputs)
            directions = Directions(directions.plan, self.block_size, directions.cache_bytes, features)
        self._live = mixture_files.restore(
            tensors,
            learned,
            self._first(directions, self._live.state.numbers),
            self._arranger,
            self._kernel,
            to_learn=to_learn,
        )
