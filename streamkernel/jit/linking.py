"""Compiled functions that others call by name.

numba copies each compiled function into all that call it and optimises the copy again, at every level of calls; for the
functions of this package that was most of the time of a first start. A unit is compiled once. Its callers find it
through a named pointer, so they can be stored on disk as well. A family is several units of one signature; a number
chooses at run time which one is called. Members that a model does not need are not compiled.

Work arrays are several in one piece of memory, because numba compiles each allocation into some hundred instructions,
with checks of the size and counts of references. For the arrays that learning an example needs that was a tenth of a
first start.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.targetconfig import ConfigStack
from numba.core.typing.npydecl import parse_dtype
from numba.core.typing.templates import AbstractTemplate
from numba.extending import intrinsic, lower_builtin
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import as_dtype

from streamkernel.jit.cache import compiled, linked_compiler, quick_to_compare, run_uninterrupted

MOST = 64
"""Largest number of members in a family."""
WORD, ALIGNED = 8, 8
"""Bytes of an element of the memory, and the number of elements of which each array begins at a multiple."""


class _Pointers:
    """Pointers to compiled functions of one signature, under a name that compiled code can refer to."""

    def __init__(self, name: str, signature: Any, count: int) -> None:
        self.signature = signature
        self.symbol = f"{name}.{hashlib.blake2b(str(signature).encode(), digest_size=8).hexdigest()}"
        self._pointers = (ctypes.c_void_p * count)()
        llvm.add_symbol(self.symbol, ctypes.addressof(self._pointers))

    def __contains__(self, index: int) -> bool:
        return self._pointers[index] is not None

    def load(self, index: int, dispatcher: Any) -> None:
        """Compile a function, or read it from disk, and set its pointer."""
        if index in self:
            return
        run_uninterrupted(dispatcher.compile, self.signature.args)
        overload = dispatcher.overloads[self.signature.args]
        if types.unliteral(overload.signature.return_type) != self.signature.return_type:
            raise TypeError(f"expected {self.signature}, got {overload.signature} - in {self.symbol}")
        self._pointers[index] = overload.library.get_pointer_to_function(overload.fndesc.llvm_func_name)

    def call(self, context: Any, builder: Any, index: Any, arguments: Any) -> Any:
        """Emit a call of the function that an index chooses."""
        module, signature = builder.module, self.signature
        table = module.globals.get(self.symbol)
        if table is None:
            table = ir.GlobalVariable(module, ir.ArrayType(cgutils.voidptr_t, len(self._pointers)), self.symbol)
            table.linkage = "external"
        pointer = builder.load(builder.gep(table, [ir.IntType(64)(0), index]))
        with builder.if_then(cgutils.is_null(builder, pointer), likely=False):
            context.call_conv.return_user_exc(builder, RuntimeError, (f"{self.symbol} has not been loaded",))
        kind = context.call_conv.get_function_type(signature.return_type, signature.args)
        function = builder.bitcast(pointer, kind.as_pointer())
        status, result = context.call_conv.call_function(
            builder, function, signature.return_type, signature.args, arguments
        )
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)
        return result


class _FromPython:
    """A function that is compiled again when Python first calls it, which cannot call the version for compiled code."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self.py_func, self._options = function, options
        self._called: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Call the function from Python."""
        if self._called is None:
            self._called = compiled(self.py_func, **self._options)
        return self._called(*arguments)


class Unit(_FromPython):
    """A compiled function that is called by name, from compiled code and from Python.

    With `is_late` it is not loaded together with its callers: the code that calls these must load it before it is first
    needed. `options` are as for :func:`streamkernel.jit.compiled`.
    """

    def __init__(self, function: Callable[..., Any], signature: Any, *, is_late: bool = False, **options: Any) -> None:
        super().__init__(function, options)
        self._is_late = is_late
        self._linked = compiled(function, no_cpython_wrapper=True, **options)
        self._pointers = _Pointers(f"{function.__module__}.{function.__qualname__}", signature, 1)
        self._numba_type_ = _callable_type(self, signature, _nothing if is_late else self.load)
        lower_builtin(self, types.VarArg(types.Any))(self._lower)

    @property
    def fingerprint(self) -> str:
        """The part that the hash of a caller includes: not the code, because the caller does not contain it."""
        return self._pointers.symbol

    def load(self) -> None:
        """Prepare the unit for calls from compiled code."""
        self._pointers.load(0, self._linked)

    def _lower(self, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if not self._is_late:
            reload = partial(_load, self.py_func.__module__, self.py_func.__qualname__)
            context.active_code_library._reload_init.add(reload)
        return self._pointers.call(context, builder, ir.IntType(64)(0), arguments)


class Family:
    """Compiled functions of one signature, of which compiled code calls the one that its first argument chooses.

    The name is unique; `signature` is of each member, without the number.
    """

    def __init__(self, name: str, signature: Any) -> None:
        self._pointers = _Pointers(f"streamkernel.{name}", signature, MOST)
        self._members: dict[int, Any] = {}
        self._numba_type_ = _callable_type(self, signature.return_type(types.int64, *signature.args), _nothing)
        lower_builtin(self, types.VarArg(types.Any))(self._lower)

    def __call__(self, number: int, *arguments: Any) -> Any:
        """Call a member from Python."""
        return self._members[number](*arguments)

    @property
    def fingerprint(self) -> str:
        """The part that the hash of a caller includes: not the members, because the caller does not contain them."""
        return self._pointers.symbol

    def __contains__(self, number: int) -> bool:
        return number in self._members

    def member(self, number: int, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        """Make a function the member of a number; it remains callable from Python.

        A function in a function gets the number in its name: if two members had one name, processes that compile one of
        them each could store both under one symbol, and a process that loads both would call one in place of the other.
        """
        if number in self._members or not 0 <= number < MOST:
            raise ValueError(f"expected a number below {MOST} that no other member has, got {number}")

        def decorate(function: Callable[..., Any]) -> Any:
            if function.__closure__:
                function.__qualname__ += f"_{number}"
            self._members[number] = compiled(function, **options)
            return self._members[number]

        return decorate

    def require(self, number: int) -> None:
        """Prepare a member for calls from compiled code."""
        self._pointers.load(number, self._members[number])

    def _lower(self, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, *others = arguments
        return self._pointers.call(context, builder, number, others)


class Inlined(_FromPython):
    """A function that is compiled into each compiled function that calls it, and for Python only if that calls it too.

    `allocates` says whether it counts references, as for :func:`streamkernel.jit.compiled`. If it returns arrays, its
    callers have to do the same. ``None``: as its callers do, which give ``None`` as the first argument if they count
    references, and the memory of :func:`streamkernel.jit.work_array` if they do not. `options` are as for
    :func:`numba.njit`.
    """

    def __init__(self, function: Callable[..., Any], *, allocates: bool | None = True, **options: Any) -> None:
        if function.__name__ == "<lambda>":  # else all have one name, and are confused as members of a family are
            function.__qualname__ += f"_{function.__code__.co_firstlineno}"
        super().__init__(function, options | {"allocates": allocates is not False})
        alone = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True} | linked_compiler
        alone |= {} if allocates is None else {"_nrt": allocates}
        self._dispatcher, self._allocates = quick_to_compare(numba.njit(function, **options | alone)), allocates
        self._dispatcher.get_call_template = partial(self._check_call, self._dispatcher.get_call_template)
        self._numba_type_, self.targetoptions = self._dispatcher._numba_type_, self._dispatcher.targetoptions

    def _check_call(self, template_of: Callable[..., Any], arguments: Any, keywords: Any) -> Any:
        """Let numba compile a call, unless references to arrays would be lost or counted twice."""
        arguments = tuple(types.unliteral(one) if isinstance(one, types.IntegerLiteral) else one for one in arguments)
        called = template_of(arguments, keywords)
        counts, signatures = bool(ConfigStack().top().nrt), self._dispatcher.nopython_signatures
        returned = [part for signature in signatures for part in _parts(signature.return_type)]
        expected = arguments[0] == types.none if self._allocates is None else self._allocates
        if counts != expected and any(isinstance(part, types.Array) for part in returned):
            raise TypeError(f"expected allocates={counts} as in what calls it - in {self.py_func.__qualname__}")
        return called


def _parts(kind: Any) -> list[Any]:
    """Return the types in a type: the ones in a tuple, or itself."""
    members: Any = kind
    return [part for one in members for part in _parts(one)] if isinstance(kind, types.BaseTuple) else [kind]


def inlined(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make a function :class:`Inlined`."""
    return partial(Inlined, **options) if function is None else Inlined(function, **options)


