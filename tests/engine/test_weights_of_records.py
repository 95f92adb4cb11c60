"""A field with the weights of records: a run learns the same model as the library, with and without delayed labels."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from streams import content, examples, nested, weights

from streamkernel import KernelClassifier
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.checkpoint.state_directory import read_newest
from streamkernel.engine.config.config import ConfigError, load_config
from streamkernel.estimators.internals import learner_of

N = 300
XS, LABELS = examples(N)
W = weights(N).tolist()
MODEL = 'type = "KernelClassifier"\nmax_features = 64\nlearner = { type = "Newton", features_per_seed = 16 }'


def config_in(folder: Path, more: str = "", model: str = MODEL) -> Path:
    path = folder / "run.toml"
    path.write_text(
        f"""label = "y"
weight = "w"
ignore = ["id"]
{more}
[source]
path = "events.jsonl"
[state]
directory = "state"
[model]
{model}
"""
    )
    return path


def written(folder: Path, records: list[dict[str, Any]]) -> None:
    (folder / "events.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def learned(rows: list[tuple[Any, Any, float]]) -> KernelClassifier:
    model = KernelClassifier(**nested(max_features=64, features_per_seed=16))
    for x, y, w in rows:
        if w > 0.0:
            model.learn_one(x, y, w)
    return model


def model_in(folder: Path) -> Any:
    saved = read_newest(folder / "state")
    assert saved is not None
    return saved["model"]


def test_a_run_learns_with_the_weights_of_a_field(tmp_path: Path) -> None:
    rows = [(x, y, 0.0 if i % 9 == 4 else w) for i, (x, y, w) in enumerate(zip(XS, LABELS, W, strict=True))]
    written(tmp_path, [{"id": i} | x | {"y": y, "w": w} for i, (x, y, w) in enumerate(rows)])
    engine = engine_of(load_config(config_in(tmp_path)))
    engine.run()
    assert engine.outcomes == {"learned": N, "predicted": N, "dead_letter": 0, "pending": 0, "passed_over": 0}
    assert content(model_in(tmp_path)) == content(learned(rows))


def test_the_weight_of_pending_features_is_kept(tmp_path: Path) -> None:
    """The weights continue after a stop: each run reads some records."""
    records: list[dict[str, Any]] = []
    for i, (x, w) in enumerate(zip(XS, W, strict=True)):
        records.append({"id": i} | x | {"w": w})
        if i >= 7:
            records.append({"id": i - 7, "y": LABELS[i - 7]})
    written(tmp_path, records)
    path = config_in(tmp_path, '[delayed_labels]\nkey = "id"')
    path.write_text(path.read_text().replace('ignore = ["id"]\n', ""))
    for events in (150, 300, 10**6):
        calls = itertools.count()
        engine = engine_of(load_config(path))
        engine.run(stopping=lambda calls=calls, events=events: next(calls) >= events)
    assert engine.outcomes["learned"] == N - 7
    assert content(model_in(tmp_path)) == content(learned(list(zip(XS, LABELS, W, strict=True))[: N - 7]))


@pytest.mark.parametrize(
    ("weight", "reason"),
    [
        ({}, 'Expected a weight, got no such field - at field "w"'),
        ({"w": None}, 'Expected a weight, got null - at field "w"'),
        ({"w": True}, 'Expected a weight, got bool True - at field "w"'),
        ({"w": "2"}, "Expected a weight, got str '2' - at field \"w\""),
        ({"w": -0.5}, 'Expected a weight from 0 to 1e+09, got -0.5 - at field "w"'),
    ],
)
def test_a_record_without_a_usable_weight_is_a_dead_letter(tmp_path: Path, weight: Any, reason: str) -> None:
    written(tmp_path, [XS[0] | {"y": "no", "w": 1.0}, XS[1] | {"y": "yes"} | weight])
    engine = engine_of(load_config(config_in(tmp_path)))
    engine.run()
    assert engine.outcomes["dead_letter"] == 1
    (letter,) = (tmp_path / "state" / "dead_letters.jsonl").read_text().splitlines()
    assert json.loads(letter)["reason"] == reason


@pytest.mark.parametrize(
    ("field", "model", "reason"),
    [
        ("y", MODEL, 'weight: expected a field other than the label, got "y"'),
        ("id", MODEL, 'weight: expected a field other than the fields of ignore, got "id"'),
        ("w", MODEL + '\nclass_weight = "balance"', 'expected a table or "balanced", got "balance"'),
        ("w", MODEL + "\nclass_weight = { yes = -1 }", "expected a weight from 0 to"),
    ],
)
def test_models_without_weights_are_rejected(tmp_path: Path, field: str, model: str, reason: str) -> None:
    written(tmp_path, [])
    path = config_in(tmp_path, model=model)
    path.write_text(path.read_text().replace('weight = "w"', f'weight = "{field}"'))
    with pytest.raises(ConfigError) as caught:
        load_config(path).check()
    assert reason in str(caught.value)


def test_a_table_of_class_weights_names_labels_of_any_type(tmp_path: Path) -> None:
    written(tmp_path, [x | {"y": y == "yes", "w": w} for x, y, w in zip(XS, LABELS, W, strict=True)])
    engine = engine_of(load_config(config_in(tmp_path, model=MODEL + "\nclass_weight = { true = 5.0 }")))
    engine.run()
    total = sum(w * (5.0 if y == "yes" else 1.0) for y, w in zip(LABELS, W, strict=True))
    assert learner_of(model_in(tmp_path)).numbers["weight"] == pytest.approx(total)
