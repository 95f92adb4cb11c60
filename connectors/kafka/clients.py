"""What is asked of a Kafka client, and kafka-python's answer: a consumer and a producer of few methods each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from connectors.base import CommitRefused
from connectors.kafka.options import Options

COMMIT_SECONDS = 30.0
"""How long the brokers may take for what a commit asks of them. A member that waits longer may be evicted."""


class Partition(NamedTuple):
    """One partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.number}"

    @classmethod
    def named(cls, name: str) -> Partition:
        """Return the partition of a name.

        Examples
        --------
        >>> Partition.named("clicks:3")
        Partition(topic='clicks', number=3)
        """
        topic, _, number = name.rpartition(":")
        return cls(topic, int(number))


class Record(NamedTuple):
    """One record as the broker has it."""

    partition: Partition
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]


class Listener(Protocol):
    """What is told of changes of the partitions; each is called before `Consumer.poll` returns."""

    def assigned(self, partitions: Iterable[Partition]) -> None:
        """Partitions were added."""

    def revoked(self, partitions: Iterable[Partition]) -> None:
        """Partitions are about to be taken away; what was done with them may still be committed."""

    def lost(self, partitions: Iterable[Partition]) -> None:
        """Partitions were taken away, and others may have them."""


class PythonConsumer:
    """kafka-python's consumer. It commits nothing by itself, and reads what transactions have committed.

    Parameters
    ----------
    options
        Of the client.
    group
        The consumer group, if any.
    member
        A name that is the same after a restart, for which the group keeps the partitions.
    """

    def __init__(self, options: Options, group: str | None, member: str | None = None) -> None:
        from kafka import KafkaConsumer

        self._subscribed = False
        self._options, self._group, self._member = options, group, member if group else None
        self._kafka = KafkaConsumer(
            **options.consumer(
                group_id=group,
                group_instance_id=self._member,
                enable_auto_commit=False,
                auto_offset_reset="none",
                isolation_level="read_committed",
                allow_auto_create_topics=False,
            )
        )

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        """Take part in the group, for the partitions that it assigns."""
        from kafka import ConsumerRebalanceListener

        class Told(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                listener.assigned([Partition(*one) for one in sorted(assigned)])

            def on_partitions_revoked(self, revoked: Any) -> None:
                if revoked:
                    listener.revoked([Partition(*one) for one in sorted(revoked)])

            def on_partitions_lost(self, lost: Any) -> None:
                listener.lost([Partition(*one) for one in sorted(lost)])

        self._subscribed = True
        self._kafka.subscribe(list(topics), listener=Told())

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions, without a group's say."""
        self._kafka.assign(_theirs(partitions))

    def poll(self, seconds: float) -> list[Record]:
        """Return the next records, ``[]`` if none came in time.

        Raises
        ------
        OffsetGoneError
            If the records to be read next have been deleted.
        OSError
            If the brokers will not give any.
        """
        from kafka.errors import KafkaError, OffsetOutOfRangeError

        try:
            found = self._kafka.poll(timeout_ms=int(1000 * seconds))
        except OffsetOutOfRangeError as error:
            raise OffsetGoneError({Partition(*one): offset for one, offset in error.args[0].items()}) from error
        except KafkaError as error:
            if error.retriable:
                return []
            raise OSError(f"Expected records from Kafka, got {type(error).__name__}: {error}") from error
        return [
            Record(Partition(one.topic, one.partition), r.offset, r.timestamp, r.key, r.value, r.headers)
            for one, records in found.items()
            for r in records
        ]

    def seek(self, partition: Partition, offset: int) -> None:
        """Read on from an offset."""
        self._kafka.seek(_theirs([partition])[0], offset)

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Fetch nothing of these partitions."""
        self._kafka.pause(*_theirs(partitions))

    def resume(self, partitions: Iterable[Partition]) -> None:
        """Fetch these partitions again."""
        self._kafka.resume(*_theirs(partitions))

    def position(self, partition: Partition) -> int:
        """Return the offset of the record that is fetched next."""
        return int(self._kafka.position(_theirs([partition])[0]))

    def waiting(self, partition: Partition, next_offset: int) -> int:
        """Return how many records there are from an offset on, as far as it is known."""
        end = self._kafka.highwater(_theirs([partition])[0])
        return 0 if end is None else max(0, end - next_offset)

    def committed(self, partition: Partition) -> int | None:
        """Return the offset that the group has committed."""
        found = self._kafka.committed(_theirs([partition])[0])
        return None if found is None or found < 0 else int(found)

    def partitions_of(self, topic: str) -> list[Partition]:
        """Return the partitions of a topic, ``[]`` if there is no such topic."""
        return [Partition(topic, number) for number in sorted(self._kafka.partitions_for_topic(topic))]

    def first(self, partition: Partition) -> int:
        """Return the offset of the oldest record."""
        return int(next(iter(self._kafka.beginning_offsets(_theirs([partition])).values())))

    def end(self, partition: Partition) -> int:
        """Return the offset after the newest record."""
        return int(next(iter(self._kafka.end_offsets(_theirs([partition])).values())))

    def at(self, partition: Partition, milliseconds: int) -> int:
        """Return the offset of the first record from a time on, or that after the newest record."""
        found = next(iter(self._kafka.offsets_for_times({_theirs([partition])[0]: milliseconds}).values()))
        return self.end(partition) if found is None else int(found.offset)

    @property
    def membership(self) -> Any:
        """What tells the brokers whether this member still is one."""
        return self._kafka.group_metadata()

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets by themselves.

        Raises
        ------
        CommitRefused
            If they are not committed.
        """
        from kafka.errors import KafkaError

        try:
            self._kafka.commit(_offsets(offsets, ""), timeout_ms=int(1000 * COMMIT_SECONDS))
        except KafkaError as error:
            raise CommitRefused(str(error)) from error

    def close(self) -> None:
        """Leave the group."""
        from kafka import KafkaAdminClient
        from kafka.admin import MemberToRemove
        from kafka.errors import KafkaError

        self._kafka.close(autocommit=False, timeout_ms=5000)
        if self._member is None or not self._subscribed:
            return
        with suppress(KafkaError):  # then the group waits for us until the session is over
            admin = KafkaAdminClient(**self._options.admin() | {"bootstrap_timeout_ms": 2000})
            try:
                admin.remove_group_members(self._group, [MemberToRemove(group_instance_id=self._member)])
            finally:
                admin.close()


class OffsetGoneError(Exception):
    """Records were deleted before they were read; says which were to come next."""

    def __init__(self, offsets: Mapping[Partition, int]) -> None:
        super().__init__(offsets)
        self.offsets = offsets


class PythonProducer:
    """kafka-python's producer; with a `name`, what it writes becomes visible at `commit`, together with offsets.

    Parameters
    ----------
    options
        Of the client.
    name
        The transactional id: an older producer of the same name is shut out.
    seconds
        How long a transaction may stay open.
    """

    def __init__(self, options: Options, name: str | None = None, seconds: float = 60.0) -> None:
        from kafka import KafkaProducer

        own: dict[str, Any] = {"acks": "all", "enable_idempotence": True}
        if name is not None:
            own |= {"transactional_id": name, "transaction_timeout_ms": int(1000 * seconds)}
        self._kafka = KafkaProducer(**options.producer(**own))
        self._open = False
        self._is_transactional = name is not None
        self._error: Exception | None = None
        if name is not None:
            self._kafka.init_transactions()

    def send(
        self, topic: str, value: bytes, key: bytes | None = None, headers: Sequence[tuple[str, bytes]] = ()
    ) -> None:
        """Write a record, before long.

        Raises
        ------
        CommitRefused
            If nothing can be written any more.
        """
        from kafka.errors import KafkaError

        try:
            if self._is_transactional and not self._open:
                self._kafka.begin_transaction()
                self._open = True
            self._kafka.send(topic, value, key=key, headers=list(headers)).add_errback(self._failed)
        except KafkaError as error:
            raise CommitRefused(f"{type(error).__name__}: {error}") from error

    def flush(self) -> None:
        """Wait until all records are written.

        Raises
        ------
        CommitRefused
            If one cannot be.
        """
        from kafka.errors import KafkaError

        try:
            self._kafka.flush(timeout=COMMIT_SECONDS)
        except KafkaError as error:
            raise CommitRefused(str(error)) from error
        if self._error is not None:
            raise CommitRefused(f"{type(self._error).__name__}: {self._error}") from self._error

    def commit(self, parts: Sequence[tuple[Any, Mapping[Partition, int], str]]) -> None:
        """Commit the records since the last time and offsets, of groups or members, each with a note: all or nothing.

        Raises
        ------
        CommitRefused
            If it was not committed, or nobody knows.
        """
        outcome: list[Exception | None] = []

        def task() -> None:
            try:
                if not self._open:
                    self._kafka.begin_transaction()
                self._kafka.flush()
                for group, offsets, note in parts:
                    if offsets:
                        self._kafka.send_offsets_to_transaction(_offsets(offsets, note), group)
                self._kafka.commit_transaction()
                outcome.append(None)
            except Exception as error:  # whatever it was, the transaction is in doubt
                outcome.append(error)

        _within(COMMIT_SECONDS, task)
        self._open = False
        if outcome != [None]:
            error = outcome[0] if outcome else None
            raise CommitRefused(f"{type(error).__name__}: {error}" if error else "no answer in time") from error

    def close(self) -> None:
        """Release it; what was written since the last commit is void."""
        _within(5.0, lambda: self._kafka.close(timeout=2.0))

    def _failed(self, error: Exception) -> None:
        self._error = error


def group_offsets(options: Options, group: str) -> dict[Partition, int]:
    """Return the offsets a group has committed."""
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(**options.admin())
    try:
        found = admin.list_group_offsets({group: None})[group]
    finally:
        admin.close()
    return {Partition(*one): int(offset.offset) for one, offset in found.items() if offset.offset >= 0}


def _within(seconds: float, task: Callable[[], None]) -> None:
    """Let a task run for some seconds, and leave it alone then: some calls of the client wait without end."""
    thread = threading.Thread(target=task, daemon=True, name="kafka-commit")
    thread.start()
    thread.join(seconds)


def _theirs(partitions: Iterable[Partition]) -> list[Any]:
    from kafka import TopicPartition

    return [TopicPartition(*partition) for partition in partitions]


def _offsets(offsets: Mapping[Partition, int], note: str) -> dict[Any, Any]:
    from kafka import TopicPartition
    from kafka.structs import OffsetAndMetadata

    return {TopicPartition(*one): OffsetAndMetadata(offset, note, -1) for one, offset in offsets.items()}


def connected(make: Callable[[], Any], options: Options) -> Any:
    """Return a client that is connected.

    Raises
    ------
    OSError
        If no broker answers.
    """
    from kafka.errors import KafkaError

    try:
        return make()
    except KafkaError as error:
        got = f"{type(error).__name__}: {error}".rstrip(": ")
        raise OSError(f"Expected a Kafka broker at {options.servers}, got {got}") from error
