"""What compiling does not do here, since nothing uses it and it takes a third of the time of a first start."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import llvmlite.binding as llvm
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags

_Library: Any = JITCodeLibrary
_Compiler: Any = Compiler


@contextmanager
def no_garbage_collected() -> Iterator[None]:
    """Collect no garbage meanwhile: numba makes millions of objects, most of which stay."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Flags(Flags):
    """numba's options of a function, compared by those that are set: numba compares them for each operation there is
    in a function, a hundred thousand times in a first start, and reads all there are with their defaults each time.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Flags) and self._values == other._values)

    def __hash__(self) -> int:
        return 0  # the same for all: options change after they were put in a table


def quick_to_compare(dispatcher: Any) -> Any:
    """Return a compiled function whose options numba compares in no time."""
    dispatcher._compiler._customize_flags = _Flags
    return dispatcher


class _LinkedOnly(_Library):
    """Code that only others are made of: it is optimised where it has been linked into them, and not run itself."""

    @property
    def codegen(self) -> Self:
        return self

    def set_env(self, *environment: Any) -> None:
        """Do nothing: only functions that Python calls have an environment."""

    def get_pointer_to_function(self, name: str) -> int:
        """Return that there is no machine code."""
        self._ensure_finalized()
        return 0

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == llvm.Linkage.external:
                function.linkage = "linkonce_odr"  # callers may have it from several
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        self._ensure_finalized()
        return self._final_module


class OnlyLinked(_Compiler):
    """numba's compiler, for functions that are linked into their callers and not called otherwise."""

    def compile_extra(self, function: Any) -> Any:
        """Compile a function into such a library."""
        self.state.library = _LinkedOnly(self.state.targetctx.codegen(), function.__qualname__)
        return super().compile_extra(function)
