"""Steps of numba's compilation that are skipped: their results are not used, and they take a third of a first start."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self
from weakref import WeakSet

import llvmlite.binding as llvm
from numba.core import errors, ir
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags
from numba.core.compiler_lock import global_compiler_lock
from numba.core.cpu import CPUContext
from numba.core.postproc import PostProcessor, VariableLifetime
from numba.core.targetconfig import ConfigStack
from numba.core.transforms import canonicalize_cfg
from numba.core.types.functions import BaseFunction
from numba.core.typing.templates import _OverloadFunctionTemplate

from streamkernel.jit import calls, from_python, indexing, lowering, structures

_Library: Any = JITCodeLibrary
_Compiler: Any = Compiler
_Template: Any = _OverloadFunctionTemplate
_Processor: Any = PostProcessor
_Instruction: Any = ir.Inst
_Context: Any = CPUContext
_Function: Any = BaseFunction


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
        calls.drop_unused(module)
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
    known = _signatures.get(key)
    if known is None:
        known = _signatures[key] = self, _signature_of(self, context, arguments, keywords)  # self: its id is not reused
    return known[1]


def _load_registries(self: Any) -> None:
    """Import everything that numba can compile, once; numba does it at each failed lookup."""
    if self not in _loaded:
        _load_all(self)
        _loaded.add(self)


def _plain(self: Any, message: str, *colour: Any, **style: Any) -> str:
    """Return a message without colours: most are from failed attempts of numba, and are not shown."""
    return message


_decorator_of, _run, _variables_of = _Template._get_jit_decorator, _Processor.run, _Instruction._rec_list_vars
_load_all, _signature_of = _Context.load_additional_registries, _Function.get_call_type
_signatures: dict[Any, tuple[Any, Any]] = {}
_loaded: WeakSet[Any] = WeakSet()
_NO_VARIABLES = frozenset({ir.Loc, str, int, bool, type(None)})
LEFT_OUT: list[tuple[Any, str, Any]] = [
    (_Instruction, "_rec_list_vars", _variables),
    (_Template, "_get_jit_decorator", _link_overloads),
    (_Processor, "run", _process),
    (_Context, "load_additional_registries", _load_registries),
    (_Function, "get_call_type", _signature),
    (llvm.ffi.lib._lock, "_cblist", []),  # numba's measurements at each call of LLVM
    *from_python.LEFT_OUT,
    *lowering.LEFT_OUT,
    *structures.LEFT_OUT,
    *indexing.LEFT_OUT,
    *calls.LEFT_OUT,
]
"""Replaced attributes of numba: the object, the name of the attribute, and its value."""
if hasattr(errors.termcolor(), "_markup"):
    LEFT_OUT.append((type(errors.termcolor()), "_markup", _plain))
for _place, _name, _ in LEFT_OUT:
    getattr(_place, _name)  # an unsupported numba fails here, and not during compilation
