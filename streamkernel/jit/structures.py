"""Structures of numba, such as arrays, and their elements and slices, in the few instructions that they take.

Structures are values of LLVM instead of memory that LLVM has to remove again: numba copies a structure into memory at
each access, for each element that is read from an array some thirty instructions, of which eight are needed.

Elements, slices and loops over ranges take few instructions where steps are known: numba emits instructions for steps
of any sign, and multiplies by one and adds zero; LLVM removes them again.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.cgutils import ValueStructProxy
from numba.core.imputils import builtin_registry
from numba.cpython import rangeobj, slicing
from numba.np import arrayobj

_Builder: Any = ir.IRBuilder
_Proxy: Any = ValueStructProxy
_class_of: Any = cgutils.create_struct_proxy
_arrays: Any = arrayobj
_InsertValue, _Constant = ir.instructions.InsertValue, ir.Constant
_extract_any, _array_in_memory = _Builder.extract_value, _arrays.make_array
_start_in_memory, _get_from_memory, _set_in_memory = _Proxy.__init__, _Proxy.__getitem__, _Proxy.__setitem__
_whole_from_memory, _replace_in_memory = _Proxy._getvalue, _Proxy._setvalue
_address_in_memory, _field_in_memory = _Proxy._getpointer, _Proxy._get_ptr_by_index
_slicing: Any = slicing
_utils: Any = cgutils
_Select, _Compare = ir.instructions.SelectInstr, ir.instructions.ICMPInstr
_LARGEST = 2**63 - 1
"""The end of a slice without an end."""
_from_end_of_any, _clamp_any, _length_of_any = _slicing.fix_index, _slicing.fix_slice, _slicing.get_slice_length
_stride_of_any, _address_of_any = _slicing.fix_stride, _utils.get_item_pointer2


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
    parts = block.__dict__.setdefault("_parts", {})
    key = id(whole), places
    extracted = parts.get(key)
    if extracted is None or self._anchor < len(block.instructions) - block.is_terminated:
        extracted = parts[key] = _extract_any(self, whole, places, name)
    return extracted


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


def _address_of_structure(self: Any) -> Any:
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


def _number(value: Any) -> int | None:
    """Return the number that a value is, ``None`` if that is not known."""
    if isinstance(value, _Select):  # by the sign of the step of a slice
        choice, yes, no = value.operands
        if isinstance(choice, _Compare) and choice.op == "slt":
            left, right = (_number(side) for side in choice.operands)
            if left is not None and right is not None:
                return _number(yes if left < right else no)
    constant = value.constant if isinstance(value, _Constant) else None
    return constant if isinstance(constant, int) else None


def _from_end(builder: Any, index: Any, size: Any) -> Any:
    """Return the position of an index; a negative one counts from the end."""
    number = _number(index)
    if number is None:
        return _from_end_of_any(builder, index, size)
    return size.type(number) if number >= 0 else builder.add(size, index)


def _clamp(builder: Any, part: Any, size: Any) -> None:
    """Set the bounds of a slice to those within a size, without branches if the step is positive."""
    if not _is_positive(part.step):
        _clamp_any(builder, part, size)
        return
    zero = size.type(0)
    for name in ("start", "stop"):
        bound = getattr(part, name)
        number = _number(bound)
        if number == 0:
            setattr(part, name, zero)
        elif number == _LARGEST:
            setattr(part, name, size)
        else:
            bound = _from_end(builder, bound, size)
            if _number(bound) is None:
                bound = builder.select(builder.icmp_signed("<", bound, zero), zero, bound)
            setattr(part, name, builder.select(builder.icmp_signed(">=", bound, size), size, bound))


def _length(builder: Any, part: Any) -> Any:
    """Return the length of a slice."""
    if _number(part.step) != 1:
        return _length_of_any(builder, part)
    more = builder.sub(part.stop, part.start)
    return builder.select(builder.icmp_signed("<=", more, more.type(0)), more.type(0), more)


def _stride(builder: Any, part: Any, stride: Any) -> Any:
    """Return the distance in memory between elements of a slice."""
    return stride if _number(part.step) == 1 else _stride_of_any(builder, part, stride)


def _address(
    context: Any, builder: Any, data: Any, shape: Any, strides: Any, layout: str, inds: Any, **how: Any
) -> Any:
    """Return the address of an element."""
    if layout != "C" or any(how.values()) or not 0 < len(inds) <= len(shape):
        return _address_of_any(context, builder, data, shape, strides, layout, inds, **how)
    place, zero = inds[0], inds[0].type(0)
    for index, length in zip_longest(inds[1:], shape[1:], fillvalue=zero):
        if _number(place) != 0:
            place = builder.mul(place, length)
        if _number(index) != 0:
            place = index if _number(place) == 0 else builder.add(place, index)
    return builder.gep(data, [place])


def _is_positive(step: Any) -> bool:
    """Return whether a step is known to be positive."""
    number = _number(step)
    return number is not None and number > 0


class _Loop:
    """The iterator of a range. `of_any` is numba's class of the iterator, for steps of unknown sign."""

    def __init__(self, kind: Any, of_any: Any) -> None:
        self._kind, self._of_any = kind, of_any

    def from_range_state(self, context: Any, builder: Any, state: Any) -> Any:
        """Return the iterator at the start of a range."""
        if not _is_positive(state.step):
            return self._of_any.from_range_state(context, builder, state)
        zero, one = state.start.type(0), state.start.type(1)
        width = state.stop if _number(state.start) == 0 else builder.sub(state.stop, state.start)
        count = width
        if _number(state.step) != 1:
            count = builder.add(builder.sdiv(builder.sub(width, one), state.step), one)
        count = builder.select(builder.icmp_signed(">", width, zero), count, zero)
        iterator = context.make_helper(builder, self._kind)
        iterator.iter, iterator.count = (cgutils.alloca_once_value(builder, value) for value in (state.start, count))
        iterator.stop, iterator.step = state.stop, state.step
        return iterator


