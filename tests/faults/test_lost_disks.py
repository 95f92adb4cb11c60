"""A node that dies with its disk: another one restores the mirror, and nothing shows to consumers or in the model."""

from __future__ import annotations

import shutil
import threading
import uuid

import pytest
from faults.kafka_runs import CONFIG, N, Run
from object_stores import object_store
from waiting import LIMIT, wait_for

from streamkernel.engine.checkpoint.state_directory import checkpoints, number_of, read_newest
from streamkernel.engine.mirror.bucket import Bucket
from streamkernel.engine.mirror.manifests import manifest_numbers

pytestmark = pytest.mark.java


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
