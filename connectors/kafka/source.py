"""Topics as a source."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from streamkernel.connectors.base import CommitRefusedError, Event, Position, Trouble, UnavailableError
from streamkernel.connectors.interfaces import RevokedCallback, Source, StreamsCallback
from streamkernel.connectors.kafka.clients import COMMIT_SECONDS, Consumer, Partition
from streamkernel.connectors.kafka.events import Decoder, Events
from streamkernel.connectors.kafka.offsets import (
    Start,
    StartOffsets,
    TopicIds,
    check_copartitioned,
    find_partitions,
    offset_of,
    parse_start,
)
from streamkernel.connectors.kafka.options import Options
from streamkernel.connectors.kafka.partition_reader import PartitionReader, TopicWatcher

log = logging.getLogger(__name__)


class KafkaSource(Source):
    """The records of topics.

    The value of a record is a JSON object, or is decoded by `decoder`. A record that cannot be decoded is an event with
    an ``error``. The stream of an event is ``topic:partition``, and the position after it is the next offset. An event
    without a record (`Event.is_position_only`) has the position after a tombstone, which has no value, the new position
    of a partition whose last offsets have no records (markers of transactions, aborted records), and the start position
    of a partition that is read from the latest record.

    New partitions of a topic are read from their first record, within a minute, unless `partitions` is given.

    Parameters
    ----------
    servers : str or Options
        The addresses of brokers, ``"host:port"``, separated by commas; or options of either client, which contain them.
    topics : str or sequence of str
        The names of one or more topics.
    group : str or None, default None
        The consumer group, whose members share the partitions, and which stores the offsets. Without a group, this
        source reads all partitions.
    member : str or None, default None
        The permanent name of this member in the group. After a restart within the session timeout, the member gets its
        partitions back.
    partitions : sequence of int or None, default None
        The numbers of the partitions to read of each topic; by default the ones that the group assigns, or all.
    start : str or int or datetime, default "earliest"
        The start in a partition that was never read: ``"earliest"``, ``"latest"``, an offset, or a time with a time
        zone.
    until : str or int or datetime or None, default None
        The end; ``"latest"`` is the end at the start of the run. Without it, the source has no end.
    order : {"arrival", "deterministic"}, default "arrival"
        The order of events over partitions. ``"deterministic"`` takes one event of each partition in turn and waits for
        the slowest, so that every run has the same order.
    decoder : callable or None, default None
        A function from the bytes of a value to a dictionary of fields, which raises an error if it cannot decode them;
        JSON by default. Its parameters may include ``topic``, ``key`` and ``headers``. If it raises `UnavailableError`,
        it is called again later, and no further record is read until then.
    key : str or None, default None
        A field for the record's key.
    key_format : {"string", "long", "integer", "json"}, default "string"
        How the bytes of a key are read, for that field.
    copartitioned : bool, default False
        Whether all topics must have the same number of partitions, as a join by key requires.
    **options : object
        Options of the client, by kafka-python's names.

    Attributes
    ----------
    is_in_transactions : bool
        Whether transactions commit the offsets, instead of the source itself.

    Raises
    ------
    ValueError
        If an argument is invalid. `open` and `poll` raise it if a partition does not exist, and `UnavailableError` if
        no broker is available or a topic does not exist.
    """

    is_in_transactions: bool = False

    def __init__(
        self,
        servers: str | Options,
        topics: str | Sequence[str],
        *,
        group: str | None = None,
        member: str | None = None,
        partitions: Sequence[int] | None = None,
        start: Start = "earliest",
        until: Start | None = None,
        order: str = "arrival",
        decoder: Decoder | None = None,
        key: str | None = None,
        key_format: str = "string",
        copartitioned: bool = False,
        **options: Any,
    ) -> None:
        if order not in ("arrival", "deterministic"):
            raise ValueError(f'Expected "arrival" or "deterministic" as order, got {order!r}')
        self.options = servers if isinstance(servers, Options) else Options(servers, options)
        self.group, self._member = group, member
        self.topics = [topics] if isinstance(topics, str) else list(topics)
        self._numbers = partitions
        self._copartitioned = copartitioned
        self._client: Consumer | None = None
        self._is_reading = False
        self._topic_watcher = TopicWatcher(self.topics, self.options.servers)
        self._topic_ids = TopicIds(self.topics)
        self._start_offsets = StartOffsets(parse_start(start), in_group=group is not None, topic_ids=self._topic_ids)
        self._reader = PartitionReader(
            self._start_offsets,
            Events(decoder, key, key_format),
            until=None if until is None else parse_start(until),
            in_turn=order == "deterministic",
        )
        self._saved: Mapping[str, Any] = {}
        self._on_revoked: RevokedCallback = lambda streams, deadline: None
        self._on_lost: StreamsCallback = lambda streams: None

    def listen(self, revoked: RevokedCallback, lost: StreamsCallback) -> None:
        """Register callbacks for streams that are about to move to another process, and for streams that have moved."""
        self._on_revoked, self._on_lost = revoked, lost

    def seek(self, positions: Mapping[str, Position]) -> None:
        """Continue after these positions, in partitions without a committed offset.

        Raises
        ------
        ValueError
            If a position is invalid.
        """
        for stream, position in positions.items():
            offset_of(position, stream)
            self._start_offsets.own[Partition.parse(stream)] = position

    def rewind(self, positions: Mapping[str, Position], until: Mapping[str, Position] | None = None) -> None:
        """Continue after these positions once, regardless of committed offsets, which never go back.

        Records from `until`, which is `repeats_until` of an earlier process, to the committed offsets are skipped.
        """
        self.seek(positions)
        ends = {Partition.parse(stream): offset_of(position, stream) for stream, position in (until or {}).items()}
        self._start_offsets.rewind(map(Partition.parse, positions), ends)

    def prepare(self, deadline: float = math.inf) -> Mapping[str, Any]:
        """Return the ids of the topics, and what only repetitions need: a restart then repeats the same events.

        Raises
        ------
        TopicReplacedError
            If a topic was deleted and made again since its first record was read.
        """
        self._topic_ids.check(self.client)
        repetition = {"is_repeating": True, "repeats_until": self.repeats_until} if self.is_repeating else {}
        return {"topics": self._topic_ids.known, **repetition}

    def after_commit(self, number: int, positions: Mapping[str, Position], deadline: float = math.inf) -> None:
        """Commit the offsets to the group if no transaction has; see `acknowledge`."""
        if not self.is_in_transactions:
            self.acknowledge(positions)

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take back what `prepare` returned: topics with other ids are refused, since their offsets are others."""
        self._topic_ids.known |= saved.get("topics", {})
        self._saved = {name: saved.get(name) for name in ("is_divided", "is_repeating", "repeats_until")}

    def resume(self, positions: Mapping[str, Position], *, is_older: bool = False) -> None:
        """Continue after the positions of a checkpoint, or after the offsets of the group where those count.

        The offsets of the group are later than the positions of an older checkpoint, and older than positions of
        workers that read without a group (``is_divided`` in the checkpoint).
        """
        if is_older or self._saved.get("is_divided") or self._saved.get("is_repeating"):
            self.rewind(positions, None if is_older else self._saved.get("repeats_until"))
        self.again(positions)

    def goes_back(self, before: Position, position: Position) -> bool:
        """Return whether an offset is before an earlier one of the same partition."""
        if type(before) is int and type(position) is int:  # the usual case, once for each event
            return position < before
        return offset_of(position, "the new position") < offset_of(before, "the last position")

    @property
    def is_repeating(self) -> bool:  # type: ignore[override]
        """Whether the source has been rewound, and has not returned all records again that the group had committed."""
        return self._start_offsets.is_repeating

    @property
    def repeats_until(self) -> dict[str, Position]:
        """The position of each rewound partition after which its records were learned by other members, or by none."""
        return {str(partition): offset for partition, offset in self._start_offsets.until.items()}

    def was_committed(self, event: Event) -> bool:
        """Return whether the group had committed an event that is read again after `rewind`."""
        return self._start_offsets.is_committed(Partition.parse(event.stream), offset_of(event.resume, event.stream))

    def advance(self, event: Event) -> None:
        """Record that an event is processed, after which fewer may be read again."""
        self._start_offsets.advance(Partition.parse(event.stream), offset_of(event.resume, event.stream))

    def again(self, positions: Mapping[str, Position]) -> None:
        """Read the events since the last commit again; `positions` are as for `seek`."""
        self.seek(positions)
        if started := self._reader.forget_events():
            self.client.pause(started)
        if partitions := self._reader.partitions:
            self.on_assigned(partitions)

    @property
    def trouble(self) -> Trouble | None:  # type: ignore[override]
        """The problem found by the last check of brokers and topics, or by the last call of the decoder."""
        return self._topic_watcher.trouble or self._reader.trouble

    def open(self) -> None:
        """Connect, and check that all topics exist; `poll` joins the group and reads.

        Raises
        ------
        UnavailableError
            If no broker is available or a topic does not exist.
        """
        if self._client is None:
            self._client = self._connect()

    def poll(self, timeout: float) -> list[Event] | None:
        """Return the next events, ``[]`` if none arrived within `timeout` seconds, ``None`` at the end."""
        client = self.client
        self._join(client)
        self._look(client)
        try:
            return self._reader.poll(client, timeout)
        except UnavailableError:
            raise
        except OSError:  # kafka-python misses the records of a topic that was made again before the next look
            self._topic_ids.check(client)
            raise

    def lag(self) -> Mapping[tuple[str, str], int]:
        """Return the known number of records after the last event, by topic and partition."""
        return {} if self._client is None else self._reader.lag(self._client)

    def close(self) -> None:
        """Leave the group."""
        if self._client is not None:
            self._client.close()

    def offsets(self, positions: Mapping[str, Position]) -> dict[Partition, int]:
        """Return the offsets among `positions` of assigned partitions in which records were read."""
        offsets = {Partition.parse(stream): offset_of(position, stream) for stream, position in positions.items()}
        return self._start_offsets.to_commit(offsets)

    def acknowledge(self, positions: Mapping[str, Position]) -> None:
        """Commit offsets without a transaction, so that other members continue after them; some may be read again."""
        if self.group is not None:
            with suppress(CommitRefusedError):  # another member has them, and starts where we did
                self.client.commit(self.offsets(positions))

    @property
    def client(self) -> Consumer:
        """The connected client."""
        self.open()
        return cast(Consumer, self._client)

    def on_assigned(self, partitions: Iterable[Partition]) -> None:
        """Add partitions; the next `poll` determines their start offsets."""
        partitions = list(partitions)
        log.info("partitions assigned", extra={"partitions": list(map(str, partitions))})
        self._reader.add(partitions)

    def on_revoked(self, partitions: Iterable[Partition]) -> None:
        """Remove partitions whose offsets can still be committed."""
        partitions, deadline = list(partitions), time.monotonic() + COMMIT_SECONDS
        self._reader.remember(partitions)
        self._give_up(partitions, lambda streams: self._on_revoked(streams, deadline))

    def on_lost(self, partitions: Iterable[Partition]) -> None:
        """Remove partitions that other members may already have."""
        self._give_up(partitions, self._on_lost)

    def _give_up(self, partitions: Iterable[Partition], callback: StreamsCallback) -> None:
        going = list(partitions)
        log.info("partitions revoked", extra={"partitions": list(map(str, going))})
        callback([str(partition) for partition in going])
        self._reader.remove(going)

    def _connect(self) -> Consumer:
        client = self.options.consumer(self.group, self._member)
        try:
            for topic in self.topics:
                find_partitions(client, topic, self._numbers, self.options.servers)
            self._start_offsets.known = {
                partition for topic in self.topics for partition in client.partitions_of(topic)
            }
            self._check()
            self._topic_ids.check(client)
        except (OSError, ValueError):
            client.close()
            raise
        return client

    def _check(self) -> None:
        """Raise a `ValueError` if topics that need the same number of partitions have different ones."""
        if self._copartitioned and self._numbers is not None:
            check_copartitioned(self._start_offsets.known)

    def _join(self, client: Consumer) -> None:
        """Join the group, or without a group start all partitions."""
        if self._is_reading:
            return
        self._is_reading = True
        if self.group is not None and self._numbers is None:
            client.subscribe(self.topics, self)
        else:
            partitions = sorted(self._start_offsets.known)
            self.on_assigned(p for p in partitions if self._numbers is None or p.number in self._numbers)

    def _look(self, client: Consumer) -> None:
        """Look for new partitions periodically, and read them if there is no group that assigns them."""
        partitions = self._topic_watcher.look(client)
        if partitions:
            self._topic_ids.check(client)
        added = self._start_offsets.add(partitions)
        if added:
            self._check()
            if self.group is None and self._numbers is None:
                self.on_assigned(sorted(added))
