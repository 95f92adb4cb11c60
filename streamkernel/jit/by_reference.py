"""Named tuples of arrays are passed to compiled functions by the address of the tuple, not field by field.

numba passes each word of each array in a tuple as an argument: some 500 for the state of a model, at each call. A
called function only reads a tuple, and the tuple does not change until the function returns. So the function may pass
the address on, or the address of a nested tuple.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel.models import TupleModel
from numba.core.datamodel.registry import default_manager

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
        """Return the address of a tuple: the one that was passed to the function, or that of a copy on the stack."""
        known = _path(value)
        if known is not None:
            address, fields = known
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
