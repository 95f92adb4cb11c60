"""Work arrays of compiled code, several of them in one piece of memory.

numba compiles each allocation into some hundred instructions, with checks of the size and counts of references. For the
arrays that learning an example needs that was a tenth of a first start.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.core.typing.npydecl import parse_dtype
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import as_dtype

from streamkernel.jit.linking import inlined

WORD, ALIGNED = 8, 8
"""Bytes of an element of the memory, and the number of elements of which each array begins at a multiple."""


def _work_array(typing_context: Any, memory: Any, shape: Any, dtype: Any) -> Any:
    """Return an array with arbitrary values.

    If `memory` is ``None``, it is a new one. Otherwise `memory` is an array of int64, whose first value is the number
    of elements in use, at least `ALIGNED`: the array is the next part of it, and may be used while `memory` exists.
    The part may lie beyond the end of `memory`; then the array must not be used, and the number in use shows how large
    `memory` has to be.
    """
    kind = parse_dtype(dtype)
    n_axes = len(shape) if isinstance(shape, types.BaseTuple) else 1
    found = types.Array(kind, n_axes, "C")

    def allocate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        own = as_dtype(kind)

        def new(shape: Any) -> Any:
            return np.empty(shape, own)

        return context.compile_internal(builder, new, found(shape), [arguments[1]])

    def cut(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        intp, size = context.get_value_type(types.intp), as_dtype(kind).itemsize
        lengths = cgutils.unpack_tuple(builder, arguments[1]) if isinstance(shape, types.BaseTuple) else [arguments[1]]
        steps = [intp(size)]
        for length in reversed(lengths):
            steps.insert(0, builder.mul(steps[0], length))
        used = make_array(memory)(context, builder, arguments[0]).data
        first = builder.load(used)
        whole = WORD * ALIGNED
        more = builder.and_(builder.add(steps[0], intp(whole - 1)), intp(-whole))
        builder.store(builder.add(first, builder.sdiv(more, intp(WORD))), used)
        array = make_array(found)(context, builder)
        data = builder.bitcast(builder.gep(used, [first]), array.data.type)
        populate_array(array, data=data, shape=lengths, strides=steps[1:], itemsize=size, meminfo=None)
        return array._getvalue()

    return found(memory, shape, dtype), allocate if memory == types.none else cut


work_array: Any = intrinsic(_work_array)


@inlined
def work_memory(words):  # type: ignore[no-untyped-def]
    """Return memory of a size for work arrays; the smallest one, `ALIGNED`, only measures what they need."""
    memory = np.empty(words, np.int64)
    memory[0] = ALIGNED
    return memory
