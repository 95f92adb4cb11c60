"""Calls between compiled functions in few instructions, and code without the instructions whose results are unused.

numba gives each call a place for its error, and copies an error from there into the place of the calling function.
Here both share one place.
"""

from __future__ import annotations

from typing import Any

from numba.core import cgutils
from numba.core.callconv import CPUCallConv

_Convention: Any = CPUCallConv
_TRIES = "_CPUCallConv__eh_try_state"
"""The attribute of the builder of a function that catches errors."""

_PURE = frozenset(
    {"extractvalue", "insertvalue", "getelementptr", "load", "select", "icmp", "fcmp"}
    | {"add", "sub", "mul", "xor", "or", "and", "bitcast", "zext", "sext", "trunc"}
)
"""Instructions without an effect."""


def _call(self: Any, builder: Any, callee: Any, resty: Any, argtys: Any, args: Any, attrs: Any = None) -> Any:
    """Emit a call, as numba does, and return its status and its result."""
    own = builder.function.args
    if attrs is not None or hasattr(builder, _TRIES) or len(own) < 2 or own[1].name != "excinfo":
        return _call_any(self, builder, callee, resty, argtys, args, attrs)
    result = cgutils.alloca_once_value(builder, cgutils.get_null_value(self.get_return_type(resty).pointee))
    given = self._get_arg_packer(argtys).as_arguments(builder, args)
    code = builder.call(callee, [result, own[1], *given])
    status = self._get_return_status(builder, code, builder.load(own[1]))
    return status, self.context.get_returned_value(builder, resty, builder.load(result))


def _propagate(self: Any, builder: Any, status: Any) -> None:
    """Return the error of a call."""
    error = status.excinfoptr
    of_callee = error.operands[1] if getattr(error, "opname", "") == "select" else error
    if hasattr(builder, _TRIES) or of_callee.operands[0] is not builder.function.args[1]:
        _propagate_any(self, builder, status)
    else:
        self._return_errcode_raw(builder, status.code)


def drop_unused(module: Any) -> None:
    """Remove the instructions of a module whose results are not used."""
    for function in module.functions:
        uses: dict[int, int] = {}
        for block in function.blocks:
            for instruction in block.instructions:
                operands = instruction.operands
                if instruction.opname == "phi":
                    operands = [value for value, _ in instruction.incomings]
                for operand in operands:
                    uses[id(operand)] = uses.get(id(operand), 0) + 1
        for block in reversed(function.blocks):
            kept = []
            for instruction in reversed(block.instructions):
                if uses.get(id(instruction)) or instruction.opname not in _PURE:
                    kept.append(instruction)
                else:
                    for operand in instruction.operands:
                        uses[id(operand)] -= 1
            block.instructions[:] = reversed(kept)


_call_any, _propagate_any = _Convention.call_function, _Convention.return_status_propagate
LEFT_OUT: list[tuple[Any, str, Any]] = [
    (_Convention, "call_function", _call),
    (_Convention, "return_status_propagate", _propagate),
]
