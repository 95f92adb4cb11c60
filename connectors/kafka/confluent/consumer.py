"""confluent-kafka's consumer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Consumer as AnyConsumer

from connectors.base import CommitRefusedError, UnavailableError
from connectors.kafka.clients import (
    ANSWER_SECONDS,
    COMMIT_SECONDS,
    LOOK_SECONDS,
    Consumer,
    Listener,
    OffsetGoneError,
    Partition,
    Record,
)
from connectors.kafka.confluent.client_mapping import AGAIN, describe_error, from_client, reach, settings, to_client
from connectors.kafka.timeouts import run_within

AT_ONCE = 1024
"""Largest number of records per poll."""


class ConfluentConsumer(Consumer):
    """A :class:`~connectors.kafka.clients.Consumer`.

    librdkafka seeks only in partitions that it already fetches, and its position stops before the markers of
    transactions. So `start` assigns all partitions again, each with its offset, and positions are counted here.

    Parameters
    ----------
    servers, options, group, member
        As for :meth:`~connectors.kafka.clients.Client.consumer`.
    """

    def __init__(self, servers: str, options: Mapping[str, Any], group: str | None, member: str | None) -> None:
        self._positions: dict[Partition, int] = {}
        self._gone: dict[Partition, int] = {}  # reported at the next poll
        self._has_part = self._is_leaving = False
        self._errors: list[KafkaError] = []
        self._kafka = AnyConsumer(
            settings(
                servers,
                {"check.crcs": True, "topic.metadata.refresh.interval.ms": int(1000 * LOOK_SECONDS), **options},
                group_id=group or "streamkernel",  # it has to have one, though no member joins it
                enable_auto_commit=False,
                enable_auto_offset_store=False,
                enable_partition_eof=True,
                auto_offset_reset="error",
                isolation_level="read_committed",
                allow_auto_create_topics=False,
                **({} if member is None else {"group_instance_id": member}),
            )
            | {"error_cb": self._errors.append}
        )
        reach(self._kafka, servers, options, self._errors)

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        def on_assign(kafka: Any, partitions: list[TopicPartition]) -> None:
            kafka.assign([])  # until they are to start
            self._has_part = True
            listener.on_assigned(from_client(partitions))

        def on_revoke(kafka: Any, partitions: list[TopicPartition]) -> None:
            self._leave(partitions, listener.on_revoked)

        def on_lose(kafka: Any, partitions: list[TopicPartition]) -> None:
            self._leave(partitions, listener.on_lost)

        self._kafka.subscribe(list(topics), on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lose)

    def start(self, offsets: Mapping[Partition, int]) -> None:
        self.resume(offsets)  # to be paused outlasts what follows
        self._positions |= offsets
        self._ask(self._kafka.assign, to_client(self._positions))

    def poll(self, seconds: float) -> Mapping[Partition, Sequence[Record]]:
        if self._gone:
            gone, self._gone = self._gone, {}
            raise OffsetGoneError(gone)
        consume = self._kafka.consume
        try:
            found: list[Any] = consume(AT_ONCE, 0) or [*consume(1, seconds), *consume(AT_ONCE, 0)]
        except KafkaException as error:
            self._heed(error.args[0])
            return {}
        for reason in filter(KafkaError.fatal, self._errors):
            self._heed(reason)
        self._errors.clear()
        records: dict[Any, list[Record]] = {partition: [] for partition in self._positions}
        wrong, make = [], Record._make
        for one in found:
            if one.error() is not None:
                wrong.append(one)
            elif (those := records.get((one.topic(), one.partition()))) is not None:  # else it was just taken away
                those.append(make((one.offset(), one.key(), one.value(), one.headers() or (), one.timestamp()[1])))
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
        (found,) = self._ask(self._kafka.committed, [TopicPartition(*partition)], COMMIT_SECONDS)
        return int(found.offset) if found.offset >= 0 else None

    def committed_with_note(self, partition: Partition) -> tuple[int, str] | None:
        (found,) = self._ask(self._kafka.committed, [TopicPartition(*partition)], COMMIT_SECONDS)
        return (int(found.offset), found.metadata or "") if found.offset >= 0 else None

    def partitions_of(self, topic: str) -> list[Partition]:
        found = self._ask(self._kafka.list_topics, topic, COMMIT_SECONDS).topics
        return [Partition(topic, number) for number in sorted(found[topic].partitions)]

    def look(self, topics: Iterable[str]) -> Mapping[str, list[Partition]]:
        known = {topic: self._ask(self._kafka.list_topics, topic, ANSWER_SECONDS).topics[topic] for topic in topics}
        return {topic: [Partition(topic, n) for n in sorted(found.partitions)] for topic, found in known.items()}

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
        (found,) = self._ask(self._kafka.offsets_for_times, to_client({partition: milliseconds}), COMMIT_SECONDS)
        return int(found.offset) if found.offset >= 0 else self.end(partition)

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
        self._kafka.unsubscribe()
        end = time.monotonic() + 5.0
        while self._has_part and time.monotonic() < end:
            self._kafka.poll(0.1)
        self._kafka.close()

    def _leave(self, partitions: list[TopicPartition], tell: Callable[[list[Partition]], None]) -> None:
        self._is_leaving = True
        try:
            if partitions:
                tell(from_client(partitions))
        finally:
            self._is_leaving = False
        self._positions.clear()
        self._gone.clear()
        self._has_part = False

    def _heed(self, error: KafkaError, partition: Any = None, offset: int = 0) -> None:
        """Process an event that is not a record; raise an `OSError` for a permanent error."""
        code = error.code()
        if code not in (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET):
            if error.fatal() or code not in AGAIN:
                raise OSError(f"Expected records from Kafka, got {describe_error(error)}")
        elif partition in self._positions:  # else it has just been taken away
            position = self._positions[partition]
            if code == KafkaError._PARTITION_EOF:
                self._positions[partition] = max(position, offset)
            else:
                self._gone[partition] = position

    @staticmethod
    def _ask(call: Callable[..., Any], *words: Any) -> Any:
        """Return a response of the brokers, or raise an `OSError`: `UnavailableError` if the request may be retried."""
        try:
            return call(*words)
        except KafkaException as error:
            kind = UnavailableError if error.args[0].code() in AGAIN else OSError
            raise kind(f"Expected a response from Kafka, got {describe_error(error)}") from error
