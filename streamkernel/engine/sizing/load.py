"""A sample of a stream, offered to a run again and again: as fast as it is processed, or at a rate."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from streamkernel.connectors import Event, Source

AT_ONCE = 256
"""Events of one poll."""

MOST = 20_000
"""Events in a sample."""

SAMPLE_SECONDS = 30.0
"""The longest time to wait for a sample."""


class Sample(NamedTuple):
    """The first events of a stream.

    Attributes
    ----------
    events : list of Event
        At most 20,000.
    seconds : float
        The time that it took to read one.
    """

    events: list[Event]
    seconds: float


def read_sample(source: Source, stopping: Callable[[], bool], clock: Callable[[], float] = time.perf_counter) -> Sample:
    """Read the first events of a source, and close it.

    Raises
    ------
    ValueError
        If it has no events.
    """
    events: list[Event] = []
    spent, began = 0.0, clock()
    try:
        while len(events) < MOST and clock() - began < SAMPLE_SECONDS and not stopping():
            asked = clock()
            found = source.poll(0.2)
            if found is None:
                break
            spent += clock() - asked if found else 0.0
            events += [event for event in found if not event.is_position_only]
    finally:
        source.close()
    if not events:
        raise ValueError("expected a source with records, got none")
    return Sample(events[:MOST], spent / len(events))


class Load(Source):
    """A source that repeats the events of a sample; subclasses determine when they are offered.

    Parameters
    ----------
    sample
        The events.
    seconds
        The time after the first poll until it ends.
    clock
        Returns the time in seconds.
    """

    def __init__(self, sample: Sequence[Event], seconds: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._events: Iterator[Event] = itertools.cycle(sample)
        self._clock, self._seconds = clock, seconds
        self._began: float | None = None
        self.offered = 0
        self.ended: float | None = None
        """The time of the clock when the source ended; what a run does then is its last checkpoint."""

    def poll(self, timeout: float) -> Sequence[Event] | None:
        """Return the next events, none if no event is due, and ``None`` after the time."""
        now = self._clock()
        if self._began is None:
            self._began = now
        found = self._offer(now - self._began, timeout)
        if found is None:
            self.ended = now
        return found

    def _offer(self, elapsed: float, timeout: float) -> Sequence[Event] | None:
        """Return the events for a poll `elapsed` seconds after the first one."""
        raise NotImplementedError

    def seek(self, positions: Mapping[str, Any]) -> None:
        """Do nothing: a load has no positions."""

    def lag(self) -> Mapping[tuple[str, str], int]:
        """Return no lag, because the backlog is measured here."""
        return {}

    def close(self) -> None:
        """Do nothing, because no resource is open."""

    def _next(self, n: int) -> list[Event]:
        self.offered += n
        return list(itertools.islice(self._events, n))


class FullLoad(Load):
    """Offers events as fast as they are processed."""

    _halfway: tuple[float, int] | None = None
    rate = 0.0
    """Events per second in the second half of the time."""

    def _offer(self, elapsed: float, timeout: float) -> Sequence[Event] | None:
        """Return the next events, those of the last poll having been processed."""
        if elapsed >= self._seconds / 2.0:
            if self._halfway is None:
                self._halfway = elapsed, self.offered
            else:
                began, before = self._halfway
                self.rate = (self.offered - before) / (elapsed - began)
                if elapsed >= self._seconds:
                    return None
        return self._next(AT_ONCE)


class SteadyLoad(Load):
    """Offers events when they are due at a rate, and measures how late they are taken.

    Parameters
    ----------
    sample, seconds, clock
        As for :class:`Load`.
    rate
        Events per second.
    sleep
        Waits for some seconds.
    """

    def __init__(
        self,
        sample: Sequence[Event],
        seconds: float,
        rate: float,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(sample, seconds, clock)
        self._rate, self._sleep = rate, sleep
        self.late: list[float] = []
        """For each poll with events, the time in seconds for which the first of them had been due."""

    def _offer(self, elapsed: float, timeout: float) -> Sequence[Event] | None:
        """Return the events that are due, or wait for the next one."""
        if elapsed >= self._seconds:
            return None
        due = self.offered / self._rate
        if due > elapsed:
            self._sleep(min(timeout, due - elapsed))
            return ()
        self.late.append(elapsed - due)
        return self._next(min(AT_ONCE, int((elapsed - due) * self._rate) + 1))
