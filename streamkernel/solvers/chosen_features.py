"""Some of the features of a model, told by block and place: their directions as one dense table, and what they give."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numba import njit

from streamkernel import forms, state
from streamkernel.features import Directions
from streamkernel.forms import FORM, KEY, LADDER, MEASURE, PHASE, SHAPE, SHIFT, TABLE, features
from streamkernel.kernels.plan import Plan
from streamkernel.measures import draw_some
from streamkernel.rows import F32, F64, I64
from streamkernel.scoring import workspace

PER_BLOCK = 64
"""Features of a block."""


@njit(cache=True)
def _fill(program, constants, hashes, per_block, places, cache):  # type: ignore[no-untyped-def]
    """Fill `cache`, shape (1, names, parts, features), with the directions of `places`, rows of block and place.

    Those of a ladder are multiplied by its factors.
    """
    for part in range(len(program)):
        measure, key, shape = program[part, MEASURE], np.uint64(program[part, KEY]), constants[part, SHAPE]
        order = program[part, forms.ORDER]
        run = per_block if constants[part, SHIFT] else 1
        for name in range(len(hashes)):
            entries = cache[0, name, part]
            draw_some(measure, shape, key, places, hashes[name], entries)
            for f in range(len(places) if program[part, FORM] == LADDER else 0):
                position = places[f, 0] * per_block + places[f, 1]
                entries[f] *= np.float32(constants[part, TABLE + position // run % order])


@njit(cache=True, nogil=True)
def _evaluate(ints, program, constants, cache, hashes, readers, X, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]`` to the features of row i, outputs of one side by side; return the first unusable row, or -1."""
    kernel, width, outputs = (
        (program, constants, cache, np.zeros((1, 3), np.int64)),
        cache.shape[3],
        ints[state.OUTPUTS],
    )
    phi = np.empty((outputs, width), np.float32)
    slots, first = np.arange(X.shape[1]), np.int64(0)
    row, room, _, _, _ = workspace(ints, np.array([0, X.shape[1]]), 0, width)
    for i in range(len(X)):
        if not forms.prepare(kernel, readers, slots, hashes, X[i], row):
            return i
        features(kernel, width, row, first, first, width, phi, room)
        if forms.power(phi, first, width)[0] < 0.0:
            return i
        for f in range(width):
            for o in range(outputs):
                out[i, outputs * f + o] = phi[o, f]
    return -1


class ChosenFeatures:
    """The features z_f(x) of chosen blocks and places, for tables with the same columns.

    Parameters
    ----------
    plan
        The kernel's parts, with the keys of their directions.
    names
        Names of the columns.
    places
        Block and place of each feature, shape (features, 2).

    Raises
    ------
    ValueError
        If a feature of the kernel is no function of directions of its own, as those of `Polynomial` and of sketches.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> plan = Plan(kernels.Gaussian(1.0), seed=1)
    >>> three = ChosenFeatures(plan, ["a", "b"], np.array([[0, 1], [0, 5], [7, 0]]))
    >>> one = ChosenFeatures(plan, ["b", "a"], np.array([[7, 0]]))
    >>> three(np.array([[0.5, 2.0]]))[0, 4:].tolist() == one(np.array([[2.0, 0.5]]))[0].tolist()
    True
    """

    def __init__(self, plan: Plan, names: Sequence[Hashable], places: I64) -> None:
        if plan.transforms or not set(plan.program[:, FORM]).isdisjoint({forms.SIGN_PRODUCTS, forms.SKETCH}):
            raise ValueError(f"Expected a kernel whose features have directions of their own, got {plan.kernel!r}")
        self._plan, self._names, self._places = plan, names, places
        columns = np.arange(float(len(names)))[None]
        self._row = Directions(plan, len(places), 0).rows(names, columns)  # its values are the order of the columns
        cache = np.empty((1, len(names), len(plan.program), len(places)), np.float32)
        _fill(plan.program, plan.constants, self._row.hashes, PER_BLOCK, places, cache)
        program = plan.program.copy()
        program[program[:, FORM] == LADDER, FORM] = PHASE
        ints = np.zeros(state.N_INTS, np.int64)
        ints[state.PARTS :] = len(plan.parts), len(plan.terms), plan.outputs
        self._told = ints, program, plan.constants, cache

    def __reduce__(self) -> tuple[type[ChosenFeatures], tuple[Plan, Sequence[Hashable], I64]]:
        """Return what it is made of: a file needs no directions."""
        return ChosenFeatures, (self._plan, self._names, self._places)

    def __call__(self, X: F64) -> F32:
        """Return the features of rows of numbers, shape (rows, features × outputs).

        Raises
        ------
        InputError
            If a row is outside of the kernel's domain.
        """
        out = np.empty((len(X), self._told[3].shape[3] * self._plan.outputs), np.float32)
        ordered = np.ascontiguousarray(X[:, self._row.values.astype(np.int64)])
        bad = _evaluate(*self._told, self._row.hashes, self._row.readers, ordered, out)
        if bad >= 0:
            self._plan.check(dict(zip(self._names, X[bad].tolist(), strict=True)))
            raise self._plan.unusable(self._row._replace(values=ordered[bad]))
        return out
