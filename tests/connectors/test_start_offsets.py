"""Where reading of a partition begins, case by case, without brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest

from streamkernel.connectors import Event, KafkaSource, PositionError
from streamkernel.connectors.kafka import Options
from streamkernel.connectors.kafka.clients import OffsetGoneError, Partition, Record
from streamkernel.connectors.kafka.offsets import TopicReplacedError, start_offset

A = Partition("t", 0)
LOG = (40, 90)

CASES = [
    # name, own position, committed, rewound, log, begins at
    ("neither: as configured", None, None, False, None, None),
    ("neither, rewound: as configured", None, None, True, None, None),
    ("committed only", None, 9, False, None, 9),
    ("own position only", 7, None, False, None, 7),
    ("own position only, rewound", 7, None, True, None, 7),
    ("both: the group counts", 7, 9, False, None, 9),
    ("both, ours later: the group counts", 12, 9, False, None, 9),
    ("both, rewound: ours counts", 7, 9, True, None, 7),
    ("rewound without a position", None, 9, True, None, 9),
    ("retention passed our position", 7, None, False, LOG, 40),
    ("retention passed the committed offset", None, 9, False, LOG, 40),
    ("retention passed a rewound position, not the group", 7, 50, True, LOG, 40),
    ("the record is there", 50, None, False, LOG, 50),
    ("at the end", 90, None, False, LOG, 90),
]


@pytest.mark.parametrize(
    ("own", "committed", "rewound", "log", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_the_start_of_a_partition(
    own: int | None, committed: int | None, rewound: bool, log: tuple[int, int] | None, expected: int | None
) -> None:
    assert start_offset(A, own, committed, is_rewound=rewound, log=log) == expected


@pytest.mark.parametrize(("own", "committed"), [(None, None), (7, None), (None, 9), (7, 9)])
def test_a_replaced_topic_is_not_begun(own: int | None, committed: int | None) -> None:
    with pytest.raises(TopicReplacedError, match='the topic "t" that was read until now'):
        start_offset(A, own, committed, is_replaced=True)


@pytest.mark.parametrize(("own", "committed"), [(91, None), (None, 91), (7, 91)])
def test_a_log_that_ends_before_the_start_is_refused(own: int | None, committed: int | None) -> None:
    with pytest.raises(PositionError, match=r"t:0 up to offset 91, which was read, got an end at 90"):
        start_offset(A, own, committed, log=LOG)


class Brokers:
    """A client of a topic with the records of `LOG`, whose group has committed an offset, or none."""

    def __init__(self, committed: int | None = None, topic_id: str = "one") -> None:
        self.offset, self.topic_id, self.started = committed, topic_id, list[int]()

    def partitions_of(self, topic: str) -> list[Partition]:
        return [A]

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        return {"t": self.topic_id}

    def subscribe(self, topics: Sequence[str], listener: KafkaSource) -> None:
        listener.on_assigned([A])

    def committed(self, partition: Partition) -> int | None:
        return self.offset

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        (self.offset,) = offsets.values()

    def start(self, offsets: Mapping[Partition, int]) -> None:
        self.started += offsets.values()

    def poll(self, seconds: float) -> Mapping[Partition, Sequence[Record]]:
        offset = self.started[-1]
        if not LOG[0] <= offset <= LOG[1]:
            raise OffsetGoneError({A: offset})
        return {A: [Record(i, None, b'{"n": 1}', ()) for i in range(offset, min(offset + 3, LOG[1]))]}

    def pause(self, partitions: Iterable[Partition]) -> None:
        pass

    resume = pause

    def position(self, partition: Partition) -> int:
        return self.started[-1]

    def waiting(self, partition: Partition, offset: int) -> int:
        return 0

    def first(self, partition: Partition) -> int:
        return LOG[0]

    def end(self, partition: Partition) -> int:
        return LOG[1]

    def close(self) -> None:
        pass


def begun(
    monkeypatch: pytest.MonkeyPatch,
    brokers: Brokers,
    saved: Mapping[str, object] | None = None,
    own: int | None = None,
    *,
    is_older: bool = False,
    start: int | str = "earliest",
) -> list[Event]:
    """Return the events of the first two polls of a source that has resumed from a checkpoint."""
    monkeypatch.setattr(Options, "consumer", lambda *_: brokers)
    source = KafkaSource("localhost:1", "t", group="g", start=start)
    source.restore(saved or {})
    source.resume({} if own is None else {"t:0": own}, is_older=is_older)
    return [*(source.poll(0.0) or ()), *(source.poll(0.0) or ())]


@pytest.mark.parametrize(
    ("saved", "is_older", "expected"),
    [
        ({}, False, 60),
        ({}, True, 50),
        ({"is_divided": True}, False, 50),
        ({"is_repeating": True, "repeats_until": {"t:0": 55}}, False, 50),
    ],
)
def test_the_checkpoint_says_whether_our_position_counts(
    monkeypatch: pytest.MonkeyPatch, saved: Mapping[str, object], is_older: bool, expected: int
) -> None:
    brokers = Brokers(committed=60)
    begun(monkeypatch, brokers, saved, own=50, is_older=is_older)
    assert brokers.started[0] == expected


def test_records_that_retention_deleted_become_one_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    events = begun(monkeypatch, Brokers(), own=10)
    assert events[0].error == "Expected a record, got 30 records deleted unread - at t:0, offset 10"
    assert [event.resume for event in events] == [40, 41, 42, 43]


def test_a_log_that_was_cut_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        PositionError, match=r"up to offset 120, which was read, got an end at 90.*empty state.directory"
    ):
        begun(monkeypatch, Brokers(committed=120))


def test_a_configured_start_after_the_end_waits_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers()
    begun(monkeypatch, brokers, start=120)
    assert brokers.started == [120, 90]


def test_a_topic_that_was_made_again_is_found_when_its_partitions_are_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TopicReplacedError, match="deleted and made again"):
        begun(monkeypatch, Brokers(topic_id="two"), {"topics": {"t": "one"}}, own=50)