def unit(signature: Any, *, is_late: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Unit]:
    """Make a function a :class:`Unit`."""
    return lambda function: Unit(function, signature, is_late=is_late, **options)


def _nothing() -> None:
    """Do nothing: there is nothing to load."""


def _load(module: str, name: str) -> None:
    """Load a unit when code that calls it is read from disk."""
    getattr(importlib.import_module(module), name).load()


def _callable_type(key: Any, signature: Any, load: Callable[[], None]) -> Any:
    """Return numba's type of something that can be called with one signature."""

    def generic(self: Any, arguments: Any, keywords: Any) -> Any:
        load()
        return signature if len(arguments) == len(signature.args) and not keywords else None

    return types.Function(type("Linked", (AbstractTemplate,), {"key": key, "generic": generic}))


def _work_array(typing_context: Any, memory: Any, shape: Any, dtype: Any) -> Any:
    """Return an array with arbitrary values.

    If `memory` is ``None``, it is a new one. Otherwise `memory` is an array of int64, whose first value is the number
    of elements in use, at least `ALIGNED`: the array is the next part of it, and may be used while `memory` exists.
    The part may lie beyond the end of `memory`; then the array must not be used, and the number in use shows how large
    `memory` has to be.
    """
    kind = parse_dtype(dtype)
    n_axes = len(shape) if isinstance(shape, types.BaseTuple) else 1
    array_type = types.Array(kind, n_axes, "C")

    def allocate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        item_type = as_dtype(kind)

        def new(shape: Any) -> Any:
            return np.empty(shape, item_type)

        return context.compile_internal(builder, new, array_type(shape), [arguments[1]])

    def cut(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        intp, size = context.get_value_type(types.intp), as_dtype(kind).itemsize
        lengths = cgutils.unpack_tuple(builder, arguments[1]) if isinstance(shape, types.BaseTuple) else [arguments[1]]
        steps = [intp(size)]
        for length in reversed(lengths):
            steps.insert(0, builder.mul(steps[0], length))
        used = make_array(memory)(context, builder, arguments[0]).data
        first = builder.load(used)
        whole = WORD * ALIGNED
        more = builder.and_(builder.add(steps[0], intp(whole - 1)), intp(-whole))
        builder.store(builder.add(first, builder.sdiv(more, intp(WORD))), used)
        array = make_array(array_type)(context, builder)
        data = builder.bitcast(builder.gep(used, [first]), array.data.type)
        populate_array(array, data=data, shape=lengths, strides=steps[1:], itemsize=size, meminfo=None)
        return array._getvalue()

    return array_type(memory, shape, dtype), allocate if memory == types.none else cut


work_array: Any = intrinsic(_work_array)


@inlined
def work_memory(words):  # type: ignore[no-untyped-def]
    """Return memory of a size for work arrays; the smallest one, `ALIGNED`, only measures what they need."""
    memory = np.empty(words, np.int64)
    memory[0] = ALIGNED
    return memory
