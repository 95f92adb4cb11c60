"""Topics as a source."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from connectors.base import CommitRefusedError, Event, Position, Trouble
from connectors.kafka.clients import Consumer, Partition
from connectors.kafka.events import Decoder, Events
from connectors.kafka.offsets import Start, check_copartitioned, find_partitions, offset_of, parse_start
from connectors.kafka.options import Options
from connectors.kafka.partition_reader import PartitionReader
from connectors.kafka.start_offsets import StartOffsets
from connectors.kafka.topic_watcher import TopicWatcher

log = logging.getLogger(__name__)

StreamsCallback = Callable[[list[str]], None]


class KafkaSource:
    """The records of topics.

    A record's value is a JSON object, or what a decoder makes of it. One that cannot be read is an event with an
    ``error``, and so is a tombstone, which has no value. The stream of an event is ``topic:partition``, the position
    after it the next offset. An event without a record (`Event.is_position_only`) says how far a partition was read
    where its last offsets have no records (markers of transactions, aborted records), and where it begins if that is
    the latest record.

    Partitions that are added to a topic are read from their first record on, within a minute, unless `partitions` says
    which to read.

    Parameters
    ----------
    servers
        Addresses of brokers, ``"host:port"``, separated by commas; or options with them, of either client.
    topics
        One or many.
    group
        The consumer group: its members share the partitions, and it keeps the offsets. Without one, this source reads
        all partitions.
    member
        Our name in the group, the same after a restart: for so long as a session lasts, the group then waits for us
        with our partitions.
    partitions
        Numbers of the partitions to read of each topic; without, those that the group assigns, or all.
    start
        Where to begin in a partition that was never read: ``"earliest"``, ``"latest"``, an offset, or a time with its
        zone.
    until
        Where to end; ``"latest"`` is what is there at the beginning. Without it, there is no end.
    order
        ``"arrival"``, or ``"deterministic"``: one event of each partition in turn, waiting for the slow one, so that
        every run has the same order.
    decoder
        Makes the fields from a value, or raises an error that says why not; JSON by default. If it has parameters
        called ``topic``, ``key`` or ``headers``, it gets them. If it raises `UnavailableError`, it is called again
        later, and nothing is read until then.
    key
        A field to put the record's key into, as text.
    copartitioned
        Whether all topics have to have the same number of partitions: if records of one key are joined, those with the
        numbers in `partitions` have to have all records of their keys.
    **options
        Options, by kafka-python's names.

    Raises
    ------
    ValueError
        If an argument is not one of these. `open` and `poll` raise it if a partition is not there, and
        `UnavailableError` if no broker answers or a topic is not there.
    """

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
        self._start_offsets = StartOffsets(parse_start(start), in_group=group is not None)
        self._reader = PartitionReader(
            self._start_offsets,
            Events(decoder, key),
            until=None if until is None else parse_start(until),
            in_turn=order == "deterministic",
        )
        self._on_revoked: StreamsCallback = lambda streams: None
        self._on_lost: StreamsCallback = lambda streams: None

    def listen(self, revoked: StreamsCallback, lost: StreamsCallback) -> None:
        """Have something called, before `poll` returns, with streams that are about to be taken away, or were."""
        self._on_revoked, self._on_lost = revoked, lost

    def seek(self, positions: Mapping[str, Position]) -> None:
        """Go on after these positions, in partitions for which the group has committed nothing.

        Raises
        ------
        ValueError
            If one is no position.
        """
        for stream, position in positions.items():
            offset_of(position, stream)
            self._start_offsets.own[Partition.parse(stream)] = position

    def rewind(self, positions: Mapping[str, Position]) -> None:
        """Go on after these positions once, whatever the group has committed."""
        self.seek(positions)
        self._start_offsets.rewind(map(Partition.parse, positions))

    def again(self, positions: Mapping[str, Position]) -> None:
        """Forget what was read since the last commit and read it again; `positions` are as for `seek`."""
        self.seek(positions)
        if started := self._reader.forget_events():
            self.client.pause(started)
        self.on_assigned(self._reader.partitions)

    @property
    def trouble(self) -> Trouble | None:
        """What was wrong when it was last looked whether brokers and topics are there, or the decoder was called."""
        return self._topic_watcher.trouble or self._reader.trouble

    def open(self) -> None:
        """Connect, and find out whether all topics are there; nothing is read, and no group is joined, before `poll`.

        Raises
        ------
        UnavailableError
            If no broker answers or a topic is not there.
        """
        if self._client is None:
            self._client = self._connect()

    def poll(self, timeout: float) -> list[Event] | None:
        """Return the next events, ``[]`` if none came within `timeout` seconds, ``None`` at the end."""
        client = self.client
        self._join(client)
        self._look(client)
        return self._reader.poll(client, timeout)

    def lag(self) -> Mapping[tuple[str, str], int]:
        """Return how many records wait behind the last event, by topic and partition, as far as it is known."""
        return {} if self._client is None else self._reader.lag(self._client)

    def close(self) -> None:
        """Leave the group."""
        if self._client is not None:
            self._client.close()

    def offsets(self, positions: Mapping[str, Position]) -> dict[Partition, int]:
        """Return the offsets among `positions` of partitions that we have and have read on in."""
        found = {Partition.parse(stream): offset_of(position, stream) for stream, position in positions.items()}
        return self._start_offsets.to_commit(found)

    def acknowledge(self, positions: Mapping[str, Position]) -> None:
        """Commit offsets by themselves, so that others do not read what was read; some may be read again."""
        if self.group is not None:
            with suppress(CommitRefusedError):  # another member has them, and starts where we did
                self.client.commit(self.offsets(positions))

    @property
    def client(self) -> Consumer:
        """The client, connected."""
        self.open()
        return cast(Consumer, self._client)

    def on_assigned(self, partitions: Iterable[Partition]) -> None:
        """Take over partitions; where to begin is found out at the next `poll`."""
        partitions = list(partitions)
        log.info("partitions assigned", extra={"partitions": list(map(str, partitions))})
        self._reader.add(partitions)

    def on_revoked(self, partitions: Iterable[Partition]) -> None:
        """Give up partitions that may still be committed."""
        partitions = list(partitions)
        self._reader.remember(partitions)
        self._give_up(partitions, self._on_revoked)

    def on_lost(self, partitions: Iterable[Partition]) -> None:
        """Give up partitions that others may have."""
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
        except (OSError, ValueError):
            client.close()
            raise
        return client

    def _check(self) -> None:
        """Raise a `ValueError` if topics have to have the same number of partitions, and have not."""
        if self._copartitioned and self._numbers is not None:
            check_copartitioned(self._start_offsets.known)

    def _join(self, client: Consumer) -> None:
        """Take part in the group, or take all partitions that are to be read."""
        if self._is_reading:
            return
        self._is_reading = True
        if self.group is not None and self._numbers is None:
            client.subscribe(self.topics, self)
        else:
            known = sorted(self._start_offsets.known)
            self.on_assigned(p for p in known if self._numbers is None or p.number in self._numbers)

    def _look(self, client: Consumer) -> None:
        """Look now and then for partitions that were added, and read them if no group deals them out."""
        added = self._start_offsets.add(self._topic_watcher.look(client))
        if added:
            self._check()
            if self.group is None and self._numbers is None:
                self.on_assigned(sorted(added))
