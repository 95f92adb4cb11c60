"""Many arrays in one piece of memory, so that a compiled call has one argument instead of one for each array.

numba checks and unpacks every array that a call is given; for the arrays of a model that takes as long as the
mathematics of a small event. An arena is one array of bytes. It begins with a table of offsets, and compiled code
makes its arrays from that table again in each call, so that no address outlives the call that holds the arena. An
arena never grows: a larger one is filled beside it and takes its place in one assignment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from streamkernel.jit import compiled

U8 = npt.NDArray[np.uint8]

LINE = 64
"""Bytes in a cache line. Arrays are aligned to cache lines, so that no vector load crosses two lines."""


def aligned_zeros(shape: Sequence[int], dtype: Any) -> Any:
    """Return an array of zeros, aligned to a cache line."""
    n = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(n + LINE, np.uint8)
    first = -memory.ctypes.data % LINE
    return memory[first : first + n].view(dtype).reshape(shape)


class Arena:
    """An arena and the arrays in it.

    The arrays, of which each has a shape and a type, are in the order of the offsets, and 0 at first. `memory` of an
    arena with the same arrays is reused.

    Examples
    --------
    >>> arena = Arena({"a": ((2, 3), np.float64), "b": ((4,), np.int64)})
    >>> arena["a"][1] = 7.0
    >>> arena.memory[:16].view(np.int64).tolist()
    [64, 128]
    >>> arena.memory[64:112].view(np.float64).tolist()
    [0.0, 0.0, 0.0, 7.0, 7.0, 7.0]
    """

    __slots__ = ("_shapes", "arrays", "memory")

    def __init__(self, arrays: Mapping[str, tuple[Sequence[int], Any]], memory: U8 | None = None) -> None:
        self._shapes = arrays
        sizes = [8 * len(arrays), *(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in arrays.values())]
        offsets = np.cumsum([-(-size // LINE) * LINE for size in sizes])
        self.memory: U8 = aligned_zeros((int(offsets[-1]),), np.uint8) if memory is None else memory
        if memory is None:
            self.memory[: sizes[0]].view(np.int64)[:] = offsets[:-1]
        self.arrays = {
            name: self.memory[first : first + size].view(dtype).reshape(shape)
            for (name, (shape, dtype)), first, size in zip(arrays.items(), offsets, sizes[1:], strict=False)
        }

    def __getitem__(self, name: str) -> Any:
        return self.arrays[name]

    def copy(self, copied: Callable[[U8], U8] | None = None) -> Arena:
        """Return a consistent copy of the arena, even if other threads change it.

        `copied` is a compiled function that returns a copy of the memory and may have other effects.
        """
        return Arena(self._shapes, (copied or _copy_memory)(self.memory))


@compiled
def _copy_memory(memory):  # type: ignore[no-untyped-def]
    """Return a copy; the interpreter's lock is held meanwhile."""
    copy = np.empty_like(memory)
    copy[:] = memory
    return copy


def _array_at(context: Any, builder: Any, kind: Any, address: Any, shape: Any) -> Any:
    """Return an array of a type at an address."""
    size = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    strides, step = [], size
    for length in reversed(shape):
        strides.append(step)
        step = builder.mul(step, length)
    out = make_array(kind)(context, builder)
    populate_array(
        out,
        data=builder.bitcast(address, out.data.type),
        shape=shape,
        strides=strides[::-1],
        itemsize=size,
        meminfo=None,
    )
    return out._getvalue()


@intrinsic
def _array_at_offset(context: Any, memory: Any, offset: Any, shape: Any, dtype: Any) -> Any:
    """Return the array of a shape (a tuple) and a type that begins at an offset in bytes into another one.

    It is valid as long as `memory` exists.
    """
    kind = types.Array(dtype.dtype, shape.count, "C")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.gep(builder.bitcast(source.data, cgutils.voidptr_t), [arguments[1]])
        return _array_at(context, builder, kind, address, cgutils.unpack_tuple(builder, arguments[2]))

    return kind(memory, types.int64, types.UniTuple(types.int64, shape.count), dtype), generate


array_at: Any = _array_at_offset
