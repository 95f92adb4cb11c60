"""A member that is fenced, on a real broker: by a process with its name, or by none that is left."""

from __future__ import annotations

import uuid

import brokers
import pytest
from topics import rows, values
from waiting import wait_for

from streamkernel.connectors import KafkaSource
from streamkernel.connectors.kafka import Options
from streamkernel.connectors.kafka.options import CLIENTS

pytestmark = [
    pytest.mark.java,
    pytest.mark.parametrize("servers", ["apache"], indirect=True),
]

SOON = {"kafka-python": {"heartbeat_interval_ms": 300}, "confluent-kafka": {"heartbeat.interval.ms": 300}}
"""Options with which a member soon hears that it was fenced."""

KINDS = [(client, {}) for client in CLIENTS]
KINDS += [("confluent-kafka", {"partition.assignment.strategy": "cooperative-sticky"})]


@pytest.fixture(params=KINDS, ids=lambda kind: "-".join((kind[0], *kind[1].values())))
def options(servers, request):
    client, more = request.param
    return Options(servers, SOON[client] | more, client)


@pytest.fixture
def joined(servers, options, topic):
    """Return a source that has read 10 records as the member "one" of a group, and one that takes its name."""
    brokers.produce(servers, topic, rows(10))
    group = uuid.uuid4().hex
    both = [KafkaSource(options, topic, group=group, member="one") for _ in range(2)]
    for source in both:
        assert read(source, 10) == list(range(10))
    yield both
    for source in both:
        source.close()


def read(source, n):
    """Return the records of the next `n` events."""
    found = []
    wait_for(lambda: found.extend(values(source.poll(0.1))) or len(found) >= n)
    return found


def test_a_fenced_member_joins_again_and_reads_again_what_was_not_committed(joined):
    first, _ = joined  # the other one, which is not polled any more, is not heard of again
    lost = []
    first.listen(lambda *_: None, lost.extend)
    assert read(first, 10) == list(range(10))
    assert lost == [f"{first.topics[0]}:0"]


def test_a_member_ends_with_an_error_if_a_process_with_its_name_runs(servers, topic, joined):
    first, second = joined
    told = r"Expected one process with the name 'one' \(group.instance.id\) in the group, got another one"
    with pytest.raises(OSError, match=told):
        wait_for(lambda: (first.poll(0.1), second.poll(0.1)) is None)
    brokers.produce(servers, topic, rows(1, first=10))
    wait_for(lambda: 10 in values(second.poll(0.1)))
