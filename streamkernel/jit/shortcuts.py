"""Steps of numba's compilation that are skipped: their results are not used, and they take a third of a first start.

Calls between compiled functions take few instructions: numba gives each call a place for its error, and copies an error
from there into the place of the calling function; here both share one place. Instructions whose results are unused are
left out. Variables get few memory slots, and arguments no reference counts.
"""

from __future__ import annotations

import gc
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self
from weakref import WeakSet

import llvmlite.binding as llvm
from numba.core import cgutils, errors, ir
from numba.core.analysis import compute_cfg_from_blocks, compute_use_defs, must_use_alloca
from numba.core.callconv import CPUCallConv
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags
from numba.core.compiler_lock import global_compiler_lock
from numba.core.cpu import CPUContext
from numba.core.lowering import Lower
from numba.core.postproc import PostProcessor, VariableLifetime
from numba.core.targetconfig import ConfigStack
from numba.core.transforms import canonicalize_cfg
from numba.core.types.functions import BaseFunction
from numba.core.typing.templates import _OverloadFunctionTemplate

from streamkernel.jit import from_python, structures

_Convention: Any = CPUCallConv
_TRIES = "_CPUCallConv__eh_try_state"
"""The attribute of the builder of a function that catches errors."""
_PURE = frozenset(
    {"extractvalue", "insertvalue", "getelementptr", "load", "select", "icmp", "fcmp"}
    | {"add", "sub", "mul", "xor", "or", "and", "bitcast", "zext", "sext", "trunc"}
)
"""Instructions without an effect."""
_call_any, _propagate_any = _Convention.call_function, _Convention.return_status_propagate
_Lower: Any = Lower
_assign_counted, _delete_counted = _Lower.lower_assign, _Lower.delvar
_Library: Any = JITCodeLibrary
_Compiler: Any = Compiler
_Template: Any = _OverloadFunctionTemplate
_Processor: Any = PostProcessor
_Instruction: Any = ir.Inst
_Context: Any = CPUContext
_Function: Any = BaseFunction
_decorator_of, _run, _variables_of = _Template._get_jit_decorator, _Processor.run, _Instruction._rec_list_vars
_load_all, _signature_of = _Context.load_additional_registries, _Function.get_call_type
_signatures: dict[Any, tuple[Any, Any]] = {}
_loaded: WeakSet[Any] = WeakSet()
_NO_VARIABLES = frozenset({ir.Loc, str, int, bool, type(None)})


def _call(self: Any, builder: Any, callee: Any, resty: Any, argtys: Any, args: Any, attrs: Any = None) -> Any:
    """Emit a call, as numba does, and return its status and its result."""
    outer = builder.function.args
    if attrs is not None or hasattr(builder, _TRIES) or len(outer) < 2 or outer[1].name != "excinfo":
        return _call_any(self, builder, callee, resty, argtys, args, attrs)
    result = cgutils.alloca_once_value(builder, cgutils.get_null_value(self.get_return_type(resty).pointee))
    packed = self._get_arg_packer(argtys).as_arguments(builder, args)
    code = builder.call(callee, [result, outer[1], *packed])
    status = self._get_return_status(builder, code, builder.load(outer[1]))
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


@contextmanager
def only_what_is_used() -> Iterator[None]:
    """Skip unused steps of numba's compilation meanwhile; no other thread compiles then.

    Garbage collection is off: numba creates millions of objects, most of which remain in use.
    """
    was_enabled = gc.isenabled()
    with global_compiler_lock:
        before = [(place, name, getattr(place, name)) for place, name, _ in LEFT_OUT]
        is_inner = before[0][2] is LEFT_OUT[0][2]
        gc.disable()
        try:
            for place, name, instead in LEFT_OUT:
                setattr(place, name, instead)
            yield
        finally:
            for place, name, value in before:
                setattr(place, name, value)
            if not is_inner:
                _signatures.clear()
            if was_enabled:
                gc.enable()


