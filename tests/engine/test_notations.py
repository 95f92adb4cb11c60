"""Number texts of points and commas have one meaning in a field, a declared number and a label."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from engine.test_types_of_fields import run

from streamkernel import Fields
from streamkernel.engine import learned_types
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config.config import ConfigError, load_config
from streamkernel.engine.examples import Examples

NEWTON = 'type = "KernelClassifier"\nmax_features = 256'
REGRESSOR = 'type = "KernelRegressor"\nlearner = "dsg"\nmax_features = 64'


def german(value: float, digits: int = 2) -> str:
    return f"{value:,.{digits}f}".translate(str.maketrans(",.", ".,"))


FORMS: dict[str, Callable[[int, float], Any]] = {
    "German": lambda i, v: german(v) if i % 2 else german(round(v), 0),
    "US": lambda i, v: f"{v:,.2f}" if i % 2 else f"{round(v):,}",
    "US integers": lambda i, v: f"{round(v):,}",
    "US integers, small ones as numbers": lambda i, v: f"{round(v):,}" if v >= 1000 else round(v),
    "German with three digits": lambda i, v: german(v / 1000, 3),
}

ALL_FORMS = FORMS | {"German integers": lambda i, v: german(v, 0)}
"""With one that may be codes in a field that is not declared."""


def scale(form: str) -> float:
    return 1000.0 if "three" in form else 1.0


def amounts(n: int = 600) -> list[float]:
    rng = random.Random(7)
    return [abs(rng.gauss(0, 1)) * 2000 for _ in range(n)]


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the log lines about fields."""
    found: list[str] = []
    monkeypatch.setattr(learned_types, "log", SimpleNamespace(warning=found.append))
    return found


@pytest.mark.parametrize("tables", ["", '[fields]\np = "number"'], ids=["learned", "declared"])
@pytest.mark.parametrize("form", FORMS)
def test_a_field_has_one_notation_whether_it_is_declared_or_not(tmp_path: Path, form: str, tables: str) -> None:
    rng = random.Random(2)
    records = [{"p": FORMS[form](i, v), "a": rng.random(), "y": int(v > 1500)} for i, v in enumerate(amounts())]
    predictions, dead = run(tmp_path, records, model=NEWTON, tables=tables)
    assert dead == []
    assert sum(p["prediction"] == p["label"] for p in predictions[200:]) > 0.97 * 400


@pytest.mark.parametrize(
    ("kind", "form"), [("input", form) for form in FORMS] + [(k, f) for k in ("declared", "label") for f in ALL_FORMS]
)
def test_each_value_is_read_as_it_was_written(form: str, kind: str) -> None:
    fields = Fields({"p": "number"}) if kind == "declared" else None
    examples = Examples("p" if kind == "label" else "y", numeric_label=kind == "label", fields=fields)
    wrong = []
    for i, v in enumerate(amounts()):
        record = {"p": ALL_FORMS[form](i, v), "a": 0.5} | ({} if kind == "label" else {"y": "yes"})
        x, y = examples.take(record, is_labelled=True)
        value = y if kind == "label" else x["p"]
        if isinstance(value, str) or abs(value * scale(form) - v) > 0.51:
            wrong.append(i)
    assert all(i < 20 for i in wrong), wrong
    assert len(wrong) < 20


def test_one_value_in_another_notation_changes_no_other() -> None:
    examples = Examples("y", numeric_label=True)
    for i in range(300):
        y = "9,5" if i == 100 else f"{1000 + i:,}"
        read = examples.take({"a": 1.0, "y": y}, is_labelled=True)[1]
        assert read == (9.5 if i == 100 else 1000 + i)


def test_thousandths_of_whole_numbers_are_no_thousands() -> None:
    examples = Examples("y", numeric_label=True)
    for i in range(100):
        assert examples.take({"a": 1.0, "y": f"{i % 7 + 1}.000"}, is_labelled=True)[1] == i % 7 + 1


def test_a_notation_that_changes_for_good_is_followed() -> None:
    examples = Examples("y", numeric_label=True)
    for i in range(600):
        y = examples.take({"a": 1.0, "y": f"{i}.5" if i < 100 else f"{i},5"}, is_labelled=True)[1]
        assert y == i + 0.5
    assert examples.take({"a": 1.0, "y": "1.234"}, is_labelled=True)[1] == 1234


def test_what_may_mean_another_number_is_said_once_with_the_way_to_declare_it(tmp_path: Path, notes: list[str]) -> None:
    records = [{"p": f"{1000 + i:,}", "a": i % 7, "y": i % 2} for i in range(100)]
    run(tmp_path, records)
    (note,) = [note for note in notes if "declare" in note]
    assert note == (
        'field "p": texts such as 1,234 are read as 1234; for 1.234, '
        'declare [fields] p = { type = "number", decimal = "," }'
    )
    notes.clear()
    for sign, value in ((",", 1.234), (".", 1234.0)):
        folder = tmp_path / f"{value}"
        folder.mkdir()
        run(folder, records, tables=f'[fields]\np = {{ type = "number", decimal = "{sign}" }}')
        engine = engine_of(load_config(folder / "run.toml"))
        assert engine.parts.processor.examples.read({"p": "1,234", "y": 1})[0] == {"p": value}
    assert notes == []


