"""Full disks and damaged files: durable results survive, and all other work is repeated."""

from __future__ import annotations

import contextlib
import resource
import subprocess
import tempfile
from pathlib import Path

import pytest
from faults.kafka_runs import N, Run, assert_same, ids
from waiting import LIMIT

from streamkernel.engine.checkpoint.state_directory import checkpoints

pytestmark = pytest.mark.java


class Limit:
    """Limits the size of a process's files to less than a checkpoint."""

    def __init__(self, path):
        pass

    def fill(self, process):
        self._set(process, 16_000)

    def free(self, process):
        self._set(process, resource.prlimit(process.pid, resource.RLIMIT_FSIZE)[1])

    def close(self):
        pass

    def _set(self, process, size):
        most = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, most))


class Disk:
    """A separate file system of one megabyte."""

    def __init__(self, path):
        self._path, self._ballast = path, path / "ballast"
        path.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", path], check=True, capture_output=True)

    def fill(self, process):
        with contextlib.suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(512))

    def free(self, process):
        self._ballast.unlink()

    def close(self):
        subprocess.run(["umount", "--lazy", self._path], check=True)


def can_mount():
    with tempfile.TemporaryDirectory() as path:
        try:
            Disk(Path(path)).close()
        except (OSError, subprocess.CalledProcessError):
            return False
    return True


def test_a_disk_that_is_full_for_a_while(servers, calm, tmp_path):
    """In some containers root cannot mount a file system: there, the file size is limited."""
    run = Run(servers, tmp_path, "events", source="until = 3000")
    with contextlib.closing((Disk if can_mount() else Limit)(run.state_directory())) as disk:
        assert run.start().wait(LIMIT) == 0, run.log()
        run.source = ""
        process = run.start()
        disk.fill(process)

        def has_learned_all():
            return run.metrics().get('streamkernel_events_total{outcome="learned"}') == len(ids(N))

        run.wait_for(has_learned_all)
        run.wait_for(lambda: run.metrics()['streamkernel_incidents_total{kind="checkpoint_failed"}'] > 2)
        assert run.committed() == 3000
        assert "could not be written" in run.log()
        disk.free(process)
        run.wait_for(lambda: run.committed() == N)
        process.terminate()
        assert process.wait(LIMIT) == 0, run.log()
        assert_same(run, calm)


def test_a_disk_that_is_full_at_the_end(servers, calm, tmp_path):
    run = Run(servers, tmp_path, "events", source="until = 3000")
    with contextlib.closing(Limit(run.state_directory())) as disk:
        assert run.start().wait(LIMIT) == 0, run.log()
        run.source = 'until = "latest"'
        process = run.start()
        disk.fill(process)
        assert process.wait(LIMIT) == 2
        assert f"'{run.state_directory()}/prepared-" in run.log().splitlines()[-1]  # which follows what was wrong
        assert run.start().wait(LIMIT) == 0, run.log()
        assert_same(run, calm)


def test_a_checkpoint_that_is_damaged(servers, calm, tmp_path):
    """The checkpoint before it counts: the model is right, and what was committed is not written again."""
    run = Run(servers, tmp_path, "events", source="until = 4000")
    assert run.start().wait(LIMIT) == 0, run.log()
    newest = checkpoints(run.state_directory())[-1]
    newest.write_bytes(newest.read_bytes()[:-7])
    run.source = 'until = "latest"'
    assert run.start().wait(LIMIT) == 0, run.log()
    assert "a checkpoint is damaged; trying the one before it" in run.log()
    assert "events since an older checkpoint are learned again" in run.log()
    assert_same(run, calm)
