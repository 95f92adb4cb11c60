"""Writing to topics: a writer that finds the records that brokers refuse, and transactions over reading and writing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import orjson

from streamkernel.connectors.base import CommitRefusedError, Position, RecordsRefusedError, UnavailableError
from streamkernel.connectors.interfaces import Transactions
from streamkernel.connectors.json_text import Refused
from streamkernel.connectors.kafka.clients import (
    FORBIDDEN,
    TOO_LARGE,
    Headers,
    OutRecord,
    Partition,
    Producer,
    Undelivered,
    seconds_until,
)
from streamkernel.connectors.kafka.offsets import missing_topic
from streamkernel.connectors.kafka.options import Options
from streamkernel.connectors.kafka.source import KafkaSource

LIMITS = {"max_request_size": 1_048_576, "message.max.bytes": 1_000_000}
"""Options of the clients with the largest size in bytes, and their defaults."""

COMPRESSION = "compression.type", "compression.codec"
"""Names of the option that compresses batches, with dots."""

OVERHEAD = 100
"""Bytes of a batch and of a record besides its parts, at most."""

LENGTH = 5
"""Bytes of the length of a part, at most."""

PLACE = "topic", "partition", "offset", "stream", "position"
"""Fields of an origin that identify it."""

NOTE_END = "."
"""The end of the note with the session of a checkpoint: librdkafka returns bytes of its memory after a note."""


class TopicLimits(NamedTuple):
    """The limits of the records of a topic.

    `largest` is the largest size of a record in bytes, before compression, and `batch` of a batch, if it is known.
    `needs_keys` says whether each record must have a key, as in a compacted topic.
    """

    largest: int
    batch: int | None = None
    needs_keys: bool = False

    @classmethod
    def of(cls, options: Options, settings: Mapping[str, str]) -> TopicLimits:
        """Return the limits that follow from the options of a client, and from the settings of the topic.

        Without compression, the brokers' limit of a batch is a limit of each record.

        Examples
        --------
        >>> from streamkernel.connectors.kafka.options import Options
        >>> TopicLimits.of(Options("localhost:9092"), {"max.message.bytes": "9000", "cleanup.policy": "compact"})
        TopicLimits(largest=9000, batch=8900, needs_keys=True)
        >>> TopicLimits.of(Options("localhost:9092", {"max_request_size": 7000}), {})
        TopicLimits(largest=7000, batch=None, needs_keys=False)
        """
        name = next(name for name in LIMITS if options.separator in name)
        largest = int(options.given.get(name, LIMITS[name]))
        needs_keys = "compact" in settings.get("cleanup.policy", "")
        if "max.message.bytes" not in settings:
            return cls(largest, None, needs_keys)
        bytes_of_brokers = int(settings["max.message.bytes"])
        kinds = {str(options.given.get(one.replace(".", options.separator))) for one in COMPRESSION}
        if kinds <= {"None", "none"}:
            largest = min(largest, bytes_of_brokers)
        return cls(largest, max(bytes_of_brokers - OVERHEAD, 1), needs_keys)


def size_of(value: bytes, key: bytes | None, headers: Headers = ()) -> int:
    """Return an upper bound of the size of a record in bytes, which every client and broker accepts as such.

    Examples
    --------
    >>> size_of(b"{}", b"k", [("h", b"1")])
    125
    """
    size = OVERHEAD + 2 * LENGTH + len(value) + len(key or b"")
    for name, content in headers:
        size += 2 * LENGTH + len(name.encode()) + len(content or b"")
    return size


LARGEST_BATCH = 1_000_000
"""Largest size of a batch in bytes that brokers accept by default."""


class Writer:
    """A producer of visible records, which connects at its first use.

    Brokers refuse a whole batch for one record. If they do, its records are sent again, each in a batch of its own
    (`is_single`), so that only those which brokers refuse by themselves are not written.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.is_single = False
        self._producer: Producer | None = None
        self._limits: dict[str, TopicLimits] = {}
        self._batch: int | None = None
        self._unsent: list[Undelivered] = []  # to be sent again
        self._refused: list[Refused] = []  # until all others are stored

    def open(self, topic: str) -> None:
        """Check that a topic exists, and look up its limits; raise `UnavailableError` if it does not exist."""
        asked = self.options.consumer()
        try:
            if not asked.partitions_of(topic):
                raise missing_topic(topic, self.options.servers)
        finally:
            asked.close()
        limits = self._limits[topic] = TopicLimits.of(self.options, self.options.topic_settings(topic))
        if limits.batch is not None:
            self._batch = limits.batch if self._batch is None else min(self._batch, limits.batch)

    def limits(self, topic: str) -> TopicLimits:
        """Return the limits of the records of a topic, without its settings before `open`."""
        if topic not in self._limits:
            self._limits[topic] = TopicLimits.of(self.options, {})
        return self._limits[topic]

    def refusal(self, topic: str, origin: Mapping[str, Any]) -> str:
        """Return why the brokers refused the record of an origin before, or an empty string."""
        return ""

    def send(self, topic: str, value: bytes, key: bytes | None = None, headers: Headers = ()) -> None:
        """Write a record that must not be refused."""
        self._connect().send(topic, value, key, headers)

    def send_all(self, topic: str, records: Sequence[OutRecord], origins: Sequence[Mapping[str, Any]]) -> None:
        """Write records, of which some may be refused; `origins` has what each was made from."""
        self._connect().send_all(topic, records, origins)

    def flush(self, deadline: float = math.inf) -> None:
        """Wait until all sent records are stored, at most until a deadline.

        Raise `RecordsRefusedError` if brokers refuse some of them for good, and the others are stored;
        `CommitRefusedError` if they could not be written; `UnavailableError` if no broker is available, and the call
        may be repeated.
        """
        try:
            self._connect().flush(seconds_until(deadline))
        except CommitRefusedError:
            self._unsent = self._take_undelivered()
            if not self._unsent:
                raise
            self._restart(is_single=True)
        while self._unsent:
            topic, (value, key, headers), origin, *_ = self._unsent[0]
            self._connect().send(topic, value, key, headers)
            try:
                self._connect().flush(seconds_until(deadline))
            except CommitRefusedError as error:
                undelivered = next(iter(self._take_undelivered()), None)
                if undelivered is None or not undelivered.is_refused or origin is None:
                    raise CommitRefusedError(f"{error} - for topic {topic}") from error
                self._refused.append((origin, key, refusal_of(undelivered)))
                self._restart(is_single=True)  # after an error, a client may write nothing more
            del self._unsent[0]
        if self.is_single:
            self._restart(is_single=False)
        if self._refused:
            refused, self._refused = self._refused, []
            raise RecordsRefusedError(refused)

    def close(self) -> None:
        """Release the client."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _take_undelivered(self) -> list[Undelivered]:
        """Return and forget the records that were not written.

        Raise `CommitRefusedError` if all records of a topic are refused.
        """
        undelivered: list[Undelivered] = []
        if self._producer is not None:
            undelivered, self._producer.undelivered = self._producer.undelivered, []
        if (one := next((one for one in undelivered if one.code in FORBIDDEN), None)) is not None:
            raise CommitRefusedError(f"{one.reason} - for topic {one.topic}", "write_forbidden")
        if not self.is_single and any(one.code in TOO_LARGE for one in undelivered):
            self._batch = (self._batch or LARGEST_BATCH) // 2  # the brokers did not tell their limit
        return undelivered

    def _restart(self, *, is_single: bool) -> None:
        self.close()
        self.is_single = is_single

    def _connect(self) -> Producer:
        if self._producer is None:
            self._producer = self._make_producer(0 if self.is_single else self._batch)
        return self._producer

    def _make_producer(self, batch: int | None) -> Producer:
        return self.options.producer(batch=batch)


def refusal_of(undelivered: Undelivered) -> str:
    """Return why a record is refused."""
    return f"Expected a prediction that the brokers accept, got {undelivered.reason} - for topic {undelivered.topic}"


class KafkaTransactions(Writer, Transactions):
    """Commits checkpoints by number, each in one transaction with the records written and the offsets read since.

    The number is also committed as an offset, in a group without members that has the name of the transactional id. No
    other process writes to this group, so its offset is the number of the last committed checkpoint.

    A record that brokers refuse ends its transaction. After a return to the last checkpoint, the same records are
    written one by one, which shows which one it is; after another return, `refusal` has the reason instead.

    Parameters
    ----------
    source : KafkaSource
        The source, whose offsets are committed as a member of its group, so that the commit of an evicted member is
        refused.
    name : str
        The transactional id. A new process with this id fences older ones.
    seconds : float
        The longest time that a transaction may stay open, in seconds; longer than the time between two commits.
    """

    def __init__(self, source: KafkaSource, name: str, seconds: float) -> None:
        super().__init__(source.options)
        source.is_in_transactions = True
        self._source, self._name, self._seconds = source, name, seconds
        self._number_partition = Partition(source.topics[0], 0)
        self._refusals: dict[bytes, str] = {}  # by topic and place of the origin
        self._has_refused = False  # in this transaction

    def newest(self) -> tuple[int, str]:
        """Return the number and the session of the last committed checkpoint, 0 for none.

        Open transactions of this process, and of others with the same transactional id, are aborted.

        Raises
        ------
        UnavailableError
            If no broker is available.
        """
        self.close()
        self._has_refused = False
        self._connect()
        keeper = self.options.consumer(self._name)
        try:
            number, note = keeper.committed_with_note(self._number_partition) or (0, "")
        finally:
            keeper.close()
        return number, note.removeprefix(f"{self._name} {number}").partition(NOTE_END)[0].strip()

    def refusal(self, topic: str, origin: Mapping[str, Any]) -> str:
        """Return why the brokers refused the record of an origin before, or an empty string."""
        reason = self._refusals.get(_place(topic, origin), "") if self._refusals else ""
        self._has_refused |= bool(reason)
        return reason

    def send(self, topic: str, value: bytes, key: bytes | None = None, headers: Headers = ()) -> None:
        """Write a record that must not be refused."""
        with self._finding():
            super().send(topic, value, key, headers)

    def send_all(self, topic: str, records: Sequence[OutRecord], origins: Sequence[Mapping[str, Any]]) -> None:
        """Write records, of which some may be refused; `origins` has what each was made from."""
        with self._finding():
            self._connect().send_all(topic, records, origins if self.is_single else None)
            if self.is_single:
                self._connect().flush()

    def flush(self, deadline: float = math.inf) -> None:
        """Wait until all sent records are stored, at most until a deadline.

        Raises
        ------
        CommitRefusedError
            If they could not be written.
        """
        with self._finding():
            self._connect().flush(seconds_until(deadline))

    def commit(self, number: int, session: str, positions: Mapping[str, Position], deadline: float = math.inf) -> None:
        """Commit the records, the positions and the number of the checkpoint in one transaction.

        Raises
        ------
        CommitRefusedError
            If nothing was committed, or the outcome is unknown: call `newest`.
        """
        source, note = self._source, f"{self._name} {number}"
        numbers = {self._number_partition: number}
        parts: list[tuple[Any, Mapping[Partition, int], str]] = [(self._name, numbers, f"{note} {session}{NOTE_END}")]
        if source.group is not None:
            parts.insert(0, (source.client.membership, source.offsets(positions), note))
        self._connect().commit(parts, seconds_until(deadline))
        self._refusals.clear()
        if self.is_single and not self._has_refused:
            self._restart(is_single=False)
        self._has_refused = False

    @contextmanager
    def _finding(self) -> Iterator[None]:
        """Find the records that end the transaction by their errors."""
        try:
            yield
        except UnavailableError as error:  # of a new producer
            raise CommitRefusedError(str(error)) from error
        except CommitRefusedError as error:
            refused = [one for one in self._take_undelivered() if one.is_refused]
            if not refused and error.kind == "write_forbidden":
                raise CommitRefusedError(f"{error} - for topic {' or '.join(self._limits)}", error.kind) from error
            if not refused:
                raise
            reason = f"{refused[0].reason} - for topic {refused[0].topic}"
            if self.is_single and refused[0].origin is None:
                raise CommitRefusedError(f"{reason}, of dead letters", "write_forbidden") from error
            if self.is_single:  # what follows it fails with it
                self._refusals[_place(refused[0].topic, refused[0].origin)] = refusal_of(refused[0])
            self.is_single = True
            raise CommitRefusedError(reason, "record_refused") from error

    def _make_producer(self, batch: int | None) -> Producer:
        return self.options.producer(self._name, self._seconds, batch)


def _place(topic: str, origin: Mapping[str, Any]) -> bytes:
    return orjson.dumps((topic, *(origin.get(name) for name in PLACE)), default=repr)
