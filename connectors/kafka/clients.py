"""What consumers and producers of Kafka have in common: partitions, records, and how a client is connected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from connectors.base import TopicMissing, Unavailable
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


class OffsetGoneError(Exception):
    """Records were deleted before they were read; says which were to come next."""

    def __init__(self, offsets: Mapping[Partition, int]) -> None:
        super().__init__(offsets)
        self.offsets = offsets


def group_offsets(options: Options, group: str) -> dict[Partition, int]:
    """Return the offsets a group has committed."""
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(**options.admin())
    try:
        found = admin.list_group_offsets({group: None})[group]
    finally:
        admin.close()
    return {Partition(*one): int(offset.offset) for one, offset in found.items() if offset.offset >= 0}


def check_topic(options: Options, topic: str) -> None:
    """Find out whether there is a topic.

    Raises
    ------
    TopicMissing
        If there is none.
    Unavailable
        If no broker answers.
    """
    from kafka import KafkaAdminClient

    admin = connected(lambda: KafkaAdminClient(**options.admin()), options)
    try:
        (found,) = connected(lambda: admin.describe_topics([topic]), options)
    finally:
        admin.close()
    if not found["partitions"]:
        raise no_topic(topic, options)


def no_topic(topic: str, options: Options) -> TopicMissing:
    """Return the error that says which topic is not there."""
    return TopicMissing(f'Expected a topic, got "{topic}", which is not there - at {options.servers}')


def theirs(partitions: Iterable[Partition]) -> list[Any]:
    from kafka import TopicPartition

    return [TopicPartition(*partition) for partition in partitions]


def with_note(offsets: Mapping[Partition, int], note: str) -> dict[Any, Any]:
    from kafka import TopicPartition
    from kafka.structs import OffsetAndMetadata

    return {TopicPartition(*one): OffsetAndMetadata(offset, note, -1) for one, offset in offsets.items()}


def connected(make: Callable[[], Any], options: Options) -> Any:
    """Return a client that is connected, or an answer.

    Raises
    ------
    Unavailable
        If no broker answers.
    """
    from kafka.errors import KafkaError

    try:
        return make()
    except KafkaError as error:
        raise Unavailable(f"Expected a Kafka broker at {options.servers}, got {told(error)}") from error


def told(error: BaseException) -> str:
    """Return what an error is and says.

    Examples
    --------
    >>> told(KeyError("a")), told(OSError())
    ("KeyError: 'a'", 'OSError')
    """
    name, text = type(error).__name__, str(error)
    return text if text.startswith(name) else f"{name}: {text}".rstrip(": ")
