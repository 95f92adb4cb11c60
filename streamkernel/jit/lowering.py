"""Translation of variables and arguments to LLVM: few memory slots, and no reference counts for arguments."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from numba.core import ir
from numba.core.analysis import compute_cfg_from_blocks, compute_use_defs, must_use_alloca
from numba.core.lowering import Lower

_Lower: Any = Lower


def _find_values(self: Any) -> None:
    """Find the variables that need no memory slot. In numba these are the variables used in a single block; others are
    read and written at each use. Here they are also arguments and, if references are not counted, all variables with a
    single reaching assignment. The caller owns the references of arguments.
    """
    self._singly_assigned_vars, self._blk_local_varmap, self._borrowed = set(), {}, set()
    blocks = self.func_ir.blocks
    if self.func_ir.func_id.is_generator:
        return
    kept, assigned, used = must_use_alloca(blocks), Counter[str](), defaultdict[str, set[int]](set)
    places: dict[str, tuple[int, Any]] = {}
    for number, block in blocks.items():
        for statement in block.find_insts(ir.Assign):
            assigned[statement.target.name] += 1
            places[statement.target.name] = number, statement.value
    for number, names in compute_use_defs(blocks).usemap.items():
        for name in names:
            used[name].add(number)
    before = compute_cfg_from_blocks(blocks).dominators()
    for name, (number, value) in places.items():
        if assigned[name] > 1 or name in kept:
            continue
        if isinstance(value, ir.Arg) and self.typeof("arg." + value.name) == self.typeof(name):
            self._borrowed.add(name)
        elif self.context.enable_nrt and used[name]:
            continue
        if all(number in before[user] and number < user for user in used[name]):
            self._singly_assigned_vars.add(name)
    self._borrowed &= self._singly_assigned_vars


def _assign(self: Any, kind: Any, statement: Any) -> Any:
    """Return the value of an assignment, as numba does, but do not count a reference to an argument."""
    if statement.target.name in self._borrowed:
        return self.fnargs[statement.value.index]
    return _assign_counted(self, kind, statement)


def _delete(self: Any, name: str) -> None:
    """Delete a variable, as numba does, unless it is an argument."""
    if name not in self._borrowed:
        _delete_counted(self, name)


_assign_counted, _delete_counted = _Lower.lower_assign, _Lower.delvar
LEFT_OUT: list[tuple[Any, str, Any]] = [
    (_Lower, "_find_singly_assigned_variable", _find_values),
    (_Lower, "lower_assign", _assign),
    (_Lower, "delvar", _delete),
]
