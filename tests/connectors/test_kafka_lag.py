"""Lag counts the records that can be read: neither transaction markers nor uncommitted records."""

from __future__ import annotations

import time
import uuid
from contextlib import contextmanager

import brokers
import pytest
from topics import made, rows

from streamkernel.connectors import KafkaSource, PartitionedTopics
from streamkernel.connectors.kafka import partition_reader
from streamkernel.connectors.kafka.clients import Partition


@contextmanager
def transaction(servers, topic, n, first=0):
    """Write `n` records in a transaction that is still open."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=servers, transactional_id=uuid.uuid4().hex)
    producer.init_transactions()
    producer.begin_transaction()
    for record in rows(n, first):
        producer.send(topic, b'{"n": %d}' % record["n"], partition=0)
    producer.flush()
    yield producer
    producer.close()


def commit(servers, topic, n, first=0):
    with transaction(servers, topic, n, first) as producer:
        producer.commit_transaction()


def abort(servers, topic, n):
    with transaction(servers, topic, n) as producer:
        producer.abort_transaction()


def read_until(source, condition, positions=None):
    """Read until a condition is true; return the records read."""
    found, end = [], time.monotonic() + 120
    while not condition(found):
        assert time.monotonic() < end, (found[-3:], source.lag())
        for event in source.poll(0.1):
            if positions is not None:
                positions[event.stream] = event.resume
            if not event.is_position_only:
                found.append(event.record["n"])
    return found


def read_all(source, topic):
    found = read_until(source, lambda found: found and source.lag() == {(topic, "0"): 0})
    source.close()
    return found


@pytest.fixture(params=["assigned", "group"])
def group(request):
    return uuid.uuid4().hex if request.param == "group" else None


def test_no_lag_after_a_silent_transactional_producer(servers, options, topic, group, monkeypatch):
    monkeypatch.setattr(partition_reader, "AGAIN_SECONDS", 0.1)
    source, positions = KafkaSource(options, topic, group=group, member=group and "one"), {}

    def is_done(found):
        return source.lag() == {(topic, "0"): 0}

    commit(servers, topic, 10)
    assert read_until(source, lambda found: len(found) == 10 and is_done(found), positions) == list(range(10))
    abort(servers, topic, 5)
    assert read_until(source, lambda found: positions[f"{topic}:0"] == 17 and is_done(found), positions) == []
    with transaction(servers, topic, 3, first=10) as producer:
        read_until(source, lambda found: source.client.waiting(Partition(topic, 0), 17) == 3, positions)
        assert read_until(source, is_done, positions) == []  # they cannot be read yet
        producer.commit_transaction()
    assert read_until(source, lambda found: len(found) == 3 and is_done(found), positions) == [10, 11, 12]
    assert positions == {f"{topic}:0": 21}
    if group is not None:
        source.acknowledge(positions)
        assert source.client.committed(Partition(topic, 0)) == 21  # other tools report this number
    source.close()


def test_no_lag_after_a_cluster_has_read_everything(servers, options, topic):
    commit(servers, topic, 10)
    abort(servers, topic, 5)
    source, positions, end = PartitionedTopics(options, topic), {}, time.monotonic() + 120
    with transaction(servers, topic, 3):
        while positions != {f"{topic}:0": 17}:
            assert time.monotonic() < end, positions
            for assignment in source.plan(positions, 1, 100):
                positions |= {e.stream: e.resume for events in source.read(assignment) for e in events}
        (assignment,) = source.plan(positions, 1, 100)
        assert (assignment.events, source.lag(positions)) == (0, {(topic, "0"): 0})
    source.close()


@pytest.mark.parametrize("servers", [pytest.param("apache", marks=pytest.mark.java)], indirect=True)
def test_no_lag_after_compacted_records(servers, options):
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    topic, seen, written, end = made(servers, **config), [], 0, time.monotonic() + 120
    while len(seen) == written:  # all are under one key, so that they become fewer
        assert time.monotonic() < end
        brokers.produce(servers, topic, [b'{"n": 1}'])
        abort(servers, topic, 1)
        written += 1
        seen = read_all(KafkaSource(options, topic), topic)
