"""Statistics of inputs and predictions equal those of NumPy and scikit-learn over the same rows, for any restarts."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from states import named

from streamkernel.engine import Engine
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.checkpoint.state_directory import read_newest
from streamkernel.engine.config.config import ConfigError, load_config
from streamkernel.engine.monitoring.field_windows import MOST_CANDIDATES, FieldWindows
from streamkernel.engine.monitoring.stream_statistics import reliability_of
from streamkernel.engine.runner import StreamRunner

N, WINDOW, EVERY = 2600, 200, 3
CONFIG = """
label = "y"
[source]
path = "events.jsonl"
[model]
{model}
max_features = 64
[sink]
predictions = "out.jsonl"
[state]
directory = "state"
checkpoint_seconds = 1000.0
"""
MONITORING = f"""
[monitoring]
window = {WINDOW}
every = {EVERY}
most = 3
"""
MODELS = {"classifier": 'type = "KernelClassifier"\nlearner = "dsg"', "regressor": 'type = "KernelRegressor"'}


def records(kind: str) -> list[dict[str, Any]]:
    """Return records whose label depends on `a` and the last input only; half way all inputs change."""
    rng, found = random.Random(5), []
    for i in range(N):
        late = i >= N // 2
        x: dict[str, Any] = {f"noise {j}": rng.gauss(0.0, 1.0) for j in range(3)}
        x |= {"town": rng.choice(["Graz", "Linz", "Wels"] if late else ["Graz", "Linz"])}
        x |= {"b": None if rng.random() < (0.5 if late else 0.1) else rng.random(), "a": rng.gauss(2.0 * late, 1.0)}
        y = 3.0 * x["a"] + rng.gauss(0.0, 1.0)
        found.append(x | {"y": y if kind == "regressor" else y > 2.0})
    return found


def prepared(folder: Path, kind: str, more: str = MONITORING) -> Path:
    named(folder / "state")
    (folder / "events.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records(kind)))
    (folder / "run.toml").write_text(CONFIG.format(model=MODELS[kind]) + more)
    return folder / "run.toml"


def ran(path: Path, stop_after: int | None = None) -> Engine:
    engine, asked = engine_of(load_config(path)), itertools.count()
    engine.run(lambda: stop_after is not None and next(asked) >= stop_after)
    return engine


def rows(engine: Engine) -> dict[str, Any]:
    assert engine.snapshot.monitoring is not None
    found: dict[str, Any] = engine.snapshot.monitoring.rows()["statistics"]
    return found


def stability(reference: list[Any], last: list[Any], edges: list[float]) -> float:
    """Return the population stability index over bins and missing values, with half a row added to each."""

    def shares(values: list[Any]) -> list[float]:
        there = [value for value in values if value is not None]
        places = [sum(value > edge for edge in edges) for value in there]
        counts = [places.count(i) + 0.5 for i in range(len(edges) + 1)] + [len(values) - len(there) + 0.5]
        return [count / sum(counts) for count in counts]

    return sum((p - q) * np.log(p / q) for p, q in zip(shares(last), shares(reference), strict=True))


@pytest.mark.parametrize("kind", MODELS)
def test_statistics_are_those_of_numpy(tmp_path: Path, kind: str) -> None:
    found = rows(ran(prepared(tmp_path, kind)))
    full = N // (WINDOW * EVERY)
    assert found["events"] == full * WINDOW * EVERY
    last = "a" if kind == "regressor" else "noise 2"  # the important one, where the learner knows
    assert list(found["inputs"]) == ["noise 0", "noise 1", last]
    sample = records(kind)[::EVERY]
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()][::EVERY]
    parts = {"reference": slice(0, WINDOW), "last": slice((full - 1) * WINDOW, full * WINDOW)}
    for name, of in found["inputs"].items():
        columns = {key: [record[name] for record in sample[part]] for key, part in parts.items()}
        edges = np.quantile(columns["reference"], np.arange(1, 10) / 10).tolist()
        for key, column in columns.items():
            expected = [np.mean(column), np.std(column), *np.quantile(column, [0.05, 0.25, 0.5, 0.75, 0.95])]
            assert [of[key]["mean"], of[key]["deviation"], *of[key]["quantiles"]] == pytest.approx(expected)
            assert of[key]["change"] == pytest.approx(stability(columns["reference"], column, edges))
            assert (of[key]["missing"], of[key]["outside"]) == (0.0, 0.0)
    assert found["inputs"]["noise 0"]["last"]["change"] < 0.2
    if kind == "regressor":
        assert found["inputs"]["a"]["last"]["change"] > 1.0
        predictions = [line["prediction"] for line in lines[parts["last"]]]
        assert found["predictions"]["prediction"]["last"]["mean"] == pytest.approx(np.mean(predictions))
        return
    shares = found["predictions"]["prediction"]["last"]["shares"]
    assert shares["true"] == pytest.approx(np.mean([line["prediction"] for line in lines[parts["last"]]]))
    p = np.array([list(line["probabilities"].values()) for line in lines[parts["last"]]])
    assert found["predictions"]["confidence"]["last"]["mean"] == pytest.approx(p.max(axis=1).mean())
    entropy = -(p * np.log(p)).sum(axis=1).mean()
    assert found["predictions"]["entropy"]["last"]["mean"] == pytest.approx(entropy)
    judged = [line for line in lines if line["probabilities"]][-1000:]
    confidence = np.array([max(line["probabilities"].values()) for line in judged])
    right = np.array([line["prediction"] == line["label"] for line in judged])
    bins = found["calibration"]["bins"]
    shares_right, means = calibration_curve(right, confidence, n_bins=10)
    assert [one[1:] for one in bins] == [pytest.approx(pair) for pair in zip(means, shares_right, strict=True)]
    assert sum(n for n, *_ in bins) == len(judged)
    error = sum(n * abs(mean - share) for n, mean, share in bins) / len(judged)
    assert found["calibration"]["error"] == pytest.approx(error)


def test_texts_missing_values_and_values_far_outside() -> None:
    rng, windows = random.Random(1), FieldWindows(1000, ["town", "b", "late"])
    windows.add([{"town": rng.choice("abc"), "b": rng.random()} for _ in range(1000)])
    windows.complete()
    towns: list[Any] = ["a"] * 500 + ["d"] * 300 + [None] * 200
    windows.add([{"town": town, "b": 1e6 if i < 50 else 0.5, "late": 1} for i, town in enumerate(towns)])
    windows.complete()
    found = windows.last
    assert (found["town"].new, found["town"].missing, found["town"].shares["a"]) == (0.3, 0.2, 0.5)
    assert (found["b"].outside, found["b"].missing, found["late"].mean) == (0.05, 0.0, 1.0)
    assert windows.reference["late"].missing == 1.0
    assert min(one.change for one in found.values()) > 0.25


def test_the_fields_that_are_kept_are_bounded() -> None:
    windows = FieldWindows(10)
    for i in range(10):
        windows.add([{f"x{i}-{j}": 1.0 for j in range(1000)}])
    assert len(windows.state()["columns"]) == MOST_CANDIDATES
    windows.complete(lambda: ["x0-77_encoded"])
    assert (len(windows.names), "x0-77" in windows.names) == (20, True)


def test_calibration_of_true_probabilities_is_perfect() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1.0, 1000)
    error = reliability_of(list(zip(p, rng.random(1000) < p, strict=True))).error
    assert error is not None
    assert error < 0.06
    error = reliability_of(list(zip(p, rng.random(1000) < p - 0.3, strict=True))).error
    assert error == pytest.approx(0.3, abs=0.06)


def test_a_restart_and_any_batches_leave_the_same(tmp_path: Path) -> None:
    whole = rows(ran(prepared(tmp_path / "whole", "classifier")))
    path = prepared(tmp_path / "parts", "classifier")
    for stop in (3, 2, 4):  # numbers of polls; the batches become larger
        ran(path, stop)
    assert rows(ran(path)) == whole
    engine = engine_of(load_config(prepared(tmp_path / "alone", "classifier")))
    engine.runner = StreamRunner(engine.parts, at_once=1)
    engine.run()
    assert rows(engine) == whole
    states = [read_newest(tmp_path / name / "state")["monitoring"] for name in ("whole", "parts", "alone")]
    kept = [json.dumps(state, default=lambda array: array.tolist()) for state in states]
    assert kept[0] == kept[1] == kept[2]


def test_the_table_can_be_added_changed_and_removed(tmp_path: Path) -> None:
    path = prepared(tmp_path, "classifier", more="")
    ran(path, 30)
    path.write_text(CONFIG.format(model=MODELS["classifier"]) + MONITORING)
    ran(path, 60)
    path.write_text(CONFIG.format(model=MODELS["classifier"]) + "[monitoring]\nwindow = 100\nevery = 1")
    before = read_newest(tmp_path / "state")["outcomes"]["learned"]
    assert rows(ran(path))["events"] == (N - before) // 100 * 100


def test_fields_other_than_inputs_are_refused(tmp_path: Path) -> None:
    path = prepared(tmp_path, "classifier", '[monitoring]\nfields = ["a", "y"]')
    with pytest.raises(ConfigError, match=r'monitoring\.fields: expected inputs of the model, got "y"'):
        load_config(path).check()
