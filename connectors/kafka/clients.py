"""The interface of a Kafka client, with two implementations, and the failures of both."""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from streamkernel.connectors.base import UnavailableError

Headers = Sequence[tuple[str, bytes]]
"""The headers of a record."""

OutRecord = tuple[bytes, bytes | None, Headers]
"""Value, key and headers of a record to write."""

TOO_LARGE = {10: "MESSAGE_TOO_LARGE", 18: "RECORD_LIST_TOO_LARGE"}
"""Codes of errors of a record, or of the batch that it is in."""

REFUSES_RECORD = TOO_LARGE | {32: "INVALID_TIMESTAMP", 87: "INVALID_RECORD"}
"""Codes of errors that the brokers give for a record whenever it is sent."""

FORBIDDEN = {29: "TOPIC_AUTHORIZATION_FAILED", 31: "CLUSTER_AUTHORIZATION_FAILED", 44: "POLICY_VIOLATION"}
"""Codes of errors that the brokers give for every record of a topic."""

COMMIT_SECONDS = 30.0
"""Timeout of a commit's requests in seconds. A member that waits longer may be evicted."""

ANSWER_SECONDS = 5.0
"""Timeout of requests whose response is not needed immediately, in seconds."""

CONNECT_SECONDS = 10.0
"""Timeout of one attempt to connect in seconds, unless an option of the client sets another."""

LOOK_SECONDS = 30.0
"""Seconds between two checks for topics and new partitions."""

RIVAL_SECONDS = 60.0
"""Seconds within which a second fence shows that another process has the same name."""

log = logging.getLogger(__name__)


def seconds_until(deadline: float, most: float = COMMIT_SECONDS) -> float:
    """Return the timeout of a request that must be over at a deadline, in seconds.

    Examples
    --------
    >>> seconds_until(float("inf")), seconds_until(0.0)
    (30.0, 0.0)
    """
    return max(0.0, min(most, deadline - time.monotonic()))


class Partition(NamedTuple):
    """One partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.number}"

    @classmethod
    def parse(cls, name: str) -> Partition:
        """Return the partition with a given name.

        Examples
        --------
        >>> Partition.parse("clicks:3")
        Partition(topic='clicks', number=3)
        """
        topic, _, number = name.rpartition(":")
        return cls(topic, int(number))


class Record(NamedTuple):
    """One record as the broker stores it; the timestamp is in milliseconds, and negative if there is none."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None = None


class Listener(Protocol):
    """Callbacks for changes of the partitions; each is called before `Consumer.poll` returns."""

    def on_assigned(self, partitions: Iterable[Partition]) -> None:
        """Partitions were added."""

    def on_revoked(self, partitions: Iterable[Partition]) -> None:
        """Partitions are about to be revoked; the work on them can still be committed."""

    def on_lost(self, partitions: Iterable[Partition]) -> None:
        """Partitions were revoked, and other members may have them."""


class OffsetGoneError(Exception):
    """Records were deleted before they were read; the error has their offsets."""

    def __init__(self, offsets: Mapping[Partition, int]) -> None:
        super().__init__(offsets)
        self.offsets = offsets


