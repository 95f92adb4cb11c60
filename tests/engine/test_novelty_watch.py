"""Novel events are found without labels, false alarms are bounded, and a restart or batches change no bit."""

from __future__ import annotations

import itertools
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from prometheus_client import CollectorRegistry
from states import named
from typer.testing import CliRunner

from streamkernel.cli import app
from streamkernel.engine import Engine
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.checkpoint.state_directory import read_newest
from streamkernel.engine.config.config import load_config
from streamkernel.engine.monitoring.monitoring import Monitoring
from streamkernel.engine.monitoring.novelty_watch import HELD_OUT, NoveltyWatch
from streamkernel.engine.pipelines import NO_ANSWER
from streamkernel.engine.runner import StreamRunner
from streamkernel.engine.telemetry.quality import WINDOW
from streamkernel.engine.telemetry.status import EngineCollector, status_of

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "schemas" / "prediction.schema.json"
N, CHANGE = 4200, 3600
CONFIG = """
label = "y"
[source]
path = "events.jsonl"
[model]
type = "KernelClassifier"
max_features = 64
learner = "dsg"
[sink]
predictions = "out.jsonl"
[state]
directory = "state"
checkpoint_seconds = 1000.0
[novelty]
every = 1
"""


def rows(n: int, change: int) -> list[dict[str, Any]]:
    """Return rows of inputs whose correlation changes its sign, and no distribution of one input."""
    rng, found = random.Random(3), []
    for i in range(n):
        a, b, c = (rng.gauss(0.0, 1.0) for _ in range(3))
        found.append({"a": a, "b": 100.0 * (0.6 * b + 0.8 * (a if i < change else -a)), "c": c})
    return found


