"""The interface of a Kafka client, with two implementations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

COMMIT_SECONDS = 30.0
"""How long the brokers may take for what a commit asks of them. A member that waits longer may be evicted."""

ANSWER_SECONDS = 5.0
"""How long they may take for an answer that is not needed at once."""

CONNECT_SECONDS = 10.0
"""How long one attempt to connect takes, unless an option of the client says otherwise."""

LOOK_SECONDS = 30.0
"""Time between two looks at whether topics are there, and have more partitions."""


class Partition(NamedTuple):
    """One partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.number}"

    @classmethod
    def parse(cls, name: str) -> Partition:
        """Return the partition of a name.

        Examples
        --------
        >>> Partition.parse("clicks:3")
        Partition(topic='clicks', number=3)
        """
        topic, _, number = name.rpartition(":")
        return cls(topic, int(number))


class Record(NamedTuple):
    """One record as the broker has it; the timestamp is in milliseconds, and negative if there is none."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]
    timestamp: int | None = None


class Listener(Protocol):
    """Callbacks for changes of the partitions; each is called before `Consumer.poll` returns."""

    def on_assigned(self, partitions: Iterable[Partition]) -> None:
        """Partitions were added."""

    def on_revoked(self, partitions: Iterable[Partition]) -> None:
        """Partitions are about to be taken away; what was done with them may still be committed."""

    def on_lost(self, partitions: Iterable[Partition]) -> None:
        """Partitions were taken away, and others may have them."""


class OffsetGoneError(Exception):
    """Records were deleted before they were read; says which were to come next."""

    def __init__(self, offsets: Mapping[Partition, int]) -> None:
        super().__init__(offsets)
        self.offsets = offsets


class Consumer(Protocol):
    """Reads what transactions have committed, and commits nothing by itself.

    Requests to the brokers raise an `OSError` if they fail: `UnavailableError` if they may be retried.
    """

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        """Take part in the group; nothing is read of the partitions that it assigns before `start`."""

    def start(self, offsets: Mapping[Partition, int]) -> None:
        """Read these partitions from these offsets on; they are ours, or without `subscribe` they become so."""

    def poll(self, seconds: float) -> Mapping[Partition, Sequence[Record]]:
        """Return the next records of some partitions, ``{}`` if none came in time.

        Raises
        ------
        OffsetGoneError
            If the records to be read next have been deleted.
        OSError
            If the brokers will not give any.
        """

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Fetch nothing of these partitions."""

    def resume(self, partitions: Iterable[Partition]) -> None:
        """Fetch these partitions again."""

    def position(self, partition: Partition) -> int:
        """Return the offset that is fetched next, -1 if it is not known; markers of transactions are passed over."""

    def waiting(self, partition: Partition, next_offset: int) -> int:
        """Return how many offsets there are from this one on, as far as it is known; any thread may call it.

        Records of transactions that are still open count, though they cannot be read; in `ends` they do not.
        """

    def committed(self, partition: Partition) -> int | None:
        """Return the offset that the group has committed."""

    def partitions_of(self, topic: str) -> list[Partition]:
        """Return the partitions of a topic, ``[]`` if there is no such topic."""

    def look(self, topics: Iterable[str]) -> Mapping[str, list[Partition]] | None:
        """Return the partitions of topics that are read, ``[]`` for one that is not there.

        The brokers are asked each time; while they have not answered, ``None`` is returned, and the next call has the
        answer, or raises `UnavailableError` if there is none in time.
        """

    def first(self, partition: Partition) -> int:
        """Return the offset of the oldest record."""

    def end(self, partition: Partition) -> int:
        """Return the offset after the newest record that can be read."""

    def ends(self, partitions: Iterable[Partition], seconds: float = COMMIT_SECONDS) -> Mapping[Partition, int]:
        """Return the offsets after the newest records of many partitions, each broker being asked once."""

    def at(self, partition: Partition, milliseconds: int) -> int:
        """Return the offset of the first record from a time on, or that after the newest record."""

    @property
    def membership(self) -> Any:
        """What tells the brokers whether this member still is one."""

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets by themselves, or raise `CommitRefusedError`."""

    def close(self) -> None:
        """Leave the group."""


class Producer(Protocol):
    """Writes each record once; in a transaction what it writes becomes visible at `commit`, together with offsets."""

    def send(self, topic: str, value: bytes, key: bytes | None, headers: Sequence[tuple[str, bytes]]) -> None:
        """Write a record, before long.

        Raises
        ------
        CommitRefusedError
            If nothing can be written any more.
        """

    def flush(self) -> None:
        """Wait until all records are written.

        Raises
        ------
        CommitRefusedError
            If one cannot be, or a transaction takes too long.
        TimeoutError
            If it times out and is no transaction; it may be retried.
        """

    def close(self) -> None:
        """Release it; of a transaction, what was written since the last commit is void."""

    def commit(self, parts: Sequence[tuple[Any, Mapping[Partition, int], str]]) -> None:
        """Commit the records since the last time and offsets, each with a note: all or nothing.

        Parameters
        ----------
        parts
            The `Consumer.membership` of a member, or the name of a group that has none; its offsets, and the note.

        Raises
        ------
        CommitRefusedError
            If it was not committed, or its outcome is unknown.
        """


class Client(Protocol):
    """A package that talks to Kafka: a module with these names.

    To make a consumer, a producer or topics raises `UnavailableError` if no broker answers, and a `ValueError` if
    options cannot be combined.
    """

    SEPARATOR: str
    """What is between the words of an option's name."""

    PATHS: Collection[str]
    """The options whose value is the path of a file or a directory that is read."""

    def check(self, name: str, value: Any) -> None:
        """Raise a `ValueError` if there is no such option."""

    def consumer(self, servers: str, options: Mapping[str, Any], group: str | None, member: str | None) -> Consumer:
        """Return a consumer that is connected, of a group if there is one, in which it is called `member`."""

    def producer(self, servers: str, options: Mapping[str, Any], name: str | None, seconds: float) -> Producer:
        """Return a producer that is connected.

        With a `name`, the transactional id, it has transactions that may stay open for some seconds, and an older
        producer of the same name is shut out.
        """

    def create_topics(self, servers: str, options: Mapping[str, Any], partitions: Mapping[str, int | None]) -> None:
        """Create topics, each with a number of partitions or the brokers' default; an `OSError` if they refuse.

        A topic that exists is left as it is.
        """
