"""Reflections of small tiles of a matrix, in the vectors of the machine; compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

EIGHT = 8
"""Rows of a tile."""

WIDE = 16 if llvm.get_host_cpu_features().get("avx512f") else 8
"""Columns of a tile, as many as a vector of this machine has numbers; results do not depend on it."""

_VECTOR, _FLOAT, _INDEX = ir.VectorType(ir.FloatType(), WIDE), ir.FloatType(), ir.IntType(32)
_UNDEFINED = ir.Constant(_VECTOR, ir.Undefined)
_EVERYWHERE = ir.Constant(ir.VectorType(_INDEX, WIDE), [0] * WIDE)
_ALIGNED = 4


@intrinsic
def reflect(context: Any, tile: Any, rows: Any, u: Any, t: Any) -> Any:
    """Apply I - VTᵀVᵀ, V = (I, U), to a tile of R, shape (EIGHT, WIDE), and to rows of X below it, shape (k, WIDE):

        W = Tᵀ(R + UX),   R ← R - W,   X ← X - UᵀW

    U has the shape (EIGHT, k), T is upper triangular, and all are float32. Tile and rows may be parts of matrices.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = (make_array(kind)(context, builder, given) for kind, given in zip(signature.args, arguments, strict=True))
        tile, rows, u, t = (_Entries(builder, array) for array in arrays)
        fma = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), f"llvm.fma.v{WIDE}f32"
        )
        sums = [tile.vector(p) for p in range(EIGHT)]
        kept = [cgutils.alloca_once_value(builder, own) for own in sums]
        with cgutils.for_range(builder, rows.count) as loop:
            x = rows.vector(loop.index)
            for p, place in enumerate(kept):
                builder.store(builder.call(fma, [u.number(p, loop.index), x, builder.load(place)]), place)
        both, w = [builder.load(place) for place in kept], []
        for p in range(EIGHT):
            w.append(builder.fmul(t.number(0, p), both[0]))
            for q in range(1, p + 1):
                w[p] = builder.call(fma, [t.number(q, p), both[q], w[p]])
            tile.set_vector(p, builder.fsub(sums[p], w[p]))
        less = [builder.fneg(own) for own in w]
        with cgutils.for_range(builder, rows.count) as loop:
            x = rows.vector(loop.index)
            for p in range(EIGHT):
                x = builder.call(fma, [u.number(p, loop.index), less[p], x])
            rows.set_vector(loop.index, x)
        return context.get_dummy_value()

    return types.void(tile, rows, u, t), generate


class _Entries:
    """Entries of a matrix, as code is emitted that reads and writes them."""

    def __init__(self, builder: Any, array: Any) -> None:
        self._builder, self._data = builder, builder.bitcast(array.data, cgutils.voidptr_t)
        self._strides = cgutils.unpack_tuple(builder, array.strides)
        self.count = cgutils.unpack_tuple(builder, array.shape)[0]

    def _at(self, row: Any, column: Any, kind: Any) -> Any:
        parts = []
        for index, stride in zip((row, column), self._strides, strict=True):
            parts.append(self._builder.mul(stride.type(index) if isinstance(index, int) else index, stride))
        return self._builder.bitcast(self._builder.gep(self._data, [self._builder.add(*parts)]), kind.as_pointer())

    def vector(self, row: Any) -> Any:
        """Return the first numbers of a row."""
        return self._builder.load(self._at(row, 0, _VECTOR), align=_ALIGNED)

    def set_vector(self, row: Any, values: Any) -> None:
        """Set the first numbers of a row."""
        self._builder.store(values, self._at(row, 0, _VECTOR), align=_ALIGNED)

    def number(self, row: Any, column: Any) -> Any:
        """Return a vector of one number again and again."""
        first = self._builder.load(self._at(row, column, _FLOAT))
        first = self._builder.insert_element(_UNDEFINED, first, _INDEX(0))
        return self._builder.shuffle_vector(first, _UNDEFINED, _EVERYWHERE)
