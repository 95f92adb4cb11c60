"""Calls of compiled code that are quick for small events: without type dispatch, and with many arrays as one argument.

numba checks the type of every array argument to choose the machine code, and then unpacks the array; for the arrays of
a model this takes as long as the mathematics of a small event. :func:`direct` and :class:`of_one_signature` check types
once. An arena is one array of bytes instead of many arrays. It begins with a table of offsets, and compiled code makes
its arrays from that table again in each call, so that no address outlives the call that holds the arena. An arena never
grows: a larger one is filled beside it and takes its place in one assignment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from streamkernel.jit.cache import compiled, hold


def direct(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a compiled function for repeated calls with the same first two objects, and other arguments that vary.

    The types are known if the first two arguments are the objects of the last call that numba dispatched, and tuples of
    arrays among them are read once; they are kept, so that their arrays exist as long as what was read. The other
    arguments must always have the same types, and the function must not return arrays of the tuples; the caller is
    responsible for that.

    The result is a plain function: River measures the memory of a model by the objects it refers to, but does not
    look into functions, and so not into numba.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkernel.jit import compiled
    >>> @compiled
    ... def total(values, more, i):
    ...     return values[i] + more[i]
    >>> call, values, more = direct(total), np.arange(3.0), np.ones(3)
    >>> [call(values, more, i) for i in range(3)]
    [1.0, 2.0, 3.0]
    """
    remembered: tuple[Any, Any, Any, Any, Callable[..., Any]] | None = None

    def call(first: Any, second: Any, *others: Any) -> Any:
        nonlocal remembered
        last = remembered
        if last is not None and last[0] is first and last[1] is second:
            return last[4](last[2], last[3], *others)
        result = function(first, second, *others)
        kinds = tuple(map(numba.typeof, (first, second, *others)))
        code = _machine_code(function, kinds)
        remembered = None if code is None else (first, second, hold(first, kinds[0]), hold(second, kinds[1]), code)
        return result

    return call


class of_one_signature:  # noqa: N801
    """A compiled function whose arguments always have the same types; the caller is responsible for that.

    numba checks the types of arguments only at the first call. `call` is the machine code from then on.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkernel.jit import compiled
    >>> @of_one_signature
    ... @compiled
    ... def total(values, i):
    ...     return values[i]
    >>> [total.call(np.arange(3.0), i) for i in range(3)]
    [0.0, 1.0, 2.0]
    """

    __slots__ = ("_function", "call")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.call: Callable[..., Any] = self._first

    def _first(self, *arguments: Any) -> Any:
        result = self._function(*arguments)
        self.call = _machine_code(self._function, tuple(map(numba.typeof, arguments))) or self._function
        return result


def _machine_code(function: Any, kinds: tuple[Any, ...]) -> Callable[..., Any] | None:
    """Return the machine code for arguments of these types, ``None`` if the function has no separate code."""
    overload = getattr(function, "overloads", {}).get(kinds)
    code: Callable[..., Any] | None = getattr(overload, "entry_point", None)
    return code


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


def _array_at(context: Any, memory: Any, offset: Any, shape: Any, dtype: Any) -> Any:
    """Return the array of a shape (a tuple) and a type that begins at an offset in bytes into another one.

    It is valid as long as `memory` exists.
    """
    kind = types.Array(dtype.dtype, shape.count, "C")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.gep(builder.bitcast(source.data, cgutils.voidptr_t), [arguments[1]])
        lengths = cgutils.unpack_tuple(builder, arguments[2])
        size = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        strides, step = [], size
        for length in reversed(lengths):
            strides.append(step)
            step = builder.mul(step, length)
        out = make_array(kind)(context, builder)
        data = builder.bitcast(address, out.data.type)
        populate_array(out, data=data, shape=lengths, strides=strides[::-1], itemsize=size, meminfo=None)
        return out._getvalue()

    return kind(memory, types.int64, types.UniTuple(types.int64, shape.count), dtype), generate


array_at: Any = intrinsic(_array_at)
