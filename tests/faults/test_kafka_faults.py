"""A run continues correctly after a fault: each event is learned once, and each prediction appears once."""

from __future__ import annotations

import json
import random
import threading

import brokers
import pytest
from faults import kafka_runs, members
from faults.kafka_runs import BAD_EVERY, N, Run, assert_same
from waiting import LIMIT

from streamkernel.connectors.kafka.options import CLIENTS

pytestmark = pytest.mark.java


LONG_SESSION = {
    "kafka-python": "session_timeout_ms = 1_200_000",
    "confluent-kafka": '"session.timeout.ms" = 1_200_000, "max.poll.interval.ms" = 1_200_000',  # which is no less
}


@pytest.fixture(params=CLIENTS)
def client(request):
    return request.param


def test_a_run_without_faults(calm):
    bad = len(range(5, N, BAD_EVERY))
    assert calm.state()["outcomes"] == {
        "learned": N - bad,
        "predicted": N - bad,
        "dead_letter": bad,
        "pending": 0,
        "passed_over": 0,
    }
    keys = [key for key, _ in calm.seen()]
    assert keys == [b"%d" % n for n in range(N) if n % BAD_EVERY != 5]
    assert calm.dead() == [b"%d" % n for n in range(5, N, BAD_EVERY)]


def test_kill_9_at_any_moment(calm, servers, tmp_path, client):
    run = Run(servers, tmp_path, "events", client=client)
    assert kafka_runs.killed(run, 4, random.Random(0)) > 0
    assert_same(run, calm)


def test_kill_9_while_events_are_learned_in_batches(calm_in_batches, servers, tmp_path):
    """By both clients in turn."""
    run = type(calm_in_batches)(servers, tmp_path, calm_in_batches.topic)
    assert kafka_runs.killed(run, 4, random.Random(0), clients=list(CLIENTS)) > 0
    assert_same(run, calm_in_batches)
    assert len(run.seen()) == len(kafka_runs.ids(run.n_records))


def test_one_client_continues_where_the_other_was_killed(calm, servers, tmp_path):
    run = Run(servers, tmp_path, "events")
    for client in CLIENTS:
        seen = len(run.seen())
        process = run.start(client=client)
        run.wait_for(lambda seen=seen: len(run.seen()) > seen)
        process.kill()
        process.wait()
    assert run.start(client="kafka-python").wait(LIMIT) == 0, run.log()
    assert_same(run, calm)


def test_a_broker_that_is_killed_and_comes_back(calm, apache, servers, tmp_path, client):
    run = Run(servers, tmp_path, "events", client=client)
    process = run.start()
    run.wait_for(lambda: "resumed" in run.log() or len(run.seen()) > 0)
    said = run.log()
    apache.kill()
    run.wait_for(lambda: run.log() != said or process.poll() is not None)
    apache.start()
    apache.wait()
    assert process.wait(LIMIT) == 0, run.log()
    assert_same(run, calm)


def test_a_replay_reproduces_the_model(calm, tmp_path):
    again, part = (
        calm.replayed(tmp_path / "again"),
        calm.replayed(tmp_path / "part", "--start", "1000", "--until", "3000"),
    )
    assert again["outcomes"] == calm.state()["outcomes"]
    assert kafka_runs.bits(again) == calm.model()
    assert part["positions"] == {"events:0": 3000}
    assert part["outcomes"]["learned"] + part["outcomes"]["dead_letter"] == 2000


def test_a_run_waits_for_brokers_and_topics(calm, apache, servers, tmp_path):
    run = Run(servers, tmp_path, "later", source=f"until = {N}")
    apache.kill()
    process = run.start()
    run.wait_for(lambda: "cannot be reached" in run.log())
    apache.start()
    apache.wait()
    run.wait_for(lambda: 'Expected a topic, got \\"later\\", which does not exist' in run.log())
    brokers.make_topics(servers, names=["later"])
    brokers.produce(servers, "later", kafka_runs.records(N))
    assert process.wait(LIMIT) == 0, run.log()
    assert run.model() == calm.model()


def test_a_member_that_is_evicted_rolls_back_and_continues(calm, servers, tmp_path, client):
    from kafka import KafkaAdminClient
    from kafka.admin import MemberToRemove

    run = Run(servers, tmp_path, "events", client=client)
    process = run.start()
    run.wait_for(lambda: len(run.seen()) > 0)
    identity = next(tmp_path.glob("*/state/identity")).read_text()
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.remove_group_members(run.name, [MemberToRemove(group_instance_id=identity)])
    admin.close()
    assert process.wait(LIMIT) == 0, run.log()
    assert_same(run, calm)


def test_sigterm_commits_and_leaves_the_group(calm, servers, tmp_path, client):
    """Another member takes over the partition, which would otherwise wait for the session to expire: twenty minutes."""
    run = Run(servers, tmp_path, "events", source="", client=client, options=LONG_SESSION[client])
    process = run.start()
    run.wait_for(lambda: len(run.seen()) > 0)
    process.terminate()
    assert process.wait(LIMIT) == 0, run.log()
    learned = run.state()["outcomes"]["learned"]
    assert len(run.seen()) == learned
    process = run.start("two")
    run.wait_for(lambda: len(run.seen()) > learned)
    process.terminate()
    assert process.wait(LIMIT) == 0, run.log("two")


