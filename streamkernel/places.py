"""Where arrays are in memory, told to compiled code as numbers; this is the only file that handles addresses.

numba checks and unpacks every array that a call is given, about 0.1 µs each: for the arrays of a model and an example
as long as the mathematics of a small event. So a call for a single event is given two addresses instead: of the
model's table (:class:`Model`) and of the example's record (:class:`Names`), both written once and read many times.

It is safe because both are int64 arrays that live in objects which also hold every array they tell of, so that no
address outlives its array, and because all of these arrays are made by :mod:`streamkernel.expansion` and
:mod:`streamkernel.features` themselves, contiguous and of the types that are read here. Addresses hold in one
process: these objects refuse to be copied.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from operator import itemgetter
from struct import Struct
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from numba import carray, njit, types  # type: ignore[attr-defined]
from numba.extending import intrinsic

from streamkernel import forms

_HEAD, _COLUMNS, _PER_PART = 9, 7, 3
_TYPE = 8
"""Bytes from the address of an object to that of its type, in CPython."""

_KNOWN = ctypes.c_void_p.from_address(id(0.5) + _TYPE).value == id(float)
_NUMBERS = [id(number) if _KNOWN else 0 for number in (float, int, bool)]
"""The addresses of the types of numbers; 0 where objects look otherwise, so that no value is taken for one."""

_TO_STAY = 8
"""Times that names come again before their addresses are told: an event alone may be predicted and learnt."""

_LINE = 64
"""Bytes in a line of the processor's cache."""

_serials = itertools.count(1)

# Places in a model's table: the serial of the names evaluated last (0 for none), sizes, and addresses.
LAST, PANELS, SUMMED, WIDTH, BETAS, KEPT_ROWS = range(6)
INTS, REALS, PROGRAM, CONSTANTS, CACHE, KEPT, COEF, BETA, PHI, SCORES, STEP, ROOM, SUMS, GRADIENTS, MOVE = range(6, 21)
N_PLACES = 21


