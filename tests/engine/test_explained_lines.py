"""Lines of predictions with their largest contributions, computed before the model learns the record."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from states import named
from streams import content

from streamkernel import KernelClassifier, KernelRegressor
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.checkpoint.state_directory import read_newest
from streamkernel.engine.config.config import ConfigError, load_config

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "schemas" / "prediction.schema.json"
PREDICTION = Draft202012Validator(json.loads(SCHEMA.read_text()))
N = 60
CONFIG = """
label = "y"
{more}
[source]
path = "events.jsonl"
[model]
type = "{model}"
{parameters}
[sink]
{sink}
[state]
directory = "state"
"""
SMALL = 'max_features = 64\nlearner = "dsg"'


def examples(labels: Any, width: int = 4) -> list[tuple[dict[str, float], Any]]:
    rng, found = random.Random(3), []
    for _ in range(N):
        x = {f"x{i}": rng.gauss(0.0, 1.0) for i in range(width)}
        found.append((x, labels(x["x0"] - 2.0 * x["x1"])))
    return found


def prepared(folder: Path, records: list[dict[str, Any]], **parts: str) -> Path:
    named(folder / "state")
    (folder / "events.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    sink = 'predictions = "out.jsonl"\nexplain = 3'
    given = {"more": "", "model": "KernelRegressor", "parameters": SMALL, "sink": sink}
    (folder / "run.toml").write_text(CONFIG.format(**(given | parts)))
    return folder / "run.toml"


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


LABELS = {
    "numbers": (KernelRegressor, lambda z: z),
    "two labels": (KernelClassifier, lambda z: z > 0.0),
    "three labels": (KernelClassifier, lambda z: "abc"[(z > -1.0) + (z > 1.0)]),
}


@pytest.mark.parametrize("later", [False, True], ids=["labels at once", "labels later"])
@pytest.mark.parametrize("name", LABELS)
def test_each_line_has_the_largest_contributions_to_its_prediction(tmp_path: Path, name: str, later: bool) -> None:
    kind, labels = LABELS[name]
    rows = examples(labels)
    records = [x | {"y": y} for x, y in rows]
    if later:
        records = list(
            itertools.chain.from_iterable([{"id": i} | x, {"id": i, "y": y}] for i, (x, y) in enumerate(rows))
        )
    more = 'coverage = 0.8\n[delayed_labels]\nkey = "id"' if later else ""
    engine_of(load_config(prepared(tmp_path, records, model=kind.__name__, more=more))).run()
    model: Any = kind(max_features=64, learner="dsg")
    for (x, y), line in zip(rows, lines(tmp_path), strict=True):
        PREDICTION.validate(line)
        prediction = model.predict_one(x)
        label = {"label": prediction} if kind is KernelClassifier else {}
        found = dict.fromkeys(x, 0.0)
        if prediction is not None:
            found = model.explain_one(x, method="sampling", n_orders=2, **label)
        largest = sorted(found, key=lambda name: -abs(found[name]))[:3]
        assert list(line["explanation"].items()) == [(name, found[name]) for name in largest]
        assert ("lower" in line or "set" in line) == later
        model.learn_one(x, y)
    saved = read_newest(tmp_path / "state")
    assert saved is not None
    assert content(saved["model"]) == content(model)


def test_a_record_of_too_many_inputs_has_no_explanation(tmp_path: Path) -> None:
    records = [{f"x{i}": 1.0 for i in range(n)} | {"y": 1.0} for n in (200, 201)]
    engine_of(load_config(prepared(tmp_path, records))).run()
    assert [line["explanation"] is None for line in lines(tmp_path)] == [False, True]
    PREDICTION.validate(lines(tmp_path)[1])


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (
            {"model": "GaussianProcessRegressor", "parameters": ""},
            "sink.explain: expected a model with explain_one, got GaussianProcessRegressor",
        ),
        ({"sink": "explain = 3"}, "sink.explain: expected predictions or predictions_topic to explain, got neither"),
        ({"sink": 'predictions = "o"\nexplain = 201'}, "sink.explain: expected an integer from 0 to 200, got 201"),
        ({"sink": 'predictions = "o"\nexplain = -1'}, "sink.explain: expected an integer from 0 to 200, got -1"),
        ({"sink": 'predictions = "o"\nexplain = true'}, "sink.explain: expected an integer from 0 to 200, got true"),
    ],
)
def test_configurations_without_explanations_are_refused(tmp_path: Path, parts: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(prepared(tmp_path, [], **parts)).check()
    assert reason in str(caught.value)
