"""Topics that several processes read together."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from streamkernel.connectors.base import DecoderUnavailableError, Event, Position
from streamkernel.connectors.interfaces import PartitionedSource, WorkAssignment
from streamkernel.connectors.kafka.clients import LOOK_SECONDS, Consumer, OffsetGoneError, Partition
from streamkernel.connectors.kafka.events import Buffers, Decoder, Events, Retry, gap_event
from streamkernel.connectors.kafka.offsets import (
    Start,
    TopicIds,
    find_partitions,
    nearest_offset,
    offset_of,
    parse_start,
    resolve_offset,
)
from streamkernel.connectors.kafka.options import Options

log = logging.getLogger(__name__)

SLICE = 64
"""Largest number of events that `PartitionedTopics.read` yields at once."""

WAIT_SECONDS = 0.2
"""Seconds to wait for records before it yields ``[]``."""


class PartitionedTopics(PartitionedSource):
    """The records of topics, divided among several processes by offsets, without a consumer group.

    Partitions are assigned in turn: the first of three workers gets partitions 1, 4, and so on. A plan has the first
    and the last offset of each, so the content of a round is fixed. A worker reads one event of each of its partitions
    in turn, until each has reached its end.

    Events are those of :class:`~streamkernel.connectors.kafka.source.KafkaSource`; the position after an event is the
    next offset. Offsets without a record (markers of transactions, compacted records) count as events in a plan. If an
    assignment ends with such offsets, its last event has no record (`Event.is_position_only`).

    Parameters
    ----------
    options : Options
        The options of the client, with the addresses of brokers.
    topics : str or sequence of str
        The names of one or more topics.
    partitions : sequence of int or None, default None
        The numbers of the partitions to read of each topic; by default all, and new ones within minutes.
    start : str or int or datetime, default "earliest"
        The start, as for :class:`~streamkernel.connectors.kafka.source.KafkaSource`. A partition without a position is
        read from its first record, not from the latest, if other partitions of its topic have positions: it was added
        later.
    until : str or int or datetime or None, default None
        The end, as for :class:`~streamkernel.connectors.kafka.source.KafkaSource`.
    decoder : callable or None, default None
        The decoder of values, as for :class:`~streamkernel.connectors.kafka.source.KafkaSource`.
    key : str or None, default None
        A field for the record's key.
    key_format : {"string", "long", "integer", "json"}, default "string"
        How the bytes of a key are read, for that field.

    Raises
    ------
    ValueError
        If an argument is invalid. `plan` and `read` raise it if a partition does not exist, and `UnavailableError` if
        no broker is available or a topic does not exist.
    """

    def __init__(
        self,
        options: Options,
        topics: str | Sequence[str],
        *,
        partitions: Sequence[int] | None = None,
        start: Start = "earliest",
        until: Start | None = None,
        decoder: Decoder | None = None,
        key: str | None = None,
        key_format: str = "string",
    ) -> None:
        self._options, self._numbers = options, partitions
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        self._topic_ids = TopicIds(self._topics)
        self._start, self._until = parse_start(start), None if until is None else parse_start(until)
        self._event = Events(decoder, key, key_format).of
        self._planner: Consumer | None = None
        self._reader: Consumer | None = None  # a second consumer, because a request waits for the fetch of the first
        self._partitions: list[Partition] = []
        self._looked = 0.0
        self._starts: dict[Partition, int] = {}  # for planning: the beginnings of partitions without a position,
        self._lasts: dict[Partition, int] = {}  # their ends,
        self._ends: dict[Partition, int] = {}  # and their ends when the brokers were last queried
        self._next: dict[Partition, int] = {}  # for reading: the next offset of each partition of the last assignment,
        self._buffers = Buffers(in_turn=False)  # the records fetched from there on,
        self._lost: dict[Partition, int] = {}  # and their end if the next records were deleted

    def plan(self, positions: Mapping[str, Position], workers: int, events: int) -> list[WorkAssignment] | None:
        """Assign the available offsets to workers, ``None`` if all partitions are read up to `until`.

        The events of a worker are divided evenly among its partitions; partitions with fewer records leave their rest
        to the others. Each partition that is not read up to `until` is in ``begin`` of one assignment, even if it has
        no new records.
        """
        client = self._planner = self._planner or self._connect()
        if not self._partitions or time.monotonic() - self._looked > LOOK_SECONDS:
            self._partitions, self._looked = self._find_partitions(client), time.monotonic()
            self._topic_ids.check(client)
        begun = {stream.rpartition(":")[0] for stream in positions}
        for partition in self._partitions:
            if str(partition) not in positions and partition not in self._starts:
                is_later = self._start == "latest" and partition.topic in begun
                self._starts[partition] = resolve_offset(client, partition, "earliest" if is_later else self._start)
        # queried after the beginnings, which may have moved up to the earlier ends
        self._ends = dict(client.ends(self._partitions))
        spans = {}
        for partition, end in self._ends.items():
            begin = self._begin_of(partition, positions)
            if self._until is not None:
                if partition not in self._lasts:
                    self._lasts[partition] = resolve_offset(client, partition, self._until)
                if begin >= self._lasts[partition]:
                    continue
                end = min(end, self._lasts[partition])
            spans[partition] = begin, end
        if self._until is not None and not spans:
            return None
        return [_assignment(self._partitions[worker::workers], spans, events) for worker in range(workers)]

    def prepare(self, deadline: float = math.inf) -> Mapping[str, Any]:
        """Return the ids of the topics; none before the first plan.

        Raises
        ------
        TopicReplacedError
            If a topic was deleted and made again since its first record was read.
        UnavailableError
            If no broker is available.
        """
        if self._topic_ids.known:  # also where a round had been planned by an earlier process
            self._planner = self._planner or self._connect()
            self._topic_ids.check(self._planner)
        return {"topics": self._topic_ids.known}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Refuse topics with other ids than those in a checkpoint: their offsets are others."""
        self._topic_ids.known |= saved.get("topics", {})

    def read(self, assignment: WorkAssignment) -> Iterator[list[Event]]:
        """Yield the events of an assignment, a few at a time, and ``[]`` while none arrive; it may be stopped early."""
        client = self._reader = self._reader or self._connect()
        ends, events = {}, []
        for stream, end in assignment.end.items():
            if assignment.begin[stream] <= end:
                ends[Partition.parse(stream)] = end
            else:
                events.append(gap_event(Partition.parse(stream), assignment.begin[stream], end))
        self._go_on(client, {partition: assignment.begin[str(partition)] for partition in ends})
        turns, retry = deque(ends), Retry()
        while turns:
            partition = turns.popleft()
            while self._is_awaited(client, partition, ends[partition]):
                yield events
                events = []
                self._fetch(client)
            before = self._next[partition]
            try:
                event = self._take(client, partition, ends[partition])
            except DecoderUnavailableError as error:
                retry.record_failure(error)
                log.warning("the decoder is unavailable; retrying: %s", error)
                turns.appendleft(partition)
                yield events
                events = []
                time.sleep(retry.seconds)
                continue
            if event is not None and event.resume > before:  # else the partition has been cut
                turns.append(partition)
            elif event is None and self._next[partition] < ends[partition]:
                self._next[partition] = ends[partition]
                event = Event(str(partition), ends[partition], b"")
            if event is not None:
                events.append(event)
            if len(events) >= SLICE:
                yield events
                events = []
        if events:
            yield events

    def lag(self, positions: Mapping[str, Position]) -> Mapping[tuple[str, str], int]:
        """Return the number of records after these positions when the last round was planned."""
        lags = {}
        for partition, end in dict(self._ends).items():
            lags[partition.topic, str(partition.number)] = max(0, end - self._begin_of(partition, positions))
        return lags

    def close(self) -> None:
        """Disconnect."""
        for client in (self._planner, self._reader):
            if client is not None:
                client.close()

    def _begin_of(self, partition: Partition, positions: Mapping[str, Position]) -> int:
        stream = str(partition)
        if stream in positions:
            return offset_of(positions[stream], stream)
        return self._starts.get(partition, self._ends[partition])

    def _connect(self) -> Consumer:
        client = self._options.consumer()
        try:
            self._find_partitions(client)
        except (OSError, ValueError):
            client.close()
            raise
        return client

    def _find_partitions(self, client: Consumer) -> list[Partition]:
        """Return the existing partitions."""
        servers = self._options.servers
        return sorted({p for topic in self._topics for p in find_partitions(client, topic, self._numbers, servers)})

    def _go_on(self, client: Consumer, begin: Mapping[Partition, int]) -> None:
        """Continue partitions that were read up to here, start others, and release the ones of before."""
        left = [partition for partition in self._next if partition not in begin]
        client.pause(left)
        new = {partition: offset for partition, offset in begin.items() if self._next.get(partition) != offset}
        for partition in (*left, *new):
            self._buffers.drop(partition)
            self._lost.pop(partition, None)
            self._next.pop(partition, None)
        self._begin(client, new)

    def _begin(self, client: Consumer, offsets: Mapping[Partition, int]) -> None:
        if offsets:
            client.start(offsets)
            self._next |= offsets

    def _is_awaited(self, client: Consumer, partition: Partition, end: int) -> bool:
        """Return whether a record before `end` may still arrive and none is available."""
        if self._buffers.count(partition) or partition in self._lost:
            return False
        return self._next[partition] < end and client.position(partition) < end

    def _take(self, client: Consumer, partition: Partition, end: int) -> Event | None:
        """Return the next event of a partition, or ``None`` if there is none before `end`."""
        first = self._buffers.first(partition)
        if first is not None and first < end:
            ((_, (record,), (position,)),) = self._buffers.take(1, [partition])
            try:
                event = self._event(partition, record, position)
            except DecoderUnavailableError:
                self._buffers.put_back([(partition, [record], [position])])
                raise
            self._next[partition] = position
            return event
        if first is None and partition in self._lost and self._next[partition] < end:
            offset = self._lost.pop(partition)
            next_offset = nearest_offset(client, partition, offset)
            self._begin(client, {partition: next_offset})
            return gap_event(partition, offset, next_offset)
        return None

    def _fetch(self, client: Consumer) -> None:
        self._buffers.throttle(client, self._next.keys() - self._lost.keys())
        try:
            fetched = client.poll(WAIT_SECONDS)
        except OffsetGoneError as error:
            lost = {partition: offset for partition, offset in error.offsets.items() if partition in self._next}
            client.pause(lost)
            self._lost |= lost
        else:
            self._buffers.add({partition: records for partition, records in fetched.items() if partition in self._next})


def _assignment(
    partitions: Iterable[Partition], spans: Mapping[Partition, tuple[int, int]], events: int
) -> WorkAssignment:
    """Return a worker's assignment; an end before the beginning means deleted records, which are one event."""
    assigned = {str(partition): spans[partition] for partition in partitions if partition in spans}
    counts = split({stream: end - begin if begin <= end else 1 for stream, (begin, end) in assigned.items()}, events)
    begins = {stream: begin for stream, (begin, _) in assigned.items()}
    ends = {
        stream: min(end, begin + counts[stream]) if counts[stream] else begin
        for stream, (begin, end) in assigned.items()
    }
    return WorkAssignment(begins, ends, sum(counts.values()))


def split(waiting: Mapping[str, int], events: int) -> dict[str, int]:
    """Return the number of events to read of each stream, as even as the backlog allows.

    Examples
    --------
    >>> split({"t:0": 2, "t:1": 90, "t:2": 90}, 30)
    {'t:0': 2, 't:1': 14, 't:2': 14}
    """
    counts = {}
    for others, stream in zip(range(len(waiting), 0, -1), sorted(waiting, key=lambda s: waiting[s]), strict=True):
        counts[stream] = min(waiting[stream], events // others)
        events -= counts[stream]
    return counts
