"""Selected features of a model, by block and index: their directions as one dense table, and their values."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from streamkernel.features.compiled_kernel import MULTI_SCALE, PHASE, SIGN_PRODUCTS, SKETCH, CompiledKernel, Span
from streamkernel.features.directions import Directions
from streamkernel.features.distributions import draw_some
from streamkernel.features.evaluate import features, power, prepare
from streamkernel.features.feature_maps import form
from streamkernel.features.rows import F32, F64, I64, Rows
from streamkernel.jit import compiled
from streamkernel.kernels.program import KernelProgram
from streamkernel.learners.scoring import entries_room, longest_row, part_shape

PER_BLOCK = 64
"""Features of a block."""


@compiled
def _fill(kernel, hashes, block_size, features_of):  # type: ignore[no-untyped-def]
    """Fill the cache, shape (1, names, parts, features), with the directions of features, rows of block and place.

    Directions of a `MultiScale` kernel are multiplied by its factors.
    """
    for p in range(len(kernel.parts)):
        part = kernel.parts[p]
        run = block_size if part.shift != 0.0 else 1
        for name in range(len(hashes)):
            entries = kernel.cache[0, name, p]
            draw_some(part.distribution, part.shape, part.key, features_of, hashes[name], entries)
            for f in range(len(features_of) if part.form == MULTI_SCALE else 0):
                position = features_of[f, 0] * block_size + features_of[f, 1]
                entries[f] *= np.float32(part.table[position // run % part.order])


@compiled(nogil=True)
def _evaluate(components, kernel, rows, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]`` to the features of row i, components of one side by side; return the first unusable row, or -1."""
    width, parts = kernel.cache.shape[3], len(kernel.parts)
    phi = np.empty((components, width), np.float32)
    row, room = entries_room(None, parts, longest_row(rows)), np.empty(part_shape(parts, width), np.float32)
    for i in range(len(rows.start) - 1):
        if not prepare(kernel, rows, i, row):
            return i
        features(kernel, row, Span(width, 0, 0, width), phi, room)
        if power(phi, 0, width)[0] < 0.0:
            return i
        for f in range(width):
            for o in range(components):
                out[i, components * f + o] = phi[o, f]
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
        If features of the kernel do not have directions of their own, such as those of `Polynomial` and of sketches.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> plan = KernelProgram(kernels.Gaussian(1.0), seed=1)
    >>> three = ChosenFeatures(plan, ["a", "b"], np.array([[0, 1], [0, 5], [7, 0]]))
    >>> one = ChosenFeatures(plan, ["b", "a"], np.array([[7, 0]]))
    >>> three(np.array([[0.5, 2.0]]))[0, 4:].tolist() == one(np.array([[2.0, 0.5]]))[0].tolist()
    True
    """

    def __init__(self, plan: KernelProgram, names: Sequence[Hashable], places: I64) -> None:
        kinds = set(plan.parts_compiled["form"].tolist())
        if plan.transforms or not kinds.isdisjoint({SIGN_PRODUCTS, SKETCH}):
            raise ValueError(f"Expected a kernel whose features have directions of their own, got {plan.kernel!r}")
        self._plan, self._names, self._places = plan, names, places
        columns = np.arange(float(len(names)))[None]
        self._row = Directions(plan, len(places), 0).rows(names, columns)  # its values are the positions of the columns
        for kind in set(plan.parts_compiled["distribution"].tolist()):
            draw_some.require(kind)
        cache = np.empty((1, len(names), len(plan.parts), len(places)), np.float32)
        kernel = CompiledKernel(*plan.arrays, cache, np.zeros((1, 3), np.int64))
        _fill(kernel, self._row.hashes, PER_BLOCK, np.ascontiguousarray(places))
        parts = plan.parts_compiled.copy()
        parts["form"][parts["form"] == MULTI_SCALE] = PHASE
        form.require(PHASE)
        self._kernel = kernel._replace(parts=parts)

    def __reduce__(self) -> tuple[type[ChosenFeatures], tuple[KernelProgram, Sequence[Hashable], I64]]:
        """Return the constructor's arguments: a file needs no directions."""
        return ChosenFeatures, (self._plan, self._names, self._places)

    def __call__(self, X: F64) -> F32:
        """Return the features of rows of numbers, shape (rows, features × outputs).

        Raises
        ------
        InputError
            If a row is outside of the kernel's domain.
        """
        n, d = X.shape
        out = np.empty((n, len(self._places) * self._plan.outputs), np.float32)
        values = np.ascontiguousarray(X[:, self._row.values.astype(np.int64)])
        repeated: Any = (np.tile(column, n) for column in (np.arange(d), self._row.hashes, self._row.readers))
        slots, hashes, readers = repeated
        rows = Rows(np.arange(0, n * d + 1, d), slots, hashes, readers, values.ravel(), np.ones(n))
        bad = _evaluate(self._plan.outputs, self._kernel, rows, out)
        if bad >= 0:
            self._plan.check(dict(zip(self._names, X[bad].tolist(), strict=True)))
            raise self._plan.unusable(self._row._replace(values=values[bad]))
        return out
