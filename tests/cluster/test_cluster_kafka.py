"""Runs over topics on a Ray cluster: each prediction appears once, and the bits are those of an undisturbed run."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading

import brokers
import pytest
import rounds
from faults import members
from faults.kafka_runs import BAD_EVERY, Run, ids, records
from runs import TopicsRun, workers_of
from waiting import LIMIT, wait_for

pytestmark = [pytest.mark.java, pytest.mark.ray]

N = 4000


@pytest.fixture(scope="module")
def topic(servers):
    brokers.make_topics(servers, names=["shared"], partitions=3)
    brokers.produce(servers, "shared", records(N), 3)
    return "shared"


def state(run):
    return rounds.learnt(run.state()) | {"positions": run.state()["positions"]}


@pytest.fixture(scope="module")
def calm(servers, topic, tmp_path_factory):
    """A run whose workers are all in this process."""
    run = TopicsRun(servers, tmp_path_factory.mktemp("calm"), topic)
    run.here()
    assert sorted(int(key) for key, _ in run.seen()) == ids(N)
    return run


def assert_same(run, calm):
    assert run.seen() == calm.seen()
    assert run.dead() == calm.dead()
    assert state(run) == state(calm)


def test_workers_and_drivers_killed_where_predictions_go_to_a_topic(servers, topic, calm, tmp_path):
    run, rng = TopicsRun(servers, tmp_path, topic), random.Random(5)
    process = run.start()
    wait_for(lambda: run.rounds() > 3)
    os.kill(rng.choice(workers_of(process.pid)), signal.SIGKILL)
    known = run.rounds()
    wait_for(lambda: run.rounds() > known)
    with contextlib.suppress(Exception):
        process.wait(rng.uniform(0.0, 0.3))
    process.kill()
    process.wait()
    assert run.start().wait(LIMIT) == 0, run.log()
    assert_same(run, calm)


def test_a_broker_that_is_killed_in_a_round_and_comes_back(servers, apache, topic, calm, tmp_path):
    run = TopicsRun(servers, tmp_path, topic)
    process = run.start()
    wait_for(lambda: run.rounds() > 3)
    said = run.log()
    apache.kill()
    wait_for(lambda: run.log() != said)
    assert process.poll() is None, run.log()
    apache.start()
    apache.wait()
    assert process.wait(LIMIT) == 0, run.log()
    assert_same(run, calm)


def test_at_least_once_on_a_topic_that_grows(servers, tmp_path):
    brokers.make_topics(servers, names=["grows"], partitions=3)
    run = TopicsRun(servers, tmp_path, "grows", source="", processing_guarantee="at_least_once")
    written = members.paced(records(N), 10.0)
    writer = threading.Thread(target=brokers.produce, args=(servers, "grows", written, 3))
    writer.start()
    process = run.start()
    writer.join()
    places = {"grows:0": 1334, "grows:1": 1333, "grows:2": 1333}
    wait_for(lambda: run.has_state("one") and run.state()["positions"] == places)
    process.terminate()
    assert process.wait(LIMIT) == 0, run.log()
    bad = len(range(5, N, BAD_EVERY))
    assert run.state()["outcomes"] == {
        "learned": N - bad,
        "predicted": N - bad,
        "dead_letter": bad,
        "pending": 0,
        "passed_over": 0,
    }
    assert sorted(int(key) for key, _ in run.seen()) == ids(N)
    assert sorted(map(int, run.dead())) == list(range(5, N, BAD_EVERY))


@pytest.mark.parametrize("processing_guarantee", ["exactly_once", "at_least_once"])
def test_one_machine_and_a_cluster_continue_from_each_other(servers, tmp_path, processing_guarantee):
    """Also where the group has committed offsets before the first run on the cluster."""
    topic = f"both-{processing_guarantee}"
    brokers.make_topics(servers, names=[topic], partitions=3)
    run = TopicsRun(servers, tmp_path, topic, processing_guarantee=processing_guarantee)
    run.program, run.is_new = Run.program, Run.is_new
    part = records(700)
    bad = len(range(5, len(part), BAD_EVERY))
    for times, is_divided in enumerate([False, True, False, True], 1):
        brokers.produce(servers, topic, part, 3)
        if is_divided:
            run.here()
        else:
            assert run.start().wait(LIMIT) == 0, run.log()
        learned = times * (len(part) - bad)
        assert run.state()["outcomes"] == {
            "learned": learned, "predicted": learned, "dead_letter": times * bad, "pending": 0, "passed_over": 0
        }  # fmt: skip
        assert list(run.state()["topics"]) == [topic]  # with its id: a later topic of the same name has another
    assert len(run.seen()) == learned
