"""kafka-python's consumer."""

from __future__ import annotations

import math
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer
from kafka.admin import MemberToRemove
from kafka.errors import (
    FencedInstanceIdError,
    KafkaError,
    OffsetOutOfRangeError,
    UnknownBrokerIdError,
    UnknownTopicOrPartitionError,
)

from streamkernel.connectors.base import CommitRefusedError, UnavailableError
from streamkernel.connectors.kafka.clients import (
    ANSWER_SECONDS,
    COMMIT_SECONDS,
    Consumer,
    Fences,
    Listener,
    OffsetGoneError,
    Partition,
    Record,
    describe_error,
    run_within,
)
from streamkernel.connectors.kafka.kafka_python.connecting import (
    arguments,
    connect,
    from_client,
    is_tried,
    private,
    to_client,
    with_note,
)

JOIN_SECONDS = 10.0
"""Seconds without partitions after which we join the group again, with a version whose private names we do not know."""

WHOLE_FETCHES = {"max_poll_records": 1_000_000_000}
"""Each poll returns whole fetches: kafka-python 3.0.12 may keep the rest of a fetch of a partition that was paused."""

NO_ID = str(UUID(int=0))
"""The id of a topic where brokers have no ids."""


class PythonConsumer(Consumer):
    """A :class:`~streamkernel.connectors.kafka.clients.Consumer` of kafka-python."""

    def __init__(self, servers: str, options: Mapping[str, Any], group: str | None, member: str | None) -> None:
        self._listener: _RebalanceListener | None = None  # if we take part in a group
        self._topics_of_group: list[str] = []
        self._group, self._member = group, member
        self._fences = Fences(member)
        self._topics: KafkaAdminClient | None = None  # for questions that callbacks of a rebalance ask too
        self._admin = arguments(KafkaAdminClient, servers, options, bootstrap_timeout_ms=2000)
        self._asking: tuple[Any, float] | None = None  # the answer of the brokers to `look`, and since when it is due
        self._private = private()
        whole = {} if self._private is not None else WHOLE_FETCHES
        self._kafka = connect(
            KafkaConsumer,
            servers,
            options,
            group_id=group,
            group_instance_id=member,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            allow_auto_create_topics=False,
            **whole,
        )
        if self._private is not None:
            self._private.keep_joins(self._kafka)
            if is_tried():
                self._private.decode_together(self._kafka)

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        self._topics_of_group, self._listener = list(topics), _RebalanceListener(self._kafka, listener)
        self._kafka.subscribe(self._topics_of_group, listener=self._listener)

    def start(self, offsets: Mapping[Partition, int]) -> None:
        if self._listener is None:
            self._kafka.assign([*self._kafka.assignment().union(to_client(offsets))])
        for partition, offset in offsets.items():
            self._kafka.seek(*to_client([partition]), offset)
        self.resume(offsets)

    def poll(self, seconds: float) -> Mapping[Partition, Sequence[Record]]:
        if self._private is not None:
            self._private.let_go(self._kafka)
            self._private.go_on_joining(self._kafka)
            if self._listener is not None and self._private.is_fenced(self._kafka):
                self._join_again()
        elif self._listener is not None and time.monotonic() - self._listener.joining_since > JOIN_SECONDS:
            self._leave_and_join(self._listener)
        try:
            batch = self._kafka.poll(timeout_ms=int(1000 * seconds))
        except OffsetOutOfRangeError as error:
            raise OffsetGoneError({Partition(*one): offset for one, offset in error.args[0].items()}) from error
        except KafkaError as error:
            if isinstance(error, FencedInstanceIdError) and self._join_again():
                return {}
            if self._may_be_retried(error):
                return {}
            raise OSError(f"Expected records from Kafka, got {describe_error(error)}") from error
        return {Partition(*one): records for one, records in batch.items()}  # ours, or with the names of ours and more

    def pause(self, partitions: Iterable[Partition]) -> None:
        self._kafka.pause(*to_client(partitions))

    def resume(self, partitions: Iterable[Partition]) -> None:
        self._kafka.resume(*to_client(partitions))

    def position(self, partition: Partition) -> int:
        (one,) = to_client([partition])
        if self._private is not None and (offset := self._private.position(self._kafka, one)) is not None:
            return int(offset)
        answer = self._ask(self._kafka.position, one) if one in self._kafka.assignment() else None
        return -1 if answer is None else int(answer)

    def waiting(self, partition: Partition, next_offset: int) -> int:
        try:
            end = self._kafka.highwater(to_client([partition])[0])
        except (AssertionError, LookupError, KafkaError):  # it has just been taken away
            end = None
        return 0 if end is None else max(0, end - next_offset)

    def committed(self, partition: Partition) -> int | None:
        offset = self._ask(self._kafka.committed, to_client([partition])[0])
        return None if offset is None or offset < 0 else int(offset)

    def committed_with_note(self, partition: Partition) -> tuple[int, str] | None:
        answer = self._ask(partial(self._kafka.committed, metadata=True), to_client([partition])[0])
        return None if answer is None or answer.offset < 0 else (int(answer.offset), answer.metadata or "")

    def partitions_of(self, topic: str) -> list[Partition]:
        return [Partition(topic, number) for number in sorted(self._kafka.partitions_for_topic(topic))]

    def look(self, topics: Iterable[str]) -> Mapping[str, list[Partition]] | None:
        if self._asking is None and self._private is not None:
            asked = self._private.request_metadata(self._kafka)
            self._asking = asked and (asked, time.monotonic())
        if self._asking is None or self._private is None:
            described = {one["name"]: one["partitions"] for one in self._describe(topics)}
            return {
                topic: [Partition(topic, number) for number in sorted(part["partition_index"] for part in parts)]
                for topic, parts in described.items()
            }
        answer, since = self._asking
        now = time.monotonic()
        if not answer.is_done:
            if now - since < ANSWER_SECONDS:
                return None
            raise UnavailableError(f"Expected a response from Kafka, got none in {now - since:.0f} s")
        self._asking = None
        if isinstance(answer.exception, KafkaError) and not isinstance(answer.exception, UnknownTopicOrPartitionError):
            raise UnavailableError(f"Expected a response from Kafka, got {describe_error(answer.exception)}")
        numbers_by_topic = {topic: self._private.known_partitions(self._kafka, topic) for topic in topics}
        return {
            topic: [Partition(topic, number) for number in sorted(numbers)]
            for topic, numbers in numbers_by_topic.items()
        }

    def topic_ids(self, topics: Iterable[str]) -> Mapping[str, str]:
        return {
            one["name"]: b64encode(identifier.bytes).rstrip(b"=").decode()
            for one in self._describe(topics)
            if one["error_code"] == 0 and (identifier := UUID(one.get("topic_id") or NO_ID)).int
        }

    def _describe(self, topics: Iterable[str]) -> list[Any]:
        descriptions: list[Any] = []

        def task() -> None:
            self._topics = self._topics or KafkaAdminClient(**self._admin)
            descriptions.extend(self._topics.describe_topics(list(topics)))

        if (error := run_within(ANSWER_SECONDS, task)) is not None:
            raise UnavailableError(f"Expected a response from Kafka, got {describe_error(error)}") from error
        return descriptions

    def first(self, partition: Partition) -> int:
        return int(self._ask(self._kafka.beginning_offsets, to_client([partition])).popitem()[1])

    def end(self, partition: Partition) -> int:
        return int(self._ask(self._kafka.end_offsets, to_client([partition])).popitem()[1])

    def ends(self, partitions: Iterable[Partition], seconds: float = COMMIT_SECONDS) -> Mapping[Partition, int]:
        offsets = self._ask(self._kafka.end_offsets, to_client(partitions), seconds)
        return {Partition(*one): int(offset) for one, offset in offsets.items()}

    def at(self, partition: Partition, milliseconds: int) -> int:
        _, answer = self._ask(self._kafka.offsets_for_times, {to_client([partition])[0]: milliseconds}).popitem()
        return self.end(partition) if answer is None else int(answer.offset)

    @property
    def membership(self) -> Any:
        return self._kafka.group_metadata()

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        try:
            if self._listener is not None and self._listener.is_revoking:
                self._kafka.commit_async(with_note(offsets, ""))
                return
            self._kafka.commit(with_note(offsets, ""), timeout_ms=int(1000 * COMMIT_SECONDS))
        except KafkaError as error:
            raise CommitRefusedError(describe_error(error)) from error

    def close(self) -> None:
        self._kafka.close(autocommit=False, timeout_ms=5000)
        if self._topics is not None:
            self._topics.close()
        if self._member is None or self._listener is None:
            return
        with suppress(KafkaError):  # then the group waits for us until the session is over
            admin = KafkaAdminClient(**self._admin)
            try:
                admin.remove_group_members(self._group, [MemberToRemove(group_instance_id=self._member)])
            finally:
                admin.close()

    def _leave_and_join(self, listener: _RebalanceListener) -> None:
        """Leave the group and join it: kafka-python 3.0.12 drops a rejoin if `poll` ends while it is under way."""
        listener.joining_since = time.monotonic()
        self._kafka.unsubscribe()
        self._kafka.subscribe(self._topics_of_group, listener=listener)

    def _join_again(self) -> bool:
        """Return whether we can join the group again after another member had our name."""
        if self._private is None or not self._private.join_again(self._kafka):
            return False
        self._fences.add()
        return True

    def _may_be_retried(self, error: KafkaError) -> bool:
        """Return whether a request may succeed later; if its broker has left the cluster, ask for newer metadata.

        kafka-python 3.0.12 does neither: to it the error is final, and metadata is renewed every five minutes.
        """
        if isinstance(error, UnknownBrokerIdError):
            if self._private is not None:
                self._private.request_metadata(self._kafka)
            return True
        return bool(error.retriable)

    def _ask(self, call: Callable[..., Any], what: Any, seconds: float = COMMIT_SECONDS) -> Any:
        """Return a response of the brokers, or raise an `OSError`: `UnavailableError` if the request may be retried."""
        try:
            return call(what, timeout_ms=int(1000 * seconds))
        except KafkaError as error:
            kind = UnavailableError if self._may_be_retried(error) else OSError
            raise kind(f"Expected a response from Kafka, got {describe_error(error)}") from error


class _RebalanceListener(ConsumerRebalanceListener):
    """Forwards rebalances to a listener, and pauses new partitions."""

    def __init__(self, kafka: KafkaConsumer, listener: Listener) -> None:
        self._kafka, self._listener = kafka, listener
        self.is_revoking = False  # on the client's own thread, which must not wait for itself
        self.joining_since = time.monotonic()  # infinite while the group assigns partitions, or none, to us

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.joining_since = math.inf
        for partition in assigned:
            self._kafka.seek(partition, 0)  # so that it does not look for an offset itself
        self._kafka.pause(*assigned)
        self._listener.on_assigned(from_client(assigned))

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.is_revoking, self.joining_since = True, time.monotonic()
        try:
            if revoked:
                self._listener.on_revoked(from_client(revoked))
        finally:
            self.is_revoking = False

    def on_partitions_lost(self, lost: Any) -> None:
        self.joining_since = time.monotonic()
        self._listener.on_lost(from_client(lost))
