"""The process that owns an object with threads or descriptors: a child that is forked has none of the threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from weakref import WeakSet

_OWNERS: WeakSet[Owner] = WeakSet()


class Owner:
    """The process that made an object: a child that is forked cannot use the object, and does not keep it open.

    `name` is the object in the error. `release` is called in a child; it closes descriptors, writes nothing, and may be
    called again.

    Examples
    --------
    >>> Owner("sink").check()
    """

    def __init__(self, name: str, release: Callable[[], object] = lambda: None) -> None:
        self.release = release
        self._name, self._process = name, os.getpid()
        _OWNERS.add(self)

    @property
    def is_here(self) -> bool:
        """Whether this is the process; elsewhere, there is nothing left to close."""
        return os.getpid() == self._process

    def check(self) -> None:
        """Raise a `RuntimeError` in another process, which is a child."""
        if not self.is_here:
            raise RuntimeError(
                f"Expected the {self._name} to be used in process {self._process}, which made it, got a call in "
                f"process {os.getpid()}, which was forked; a child can use models, and opens all else itself"
            )


def _release() -> None:
    for owner in list(_OWNERS):
        with suppress(OSError):  # the thread that had just closed it is not here
            owner.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release)
