"""Tuples of arrays that Python gives to compiled functions are read in place, by one function for all arrays.

numba reads each array with code of its own, and copies it into the tuple.

For a tuple that is given again and again even that takes longer than the mathematics of a small event. :func:`hold`
does it once.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel.models import TupleModel
from numba.core.datamodel.registry import default_manager
from numba.core.pythonapi import NativeValue, PythonAPI
from numba.np.numpy_support import as_dtype

_Model: Any = TupleModel
_PROMISES = "noalias", "captures(none)"

GIVEN = "given.by.python"
"""Name of the places in memory where the tuples that Python gives to a function are."""


class _ByReference(_Model):
    """numba's model of a tuple, except that arguments are passed by address."""

    def get_argument_type(self) -> Any:
        """Return the type of an address."""
        return self.get_value_type().as_pointer()

    def as_argument(self, builder: Any, value: Any) -> Any:
        """Return the address of a tuple: the one that was passed to the function, or of a copy on the stack."""
        path = _path(value)
        if path is not None:
            address, fields = path
            return builder.gep(address, [ir.IntType(32)(i) for i in (0, *fields)], inbounds=True) if fields else address
        with builder.goto_entry_block():
            copy = builder.alloca(value.type)
        builder.store(value, copy)
        return copy

    def from_argument(self, builder: Any, value: Any) -> Any:
        """Return the tuple at an address."""
        for promise in _PROMISES:
            value.add_attribute(promise)
        return builder.load(value)


def _path(value: Any) -> tuple[Any, tuple[int, ...]] | None:
    """Return the address of the tuple that contains a value, and the position there; ``None`` if there is none, or the
    tuple might change.
    """
    fields: tuple[int, ...] = ()
    while True:
        if isinstance(value, ir.instructions.ExtractValue):
            value, fields = value.operands[0], (*value.indices, *fields)
        elif isinstance(value, ir.instructions.InsertValue) and fields:
            (into, part), at = value.operands, tuple(value.indices)
            if at == fields[: len(at)]:
                value, fields = part, fields[len(at) :]
            elif at[: len(fields)] == fields:
                return None  # a part of the value was replaced
            else:
                value = into
        elif isinstance(value, ir.instructions.LoadInstr) and _is_constant(value.operands[0]):
            return value.operands[0], fields
        else:
            return None


def _is_constant(address: Any) -> bool:
    """Return whether the tuple at an address does not change."""
    return isinstance(address, ir.Argument) or (isinstance(address, ir.AllocaInstr) and address.name.startswith(GIVEN))


def _has_arrays(kind: Any) -> bool:
    """Return whether a tuple contains arrays."""
    return any(
        isinstance(part, types.Array) or (isinstance(part, types.BaseTuple) and _has_arrays(part)) for part in kind
    )


def is_by_reference(kind: Any) -> bool:
    """Return whether a type is a named tuple of this package that contains arrays; others are passed as in numba."""
    if not isinstance(kind, types.NamedTuple):
        return False
    is_own = kind.instance_class.__module__.partition(".")[0] == __package__.partition(".")[0]
    return is_own and _has_arrays(kind)


def _model(manager: Any, kind: Any) -> Any:
    """Return the data model of a named tuple."""
    return (_ByReference if is_by_reference(kind) else _Model)(manager, kind)


def use() -> None:
    """Register the data model with numba."""
    default_manager.register(types.NamedTuple, _model)


_API: Any = PythonAPI
_NAME = "streamkernel.array_from_python"
_ITEM_SIZE = 3
"""Position of the size of an element in numba's structure of an array."""


class Held(bytes):
    """A tuple of arrays as compiled code has it in memory, valid as long as the arrays exist."""

    __slots__ = ()


_HELD = "streamkernel.held"
llvm.add_symbol(_HELD, id(Held))


def hold(value: Any, kind: Any) -> Any:
    """Return a tuple of arrays, of its type, in the form that compiled functions copy as a whole; other objects are
    returned as they are. Functions that return arrays of the tuple cannot be given this form.
    """
    return Held(np.array(_words(value), np.int64).tobytes()) if _is_of_arrays(kind) else value


def _is_of_arrays(kind: Any) -> bool:
    """Return whether a type is a tuple of arrays, and of such tuples, which is passed by reference."""
    return is_by_reference(kind) and all(type(part) is types.Array or _is_of_arrays(part) for part in kind)


