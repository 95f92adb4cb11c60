"""Intervals and sets of a run equal those of the wrappers, are evaluated as written, and survive a kill."""

from __future__ import annotations

import itertools
import json
import math
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from states import named
from streams import content
from waiting import LIMIT, wait_for

from streamkernel import (
    ConformalClassifier,
    ConformalRegressor,
    KernelClassifier,
    KernelNoveltyDetector,
    KernelRegressor,
)
from streamkernel.conformal.error_scale import ErrorScale
from streamkernel.engine import Engine
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.checkpoint.state_directory import read_newest
from streamkernel.engine.config.config import Config, ConfigError, load_config
from streamkernel.engine.coverage import Coverage
from streamkernel.engine.telemetry.status import EngineCollector

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "schemas" / "prediction.schema.json"
PREDICTION = Draft202012Validator(json.loads(SCHEMA.read_text()))
N = 900
MODELS = {
    "regressor": ('type = "KernelRegressor"\nmax_features = 64\nlearner = "dsg"', "KernelRegressor"),
    "classifier": ('type = "KernelClassifier"\nmax_features = 64\nlearner = "dsg"', "KernelClassifier"),
}
CONFIG = """
label = "y"
coverage = {coverage}
{more}
[source]
path = "events.jsonl"
[model]
{model}
[sink]
predictions = "out.jsonl"
[state]
directory = "state"
checkpoint_seconds = {seconds}
"""


