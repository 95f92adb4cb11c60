"""The values of a dictionary, read by compiled code, and a table of known names.

Most events have the names of the event before, in the same order. Then their values can be read through CPython's own
functions, which is much faster than to look names up and to pack values from Python. The
address of the dictionary is an argument of the call that reads it, so the dictionary lives as long as the call; the
caller holds the interpreter's lock, and no Python code runs meanwhile, so its contents do not change. Nothing else is
passed by address.

``STREAMKERNEL_FAST_PATH=0`` switches this off; each event is then read by Python, with the same results.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
from collections.abc import Hashable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from streamkernel.features.counter_rng import size_of
from streamkernel.features.rows import I64
from streamkernel.jit import compiled, inlined, of_one_signature
from streamkernel.jit.calls import array_at

_TYPE = 8
"""Bytes from the address of an object to the address of its type, in CPython."""

_LOOKS_KNOWN = (
    sys.implementation.name == "cpython"
    and getattr(sys, "_is_gil_enabled", lambda: True)()
    and ctypes.sizeof(ctypes.c_void_p) == 8
    and ctypes.c_void_p.from_address(id(0.5) + _TYPE).value == id(float)
)
FAST = dict if _LOOKS_KNOWN and os.environ.get("STREAMKERNEL_FAST_PATH", "1") != "0" else None
"""The type of the examples that are read by compiled code; ``None`` if none are."""

_SERIAL, _N, _PARTS, _FLOAT, _INT, _BOOL, _STR, _ROOM = range(8)
_HEAD = _ROOM + 3
_COLUMNS, _PER_PART = 8, 3
SLOT, HASH, READERS, ORDER, GIVEN, SORTED, SCALED, ADDRESS = range(_COLUMNS)
"""Columns of a record, n numbers each: the place in the cache of directions, the name's hash, which parts read it,
where the value is among those given, the values as given, the values sorted by hash, the sorted values as a function
reads them, and the addresses of the names as given."""

_serials = itertools.count(1)


class NameRecord:
    """The names of an example, with all that compiled code needs to read their values.

    Its memory is an array of int64: a serial number, the numbers of names, n, and of parts, the addresses of the types
    of numbers and names, and the state of an iteration; a number for each part of the kernel; the columns above; and
    for each part of the kernel three columns for the values that it reads. Names, hashes and slots never change; values
    are written and read within one compiled call. The `names`, in the order of the example, are kept alive, so that no
    other object has their addresses; the `hashes` are in the order of hashes. `slots` are indices of the names in the
    cache of directions, and `readers` the parts of the kernel that read each name, a bit per part.
    """

    __slots__ = (
        "get",
        "hashes",
        "is_counted",
        "is_placed",
        "is_settled",
        "memory",
        "names",
        "ordered",
        "readers",
        "slots",
        "start",
    )

    def __init__(
        self, names: Sequence[Hashable], hashes: Mapping[Hashable, int], slots: Sequence[int], readers: I64, parts: int
    ) -> None:
        ordered, n = list(hashes), len(hashes)
        self.names: tuple[Hashable, ...] = tuple(names)
        self.ordered = ordered
        self.get: Any = itemgetter(*ordered) if n > 1 else lambda x: tuple(x[name] for name in ordered)
        self.start = np.array([0, n])
        self.memory: I64 = np.zeros(_HEAD + parts + (_COLUMNS + _PER_PART * parts) * n, np.int64)
        self.memory[:_ROOM] = next(_serials), n, parts, id(float), id(int), id(bool), id(str)
        columns = self.memory[_HEAD + parts :][: _COLUMNS * n].reshape(_COLUMNS, n)
        self.slots, self.hashes, self.readers = columns[SLOT], columns[HASH].view(np.uint64), columns[READERS]
        self.slots[:], self.hashes[:], self.readers[:] = slots, list(hashes.values()), readers
        index = {name: i for i, name in enumerate(self.names)}
        columns[ORDER] = [index[name] for name in ordered]
        columns[ADDRESS] = [id(name) for name in self.names]
        self.is_placed = True  # whether no name gets a place in the cache later
        self.is_counted = False  # whether no more values of these names are counted
        self.is_settled = False  # nor anything else becomes known of them if they have numbers

    @property
    def nbytes(self) -> int:
        """The approximate size in bytes, including names and Python objects."""
        return int(self.memory.nbytes) + 40 * len(self.names) + sum(map(size_of, self.names)) + 700


@inlined(allocates=False)
def parts_of(record):  # type: ignore[no-untyped-def]
    """Return the columns of a record, and the work arrays of the kernel's parts: counts and three columns."""
    n, parts = record[_N], record[_PARTS]
    first = _HEAD + parts
    columns = array_at(record, 8 * first, (_COLUMNS, n), np.int64)
    offset = 8 * (first + _COLUMNS * n)
    return (
        columns,
        array_at(record, 8 * _HEAD, (parts,), np.int64),
        array_at(record, offset, (parts, n), np.int64),
        array_at(record, offset + 8 * parts * n, (parts, n), np.uint64),
        array_at(record, offset + 16 * parts * n, (parts, n), np.float32),
    )


