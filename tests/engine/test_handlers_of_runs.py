"""A run whose signal handler, log handler and sink use its model, stopped at many moments, learns the same bits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from states import named
from streams import content
from test_runner import write_events
from waiting import LIMIT

from streamkernel.engine.checkpoint.state_directory import read_newest

pytestmark = pytest.mark.slow

# The timer counts the time of the processor: by the clock, a busy machine would do little else than handle its signals.
RUN = """
import logging, random, signal, sys
from pathlib import Path
from river import metrics
from streamkernel import KernelClassifier
from streamkernel.commands.process import StopSignal
from streamkernel.connectors import FileSink, FileSource
from streamkernel.engine import Engine
from streamkernel.engine.checkpoint.state_directory import StateDirectory
folder, hurt, rng, uses, stops = Path(sys.argv[1]), sys.argv[2] == "hurt", random.Random(0), 0, 0
def use(save=False):
    global uses
    if hurt:
        uses += 1
        model.predict_one({"a": 1.0, "b": -1.0})
        save and model.save(folder / "saved.safetensors")
def alarm(number, frame):
    use(save=True)
    signal.setitimer(signal.ITIMER_PROF, rng.uniform(0.0, 0.05))
    if rng.random() < 0.2:
        signal.raise_signal(signal.SIGTERM)
class Handler(logging.Handler):
    def emit(self, record):
        use()
class Sink(FileSink):
    def write_all(self, records, keys):
        use()
        super().write_all(records, keys)
logging.getLogger().addHandler(Handler())
logging.getLogger().setLevel(logging.DEBUG)
signal.signal(signal.SIGPROF, alarm)
while True:
    stop, model = StopSignal(), KernelClassifier()
    engine = Engine(
        model, FileSource(folder.parent / "events.jsonl"), label="y", ignore=["id"], metric=metrics.Accuracy(),
        sink=Sink(folder / "predictions.jsonl"), state=StateDirectory(folder / "state"), checkpoint_seconds=0.01,
    )
    model = engine.model
    signal.setitimer(signal.ITIMER_PROF, 0.01 if hurt else 0.0)
    engine.run(stopping=stop.is_requested)
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    engine.close()
    if not stop.is_requested():
        break
    stops += 1
print(uses, stops)
"""


def run(folder: Path, kind: str) -> tuple[int, int]:
    """Run the program, and return how often the model was used by handlers, and how often the run was stopped."""
    named(folder / "state", "member")
    words = [sys.executable, "-c", RUN, str(folder), kind]
    done = subprocess.run(words, capture_output=True, text=True, timeout=2 * LIMIT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    uses, stops = map(int, done.stdout.splitlines()[-1].split())
    return uses, stops


def test_a_run_whose_handlers_use_its_model_and_that_is_stopped_learns_the_same_bits(tmp_path: Path) -> None:
    write_events(tmp_path / "events.jsonl", 1500)
    assert run(tmp_path / "calm", "calm") == (0, 0)
    uses, stops = run(tmp_path / "hurt", "hurt")
    assert uses > 20
    assert stops > 3
    calm, hurt = (read_newest(tmp_path / kind / "state") for kind in ("calm", "hurt"))
    assert calm is not None
    assert hurt is not None
    assert hurt["positions"] == calm["positions"]
    assert hurt["outcomes"] == calm["outcomes"]
    assert content(hurt["model"]) == content(calm["model"])
    files = [(tmp_path / kind / "predictions.jsonl").read_bytes() for kind in ("calm", "hurt")]
    assert files[0] == files[1]