class Consumer(Protocol):
    """Reads committed records, and commits nothing by itself.

    Requests to the brokers raise an `OSError` if they fail: `UnavailableError` if they may be retried.
    """

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        """Join the group; assigned partitions are not read before `start`."""

    def start(self, offsets: Mapping[Partition, int]) -> None:
        """Read these partitions from these offsets; without `subscribe`, this also assigns them."""

    def poll(self, seconds: float) -> Mapping[Partition, Sequence[Record]]:
        """Return the next records of some partitions, or ``{}`` if none arrived in time.

        Raise `OffsetGoneError` if the records to be read next have been deleted; `OSError` if the brokers will not give
        any.
        """

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Stop fetching these partitions."""

    def resume(self, partitions: Iterable[Partition]) -> None:
        """Fetch these partitions again."""

    def position(self, partition: Partition) -> int:
        """Return the offset that is fetched next, or -1 if it is unknown; transaction markers are skipped."""

    def waiting(self, partition: Partition, next_offset: int) -> int:
        """Return the last known number of offsets from this one on; any thread may call it.

        Records of open transactions count here, though they cannot be read yet; in `ends` they do not.
        """

    def committed(self, partition: Partition) -> int | None:
        """Return the offset that the group has committed."""

    def committed_with_note(self, partition: Partition) -> tuple[int, str] | None:
        """Return the committed offset and the note beside it, which other bytes may follow."""

    def partitions_of(self, topic: str) -> list[Partition]:
        """Return the partitions of a topic, or ``[]`` if there is no such topic."""

    def look(self, topics: Iterable[str]) -> Mapping[str, list[Partition]] | None:
        """Return the partitions of the topics, ``[]`` for a missing topic.

        Each call sends a request. ``None`` means that the brokers have not responded yet: the next call returns their
        response, or raises `UnavailableError` after the timeout.
        """

    def topic_ids(self, topics: Iterable[str]) -> Mapping[str, str]:
        """Return the id of each topic that exists and has one: a topic that is deleted and made again has another."""

    def first(self, partition: Partition) -> int:
        """Return the offset of the oldest record."""

    def end(self, partition: Partition) -> int:
        """Return the offset after the newest readable record."""

    def ends(self, partitions: Iterable[Partition], seconds: float = COMMIT_SECONDS) -> Mapping[Partition, int]:
        """Return the offsets after the newest records of many partitions, with one request per broker."""

    def at(self, partition: Partition, milliseconds: int) -> int:
        """Return the offset of the first record from a time on, or the end offset if there is none."""

    @property
    def membership(self) -> Any:
        """The identity by which brokers recognise this member."""

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets without a transaction, or raise `CommitRefusedError`."""

    def close(self) -> None:
        """Leave the group."""


class Undelivered(NamedTuple):
    """A record that was not written.

    `record` has its value, key and headers. `origin` is what the sender made it from; ``None`` if it named none. `code`
    is Kafka's code of the error, negative for an error of the client; `reason` describes it.
    """

    topic: str
    record: OutRecord
    origin: Any
    code: int
    reason: str

    @property
    def is_refused(self) -> bool:
        """Whether the brokers refuse this record for good, or one in the same batch."""
        return self.code in REFUSES_RECORD


class Producer(Protocol):
    """Writes each record once; in a transaction, records become visible at `commit`, together with offsets."""

    undelivered: list[Undelivered]
    """Records that could not be written: all with an origin, and the ones of others that the client names."""

    def send(self, topic: str, value: bytes, key: bytes | None, headers: Headers, partition: int | None = None) -> None:
        """Write a record asynchronously, as one without an origin.

        Raise `CommitRefusedError` if nothing can be written any more.
        """

    def send_all(self, topic: str, records: Sequence[OutRecord], origins: Sequence[Any] | None = None) -> None:
        """Write records asynchronously, as `send` does for each; without `origins`, which is faster, none has one."""

    def flush(self, seconds: float = COMMIT_SECONDS) -> None:
        """Wait until all records are written, with a timeout in seconds.

        Raise `CommitRefusedError` if one cannot be, or a transaction takes too long; `TimeoutError` if it times out and
        is no transaction; it may be retried.
        """

    def close(self) -> None:
        """Release the client; records of an open transaction are aborted."""

    def commit(
        self, parts: Sequence[tuple[Any, Mapping[Partition, int], str]], seconds: float = COMMIT_SECONDS
    ) -> None:
        """Commit the records since the last commit, and offsets, each with a note: all or nothing.

        `parts` is the `Consumer.membership` of a member, or the name of a group that has none; its offsets, and the
        note. `seconds` is the timeout. Raise `CommitRefusedError` if it was not committed, or its outcome is unknown.
        """


class Client(Protocol):
    """A Kafka client package: a module with these names.

    Creating a consumer, a producer or topics raises `UnavailableError` if the brokers are unavailable, and a
    `ValueError` if options cannot be combined.
    """

    SEPARATOR: str
    """The separator of words in the names of options."""

    PATHS: Collection[str]
    """The options whose value is the path of a file or a directory that is read."""

    FUNCTIONS: Mapping[str, Callable[[Callable[..., Any]], Any]]
    """The options whose value is the name of a function, and what the client gets of that function."""

    def check(self, name: str, value: Any) -> None:
        """Raise a `ValueError` for an unknown option."""

    def consumer(self, servers: str, options: Mapping[str, Any], group: str | None, member: str | None) -> Consumer:
        """Return a connected consumer, in a group under the name `member` if a group is given."""

    def producer(
        self, servers: str, options: Mapping[str, Any], name: str | None, seconds: float, batch: int | None
    ) -> Producer:
        """Return a connected producer.

        With a `name`, the transactional id, it has transactions with a timeout in seconds, and an older producer with
        the same name is fenced. No batch has more than `batch` bytes; with 0, each has one record.
        """

    def topic_settings(self, servers: str, options: Mapping[str, Any], topic: str) -> Mapping[str, str]:
        """Return the settings of a topic by name, or none where the brokers do not tell them."""

    def create_topics(self, servers: str, options: Mapping[str, Any], partitions: Mapping[str, int | None]) -> None:
        """Create topics, each with a number of partitions or the brokers' default; an `OSError` if they refuse.

        An existing topic does not change.
        """


