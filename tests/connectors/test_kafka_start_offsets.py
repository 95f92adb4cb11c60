"""The start offset of a partition that has none yet: an added partition starts at its first record."""

from __future__ import annotations

import time
import uuid
from contextlib import closing

import brokers
import pytest
from topics import made, produce_to, rows, values

from streamkernel.connectors import CommitRefusedError, KafkaSource
from streamkernel.connectors.kafka import Options, partition_reader
from streamkernel.connectors.kafka.clients import Partition
from streamkernel.connectors.kafka.options import CLIENTS

SOON = {"kafka-python": {}, "confluent-kafka": {"topic.metadata.refresh.interval.ms": 200}}
"""Options with which a member of a group soon hears of more partitions."""


@pytest.fixture(params=CLIENTS)
def options(servers, request, monkeypatch):
    monkeypatch.setattr(partition_reader, "LOOK_SECONDS", 0.2)
    return Options(servers, SOON[request.param], request.param)


def add_partitions(servers, topic, total):
    from kafka import KafkaAdminClient

    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        admin.create_partitions({topic: total})


def read(source, n, positions):
    """Return the records of the next `n` events."""
    found, end = [], time.monotonic() + 120
    while len(found) < n:
        assert time.monotonic() < end, (found, source.trouble)
        events = source.poll(0.1)
        positions.update({event.stream: event.resume for event in events})
        found += values(event for event in events if not event.is_position_only)
    return found


def wait_until_begun(source, positions, count=1):
    """Wait until a source that starts at the latest records has reported its position, to us or to the group."""
    end = time.monotonic() + 120
    parts = [Partition(source.topics[0], number) for number in range(count)]
    while not all(
        str(p) in positions or (source.group is not None and source.client.committed(p) is not None) for p in parts
    ):
        assert time.monotonic() < end
        positions.update({event.stream: event.resume for event in source.poll(0.1)})


@pytest.mark.parametrize("group", [None, "group"])
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_partitions_that_are_added_are_read_from_their_first_record(servers, options, topic, group, start):
    group = group and uuid.uuid4().hex
    source, positions = KafkaSource(options, topic, group=group, member=group and "one", start=start), {}
    source.listen(lambda *_: source.acknowledge(positions), print)
    if start == "latest":
        wait_until_begun(source, positions)
    brokers.produce(servers, topic, rows(5))
    assert read(source, 5, positions) == list(range(5))
    add_partitions(servers, topic, 3)
    for number in (1, 2):
        produce_to(servers, topic, [b'{"n": %d}' % n for n in range(10 * number, 10 * number + 5)], number)
    assert sorted(read(source, 10, positions)) == [*range(10, 15), *range(20, 25)]
    source.close()


@pytest.mark.parametrize("group", [None, "group"])
def test_the_latest_record_is_that_of_the_first_start(servers, options, group):
    """Records that arrive while no member runs are read later, also in a partition that was added meanwhile."""
    topic, group, positions = made(servers, partitions=2), group and uuid.uuid4().hex, {}
    brokers.produce(servers, topic, rows(4), partitions=2)
    for n, partitions in [(4, 2), (6, 3)]:
        source = KafkaSource(options, topic, group=group, member=group and "one", start="latest")
        source.seek(positions)
        if partitions == 2:
            wait_until_begun(source, positions, 2)
            source.close()
            add_partitions(servers, topic, 3)
            brokers.produce(servers, topic, rows(6, first=n), partitions=3)
        else:
            assert sorted(read(source, n, positions)) == list(range(4, 10))
            source.close()


def test_the_latest_record_is_the_same_after_a_commit_that_was_refused(servers, options, topic):
    source, positions = KafkaSource(options, topic, start="latest"), {}
    wait_until_begun(source, positions)
    brokers.produce(servers, topic, rows(5))
    assert read(source, 5, positions) == list(range(5))
    source.again({})
    assert read(source, 5, positions) == list(range(5))
    source.close()


def test_an_unknown_commit_outcome_keeps_the_start(servers, options, topic):
    group = uuid.uuid4().hex
    source, positions = KafkaSource(options, topic, group=group, member="one", start="latest"), {}
    refused = []

    def refuse(offsets):
        refused.append(offsets)
        raise CommitRefusedError("no")

    source.client.commit = refuse
    wait_until_begun(source, positions)
    assert {str(offsets) for offsets in refused} == {str({Partition(topic, 0): 0})}
    brokers.produce(servers, topic, rows(5))
    source.again({})
    assert read(source, 5, positions) == list(range(5))
    assert source.offsets(positions) == {Partition(topic, 0): 5}
    source.close()


def test_what_another_member_learned_of_a_rewound_partition_is_skipped(servers, options, topic, monkeypatch):
    """The partition moves while it is read again, and comes back: to the same process, and to one that starts again."""
    monkeypatch.setattr(partition_reader, "SLICE", 2)
    brokers.produce(servers, topic, rows(30))
    partition, stream, given = Partition(topic, 0), f"{topic}:0", {"group": uuid.uuid4().hex, "partitions": [0]}
    source = KafkaSource(options, topic, **given)
    assert read(source, 2, {}) == [0, 1]
    source.acknowledge({stream: 11})
    source.close()
    source, positions = KafkaSource(options, topic, **given), {}
    source.rewind({stream: 3})
    assert read(source, 2, positions) == [3, 4]
    source.on_revoked([partition])
    other = KafkaSource(options, topic, **given)
    assert read(other, 2, {}) == [11, 12]
    other.acknowledge({stream: 20})
    source.on_assigned([partition])
    assert read(source, 16, positions) == [*range(5, 11), *range(20, 30)]
    again = KafkaSource(options, topic, **given)
    again.rewind({stream: 7}, source.repeats_until)  # the process had ended before it learned what was returned
    assert read(again, 14, positions) == [*range(7, 11), *range(20, 30)]
    for one in (source, other, again):
        one.close()


def test_joined_topics_need_equal_numbers_of_partitions(servers, options):
    topics = [made(servers, partitions=2), made(servers, partitions=3)]
    got = ", ".join(f"{topic} with {n}" for topic, n in sorted(zip(topics, (2, 3), strict=True)))
    with pytest.raises(ValueError, match=f"in partitions of the same number, got {got}"):
        KafkaSource(options, topics, partitions=[0], copartitioned=True).open()
    add_partitions(servers, topics[0], 3)
    source = KafkaSource(options, topics, partitions=[0], copartitioned=True)
    source.poll(0.1)
    add_partitions(servers, topics[0], 4)
    with pytest.raises(ValueError, match=f"{topics[0]} with 4"):  # it is noticed while it runs, too
        read(source, 1, {})
    source.close()
