"""A node that dies with its disk: another one restores the mirror, and nothing shows to consumers or in the model."""

from __future__ import annotations

import shutil
import threading
import uuid

import brokers
import pytest
from faults.kafka_runs import BAD_EVERY, CONFIG, N, Run, ids, records
from object_stores import object_store
from waiting import LIMIT, wait_for

from streamkernel.engine.checkpoint.bucket import Bucket, manifest_numbers
from streamkernel.engine.checkpoint.state_directory import checkpoints, number_of, read_newest

pytestmark = pytest.mark.java

SLOW = """
import pathlib, sys, time
from streamkernel.connectors import KafkaSource
from streamkernel.connectors.kafka import partition_reader
from streamkernel.cli import main
poll = KafkaSource.poll
def slow(self, timeout):
    is_slow = pathlib.Path({file!r}).exists()
    time.sleep(0.2 * is_slow)
    partition_reader.SLICE = 1 if is_slow else 128
    return poll(self, timeout)
KafkaSource.poll = slow
main()
"""
"""A run that reads five records a second while a file exists, and so cannot be done before another member joins."""


class MirroredRun(Run):
    """A run with a mirror, whose uploads can be held up from the third checkpoint on."""

    def __init__(self, store, *args, **options):
        super().__init__(*args, **options)
        self.address = f"s3://bucket/{uuid.uuid4().hex}"
        self.template = CONFIG.replace(
            "checkpoint_seconds = 0.3", f'checkpoint_seconds = 0.1\nmirror = "{self.address}"'
        )
        self._store, self._gate = store, threading.Event()
        store.fault = self._hold

    def _hold(self, method, path):
        if method == "PUT" and "safetensors" in path and len(self.mirrored()) > 1:
            self._gate.wait(LIMIT)

    def mirrored(self):
        return manifest_numbers(Bucket(self.address).names())

    def lose_the_disk(self, process, member):
        process.kill()
        process.wait()
        shutil.rmtree(self.state_directory(member))
        self._store.fault = lambda method, path: None
        self._gate.set()


@pytest.fixture(scope="module")
def store():
    with object_store() as store:
        yield store


def newest(directory):
    """Return the number of the newest checkpoint in a directory, 0 for none."""
    return max(map(number_of, checkpoints(directory)), default=0)


def test_a_node_that_dies_with_its_disk(servers, calm, store, tmp_path):
    """The bits and the predictions are those of an undisturbed run, also if the new node is killed as it catches up."""
    run = MirroredRun(store, servers, tmp_path, "events", source="")
    process = run.start("one")
    run.wait_for(lambda: run.committed() >= N)
    mirrored = run.mirrored()
    run.lose_the_disk(process, "one")
    run.source = 'until = "latest"'
    process = run.start("two")
    state = run.state_directory("two")
    wait_for(lambda: process.poll() is not None or newest(state) > mirrored[-1], what=run.log_of_all)
    assert read_newest(state).get("is_repeating")
    process.kill()
    process.wait()
    assert run.start("two").wait(LIMIT) == 0, run.log("two")
    assert "restored from the mirror" in run.log("two")
    assert "events since the restored checkpoint are learned again" in run.log("two")
    assert not read_newest(state).get("is_repeating")
    assert run.seen() == calm.seen()
    assert run.dead() == calm.dead()
    assert run.model("two") == calm.model()
    assert run.mirrored()[-1] > mirrored[-1]


def test_partitions_that_move_while_a_node_catches_up(servers, store, tmp_path):
    """Another member joins and leaves meanwhile: no event is in two models, and each line is seen once."""
    brokers.make_topics(servers, names=[topic := uuid.uuid4().hex[:10]], partitions=2)
    n = N // 4
    found = records(2 * n)
    brokers.produce(servers, topic, found[:n], partitions=2)
    run = MirroredRun(store, servers, tmp_path, topic, source="", audited=True)
    process = run.start("one")
    run.wait_for(lambda: run.committed() >= n)
    mirrored = run.mirrored()
    run.lose_the_disk(process, "one")
    (tmp_path / "slow").touch()
    run.program, program = SLOW.format(file=str(tmp_path / "slow")), run.program
    returned = run.start("two")
    state = run.state_directory("two")
    wait_for(lambda: returned.poll() is not None or newest(state) > mirrored[-1], what=run.log_of_all)
    assert read_newest(state).get("is_repeating")
    run.program, run.template = program, CONFIG
    other = run.start("three")
    wait_for(lambda: "reading partitions" in run.log("three"), what=run.log_of_all)
    assert "partitions revoked" in run.log("two")
    assert read_newest(state).get("is_repeating")
    brokers.produce(servers, topic, found[n:], partitions=2, first=n)
    wait_for(lambda: run.has_state("three") and run.state("three")["outcomes"]["learned"] > 0, what=run.log_of_all)
    (tmp_path / "slow").unlink()
    wait_for(lambda: run.committed() >= 2 * n, what=run.log_of_all)
    other.terminate()
    assert other.wait(LIMIT) == 0, run.log("three")
    wait_for(lambda: not read_newest(state).get("is_repeating"), what=run.log_of_all)
    returned.terminate()
    assert returned.wait(LIMIT) == 0, run.log("two")
    learned = run.learned("two") + run.learned("three")
    assert len(set(learned)) == len(learned)
    assert {i for i in learned if i >= n} == {i for i in ids(2 * n) if i >= n}  # no checkpoint was lost with these
    assert sorted(int(key) for key, _ in run.seen()) == ids(2 * n)
    assert sorted(map(int, run.dead())) == list(range(5, 2 * n, BAD_EVERY))
