"""River's scaler and ours in the pipeline of a run: no missing value and no text spoils what they have learned."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from river import stats

from streamkernel import StandardScaler
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config.config import load_config
from streamkernel.engine.engine import Engine
from streamkernel.engine.fields import OnFields
from streamkernel.engine.shared_model import merge_steps

GONE = object()
ODD: dict[int, Any] = {3: None, 4: float("nan"), 6: "NA", 7: -200, 8: GONE}
ODD |= {100 + i: value for i, value in ODD.items()} | {120: "-200", 130: "oops"}
"""Values of a field of numbers by record; the last one is a dead letter."""


def records(odd: dict[int, Any]) -> list[dict[str, Any]]:
    rng, rows = random.Random(1), []
    for i in range(300):
        row: dict[str, Any] = {"i": i, "a": rng.gauss(100.0, 5.0), "b": rng.gauss(0.0, 1.0)}
        row["y"] = (row["a"] - 100.0) / 5.0 + row["b"]
        row |= {"b": odd[i]} if i in odd else {}
        rows.append({name: value for name, value in row.items() if value is not GONE})
    return rows


def ran(folder: Path, rows: list[dict[str, Any]], kind: str, on: str) -> tuple[Engine, list[dict[str, Any]]]:
    """Run the stream, and return the engine and its predictions."""
    folder.mkdir()
    (folder / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "run.toml").write_text(
        'label = "y"\nignore = ["i"]\nmissing = ["NA", -200]\n[source]\npath = "events.jsonl"\n'
        f'[[preprocessing]]\ntype = "{kind}"\n{on}\n[model]\ntype = "KernelRegressor"\nlearner = "dsg"\n'
        'max_features = 64\n[sink]\npredictions = "out.jsonl"\n[state]\ndirectory = "state"\n'
    )
    engine = engine_of(load_config(folder / "run.toml"))
    engine.run()
    return engine, [json.loads(line)["prediction"] for line in (folder / "out.jsonl").read_text().splitlines()]


def scaler_of(engine: Engine) -> Any:
    step = next(iter(engine.model.steps.values()))
    return step.transformer if isinstance(step, OnFields) else step


@pytest.mark.parametrize("kind", ["StandardScaler", "streamkernel.StandardScaler"])
@pytest.mark.parametrize("on", ["", 'on = "all"', 'on = ["a", "b"]'])
def test_odd_values_change_nothing(tmp_path: Path, kind: str, on: str) -> None:
    """Compare with a stream that lacks them, and with the statistics of the others."""
    odd, predictions = ran(tmp_path / "odd", records(ODD), kind, on)
    rows = records(dict.fromkeys(ODD, GONE))
    del rows[130]
    without, expected = ran(tmp_path / "without", rows, kind, on)
    assert (odd.outcomes["dead_letter"], odd.outcomes["learned"]) == (1, 299)
    assert without.outcomes["dead_letter"] == 0
    assert predictions == expected
    assert odd.quality()["MAE"] < 0.4
    mean, variance = stats.Mean(), stats.Var(ddof=0)
    for row in rows:
        if "b" in row:
            mean.update(row["b"])
            variance.update(row["b"])
    assert scaler_of(odd).means["b"] == pytest.approx(mean.get())
    assert scaler_of(odd).vars["b"] == pytest.approx(variance.get())


@pytest.mark.parametrize("kind", ["StandardScaler", "streamkernel.StandardScaler"])
@pytest.mark.parametrize("on", ["", 'on = "all"', 'on = ["a", "b"]'])
def test_a_text_before_a_field_has_a_type_costs_at_most_its_record(tmp_path: Path, kind: str, on: str) -> None:
    engine, _ = ran(tmp_path / "run", records({5: "oops"}), kind, on)
    is_passed = kind.startswith("streamkernel") or not on
    assert engine.outcomes["dead_letter"] == (0 if is_passed else 1)
    rows = [row for i, row in enumerate(records({})) if i != 5]
    assert scaler_of(engine).counts["b"] == len(rows)
    assert scaler_of(engine).means["b"] == pytest.approx(sum(row["b"] for row in rows) / len(rows))
    assert engine.quality()["MAE"] < 0.4


def test_parts_of_our_scaler_merge() -> None:
    whole, parts = StandardScaler(), [StandardScaler(), StandardScaler()]
    rows = [{"a": float(i % 7), "b": None if i % 2 else "red"} for i in range(40)]
    for i, row in enumerate(rows):
        for scaler in (whole, parts[i % 2]):
            scaler.learn_one(row)
    merged: Any = merge_steps(StandardScaler(), parts)
    assert merged.counts == whole.counts == {"a": 40}
    assert merged.means == pytest.approx(whole.means)
    assert merged.vars == pytest.approx(whole.vars)
