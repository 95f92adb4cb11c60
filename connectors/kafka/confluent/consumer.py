"""confluent-kafka's consumer."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka import Consumer as AnyConsumer
from confluent_kafka.admin import AdminClient

from streamkernel.connectors.base import CommitRefusedError, UnavailableError
from streamkernel.connectors.kafka.clients import (
    ANSWER_SECONDS,
    COMMIT_SECONDS,
    LOOK_SECONDS,
    Consumer,
    Fences,
    Listener,
    OffsetGoneError,
    Partition,
    Record,
    run_within,
)
from streamkernel.connectors.kafka.confluent.client_mapping import (
    AGAIN,
    FENCED,
    STILL_USED,
    describe_error,
    from_client,
    keeps_partitions,
    reach,
    settings,
    to_client,
)

AT_ONCE = 1024
"""Largest number of records per poll."""

JOIN_SECONDS = 1.0
"""Seconds between two attempts to join where brokers remember a process that was killed (KIP-848)."""

REPORT_SECONDS = 60.0
"""Seconds between two lines of the log about that."""

NO_ID = 22 * "A"
"""The id of a topic where brokers have no ids."""

log = logging.getLogger(__name__)


class ConfluentConsumer(Consumer):
    """A :class:`~streamkernel.connectors.kafka.clients.Consumer` of librdkafka.

    librdkafka seeks only in partitions that it already fetches, and its position stops before the markers of
    transactions. So `start` assigns all partitions again, each with its offset, and positions are counted here. Where
    members keep partitions in a rebalance (cooperative-sticky, and the protocol of KIP-848), `start` assigns only those
    that it starts; the others are fetched meanwhile.
    """

    def __init__(self, servers: str, options: Mapping[str, Any], group: str | None, member: str | None) -> None:
        self._positions: dict[Partition, int] = {}
        self._gone: dict[Partition, int] = {}  # reported at the next poll
        self._has_part = self._is_leaving = self._is_incremental = False
        self._keeps_partitions = keeps_partitions(options)
        self._assigned: set[Partition] = set()  # by the group, whether started or not
        self._errors: list[KafkaError] = []
        membership = {} if member is None else {"group_instance_id": member}
        self._settings = settings(
            servers,
            {"check.crcs": True, "topic.metadata.refresh.interval.ms": int(1000 * LOOK_SECONDS), **options},
            group_id=group or "streamkernel",  # it has to have one, though no member joins it
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            auto_offset_reset="error",
            isolation_level="read_committed",
            allow_auto_create_topics=False,
            **membership,
        ) | {"error_cb": self._errors.append}
        self._admin: AdminClient | None = None
        self._admin_settings = settings(servers, options)
        self._kafka = AnyConsumer(self._settings)
        self._join: Callable[[], None] = lambda: None
        self._joins_at: float | None = None  # when a member that was rejected joins again
        self._reported = -math.inf
        self._fences = Fences(member)
        self._tell_lost: Callable[[list[Partition]], None] = lambda partitions: None
        reach(self._kafka, servers, options, self._errors)

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        self._is_incremental = self._keeps_partitions

        def on_assign(kafka: Any, partitions: list[TopicPartition]) -> None:
            (kafka.incremental_assign if self._is_incremental else kafka.assign)([])  # until they are to start
            self._assigned.update(from_client(partitions))
            self._has_part = True
            listener.on_assigned(from_client(partitions))

        self._tell_lost = listener.on_lost
        callbacks = {
            "on_assign": on_assign,
            "on_revoke": lambda _, partitions: self._leave(partitions, listener.on_revoked),
            "on_lost": lambda _, partitions: self._leave(partitions, listener.on_lost),
        }
        self._join = lambda: self._kafka.subscribe(list(topics), **callbacks)
        self._join()

    def start(self, offsets: Mapping[Partition, int]) -> None:
        self.resume(offsets)  # to be paused outlasts what follows
        if self._is_incremental:
            self._ask(self._kafka.incremental_unassign, self._started(offsets))
            self._ask(self._kafka.incremental_assign, to_client(offsets))
        else:
            self._ask(self._kafka.assign, to_client({**self._positions, **offsets}))
        self._positions |= offsets

    def poll(self, seconds: float) -> Mapping[Partition, Sequence[Record]]:
        if self._gone:
            gone, self._gone = self._gone, {}
            raise OffsetGoneError(gone)
        if self._joins_at is not None:
            if time.monotonic() < self._joins_at:
                time.sleep(seconds)
                return {}
            self._joins_at = None
            self._join()
        consume = self._kafka.consume
        try:
            messages: list[Any] = consume(AT_ONCE, 0) or [*consume(1, seconds), *consume(AT_ONCE, 0)]
        except KafkaException as error:
            self._heed(error.args[0])
            return {}
        for reason in filter(KafkaError.fatal, self._errors):
            self._heed(reason)
        self._errors.clear()
        records: dict[Any, list[Record]] = {partition: [] for partition in self._positions}
        wrong, new = [], tuple.__new__  # which is quicker than `Record`
        for one in messages:
            if one.error() is not None:
                wrong.append(one)
            elif (those := records.get((one.topic(), one.partition()))) is not None:  # else it was just taken away
                part = one.offset(), one.key(), one.value(), one.headers() or (), one.timestamp()[1]
                those.append(new(Record, part))
        self._positions |= {partition: those[-1].offset + 1 for partition, those in records.items() if those}
        for one in wrong:
            self._heed(one.error(), Partition(one.topic(), one.partition()), one.offset())
        return records

    def pause(self, partitions: Iterable[Partition]) -> None:
        self._kafka.pause([TopicPartition(*partition) for partition in partitions])

    def resume(self, partitions: Iterable[Partition]) -> None:
        self._kafka.resume([TopicPartition(*partition) for partition in partitions])

    def position(self, partition: Partition) -> int:
        return self._positions[partition]

    def waiting(self, partition: Partition, next_offset: int) -> int:
        try:
            _, end = self._kafka.get_watermark_offsets(TopicPartition(*partition), cached=True)
        except (KafkaException, RuntimeError):  # it has just been taken away, or the client is closed
            return 0
        return max(0, end - next_offset)

    def committed(self, partition: Partition) -> int | None:
        (answer,) = self._ask(self._kafka.committed, [TopicPartition(*partition)], COMMIT_SECONDS)
        return int(answer.offset) if answer.offset >= 0 else None

    def committed_with_note(self, partition: Partition) -> tuple[int, str] | None:
        (answer,) = self._ask(self._kafka.committed, [TopicPartition(*partition)], COMMIT_SECONDS)
        try:
            note = answer.metadata or ""
        except UnicodeDecodeError as error:  # librdkafka copies a note without the zero at its end
            note = error.object[: error.start].decode()
        return (int(answer.offset), note) if answer.offset >= 0 else None

    def partitions_of(self, topic: str, seconds: float = COMMIT_SECONDS) -> list[Partition]:
        topics = self._ask(self._kafka.list_topics, topic, seconds).topics
        return [Partition(topic, number) for number in sorted(topics[topic].partitions)]

    def look(self, topics: Iterable[str]) -> Mapping[str, list[Partition]]:
        return {topic: self.partitions_of(topic, ANSWER_SECONDS) for topic in topics}

    def topic_ids(self, topics: Iterable[str]) -> Mapping[str, str]:
        self._admin = self._admin or AdminClient(self._admin_settings)
        futures = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=ANSWER_SECONDS)
        ids = {}
        for topic, future in futures.items():
            with suppress(KafkaException):  # as where it does not exist
                ids[topic] = str(future.result().topic_id)
        return {topic: identifier for topic, identifier in ids.items() if identifier != NO_ID}

    def first(self, partition: Partition) -> int:
        return int(self._ask(self._kafka.get_watermark_offsets, TopicPartition(*partition), COMMIT_SECONDS)[0])

    def end(self, partition: Partition) -> int:
        return int(self._ask(self._kafka.get_watermark_offsets, TopicPartition(*partition), COMMIT_SECONDS)[1])

    def ends(self, partitions: Iterable[Partition], seconds: float = COMMIT_SECONDS) -> Mapping[Partition, int]:
        latest = to_client(dict.fromkeys(partitions, OFFSET_END))  # which is a time to the brokers, too
        ends = {}
        for one in self._ask(self._kafka.offsets_for_times, latest, seconds):
            partition = Partition(one.topic, one.partition)
            ends[partition] = self.end(partition) if one.error or one.offset < 0 else int(one.offset)
        return ends

    def at(self, partition: Partition, milliseconds: int) -> int:
        (answer,) = self._ask(self._kafka.offsets_for_times, to_client({partition: milliseconds}), COMMIT_SECONDS)
        return int(answer.offset) if answer.offset >= 0 else self.end(partition)

    @property
    def membership(self) -> Any:
        return self._kafka.consumer_group_metadata()

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        def task() -> None:
            self._kafka.commit(offsets=to_client(offsets), asynchronous=False)

        if offsets and self._is_leaving:  # no response is read meanwhile
            self._kafka.commit(offsets=to_client(offsets), asynchronous=True)
        elif offsets and (error := run_within(COMMIT_SECONDS, task)) is not None:
            raise CommitRefusedError(describe_error(error)) from error

    def close(self) -> None:
        # A static member that is only closed stays in the group until its session is over.
        try:
            self._kafka.unsubscribe()
        except KafkaException:  # after a fatal error, and then nothing is revoked
            self._has_part = False
        end = time.monotonic() + 5.0
        while self._has_part and time.monotonic() < end:
            self._kafka.poll(0.1)
        self._kafka.close()

    def _leave(self, partitions: list[TopicPartition], tell: Callable[[list[Partition]], None]) -> None:
        going = from_client(partitions)
        self._is_leaving = True
        try:
            if going:
                tell(going)
        finally:
            self._is_leaving = False
        if self._is_incremental:
            self._kafka.incremental_unassign(self._started(going))
        else:
            going = list(self._positions)
        self._assigned.difference_update(going)
        for partition in going:
            self._positions.pop(partition, None)
            self._gone.pop(partition, None)
        self._has_part = self._is_incremental and bool(self._assigned)

    def _started(self, partitions: Iterable[Partition]) -> list[TopicPartition]:
        """Return the partitions among these that are read."""
        return [TopicPartition(*partition) for partition in partitions if partition in self._positions]

    def _heed(self, error: KafkaError, partition: Any = None, offset: int = 0) -> None:
        """Process an event that is not a record; raise an `OSError` for a permanent error."""
        code = error.code()
        if self._joins_at is not None:  # it is about the client that was left
            return
        if code in (KafkaError._FATAL, KafkaError.UNRELEASED_INSTANCE_ID) and STILL_USED in error.str():
            self._leave_client()
            self._report_wait()
        elif code in (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID) and FENCED in error.str():
            self._fences.add()
            self._leave_client()
        elif code not in (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET):
            if error.fatal() or code not in AGAIN:
                raise OSError(f"Expected records from Kafka, got {describe_error(error)}")
        elif partition in self._positions:  # else it has just been taken away
            position = self._positions[partition]
            if code == KafkaError._PARTITION_EOF:
                self._positions[partition] = max(position, offset)
            else:
                self._gone[partition] = position

    def _leave_client(self) -> None:
        """Take a new client, which joins later: after a fatal error, librdkafka's old one does nothing more."""
        self._kafka.close()  # without a callback for its partitions
        lost = sorted(self._assigned) if self._has_part else []
        for state in (self._assigned, self._positions, self._gone, self._errors):
            state.clear()
        self._has_part = False
        self._kafka = AnyConsumer(self._settings)
        self._joins_at = time.monotonic() + JOIN_SECONDS
        if lost:
            self._tell_lost(lost)

    def _report_wait(self) -> None:
        now = time.monotonic()
        if now - self._reported >= REPORT_SECONDS:
            self._reported = now
            log.warning("waiting to join the group until the brokers end the session of the last process of this name")

    @staticmethod
    def _ask(call: Callable[..., Any], *words: Any) -> Any:
        """Return a response of the brokers, or raise an `OSError`: `UnavailableError` if the request may be retried."""
        try:
            return call(*words)
        except KafkaException as error:
            kind = UnavailableError if error.args[0].code() in AGAIN else OSError
            raise kind(f"Expected a response from Kafka, got {describe_error(error)}") from error
