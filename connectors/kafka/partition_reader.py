"""Reading of assigned partitions: their positions and end offsets, fetched records, and the next record."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import compress
from math import inf

from streamkernel.connectors.base import DecoderUnavailableError, Event, Position, Trouble, UnavailableError
from streamkernel.connectors.kafka.clients import (
    ANSWER_SECONDS,
    LOOK_SECONDS,
    Consumer,
    OffsetGoneError,
    Partition,
    Record,
)
from streamkernel.connectors.kafka.events import Buffers, Events, Retry, Run, gap_event
from streamkernel.connectors.kafka.offsets import Start, StartOffsets, missing_topic, resolve_offset

log = logging.getLogger(__name__)

ALIVE_SECONDS = 1.0
"""Seconds between two polls of a consumer while buffered records are available."""

SLICE, LARGEST = 128, 512
"""Events that `PartitionReader.poll` returns at most: at first, and where they are processed quickly."""

QUICK_SECONDS = 0.25
"""The next poll returns twice as many events if the last ones took less: it is called often all the same."""

AGAIN_SECONDS = 5.0
"""Seconds between two checks while something is wrong, and between two requests for end offsets."""


class PartitionReader:
    """Reads the assigned partitions, each from its start offset to the end `until`, ``None`` for no end.

    With `in_turn`, there is one event of each partition in turn.
    """

    def __init__(self, start_offsets: StartOffsets, events: Events, *, until: Start | None, in_turn: bool) -> None:
        self._start_offsets, self._until = start_offsets, until
        self._event, self._events_of = events.of, events.of_all
        self._retry = Retry()
        self._buffers = Buffers(in_turn=in_turn)
        self._next: dict[Partition, int] = {}  # of the partitions we have, the offset of the next event
        self._new: set[Partition] = set()  # partitions whose beginning is not known yet
        self._left: dict[Partition, Position] = {}  # where we were in partitions that were taken away in order
        self._ends: dict[Partition, int] = {}
        self._readable = PartitionEnds()
        self._events: list[Event] = []  # that stand for no record, to be returned next
        self._polled = 0.0
        self._returned = 0, -inf  # the number of events of the last poll, and when it ended

    @property
    def trouble(self) -> Trouble | None:
        """The problem of the decoder's last call."""
        return self._retry.trouble

    @property
    def partitions(self) -> list[Partition]:
        """The partitions that are read."""
        return list(self._next)

    def add(self, partitions: Iterable[Partition]) -> None:
        """Add partitions; the next `poll` determines their start offsets."""
        for partition in partitions:
            self._buffers.drop(partition, self._start_offsets.own.get(partition))
            self._next[partition] = 0
            self._start_offsets.forget(partition)
            self._new.add(partition)

    def remember(self, partitions: Sequence[Partition]) -> None:
        """Keep the positions of partitions that are about to be revoked."""
        read = self._next.keys() - self._new
        self._left.update((p, self._buffers.position(p, self._next[p])) for p in partitions if p in read)

    def remove(self, partitions: Sequence[Partition]) -> None:
        """Remove partitions and their events that have not been returned."""
        for partition in partitions:
            offset = self._next.pop(partition, None)
            if offset is not None and partition not in self._new:  # else our own position is still to be used
                self._start_offsets.leave(partition, self._buffers.position(partition, offset))
            self._buffers.drop(partition)
            self._start_offsets.forget(partition)
            self._new.discard(partition)
        streams = set(map(str, partitions))
        self._events = [event for event in self._events if event.stream not in streams]

    def forget_events(self) -> set[Partition]:
        """Drop events without a record that were not returned; return the partitions that are being fetched."""
        self._events.clear()
        return self._next.keys() - self._new

    def lag(self, client: Consumer) -> Mapping[tuple[str, str], int]:
        """Return the known number of records after the last event, by topic and partition."""
        offsets = dict(self._next)
        return {(p.topic, str(p.number)): self._readable.lag(client, p, offset) for p, offset in offsets.items()}

    def poll(self, client: Consumer, timeout: float) -> list[Event] | None:
        """Return the next events, ``[]`` if none arrived within `timeout` seconds, or ``None`` at the end."""
        most = self._most()
        self._begin(client)
        if not self._buffers.is_ready(self._live(client)):
            self._fetch(client, timeout)
        elif time.monotonic() - self._polled > ALIVE_SECONDS:
            self._fetch(client, 0.0)  # it keeps us in the group
        events, self._events = self._events, []
        if seconds := self._retry.seconds:
            time.sleep(min(timeout, seconds))
        else:
            self._take(client, events, most)
        self._start_offsets.reach(events)
        if not events:
            self._readable.ask(client, self._next)
        self._returned = len(events), time.monotonic()
        return None if not events and self._until is not None and self._next and not self._live(client) else events

    def _begin(self, client: Consumer) -> None:
        """Determine the start offsets of new partitions."""
        if not self._new:
            return
        offsets, latest = self._start_offsets.find(client, self._new)
        for partition, offset in offsets.items():
            if self._until is not None:
                self._ends.setdefault(partition, resolve_offset(client, partition, self._until))
            left = self._left.pop(partition, None)
            if isinstance(left, list) and left[0] == offset:  # it goes on in its turn
                self._buffers.drop(partition, left)
        client.start(offsets)
        log.info("reading partitions", extra={"offsets": {str(partition): offsets[partition] for partition in offsets}})
        self._next |= offsets
        self._new.clear()
        self._events += [self._position_event(partition) for partition in sorted(latest)]

    def _most(self) -> int:
        """Return how many events a poll returns at most: twice as many as the last one, if they took little time."""
        n, ended = self._returned
        is_quick = time.monotonic() - ended < QUICK_SECONDS
        return max(SLICE, min(2 * n, LARGEST)) if is_quick else SLICE

    def _take(self, client: Consumer, events: list[Event], most: int) -> None:
        """Append the events of fetched records, `most` of them, up to one that cannot be decoded yet."""
        runs = self._buffers.take(most, self._live(client))
        ends, next_offsets = self._ends, {partition: records[-1].offset + 1 for partition, records, _ in runs}
        is_whole = all(offset <= ends.get(partition, offset) for partition, offset in next_offsets.items())
        inside = runs if is_whole and not self._start_offsets.gaps else [self._wanted_of(run) for run in runs]
        if (decoded := self._events_of(inside)) is not None:
            events += decoded
            self._next |= next_offsets
            return
        for i, (partition, records, positions) in enumerate(runs):
            for j, (record, position) in enumerate(zip(records, positions, strict=True)):
                if self._is_wanted(partition, record):
                    try:
                        events.append(self._event(partition, record, position))
                    except DecoderUnavailableError as error:
                        self._buffers.put_back([(partition, records[j:], positions[j:]), *runs[i + 1 :]])
                        self._retry.record_failure(error)
                        return
                    self._retry.record_success()
                self._next[partition] = record.offset + 1

    def _wanted_of(self, run: Run) -> Run:
        """Return the part of a run that is wanted."""
        partition, records, positions = run
        wanted = [self._is_wanted(partition, record) for record in records]
        return partition, list(compress(records, wanted)), list(compress(positions, wanted))

    def _is_wanted(self, partition: Partition, record: Record) -> bool:
        """Return whether a record is before the end, and was not learned by another member."""
        is_inside = record.offset < self._ends.get(partition, record.offset + 1)
        return is_inside and self._start_offsets.is_ours(partition, record.offset)

    def _fetch(self, client: Consumer, timeout: float) -> None:
        self._buffers.throttle(client, self._next.keys() - self._new)
        try:
            fetched = client.poll(timeout)
        except OffsetGoneError as error:
            self._events += [self._skip_to_next(client, *one) for one in error.offsets.items()]
        else:
            self._buffers.add(fetched)
            self._readable.forget(partition for partition, records in fetched.items() if records)
            self._events += self._positions_after_gaps(client)
        self._polled = time.monotonic()

    def _positions_after_gaps(self, client: Consumer) -> Iterator[Event]:
        """Yield the position of each partition whose next offsets have no records and were skipped."""
        for partition in sorted(self._next.keys() - self._new):
            if not self._buffers.count(partition) and client.position(partition) > self._next[partition]:
                self._next[partition] = client.position(partition)
                yield self._position_event(partition)

    def _position_event(self, partition: Partition) -> Event:
        return Event(str(partition), self._buffers.position(partition, self._next[partition]), b"")

    def _live(self, client: Consumer) -> list[Partition]:
        """Return the partitions that have not reached their end; transaction markers are not records."""
        if self._until is None:
            return list(self._next)
        ends, count = self._ends, self._buffers.count
        return [
            p
            for p, offset in self._next.items()
            if p in self._new or (offset < ends[p] and (count(p) or client.position(p) < ends[p]))
        ]

    def _skip_to_next(self, client: Consumer, partition: Partition, offset: int) -> Event:
        """Continue at the nearest existing record, and report the missing ones."""
        next_offset = self._next[partition] = self._start_offsets.after_gap(client, partition, offset)
        client.start({partition: next_offset})
        if next_offset == offset:  # a broker that lacks the record for now, such as a replica
            return self._position_event(partition)
        return gap_event(partition, offset, next_offset)


