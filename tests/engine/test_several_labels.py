"""Runs with several labels: learning, output, refused configurations, and labels that arrive later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import metrics
from streams import content

from streamkernel import KernelMultiLabelClassifier, KernelMultiTargetRegressor
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.checkpoint.state_directory import read_newest
from streamkernel.engine.config.config import ConfigError, load_config
from streamkernel.engine.telemetry.description import checkpoint_rows
from streamkernel.engine.telemetry.quality import values_by_target

N = 300
GENERATOR = np.random.default_rng(4)
XS = [{"size": a, "age": b} for a, b in GENERATOR.random((N, 2)).tolist()]
NUMBERS = [{"price": 1000.0 * x["size"] * (1.5 - x["age"]), "days": 90.0 * x["age"] ** 2} for x in XS]
LABELS = [{"dear": y["price"] > 500.0, "slow": y["days"] > 30.0} for y in NUMBERS]


def config_in(folder: Path, more: str = "", label: str = '["price", "days"]', kind: str = "TargetRegressor") -> Path:
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


@pytest.mark.parametrize(
    ("label", "kind", "model", "ys"),
    [
        ('["price", "days"]', "TargetRegressor", KernelMultiTargetRegressor(max_features=64), NUMBERS),
        ('["dear", "slow"]', "LabelClassifier", KernelMultiLabelClassifier(max_features=64), LABELS),
    ],
)
def test_a_run_learns_and_predicts_all_labels(tmp_path: Path, label: str, kind: str, model: Any, ys: Any) -> None:
    """Run, and restart in the middle."""
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
    assert engine.outcomes == {"learned": N, "predicted": N, "dead_letter": 0, "pending": 0}
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


def test_labels_that_come_later_come_together(tmp_path: Path) -> None:
    model, records = KernelMultiTargetRegressor(max_features=64), []
    for i, x in enumerate(XS):
        records.append({"id": i} | x)
        if i >= 5:
            records.append({"id": i - 5} | NUMBERS[i - 5])
            model.learn_one(XS[i - 5], NUMBERS[i - 5])
    records.append({"id": N - 1, "price": 1.0})
    written(tmp_path, records)
    engine = engine_of(load_config(config_in(tmp_path, "delayed_labels = { key = 'id' }")))
    engine.run()
    assert engine.outcomes == {"learned": N - 5, "predicted": N, "dead_letter": 1, "pending": N}
    assert content(state_in(tmp_path)["model"]) == content(model)


@pytest.mark.parametrize(
    ("more", "options", "message"),
    [
        ("", {"label": '"price"'}, "label: expected a list of fields for KernelMultiTargetRegressor"),
        ("", {"label": '["price", "price"]'}, "label: expected different fields"),
        ("", {"label": "[]"}, "label: expected"),
        ('baseline = "LinearRegression"', {}, "baseline: expected none with several targets"),
        ('metric = "Accuracy"', {}, "metric: expected a metric for a regressor"),
        ('metric = "ROCAUC"', {"kind": "LabelClassifier"}, "metric: expected a metric of labels"),
        ("coverage = 0.9", {}, "coverage: expected a model that predicts one label or one number"),
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
