"""What happens to machines and clusters now and then: none of it is seen in what was learnt."""

from __future__ import annotations

import shutil
import signal
import time

import brokers
from faults import members
from faults.kafka_runs import N, Run, assert_same, ids, records, wait_for


def test_a_process_that_is_frozen_for_longer_than_its_session(servers, calm, tmp_path):
    """Others have its partitions by then, or would: it goes back to its last commit."""
    run = Run(servers, tmp_path, "events", options=members.OPTIONS["kafka-python"])
    process = run.start()
    wait_for(lambda: run.committed() > 0)
    process.send_signal(signal.SIGSTOP)
    time.sleep(9.0)
    process.send_signal(signal.SIGCONT)
    assert process.wait(300) == 0, run.log()
    assert_same(run, calm)


def test_a_copy_of_a_state_directory(servers, calm, tmp_path):
    """Of two processes that have the same name, one ends with an error, whichever it is."""
    run = Run(servers, tmp_path, "events", source="until = 3000")
    assert run.start().wait(180) == 0, run.log()
    run.state_directory("two").parent.mkdir()
    shutil.copytree(run.state_directory(), run.state_directory("two"))
    run.source = ""
    both = {name: run.start(name) for name in ("one", "two")}
    wait_for(lambda: run.committed() == N and any(process.poll() is not None for process in both.values()))
    ((left, process),) = [(name, process) for name, process in both.items() if process.poll() is None]
    process.terminate()
    assert process.wait(180) == 0, run.log(left)
    assert sorted(process.returncode for process in both.values()) == [0, 2], run.log_of_all()
    assert run.model(left) == calm.model()
    assert run.seen() == calm.seen()
    assert run.dead() == calm.dead()


def test_a_group_that_was_forgotten(servers, calm, tmp_path):
    """Its offsets and the number of the checkpoint are gone: what the checkpoint says counts."""
    from kafka import KafkaAdminClient

    run = Run(servers, tmp_path, "events", source="until = 3000")
    assert run.start().wait(180) == 0, run.log()
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.delete_groups([run.name, f"{run.name}-{(run.state_directory() / 'identity').read_text()}"])
    admin.close()
    assert run.committed() == 0
    run.source = 'until = "latest"'
    assert run.start().wait(180) == 0, run.log()
    assert "Kafka has no record of the newest checkpoint" in run.log()
    assert_same(run, calm)


def test_a_clock_that_jumps(servers, calm, tmp_path):
    """By months back, and by up to an hour ahead of the brokers', which is what they take."""
    run = Run(servers, tmp_path, "events")
    run.program = "import random, time; real = time.time; time.time = lambda: real() + random.uniform(-1e7, 3e3); "
    run.program += Run.program
    assert run.start().wait(180) == 0, run.log()
    assert_same(run, calm)


def test_a_topic_that_is_deleted(servers, tmp_path):
    """What was learnt of it stays, and the process waits for more until it is stopped."""
    brokers.make_topics(servers, names=["short"])
    brokers.produce(servers, "short", records(500))
    run = Run(servers, tmp_path, "short", source="")
    process = run.start()
    wait_for(lambda: run.committed() == 500)
    brokers.delete_topic(servers, "short")
    wait_for(lambda: "Topic short not found" in run.log())
    process.terminate()
    assert process.wait(180) == 0, run.log()
    assert run.state()["outcomes"]["learned"] == len(ids(500))