def test_members_join_and_leave(servers, tmp_path, client):
    """Three members over twelve partitions: each event is in exactly one member's durable model."""
    brokers.make_topics(servers, names=[topic := f"many-{client}"], partitions=12)
    run = Run(servers, tmp_path, topic, source="", options=members.OPTIONS[client], client=client, audited=True)
    members.shared(run, N, 12, 6, random.Random(3))
    found = kafka_runs.audited(run, members.NAMES, N)
    assert all(found.values()), found
    states = [run.state(name) for name in members.NAMES if run.has_state(name)]  # one may have none
    assert sum(state["outcomes"]["learned"] for state in states) == len(kafka_runs.ids(N))


@pytest.fixture(scope="module")
def four(servers):
    """A topic of four partitions."""
    brokers.make_topics(servers, names=["four"], partitions=4)
    brokers.produce(servers, "four", kafka_runs.records(N), partitions=4)
    return "four"


def test_four_partitions_in_order_of_arrival(servers, four, tmp_path):
    run = Run(servers, tmp_path, four, audited=True)
    assert kafka_runs.killed(run, 4, random.Random(4)) > 0
    found = kafka_runs.audited(run, ["one"], N)
    assert all(found.values()), found


def test_partitions_in_deterministic_order(servers, tmp_path):
    """The order is one event of each partition in turn, by what another consumer reads of them, until they end."""
    brokers.make_topics(servers, names=["uneven"], partitions=4)
    all_of_it = kafka_runs.records(N)
    brokers.produce(servers, "uneven", all_of_it[: N // 2], partitions=4)
    brokers.produce(servers, "uneven", all_of_it[N // 2 :], partitions=1)
    source = 'until = "latest"\norder = "deterministic"'
    calm, run = (Run(servers, tmp_path, "uneven", source=source, audited=True) for _ in range(2))
    assert calm.start().wait(LIMIT) == 0, calm.log()
    assert kafka_runs.killed(run, 3, random.Random(5)) > 0
    assert_same(run, calm)
    found = sorted(brokers.committed(servers, "uneven"), key=lambda record: (record.offset, record.partition))
    assert run.learned() == [json.loads(one.value)["id"] for one in found if one.value != b"{half"]


def test_at_least_once_loses_nothing(servers, four, tmp_path):
    """By the ids that were written: each is in the model and in the output, and some may be there more than once."""
    run = Run(servers, tmp_path, four, processing_guarantee="at_least_once", audited=True)
    kafka_runs.killed(run, 3, random.Random(7))
    good = set(kafka_runs.ids(N))
    assert set(run.learned()) - {-1} == good  # -1 is an event that was learned again
    assert {int(key) for key, _ in run.seen()} == good
    assert set(map(int, run.dead())) == set(range(5, N, BAD_EVERY))
    assert run.committed() == N
    learned = run.state()["outcomes"]["learned"]
    assert learned >= len(good)
    assert run.start().wait(LIMIT) == 0, run.log()
    assert run.state()["outcomes"]["learned"] == learned  # nothing was left


def held(found, event):
    """Yield half of the records slowly, until something has happened, and the others only then."""
    for i, record in enumerate(found):
        if 2 * i >= len(found):
            assert event.wait(LIMIT)
        elif i % 10 == 0:
            event.wait(0.05)
        yield record


def test_a_member_joins_with_at_least_once_delivery(servers, tmp_path, client):
    """The first member commits what it has learned before the second one is assigned its partitions."""
    brokers.make_topics(servers, names=[topic := f"joined-{client}"], partitions=4)
    run = Run(servers, tmp_path, topic, source="", processing_guarantee="at_least_once", client=client)
    assigned = threading.Event()
    writer = threading.Thread(target=brokers.produce, args=(servers, topic, held(kafka_runs.records(N), assigned), 4))
    writer.start()
    both = [run.start()]
    run.wait_for(lambda: len(run.seen()) > 0)
    both.append(run.start("two"))
    run.wait_for(lambda: "reading partitions" in run.log("two"))
    assigned.set()
    writer.join()
    run.wait_for(lambda: run.metrics("two").get('streamkernel_events_total{outcome="learned"}', 0) > 0)
    run.wait_for(lambda: run.committed() == N)
    for process in both:
        process.terminate()
    assert [process.wait(LIMIT) for process in both] == [0, 0], run.log_of_all()
    assert sorted({int(key) for key, _ in run.seen()}) == kafka_runs.ids(N)


def test_loss_of_a_partition_leader(tmp_path, client):
    """One of three brokers, with three replicas of every partition."""
    from kafka import KafkaAdminClient

    with brokers.apache(tmp_path / "brokers", 3) as three:
        servers = ",".join(f"127.0.0.1:{broker.port}" for broker in three)
        brokers.make_topics(servers, names=["events"])
        brokers.produce(servers, "events", kafka_runs.records(2 * N))
        calm, run = (Run(servers, tmp_path, "events", client=client) for _ in range(2))
        calm.is_new = run.is_new = True
        assert calm.start().wait(LIMIT) == 0, calm.log()
        process = run.start()
        run.wait_for(lambda: len(run.seen()) > 0)
        admin = KafkaAdminClient(bootstrap_servers=servers)
        (topic,) = admin.describe_topics(["events"])
        admin.close()
        leader = topic["partitions"][0]["leader_id"]
        three[leader - 1].kill()
        assert process.wait(LIMIT) == 0, run.log()
        assert_same(run, calm)