def _words(value: Any) -> list[int]:
    """Return the fields of the structures of all arrays in a tuple: no owner, the number of elements, and so on."""
    if isinstance(value, tuple):
        return [word for part in value for word in _words(part)]
    return [0, 0, value.size, value.itemsize, value.ctypes.data, *value.shape, *value.strides]


def _read(self: Any, kind: Any, value: Any) -> Any:
    """Return the value of a Python object in compiled code, with the same result as numba."""
    if not is_by_reference(kind):
        return _read_any(self, kind, value)
    builder, of_kind = self.builder, self.context.get_value_type(kind)
    place = cgutils.alloca_once(builder, of_kind, name=GIVEN, zfill=True)
    if not _is_of_arrays(kind):
        failed = _set(self, kind, value, place)
        return NativeValue(builder.load(place), is_error=failed)
    failed = cgutils.alloca_once_value(builder, cgutils.false_bit)
    with builder.if_else(_is_held(self, value)) as (then, otherwise):
        with then:
            size = self.context.get_constant(types.intp, self.context.get_abi_sizeof(of_kind))
            cgutils.raw_memcpy(builder, place, self.bytes_as_string(value), size, 1)
        with otherwise:
            builder.store(_set(self, kind, value, place), failed)
    return NativeValue(builder.load(place), is_error=builder.load(failed))


def _is_held(self: Any, value: Any) -> Any:
    """Return whether a Python object is what :func:`hold` returned."""
    builder, held = self.builder, self.module.globals.get(_HELD)
    if held is None:
        held = ir.GlobalVariable(self.module, ir.IntType(8), _HELD)
        held.linkage = "external"
    kind = self.object_type(value)
    self.decref(kind)
    return builder.icmp_unsigned("==", kind, builder.bitcast(held, self.pyobj))


def _set(self: Any, kind: Any, value: Any, place: Any) -> Any:
    """Set the value at an address to the value of a Python object; return whether that failed."""
    builder = self.builder
    if type(kind) is types.Array:
        size = self.context.get_constant(types.intp, as_dtype(kind.dtype).itemsize)
        return builder.call(_array_from_python(self), [value, builder.bitcast(place, self.voidptr), size])
    if not is_by_reference(kind):
        native = _read_any(self, kind, value)
        if native.cleanup is not None:
            raise NotImplementedError(f"expected numbers and arrays in a tuple, got {kind}")
        builder.store(native.value, place)
        return native.is_error
    failed = cgutils.false_bit
    for i, part in enumerate(kind):
        item = self.tuple_getitem(value, i)
        failed = builder.or_(failed, _set(self, part, item, cgutils.gep_inbounds(builder, place, 0, i)))
    return failed


def _array_from_python(api: Any) -> Any:
    """Return the function of a module that sets an array, and returns whether that failed."""
    existing = api.module.globals.get(_NAME)
    if existing is not None:
        return existing
    context, number = api.context, api.context.get_value_type(types.intp)
    kind = ir.FunctionType(ir.IntType(1), [api.pyobj, api.voidptr, number])
    function = ir.Function(api.module, kind, _NAME)
    function.linkage = "internal"
    function.attributes.add("noinline")
    value, place, size = function.args
    builder = ir.IRBuilder(function.append_basic_block())
    python = context.get_python_api(builder)
    missing = cgutils.is_null(builder, value)
    with builder.if_then(missing, likely=False):
        builder.ret(cgutils.true_bit)
    adapt = python.nrt_adapt_ndarray_from_python if context.enable_nrt else python.numba_array_adaptor
    code = adapt(value, place)
    item_size = builder.load(builder.gep(builder.bitcast(place, number.as_pointer()), [number(_ITEM_SIZE)]))
    failed = builder.or_(cgutils.is_not_null(builder, code), builder.icmp_unsigned("!=", item_size, size))
    with builder.if_then(failed, likely=False):
        python.err_set_string("PyExc_TypeError", "can't unbox array from PyObject into native value")
    builder.ret(failed)
    return function


_read_any = _API.to_native_value
LEFT_OUT: list[tuple[Any, str, Any]] = [(_API, "to_native_value", _read)]
