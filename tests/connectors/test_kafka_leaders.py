"""kafka-python when the leader of a partition has left the cluster, and no other has been elected yet."""

from __future__ import annotations

from contextlib import suppress

import brokers
import pytest
from topics import rows
from waiting import wait_for

from streamkernel.connectors import UnavailableError
from streamkernel.connectors.kafka import Options
from streamkernel.connectors.kafka.clients import Partition

GONE = 99
"""The id of a broker that is not in the cluster."""


@pytest.fixture
def consumer(servers, topic):
    brokers.produce(servers, topic, rows(10))
    found = Options(servers, client="kafka-python").consumer()
    found.partitions_of(topic)  # the metadata is known, and not asked for again soon
    yield found
    found.close()


def test_a_question_to_a_leader_that_has_left_may_be_asked_again(consumer, monkeypatch, topic):
    cluster, first = consumer._kafka._cluster, Partition(topic, 0)
    leader, update = cluster.leader_for_partition, cluster.update_metadata

    def updated(*answer):
        monkeypatch.setattr(cluster, "leader_for_partition", leader)
        return update(*answer)

    def end():
        with suppress(UnavailableError):
            return consumer.end(first)

    monkeypatch.setattr(cluster, "leader_for_partition", lambda partition: GONE)
    monkeypatch.setattr(cluster, "update_metadata", updated)
    with pytest.raises(UnavailableError, match=f"UnknownBrokerIdError: {GONE}"):
        consumer.end(first)
    assert wait_for(end) == 10  # metadata is updated every five minutes if nobody asks
