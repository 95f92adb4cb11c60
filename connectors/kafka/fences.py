"""Members that brokers have fenced: another member joined under their name."""

from __future__ import annotations

import logging
import math
import time

RIVAL_SECONDS = 60.0
"""Seconds within which a second fence shows that another process has the same name."""

log = logging.getLogger(__name__)


class Fences:
    """Decides whether a fenced member joins again.

    The first time it does. The other member may be gone, and there need not be one: when brokers respond again after a
    session timeout, librdkafka sends a heartbeat without its id, for which it is fenced (its issue 3437). That happens
    at most once in a session timeout, but another process that runs joins again within seconds. So a second fence
    within a minute is an error: both would take the partitions from each other without end. `member` is the name of the
    member in the group.

    Examples
    --------
    >>> fences = Fences("one")
    >>> fences.add()
    >>> fences.add()
    Traceback (most recent call last):
    OSError: Expected one process with the name 'one' (group.instance.id) in the group, got another one beside this
    process; stop one of them, or give it a state directory of its own
    """

    def __init__(self, member: str | None) -> None:
        self._member, self._last = member, -math.inf

    def add(self) -> None:
        """Record a fence; raise an `OSError` if it shows that another process has the name."""
        now = time.monotonic()
        if now - self._last < RIVAL_SECONDS:
            raise OSError(
                f"Expected one process with the name {self._member!r} (group.instance.id) in the group, got another "
                "one beside this process; stop one of them, or give it a state directory of its own"
            )
        self._last = now
        log.warning("the brokers have fenced this member of the group; joining again under the same name")