def examples(kind: str, n: int = N) -> list[tuple[dict[str, float], Any]]:
    """Return examples whose noise doubles half way; for a classifier, a third label arrives late."""
    rng, found = random.Random(5), []
    for i in range(n):
        x = {"a": rng.gauss(0.0, 1.0), "b": rng.gauss(0.0, 1.0)}
        y: Any = 3.0 * x["a"] + rng.gauss(0.0, 1.0 + (i > n // 2))
        found.append((x, y if kind == "regressor" else ("new" if i > n // 2 and x["b"] > 1.0 else y > 0.5)))
    return found


def delayed(rows: list[tuple[dict[str, float], Any]], late: int = 40) -> list[dict[str, Any]]:
    """Return records of features, each followed by a record of its label a number of records later."""
    found = [[{"id": i} | x] for i, (x, _) in enumerate(rows)]
    for i in range(len(rows) - late):
        found[i + late].append({"id": i, "y": rows[i][1]})
    return list(itertools.chain.from_iterable(found))


def prepared(folder: Path, kind: str, records: list[dict[str, Any]], **parts: Any) -> Path:
    named(folder / "state")
    (folder / "events.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    path = folder / "run.toml"
    given = {"coverage": 0.9, "more": "", "seconds": 1000.0, "model": MODELS[kind][0]}
    path.write_text(CONFIG.format(**(given | parts)))
    return path


def ran(path: Path, stopping: Callable[[], bool] = lambda: False) -> Engine:
    engine = engine_of(load_config(path))
    engine.run(stopping)
    return engine


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


def interval_in(line: dict[str, Any]) -> tuple[float, float]:
    return (-math.inf if line["lower"] is None else line["lower"], math.inf if line["upper"] is None else line["upper"])


def is_inside(line: dict[str, Any], y: Any) -> bool:
    if "set" in line:
        return y in line["set"]
    lower, upper = interval_in(line)
    return bool(lower <= y <= upper)


def gauges(engine: Engine) -> dict[str, float]:
    return {
        sample.name.removeprefix("streamkernel_"): sample.value
        for family in EngineCollector(engine).collect()
        for sample in family.samples
        if not sample.labels
    }


@pytest.mark.parametrize("kind", MODELS)
def test_intervals_and_sets_are_those_of_the_wrapper_and_the_model_is_as_without(tmp_path: Path, kind: str) -> None:
    rows = examples(kind)
    path = prepared(tmp_path, kind, [x | {"y": y} for x, y in rows])
    engine = ran(path)
    if kind == "regressor":
        model: Any = ConformalRegressor(KernelRegressor(max_features=64, learner="dsg"))
    else:
        model = ConformalClassifier(KernelClassifier(max_features=64, learner="dsg"))
    found, hits = lines(tmp_path), []
    for (x, y), line in zip(rows, found, strict=True):
        PREDICTION.validate(line)
        if kind == "regressor":
            assert interval_in(line) == model.predict_interval_one(x)
        else:
            chances = model.predict_proba_one(x)
            assert set(line["set"]) == model.predict_set_one(x)
            assert [chances[label] for label in line["set"]] == sorted(map(chances.get, line["set"]), reverse=True)
        hits.append(is_inside(line, y))
        model.learn_one(x, y)
    saved = read_newest(tmp_path / "state")
    assert saved is not None
    assert content(saved["model"]) == content(model.model)
    told = gauges(engine)
    assert told["coverage"] == told["coverage_recent"] == sum(hits) / N
    assert abs(told["coverage"] - 0.9) < 0.02
    if kind == "regressor":
        widths = sorted(upper - lower for lower, upper in map(interval_in, found))
        assert told["interval_width"] == (widths[N // 2 - 1] + widths[N // 2]) / 2
        assert "set_labels" not in told
    else:
        assert told["set_labels"] == pytest.approx(sum(len(line["set"]) for line in found) / N)
        assert "interval_width" not in told


@pytest.mark.parametrize("kind", MODELS)
def test_a_late_label_is_judged_by_the_interval_that_was_written(tmp_path: Path, kind: str) -> None:
    rows = examples(kind)
    engine = ran(prepared(tmp_path, kind, delayed(rows), more='[delayed_labels]\nkey = "id"'))
    found = lines(tmp_path)
    hits = [is_inside(line, y) for line, (_, y) in zip(found, rows[: N - 40], strict=False)]
    assert gauges(engine)["coverage"] == sum(hits) / (N - 40)
    assert not all(hits)
    before = [line for line in found if is_wide(line, kind)]
    assert before[:41] == found[:41]  # no width is known before the first label


def is_wide(line: dict[str, Any], kind: str) -> bool:
    return line["lower"] is None if kind == "regressor" else line["set"] == list(line["probabilities"])


@pytest.mark.parametrize("later", [False, True], ids=["labels at once", "labels later"])
def test_hours_with_ten_times_the_noise_are_covered_as_others(tmp_path: Path, later: bool) -> None:
    rng, rows = random.Random(1), []
    for i in range(3000):
        x = {"sine": math.sin(i % 24 * math.pi / 12), "cosine": math.cos(i % 24 * math.pi / 12)}
        rows.append((x, 50 + 20 * x["sine"] + rng.gauss(0, 10 if i % 24 in (9, 17) else 1)))
    records, more = delayed(rows) if later else [x | {"y": y} for x, y in rows], '[delayed_labels]\nkey = "id"'
    model = 'type = "KernelRegressor"\nmax_features = 64'
    ran(prepared(tmp_path, "regressor", records, more=more if later else "", model=model))
    inside = [is_inside(line, y) for line, (_, y) in zip(lines(tmp_path), rows, strict=True)]
    noisy = [hit for i, hit in enumerate(inside) if i >= 800 and i % 24 in (9, 17)]
    assert abs(sum(noisy) / len(noisy) - 0.9) < 0.1  # 0.17 without a scale
    assert abs(sum(inside) / len(inside) - 0.9) < 0.01


def test_a_run_that_moves_to_a_cluster_and_back_keeps_its_scores() -> None:
    coverage, x = Coverage(0.5), {"a": 1.0}
    for features in (x, None, x):
        for i in range(20):
            coverage.judge(features, 1000.0 + i, (0.0, None, 1.0))
        assert coverage.threshold(None) == pytest.approx(1010.0, rel=0.05)
        assert coverage.threshold(x) == pytest.approx(1010.0, rel=0.05)
    assert coverage.judged == 60


class KilledError(Exception):
    """Ends a run without its last checkpoint."""


@pytest.mark.parametrize("later", [False, True], ids=["labels at once", "labels later"])
@pytest.mark.parametrize("kind", MODELS)
def test_a_run_that_stops_and_one_that_is_ended_continue_with_the_same_bits(
    tmp_path: Path, kind: str, later: bool
) -> None:
    rows = examples(kind)
    records = delayed(rows) if later else [x | {"y": y} for x, y in rows]
    more = '[delayed_labels]\nkey = "id"' if later else ""
    whole, parts = (prepared(tmp_path / name, kind, records, more=more) for name in ("whole", "parts"))
    (parts.parent / "events.jsonl").unlink()
    (parts.parent / "events.jsonl").hardlink_to(whole.parent / "events.jsonl")
    ran(whole)
    for stop in (150, 330):  # a killed run of 90 more events precedes each run that stops
        calls = itertools.count()

        def killed(calls: Any = calls, stop: int = stop) -> bool:
            if next(calls) > stop + 90:
                raise KilledError
            return False

        with pytest.raises(KilledError):
            ran(parts, killed)
        calls = itertools.count()
        ran(parts, lambda calls=calls, stop=stop: next(calls) >= stop)
    ran(parts)
    left, right = ([line | {"stream": "", "position": 0} for line in lines(path.parent)] for path in (whole, parts))
    assert left == right
    one, other = (read_newest(path.parent / "state") for path in (whole, parts))
    assert one is not None
    assert other is not None
    assert flat(one["coverage"]) == flat(other["coverage"])
    assert one["coverage"]["judged"] == N - 40 * later


def flat(value: Any) -> Any:
    """Return a state with the bytes of its arrays and the content of its models."""
    if isinstance(value, dict):
        return {name: flat(part) for name, part in value.items()}
    if isinstance(value, ErrorScale):
        return value.n, value.mean, content(value.log_ratio)
    return value.tobytes() if hasattr(value, "tobytes") else value


def test_a_process_that_is_killed_leaves_no_trace(tmp_path: Path) -> None:
    records, more = delayed(examples("regressor", 6000)), '[delayed_labels]\nkey = "id"'
    whole, parts = (
        prepared(tmp_path / name, "regressor", records, more=more, seconds=0.1) for name in ("whole", "parts")
    )
    (parts.parent / "events.jsonl").unlink()
    (parts.parent / "events.jsonl").hardlink_to(whole.parent / "events.jsonl")
    ran(whole)
    words = [sys.executable, "-c", "from streamkernel.cli import main; main()", "run", str(parts)]
    out = parts.parent / "out.jsonl"
    for at in (200, 2500):
        process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        wait_for(lambda at=at: out.exists() and out.read_bytes().count(b"\n") >= at)
        process.send_signal(signal.SIGKILL)
        process.wait(LIMIT)
    ran(parts)
    texts = [(path.parent / "out.jsonl").read_text().replace(str(path.parent), "") for path in (whole, parts)]
    assert texts[0] == texts[1]
    one, other = (read_newest(path.parent / "state") for path in (whole, parts))
    assert one is not None
    assert other is not None
    assert flat(one["coverage"]) == flat(other["coverage"])


def test_another_coverage_starts_again_in_the_same_state_directory(tmp_path: Path) -> None:
    rows = [json.dumps(x | {"y": y}) + "\n" for x, y in examples("regressor")]
    path = prepared(tmp_path, "regressor", [])
    text = path.read_text()
    for first, last, coverage in ((0, 500, "coverage = 0.9"), (500, 600, ""), (600, N, "coverage = 0.5")):
        with (tmp_path / "events.jsonl").open("a") as file:
            file.writelines(rows[first:last])
        path.write_text(text.replace("coverage = 0.9", coverage))
        engine = ran(path)
    assert ["lower" in line for line in lines(tmp_path)] == [True] * 500 + [False] * 100 + [True] * 300
    found = engine.parts.processor.coverage
    assert found is not None
    assert found.judged == 300
    assert abs(found.inside / 300 - 0.5) < 0.05


def test_a_label_of_features_from_before_coverage_is_not_judged(tmp_path: Path) -> None:
    path = prepared(tmp_path, "regressor", delayed(examples("regressor")), more='[delayed_labels]\nkey = "id"')
    text = path.read_text()
    path.write_text(text.replace("coverage = 0.9\n", ""))
    calls = itertools.count()
    ran(path, lambda: next(calls) >= 200)
    path.write_text(text)
    coverage = ran(path).parts.processor.coverage
    assert coverage is not None
    assert coverage.judged == sum("lower" in line for line in lines(tmp_path)) - 40


@pytest.mark.parametrize("coverage", ["0.0", "1.0", "0.997", "-0.5", "1.5", "true", '"0.9"', "nan", "90"])
def test_an_invalid_coverage_is_refused(tmp_path: Path, coverage: str) -> None:
    with pytest.raises(ConfigError, match=r"^coverage: expected a share above 0, at most 0\.996, got "):
        load_config(prepared(tmp_path, "regressor", [], coverage=coverage))


def test_a_model_without_a_target_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(prepared(tmp_path, "regressor", []))
    config.check()
    monkeypatch.setattr(Config, "estimator_class", property(lambda _: KernelNoveltyDetector))
    monkeypatch.setattr(Config, "metric_spec", "MAE")
    with pytest.raises(ConfigError, match="coverage: expected a model that predicts labels or numbers, got"):
        config.check()
