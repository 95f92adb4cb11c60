"""Elements and slices of arrays, and loops over ranges, in the few instructions that they take where steps are known.

numba emits instructions for steps of any sign, and multiplies by one and adds zero; LLVM removes them again.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.core.imputils import builtin_registry
from numba.cpython import rangeobj, slicing

_slicing: Any = slicing
_utils: Any = cgutils
_Constant, _Select, _Compare = ir.Constant, ir.instructions.SelectInstr, ir.instructions.ICMPInstr
_LARGEST = 2**63 - 1
"""The end of a slice without an end."""


def _number(value: Any) -> int | None:
    """Return the number that a value is, ``None`` if that is not known."""
    if isinstance(value, _Select):  # by the sign of the step of a slice
        choice, yes, no = value.operands
        if isinstance(choice, _Compare) and choice.op == "slt":
            left, right = (_number(side) for side in choice.operands)
            if left is not None and right is not None:
                return _number(yes if left < right else no)
    found = value.constant if isinstance(value, _Constant) else None
    return found if isinstance(found, int) else None


def _from_end(builder: Any, index: Any, size: Any) -> Any:
    """Return the position of an index; a negative one counts from the end."""
    known = _number(index)
    if known is None:
        return _from_end_of_any(builder, index, size)
    return size.type(known) if known >= 0 else builder.add(size, index)


def _clamp(builder: Any, part: Any, size: Any) -> None:
    """Set the bounds of a slice to those within a size, without branches if the step is positive."""
    if not _is_positive(part.step):
        _clamp_any(builder, part, size)
        return
    zero = size.type(0)
    for name in ("start", "stop"):
        bound = getattr(part, name)
        known = _number(bound)
        if known == 0:
            setattr(part, name, zero)
        elif known == _LARGEST:
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
    known = _number(step)
    return known is not None and known > 0


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
        found = context.make_helper(builder, self._kind)
        found.iter, found.count = (cgutils.alloca_once_value(builder, value) for value in (state.start, count))
        found.stop, found.step = state.stop, state.step
        return found


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
    found: list[tuple[Any, str, Any]] = []
    iterators = dict(rangeobj.range_impl_map.values())
    for function, name, kinds in builtin_registry.functions:
        if name not in ("getiter", "iternext") or not kinds:
            continue
        places = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        if name == "getiter" and kinds[0] in iterators:
            place = places["RangeIter"]
            found.append((place, "cell_contents", _Loop(iterators[kinds[0]], place.cell_contents)))
        elif name == "iternext" and kinds[0] in iterators.values():
            found.append((places["func"], "cell_contents", _next))
    return found


_from_end_of_any, _clamp_any, _length_of_any = _slicing.fix_index, _slicing.fix_slice, _slicing.get_slice_length
_stride_of_any, _address_of_any = _slicing.fix_stride, _utils.get_item_pointer2
LEFT_OUT: list[tuple[Any, str, Any]] = [
    (_slicing, "fix_index", _from_end),
    (_slicing, "fix_slice", _clamp),
    (_slicing, "get_slice_length", _length),
    (_slicing, "fix_stride", _stride),
    (_utils, "get_item_pointer2", _address),
    *_of_ranges(),
]
