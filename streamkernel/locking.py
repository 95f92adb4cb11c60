"""A lock for methods: one thread at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])


def locked(method: Method) -> Method:
    """Run a method in one thread at a time, by the ``_lock`` of its object.

    Examples
    --------
    >>> from threading import Lock
    >>> class Counter:
    ...     def __init__(self):
    ...         self._lock, self.n = Lock(), 0
    ...     @locked
    ...     def increment(self):
    ...         self.n += 1
    ...         return self._lock.locked()
    >>> counter = Counter()
    >>> counter.increment(), counter._lock.locked()
    (True, False)
    """

    @wraps(method)
    def run(self: Any, *arguments: Any, **options: Any) -> Any:
        # In one line, so that a tracing function which raises an exception at a line cannot come before the release.
        with self._lock: return method(self, *arguments, **options)  # noqa: E701  # fmt: skip

    return cast(Method, run)
