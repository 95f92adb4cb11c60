"""Unusual faults of machines and clusters: none of them changes what is learned."""

from __future__ import annotations

import json
import shutil
import signal

import brokers
import pytest
from faults import members
from faults.kafka_runs import N, Run, assert_same, ids, records
from waiting import LIMIT, wait_for

from streamkernel.connectors.kafka.options import CLIENTS

pytestmark = pytest.mark.java


@pytest.fixture(params=CLIENTS)
def client(request):
    return request.param


def test_a_process_that_is_frozen_for_longer_than_its_session(servers, calm, tmp_path):
    """Its partitions may have been reassigned by then: it returns to its last commit."""
    run = Run(servers, tmp_path, "events", options=members.OPTIONS["kafka-python"])
    process = run.start()
    run.wait_for(lambda: run.committed() > 0)
    process.send_signal(signal.SIGSTOP)
    run.wait_for(lambda: run.members() == 0)
    process.send_signal(signal.SIGCONT)
    assert process.wait(LIMIT) == 0, run.log()
    assert_same(run, calm)


def test_a_copy_of_a_state_directory(servers, calm, tmp_path):
    """Of two processes with the same name, one ends with an error, whichever it is."""
    run = Run(servers, tmp_path, "events", source="until = 3000")
    assert run.start().wait(LIMIT) == 0, run.log()
    run.state_directory("two").parent.mkdir()
    shutil.copytree(run.state_directory(), run.state_directory("two"))
    run.source = ""
    both = {name: run.start(name) for name in ("one", "two")}
    run.wait_for(lambda: any(process.poll() is not None for process in both.values()))
    ((left, process),) = [(name, process) for name, process in both.items() if process.poll() is None]
    wait_for(lambda: run.committed() == N or process.poll() is not None, what=run.log_of_all)
    process.terminate()
    assert process.wait(LIMIT) == 0, run.log(left)
    assert sorted(process.returncode for process in both.values()) == [0, 2], run.log_of_all()
    run.source = 'until = "latest"'  # it may have ended before it knew that its last commit had succeeded
    assert run.start(left).wait(LIMIT) == 0, run.log_of_all()
    assert run.model(left) == calm.model(), run.log_of_all()
    assert run.seen() == calm.seen()
    assert run.dead() == calm.dead()


def test_a_group_with_expired_offsets(servers, calm, tmp_path):
    """Its offsets and the number of the checkpoint are lost: the positions in the checkpoint count."""
    from kafka import KafkaAdminClient

    run = Run(servers, tmp_path, "events", source="until = 3000")
    assert run.start().wait(LIMIT) == 0, run.log()
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.delete_groups([run.name, f"{run.name}-{(run.state_directory() / 'identity').read_text()}"])
    admin.close()
    assert run.committed() == 0
    run.source = 'until = "latest"'
    assert run.start().wait(LIMIT) == 0, run.log()
    assert "Kafka has no record of the newest checkpoint" in run.log()
    assert_same(run, calm)


def test_a_clock_that_jumps(servers, calm, tmp_path):
    """By months back, and by up to an hour ahead of the brokers' clocks, which is what they accept."""
    run = Run(servers, tmp_path, "events")
    run.program = "import random, time; real = time.time; time.time = lambda: real() + random.uniform(-1e7, 3e3); "
    run.program += Run.program
    assert run.start().wait(LIMIT) == 0, run.log()
    assert_same(run, calm)


SOON = "from streamkernel.connectors.kafka import partition_reader as w; w.LOOK_SECONDS = w.AGAIN_SECONDS = 0.3; "
"""Code that lets a process look often whether its topics are there."""