def _next(context: Any, builder: Any, signature: Any, arguments: Any, result: Any) -> None:
    """Emit the step of an iterator of a range: beyond the end too, where its position is not used."""
    state = context.make_helper(builder, signature.args[0], arguments[0])
    value, count = builder.load(state.iter), builder.load(state.count)
    result.set_valid(builder.icmp_signed(">", count, count.type(0)))
    result.yield_(value)
    builder.store(builder.sub(count, count.type(1), flags=["nsw"]), state.count)
    builder.store(builder.add(value, state.step), state.iter)


def _of_ranges() -> list[tuple[Any, str, Any]]:
    """Return the replacements in numba's functions of ranges, which are variables of functions around them."""
    replacements: list[tuple[Any, str, Any]] = []
    iterators = dict(rangeobj.range_impl_map.values())
    for function, name, kinds in builtin_registry.functions:
        if name not in ("getiter", "iternext") or not kinds:
            continue
        places = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        if name == "getiter" and kinds[0] in iterators:
            place = places["RangeIter"]
            replacements.append((place, "cell_contents", _Loop(iterators[kinds[0]], place.cell_contents)))
        elif name == "iternext" and kinds[0] in iterators.values():
            replacements.append((places["func"], "cell_contents", _next))
    return replacements


LEFT_OUT: list[tuple[Any, str, Any]] = [
    (_Builder, "extract_value", _extract),
    (_Proxy, "__init__", _start),
    (_Proxy, "__getitem__", _get),
    (_Proxy, "__setitem__", _set),
    (_Proxy, "_getvalue", _whole),
    (_Proxy, "_setvalue", _replace),
    (_Proxy, "_getpointer", _address_of_structure),
    (_Proxy, "_get_ptr_by_index", _field),
    (_arrays, "make_array", _array),
    (_slicing, "fix_index", _from_end),
    (_slicing, "fix_slice", _clamp),
    (_slicing, "get_slice_length", _length),
    (_slicing, "fix_stride", _stride),
    (_utils, "get_item_pointer2", _address),
    *_of_ranges(),
]
