"""A sample of a stream, offered to a run again and again: as fast as it is processed, or at a rate."""

from __future__ import annotations

import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from streamkernel.connectors import Event, Source
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.checkpoint import state_directory
from streamkernel.engine.config.config import Config, replay_config

AT_ONCE = 256
"""Events of one poll."""

MOST = 20_000
"""Events in a sample."""

SAMPLE_SECONDS = 30.0
"""The longest time to wait for a sample."""

BUSY = 0.7
"""The recommended share of a process's capacity; the rest is for peaks and for catching up."""


class Sample(NamedTuple):
    """The first events of a stream, and the seconds that it took to read one."""

    events: list[Event]
    seconds: float


def read_sample(source: Source, stopping: Callable[[], bool], clock: Callable[[], float] = time.perf_counter) -> Sample:
    """Read the first events of a source, and close it. Raise `ValueError` if it has no events."""
    events: list[Event] = []
    spent, began = 0.0, clock()
    with closing(source):
        while len(events) < MOST and clock() - began < SAMPLE_SECONDS and not stopping():
            asked = clock()
            polled = source.poll(0.2)
            if polled is None:
                break
            spent += clock() - asked if polled else 0.0
            events += [event for event in polled if not event.is_position_only]
    if not events:
        raise ValueError("expected a source with records, got none")
    return Sample(events[:MOST], spent / len(events))


