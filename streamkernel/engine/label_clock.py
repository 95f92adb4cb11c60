"""The clock by which labels expire: wrong times of a few events do not change it, and pauses do not count."""

from __future__ import annotations

import math
from collections.abc import Sequence

SET_BACK = 1000
"""Events in a row, all older than the time limit, after which the clock was set back."""

SET_AHEAD = 100
"""Events in a row, all further ahead than the time limit, after which the clock follows them."""


class LabelClock:
    """A clock that follows the times of events, or the time that passes while they are read.

    It never goes back. An event that is further ahead than the time limit moves it only when `SET_AHEAD` events in a
    row are, and then to the earliest of them: one wrong time must not drop all that waits. When `SET_BACK` events in a
    row are older than the time limit, it continues from their times, and pending events keep their age. `limit` is the
    time limit, in seconds. `now` is the time, in seconds.

    Examples
    --------
    >>> clock = LabelClock(60.0)
    >>> [clock.follow(time) for time in (1000.0, 1010.0, 9e9, 1005.0)], clock.now
    ([1000.0, 1010.0, 9000000000.0, 1005.0], 1010.0)
    """

    def __init__(self, limit: float) -> None:
        self.now = -math.inf
        self._limit = limit
        self._shift = 0.0  # of the events' times, since they were set back
        self._behind = self._beyond = 0  # events in a row
        self._earliest = math.inf  # of the times that are ahead
        self._read: float | None = None

    @property
    def is_in_doubt(self) -> bool:
        """Whether the last events were further ahead than the time limit."""
        return self._beyond > 0

    def follow(self, time: float) -> float:
        """Follow the time of an event, and return that time on this clock."""
        time += self._shift
        if self.now == -math.inf:
            self.now = time
        if time > self.now + self._limit:
            self._behind = 0
            self._beyond += 1
            self._earliest = min(self._earliest, time)
            if self._beyond < SET_AHEAD:
                return time
            self.now = self._earliest
        elif time < self.now - self._limit:
            self._behind += 1
            if self._behind >= SET_BACK:
                self._shift += self.now - time
                self._behind, time = 0, self.now
        else:
            self._behind = 0
            self.now = max(self.now, time)
        self._beyond, self._earliest = 0, math.inf
        return time

    def tick(self, seconds: float) -> float:
        """Follow a clock that shows `seconds`, and return the time, which starts at the first call.

        Examples
        --------
        >>> clock = LabelClock(60.0)
        >>> [clock.tick(seconds) for seconds in (500.0, 530.0, 510.0, 511.0)]
        [0.0, 30.0, 30.0, 31.0]
        """
        passed = 0.0 if self._read is None else max(0.0, seconds - self._read)
        self.now = max(self.now, 0.0) + passed
        self._read = seconds
        return self.now

    def state(self) -> tuple[float, ...]:
        """Return the complete state."""
        return self.now, self._shift, self._behind, self._beyond, self._earliest

    def restore(self, state: Sequence[float]) -> None:
        """Restore a state that `state` returned."""
        self.now, self._shift, behind, beyond, self._earliest = state
        self._behind, self._beyond, self._read = int(behind), int(beyond), None
