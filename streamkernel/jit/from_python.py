"""Tuples of arrays that Python gives to compiled functions are read in place, by one function for all arrays.

numba reads each array with code of its own, and copies it into the tuple.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.pythonapi import NativeValue, PythonAPI
from numba.np.numpy_support import as_dtype

from streamkernel.jit.by_reference import GIVEN, is_by_reference

_API: Any = PythonAPI
_NAME = "streamkernel.array_from_python"
_ITEM_SIZE = 3
"""Position of the size of an element in numba's structure of an array."""


def _read(self: Any, kind: Any, value: Any) -> Any:
    """Return the value of a Python object in compiled code, with the same result as numba."""
    if not is_by_reference(kind):
        return _read_any(self, kind, value)
    place = cgutils.alloca_once(self.builder, self.context.get_value_type(kind), name=GIVEN, zfill=True)
    failed = _set(self, kind, value, place)
    return NativeValue(self.builder.load(place), is_error=failed)


def _set(self: Any, kind: Any, value: Any, place: Any) -> Any:
    """Set the value at an address to that of a Python object; return whether that failed."""
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
    known = api.module.globals.get(_NAME)
    if known is not None:
        return known
    context, number = api.context, api.context.get_value_type(types.intp)
    kind = ir.FunctionType(ir.IntType(1), [api.pyobj, api.voidptr, number])
    function = ir.Function(api.module, kind, _NAME)
    function.linkage = "internal"
    function.attributes.add("noinline")
    value, place, size = function.args
    builder = ir.IRBuilder(function.append_basic_block())
    own = context.get_python_api(builder)
    missing = cgutils.is_null(builder, value)
    with builder.if_then(missing, likely=False):
        builder.ret(cgutils.true_bit)
    adapt = own.nrt_adapt_ndarray_from_python if context.enable_nrt else own.numba_array_adaptor
    code = adapt(value, place)
    found = builder.load(builder.gep(builder.bitcast(place, number.as_pointer()), [number(_ITEM_SIZE)]))
    failed = builder.or_(cgutils.is_not_null(builder, code), builder.icmp_unsigned("!=", found, size))
    with builder.if_then(failed, likely=False):
        own.err_set_string("PyExc_TypeError", "can't unbox array from PyObject into native value")
    builder.ret(failed)
    return function


_read_any = _API.to_native_value
LEFT_OUT: list[tuple[Any, str, Any]] = [(_API, "to_native_value", _read)]
