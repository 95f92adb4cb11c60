"""Groups whose members keep the partitions that do not move: cooperative-sticky, and the protocol of KIP-848."""

from __future__ import annotations

import json
import random

import brokers
import pytest
from faults import kafka_runs, members
from faults.kafka_runs import Run, ids, records
from waiting import LIMIT

pytestmark = [pytest.mark.java, pytest.mark.slow]

HALF, ALL = 2000, 4000


@pytest.fixture(params=members.PROTOCOLS)
def protocol(request):
    return request.param


def logged(run, member, event):
    """Return the partitions in the lines of a member's log that report an event."""
    lines = map(json.loads, run.log(member).splitlines())
    return [sorted(line.get("partitions") or line["offsets"]) for line in lines if line["event"] == event]


def test_a_member_joins_and_is_killed(servers, tmp_path, protocol):
    """The other one keeps two of its four partitions and reads on in them; the restarted one gets its own."""
    brokers.make_topics(servers, names=[topic := f"kept-{protocol}"], partitions=4)
    brokers.produce(servers, topic, records(HALF), 4)
    run = Run(
        servers,
        tmp_path,
        topic,
        source="",
        options=members.PROTOCOLS[protocol],
        client="confluent-kafka",
        audited=True,
    )
    first = run.start()
    run.wait_for(lambda: run.committed() == HALF)
    second = run.start("two")
    run.wait_for(lambda: logged(run, "two", "reading partitions"))
    (moved,) = logged(run, "two", "reading partitions")
    assert len(moved) == 2
    assert logged(run, "one", "partitions revoked") == [moved]
    second.kill()
    second.wait()
    second = run.start("two")
    run.wait_for(lambda: len(logged(run, "two", "reading partitions")) == 2)
    assert logged(run, "two", "reading partitions") == [moved, moved]
    brokers.produce(servers, topic, records(ALL)[HALF:], 4)
    run.wait_for(lambda: run.committed() == ALL)
    first.terminate()
    second.terminate()
    assert [first.wait(LIMIT), second.wait(LIMIT)] == [0, 0], run.log_of_all()
    assert sorted(run.learned("one") + run.learned("two")) == ids(ALL)
    assert len(run.seen()) == len(ids(ALL))


def test_members_come_and_go(servers, tmp_path):
    """Three members over twelve partitions: each event is in exactly one member's durable model."""
    brokers.make_topics(servers, names=[topic := "many-consumer"], partitions=12)
    options = members.PROTOCOLS["consumer"]
    run = Run(servers, tmp_path, topic, source="", options=options, client="confluent-kafka", audited=True)
    members.shared(run, kafka_runs.N, 12, 4, random.Random(5))
    found = kafka_runs.audited(run, members.NAMES, kafka_runs.N)
    assert all(found.values()), found