class TopicWatcher:
    """Checks periodically that topics exist, and which partitions they have."""

    def __init__(self, topics: Sequence[str], servers: str) -> None:
        self.trouble: Trouble | None = None
        self._topics, self._servers = topics, servers
        self._due = time.monotonic() + LOOK_SECONDS

    def look(self, client: Consumer) -> list[Partition]:
        """Return the existing partitions if a check is due, and ``[]`` otherwise."""
        if time.monotonic() < self._due:
            return []
        partitions: list[Partition] = []
        error: UnavailableError | None = None
        try:
            existing = client.look(self._topics)
            if existing is None:  # the answer is in flight
                return []
            partitions = [partition for topic in self._topics for partition in existing[topic]]
            missing = [topic for topic in self._topics if not existing[topic]]
            error = missing_topic(missing[0], self._servers) if missing else None
        except UnavailableError as one:
            error = one
        now = time.monotonic()
        since = self.trouble.since if self.trouble else now
        self.trouble = None if error is None else Trouble(error, since)
        self._due = now + (LOOK_SECONDS if error is None else AGAIN_SECONDS)
        return partitions


class PartitionEnds:
    """End offsets of partitions that return no records although there seem to be more.

    The rest may be records of an open transaction, which cannot be read yet. So the brokers are queried for the last
    readable offset.
    """

    def __init__(self) -> None:
        self._known: dict[Partition, int] = {}
        self._due = 0.0

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Forget the ends of partitions that have returned records."""
        for partition in partitions:
            self._known.pop(partition, None)

    def ask(self, client: Consumer, offsets: Mapping[Partition, int]) -> None:
        """Request the ends of the partitions that seem to continue after these offsets, if a request is due."""
        behind = [partition for partition, offset in offsets.items() if client.waiting(partition, offset)]
        now = time.monotonic()
        if behind and now >= self._due:
            self._due = now + AGAIN_SECONDS
            with suppress(OSError):  # the search for topics and brokers reports it
                self._known |= client.ends(behind, ANSWER_SECONDS)

    def lag(self, client: Consumer, partition: Partition, offset: int) -> int:
        """Return the last known number of records from an offset on; any thread may call it."""
        end = self._known.get(partition)
        return client.waiting(partition, offset) if end is None else max(0, end - offset)
