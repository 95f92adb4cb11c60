"""Garbage collection in a process that runs an engine."""

from __future__ import annotations

import gc

CREATED = 10_000
"""Number of new containers after which Python looks for garbage among them; Python's own is 700, or 2,000."""


def collect_rarely() -> None:
    """Look for garbage less often, and never among the objects that exist now.

    The records of a poll are thousands of containers, none of which is garbage: they are freed when nothing refers to
    them any more. Only cycles have to be looked for, and an engine makes few. The setting is that of the process, so
    only commands call this.
    """
    gc.freeze()
    gc.set_threshold(CREATED)
