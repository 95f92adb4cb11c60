"""The log reports which partitions a source is assigned, which are revoked, and the starting offsets."""

from __future__ import annotations

import time
import uuid

import brokers
import pytest
from topics import made, rows
from waiting import LIMIT

from streamkernel.connectors import KafkaSource

EVENTS = ("partitions assigned", "partitions revoked", "reading partitions")


@pytest.fixture
def log(caplog):
    """Return a function that returns the log lines about partitions since its last call."""
    caplog.set_level("INFO", "streamkernel.connectors.kafka")

    def new():
        found = [line for line in caplog.records if line.getMessage() in EVENTS]
        caplog.clear()
        return [
            (line.getMessage(), line.offsets if "reading" in line.getMessage() else line.partitions) for line in found
        ]

    return new


def polled(source, condition):
    """Poll a source until a condition of its events holds."""
    found, end = [], time.monotonic() + LIMIT
    while not condition(found):
        assert time.monotonic() < end
        found += source.poll(0.1)


def test_reading_without_a_group_is_logged(servers, options, log):
    topic = made(servers, partitions=2)
    brokers.produce(servers, topic, rows(10), partitions=2)
    source = KafkaSource(options, topic, start=2)
    source.seek({f"{topic}:1": 4})
    polled(source, lambda events: len(events) >= 4)
    source.close()
    assert log() == [
        ("partitions assigned", [f"{topic}:0", f"{topic}:1"]),
        ("reading partitions", {f"{topic}:0": 2, f"{topic}:1": 4}),
    ]


@pytest.mark.parametrize("servers", [pytest.param("apache", marks=pytest.mark.java)], indirect=True)
def test_group_assignments_are_logged(servers, options, log):
    from kafka import KafkaAdminClient
    from kafka.admin import MemberToRemove

    topic, group = made(servers, partitions=2), uuid.uuid4().hex
    brokers.produce(servers, topic, rows(10), partitions=2)
    names = [f"{topic}:0", f"{topic}:1"]
    source = KafkaSource(options, topic, group=group, member="a")
    polled(source, lambda events: len(events) >= 10)
    taken, given = ("partitions revoked", names), ("partitions assigned", names)
    said = log()
    while said[:2] == [given, taken]:  # kafka-python may join again at once, also before it reads
        del said[:2]
    assert said[:2] == [given, ("reading partitions", dict.fromkeys(names, 0))]
    source.acknowledge(dict.fromkeys(names, 3))
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.remove_group_members(group, [MemberToRemove(group_instance_id="a")])
    admin.close()
    lines = []

    def is_back(_):
        lines.extend(log())
        return lines[-3:] == [taken, given, ("reading partitions", dict.fromkeys(names, 3))]

    polled(source, is_back)
    source.close()