def test_a_label_may_be_declared(tmp_path: Path, notes: list[str]) -> None:
    records = [{"a": i % 7, "y": f"{1000 + i:,}"} for i in range(60)]
    predictions, dead = run(
        tmp_path, records, model=REGRESSOR, tables='[fields]\ny = { type = "number", decimal = "," }'
    )
    assert dead == []
    assert [p["label"] for p in predictions] == [(1000 + i) / 1000 for i in range(60)]
    (tmp_path / "other").mkdir()
    predictions, dead = run(tmp_path / "other", records, model=REGRESSOR)
    assert [p["label"] for p in predictions] == [1000 + i for i in range(60)]
    assert any('declare [fields] y = { type = "number", decimal = "," }' in note for note in notes)
    with pytest.raises(ConfigError, match=r'fields\.y: expected a number or a category as label, got "text"'):
        run(tmp_path, [], model=REGRESSOR, tables='[fields]\ny = "text"')


def test_leading_zeros_are_no_code_where_only_numbers_are_taken(tmp_path: Path) -> None:
    predictions, dead = run(tmp_path, [{"a": i, "y": f"00{i}"} for i in range(30)], model=REGRESSOR)
    assert (dead, [p["label"] for p in predictions]) == ([], list(range(30)))


def test_cells_of_csv_that_were_read_with_a_point_are_named(tmp_path: Path, notes: list[str]) -> None:
    cells = [german(v) if i % 2 else german(round(v), 0) for i, v in enumerate(amounts(200))]
    (tmp_path / "e.csv").write_text("p;y\n" + "".join(f"{cell};{i % 2}\n" for i, cell in enumerate(cells)))
    config = tmp_path / "run.toml"
    text = f'label = "y"\n[source]\npath = "e.csv"\ndelimiter = ";"\n[model]\n{NEWTON}\n'
    for tables in ("", '[fields]\np = "number"\n'):
        notes.clear()
        config.write_text(text + tables)
        engine_of(load_config(config)).run()
        assert sum("texts have a decimal comma, numbers a decimal point" in note for note in notes) == 1


def test_cells_of_csv_have_the_decimal_comma_that_is_declared(tmp_path: Path, notes: list[str]) -> None:
    cells = [(v, german(v) if i % 2 else german(round(v), 0)) for i, v in enumerate(amounts())]
    (tmp_path / "e.csv").write_text("p;y\n" + "".join(f"{cell};{'ab'[v > 1500]}\n" for v, cell in cells))
    config = tmp_path / "run.toml"
    config.write_text(
        'label = "y"\n[fields]\np = { type = "number", decimal = "," }\n[source]\npath = "e.csv"\ndelimiter = ";"\n'
        f'[model]\n{NEWTON}\n[sink]\npredictions = "p.jsonl"\n'
    )
    engine_of(load_config(config)).run()
    predictions = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert sum(p["prediction"] == p["label"] for p in predictions[200:]) > 0.97 * 400
    assert notes == []


@pytest.mark.parametrize("least", [0, 1000])
def test_a_csv_file_of_integers_with_thousands_apart_is_learned(tmp_path: Path, least: int) -> None:
    rng, config = random.Random(4), tmp_path / "run.toml"
    rows = [f'"{least + round(v):,}",{rng.gauss(0, 1):.3f},{int(v > 1500)}\n' for v in amounts()]
    (tmp_path / "e.csv").write_text(f"p,b,y\n{''.join(rows)}")
    config.write_text(f'label = "y"\n[source]\npath = "e.csv"\n[model]\n{NEWTON}\n[sink]\npredictions = "p.jsonl"\n')
    engine = engine_of(load_config(config))
    engine.run()
    predictions = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert len(predictions) == 600
    assert sum(p["prediction"] == p["label"] for p in predictions[200:]) > 0.97 * 400


def test_notations_continue_from_a_checkpoint(tmp_path: Path) -> None:
    model = 'type = "KernelRegressor"\nlearner = "dsg"\nmax_features = 64'
    records = [{"p": german(v), "q": german(v), "y": german(v)} for v in amounts(50)]
    run(tmp_path, records, model=model, tables='[fields]\nq = "number"')
    predictions, dead = run(
        tmp_path, [{"p": "1.234", "q": "1.234", "y": "1.234"}], model=model, tables='[fields]\nq = "number"'
    )
    assert (predictions[-1]["label"], dead) == (1234.0, [])
    examples = engine_of(load_config(tmp_path / "run.toml"))
    examples.run()
    x, y = examples.parts.processor.examples.read({"p": "1.234", "q": "1.234", "y": "1.234"})
    assert (x, y) == ({"p": 1234.0, "q": 1234.0}, 1234.0)
    assert json.dumps(examples.parts.processor.examples.state())