class Failure(IntEnum):
    """The reason of a failed connection; of several reasons, the largest value is the most specific."""

    UNREACHABLE = 0
    UNTRUSTED = 1
    CERTIFICATE = 2
    REJECTED = 3


def run_within(seconds: float, task: Callable[[], None]) -> Exception | None:
    """Run a task with a time limit, abandon it afterwards, and return how it failed: some calls wait without end.

    Examples
    --------
    >>> run_within(1.0, lambda: None)
    >>> run_within(0.01, lambda: threading.Event().wait(1.0))
    TimeoutError('timed out after 0.01 s')
    """
    outcome: list[Exception | None] = []

    def run() -> None:
        try:
            task()
            outcome.append(None)
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True, name="kafka-answer")
    thread.start()
    thread.join(seconds)
    return outcome[0] if outcome else TimeoutError(f"timed out after {seconds:g} s")


def describe_error(error: BaseException) -> str:
    """Return the class and the message of an error.

    Examples
    --------
    >>> describe_error(KeyError("a")), describe_error(OSError())
    ("KeyError: 'a'", 'OSError')
    """
    name, text = type(error).__name__, str(error)
    return text if name in text else f"{name}: {text}".rstrip(": ")


def refuses_certificate(cause: str) -> bool:
    """Return whether an error is a broker's answer to the certificate of a client, or to a client without one.

    Examples
    --------
    >>> refuses_certificate("[SSL: SSLV3_ALERT_BAD_CERTIFICATE] sslv3 alert bad certificate")
    True
    >>> refuses_certificate("certificate verify failed: certificate has expired")
    False
    """
    return bool(re.search("alert.*(certificate|unknown.ca)|certificate.required", cause, re.IGNORECASE))


def unavailable(servers: str, failure: Failure, cause: str, options: tuple[str, str]) -> UnavailableError:
    """Return the error for a failed connection, with the client's message.

    `options` are the client's names for the file with the certificates that it trusts, and for the file with its own.

    Examples
    --------
    >>> print(unavailable("kafka:9092", Failure.UNREACHABLE, "connection refused",
    ...     ("ssl_cafile", "ssl_certfile")))
    Kafka at kafka:9092 cannot be reached: connection refused
    """
    what = {
        Failure.UNREACHABLE: "cannot be reached",
        Failure.UNTRUSTED: f"cannot be trusted (option {options[0]})",
        Failure.CERTIFICATE: f"rejects the certificate of the client (option {options[1]})",
        Failure.REJECTED: "rejects the login",
    }
    return UnavailableError(f"Kafka at {servers} {what[failure]}: {cause}")


class Fences:
    """Decides whether a fenced member joins again.

    The first time it does. The other member may be gone, and there need not be one: when brokers respond again after a
    session timeout, librdkafka sends a heartbeat without its id, for which it is fenced (its issue 3437). That happens
    at most once in a session timeout, but another process that runs joins again within seconds. So a second fence
    within a minute is an error: both would take the partitions from each other without end. `member` is the name of the
    member in the group.

    Examples
    --------
    >>> fences = Fences("one")
    >>> fences.add()
    >>> fences.add()
    Traceback (most recent call last):
    OSError: Expected one process with the name 'one' (group.instance.id) in the group, got another one beside this
    process; stop one of them, or give it a state directory of its own
    """

    def __init__(self, member: str | None) -> None:
        self._member, self._last = member, -math.inf

    def add(self) -> None:
        """Record a fence; raise an `OSError` if it shows that another process has the name."""
        now = time.monotonic()
        if now - self._last < RIVAL_SECONDS:
            raise OSError(
                f"Expected one process with the name {self._member!r} (group.instance.id) in the group, got another "
                "one beside this process; stop one of them, or give it a state directory of its own"
            )
        self._last = now
        log.warning("the brokers have fenced this member of the group; joining again under the same name")
