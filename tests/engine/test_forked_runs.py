"""A child that is forked from a run can use its model; it writes nothing of the run, keeps nothing open, and ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from streams import content
from test_runner import write_events
from waiting import LIMIT

from streamkernel.engine.checkpoint.state_directory import StateDirectory, checkpoints, read_newest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")

RUN = """
import os, signal, sys, threading
from pathlib import Path
from river import metrics
from streamkernel.connectors import DeadLetters, FileSink, FileSource
from streamkernel import KernelClassifier, learners
from streamkernel.engine import Engine
from streamkernel.engine.checkpoint.state_directory import StateDirectory
from streamkernel.engine.http import serve
folder = Path(sys.argv[1])
class Forks(FileSink):
    def write_all(self, records, keys):
        fork()
        super().write_all(records, keys)
model = KernelClassifier(learner=learners.DSG(features_per_seed=4), max_features=32)
state = StateDirectory(folder / "state")
engine = Engine(
    model, FileSource(folder.parent / "events.jsonl"), label="y", ignore=["id"],
    metric=metrics.Accuracy(), sink=Forks(folder / "predictions.jsonl"), state=state, checkpoint_seconds=0.01,
    dead_letters=DeadLetters(FileSink(folder / "dead_letters.jsonl")),
)
def refused(call):
    try:
        call()
    except RuntimeError as error:
        return f"in process {os.getppid()}, which made it" in str(error)
def use():
    signal.alarm(200)  # a child that hangs ends, and the test fails
    model.predict_one({"a": 0.5, "b": 1.0})
    model.learn_one({"a": 0.5, "b": 1.0}, "red")
    assert refused(engine.run) and refused(engine.commit) and refused(lambda: state.write({}))
    assert refused(lambda: engine.parts.outputs.write({"y": 1}, None))
    engine.close()
    state.close()
"""

IN_THE_MIDDLE = """
calls, codes, parent = 0, [], os.getpid()
def fork():
    global calls
    calls += 1
    if sys.argv[2] == "forks" and calls > 2 and os.getpid() == parent:
        pid = os.fork()
        if pid:
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        elif calls % 2:
            use()
            sys.exit(3)  # through the run
try:
    engine.run()
except RuntimeError as error:
    assert os.getpid() != parent and "which was forked" in str(error), error
    sys.exit(4)
assert sys.argv[2] != "forks" or set(codes) == {3, 4}, codes
"""

FROM_ANOTHER_THREAD = """
fork = lambda: None
serve(engine, "127.0.0.1", 0)
running = threading.Thread(target=engine.run)
running.start()
forks = 0
while running.is_alive() or not forks:
    pid = os.fork()
    if not pid:
        use()
        sys.exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    forks += 1
"""

LEFT_BEHIND = """
fork = lambda: None
print(serve(engine, "127.0.0.1", 0), flush=True)
if not os.fork():
    sys.stdin.readline()
os._exit(0)
"""

OTHERS = """
import os, signal, sys
from prometheus_client import CollectorRegistry
from streamkernel.connectors import HttpSource
from streamkernel.connectors.http.request_log import Request
from streamkernel.connectors.nats import NatsConnection, NatsUnavailableError
from streamkernel.engine.otel import MetricsExport, resource_of
source, nats = HttpSource(sys.argv[1]), NatsConnection("nats://127.0.0.1:1", None, None)
export = MetricsExport(CollectorRegistry(), "http://127.0.0.1:1", resource_of(None))
def error(call):
    try:
        call()
    except Exception as error:
        return type(error)
source.poll(0.01)
assert source.submit(Request(None, b'[{"x":1}]')).result().begin == 0
uses = [lambda: source.submit(Request(None, b'[{"x":2}]')), lambda: source.poll(1.0), lambda: nats.call(lambda _: None)]
assert error(uses[-1]) is NatsUnavailableError
pid = os.fork()
if not pid:
    signal.alarm(200)
    assert [error(call) for call in uses] == [RuntimeError] * 3
for part in (source, nats, export):
    part.close()
if pid:
    assert os.waitpid(pid, 0)[1] == 0
"""


def in_a_process(folder: Path, script: str, *words: str) -> tuple[bytes, bytes, object]:
    """Return the lines that a run has written, and its last checkpoint without times."""
    folder.mkdir()
    words = (sys.executable, "-c", RUN + script, str(folder), *words)
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    saved = read_newest(folder / "state")
    assert saved is not None
    member = (folder / "state" / "identity").read_bytes()
    lines = [(folder / f"{name}.jsonl").read_bytes().replace(member, b"") for name in ("predictions", "dead_letters")]
    return *lines, (
        content(saved["model"]),
        saved["positions"],
        saved["outcomes"],
        saved["sink"],
        saved["dead_letters"],
    )


def test_children_change_nothing_of_a_run(tmp_path: Path) -> None:
    """They are forked by a sink; some leave through the run, and some try to go on with it."""
    write_events(tmp_path / "events.jsonl")
    whole = in_a_process(tmp_path / "whole", IN_THE_MIDDLE, "whole")
    assert in_a_process(tmp_path / "forks", IN_THE_MIDDLE, "forks") == whole
    assert in_a_process(tmp_path / "thread", FROM_ANOTHER_THREAD) == whole


def test_a_child_keeps_neither_the_state_nor_the_port(tmp_path: Path) -> None:
    write_events(tmp_path / "events.jsonl")
    folder = tmp_path / "run"
    folder.mkdir()
    words = (sys.executable, "-c", RUN + LEFT_BEHIND, str(folder))
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        assert process.wait(LIMIT) == 0
        StateDirectory(folder / "state").close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), LIMIT)
    assert not checkpoints(folder / "state")


def test_a_child_does_not_wait_for_threads_of_other_parts(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", OTHERS, str(tmp_path)], stderr=subprocess.PIPE, timeout=LIMIT)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
