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
_EIGHT = ir.ArrayType(_FLOAT, EIGHT)
_SINGLES, _DOUBLES = ir.VectorType(_FLOAT, EIGHT), ir.VectorType(ir.DoubleType(), EIGHT)
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

    U is given as its transpose, shape (k, EIGHT), T is upper triangular, and all are float32. The tile may be a part of
    a matrix; the others are contiguous, so that each address is the address of a row and a constant.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        tile, rows, u, t = (
            make_array(kind)(context, builder, value) for kind, value in zip(signature.args, arguments, strict=True)
        )
        count = cgutils.unpack_tuple(builder, rows.shape)[0]
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        fma = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{WIDE}f32")
        places = [_place(builder, tile, count.type(p)) for p in range(EIGHT)]
        before = [builder.load(place, align=_ALIGNED) for place in places]
        sums = [cgutils.alloca_once_value(builder, total) for total in before]
        with cgutils.for_range(builder, count) as loop:
            x = builder.load(_row(builder, rows, loop.index, _VECTOR), align=_ALIGNED)
            for p, total in enumerate(sums):
                builder.store(builder.call(fma, [_one(builder, u, loop.index, p), x, builder.load(total)]), total)
        both, less = [builder.load(total) for total in sums], []
        for p in range(EIGHT):
            w = builder.fmul(_one(builder, t, count.type(0), p), both[0])
            for q in range(1, p + 1):
                w = builder.call(fma, [_one(builder, t, count.type(q), p), both[q], w])
            builder.store(builder.fsub(before[p], w), places[p], align=_ALIGNED)
            less.append(builder.fneg(w))
        with cgutils.for_range(builder, count) as loop:
            place = _row(builder, rows, loop.index, _VECTOR)
            x = builder.load(place, align=_ALIGNED)
            for p in range(EIGHT):
                x = builder.call(fma, [_one(builder, u, loop.index, p), less[p], x])
            builder.store(x, place, align=_ALIGNED)
        return context.get_dummy_value()

    return types.void(tile, rows, u, t), generate


@intrinsic
def dot_eight(context: Any, u: Any, p: Any, out: Any) -> Any:
    """Set `out`, shape (EIGHT,), to Σ u_p u of column p of a contiguous U, shape (k, EIGHT), with all of them.

    The products are float32, and their sums float64.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        u, out = (make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 2))
        total = cgutils.alloca_once_value(builder, ir.Constant(_DOUBLES, [0.0] * EIGHT))
        with cgutils.for_range(builder, cgutils.unpack_tuple(builder, u.shape)[0]) as loop:
            row = _row(builder, u, loop.index, _EIGHT)
            factor = _repeat(builder, _entry(builder, row, arguments[1]), EIGHT)
            products = builder.fmul(factor, _load_eight(builder, row))
            builder.store(builder.fadd(builder.load(total), builder.fpext(products, _DOUBLES)), total)
        builder.store(builder.load(total), builder.bitcast(out.data, _DOUBLES.as_pointer()), align=_ALIGNED)
        return context.get_dummy_value()

    return types.void(u, p, out), generate


@intrinsic
def eliminate(context: Any, u: Any, p: Any, scale: Any, along: Any) -> Any:
    """Scale column p of a contiguous U, shape (k, EIGHT), and subtract it times `along`, shape (EIGHT,), from the other
    columns; all are float32.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        u, along = (make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 3))
        places = ir.Constant(ir.VectorType(_INDEX, EIGHT), list(range(EIGHT)))
        is_own = builder.icmp_signed("==", places, _repeat(builder, builder.trunc(arguments[1], _INDEX), EIGHT))
        less = builder.fneg(_load_eight(builder, builder.bitcast(along.data, _EIGHT.as_pointer())))
        kind = ir.FunctionType(_SINGLES, [_SINGLES] * 3)
        fma = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{EIGHT}f32")
        with cgutils.for_range(builder, cgutils.unpack_tuple(builder, u.shape)[0]) as loop:
            row = _row(builder, u, loop.index, _EIGHT)
            scaled = _repeat(builder, builder.fmul(_entry(builder, row, arguments[1]), arguments[2]), EIGHT)
            rest = builder.call(fma, [less, scaled, _load_eight(builder, row)])
            place = builder.bitcast(row, _SINGLES.as_pointer())
            builder.store(builder.select(is_own, scaled, rest), place, align=_ALIGNED)
        return context.get_dummy_value()

    return types.void(u, p, scale, along), generate


