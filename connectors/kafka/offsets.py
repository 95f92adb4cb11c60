"""Offsets in a partition, from configuration and from checkpoints."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress

from streamkernel.connectors.base import Position, TopicMissingError
from streamkernel.connectors.checks import is_count
from streamkernel.connectors.kafka.clients import Consumer, Partition

Start = str | int | dt.datetime
"""``"earliest"``, ``"latest"``, an offset, or a time with its zone (as text: ISO 8601)."""


def parse_start(start: Start) -> Start:
    """Return a configured start or end, with a time as text parsed.

    Raises
    ------
    ValueError
        If it is none.

    Examples
    --------
    >>> parse_start("2026-05-01T00:00:00+00:00")
    datetime.datetime(2026, 5, 1, 0, 0, tzinfo=datetime.timezone.utc)
    >>> parse_start("lates")
    Traceback (most recent call last):
    ValueError: Expected "earliest", "latest", an offset or a time with its zone, got 'lates'
    """
    if isinstance(start, str) and start not in ("earliest", "latest"):
        with suppress(ValueError):
            start = dt.datetime.fromisoformat(start)
    is_time = isinstance(start, dt.datetime) and start.tzinfo is not None
    if not (is_time or is_count(start) or start in ("earliest", "latest")):
        raise ValueError(f'Expected "earliest", "latest", an offset or a time with its zone, got {start!r}')
    return start


def missing_topic(topic: str, servers: str) -> TopicMissingError:
    """Return the error that names a missing topic."""
    return TopicMissingError(f'Expected a topic, got "{topic}", which does not exist - at {servers}')


def find_partitions(client: Consumer, topic: str, numbers: Sequence[int] | None, servers: str) -> list[Partition]:
    """Return the partitions of a topic, or those with the given numbers.

    Raises
    ------
    TopicMissingError
        If the topic is not there.
    ValueError
        If a partition is not.
    """
    known = client.partitions_of(topic)
    if not known:
        raise missing_topic(topic, servers)
    wanted = known if numbers is None else [Partition(topic, number) for number in numbers]
    for partition in wanted:
        if partition not in known:
            raise ValueError(f'Expected a partition from 0 to {len(known) - 1} of "{topic}", got {partition.number}')
    return wanted


def check_copartitioned(partitions: Iterable[Partition]) -> None:
    """Raise a ValueError if topics do not have the same number of partitions.

    Examples
    --------
    >>> check_copartitioned([Partition("clicks", 0), Partition("clicks", 1), Partition("views", 0)])
    Traceback (most recent call last):
    ValueError: Expected topics with the same number of partitions, so that records of one key are in partitions of the
    same number, got clicks with 2, views with 1
    """
    counts = Counter(partition.topic for partition in partitions)
    if len(set(counts.values())) > 1:
        got = ", ".join(f"{topic} with {count}" for topic, count in sorted(counts.items()))
        raise ValueError(
            "Expected topics with the same number of partitions, so that records of one key are in partitions of the "
            f"same number, got {got}"
        )


def resolve_offset(client: Consumer, partition: Partition, start: Start) -> int:
    """Return the offset of a start or an end; one before the oldest record becomes the offset of the oldest record."""
    if start == "latest":
        return client.end(partition)
    if isinstance(start, dt.datetime):
        return client.at(partition, int(1000 * start.timestamp()))
    first = client.first(partition)
    return max(first, start) if isinstance(start, int) else first


def nearest_offset(client: Consumer, partition: Partition, offset: int) -> int:
    """Return the nearest offset to continue at if an offset has no record: the oldest record, or the end."""
    first, end = client.first(partition), client.end(partition)
    return first if offset < first else end


def offset_of(position: Position, stream: str) -> int:
    """Return the offset in a position.

    Raises
    ------
    ValueError
        If it is not a position.

    Examples
    --------
    >>> offset_of(7, "clicks:0"), offset_of([7, 3], "clicks:0")
    (7, 7)
    """
    parts = position if isinstance(position, list) else [position]
    if len(parts) not in (1, 2) or not all(map(is_count, parts)):
        raise ValueError(f"Expected an offset as position, got {position!r} - at {stream}")
    return int(parts[0])
