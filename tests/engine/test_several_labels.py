"""Runs with several labels: learning, output, coverage, explanations, refused configurations, and late labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from river import base, metrics
from streams import content

from streamkernel import (
    ConformalClassifier,
    ConformalRegressor,
    KernelMultiLabelClassifier,
    KernelMultiTargetRegressor,
)
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.checkpoint.state_directory import read_newest
from streamkernel.engine.config.config import ConfigError, load_config
from streamkernel.engine.coverage import CoverageByTarget, RoundCoverage
from streamkernel.engine.http.openapi import ANSWER
from streamkernel.engine.serving import application
from streamkernel.engine.telemetry.quality import values_by_target
from streamkernel.engine.telemetry.status import EngineCollector, checkpoint_rows, status_of
from streamkernel.engine.telemetry.terminal import View

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "schemas" / "prediction.schema.json"
PREDICTION = Draft202012Validator(json.loads(SCHEMA.read_text()))
N = 300
GENERATOR = np.random.default_rng(4)
XS = [{"size": a, "age": b} for a, b in GENERATOR.random((N, 2)).tolist()]
NUMBERS = [{"price": 1000.0 * x["size"] * (1.5 - x["age"]), "days": 90.0 * x["age"] ** 2} for x in XS]
LABELS = [{"dear": y["price"] > 500.0, "slow": y["days"] > 30.0} for y in NUMBERS]


BOTH = {
    "numbers": ('["price", "days"]', "TargetRegressor", NUMBERS),
    "labels": ('["dear", "slow"]', "LabelClassifier", LABELS),
}


def config_in(
    folder: Path, more: str = "", label: str = '["price", "days"]', kind: str = "TargetRegressor", sink: str = ""
) -> Path:
    path = folder / "run.toml"
    path.write_text(
        f"""label = {label}
