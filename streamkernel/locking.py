"""A lock for methods: one thread at a time, and a defined result where a thread interrupts itself.

Python runs signal handlers, finalizers and log handlers between any two lines of a call, in its thread. What these call
cannot wait for the call that they interrupt. So the lock knows its thread: a method that changes the object is refused
there, and one that reads it reads a copy, which is as the object would be after an exception at that line.

Such a handler may raise an exception, also where a lock has just been taken. CPython calls handlers when a call has
returned, at the start of a function and at the end of a loop's body. So a lock is taken inside the `try` block whose
`finally` block releases it, and nothing is called between the two. A `with` block does not suffice: since Python 3.14,
handlers run between the call of ``__enter__`` and the block.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from functools import wraps
from threading import RLock, get_ident
from types import FrameType
from typing import Any, TypeVar, cast
from weakref import WeakSet

from numba.core.compiler_lock import global_compiler_lock

Method = TypeVar("Method", bound=Callable[..., Any])
Result = TypeVar("Result")

_LOCKS: WeakSet[OwnedLock] = WeakSet()
_UNDIVIDED: WeakSet[Any] = WeakSet()
_HELD: dict[int, list[Any]] = {}

COMPILING = RLock()
"""Held while code is compiled or loaded, which imports modules: in a child, an import in progress would never end."""


class OwnedLock:
    """A lock that knows whether the thread that asks for it holds it already.

    Other threads wait for `turn`; the thread that holds it does not. `is_busy` says whether a method runs, in any
    thread.
    """

    __slots__ = ("__weakref__", "is_busy", "turn")

    def __init__(self) -> None:
        self.turn, self.is_busy = RLock(), False
        _LOCKS.add(self)


def refuse(method: Callable[..., Any], owner: Any, *arguments: Any, **options: Any) -> Any:
    """Raise an error for a change inside another call of the same thread."""
    frames = [frame for frame, _ in traceback.walk_stack(None) if isinstance(_locked_by(frame), type(owner))]
    indices = [i for i, frame in enumerate(frames) if _locked_by(frame) is owner]
    outermost = max(i for i in indices if frames[i].f_code.co_filename == __file__)  # the call that holds the lock
    inner = [*_public_names(frames[:outermost]), method.__name__][0]
    outer = ["another call", *_public_names([frames[i] for i in indices if i > outermost - 3])][-1]
    raise RuntimeError(
        f"Expected no change of a {getattr(owner, 'name', type(owner).__name__)} in the middle of {outer}, got {inner} "
        "in the same thread, as from the handler of a signal or of a log, or from a finalizer; these may predict, save "
        f"and copy: set a flag there, and call {inner} when {outer} has returned"
    )


def _locked_by(frame: FrameType) -> Any:
    """Return the object whose method a frame runs, or the ``_model`` of this object, which has the lock then."""
    instance = frame.f_locals.get("self")
    return getattr(instance, "__dict__", {}).get("_model", instance)


def _public_names(frames: list[FrameType]) -> list[str]:
    """Return the names of public methods, of the objects that own a model where there are any."""
    frames = [frame for frame in frames if frame.f_code.co_filename != __file__]
    frames = [frame for frame in frames if _locked_by(frame) is not frame.f_locals.get("self")] or frames
    names = [frame.f_code.co_name for frame in frames]
    return [name for name in names if name.isidentifier() and (name[0] != "_" or name[-2:] == "__")]


def on_copy(method: Callable[..., Any], owner: Any, *arguments: Any, **options: Any) -> Any:
    """Call a method of a copy, in which the change in progress is completed or undone."""
    return method(owner._completed_copy(), *arguments, **options)  # noqa: SLF001 - a part of `locked`


def locked(inside: Callable[..., Any] = refuse) -> Callable[[Method], Method]:
    """Run a method in one thread at a time, by the ``_lock`` of its object.

    `inside` is called with the method and its arguments if the thread runs another such method of the object already.

    Examples
    --------
    >>> class Counter:
    ...     def __init__(self):
    ...         self._lock, self.n = OwnedLock(), 0
    ...     @locked()
    ...     def increment(self, then=None):
    ...         self.n += 1
    ...         return then() if then else self._lock.is_busy
    >>> counter = Counter()
    >>> counter.increment(), counter._lock.is_busy
    (True, False)
    >>> counter.increment(then=counter.increment)
    Traceback (most recent call last):
    ...
    RuntimeError: Expected no change of a Counter in the middle of increment, got increment in the same thread, ...
    """

    def decorate(method: Method) -> Method:
        @wraps(method)
        def run(self: Any, *arguments: Any, **options: Any) -> Any:
            lock: OwnedLock = self._lock
            try:
                lock.turn.acquire()
                if lock.is_busy:
                    return inside(method, self, *arguments, **options)
                try:
                    lock.is_busy = True
                    return method(self, *arguments, **options)
                finally:
                    lock.is_busy = False
            finally:
                try:  # noqa: SIM105 - `suppress` would be a call before the release
                    lock.turn.release()
                except RuntimeError:  # not taken: an exception has ended the wait
                    pass

        return cast(Method, run)

    return decorate


def holding(lock: Any, call: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function while a lock of the type RLock is held, and release it in every case, like `locked`."""
    try:
        lock.acquire()
        return call(*arguments)
    finally:
        try:  # noqa: SIM105
            lock.release()
        except RuntimeError:  # not taken: an exception has ended the wait
            pass


def undivided() -> Any:
    """Return a lock for calls that change a state without the interpreter's lock: no process is forked during one."""
    lock = RLock()
    _UNDIVIDED.add(lock)
    return lock


def _before_fork() -> None:
    """Wait until no thread is in an undivided call or compiles: the first of such calls may compile."""
    held = _HELD[get_ident()] = [*sorted(_UNDIVIDED, key=id), COMPILING, global_compiler_lock]
    for lock in held:
        lock.acquire()


def _after_fork() -> None:
    for lock in reversed(_HELD.pop(get_ident())):
        lock.release()


def _renew() -> None:
    """Free the locks that threads of the parent process held; what they were changing, the next call completes."""
    _after_fork()
    for lock in list(_LOCKS):
        if lock.turn.acquire(blocking=False):  # free, or of the thread that has forked, which goes on
            lock.turn.release()
        else:
            lock.turn, lock.is_busy = RLock(), False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_renew)
