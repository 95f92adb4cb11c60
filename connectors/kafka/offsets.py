"""Offsets in a partition, from configuration and checkpoints: where reading starts, and the ids of topics."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import cast

from streamkernel.connectors.base import (
    CommitRefusedError,
    Event,
    Position,
    PositionError,
    TopicMissingError,
    UnavailableError,
    is_count,
)
from streamkernel.connectors.kafka.clients import Consumer, Partition

Start = str | int | dt.datetime
"""``"earliest"``, ``"latest"``, an offset, or a time with its zone (as text: ISO 8601)."""


def parse_start(start: Start) -> Start:
    """Return a configured start or end, with a time as text parsed; raise a `ValueError` if it is none.

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

    Raise `TopicMissingError` if the topic does not exist; `ValueError` if a partition does not.
    """
    existing = client.partitions_of(topic)
    if not existing:
        raise missing_topic(topic, servers)
    wanted = existing if numbers is None else [Partition(topic, number) for number in numbers]
    for partition in wanted:
        if partition not in existing:
            raise ValueError(f'Expected a partition from 0 to {len(existing) - 1} of "{topic}", got {partition.number}')
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
    """Return the offset in a position, or raise a `ValueError`.

    Examples
    --------
    >>> offset_of(7, "clicks:0"), offset_of([7, 3], "clicks:0")
    (7, 7)
    """
    parts = position if isinstance(position, list) else [position]
    if len(parts) not in (1, 2) or not all(map(is_count, parts)):
        raise ValueError(f"Expected an offset as position, got {position!r} - at {stream}")
    return int(parts[0])


class TopicReplacedError(ValueError):
    """A topic was deleted and made again, so offsets of the first one say nothing about the second."""


class TopicIds:
    """Compares the ids of topics with the first ones, `known`, which are from a checkpoint if there is one.

    Brokers before Kafka 2.8 have none.
    """

    def __init__(self, topics: Sequence[str]) -> None:
        self.known: dict[str, str] = {}
        self._topics = topics

    def replaced(self, client: Consumer) -> list[str]:
        """Return the topics that have another id now; brokers that are unavailable are asked next time."""
        ids: Mapping[str, str] = {}
        with suppress(UnavailableError):  # the search for topics and brokers reports it
            ids = client.topic_ids(self._topics)
        return [topic for topic, new in ids.items() if self.known.setdefault(topic, new) != new]

    def check(self, client: Consumer) -> None:
        """Raise a `TopicReplacedError` if a topic has another id."""
        for topic in self.replaced(client):
            raise replaced_error(topic)


def replaced_error(topic: str) -> TopicReplacedError:
    """Return the error that names a topic that was made again."""
    return TopicReplacedError(
        f'Expected the topic "{topic}" that was read until now, got a new one of the same name: it was deleted and '
        "made again, so its offsets are others. Read it from its start with an empty state.directory; [model] from = "
        "the old directory keeps what was learned"
    )


def start_offset(
    partition: Partition,
    saved: int | None,
    committed: int | None,
    *,
    is_rewound: bool = False,
    is_replaced: bool = False,
    log: tuple[int, int] | None = None,
) -> int | None:
    """Return the offset at which a partition is begun.

    | case                                              | begins at                        |
    |---------------------------------------------------|----------------------------------|
    | the topic was deleted and made again              | an error: its offsets are others |
    | the group has committed an offset                 | that offset                      |
    | ... and a checkpoint is older, or of workers      | our position: `is_rewound`       |
    | only our checkpoint has a position                | our position                     |
    | neither                                           | the configured start: ``None``   |
    | the offset was deleted (retention)                | the oldest record                |
    | the offset is after the end: the log was cut      | an error: records were lost      |

    `saved` is the offset in our checkpoint, and `committed` the one that the group has committed, ``None`` if there is
    none. `log` is the offset of the oldest record and the end, once the brokers have refused the offset. The errors are
    `TopicReplacedError` and `PositionError`.

    Examples
    --------
    >>> partition = Partition("clicks", 0)
    >>> start_offset(partition, 7, 9), start_offset(partition, 7, 9, is_rewound=True), start_offset(partition, 7, None)
    (9, 7, 7)
    >>> start_offset(partition, 7, None, log=(40, 90))
    40
    """
    if is_replaced:
        raise replaced_error(partition.topic)
    offset = saved if committed is None or (is_rewound and saved is not None) else committed
    if offset is None or log is None:
        return offset
    first, end = log
    if offset > end:
        raise PositionError(
            f"Expected records of {partition} up to offset {offset}, which was read, got an end at {end}: the brokers "
            "have lost records, and others will have their offsets. Read the topic from its start with an empty "
            "state.directory and another kafka.group; [model] from = the old directory keeps what was learned"
        )
    return max(first, offset)


class StartOffsets:
    """Determines start offsets by `start_offset`, and remembers what is read again.

    A `start` of ``"latest"`` is the end of a partition when it is first found: later attempts, other members and
    restarts start there too, and a partition added to a topic is read from its first record. `in_group` says whether a
    group keeps offsets. `topic_ids` are compared at each start; ``None`` to compare none.
    """

    def __init__(self, start: Start, *, in_group: bool, topic_ids: TopicIds | None = None) -> None:
        self.own: dict[Partition, Position] = {}  # our own positions
        self.known: set[Partition] = set()  # all partitions of the topics
        self.until: dict[Partition, int] = {}  # of rewound ones, up to where only we had learned, and learn again
        self.gaps: dict[Partition, tuple[int, int]] = {}  # from and up to where others learned rewound ones
        self._start, self._in_group, self._topic_ids = start, in_group, topic_ids
        self._added: set[Partition] = set()
        self._rewound: set[Partition] = set()
        self._starts: dict[Partition, int] = {}  # the latest offsets that `start` gave
        self._configured: dict[Partition, int] = {}  # the last start of each partition if `start` gave it
        self._committed: dict[Partition, int] = {}  # by the group, when we began; -1 is nothing
        self._repeated: dict[Partition, int] = {}  # up to where we read again what the group had committed

    def rewind(self, partitions: Iterable[Partition], until: Mapping[Partition, int]) -> None:
        """Give our own positions precedence over the committed offsets, until the events between are returned.

        Those were the committed offsets when the rewind began: `until` if that was earlier.
        """
        self._rewound.update(partitions)
        self.until |= until

    @property
    def is_repeating(self) -> bool:
        """Whether records before the committed offsets are read, or are to be read."""
        return bool(self._repeated or (self._rewound and not self._rewound <= self._committed.keys()))

    def is_committed(self, partition: Partition, offset: int) -> bool:
        """Return whether the group had committed a record that is read again; `offset` belongs to the next record."""
        return offset <= self._repeated.get(partition, -1)

    def advance(self, partition: Partition, offset: int) -> None:
        """Record that all records before an offset have been processed."""
        if offset >= self._repeated.get(partition, offset + 1):
            del self._repeated[partition]
            self.until.pop(partition, None)

    def add(self, partitions: Iterable[Partition]) -> set[Partition]:
        """Record all existing partitions, and return the new ones."""
        new = set(partitions) - self.known
        self.known |= new
        self._added |= new
        return new

    def forget(self, partition: Partition) -> None:
        """Forget the committed offset of a partition that other members may have."""
        self._committed.pop(partition, None)
        self._repeated.pop(partition, None)
        self.gaps.pop(partition, None)

    def leave(self, partition: Partition, position: Position) -> None:
        """Keep the position in a rewound partition that is taken away, and forget it in others."""
        if partition in self._rewound:
            self.own[partition] = position
        else:
            self.own.pop(partition, None)
            self.until.pop(partition, None)

    def reach(self, events: Iterable[Event]) -> None:
        """Record that events are returned; the last one that only we had learned ends the rewind of its partition."""
        if self._rewound:
            offsets = {Partition.parse(event.stream): offset_of(event.resume, event.stream) for event in events}
            self._rewound -= {p for p, n in offsets.items() if n >= self.until.get(p, self._committed.get(p, -1))}

    def is_ours(self, partition: Partition, offset: int) -> bool:
        """Return whether no other member has learned a record while its partition was rewound."""
        first, next_offset = self.gaps.get(partition, (0, 0))
        return not first <= offset < next_offset

    def find(self, client: Consumer, partitions: Iterable[Partition]) -> tuple[dict[Partition, int], set[Partition]]:
        """Return the start offsets, and the partitions where that is the end as found by this process."""
        offsets, latest = dict[Partition, int](), set[Partition]()
        replaced = () if self._topic_ids is None else self._topic_ids.replaced(client)
        for partition in sorted(partitions):
            committed = client.committed(partition) if self._in_group else None
            saved = offset_of(self.own[partition], str(partition)) if partition in self.own else None
            is_rewound, is_replaced = partition in self._rewound, partition.topic in replaced
            offset = start_offset(partition, saved, committed, is_rewound=is_rewound, is_replaced=is_replaced)
            if offset is None:
                offset = self._configured[partition] = self._configured_start(client, partition, latest)
            else:
                self._configured.pop(partition, None)
            if committed is not None and not is_rewound:
                self._starts.pop(partition, None)
            offsets[partition] = offset
            self._committed[partition] = -1 if committed is None else committed
            if offsets[partition] < self._committed[partition]:
                until = self._repeated[partition] = self.until.setdefault(partition, self._committed[partition])
                if until < self._committed[partition]:
                    self.gaps[partition] = until, self._committed[partition]
            elif offsets[partition] == committed:
                self._rewound.discard(partition)
                self.until.pop(partition, None)
        if latest and self._in_group:
            with suppress(CommitRefusedError):  # it is committed with the next checkpoint
                client.commit({partition: offsets[partition] for partition in latest})
        return offsets, latest

    def after_gap(self, client: Consumer, partition: Partition, offset: int) -> int:
        """Return the offset to continue at if brokers have no record at an offset.

        Raise `PositionError` if the offset is after the end, and was not only configured.
        """
        if self._configured.get(partition) == offset:
            return nearest_offset(client, partition, offset)
        log = client.first(partition), client.end(partition)
        return cast(int, start_offset(partition, offset, None, log=log))

    def to_commit(self, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return the offsets of assigned partitions in which reading has advanced."""
        return {p: offsets[p] for p, committed in self._committed.items() if p in offsets and offsets[p] > committed}

    def _configured_start(self, client: Consumer, partition: Partition, latest: set[Partition]) -> int:
        """Return the configured start, and add the partition to `latest` if that is its end as first found."""
        if partition not in self._starts and (self._start != "latest" or self._is_later(client, partition)):
            return resolve_offset(client, partition, "earliest" if self._start == "latest" else self._start)
        latest.add(partition)
        if partition not in self._starts:
            self._starts[partition] = client.end(partition)
        return self._starts[partition]

    def _is_later(self, client: Consumer, partition: Partition) -> bool:
        """Return whether a partition was added after others of its topic had been started."""
        others = [other for other in sorted(self.known) if other.topic == partition.topic and other != partition]
        if partition in self._added:
            return True
        if self._in_group:
            return any(client.committed(other) is not None for other in others)
        return any(other in self.own for other in others)
