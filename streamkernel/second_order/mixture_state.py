"""The arrays of a mixture in the layout of compiled code, and the groups, one after the other in flat arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import types

from streamkernel import tensor_file, vectors
from streamkernel.features.rows import F32, F64, I64
from streamkernel.jit import inlined
from streamkernel.learners.state import NUMBERS_TYPE
from streamkernel.second_order.last_row import LAST_ROW, LastRow, no_row
from streamkernel.second_order.linear.state import LINEAR, Linear
from streamkernel.second_order.metric import METRIC, Metric
from streamkernel.second_order.neighbours.state import NEIGHBOURS_TYPE, Neighbours
from streamkernel.second_order.pairs import PAIRS, Pairs
from streamkernel.second_order.tiles import WIDE, compiled_panels_of, panels_of

FIRST, COUNT, BEFORE, SQUARES_BEFORE, PANELS_BEFORE, BORN, OWNER = range(7)
"""Columns of `layout`: the first output of a group, its outputs n; outputs, squares of them, and panels, of the groups
before; how many examples there were when it began; and the group that it shares its features with, mostly itself."""

SKETCHED_AT, TAKEN, RESTED, RESTS_FROM = range(4)
"""Columns of `sampled`: the number of examples when the sketch of a group was computed, 0 if there is none; the number
of rows in its panels (:mod:`streamkernel.second_order.sampling`), `AT_REST` if it takes no step; the number of examples
that it left out at rest (:mod:`streamkernel.second_order.newton`); and, if it leaves out the next step, the number of
examples when that was decided, else 0."""

AT_REST = -1.0
"""In place of the number of rows of a group that takes no step."""

SKETCHES = 8
"""Random vectors in the sketch of a factor."""

SIGNS = "signed", "positive", "lead"
"""The arrays that v follows from."""

OF_MIXTURE = "weights", "mixer", *SIGNS
"""The arrays that the steps of the mixture change, beside the bounds."""

SPREAD = 1 << 22
"""Steps are spread over events if the squared numbers of outputs add up to more: such a step takes about 8 ms."""

FUNCTIONS = ("newton", "steady", "sums")

FILLED = ("sketch", "centring")
"""The arrays that are in files once they are not zero."""


class MixtureState(NamedTuple):
    """The arrays of a mixture. Groups differ in size, so their arrays are concatenated; so are those of several targets
    (:mod:`streamkernel.second_order.targets`).

    Attributes
    ----------
    numbers
        A record of :mod:`streamkernel.learners.state` for each target; the first one has the counters.
    layout
        Where each group is, shape (groups, 7).
    slots
        Where the functions of each kind are among all, shape (6,) (:mod:`streamkernel.second_order.slots`).
    newton, steady
        w of the two functions of each group, shape (columns, n).
    small
        The numbers of the small functions, shape (columns, numbers).
    weights, mixer
        v, and the factor of its own A, of each target; functions are in the order of their slots.
    signed, positive, lead
        u and p of each target, of which v is a mean (:mod:`streamkernel.second_order.weights`), and its D.
    bounds
        Of each target the largest derivatives seen of the functions, and of f, and the largest size of the targets.
    losses
        The running losses of the functions, since the model was last restructured; the loss of f = 0 for the first
        small one.
    priors
        λ of each group, in units of k(x, x).
    factor
        R of each group, shape (n, n), upper triangular, RᵀR = A.
    rows
        √ℓ''φ of the examples that are not in A yet, shape (capacity, n) each.
    span
        The entries of each target in :mod:`streamkernel.learners.span`, if f is added to the mean of the targets.
    metric
        The metric that larger groups draw their features in.
    pairs
        The sums over pairs of inputs, and the block whose features depend on these.
    sums
        Σ ℓ'φ over them, shape (columns, n) for each group.
    change
        The amount that the step in progress will subtract from w, shape (columns, n) for each group.
    panels
        √ℓ''φ of its examples, a group's columns in panels as wide as a tile, shape (panels, capacity, width).
    linear
        The linear function.
    neighbours
        The recent examples.
    kept
        The factor of the past in the Newton steps of each group at each example, shape (groups,).
    recent
        Sums of the losses of the functions by Newton steps since groups were compared, and half of those before.
    evidence
        D_k, the evidence of a change, of the functions by constant steps (:mod:`streamkernel.second_order.recency`).
    sketch
        R⁻¹ times random signs, shape (8, n) for each group.
    centring
        If f is added to the means of targets, the sums of ℓ''φ, and of ℓ''cφ with the offset c of each target, from
        which follows what Aw is for other offsets: over the examples in A, and over the others, shape
        (2 + 2 targets, n) for each group. Else empty.
    sampled
        When the sketch was computed, the number of rows in the panels, and what is left out, shape (groups, 4).
    last
        The last row that was computed, which is no part of the learned state.
    """

    numbers: Any
    layout: I64
    slots: I64
    newton: F64
    steady: F64
    small: F64
    weights: F64
    mixer: F64
    signed: F64
    positive: F64
    lead: F64
    bounds: F64
    losses: F64
    priors: F64
    factor: F32
    rows: F32
    sums: F64
    change: F64
    panels: F32
    span: F64
    metric: Metric
    pairs: Pairs
    linear: Linear
    neighbours: Neighbours
    kept: F64
    recent: F64
    evidence: F64
    sketch: F32
    centring: F64
    sampled: F64
    last: LastRow


class Group(NamedTuple):
    """The arrays of a group of n outputs: the factor, its functions, the buffered examples and the step in progress, as
    :class:`MixtureState` describes.
    """

    factor: F32
    newton: F64
    steady: F64
    sums: F64
    rows: F32
    change: F64
    panels: F32
    sketch: F32
    centring: F64

    @classmethod
    def empty(cls, n: int, columns: int, centred: int, room: int) -> Group:
        """Return a group before its first example; `centred` is the height of `centring`."""
        newton, steady, sums, change = np.zeros((4, columns, n))
        rows, panels = np.zeros((room, n), np.float32), np.zeros((panels_of(n), room, WIDE), np.float32)
        factor, sketch = np.zeros((n, n), np.float32), np.zeros((SKETCHES, n), np.float32)
        return cls(factor, newton, steady, sums, rows, change, panels, sketch, centring=np.zeros((centred, n)))

    def emptied(self, n: int) -> Group:
        """Return a group of n outputs before its first example, with as many columns, and room for as many examples."""
        return self.empty(n, len(self.newton), len(self.centring), len(self.rows))

    def first(self, examples: int) -> Group:
        """Return views of the arrays with the first buffered examples."""
        return self._replace(rows=self.rows[:examples], panels=self.panels[:, :examples])


class Groups:
    """Groups, and the positions of their arrays.

    Parameters
    ----------
    counts
        The outputs n of each, 0 of one that has not begun.
    firsts
        The first output of each among all features.
    owners
        The group that each shares its features with.
    columns, centred, capacity
        The columns of the functions, the height of `centring`, and the number of examples that can be buffered.
    groups
        The groups that have learned something, which are copied. The memory of others is not used until they learn.

    Examples
    --------
    >>> groups = Groups([3, 0, 2], [0, 3, 3], [0, 1, 2], columns=2, centred=0, capacity=8, groups={})
    >>> groups[2].newton.shape
    (2, 2)
    """

    def __init__(
        self,
        counts: Sequence[int],
        firsts: Sequence[int],
        owners: Sequence[int],
        *,
        columns: int,
        centred: int,
        capacity: int,
        groups: Mapping[int, Group],
    ) -> None:
        self._columns, self._centred, self._capacity = columns, centred, capacity
        self.counts: I64 = np.array(counts, np.int64)
        self.is_spread = bool((self.counts**2).sum() > SPREAD)  # whether steps are spread over the events after them
        self.layout: I64 = np.zeros((len(counts), 7), np.int64)
        self.layout[:, FIRST] = firsts
        self.layout[:, COUNT] = self.counts
        self.layout[:, OWNER] = owners
        n, squares, panels = self.counts, self.counts**2, [panels_of(n) for n in counts]
        self.layout[1:, [BEFORE, SQUARES_BEFORE, PANELS_BEFORE]] = np.cumsum([n, squares, panels], axis=1)[:, :-1].T
        like = [Group.empty(n, columns, centred, capacity) for n in counts]
        self.flat = Group(*(np.zeros(sum(map(np.size, parts)), parts[0].dtype) for parts in zip(*like, strict=True)))
        for g, group in groups.items():
            same = min(capacity, len(group.rows))
            pairs: Any = zip(self[g].first(same), group.first(same), strict=True)
            for place, part in pairs:
                place[:] = part

    @classmethod
    def of(cls, groups: Sequence[Group]) -> Groups:
        """Return these groups with their arrays joined, for files."""
        columns, centred, capacity = (len(getattr(groups[0], name)) for name in ("newton", "centring", "rows"))
        like: Any = {"columns": columns, "centred": centred, "capacity": capacity, "groups": dict(enumerate(groups))}
        return cls([len(group.factor) for group in groups], [0] * len(groups), range(len(groups)), **like)

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
        _, n, before, squares, panels = self.layout[g, :BORN]

        def part(values: Any, height: int) -> Any:
            return values[height * before : height * (before + n)].reshape(height, n)

        flat, capacity = self.flat, self._capacity
        factor = flat.factor[squares : squares + n * n].reshape(n, n)
        newton, steady, sums, change = (
            part(values, self._columns) for values in (flat.newton, flat.steady, flat.sums, flat.change)
        )
        of_group = flat.panels.reshape(-1, capacity, WIDE)[panels : panels + panels_of(n)]
        sketch, centring = part(flat.sketch, SKETCHES), part(flat.centring, self._centred)
        return Group(
            factor, newton, steady, sums, part(flat.rows, capacity), change, of_group, sketch, centring=centring
        )

    def tensors(self, waiting: int, is_working: bool = False) -> dict[str, Any]:
        """Return the arrays, with the upper triangles of the factors and the buffered rows.

        Of a factor that is diagonal, as before a group's first Newton step, there is only the diagonal. If a step is
        computed but not applied, also the change that it will subtract.
        """
        factors = [group.factor for group in self]
        is_diagonal = [not (one[:1, 1:].any() or np.triu(one, 1).any()) for one in factors]  # mostly, a row says it
        factors = [factor[_stored(len(factor), is_one)] for factor, is_one in zip(factors, is_diagonal, strict=True)]
        rows = [group.rows[:waiting].ravel() for group in self]
        change = {"change": self.flat.change.copy()} if is_working else {}
        filled = {name: getattr(self.flat, name).copy() for name in FILLED if getattr(self.flat, name).any()}
        to_step = {"factor": np.concatenate(factors), "diagonal": np.array(is_diagonal), "rows": np.concatenate(rows)}
        return self.functions() | change | filled | to_step

    def functions(self) -> dict[str, Any]:
        """Return the functions."""
        return {name: getattr(self.flat, name).copy() for name in FUNCTIONS}

    def restore(self, tensors: Mapping[str, Any], waiting: int, to_learn: bool = True) -> None:
        """Restore the result of :meth:`tensors` of groups of the same sizes, or of :meth:`functions` if not `to_learn`.

        Raise a ValueError if a tensor is missing or does not fit.
        """
        n, is_diagonal = int(self.counts.sum()), np.zeros(len(self), bool)
        for name in FUNCTIONS:
            getattr(self.flat, name)[:] = tensor_file.require_tensor(tensors, name, np.float64, (self._columns * n,))
        if not to_learn:
            return
        if "change" in tensors:
            self.flat.change[:] = tensor_file.require_tensor(tensors, "change", np.float64, (self._columns * n,))
        if "diagonal" in tensors:
            is_diagonal = tensor_file.require_tensor(tensors, "diagonal", np.bool_, (len(self),))
        sizes = np.where(is_diagonal, self.counts, self.counts * (self.counts + 1) // 2)
        factor = tensor_file.require_tensor(tensors, "factor", np.float32, (int(sizes.sum()),))
        rows = tensor_file.require_tensor(tensors, "rows", np.float32, (waiting * n,))
        for name in [name for name in FILLED if name in tensors]:
            array = getattr(self.flat, name)
            array[:] = tensor_file.require_tensor(tensors, name, array.dtype.type, array.shape)
        for group, is_one, size in zip(self, is_diagonal, sizes, strict=True):
            count = len(group.factor)
            group.factor[_stored(count, is_one)], factor = factor[:size], factor[size:]
            group.rows[:waiting], rows = rows[: waiting * count].reshape(waiting, count), rows[waiting * count :]


def _stored(n: int, is_diagonal: bool) -> Any:
    """Return which entries of a factor are in files: its upper triangle, or its diagonal if it has no others."""
    return np.diag_indices(n) if is_diagonal else np.tri(n, dtype=bool).T


_VECTOR, _MATRIX = types.float64[::1], types.float64[:, ::1]
MIXTURE = types.NamedTuple(
    [
        NUMBERS_TYPE, types.int64[:, ::1], types.int64[::1], _VECTOR, _VECTOR, _MATRIX, _VECTOR, _MATRIX, _VECTOR,
        _VECTOR, _VECTOR, _VECTOR, _VECTOR, _VECTOR, types.float32[::1], types.float32[::1], _VECTOR, _VECTOR,
        types.float32[::1], _VECTOR, METRIC, PAIRS, LINEAR, NEIGHBOURS_TYPE, _VECTOR, _VECTOR, _VECTOR,
        types.float32[::1], _VECTOR, _MATRIX, LAST_ROW,
    ],
    MixtureState,
)  # fmt: skip
_SINGLES = types.float32[:, ::1]
GROUP = types.NamedTuple(
    [_SINGLES, _MATRIX, _MATRIX, _MATRIX, _SINGLES, _MATRIX, types.float32[:, :, ::1], _SINGLES, _MATRIX], Group
)


@inlined(allocates=False)
def rows_per_group(numbers, rows, sums):  # type: ignore[no-untyped-def]
    """Return the height of `rows`, or of another array, in each group."""
    return len(rows) // max(1, len(sums) // numbers.columns)


@inlined
def _part(values, layout, g, height):  # type: ignore[no-untyped-def]
    """Return the part of group g in `values`, shape (height, n)."""
    first, n = height * layout[g, BEFORE], layout[g, COUNT]
    return values[first : first + height * n].reshape(height, n)


@inlined
def group_of(state, g):  # type: ignore[no-untyped-def]
    """Return the arrays of group g."""
    layout, columns = state.layout, state.numbers[0].columns
    height = rows_per_group(state.numbers[0], state.rows, state.sums)
    n, squares = layout[g, COUNT], layout[g, SQUARES_BEFORE]
    panels, first = compiled_panels_of(n), layout[g, PANELS_BEFORE] * height * WIDE
    return Group(
        state.factor[squares : squares + n * n].reshape(n, n),
        _part(state.newton, layout, g, columns),
        _part(state.steady, layout, g, columns),
        _part(state.sums, layout, g, columns),
        _part(state.rows, layout, g, height),
        _part(state.change, layout, g, columns),
        state.panels[first : first + panels * height * WIDE].reshape(panels, height, WIDE),
        _part(state.sketch, layout, g, SKETCHES),
        centring=_part(state.centring, layout, g, rows_per_group(state.numbers[0], state.centring, state.sums)),
    )


@inlined(allocates=False)
def read_groups(layout, w, slot, z, f):  # type: ignore[no-untyped-def]
    """Set `f`, shape (functions, columns), to φᵀw of each group from a slot on, with the features `z`."""
    columns = f.shape[1]
    for g in range(len(layout)):
        n, before = layout[g, COUNT], columns * layout[g, BEFORE]
        phi = z[layout[g, FIRST] : layout[g, FIRST] + n]
        for c in range(columns):
            f[slot + g, c] = vectors.dot(phi, w[before + c * n : before + (c + 1) * n])


@inlined(allocates=False)
def first_weight(state, c):  # type: ignore[no-untyped-def]
    """Return the index of the first v of the target that column c belongs to."""
    targets = len(state.numbers)
    return c // (state.numbers[0].columns // targets) * (len(state.weights) // targets)


@inlined(allocates=False)
def per_unit(state, c):  # type: ignore[no-untyped-def]
    """Return 1/s of the target that column c belongs to, so that each of several counts as much; 1 of a single one."""
    size = state.numbers[c].error_scale if len(state.numbers) > 1 else 0.0
    return 1.0 / math.sqrt(size) if size > 0.0 else 1.0


def with_own_row(state: MixtureState) -> MixtureState:
    """Return the same mixture with separate arrays for the last row, for another thread or after another change."""
    functions, columns = state.last.f.shape
    return state._replace(last=no_row(len(state.last.z), functions, columns, len(state.neighbours.weights)))
