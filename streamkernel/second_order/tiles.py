"""Reflections of small tiles of a matrix in vector registers; compiled."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from streamkernel.jit import inlined

EIGHT = 8
"""Rows of a tile."""

WIDE = 16 if llvm.get_host_cpu_features().get("avx512f") else 8
"""Columns of a tile, as many as a vector of this machine has numbers; results do not depend on it."""

_VECTOR, _FLOAT, _INDEX = ir.VectorType(ir.FloatType(), WIDE), ir.FloatType(), ir.IntType(32)
_UNDEFINED = ir.Constant(_VECTOR, ir.Undefined)
_EVERYWHERE = ir.Constant(ir.VectorType(_INDEX, WIDE), [0] * WIDE)
_ALIGNED = 4


def panels_of(columns: int) -> int:
    """Return the number of tiles that the columns occupy."""
    return -(-columns // WIDE)


compiled_panels_of: Any = inlined(panels_of)
"""For compiled code."""


@inlined
def whole_eights(rows):  # type: ignore[no-untyped-def]
    """Return a number of rows rounded up to a multiple of eight."""
    return (rows + EIGHT - 1) // EIGHT * EIGHT


@intrinsic
def reflect(context: Any, tile: Any, rows: Any, u: Any, t: Any) -> Any:
    """Apply I - VTᵀVᵀ, V = (I, U), to a tile of R, shape (EIGHT, WIDE), and to rows of X below it, shape (k, WIDE).

        W = Tᵀ(R + UX),   R ← R - W,   X ← X - UᵀW

    U has the shape (EIGHT, k), T is upper triangular, and all are float32. Tile and rows may be parts of matrices.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        tile, rows, u, t = (
            make_array(kind)(context, builder, given) for kind, given in zip(signature.args, arguments, strict=True)
        )
        count = cgutils.unpack_tuple(builder, rows.shape)[0]
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        fma = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{WIDE}f32")
        before = [_vector(builder, tile, count.type(p)) for p in range(EIGHT)]
        sums = [cgutils.alloca_once_value(builder, own) for own in before]
        with cgutils.for_range(builder, count) as loop:
            x = _vector(builder, rows, loop.index)
            for p, own in enumerate(sums):
                factor = _repeat_entry(builder, u, count.type(p), loop.index)
                builder.store(builder.call(fma, [factor, x, builder.load(own)]), own)
        both = [builder.load(own) for own in sums]
        less = []
        for p in range(EIGHT):
            w = builder.fmul(_repeat_entry(builder, t, count.type(0), count.type(p)), both[0])
            for q in range(1, p + 1):
                w = builder.call(fma, [_repeat_entry(builder, t, count.type(q), count.type(p)), both[q], w])
            _set_vector(builder, tile, count.type(p), builder.fsub(before[p], w))
            less.append(builder.fneg(w))
        with cgutils.for_range(builder, count) as loop:
            x = _vector(builder, rows, loop.index)
            for p in range(EIGHT):
                x = builder.call(fma, [_repeat_entry(builder, u, count.type(p), loop.index), less[p], x])
            _set_vector(builder, rows, loop.index, x)
        return context.get_dummy_value()

    return types.void(tile, rows, u, t), generate


def _place(builder: Any, matrix: Any, row: Any, column: Any, kind: Any) -> Any:
    """Return the address of an entry of a matrix, as that of a type."""
    strides = cgutils.unpack_tuple(builder, matrix.strides)
    offset = builder.add(builder.mul(row, strides[0]), builder.mul(column, strides[1]))
    address = builder.gep(builder.bitcast(matrix.data, cgutils.voidptr_t), [offset])
    return builder.bitcast(address, kind.as_pointer())


def _vector(builder: Any, matrix: Any, row: Any) -> Any:
    """Return the first numbers of a row of a matrix as a vector."""
    return builder.load(_place(builder, matrix, row, row.type(0), _VECTOR), align=_ALIGNED)


def _set_vector(builder: Any, matrix: Any, row: Any, values: Any) -> None:
    """Set the first numbers of a row of a matrix."""
    builder.store(values, _place(builder, matrix, row, row.type(0), _VECTOR), align=_ALIGNED)


def _repeat_entry(builder: Any, matrix: Any, row: Any, column: Any) -> Any:
    """Return a vector with one entry of a matrix in all places."""
    entry = builder.load(_place(builder, matrix, row, column, _FLOAT))
    first = builder.insert_element(_UNDEFINED, entry, _INDEX(0))
    return builder.shuffle_vector(first, _UNDEFINED, _EVERYWHERE)
