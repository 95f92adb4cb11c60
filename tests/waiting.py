"""How tests wait: for a condition, with a limit that only stops what hangs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LIMIT = 240.0
"""Seconds: more than anything takes that is waited for on a busy machine, and little where it never comes."""


def wait_for(condition: Callable[[], T], seconds: float = LIMIT, what: Callable[[], object] = lambda: "") -> T:
    """Return what a condition returns as soon as that is true.

    Parameters
    ----------
    condition
        The condition, which is evaluated repeatedly.
    seconds
        The limit.
    what
        Returns what the error says beside the limit, such as a log.

    Raises
    ------
    AssertionError
        If it is not true before the limit.

    Examples
    --------
    >>> polls = iter([[], [], ["event"]])
    >>> wait_for(lambda: next(polls))
    ['event']
    """
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"waited for {seconds:g} s: {what()}"
        time.sleep(0.02)
    return found