class Load(Source):
    """A source that repeats the events of a sample; subclasses determine when they are offered.

    `seconds` is the time after the first poll until it ends. `clock` returns the time in seconds.
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
        events = self._next_events(now - self._began, timeout)
        if events is None:
            self.ended = now
        return events

    def _next_events(self, elapsed: float, timeout: float) -> Sequence[Event] | None:
        """Return the events for a poll `elapsed` seconds after the first one."""
        raise NotImplementedError

    def seek(self, positions: Mapping[str, Any]) -> None:
        """Do nothing: a load has no positions."""

    def lag(self) -> Mapping[tuple[str, str], int]:
        """Return no lag, because the backlog is measured here."""
        return {}

    def _next(self, n: int) -> list[Event]:
        self.offered += n
        return list(itertools.islice(self._events, n))


class FullLoad(Load):
    """Offers events as fast as they are processed."""

    _halfway: tuple[float, int] | None = None
    rate = 0.0
    """Events per second in the second half of the time."""

    def _next_events(self, elapsed: float, timeout: float) -> Sequence[Event] | None:
        """Return the next events; the events of the last poll have been processed."""
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

    `sample`, `seconds` and `clock` are as for :class:`Load`. `rate` is in events per second. `sleep` waits for some
    seconds.
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

    def _next_events(self, elapsed: float, timeout: float) -> Sequence[Event] | None:
        """Return the events that are due, or wait for the next one."""
        if elapsed >= self._seconds:
            return None
        due = self.offered / self._rate
        if due > elapsed:
            self._sleep(min(timeout, due - elapsed))
            return ()
        self.late.append(elapsed - due)
        return self._next(min(AT_ONCE, int((elapsed - due) * self._rate) + 1))


@dataclass(frozen=True)
class Sizing:
    """The needs of one process of a run on this machine.

    `refused` are dead letters among the events. `features` are the model's at the end; ``None`` for a model that is not
    ours. `rate` is in events per second that one process can read, predict, learn and write, checkpoints included.
    `memory` is the largest of the process, in bytes; ``None`` if the system does not report it. `checkpoint_seconds` is
    the time for which a checkpoint pauses the run, and `interval` the time between two. `wanted` are events per second
    that the processes together should process. `late` is the median and the largest delay in seconds between the time
    when an event was due and the time when it was taken, at the rate of one of the processes.
    """

    events: int
    refused: int
    features: int | None
    rate: float
    memory: int | None
    checkpoint_bytes: int
    checkpoint_seconds: float
    interval: float
    wanted: float
    late: tuple[float, float]

    @property
    def processes(self) -> int:
        """The number of processes, each at most at seven tenths of its capacity."""
        return processes_for(self.wanted, self.rate)

    def rows(self) -> list[tuple[str, str]]:
        """Return the figures as users see them: a name and a text for each."""
        share = self.wanted / self.processes
        pause = _seconds(self.checkpoint_seconds)
        catching_up = 60.0 * share / (self.rate - share)
        rows = [
            ("events processed to measure", f"{self.events:,}"),
            ("events/s of one process", f"{self.rate:,.0f}"),
            ("memory of one process", "unknown" if self.memory is None else f"{self.memory / 1e6:,.0f} MB"),
            ("checkpoint", f"{self.checkpoint_bytes / 1e6:.2f} MB, {pause}, every {self.interval:g} s"),
            (f"processes for {self.wanted:,.0f} events/s", f"{self.processes:,}, each {share / self.rate:.0%} busy"),
            (f"lag at {share:,.0f} events/s", f"median {_seconds(self.late[0])}, largest {_seconds(self.late[1])}"),
            ("to catch up after a minute's stop", f"{catching_up:,.0f} s"),
        ]
        if self.features is not None:
            rows.insert(1, ("features of the model then", f"{self.features:,}"))
        if self.refused:
            rows.insert(1, ("dead letters among them", f"{self.refused:,}"))
        return rows


def processes_for(wanted: float, rate: float) -> int:
    """Return the number of processes of a capacity that are needed.

    Examples
    --------
    >>> processes_for(10_000.0, 5_000.0)  # at 70 % of 5,000 events/s
    3
    """
    return max(1, math.ceil(wanted / (BUSY * rate)))


def measure(
    config: Config,
    folder: Path,
    wanted: float | None,
    seconds: float,
    tell: Callable[[str], None] = lambda doing: None,
    stopping: Callable[[], bool] = lambda: False,
) -> Sizing:
    """Run the events of a configuration for some seconds in another folder, and change nothing else.

    The first events of the source are read into memory and processed again and again: first as fast as possible, then
    at the rate of one process. Predictions and dead letters go to files of the folder, and checkpoints too. Raise
    `ConfigError` if the source cannot be read again, as requests over HTTP; `ValueError` if there are no events, or it
    was stopped before there were figures. `folder` is an empty folder. `wanted` is in events per second; by default the
    recommended rate of one process. `seconds` is the time of each of the two measurements.
    """
    replayed = replay_config(config, folder, None, None)
    tell("reading the first events")
    sample = read_sample(replayed.build_source(), stopping)
    tell("as many events as possible")
    full = FullLoad(sample.events, seconds)
    _run(replayed, full, stopping)
    if full.ended is None:
        raise ValueError("expected a measurement to its end, got a stop before it")
    checkpoint = time.perf_counter() - full.ended
    rate = (1.0 - min(0.5, checkpoint / replayed.state.checkpoint_seconds)) / (1.0 / full.rate + sample.seconds)
    wanted = BUSY * rate if wanted is None else wanted
    share = wanted / processes_for(wanted, rate)
    tell(f"{share:,.0f} events per second")
    steady = SteadyLoad(sample.events, seconds, share)
    engine = _run(replayed, steady, stopping)
    if steady.ended is None:
        raise ValueError("expected a measurement to its end, got a stop before it")
    model = engine.kernel_model
    return Sizing(
        events=full.offered + steady.offered,
        refused=engine.outcomes["dead_letter"],
        features=None if model is None else model.n_features,
        rate=rate,
        memory=_peak_memory(),
        checkpoint_bytes=list(state_directory.history(folder))[-1].size,
        checkpoint_seconds=checkpoint,
        interval=replayed.state.checkpoint_seconds,
        wanted=wanted,
        late=(statistics.median(steady.late), max(steady.late)) if steady.late else (0.0, 0.0),
    )


def _run(config: Config, load: Load, stopping: Callable[[], bool]) -> Any:
    """Process a load as a run would, which continues from its last checkpoint."""
    engine = engine_of(config, load)
    engine.run(stopping=stopping)
    return engine


def _peak_memory() -> int | None:
    """Return the largest memory of this process so far, in bytes."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _seconds(value: float) -> str:
    return f"{1000.0 * value:,.1f} ms" if value < 1.0 else f"{value:,.1f} s"
