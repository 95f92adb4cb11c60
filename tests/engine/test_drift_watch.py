"""Changes of the stream are detected without labels, with the fields that moved, and identically after any restart."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from states import named

from streamkernel.engine import Engine
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.checkpoint.state_directory import read_newest
from streamkernel.engine.config.config import ConfigError, load_config
from streamkernel.engine.monitoring.drift_watch import FIRST, DriftWatch
from streamkernel.engine.pipelines import NO_ANSWER
from streamkernel.engine.runner import StreamRunner

N, CHANGE = 3000, 1500
CONFIG = """
label = "y"
[source]
path = "events.jsonl"
[model]
type = "KernelClassifier"
max_features = 64
learner = "dsg"
[state]
directory = "state"
checkpoint_seconds = 1000.0
[drift]
every = 2
detectors = ["adwin"]
scores = false
"""


def rows(change: str, n: int, seed: int = 3) -> list[dict[str, Any]]:
    """Return rows; after half of them, the named property of their distribution changes."""
    rng, found = random.Random(seed), []
    for i in range(n):
        late = i >= n // 2
        a, b, c = (rng.gauss(0.0, 1.0) for _ in range(3))
        b = 0.6 * b + 0.8 * (-a if late and change == "correlation" else a)
        c += 2.0 * (late and change == "mean")
        found.append({"a": a, "b": 5.0 + 100.0 * b, "c": c, "town": rng.choice(["Graz", "Linz"])})
    return found


def watched(change: str, **options: Any) -> dict[str, Any]:
    watch = DriftWatch(every=1, **options)
    xs = rows(change, 6000)
    watch.add_all(xs, [NO_ANSWER] * len(xs))
    return watch.snapshot().rows()


def test_the_fields_that_moved_are_named() -> None:
    found = watched("mean")
    assert found["counts"] == {"kernel": 0, "adwin": 1}
    (alarm,) = found["alarms"]
    assert 3000 < alarm["event"] < 3200
    assert alarm["moved"][0]["field"] == "c"
    assert alarm["moved"][0]["shift"] > 0.5
    found = watched("correlation")
    assert found["counts"] == {"kernel": 1, "adwin": 0}
    (alarm,) = found["alarms"]
    assert 3000 < alarm["event"] < 4000
    assert {one["field"] for one in alarm["moved"][:2]} == {"a", "b"}
    assert alarm["moved"][0]["correlation"] > 0.3
    assert watched("nothing")["alarms"] == []


def test_scores_are_watched_without_labels() -> None:
    watch, rng = DriftWatch(every=1, detectors=["adwin"]), random.Random(1)
    for i in range(2000):
        p = rng.uniform(0.5, 0.6) if i >= 1000 else rng.uniform(0.8, 1.0)
        watch.add_all([{"a": rng.gauss(0.0, 1.0)}], [(True, {True: p, False: 1.0 - p})])
    (alarm,) = watch.snapshot().alarms
    assert (alarm["moved"][0]["field"], 1000 < alarm["event"] < 1100) == ("(score)", True)


def test_several_labels_have_no_score() -> None:
    watch, answer = DriftWatch(every=1), ({"y": True, "z": False}, {name: {False: 0.5, True: 0.5} for name in "yz"})
    for i in range(2 * FIRST):
        watch.add_all([{"a": float(i % 7 if i < FIRST + 50 else 9)}], [answer])
    (alarm,) = watch.snapshot().alarms
    assert [one["field"] for one in alarm["moved"]] == ["a"]


def test_values_that_are_not_known_yet_are_missing(tmp_path: Path) -> None:
    """Until earlier records come, those that wait for their label have lags that are ``None``."""
    numbers = [{"id": i, "a": row["a"]} for i, row in enumerate(rows("nothing", FIRST + 20))]
    late = [{"id": i, "y": i % 2 == 0} for i in range(len(numbers))]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in numbers + late))
    (tmp_path / "run.toml").write_text(
        'label = "y"\n[source]\npath = "events.jsonl"\n[[preprocessing]]\ntype = "Lags"\nfields = ["a"]\n[model]\n'
        'type = "KernelClassifier"\nlearner = "dsg"\nmax_features = 8\n[delayed_labels]\nkey = "id"\n'
        "[drift]\nevery = 1\n[novelty]\nevery = 1\n"
    )
    engine = ran(tmp_path / "run.toml")
    assert (engine.outcomes["learned"], engine.outcomes["dead_letter"]) == (FIRST + 20, 0)


def prepared(folder: Path, more: str = "") -> Path:
    named(folder / "state")
    made = [row | {"y": row["a"] > 0.0} for row in rows("mean", N)]
    (folder / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    (folder / "run.toml").write_text(CONFIG + more)
    return folder / "run.toml"


def ran(path: Path, stop_after: int | None = None) -> Engine:
    engine, asked = engine_of(load_config(path)), itertools.count()
    engine.run(lambda: stop_after is not None and next(asked) >= stop_after)
    return engine


def test_a_restart_and_any_batches_leave_the_same_and_the_model_forgets(tmp_path: Path) -> None:
    forget = 'action = "forget"'
    whole = ran(prepared(tmp_path / "whole", forget))
    found = whole.snapshot.monitoring
    assert found is not None
    assert found.drift is not None
    (alarm,) = found.drift.alarms
    assert CHANGE < alarm["event"] < CHANGE + 200
    forgot = 32 * -(-alarm["event"] // 32)  # the next multiple of 16 sampled events
    assert forgot <= N - whole.kernel_model.n_steps <= forgot + 32
    path = prepared(tmp_path / "parts", forget)
    for stop in (30, 40, 50):
        ran(path, stop)
    ran(path)
    engine = engine_of(load_config(prepared(tmp_path / "alone", forget)))
    engine.runner = StreamRunner(engine.parts, at_once=1)
    engine.run()
    states = [read_newest(tmp_path / name / "state") for name in ("whole", "parts", "alone")]
    x = {"a": 0.3, "b": 50.0, "c": 2.0}
    assert len({state["model"].predict_proba_one(x)[True] for state in states}) == 1
    kept = [state["monitoring"]["drift"] for state in states]
    for name in ("predicted", "evaluated", "alarms", "counts", "recent", "scales", "before"):
        assert kept[0][name] == kept[1][name] == kept[2][name]
    widths = [{name: adwin.width for name, adwin in one["adwins"].items()} for one in kept]
    assert widths[0] == widths[1] == widths[2]


def test_the_kernel_detector_continues_from_a_checkpoint() -> None:
    xs = rows("correlation", 6000)
    whole, first, second = (DriftWatch(every=1, detectors=["kernel"]) for _ in range(3))
    whole.add_all(xs, [NO_ANSWER] * len(xs))
    first.add_all(xs[: 2 * FIRST], [NO_ANSWER] * 2 * FIRST)
    second.restore(first.state())
    second.add_all(xs[2 * FIRST :], [NO_ANSWER] * (len(xs) - 2 * FIRST))
    assert second.snapshot() == whole.snapshot()


def test_detectors_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    path = prepared(tmp_path)
    path.write_text(CONFIG.replace('["adwin"]', '["kswin"]'))
    with pytest.raises(ConfigError, match=r'drift\.detectors: expected a list of "kernel" and "adwin"'):
        load_config(path)
