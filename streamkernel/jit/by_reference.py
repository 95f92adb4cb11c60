"""Named tuples of arrays are given to compiled functions by the address of the tuple, not field by field.

numba makes an argument of each word of each array in a tuple: some 500 for the state of a model, at each call. A
called function only reads a tuple, and what it was given stays as it is until it returns. So it may pass the address
on, or that of a tuple within.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel.models import TupleModel
from numba.core.datamodel.registry import default_manager

_Model: Any = TupleModel
_PROMISES = "noalias", "captures(none)"


class _ByReference(_Model):
    """numba's model of a tuple, except for how a function gets it."""

    def get_argument_type(self) -> Any:
        """Return the type of an address."""
        return self.get_value_type().as_pointer()

    def as_argument(self, builder: Any, value: Any) -> Any:
        """Return the address of a tuple: that which the function was itself given, or that of a copy on the stack."""
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
    """Return an argument that is an address, and where in the tuple at it a value is; ``None`` if it is not in one."""
    fields: tuple[int, ...] = ()
    while True:
        if isinstance(value, ir.instructions.ExtractValue):
            value, fields = value.operands[0], (*value.indices, *fields)
        elif isinstance(value, ir.instructions.InsertValue) and fields:
            (into, part), at = value.operands, tuple(value.indices)
            if at == fields[: len(at)]:
                value, fields = part, fields[len(at) :]
            elif at[: len(fields)] == fields:
                return None  # a part of what is looked for is another one
            else:
                value = into
        elif isinstance(value, ir.instructions.LoadInstr) and isinstance(value.operands[0], ir.Argument):
            return value.operands[0], fields
        else:
            return None


def _has_arrays(kind: Any) -> bool:
    """Return whether there are arrays in a tuple."""
    return any(
        isinstance(part, types.Array) or (isinstance(part, types.BaseTuple) and _has_arrays(part)) for part in kind
    )


def _model(manager: Any, kind: Any) -> Any:
    """Return how a named tuple is kept: of others than this package as before."""
    is_own = kind.instance_class.__module__.partition(".")[0] == __package__.partition(".")[0]
    return (_ByReference if is_own and _has_arrays(kind) else _Model)(manager, kind)


def use() -> None:
    """Have numba do so from now on."""
    default_manager.register(types.NamedTuple, _model)