@intrinsic
def take_eight(context: Any, to: Any, rows: Any, scales: Any) -> Any:
    """Subtract eight rows of float32 or float64, times their scales, from k numbers, up to a multiple of eight."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, rows, scales = (
            make_array(kind)(context, builder, value) for kind, value in zip(signature.args, arguments, strict=True)
        )
        count = cgutils.unpack_tuple(builder, to.shape)[0]
        kind = ir.VectorType(context.get_data_type(signature.args[1].dtype), EIGHT)
        begins = [builder.bitcast(_place(builder, rows, count.type(p)), kind.as_pointer()) for p in range(EIGHT)]
        factors = [
            _repeat(builder, builder.load(builder.gep(scales.data, [count.type(p)])), EIGHT) for p in range(EIGHT)
        ]
        start = builder.bitcast(to.data, _DOUBLES.as_pointer())
        with cgutils.for_range(builder, builder.sdiv(count, count.type(EIGHT))) as loop:
            sums = []
            for begin, factor in zip(begins, factors, strict=True):
                part = builder.load(builder.gep(begin, [loop.index]), align=_ALIGNED)
                sums.append(builder.fmul(factor, part if kind == _DOUBLES else builder.fpext(part, _DOUBLES)))
            while len(sums) > 1:
                sums = [builder.fadd(a, b) for a, b in zip(sums[::2], sums[1::2], strict=True)]
            place = builder.gep(start, [loop.index])
            builder.store(builder.fsub(builder.load(place, align=_ALIGNED), sums[0]), place, align=_ALIGNED)
        return context.get_dummy_value()

    return types.void(to, rows, scales), generate


def _place(builder: Any, tile: Any, row: Any) -> Any:
    """Return the address of a row of a tile, which may be a part of a matrix."""
    offset = builder.mul(row, cgutils.unpack_tuple(builder, tile.strides)[0])
    address = builder.gep(builder.bitcast(tile.data, cgutils.voidptr_t), [offset])
    return builder.bitcast(address, _VECTOR.as_pointer())


def _row(builder: Any, matrix: Any, row: Any, kind: Any) -> Any:
    """Return the address of a row of a contiguous matrix whose rows have a type."""
    return builder.gep(builder.bitcast(matrix.data, kind.as_pointer()), [row])


def _entry(builder: Any, row: Any, at: Any) -> Any:
    """Return an entry of a row of eight."""
    return builder.load(builder.gep(row, [_INDEX(0), at]))


def _one(builder: Any, matrix: Any, row: Any, at: int) -> Any:
    """Return a vector of a tile's width with one entry of a contiguous matrix of eight columns in all places."""
    return _repeat(builder, _entry(builder, _row(builder, matrix, row, _EIGHT), _INDEX(at)), WIDE)


def _load_eight(builder: Any, row: Any) -> Any:
    """Return a row of eight as a vector."""
    return builder.load(builder.bitcast(row, _SINGLES.as_pointer()), align=_ALIGNED)


def _repeat(builder: Any, value: Any, width: int) -> Any:
    """Return a vector with one value in all places."""
    undefined = ir.Constant(ir.VectorType(value.type, width), ir.Undefined)
    everywhere = ir.Constant(ir.VectorType(_INDEX, width), [0] * width)
    return builder.shuffle_vector(builder.insert_element(undefined, value, _INDEX(0)), undefined, everywhere)
