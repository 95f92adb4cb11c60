"""The arrays of a mixture's groups, one group after the other in flat arrays, as compiled code reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from streamkernel import tensor_file
from streamkernel.features.rows import I64
from streamkernel.second_order import mixture_state, newton
from streamkernel.second_order.mixture_state import Group
from streamkernel.second_order.tiles import WIDE, panels_of

FUNCTIONS = ("newton", "steady", "sums")


class Groups:
    """Groups, and the positions of their arrays.

    Parameters
    ----------
    groups
        The groups, those that have not begun with n = 0; they are copied.
    firsts
        The first output of each among all features.
    owners
        The group that each shares its features with; by default each has its own.

    Examples
    --------
    >>> groups = Groups([Group.empty(n, columns=2, room=8) for n in (3, 0, 2)], firsts=[0, 3, 3])
    >>> groups[2].newton.shape
    (2, 2)
    """

    def __init__(self, groups: Sequence[Group], firsts: Sequence[int], owners: Sequence[int] | None = None) -> None:
        self._columns, self._room = len(groups[0].newton), len(groups[0].rows)
        self.counts: I64 = np.array([len(group.factor) for group in groups])
        self.is_spread = bool(
            (self.counts**2).sum() > newton.SPREAD
        )  # whether steps are spread over the events after them
        self.layout: I64 = np.zeros((len(groups), 7), np.int64)
        self.layout[:, mixture_state.FIRST] = firsts
        self.layout[:, mixture_state.COUNT] = self.counts
        self.layout[:, mixture_state.OWNER] = range(len(groups)) if owners is None else owners
        self.layout[1:, mixture_state.BEFORE] = np.cumsum(self.counts)[:-1]
        self.layout[1:, mixture_state.SQUARES_BEFORE] = np.cumsum(self.counts**2)[:-1]
        self.layout[1:, mixture_state.PANELS_BEFORE] = np.cumsum([len(group.panels) for group in groups])[:-1]
        self.flat = Group(*(np.concatenate([part.ravel() for part in parts]) for parts in zip(*groups, strict=True)))

    def with_flat(self, **arrays: Any) -> Groups:
        """Return the same groups with other arrays."""
        twin: Groups = object.__new__(Groups)
        vars(twin).update(vars(self), flat=self.flat._replace(**arrays))
        return twin

    def __len__(self) -> int:
        return len(self.layout)

    def __iter__(self) -> Iterator[Group]:
        return (self[g] for g in range(len(self)))

    def __getitem__(self, g: int) -> Group:
        """Return the arrays of group g as views."""
        _, n, before, squares, panels = self.layout[g, : mixture_state.BORN]

        def part(values: Any, height: int) -> Any:
            return values[height * before : height * (before + n)].reshape(height, n)

        flat, room = self.flat, self._room
        factor = flat.factor[squares : squares + n * n].reshape(n, n)
        newton, steady, sums, change = (
            part(values, self._columns) for values in (flat.newton, flat.steady, flat.sums, flat.change)
        )
        own = flat.panels.reshape(-1, room, WIDE)[panels : panels + panels_of(n)]
        sketch = part(flat.sketch, mixture_state.SKETCHES)
        return Group(factor, newton, steady, sums, part(flat.rows, room), change, own, sketch)

    def tensors(self, waiting: int, is_working: bool = False) -> dict[str, Any]:
        """Return the arrays, with the upper triangles of the factors and the buffered rows.

        If a step is computed but not applied, also the change that it will subtract.
        """
        factors = [group.factor[_upper(len(group.factor))] for group in self]
        rows = [group.rows[:waiting].ravel() for group in self]
        change = {"change": self.flat.change.copy()} if is_working else {}
        to_step = {"factor": np.concatenate(factors), "rows": np.concatenate(rows), "sketch": self.flat.sketch.copy()}
        return self.functions() | change | to_step

    def functions(self) -> dict[str, Any]:
        """Return the functions."""
        return {name: getattr(self.flat, name).copy() for name in FUNCTIONS}

    def restore(self, tensors: Mapping[str, Any], waiting: int, to_learn: bool = True) -> None:
        """Restore the result of :meth:`tensors` of groups of the same sizes, or of :meth:`functions` if not `to_learn`.

        Raises
        ------
        ValueError
            If a tensor is missing or does not fit.
        """
        n, triangles = int(self.counts.sum()), int((self.counts * (self.counts + 1) // 2).sum())
        for name in FUNCTIONS:
            getattr(self.flat, name)[:] = tensor_file.require_tensor(tensors, name, np.float64, (self._columns * n,))
        if not to_learn:
            return
        if "change" in tensors:
            self.flat.change[:] = tensor_file.require_tensor(tensors, "change", np.float64, (self._columns * n,))
        factor = tensor_file.require_tensor(tensors, "factor", np.float32, (triangles,))
        rows = tensor_file.require_tensor(tensors, "rows", np.float32, (waiting * n,))
        if "sketch" in tensors:
            shape = (mixture_state.SKETCHES * n,)
            self.flat.sketch[:] = tensor_file.require_tensor(tensors, "sketch", np.float32, shape)
        for group in self:
            count = len(group.factor)
            size = count * (count + 1) // 2
            group.factor[_upper(count)], factor = factor[:size], factor[size:]
            group.rows[:waiting], rows = rows[: waiting * count].reshape(waiting, count), rows[waiting * count :]


def _upper(n: int) -> Any:
    """Return which entries of a matrix are in its upper triangle."""
    return np.tri(n, dtype=bool).T