class _Flags(Flags):
    """numba's options of a function, compared by the ones that are set. numba compares options for each operation in a
    function, a hundred thousand times in a first start, and each time reads all options with their defaults.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Flags) and self._values == other._values)

    def __hash__(self) -> int:
        return 0  # constant: options change after they are stored in a table


def quick_to_compare(dispatcher: Any) -> Any:
    """Return a compiled function whose options numba compares quickly."""
    dispatcher._compiler._customize_flags = _Flags
    return dispatcher


class _OptimisedOnce(_Library):
    """Code that is optimised once, after the functions it calls have been linked in, and not each function before."""

    def add_ir_module(self, module: Any) -> None:
        """Add code, without what is not used."""
        drop_unused(module)
        super().add_ir_module(module)

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        if ConfigStack().top().nrt:
            super()._optimize_final_module()  # twice: the first, quick pass removes reference counts
        else:
            passes, builder = self._codegen._module_pass_manager()
            passes.run(self._final_module, builder)


class _LinkedOnly(_OptimisedOnce):
    """Code that is only linked into other code: it is optimised there, and never run by itself."""

    @property
    def codegen(self) -> Self:
        return self

    def set_env(self, *environment: Any) -> None:
        """Do nothing, because only functions that Python calls have an environment."""

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0, because there is no machine code."""
        self._ensure_finalized()
        return 0

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == llvm.Linkage.external:
                function.linkage = "linkonce_odr"  # several libraries may define it
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        self._ensure_finalized()
        return self._final_module


class Once(_Compiler):
    """numba's compiler, for functions that run."""

    library: Any = _OptimisedOnce

    def compile_extra(self, function: Any) -> Any:
        """Compile a function into a library of this kind.

        With fast mathematics the library is of numba's own kind: it is optimised separately, so that all callers sum in
        the same order.
        """
        if not self.state.flags.fastmath:
            self.state.library = self.library(self.state.targetctx.codegen(), function.__qualname__)
            self.state.library.enable_object_caching()
        return super().compile_extra(function)


class OnlyLinked(Once):
    """numba's compiler, for functions that are linked into their callers and not called otherwise."""

    library: Any = _LinkedOnly


def _link_overloads(self: Any) -> Any:
    """Return numba's decorator of its own functions that compiled code calls: these too are only linked."""
    return partial(_decorator_of(self), pipeline_class=OnlyLinked, no_cfunc_wrapper=True)


def _process(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
    """Do as numba does after each pass, but skip the last uses of variables, which only the last pass needs."""
    function = self.func_ir
    if function.is_generator or (emit_dels and ConfigStack().top().nrt):
        _run(self, emit_dels, extend_lifetimes)
    else:
        function.blocks = canonicalize_cfg(function.blocks)
        function.variable_lifetime, function.generator_info = VariableLifetime(function.blocks), None


def _variables(self: Any, value: Any) -> list[Any]:
    """Return the variables in part of an instruction, like numba, but without its slow checks of abstract classes."""
    kind = type(value)
    return [value] if kind is ir.Var else [] if kind in _NO_VARIABLES else _variables_of(self, value)


def _signature(self: Any, context: Any, arguments: Any, keywords: Any) -> Any:
    """Return the signature of a call, like numba, which finds the same one again for each such call in a function."""
    key = id(self), tuple(arguments), tuple(keywords.items())
    entry = _signatures.get(key)
    if entry is None:
        entry = _signatures[key] = self, _signature_of(self, context, arguments, keywords)  # self: its id is not reused
    return entry[1]


def _load_registries(self: Any) -> None:
    """Import everything that numba can compile, once; numba does it at each failed lookup."""
    if self not in _loaded:
        _load_all(self)
        _loaded.add(self)


def _plain(self: Any, message: str, *colour: Any, **style: Any) -> str:
    """Return a message without colours: most are from failed attempts of numba, and are not shown."""
    return message


LEFT_OUT: list[tuple[Any, str, Any]] = [
    (_Instruction, "_rec_list_vars", _variables),
    (_Template, "_get_jit_decorator", _link_overloads),
    (_Processor, "run", _process),
    (_Context, "load_additional_registries", _load_registries),
    (_Function, "get_call_type", _signature),
    (llvm.ffi.lib._lock, "_cblist", []),  # numba's measurements at each call of LLVM
    *from_python.LEFT_OUT,
    (_Lower, "_find_singly_assigned_variable", _find_values),
    (_Lower, "lower_assign", _assign),
    (_Lower, "delvar", _delete),
    (_Convention, "call_function", _call),
    (_Convention, "return_status_propagate", _propagate),
    *structures.LEFT_OUT,
]
"""Replaced attributes of numba: the object, the name of the attribute, and its value."""


if hasattr(errors.termcolor(), "_markup"):
    LEFT_OUT.append((type(errors.termcolor()), "_markup", _plain))


for _place, _name, _ in LEFT_OUT:
    getattr(_place, _name)  # an unsupported numba fails here, and not during compilation
