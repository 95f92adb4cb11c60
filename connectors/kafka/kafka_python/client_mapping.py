"""The options and errors of kafka-python in terms of the common interface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from streamkernel.connectors.kafka.clients import Partition


def to_client(partitions: Iterable[Partition]) -> list[Any]:
    """Return partitions as kafka-python's objects."""
    return [TopicPartition(*partition) for partition in partitions]


def from_client(partitions: Iterable[Any]) -> list[Partition]:
    """Return kafka-python's partitions as ours, in order."""
    return [Partition(*partition) for partition in sorted(partitions)]


def with_note(offsets: Mapping[Partition, int], note: str) -> dict[Any, Any]:
    """Return offsets to commit, with a note for people."""
    return {TopicPartition(*one): OffsetAndMetadata(offset, note, -1) for one, offset in offsets.items()}


def arguments(kind: Any, servers: str, options: Mapping[str, Any], **own: Any) -> dict[str, Any]:
    """Return the arguments of a client class: the servers, the options that it has, and our own."""
    known = {name: value for name, value in options.items() if name in kind.DEFAULT_CONFIG}
    return {"bootstrap_servers": [server.strip() for server in servers.split(",")]} | known | own