_next_item = types.ExternalFunction("PyDict_Next", types.int32(*4 * [types.voidptr]))
_of_float = types.ExternalFunction("PyFloat_AsDouble", types.float64(types.voidptr))
_of_int = types.ExternalFunction("PyLong_AsDouble", types.float64(types.voidptr))
_error = types.ExternalFunction("PyErr_Occurred", types.int64())
_item_in_list = types.ExternalFunction("PyList_GetItem", types.int64(types.voidptr, types.int64))
_compare: Any = types.ExternalFunction("PyObject_RichCompareBool", types.int32(*2 * [types.voidptr], types.int32))
_EQUAL = 2
_forget_error = types.ExternalFunction("PyErr_Clear", types.void())


@intrinsic
def _object_at(context: Any, address: Any) -> Any:
    """Return an address as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


@intrinsic
def _type_of_at(context: Any, address: Any) -> Any:
    """Return the address of the type of the object at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.add(arguments[0], ir.IntType(64)(_TYPE))
        return builder.load(builder.inttoptr(place, ir.IntType(64).as_pointer()))

    return types.int64(types.int64), generate


@intrinsic
def _item_of_at(context: Any, array: Any, index: Any) -> Any:
    """Return a pointer to an item of an array of int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t)

    return types.voidptr(types.int64[::1], types.int64), generate


_object: Any = _object_at
_type_of: Any = _type_of_at
_item_of: Any = _item_of_at


@inlined(allocates=False)
def _are_equal(record, name, other):  # type: ignore[no-untyped-def]
    """Return whether two names, which are given by address, are one object, or equal strings or integers.

    To compare other names could run Python code.
    """
    if name == other:
        return True
    kind = _type_of(name)
    if kind != _type_of(other) or not (kind == record[_STR] or kind == record[_INT]):
        return False
    return _compare(_object(name), _object(other), np.int32(_EQUAL)) == 1


@inlined(allocates=False)
def read(record, x):  # type: ignore[no-untyped-def]
    """Copy the values of the dictionary at address `x` to a record; return whether that was possible.

    It is possible if the dictionary has the record's names in their order, and floats, integers or Booleans.
    """
    columns = parts_of(record)[0]
    addresses, inputs = columns[ADDRESS], columns[GIVEN].view(np.float64)
    position, name, value = _item_of(record, _ROOM), _item_of(record, _ROOM + 1), _item_of(record, _ROOM + 2)
    record[_ROOM] = 0
    for j in range(record[_N]):
        if not _next_item(_object(x), position, name, value):
            return False
        item = record[_ROOM + 2]
        kind = _type_of(item)
        if not _are_equal(record, record[_ROOM + 1], addresses[j]):
            return False
        if kind == record[_FLOAT]:
            inputs[j] = _of_float(_object(item))
        elif kind == record[_INT] or kind == record[_BOOL]:
            inputs[j] = _of_int(_object(item))
            if inputs[j] == -1.0 and _error() != 0:  # it is too large
                _forget_error()
                return False
        else:
            return False
        if inputs[j] != inputs[j]:  # it is missing
            return False
    return not _next_item(_object(x), position, name, value)


@inlined(allocates=False)
def item_of(xs, i):  # type: ignore[no-untyped-def]
    """Return the address of item i of the list at address `xs`; the item must exist."""
    return _item_in_list(_object(xs), i)


@inlined(allocates=False)
def sort(record):  # type: ignore[no-untyped-def]
    """Sort the values of an example by the hashes of their names; return whether the values are the previous ones."""
    columns = parts_of(record)[0]
    same = True
    for j in range(record[_N]):
        bits = columns[GIVEN, columns[ORDER, j]]
        same &= columns[SORTED, j] == bits
        columns[SORTED, j] = bits
    return same


@of_one_signature
@compiled(allocates=False)
def read_list(record, xs, largest, values):  # type: ignore[no-untyped-def]
    """Set the rows of `values`, shape (examples, n), to the values of the dictionaries of the list at address `xs`, as
    given; return how many there are before one that cannot be read, or has a value beyond ±`largest`.
    """
    inputs = parts_of(record)[0][GIVEN].view(np.float64)
    for i in range(len(values)):
        if not read(record, item_of(xs, i)):
            return i
        for j in range(len(inputs)):
            if not -largest <= inputs[j] <= largest:
                return i
            values[i, j] = inputs[j]
    return len(values)


@of_one_signature
@compiled(allocates=False)
def read_values(record, x, out):  # type: ignore[no-untyped-def]
    """Set `out` to the values of the dictionary at address `x`, sorted by the hashes of its names; return whether it
    could be read.
    """
    if not read(record, x):
        return False
    columns = parts_of(record)[0]
    for j in range(record[_N]):
        out[j] = columns[GIVEN].view(np.float64)[columns[ORDER, j]]
    return True
