"""kafka-python's consumer, as this package asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from connectors.base import CommitRefused
from connectors.kafka.clients import (
    COMMIT_SECONDS,
    Listener,
    OffsetGoneError,
    Partition,
    Record,
    theirs,
    told,
    with_note,
)
from connectors.kafka.options import Options


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
        self._is_telling = False  # the client's own thread does, and must not wait for itself
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

        consumer = self

        class Told(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                listener.assigned([Partition(*one) for one in sorted(assigned)])

            def on_partitions_revoked(self, revoked: Any) -> None:
                if revoked:
                    consumer._is_telling = True
                    try:
                        listener.revoked([Partition(*one) for one in sorted(revoked)])
                    finally:
                        consumer._is_telling = False

            def on_partitions_lost(self, lost: Any) -> None:
                listener.lost([Partition(*one) for one in sorted(lost)])

        self._subscribed = True
        self._kafka.subscribe(list(topics), listener=Told())

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions, without a group's say."""
        self._kafka.assign(theirs(partitions))

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

        self._let_go()
        try:
            found = self._kafka.poll(timeout_ms=int(1000 * seconds))
        except OffsetOutOfRangeError as error:
            raise OffsetGoneError({Partition(*one): offset for one, offset in error.args[0].items()}) from error
        except KafkaError as error:
            if error.retriable:
                return []
            raise OSError(f"Expected records from Kafka, got {told(error)}") from error
        return [
            Record(Partition(one.topic, one.partition), r.offset, r.timestamp, r.key, r.value, r.headers)
            for one, records in found.items()
            for r in records
        ]

    def seek(self, partition: Partition, offset: int) -> None:
        """Read on from an offset."""
        self._kafka.seek(theirs([partition])[0], offset)

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Fetch nothing of these partitions."""
        self._kafka.pause(*theirs(partitions))

    def resume(self, partitions: Iterable[Partition]) -> None:
        """Fetch these partitions again."""
        self._kafka.resume(*theirs(partitions))

    def position(self, partition: Partition) -> int:
        """Return the offset of the record that is fetched next."""
        return int(self._kafka.position(theirs([partition])[0]))

    def waiting(self, partition: Partition, next_offset: int) -> int:
        """Return how many records there are from an offset on, as far as it is known."""
        try:
            end = self._kafka.highwater(theirs([partition])[0])
        except AssertionError:  # it has just been taken away
            end = None
        return 0 if end is None else max(0, end - next_offset)

    def committed(self, partition: Partition) -> int | None:
        """Return the offset that the group has committed."""
        found = self._asked(self._kafka.committed, theirs([partition])[0])
        return None if found is None or found < 0 else int(found)

    def partitions_of(self, topic: str) -> list[Partition]:
        """Return the partitions of a topic, ``[]`` if there is no such topic."""
        return [Partition(topic, number) for number in sorted(self._kafka.partitions_for_topic(topic))]

    def first(self, partition: Partition) -> int:
        """Return the offset of the oldest record."""
        return int(self._asked(self._kafka.beginning_offsets, theirs([partition])).popitem()[1])

    def end(self, partition: Partition) -> int:
        """Return the offset after the newest record."""
        return int(self._asked(self._kafka.end_offsets, theirs([partition])).popitem()[1])

    def at(self, partition: Partition, milliseconds: int) -> int:
        """Return the offset of the first record from a time on, or that after the newest record."""
        _, found = self._asked(self._kafka.offsets_for_times, {theirs([partition])[0]: milliseconds}).popitem()
        return self.end(partition) if found is None else int(found.offset)

    @property
    def membership(self) -> Any:
        """What tells the brokers whether this member still is one."""
        return self._kafka.group_metadata()

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets by themselves; those of partitions that are about to be taken away, without waiting for it.

        Raises
        ------
        CommitRefused
            If they are not committed.
        """
        from kafka.errors import KafkaError

        try:
            if self._is_telling:
                self._kafka.commit_async(with_note(offsets, ""))
            else:
                self._kafka.commit(with_note(offsets, ""), timeout_ms=int(1000 * COMMIT_SECONDS))
        except KafkaError as error:
            raise CommitRefused(told(error)) from error

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

    def _let_go(self) -> None:
        """Let go of a fetch of which all records were given.

        kafka-python 3.0.12 keeps it until the next one comes, and behind it, perhaps for ever, what was fetched of a
        partition that was paused then and is no more.
        """
        fetcher = self._kafka._fetcher
        if not getattr(fetcher, "_next_partition_records", True):
            fetcher._next_partition_records = None

    @staticmethod
    def _asked(call: Callable[..., Any], what: Any) -> Any:
        """Return an answer of the brokers, or raise an `OSError`: a `TimeoutError` if it may be asked again."""
        from kafka.errors import KafkaError

        try:
            return call(what, timeout_ms=int(1000 * COMMIT_SECONDS))
        except KafkaError as error:
            kind = TimeoutError if error.retriable else OSError
            raise kind(f"Expected an answer of Kafka, got {told(error)}") from error
