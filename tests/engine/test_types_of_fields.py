"""Types of fields: learned from values, so that no single value decides, and declared in the configuration."""

import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamkernel import tensor_file
from streamkernel.engine import learned_types
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config.config import ConfigError, load_config
from streamkernel.engine.examples import Examples
from streamkernel.engine.learned_types import WINDOW, LearnedTypes
from streamkernel.engine.serving import application
from streamkernel.errors import InputError
from tests.test_cli import call

DSG = 'type = "KernelClassifier"\nlearner = "dsg"\nmax_features = 64'
NEWTON = 'type = "KernelClassifier"\nmax_features = 64'


def run(
    folder: Path, records: Iterable[dict[str, Any]], top: str = "", model: str = DSG, tables: str = "", name: str = "e"
) -> tuple[list[Any], list[Any]]:
    """Append records to a file, run the stream, and return all predictions and all dead letters of the folder."""
    with (folder / f"{name}.jsonl").open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    (folder / "run.toml").write_text(
        f'label = "y"\n{top}\n[source]\npath = "{name}.jsonl"\n[model]\n{model}\n[sink]\npredictions = "p.jsonl"\n'
        f'dead_letters = "d.jsonl"\n[state]\ndirectory = "state"\n{tables}\n'
    )
    engine_of(load_config(folder / "run.toml")).run()
    return lines(folder / "p.jsonl"), lines(folder / "d.jsonl")


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the log lines about types."""
    found: list[str] = []
    monkeypatch.setattr(learned_types, "log", SimpleNamespace(warning=found.append))
    return found


def planned(n: int, at: int | None = None, seed: int = 1) -> list[dict[str, Any]]:
    """Return records with a field of texts, of which one has a number."""
    rng = random.Random(seed)
    plans = ("basic", "pro")
    return [{"a": rng.gauss(0, 1), "plan": 3 if i == at else plans[i % 2], "y": i % 2} for i in range(n)]


@pytest.mark.parametrize("model", [DSG, NEWTON], ids=["dsg", "newton"])
@pytest.mark.parametrize("at", [0, 5, 150], ids=["first", "young", "settled"])
def test_one_number_in_a_field_of_texts_costs_nothing_also_after_a_restart(tmp_path: Path, model: str, at: int) -> None:
    predictions, dead = run(tmp_path, planned(300, at), model=model)
    assert (len(predictions), dead) == (300, [])
    predictions, dead = run(tmp_path, planned(50), model=model)
    assert (len(predictions), dead) == (350, [])
    assert all(p["prediction"] == p["label"] for p in predictions[250:])


def test_one_text_in_a_field_of_numbers_is_the_only_dead_letter(tmp_path: Path) -> None:
    records = [{"a": i % 7, "y": i % 2} for i in range(300)]
    records[150]["a"] = "seven"  # type: ignore[assignment]
    predictions, dead = run(tmp_path, records)
    assert len(predictions) == 299
    (letter,) = dead
    reason = "Expected a number as before, got the string 'seven' - at field \"a\""
    assert letter["reason"] == f'{reason}; if it means that there is no value, declare missing = ["seven"]'


@pytest.mark.parametrize("model", [DSG, NEWTON], ids=["dsg", "newton"])
@pytest.mark.parametrize("back", [False, True])
def test_a_field_that_changes_for_good_is_taken_again_soon(tmp_path: Path, model: str, back: bool) -> None:
    before = [{"a": i % 7, "y": i % 2} for i in range(300)]
    after = [{"a": ("even", "odd")[i % 2], "y": i % 2} for i in range(300)]
    records = [*after, *before] if back else [*before, *after]
    predictions, dead = run(tmp_path, records, model=model)
    assert len(dead) <= 16  # of 300 numbers, 5 % are 16 texts
    assert len(predictions) + len(dead) == 600
    assert all("odd" not in letter["raw"] for letter in dead[16:])


def test_codes_of_which_most_look_like_numbers_are_taken(tmp_path: Path, notes: list[str]) -> None:
    icd = ["250.0", "V45.8", "401.9", "E849", "V10.3", "276.1"]
    values: list[Any] = [float(code) if code[0].isdigit() else code for code in icd]
    predictions, dead = run(tmp_path, [{"a": i % 7, "icd": values[i % 6], "y": i % 2} for i in range(200)])
    assert (len(predictions), dead) == (200, [])
    assert notes == ['field "icd": looks like codes; declare it: [fields] icd = "category"']


def test_a_learned_type_is_in_the_checkpoint_and_the_same_for_batches(tmp_path: Path) -> None:
    records = [{"a": i % 7, "b": i % 3 if i % 50 else "x", "y": i % 2} for i in range(3000)]
    run(tmp_path, records)
    alone = LearnedTypes()
    for record in records:
        alone.count(record, ["y"])
    engine = engine_of(load_config(tmp_path / "run.toml"))
    engine.run()
    types = engine.parts.processor.examples.types
    assert types.state() == alone.state()
    assert sum(types.state()["a"]) <= WINDOW


@pytest.mark.parametrize("model", [DSG, NEWTON], ids=["dsg", "newton"])
def test_a_restart_changes_no_bit_of_a_mixed_field(tmp_path: Path, model: str) -> None:
    rng = random.Random(3)
    records = [{"a": rng.random(), "b": i % 5 if i % 4 else "none", "y": i % 2} for i in range(400)]
    for parts in ([400], [13, 200, 187]):
        folder = tmp_path / str(len(parts))
        folder.mkdir()
        done = 0
        for n in parts:
            predictions, dead = run(folder, records[done : done + n], model=model)
            done += n
        assert (len(predictions), dead) == (400, [])
    newest = [sorted((tmp_path / part / "state").glob("*.safetensors"))[-1] for part in "13"]
    once, thrice = (
        {name: t.tobytes() for name, t in tensor_file.read(path, "checkpoint")[1].items()} for path in newest
    )
    assert {name for name in once if once[name] != thrice[name]} <= {"history"}


@pytest.mark.parametrize("n", [1, 19, 512, 2048, 2049, 10_000])
def test_numbers_count_alike_together_and_alone(n: int) -> None:
    one, many = LearnedTypes(), LearnedTypes()
    for types in (one, many):
        for _ in range(1000):
            types.count({"a": "text"})
    for _ in range(n):
        one.count({"a": 1.0, "b": 2})
    many.count_numbers(["a", "b"], n)
    assert one.state() == many.state()
    assert [one.type_of(name) for name in "ab"] == [many.type_of(name) for name in "ab"]


def test_an_ignored_field_refuses_nothing(tmp_path: Path) -> None:
    odd: list[Any] = [float("nan"), float("inf"), 10**120, [1, 2], "text", 3, None, True]
    examples = Examples("y", ["commit"], numeric_label=False)
    for value in odd:
        record = {"a": 1.0, "commit": value, "y": True}
        examples.count(record)
        assert examples.split(record) == ({"a": 1.0}, True)
        assert examples.split_plain([record]) == ([{"a": 1.0}], [True])
    predictions, dead = run(
        tmp_path, [{"a": i % 7, "commit": odd[3 + i % 5], "y": i % 2} for i in range(60)], top='ignore = ["commit"]'
    )
    assert (len(predictions), dead) == (60, [])


def missing_values() -> list[Any]:
    from decimal import Decimal

    import numpy as np
    import pandas as pd

    return [None, float("nan"), np.float32("nan"), Decimal("NaN"), pd.NA, pd.NaT, np.datetime64("NaT")]


@pytest.mark.parametrize("value", missing_values(), ids=repr)
def test_all_that_is_missing_is_missing_and_no_label(value: Any) -> None:
    examples = Examples("y", numeric_label=False)
    record = {"a": 1.0, "b": value, "y": value}
    examples.count(record)
    assert examples.read(record) == ({"a": 1.0}, None)
    assert "b" not in examples.types.counts


def of_texts(write: Callable[[float], Any], n: int = 600) -> list[dict[str, Any]]:
    rng = random.Random(0)
    pairs = [(rng.gauss(0, 1), rng.gauss(0, 1)) for _ in range(n)]
    return [{"a": write(a), "b": write(b), "y": int(a * b > 0)} for a, b in pairs]


FORMS: dict[str, Callable[[float], Any]] = {
    "point": lambda v: f"{v:.4f}",
    "comma": lambda v: f"{v:.4f}".replace(".", ","),
    "percent": lambda v: f"{v:.2f} %",
    "thousands": lambda v: f"{1e4 * v:,.2f}",
    "some": lambda v: f"{v:.4f}" if v > 0.5 else v,
}


@pytest.mark.parametrize("form", FORMS)
def test_numbers_that_are_written_as_text_are_numbers(tmp_path: Path, form: str, notes: list[str]) -> None:
    for name, write in (("numbers", float), ("texts", FORMS[form])):
        (tmp_path / name).mkdir()
        predictions, dead = run(tmp_path / name, of_texts(write), model='type = "KernelClassifier"')
        assert dead == []
        right = sum(p["prediction"] == p["label"] for p in predictions[200:]) / 400
        assert right > 0.9, name
    assert notes == [f'field "{name}": texts are read as numbers' for name in "ab"]


def test_texts_of_digits_are_numbers_only_where_all_numbers_are_texts() -> None:
    examples = Examples("y", numeric_label=False)
    assert examples.read({"a": "12", "b": "0.5", "y": "yes"})[0] == {"a": 12.0, "b": 0.5}
    assert examples.read({"a": "12", "b": 0.5, "y": "yes"})[0] == {"a": "12", "b": 0.5}
    assert examples.read({"a": "012", "b": "1,234", "y": "yes"})[0] == {"a": "012", "b": "1,234"}
    examples.count({"b": "0,5"})
    assert examples.read({"b": "1,234", "y": "yes"})[0] == {"b": 1.234}


def test_a_regressor_reads_labels_that_are_written_as_text(tmp_path: Path) -> None:
    records = [{"a": f"{i % 7}", "b": f"{i % 5}.5", "y": f"{i % 7},25"} for i in range(100)]
    model = 'type = "KernelRegressor"\nlearner = "dsg"\nmax_features = 64'
    predictions, dead = run(tmp_path, [*records, {"a": "1", "y": "much"}], model=model)
    assert [p["label"] for p in predictions] == [i % 7 + 0.25 for i in range(100)]
    assert [letter["reason"] for letter in dead] == [
        "Expected a number as label, got the string 'much' - at field \"y\""
    ]


def test_declared_types_decide(tmp_path: Path) -> None:
    types = """
        [fields]
        icd = "category"
        age = "number"
        id = "identifier"
        note = "text"
        at = { type = "time", unit = "ms" }
        temperature = { type = "number", missing = [-200] }
        v = "vector"
    """
    records: list[dict[str, Any]] = [
        {"icd": (250.0, "V45")[i % 2], "age": ("31", 42)[i % 2], "id": i, "note": "A stream"}
        | {"at": 1_700_000_000_000 + i, "temperature": (-200, 21.5)[i % 2], "v": [i % 7, i % 3], "x": "NA", "y": i % 2}
        for i in range(100)
    ]
    records += [records[0] | {"age": "old"}, records[0] | {"v": [1]}, records[0] | {"at": "noon"}]
    predictions, dead = run(tmp_path, records, top='missing = ["NA"]', tables=types)
    assert len(predictions) == 100
    assert [letter["reason"] for letter in dead] == [
        "Expected a number as declared, got str 'old' - at field \"age\"; if it means that there is no value, declare "
        'missing = ["old"]',
        'Expected a vector of 2 numbers, got 1 - at field "v"',
        "Expected a time in milliseconds or ISO 8601, got 'noon' - at field \"at\"; if it means that there is no "
        'value, declare missing = ["noon"]',
    ]
    engine = engine_of(load_config(tmp_path / "run.toml"))
    engine.run()
    x, _ = engine.parts.processor.examples.read(records[0])
    words = {"note=a": 1.0, "note=stream": 1.0}
    assert x == {"icd": "250", "age": 31.0, **words, "at": 1_700_000_000.0, "v.0": 0.0, "v.1": 0.0}
    assert engine.parts.processor.examples.types.state() == {}


@pytest.mark.parametrize(("top", "types"), [('ignore = ["user"]', {}), ("", {"user": "ignore"})])
def test_an_ignored_object_is_ignored_by_the_check_the_log_and_the_model(
    tmp_path: Path, notes: list[str], top: str, types: dict[str, str]
) -> None:
    user = {"icd": "V45", "tags": ["x"], "left": 1}
    records = [
        {"a": i % 7, "users": 1, "user": user | ({"icd": 250.0} if i % 2 else {}), "w": 1, "w.b": i % 2, "y": i % 2}
        for i in range(100)
    ]
    tables = f"[fields]\n{''.join(f'{name} = {json.dumps(kind)}' for name, kind in types.items())}"
    predictions, dead = run(tmp_path, records, top=f'{top}\nweight = "w"', tables=tables)
    assert (len(predictions), dead, notes) == (100, [], [])
    processor = engine_of(load_config(tmp_path / "run.toml")).parts.processor
    x, y = processor.examples.split({"a": 1, "w": 1, "w.b": 3, "user": 1, "user.icd": "V45", "user.b.c": 2, "y": 1})
    assert (x, y) == ({"a": 1, "w.b": 3}, 1)
    assert processor.examples.types.state().keys() == {"a", "users", "w.b"}
    checked = call("run", "--check", tmp_path / "run.toml").stdout
    assert "icd" not in checked or "field user.icd: ignore, as declared" in checked


@pytest.mark.parametrize("ignored", ['ignore = ["user"]\n[fields]', '[fields]\nuser = "ignore"\n"user.age" = "number"'])
def test_a_field_inside_an_ignored_object_may_be_declared_or_be_the_label(tmp_path: Path, ignored: str) -> None:
    records = [{"a": i % 3, "user": {"age": str(i % 2), "town": "Ulm", "left": i % 2}} for i in range(50)]
    (tmp_path / "e.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "run.toml").write_text(f'label = "user.left"\n{ignored}\n[source]\npath = "e.jsonl"\n[model]\n{DSG}\n')
    engine = engine_of(load_config(tmp_path / "run.toml"))
    engine.run()
    assert engine.outcomes["learned"] == 50
    declared = {"user.age": 1.0} if "user.age" in ignored else {}
    record = {"a": 1, "user.age": "1", "user.town": "Ulm", "user.left": 1}
    assert engine.parts.processor.examples.split(record) == ({"a": 1} | declared, 1)


def test_declarations_with_mistakes_name_the_field(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        'label = "y"\nmissing = [true]\n[source]\ndataset = "Phishing"\n[model]\ntype = "KernelClassifier"\n'
        '[fields]\na = "float"\n"b c" = { type = "number", unit = "ms" }\nd = { type = "time", zone = "Mars" }\n'
    )
    with pytest.raises(ConfigError) as error:
        load_config(tmp_path / "run.toml")
    text = str(error.value)
    assert 'fields.a: expected one of "number", "category"' in text
    assert 'fields."b c": expected unit with type = "time" only, got it with "number"' in text
    assert "fields.d: expected the name of a time zone, as \"Europe/Berlin\", got 'Mars'" in text
    assert "missing" in text


def test_check_says_what_each_field_is(tmp_path: Path) -> None:
    def icd(i: int) -> Any:
        return 250.0 + i if i % 9 > 1 else f"V{i}"

    records = [
        {
            "icd": icd(i),
            "age": "old" if i == 3 else i,
            "share": f"0,{i}",
            "plan": "pro",
            "user.id": i,
            "few": None,
            "y": 1,
        }
        for i in range(100)
    ]
    (tmp_path / "e.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    config = tmp_path / "run.toml"
    text = f'label = "y"\nmissing = ["pro"]\n[source]\npath = "e.jsonl"\n[model]\n{DSG}\n'
    config.write_text(text + '[fields]\n"user.id" = "identifier"\nage = "number"\n')
    answer = call("run", "--check", config)
    assert answer.exit_code == 0
    assert answer.stdout.splitlines() == [
        "1 of the first 100 records (1 %) would be dead letters:",
        "  1 (1 %): Expected a number as declared, got str 'old' - at field \"age\"; if it means that there is no "
        'value, declare missing = ["old"]',
        f"{config} is valid",
        'field icd: mixed, 77 % numbers; looks like codes; declare it: [fields] icd = "category"',
        "field age: number, as declared; 1 % do not fit",
        "field share: numbers, 100 % written as text",
        "field plan: no values",
        "field user.id: identifier, as declared",
        "field few: no values",
    ]
    assert not (tmp_path / "state").exists()
    config.write_text(text.replace('path = "e.jsonl"', 'path = "-"\nformat = "jsonl"'))
    assert "note: records are not sampled" in call("run", "--check", config).stdout


@pytest.mark.parametrize("model", [DSG, NEWTON], ids=["dsg", "newton"])
def test_a_checkpoint_serves_texts_in_mixed_fields_and_declared_types(tmp_path: Path, model: str) -> None:
    records = [
        {"a": i % 5 if i % 3 else "none", "plan": i % 2, "v": [i % 2, 1.0], "n": i % 7, "y": i % 2} for i in range(200)
    ]
    predictions, dead = run(tmp_path, records, model=model, tables='[fields]\nplan = "category"\nv = "vector"')
    assert (len(predictions), dead) == (200, [])
    served = application.load(sorted((tmp_path / "state").glob("*.safetensors"))[-1])
    for plan in (0, "0", 0.0):
        answers = [served.answer({"a": a, "plan": plan, "v": [0, 1], "n": 2})["prediction"] for a in ("none", 2, "new")]
        assert answers == [0, 0, 0]
    with pytest.raises(InputError, match="Expected a number as before, got the string 'two' - at field \"n\""):
        served.answer({"n": "two"})
    with pytest.raises(InputError, match="Expected a vector of 2 numbers, got 1"):
        served.answer({"v": [1]})


@pytest.mark.parametrize("model", [DSG, NEWTON], ids=["dsg", "newton"])
def test_features_that_wait_for_labels_may_have_texts_and_numbers_in_a_field(tmp_path: Path, model: str) -> None:
    table = '[delayed_labels]\nkey = "id"'
    features = [{"id": i, "a": i % 5 if i % 3 else "none", "b": ("x", 3)[i == 90]} for i in range(200)]
    records: list[dict[str, Any]] = []
    for i, x in enumerate(features):
        records += [x] if i < 20 else [x, {"id": i - 20, "y": i % 2}]
    predictions, dead = run(tmp_path, records, model=model, tables=table)
    assert (len(predictions), dead) == (200, [])
    predictions, dead = run(tmp_path, [{"id": i, "y": i % 2} for i in range(180, 200)], model=model, tables=table)
    assert (len(predictions), dead) == (200, [])