ignore = ["id"]
{more}
[source]
path = "events.jsonl"
[state]
directory = "state"
[sink]
predictions = "predictions.jsonl"
dead_letters = "dead.jsonl"
{sink}
[model]
type = "KernelMulti{kind}"
max_features = 64
"""
    )
    return path


def written(folder: Path, records: list[dict[str, Any]]) -> None:
    (folder / "events.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def state_in(folder: Path) -> Any:
    saved = read_newest(folder / "state")
    assert saved is not None
    return saved


@pytest.mark.parametrize("name", BOTH)
def test_a_run_learns_and_predicts_all_labels(tmp_path: Path, name: str) -> None:
    """Run, and restart in the middle."""
    label, kind, ys = BOTH[name]
    model: Any = {"numbers": KernelMultiTargetRegressor, "labels": KernelMultiLabelClassifier}[name](max_features=64)
    config = config_in(tmp_path, label=label, kind=kind)
    each = {name: metrics.MAE() if ys is NUMBERS else metrics.Accuracy() for name in ys[0]}
    predicted = []
    for x, y in zip(XS, ys, strict=True):
        predicted.append(model.predict_one(x))
        for name in y if predicted[-1] else ():
            each[name].update(y[name], predicted[-1][name])
        model.learn_one(x, y)
    for n in (150, N):
        written(tmp_path, [{"id": i} | x | y for i, (x, y) in enumerate(zip(XS[:n], ys, strict=False))])
        engine = engine_of(load_config(config))
        engine.run()
    assert engine.outcomes == {"learned": N, "predicted": N, "dead_letter": 0, "pending": 0, "passed_over": 0}
    state = state_in(tmp_path)
    assert content(state["model"]) == content(model)
    assert values_by_target(state["metric"]) == pytest.approx({name: metric.get() for name, metric in each.items()})
    found = lines(tmp_path / "predictions.jsonl")
    assert [line["prediction"] for line in found] == predicted
    assert [line["label"] for line in found] == ys
    if ys is LABELS:  # the first label is predicted before any probability is known
        p = [{name: line["probabilities"][name]["true"] for name in ys[0]} for line in found[1:]]
        assert [{name: up > 0.5 for name, up in one.items()} for one in p] == predicted[1:]
    else:
        assert "probabilities" not in found[-1]
    rows = dict(checkpoint_rows(state))
    assert rows["targets"] == ", ".join(ys[0])
    assert {"of " + name for name in each} < {*rows}


def test_records_with_some_of_the_labels_are_dead_letters(tmp_path: Path) -> None:
    records = [x | y for x, y in zip(XS[:50], NUMBERS, strict=False)]
    del records[10]["days"]
    records[20]["price"] = "much"
    records[30] |= {"price": None, "days": None}
    written(tmp_path, records)
    engine = engine_of(load_config(config_in(tmp_path)))
    engine.run()
    assert engine.outcomes["learned"] == 47
    dead = lines(tmp_path / "dead.jsonl")
    assert [letter["kind"] for letter in dead] == ["label"] * 3
    assert 'Expected all 2 labels, got no such field - at field "days"' in dead[0]["reason"]
    assert "the string 'much'" in dead[1]["reason"]
    assert "Expected a label, got null" in dead[2]["reason"]


def test_all_targets_of_a_delayed_label_are_learned_together(tmp_path: Path) -> None:
    model, records = KernelMultiTargetRegressor(max_features=64), []
    for i, x in enumerate(XS):
        records.append({"id": i} | x)
        if i >= 5:
            records.append({"id": i - 5} | NUMBERS[i - 5])
            model.learn_one(XS[i - 5], NUMBERS[i - 5])
    records.append({"id": N - 1, "price": 1.0})
    path = config_in(tmp_path, "coverage = 0.8\ndelayed_labels = { key = 'id' }")
    for n in (300, len(records)):  # five examples wait while the run restarts, with their intervals
        written(tmp_path, records[:n])
        engine = engine_of(load_config(path))
        engine.run()
    assert engine.outcomes == {"learned": N - 5, "predicted": N, "dead_letter": 1, "pending": N, "passed_over": 0}
    assert content(state_in(tmp_path)["model"]) == content(model)
    found = lines(tmp_path / "predictions.jsonl")[: N - 5]
    for target, own in state_in(tmp_path)["coverage"]["by_target"].items():
        regions = [interval_or_set(line, target) for line in found if target in line["lower"]]
        ys = [y[target] for y in NUMBERS[N - 5 - len(regions) : N - 5]]
        assert own["judged"] == len(regions) == N - 11  # six come before the first label
        assert own["inside"] == sum(low <= y <= high for y, (low, high) in zip(ys, regions, strict=True))


class Echo(base.Regressor, base.Classifier):
    """A model that predicts its attribute, so that a wrapper around it has only its errors."""

    prediction: Any = None
    probabilities: Any = None

    def learn_one(self, x: dict[str, Any], y: Any) -> None:
        pass

    def predict_one(self, x: dict[str, Any]) -> Any:
        return self.prediction

    def predict_proba_one(self, x: dict[str, Any]) -> dict[Any, float]:
        return {label == "true": p for label, p in self.probabilities.items()}


def interval_or_set(line: dict[str, Any], name: str) -> Any:
    """Return what a line says of a target."""
    if "set" in line:
        return set(line["set"][name])
    lower, upper = line["lower"][name], line["upper"][name]
    return (-np.inf if lower is None else lower, np.inf if upper is None else upper)


@pytest.mark.parametrize("name", BOTH)
def test_each_target_has_the_intervals_and_contributions_of_a_model_of_its_own(tmp_path: Path, name: str) -> None:
    label, kind, ys = BOTH[name]
    path = config_in(tmp_path, "coverage = 0.8", label, kind, "explain = 1")
    for n in (150, N):
        written(tmp_path, [{"id": i} | x | y for i, (x, y) in enumerate(zip(XS[:n], ys, strict=False))])
        engine = engine_of(load_config(path))
        engine.run()
    first, *found = lines(tmp_path / "predictions.jsonl")
    assert first["explanation"] == {}
    assert [first[field] for field in ("lower", "upper", "set") if field in first] in ([{}, {}], [{}])
    make: Any = {"numbers": ConformalRegressor, "labels": ConformalClassifier}[name]
    wrappers, hits = {target: make(Echo(), coverage=0.8) for target in ys[0]}, dict.fromkeys(ys[0], 0)
    for x, line, y in zip(XS[1:], found, ys[1:], strict=False):
        PREDICTION.validate(line)
        for target, wrapper in wrappers.items():
            wrapper.model.prediction = line["prediction"][target]
            wrapper.model.probabilities = line.get("probabilities", {}).get(target)
            region = interval_or_set(line, target)
            assert region == (wrapper.predict_interval_one(x) if name == "numbers" else wrapper.predict_set_one(x))
            is_inside = y[target] in region if name == "labels" else region[0] <= y[target] <= region[1]
            hits[target] += is_inside
            wrapper.learn_one(x, y[target])
            assert len(line["explanation"][target]) == 1
    samples = [sample for family in EngineCollector(engine).collect() for sample in family.samples]
    told = {(one.name, one.labels.get("target")): one.value for one in samples}
    shares = {target: n / (N - 1) for target, n in hits.items()}
    assert {target: told["streamkernel_coverage_by_target", target] for target in hits} == pytest.approx(shares)
    assert told["streamkernel_coverage", None] == min(shares.values())
    assert all(abs(share - 0.8) < 0.05 for share in shares.values())
    figures, rows = status_of(engine)["targets"], dict(View(engine, "").rows())
    for target, value in values_by_target(engine.metric).items():
        assert figures[target]["since start"] == told["streamkernel_metric_by_target", target] == value
        assert figures[target]["coverage"] == told["streamkernel_coverage_recent_by_target", target]
        assert any(title.endswith(f" of {target}") and text == f"{value:,.4f}" for title, text in rows.items())
    size = "interval_width" if name == "numbers" else "set_labels"
    assert told[f"streamkernel_{size}_by_target", "slow" if name == "labels" else "days"] > 0.0
    _check_answer(engine, state_in(tmp_path), name)


def _check_answer(engine: Any, state: Any, name: str) -> None:
    """Check an answer of `/predict?explain=true`, and that the model of the checkpoint answers the same."""
    engine.parts.monitor.publish_model()
    answer = engine.publisher.newest.answer(XS[7], explained=True)
    Draft202012Validator(ANSWER).validate(answer)
    assert application.model_of(state, 1).answer(XS[7], explained=True) == answer
    model, signs = (
        engine.model,
        {target: -1.0 if answer["prediction"][target] is False else 1.0 for target in engine.model.targets},
    )
    expected = model.explain_one(XS[7], method="sampling")
    for target, own in answer["explanation"].items():
        assert own == pytest.approx({field: signs[target] * share for field, share in expected[target].items()})


def test_a_worker_judges_by_the_thresholds_of_the_round() -> None:
    run, judgements = CoverageByTarget(0.5, ["a", "b"]), []  # type: ignore[var-annotated]
    worker = RoundCoverage(0.5, {"a": 1.0, "b": 0.1}, judgements)
    for _ in range(2):
        worker.judge({}, {"a": 1.5, "b": 2.0}, ({"a": 1.0, "b": 1.0}, None, worker.threshold(None)))
    for judgement in judgements:
        run.add(None, judgement)
    by_target = run.snapshot().by_target
    assert [(own.since_start, own.width) for own in by_target.values()] == [(1.0, 2.0), (0.0, pytest.approx(0.2))]


@pytest.mark.parametrize(
    ("more", "options", "message"),
    [
        ("", {"label": '"price"'}, "label: expected a list of fields for KernelMultiTargetRegressor"),
        ("", {"label": '["price", "price"]'}, "label: expected different fields"),
        ("", {"label": "[]"}, "label: expected"),
        ('baseline = "LinearRegression"', {}, "baseline: expected none with several targets"),
        ('metric = "Accuracy"', {}, "metric: expected a metric for a regressor"),
        ('metric = "ROCAUC"', {"kind": "LabelClassifier"}, "metric: expected a metric of labels"),
        ('[[preprocessing]]\ntype = "LastTarget"', {}, "expected a step that reads no label with several targets"),
    ],
)
def test_options_for_one_target_are_refused_by_name(
    tmp_path: Path, more: str, options: dict[str, str], message: str
) -> None:
    written(tmp_path, [XS[0] | NUMBERS[0]])
    with pytest.raises(ConfigError, match=message.replace("[", r"\[")):
        load_config(config_in(tmp_path, more, **options)).check()


def test_a_model_of_one_target_has_one_label(tmp_path: Path) -> None:
    written(tmp_path, [XS[0] | NUMBERS[0]])
    path = config_in(tmp_path)
    path.write_text(path.read_text().replace("KernelMultiTargetRegressor", "KernelRegressor"))
    with pytest.raises(ConfigError, match="label: expected one field for KernelRegressor"):
        load_config(path).check()
