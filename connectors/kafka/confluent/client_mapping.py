"""The options and errors of confluent-kafka in terms of the common interface, and librdkafka's log."""

from __future__ import annotations

import logging
import re
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streamkernel.connectors.kafka import clients
from streamkernel.connectors.kafka.clients import CONNECT_SECONDS, Failure, Partition


def certificate_problem(cause: str, options: Mapping[str, Any], seconds: float) -> str:
    """Return the reason why Python does not trust a broker's certificate either, or nothing.

    `cause` is the error of librdkafka, which has the address of the broker.

    Examples
    --------
    >>> certificate_problem("no address", {}, 1.0)
    ''
    """
    address = re.search(r"://\[?([^\s/\]]+)\]?:(\d+)/", cause)
    if address is None:
        return ""
    try:
        context = _context(options)
        with (
            socket.create_connection((address[1], int(address[2])), seconds) as plain,
            context.wrap_socket(plain, server_hostname=address[1]),
        ):
            return ""
    except ssl.SSLCertVerificationError as error:
        return f" ({error.verify_message})"
    except OSError:
        return ""


def _context(options: Mapping[str, Any]) -> ssl.SSLContext:
    """Return the context that trusts the authorities of the options."""
    location = options.get("ssl.ca.location")
    path = Path(location) if location and location != "probe" else None
    folder, file = (path, None) if path and path.is_dir() else (None, path)
    context = ssl.create_default_context(cafile=file, capath=folder, cadata=options.get("ssl.ca.pem"))
    if options.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    return context


_TOOK = re.compile(r" \(after \d+ms in state .*\)$")

LOG = logging.getLogger("librdkafka")
STILL_USED = "instance ID is still used by another member"
"""Part of the reason why a static member cannot join: brokers remember the process that was killed (KIP-848)."""

FENCED = "fenced by other consumer with same group.instance.id"
"""Part of the reason why a static member is no longer one."""

SILENT = ("will be ignored by this", STILL_USED)
"""Parts of lines that are not logged: one table of options is for both kinds of clients, and a member joins again."""

LOG.addFilter(lambda line: not any(part in line.getMessage() for part in SILENT))

AGAIN = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._MAX_POLL_EXCEEDED,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
}
"""Errors after which a request may be retried."""

VAGUE = {KafkaError._ALL_BROKERS_DOWN}
"""Errors that follow from others."""


def keeps_partitions(options: Mapping[str, Any]) -> bool:
    """Return whether members keep in a rebalance the partitions that do not move.

    Examples
    --------
    >>> keeps_partitions({"partition.assignment.strategy": "cooperative-sticky"}), keeps_partitions({})
    (True, False)
    """
    strategy = str(options.get("partition.assignment.strategy", ""))
    return options.get("group.protocol") == "consumer" or "cooperative" in strategy


def settings(servers: str, options: Mapping[str, Any], **arguments: Any) -> dict[str, Any]:
    """Return the configuration of a client; our own options have names with underscores."""
    ours = {name.replace("_", "."): value for name, value in arguments.items()}
    return {**options, "bootstrap.servers": servers, "logger": LOG, **ours}


def reach(kafka: Any, servers: str, options: Mapping[str, Any], reasons: Sequence[KafkaError]) -> None:
    """Wait until a broker responds. Raise `UnavailableError` if none does, with the errors that the client reported."""
    seconds = int(options.get("socket.connection.setup.timeout.ms", 1000 * CONNECT_SECONDS)) / 1000
    try:
        kafka.list_topics(timeout=seconds)
    except KafkaException as error:
        with _silent():
            kafka.poll(0)  # which hands out the reasons, and the lines of the log
        cause = max(reasons, key=lambda one: (_kind_of(one), one.code() not in VAGUE), default=error.args[0])
        kind, text = _kind_of(cause), describe_error(cause)
        if kind == Failure.UNTRUSTED:
            text += certificate_problem(text, options, seconds)
        raise clients.unavailable(servers, kind, text, ("ssl.ca.location", "ssl.certificate.location")) from error


@contextmanager
def _silent() -> Iterator[None]:
    def nothing(line: logging.LogRecord) -> bool:
        return False

    LOG.addFilter(nothing)
    try:
        yield
    finally:
        LOG.removeFilter(nothing)


def _kind_of(error: KafkaError) -> Failure:
    if clients.refuses_certificate(error.str()):
        return Failure.CERTIFICATE
    kinds = {KafkaError._AUTHENTICATION: Failure.REJECTED, KafkaError._SSL: Failure.UNTRUSTED}
    return kinds.get(error.code(), Failure.UNREACHABLE)


def to_client(offsets: Mapping[Partition, int], note: str = "") -> list[TopicPartition]:
    """Return offsets of partitions as confluent-kafka's objects, with a note for people."""
    return [TopicPartition(*partition, offset, note) for partition, offset in offsets.items()]


def from_client(partitions: Iterable[TopicPartition]) -> list[Partition]:
    """Return confluent-kafka's partitions as ours, in order."""
    return sorted(Partition(one.topic, one.partition) for one in partitions)


def describe_error(error: Any) -> str:
    """Return an error as text without its duration: the same failure has the same text each time.

    Examples
    --------
    >>> describe_error(KafkaError(KafkaError._TIMED_OUT, "timed out (after 3ms in state CONNECT)"))
    '_TIMED_OUT: timed out'
    """
    one = error.args[0] if isinstance(error, KafkaException) else error
    if not isinstance(one, KafkaError):
        return clients.describe_error(error)
    return f"{one.name()}: {_TOOK.sub('', one.str())}"
