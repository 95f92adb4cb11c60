"""The sizing of a run: loads against a simulated process, and the command on a real configuration."""

from __future__ import annotations

import json
import random

import pytest

from streamkernel.connectors import Event
from streamkernel.engine.config.config import Config
from streamkernel.engine.sizing import AT_ONCE, BUSY, FullLoad, SteadyLoad, measure, processes_for, read_sample
from tests.test_cli import call

SAMPLE = [Event("memory", i, b"", {"a": i}) for i in range(1000)]


class Simulated:
    """A clock that goes on only while a process of a known capacity works or waits."""

    def __init__(self, capacity):
        self.now, self.capacity, self.seen = 100.0, capacity, []

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.now += max(seconds, 1e-6)  # what is too short for a float would stop the clock

    def run(self, load):
        while (events := load.poll(0.2)) is not None:
            self.seen += events
            self.now += len(events) / self.capacity


def test_full_load_finds_the_capacity_of_a_process():
    process = Simulated(capacity=5000.0)
    load = FullLoad(SAMPLE, 20.0, process.clock)
    process.run(load)
    assert load.rate == pytest.approx(5000.0, rel=1e-9)
    assert load.offered == len(process.seen) == pytest.approx(100_000, abs=2 * AT_ONCE)
    assert process.seen[:2500] == (SAMPLE * 3)[:2500]


def test_a_process_that_gets_slower_is_measured_in_the_second_half():
    process = Simulated(capacity=10_000.0)
    load = FullLoad(SAMPLE, 20.0, process.clock)
    while (events := load.poll(0.2)) is not None:
        process.now += len(events) / (10_000.0 if process.now < 110.0 else 1000.0)
    assert load.rate == pytest.approx(1000.0, rel=1e-9)


def test_a_steady_load_below_the_capacity_is_taken_when_it_is_due():
    process = Simulated(capacity=5000.0)
    load = SteadyLoad(SAMPLE, 20.0, 3500.0, process.clock, process.sleep)
    process.run(load)
    assert load.offered == pytest.approx(70_000, abs=2)
    assert max(load.late) <= 2.0 / 5000.0


def test_a_steady_load_above_the_capacity_gets_later_and_later():
    """After t seconds 5,000 t of 10,000 t events are done: the next one was due t/2 seconds ago."""
    process = Simulated(capacity=5000.0)
    load = SteadyLoad(SAMPLE, 20.0, 10_000.0, process.clock, process.sleep)
    process.run(load)
    assert load.late[-1] == pytest.approx(10.0, abs=0.1)
    assert load.late == sorted(load.late)


@pytest.mark.parametrize("wanted", [1.0, 3499.0, 3501.0, 50_000.0])
def test_no_process_is_busier_than_planned_and_one_fewer_would_be(wanted):
    n = processes_for(wanted, 5000.0)
    assert wanted / n <= BUSY * 5000.0
    assert n == 1 or wanted / (n - 1) > BUSY * 5000.0


def test_a_sample_is_the_beginning_of_a_stream_and_its_source_is_closed():
    class Source:
        polls = iter([[], SAMPLE[:600], SAMPLE[600:], None])
        is_closed = False

        def poll(self, timeout):
            return next(self.polls)

        def close(self):
            self.is_closed = True

    source = Source()
    assert read_sample(source, lambda: False).events == SAMPLE
    assert source.is_closed
    source.polls = iter([None])
    with pytest.raises(ValueError, match="expected a source with records, got none"):
        read_sample(source, lambda: False)


CONFIG = """
label = "y"
[source]
path = "events.jsonl"
[model]
type = "KernelClassifier"
learner = "dsg"
max_features = 64
[sink]
predictions = "predictions.jsonl"
[state]
directory = "state"
"""


@pytest.fixture
def config(tmp_path):
    rng = random.Random(5)
    rows = [{"a": (a := rng.gauss(0, 1)), "b": rng.gauss(0, 1), "y": a > 0} for _ in range(400)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "events.jsonl").write_text(text + '{"a": "wro')
    (tmp_path / "run.toml").write_text(CONFIG)
    return tmp_path / "run.toml"


def test_the_command_measures_and_leaves_the_run_alone(config):
    before = {path.name for path in config.parent.iterdir()}
    result = call("size", config, "--events-per-second", 50, "--seconds", 1)
    assert result.exit_code == 0, result.output
    lines = dict(line.strip("│ ").split("│") for line in result.stdout.splitlines() if "│" in line)
    found = {name.strip(): text.strip() for name, text in lines.items()}
    assert found["features of the model then"] == "64"
    assert int(found["dead letters among them"].replace(",", "")) >= 1
    assert found["processes for 50 events/s"].startswith("1, each ")
    assert float(found["memory of one process"].split()[0].replace(",", "")) > 50
    assert found["checkpoint"].endswith(", every 30 s")
    assert {path.name for path in config.parent.iterdir()} == before


def test_the_rate_is_by_default_what_one_process_should_be_given(config, tmp_path):
    told = []
    folder = tmp_path / "measured"
    sizing = measure(
        Config.model_validate(
            {
                "label": "phishing",
                "source": {"dataset": "Phishing"},
                "model": {"type": "KernelClassifier", "learner": "dsg"},
            }
        ),
        folder,
        None,
        1.0,
        told.append,
    )
    assert sizing.processes == 1
    assert sizing.wanted == pytest.approx(BUSY * sizing.rate)
    assert len(told) == 3
    assert sizing.checkpoint_bytes == max(folder.glob("checkpoint-*")).stat().st_size


def test_a_source_that_cannot_be_read_again_is_refused(tmp_path):
    (tmp_path / "run.toml").write_text(
        CONFIG.replace('path = "events.jsonl"', 'http = "requests"') + "[http]\nport = 0\n"
    )
    result = call("size", tmp_path / "run.toml", "--seconds", 1)
    assert result.exit_code == 2
    assert "got requests over HTTP" in result.stderr