class _InThisProcess:
    """What holds addresses."""

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled."""
        raise TypeError(f"Expected something that can be copied, got {type(self).__name__}, which holds addresses")


class Names(_InThisProcess):
    """The names of an example, its record in memory, and how its values get there.

    The record is ``[serial, n, parts]``, the types of numbers, three numbers of room to iterate, room for a number for
    each part of the kernel, and n numbers each of: slots, hashes, readers, places of the sorted values among those
    given, values as given, values sorted by their names' hashes, addresses of the names as given, and for each part of
    the kernel three columns of room for the entries that it reads.
    """

    __slots__ = ("_names", "_once", "_record", "_times", "address", "get", "hashes", "put", "readers", "slots", "start")

    def __init__(
        self,
        names: Sequence[Hashable],
        hashes: Mapping[Hashable, int],
        slots: Sequence[int],
        readers: npt.NDArray[np.int64],
        parts: int,
    ) -> None:
        ordered = list(hashes)
        n = len(ordered)
        self.get: Any = itemgetter(*ordered) if n > 1 else lambda x: (x[ordered[0]],)
        self.start = np.array([0, n])
        self._record = np.zeros(_HEAD + parts + (_COLUMNS + _PER_PART * parts) * n, np.int64)
        self._record[:6] = next(_serials), n, parts, *_NUMBERS
        columns = self._record[_HEAD + parts :].reshape(-1, n)
        self.slots, self.hashes, self.readers = columns[0], columns[1].view(np.uint64), columns[2]
        self.slots[:], self.hashes[:], self.readers[:] = slots, list(hashes.values()), readers
        place = {name: i for i, name in enumerate(names)}
        columns[3] = [place[name] for name in ordered]
        self._tell(names)
        pack, given = Struct(f"{n}d").pack_into, memoryview(columns[4]).cast("B")
        self.put: Any = lambda values: pack(given, 0, *values)
        self.address = address_of(self._record)

    def _tell(self, names: Sequence[Hashable]) -> None:
        """Tell the addresses of the names, and keep them alive."""
        self._names, self._once, self._times = names, names[-1], 0
        n = len(names)
        first = len(self._record) - _PER_PART * int(self._record[2]) * n - n
        self._record[first : first + n] = [id(name) for name in names]

    def saw(self, names: Sequence[Hashable]) -> None:
        """Tell the addresses of equal names that are other objects if they come again: these are there to stay."""
        if names[-1] is not self._once:
            self._once, self._times = names[-1], 0
        elif names[-1] is not self._names[-1]:
            self._times += 1
            if self._times == _TO_STAY:
                self._tell(names)


class Model(_InThisProcess):
    """The table of a model: sizes and addresses of its arrays, and of the room to work in, in the order of places."""

    def __init__(self, per_block: int, *arrays: npt.NDArray[Any]) -> None:
        panels, summed, outputs, width = arrays[COEF - INTS].shape
        betas, columns = arrays[BETA - INTS].shape
        room = aligned((forms.ROOM + 2 * len(arrays[PROGRAM - INTS]), width), np.float32)
        sums, gradients = aligned((summed, width), np.float64), np.empty((2, columns))
        work = room, sums, gradients, aligned((columns, outputs, per_block), np.float64)
        self._arrays = [*arrays, *work]
        kept = len(arrays[KEPT - INTS])
        self.table = np.array([0, panels, summed, width, betas, kept, *map(address_of, self._arrays)])
        self.address = address_of(self.table)


def aligned(shape: Sequence[int], dtype: Any) -> Any:
    """Return an array of zeros that begins where a cache line does: loops over it load no vector from two lines."""
    n = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(n + _LINE, np.uint8)
    first = -address_of(memory) % _LINE
    return memory[first : first + n].view(dtype).reshape(shape)


def address_of(array: npt.NDArray[Any]) -> int:
    """Return the address of a contiguous array."""
    if not array.flags.c_contiguous:
        raise ValueError("Expected a contiguous array")
    return int(array.ctypes.data)


@intrinsic
def _pointer(context: Any, address: Any) -> Any:
    """Return an address as a pointer."""

    def cast(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), cast


@njit(inline="always")
def ints_at(address, shape):  # type: ignore[no-untyped-def]
    """Return the int64 array at an address."""
    return carray(_pointer(address), shape, np.int64)  # type: ignore[call-arg]


@njit(inline="always")
def f64_at(address, shape):  # type: ignore[no-untyped-def]
    """Return the float64 array at an address."""
    return carray(_pointer(address), shape, np.float64)  # type: ignore[call-arg]


@njit(inline="always")
def f32_at(address, shape):  # type: ignore[no-untyped-def]
    """Return the float32 array at an address."""
    return carray(_pointer(address), shape, np.float32)  # type: ignore[call-arg]


@njit(inline="always")
def example_at(address):  # type: ignore[no-untyped-def]
    """Return what is in the record at an address: (serial, n, columns, (counts, columns of room) of the parts)."""
    serial, n, parts = ints_at(address, 3)
    counts, first = ints_at(address + 8 * _HEAD, parts), _HEAD + parts
    columns = ints_at(address + 8 * first, (_COLUMNS, n))
    return serial, n, columns, (counts, ints_at(address + 8 * (first + _COLUMNS * n), (_PER_PART, parts, n)))


_next_item = types.ExternalFunction("PyDict_Next", types.int32(*4 * [types.voidptr]))
_of_float = types.ExternalFunction("PyFloat_AsDouble", types.float64(types.voidptr))
_of_int = types.ExternalFunction("PyLong_AsDouble", types.float64(types.voidptr))
_error = types.ExternalFunction("PyErr_Occurred", types.int64())
_forget_error = types.ExternalFunction("PyErr_Clear", types.void())


@njit(inline="always")
def read(example, x):  # type: ignore[no-untyped-def]
    """Copy the values of the dictionary at address `x` to an example's record; return whether it was possible.

    It is if the dictionary has the very names of the record, in their order, and floats, integers or Booleans. That is
    much faster than to look names up and to pack values from Python, and most events are like the one before. The
    caller holds the interpreter's lock, and no code of Python's runs meanwhile, so the dictionary stays as it is.
    """
    _, n, columns, _ = example_at(example)
    floats, integers, booleans = ints_at(example + 8 * 3, 3)
    room = example + 8 * 6
    position, name, value = room, room + 8, room + 16
    place, found = ints_at(room, 3), columns[4].view(np.float64)
    place[0] = 0
    for j in range(n):
        if not _next_item(_pointer(x), _pointer(position), _pointer(name), _pointer(value)):  # type: ignore[call-arg]
            return False
        kind = ints_at(place[2] + _TYPE, 1)[0]
        if place[1] != columns[6, j] or kind not in (floats, integers, booleans):
            return False
        if kind == floats:
            found[j] = _of_float(_pointer(place[2]))
            continue
        found[j] = _of_int(_pointer(place[2]))
        if found[j] == -1.0 and _error() != 0:  # it is too large
            _forget_error()
            return False
    return not _next_item(_pointer(x), _pointer(position), _pointer(name), _pointer(value))  # type: ignore[call-arg]
