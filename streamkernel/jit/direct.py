"""Calls of compiled code without type dispatch of all arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

from streamkernel.jit.compiling import hold


def direct(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a compiled function for repeated calls with the same first two objects, and other arguments that vary.

    numba checks the type of every array argument to choose the machine code, and then reads each array; for the arrays
    of a model this takes as long as the mathematics of a small event. Here the types are known if the first two
    arguments are the objects of the last call that numba dispatched, and tuples of arrays among them are read once;
    they are kept, so that their arrays exist as long as what was read. The other arguments must always have the same
    types, and the function must not return arrays of the tuples; the caller is responsible for that.

    The result is a plain function: River measures the memory of a model by the objects it refers to, but does not
    look into functions, and so not into numba.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkernel.jit import compiled
    >>> @compiled
    ... def total(values, more, i):
    ...     return values[i] + more[i]
    >>> call, values, more = direct(total), np.arange(3.0), np.ones(3)
    >>> [call(values, more, i) for i in range(3)]
    [1.0, 2.0, 3.0]
    """
    remembered: tuple[Any, Any, Any, Any, Callable[..., Any]] | None = None

    def call(first: Any, second: Any, *others: Any) -> Any:
        nonlocal remembered
        last = remembered
        if last is not None and last[0] is first and last[1] is second:
            return last[4](last[2], last[3], *others)
        result = function(first, second, *others)
        code = _machine_code(function, (first, second, *others))
        remembered = None if code is None else (first, second, hold(first), hold(second), code)
        return result

    return call


class of_one_signature:  # noqa: N801
    """A compiled function whose arguments always have the same types; the caller is responsible for that.

    numba checks the types of arguments only at the first call. `call` is the machine code from then on.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkernel.jit import compiled
    >>> @of_one_signature
    ... @compiled
    ... def total(values, i):
    ...     return values[i]
    >>> [total.call(np.arange(3.0), i) for i in range(3)]
    [0.0, 1.0, 2.0]
    """

    __slots__ = ("_function", "call")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.call: Callable[..., Any] = self._first

    def _first(self, *arguments: Any) -> Any:
        result = self._function(*arguments)
        self.call = _machine_code(self._function, arguments) or self._function
        return result


def _machine_code(function: Any, arguments: tuple[Any, ...]) -> Callable[..., Any] | None:
    """Return the machine code for arguments of these types, ``None`` if the function has no separate code."""
    overloads = getattr(function, "overloads", {})
    overload = overloads.get(tuple(numba.typeof(argument) for argument in arguments))
    code: Callable[..., Any] | None = getattr(overload, "entry_point", None)
    return code