def test_a_topic_that_is_deleted(servers, tmp_path, client):
    """The model keeps what it learned of the topic, and the process waits for more until it is stopped."""
    brokers.make_topics(servers, names=[topic := f"short-{client}"])
    brokers.produce(servers, topic, records(500))
    run = Run(servers, tmp_path, topic, source="", client=client)
    run.program = SOON + Run.program
    process = run.start()
    run.wait_for(lambda: run.committed() == 500)
    brokers.delete_topic(servers, topic)
    run.wait_for(lambda: run.metrics().get('streamkernel_incidents_total{kind="topic_missing"}', 0) > 0)
    process.terminate()
    assert process.wait(LIMIT) == 0, run.log()
    assert run.state()["outcomes"]["learned"] == len(ids(500))
    told = [line for line in run.log().splitlines() if topic in line and "does not exist" in line]
    assert 1 <= len(told) <= 3, run.log()  # one per minute
    assert run.log().count("not found in cluster metadata") <= 3, run.log()


def test_a_deleted_topic_with_give_up_after(servers, tmp_path, client):
    """All that was learned is durable by then."""
    brokers.make_topics(servers, names=[topic := f"given-up-{client}"])
    brokers.produce(servers, topic, records(500))
    run = Run(servers, tmp_path, topic, source="", client=client, kafka="give_up_after = 1.0")
    run.program = SOON + Run.program
    process = run.start()
    run.wait_for(lambda: run.committed() == 500)
    brokers.delete_topic(servers, topic)
    assert process.wait(LIMIT) == 2, run.log()
    assert "Kafka was unavailable for 1 s (kafka.give_up_after): Expected a topic" in run.log()
    assert run.state()["outcomes"]["learned"] == len(ids(500))


def test_a_restart_while_brokers_are_down(servers, apache, calm, tmp_path, client):
    """The model on disk serves predictions, counters continue, and brokers that return find nothing changed."""
    run = Run(servers, tmp_path, "events", source="until = 3000", client=client)
    assert run.start().wait(LIMIT) == 0, run.log()
    learned, number = run.state()["outcomes"]["learned"], run.state()["checkpoint"]
    apache.kill()
    run.source = 'until = "latest"'
    try:
        process = run.start()
        run.wait_for(lambda: '"ok"' in run.answer("/readyz"))
        assert f"checkpoint {number}, read from disk" in run.answer("/readyz")
        assert f"checkpoint {number}, read from disk" in run.answer("/model")
        assert "prediction" in run.answer("/predict", {"x": {"a": 1.0, "b": -1.0}})
        assert run.metrics()['streamkernel_events_total{outcome="learned"}'] == learned
        run.wait_for(lambda: "cannot be reached" in run.log())
        process.terminate()
        assert process.wait(LIMIT) == 0, run.log()
        assert run.state()["checkpoint"] == number
    finally:
        apache.start()
        apache.wait()
    process = run.start()
    run.wait_for(lambda: "this run" in run.answer("/model") or process.poll() is not None)
    assert process.wait(LIMIT) == 0, run.log()
    assert_same(run, calm)


def test_brokers_that_stay_unavailable(tmp_path, client):
    """About one log line per minute states why; with a limit on the wait, the process ends with an exit code."""
    options = {"kafka-python": "bootstrap_timeout_ms = 500"}.get(client, '"socket.connection.setup.timeout.ms" = 1000')
    run = Run("127.0.0.1:1", tmp_path, "events", client=client, kafka="give_up_after = 4.0", options=options, topics=())
    assert run.start().wait(LIMIT) == 2, run.log()
    lines = [json.loads(line) for line in run.log().splitlines()]
    gave_up = "Kafka was unavailable for 4 s (kafka.give_up_after): Kafka at 127.0.0.1:1 cannot be reached: "
    assert [line["event"].startswith(gave_up) for line in lines if line["level"] == "error"] == [True], run.log()
    reasons = [line["reason"] for line in lines if line["event"] == "Kafka is unavailable; retrying"]
    assert all(reason.startswith("Kafka at 127.0.0.1:1 cannot be reached: ") for reason in reasons), run.log()
    assert 1 <= len(reasons) <= 5, run.log()
