"""Work arrays lie apart in one piece of memory, and memory that is too small is not written."""

import numpy as np
import pytest
from numba.core.errors import NumbaError

from streamkernel.jit import compiled, inlined, work_array, work_memory
from streamkernel.jit.linking import ALIGNED, WORD


@inlined(allocates=None)
def room(memory, n):
    numbers = work_array(memory, n, np.float64)
    return numbers, work_array(memory, (n, 3), np.float32), work_array(memory, (2, n, n), np.uint64)


@compiled(allocates=False)
def fill(memory, n):
    """Return the addresses of the arrays, which are filled if the memory is large enough."""
    numbers, matrix, cube = room(memory, n)
    if memory[0] <= len(memory):
        numbers[:], matrix[:], cube[:] = 1.5, 2.5, 3
    return numbers.ctypes.data, matrix.ctypes.data, cube.ctypes.data, memory.ctypes.data


@compiled
def filled(n):
    """Return the same arrays, in memory of their own."""
    numbers, matrix, cube = room(None, n)
    numbers[:], matrix[:], cube[:] = 1.5, 2.5, 3
    return numbers, matrix, cube


def memory_of(words):
    memory = np.full(words, -1)
    memory[0] = ALIGNED
    return memory


@pytest.mark.parametrize("n", [0, 1, 5, 16])
def test_arrays_lie_apart(n):
    short = memory_of(ALIGNED)
    fill(short, n)
    assert short[1:].tolist() == [-1] * (ALIGNED - 1)
    memory = memory_of(short[0])
    *places, start = fill(memory, n)
    assert memory[0] == len(memory)
    found = []
    for place, one in zip(places, filled(n), strict=True):
        first = (place - start) // WORD
        assert first % ALIGNED == 0
        found.append(memory[first:].view(one.dtype)[: one.size].reshape(one.shape))
        np.testing.assert_array_equal(found[-1], one)


def test_arrays_in_memory_are_refused_where_references_are_counted():
    with pytest.raises((TypeError, NumbaError), match="expected allocates=True"):
        compiled(lambda memory: room(memory, 1)[0][0])(memory_of(64))


def test_memory_begins_after_the_number_in_use():
    assert work_memory(ALIGNED)[0] == ALIGNED
