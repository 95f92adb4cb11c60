"""Calls of compiled code without finding out the types of all arguments each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


class Direct:
    """A compiled function that is called again and again with the same objects, and with others that vary.

    numba looks at the type of every array that a call is given, to choose the machine code for it; for the arrays of
    a model this takes as long as the mathematics of a small event. Here the types are known where the two first
    arguments are the objects of the last call that numba looked at. What varies has to be of the same types always;
    that is the caller's promise.

    Parameters
    ----------
    function
        The compiled function.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkernel.jit import compiled
    >>> @compiled
    ... def total(values, more, i):
    ...     return values[i] + more[i]
    >>> call, values, more = Direct(total), np.arange(3.0), np.ones(3)
    >>> [call(values, more, i) for i in range(3)]
    [1.0, 2.0, 3.0]
    """

    __slots__ = ("_function", "_known")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._known: tuple[Any, Any, Callable[..., Any]] | None = None

    def __call__(self, first: Any, second: Any, *others: Any) -> Any:
        """Return what the function returns."""
        known = self._known
        if known is not None and known[0] is first and known[1] is second:
            return known[2](first, second, *others)
        found = self._function(first, second, *others)
        code = _machine_code(self._function, (first, second, *others))
        self._known = None if code is None else (first, second, code)
        return found

    def __reduce__(self) -> tuple[type[Direct], tuple[Callable[..., Any]]]:
        """Return what it is made of; a copy looks at types anew."""
        return Direct, (self._function,)


def _machine_code(function: Any, arguments: tuple[Any, ...]) -> Callable[..., Any] | None:
    """Return the machine code for arguments of these types, ``None`` if there is none of its own."""
    overloads = getattr(function, "overloads", {})
    found = overloads.get(tuple(numba.typeof(argument) for argument in arguments))
    code: Callable[..., Any] | None = getattr(found, "entry_point", None)
    return code
