"""kafka-python when a join of the group ends while no poll waits for it."""

from __future__ import annotations

import uuid
from unittest.mock import Mock

import pytest
from kafka.structs import MemberState
from waiting import wait_for

from streamkernel.connectors.kafka import Options


@pytest.fixture
def member(servers):
    found = Options(servers, client="kafka-python").consumer(uuid.uuid4().hex, "one")
    yield found
    found.close()


def test_a_join_that_ends_between_two_polls_is_kept(member, topic):
    """kafka-python 3.0.12 joins again then, and all other members with it, as long as the joins end so."""
    generations = []  # in which it was assigned partitions

    def is_joining():
        member.poll(0.0)
        return member.membership.state is not MemberState.UNJOINED

    def has_ended():
        join = member._kafka._coordinator._join_task
        return join is None or join.is_done

    listener = Mock(on_assigned=lambda _: generations.append(member.membership.generation_id))
    member.subscribe([topic], listener)
    wait_for(is_joining)
    wait_for(has_ended)
    wait_for(lambda: member.poll(0.2) or generations)
    assert generations[0] == 1  # a later one may follow: it may hear of the partitions only now
