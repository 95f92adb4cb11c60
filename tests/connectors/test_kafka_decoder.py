"""Decoders of users, and clients that fail: what a source does with their errors. No broker is needed."""

from __future__ import annotations

import pytest

from streamkernel.connectors import KafkaSource, PartitionedTopics, UnavailableError, WorkAssignment
from streamkernel.connectors.kafka import events
from streamkernel.connectors.kafka.clients import Partition, Record
from streamkernel.connectors.kafka.options import Options

PARTITIONS = [Partition("t", 0), Partition("t", 1)]
RECORDS = {partition: [Record(n, b"k%d" % n, b"%d" % n, (("h", b"v"),)) for n in range(3)] for partition in PARTITIONS}


class Consumer:
    """A consumer of two partitions with three records each."""

    def __init__(self):
        self.fetched = {}
        self.places = {}

    def partitions_of(self, topic):
        return PARTITIONS

    def topic_ids(self, topics):
        return {}

    def start(self, places):
        self.places |= places
        self.fetched |= {partition: RECORDS[partition] for partition in places}

    def poll(self, seconds):
        found, self.fetched = self.fetched, {}
        return found

    def position(self, partition):
        return 3 if partition not in self.fetched else 0

    def waiting(self, partition, offset):
        return 3 - offset

    def first(self, partition):
        return 0

    def end(self, partition):
        return 3

    def ends(self, partitions, seconds=0.0):
        return dict.fromkeys(partitions, 3)

    def pause(self, partitions):
        pass

    def resume(self, partitions):
        pass

    def close(self):
        pass


@pytest.fixture(autouse=True)
def no_brokers(monkeypatch):
    monkeypatch.setattr(Options, "consumer", lambda self, *names: Consumer())


class Registry:
    """A schema registry that is unavailable for a while."""

    def __init__(self, value, times):
        self.value, self.left = value, times

    def __call__(self, value, topic):
        if value == self.value and self.left:
            self.left -= 1
            raise UnavailableError("the registry timed out")
        return {"n": int(value), "topic": topic}


def drained(source):
    found = []
    while (events := source.poll(0.01)) is not None:
        found += [event for event in events if not event.is_position_only]
    return found


@pytest.mark.parametrize("order", ["arrival", "deterministic"])
def test_a_source_waits_for_a_decoder_that_is_unavailable(monkeypatch, order):
    expected = drained(KafkaSource("here", "t", until="latest", decoder=Registry(b"", 0), order=order))
    assert len(expected) == 6
    monkeypatch.setattr(events, "LONGEST_PAUSE", 0.01)
    registry = Registry(b"1", times=3)
    source = KafkaSource("here", "t", until="latest", decoder=registry, order=order)
    found, troubles = [], []
    while (some := source.poll(0.01)) is not None:
        found += [event for event in some if not event.is_position_only]
        if source.trouble:
            troubles.append(str(source.trouble.error))
    assert found == expected
    assert (registry.left, troubles[0], source.trouble) == (0, "the registry timed out - at t:0, offset 1", None)


@pytest.mark.parametrize("new", [{}, {"t": "another"}])
def test_a_client_that_misses_the_records_of_a_topic_made_again(monkeypatch, new):
    """kafka-python compares epochs when it reads, which may be before the source compares the ids of topics."""
    source = KafkaSource("here", "t")
    monkeypatch.setattr(Consumer, "topic_ids", lambda self, topics: {"t": "first"})
    source.poll(0.01)

    def truncated(self, seconds):
        raise OSError("Expected records from Kafka, got LogTruncationError")

    monkeypatch.setattr(Consumer, "poll", truncated)
    monkeypatch.setattr(Consumer, "topic_ids", lambda self, topics: new)
    message = "got a new one of the same name" if new else "got LogTruncationError"
    with pytest.raises(ValueError if new else OSError, match=message):
        source.poll(0.01)


def test_a_worker_waits_for_a_decoder_that_is_unavailable(monkeypatch):
    monkeypatch.setattr(events, "LONGEST_PAUSE", 0.01)
    assignments = [WorkAssignment({"t:0": 0, "t:1": 0}, {"t:0": 3, "t:1": 3}, 6) for _ in range(2)]
    found = []
    for assignment, times in zip(assignments, (0, 3), strict=True):
        source = PartitionedTopics(Options("here"), ["t"], decoder=Registry(b"1", times))
        found.append([event for some in source.read(assignment) for event in some])
    assert found[0] == found[1]
    assert len(found[0]) == 6


def test_a_decoder_gets_the_arguments_it_has_parameters_for():
    def whole(value, *, key, headers, topic):
        return {"value": value, "key": key, "headers": headers, "topic": topic}

    record = RECORDS[PARTITIONS[0]][0]
    given = {"value": b"0", "key": b"k0", "headers": (("h", b"v"),), "topic": "t"}
    assert events.Events(whole).of(PARTITIONS[0], record, 1).record == given
    assert events.Events(lambda key: {"value": key}).of(PARTITIONS[0], record, 1).record == {"value": b"0"}
    assert events.Events(lambda value, **more: more).of(PARTITIONS[0], record, 1).record == {}
    assert events.Events(lambda value, headers=None: {"headers": headers}).of(PARTITIONS[0], record, 1).record == {
        "headers": (("h", b"v"),)
    }
