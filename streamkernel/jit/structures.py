"""Structures of numba, such as arrays, are kept as values of LLVM instead of memory that LLVM has to remove again.

numba copies a structure into memory at each access: for each element that is read from an array some thirty
instructions, of which eight are needed.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.cgutils import ValueStructProxy
from numba.np import arrayobj

_Builder: Any = ir.IRBuilder
_Proxy: Any = ValueStructProxy
_class_of: Any = cgutils.create_struct_proxy
_arrays: Any = arrayobj
_InsertValue, _Constant = ir.instructions.InsertValue, ir.Constant


def _extract(self: Any, whole: Any, place: Any, name: str = "") -> Any:
    """Return a part of a value, as llvmlite does, but not the same part twice in a block, nor one that is known."""
    places = tuple(place) if isinstance(place, (tuple, list)) else (place,)
    while isinstance(whole, _InsertValue):
        into, part = whole.operands
        at = tuple(whole.indices)
        if at == places[: len(at)]:
            whole, places = part, places[len(at) :]
            if not places:
                return whole
        elif at[: len(places)] == places:
            break  # a part of the part was replaced
        else:
            whole = into
    block = self.block
    known = block.__dict__.setdefault("_parts", {})
    key = id(whole), places
    found = known.get(key)
    if found is None or self._anchor < len(block.instructions) - block.is_terminated:
        found = known[key] = _extract_any(self, whole, places, name)
    return found


def _start(self: Any, context: Any, builder: Any, value: Any = None, ref: Any = None) -> None:
    """Create a structure, as numba does, but without memory."""
    self.__dict__["_held"] = None
    model = context.data_model_manager[self._fe_type]
    if ref is not None or type(self)._make_refs is not _Proxy._make_refs:
        _start_in_memory(self, context, builder, value, ref)
        return
    kind = model.get_value_type()
    if value is None:
        value = _Constant(kind, None)
    elif value.type != kind:
        raise AssertionError(f"bad value type: expected {kind}, got {value.type}")
    self.__dict__.update(
        _context=context, _builder=builder, _datamodel=model, _be_type=kind, _held=value, _home=builder.block
    )


def _get(self: Any, index: int) -> Any:
    """Return a field."""
    return _get_from_memory(self, index) if self._held is None else self._builder.extract_value(self._held, index)


def _set(self: Any, index: int, value: Any) -> None:
    """Set a field: in a new value, if all accesses that follow come after this one, or else in memory."""
    held = self._held
    if held is None or self._builder.block is not self._home or value.type != self._be_type.elements[index]:
        _move_to_memory(self)
        _set_in_memory(self, index, value)
    else:
        self._held = self._builder.insert_value(held, value, index)


def _whole(self: Any) -> Any:
    """Return the value of the structure."""
    return _whole_from_memory(self) if self._held is None else self._held


def _replace(self: Any, value: Any) -> None:
    """Set the whole structure."""
    _move_to_memory(self)
    _replace_in_memory(self, value)


def _address(self: Any) -> Any:
    """Return the address of the structure."""
    _move_to_memory(self)
    return _address_in_memory(self)


def _field(self: Any, index: int) -> Any:
    """Return the address of a field."""
    _move_to_memory(self)
    return _field_in_memory(self, index)


def _move_to_memory(self: Any) -> None:
    """Store a structure in memory, in the block that created it: there it precedes all accesses."""
    held, builder = self._held, self._builder
    if held is None:
        return
    place = cgutils.alloca_once(builder, self._be_type)
    if builder.block is self._home:
        builder.store(held, place)
    else:
        with builder.goto_block(self._home):
            builder.store(held, place)
    self.__dict__.update(_held=None, _value=place, _outer_ref=place)


def _array(kind: Any) -> Any:
    """Return the class of the structure of an array."""
    return _class_of(kind) if type(kind) is types.Array else _array_in_memory(kind)


_extract_any, _array_in_memory = _Builder.extract_value, _arrays.make_array
_start_in_memory, _get_from_memory, _set_in_memory = _Proxy.__init__, _Proxy.__getitem__, _Proxy.__setitem__
_whole_from_memory, _replace_in_memory = _Proxy._getvalue, _Proxy._setvalue
_address_in_memory, _field_in_memory = _Proxy._getpointer, _Proxy._get_ptr_by_index
LEFT_OUT: list[tuple[Any, str, Any]] = [
    (_Builder, "extract_value", _extract),
    (_Proxy, "__init__", _start),
    (_Proxy, "__getitem__", _get),
    (_Proxy, "__setitem__", _set),
    (_Proxy, "_getvalue", _whole),
    (_Proxy, "_setvalue", _replace),
    (_Proxy, "_getpointer", _address),
    (_Proxy, "_get_ptr_by_index", _field),
    (_arrays, "make_array", _array),
]
