"""Periodic checks of the topics that are read: their partitions and end offsets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from streamkernel.connectors.base import Trouble, UnavailableError
from streamkernel.connectors.kafka.clients import ANSWER_SECONDS, LOOK_SECONDS, Consumer, Partition
from streamkernel.connectors.kafka.offsets import missing_topic

AGAIN_SECONDS = 5.0
"""Seconds between two checks while something is wrong, and between two requests for end offsets."""


class TopicWatcher:
    """Checks periodically that topics exist, and which partitions they have.

    Parameters
    ----------
    topics
        Their names.
    servers
        Addresses of the brokers, for people.

    Attributes
    ----------
    trouble : Trouble or None
        The problem.
    """

    def __init__(self, topics: Sequence[str], servers: str) -> None:
        self.trouble: Trouble | None = None
        self._topics, self._servers = topics, servers
        self._due = time.monotonic() + LOOK_SECONDS

    def look(self, client: Consumer) -> list[Partition]:
        """Return the existing partitions if a check is due, and ``[]`` otherwise."""
        if time.monotonic() < self._due:
            return []
        partitions: list[Partition] = []
        error: UnavailableError | None = None
        try:
            found = client.look(self._topics)
            if found is None:  # the answer is in flight
                return []
            partitions = [partition for topic in self._topics for partition in found[topic]]
            missing = [topic for topic in self._topics if not found[topic]]
            error = missing_topic(missing[0], self._servers) if missing else None
        except UnavailableError as one:
            error = one
        now = time.monotonic()
        since = self.trouble.since if self.trouble else now
        self.trouble = None if error is None else Trouble(error, since)
        self._due = now + (LOOK_SECONDS if error is None else AGAIN_SECONDS)
        return partitions


class PartitionEnds:
    """End offsets of partitions that return no records although there seem to be more.

    The rest may be records of an open transaction, which cannot be read yet. So the brokers are queried for the last
    readable offset.
    """

    def __init__(self) -> None:
        self._known: dict[Partition, int] = {}
        self._due = 0.0

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Forget the ends of partitions that have returned records."""
        for partition in partitions:
            self._known.pop(partition, None)

    def ask(self, client: Consumer, offsets: Mapping[Partition, int]) -> None:
        """Request the ends of the partitions that seem to continue after these offsets, if a request is due."""
        behind = [partition for partition, offset in offsets.items() if client.waiting(partition, offset)]
        now = time.monotonic()
        if behind and now >= self._due:
            self._due = now + AGAIN_SECONDS
            with suppress(OSError):  # the search for topics and brokers reports it
                self._known |= client.ends(behind, ANSWER_SECONDS)

    def lag(self, client: Consumer, partition: Partition, offset: int) -> int:
        """Return the last known number of records from an offset on; any thread may call it."""
        end = self._known.get(partition)
        return client.waiting(partition, offset) if end is None else max(0, end - offset)