def prepared(folder: Path) -> Path:
    named(folder / "state")
    made = [row | {"y": row["a"] > 0.0} for row in rows(N, CHANGE)]
    (folder / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    (folder / "run.toml").write_text(CONFIG)
    return folder / "run.toml"


def ran(path: Path, stop_after: int | None = None, at_once: int | None = None) -> Engine:
    engine, asked = engine_of(load_config(path)), itertools.count()
    if at_once is not None:
        engine.runner = StreamRunner(engine.parts, at_once=at_once)
    engine.run(lambda: stop_after is not None and next(asked) >= stop_after)
    return engine


def test_a_restart_and_any_batches_leave_the_same_and_a_change_is_found(tmp_path: Path) -> None:
    whole = ran(prepared(tmp_path / "whole"))
    path = prepared(tmp_path / "parts")
    for stop in (5, 12, 9):
        ran(path, stop)
    ran(path)
    ran(prepared(tmp_path / "alone"), at_once=1)
    outs = [(tmp_path / name / "out.jsonl").read_text() for name in ("whole", "parts", "alone")]
    lines = [[json.loads(line) for line in out.splitlines()] for out in outs]
    figures = [[(line["novelty"], line["is_novel"]) for line in one] for one in lines]
    assert figures[0] == figures[1] == figures[2]
    assert {known for *_, known in figures[0][:1256]} == {None}
    assert {known for *_, known in figures[0][1256:]} == {True, False}
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(lines[0][-1])
    states = [read_newest(tmp_path / name / "state") for name in ("whole", "parts", "alone")]
    kept = [state["monitoring"]["novelty"] for state in states if state is not None]
    for name in ("counts", "held_out", "in_window", "recent", "alarms"):
        assert kept[0][name] == kept[1][name] == kept[2][name]
    status = status_of(whole)
    (alarm,) = status["monitoring"]["novelty"]["alarms"]
    assert CHANGE < alarm["event"] < N
    assert {one["field"] for one in alarm["moved"][:2]} == {"a", "b"}
    assert any(mark["text"].startswith("drift (novelty): ") for mark in status["marks"])
    registry = CollectorRegistry()
    registry.register(EngineCollector(whole))
    novel = sum(known is True for *_, known in figures[0])
    assert registry.get_sample_value("streamkernel_novelty_events_total", {"outcome": "novel"}) == novel
    assert registry.get_sample_value("streamkernel_drifts_total", {"detector": "novelty"}) == 1.0


def test_scores_outside_of_the_sample_change_nothing() -> None:
    xs = rows(2 * N, 2 * N)
    every, some, many = NoveltyWatch(every=2), NoveltyWatch(every=2), NoveltyWatch(every=2)
    for first in range(0, len(xs), 7):
        many.add_all(xs[first : first + 7])
    assert many.state()["counts"][0] == len(xs)
    scored = [every.observe(x) for x in xs]
    sampled = []
    for first in range(0, len(xs), 2):
        sampled.append(some.observe(xs[first]))
        some.add_all(xs[first + 1 : first + 2])
    assert scored[::2] == sampled
    assert every.snapshot() == some.snapshot() == many.snapshot()
    assert None not in {one.score for one in scored[-1000:]}


def test_records_that_are_only_added_are_examined_together() -> None:
    xs = rows(2 * N, 2 * N)
    expected = NoveltyWatch(every=2)
    expected.add_all(xs)
    monitoring = Monitoring(novelty=NoveltyWatch(every=2))
    state = monitoring.state()
    monitoring.add(xs[0], None, NO_ANSWER, True)
    monitoring.restore(state)  # the record is read again
    for first in range(0, len(xs), 100):
        for x in xs[first : first + 50]:
            monitoring.add(x, None, NO_ANSWER, True)
            monitoring.add(x, 1.0, NO_ANSWER, False)  # its label comes later
        monitoring.add_all(xs[first + 50 : first + 100], [1.0] * 50, [NO_ANSWER] * 50)
    assert monitoring.snapshot().novelty == expected.snapshot()
    assert monitoring.state()["novelty"]["counts"] == expected.state()["counts"]


def test_false_alarms_are_bounded_for_heavy_tails() -> None:
    values = np.random.default_rng(1).standard_t(2, size=(20 * WINDOW + 256, 2))
    watch = NoveltyWatch(rate=0.05, average_run_length=10_000.0)
    for a, b in values.tolist():
        watch.observe({"a": a, "b": b})
    found = watch.snapshot()
    assert found.examined == 19 * WINDOW
    assert found.novel / found.examined < 0.05 + 3.0 * math.sqrt(0.05 / HELD_OUT / 19)  # each window has its own scores
    assert found.alarms_raised <= 5  # 2 expected at most


def test_the_limit_is_that_of_all_orders_of_the_scores() -> None:
    """P(k of m scores exceed the r-th of n) = C(k+r-1, k) C(m+n-k-r, m-k) / C(m+n, m): all orders are as likely."""
    for rate, length in ((0.01, 1e6), (0.1, 20_000.0)):
        r, n, m = int(rate * (HELD_OUT + 1)), HELD_OUT, WINDOW
        tail, limit = 0.0, m
        while True:
            tail += math.comb(limit + r - 1, limit) * math.comb(m + n - limit - r, m - limit) / math.comb(m + n, m)
            if tail > WINDOW / length:
                break
            limit -= 1
        assert NoveltyWatch(rate=rate, average_run_length=length).limit == limit


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("rate = 0.001", "novelty.rate: expected a number from 0.002 to 0.5, got 0.001"),
        ("average_run_length = 10", "novelty.average_run_length: expected a number of at least 2,000, got 10"),
        ('fields = ["a", "y"]', 'novelty.fields: expected inputs of the model, got "y"'),
        ("nu = 0.1", "novelty.nu"),
    ],
)
def test_nonsense_is_refused_by_name(tmp_path: Path, more: str, problem: str) -> None:
    path = prepared(tmp_path)
    path.write_text(CONFIG + more)
    answer = CliRunner().invoke(app, ["run", "--check", str(path)])
    assert answer.exit_code == 2
    assert problem in answer.stderr
