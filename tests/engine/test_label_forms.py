"""Labels of one text in several forms are one label of a run, and no key of a line is lost or there twice."""

from __future__ import annotations

import copy
import csv
import itertools
import json
import random
from pathlib import Path
from typing import Any

import orjson
import pytest
from river import linear_model, metrics, multioutput, preprocessing
from river.metrics.multioutput import MacroAverage
from states import named

from streamkernel import KernelClassifier, tensor_file
from streamkernel.connectors import Event, FileSink, FileSource
from streamkernel.engine import Engine
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.checkpoint.state_directory import checkpoints
from streamkernel.engine.config.config import load_config
from streamkernel.engine.record_processor import RecordProcessor

KERNEL = 'type = "KernelClassifier"\nlearner = "dsg"\nmax_features = 64'
FORMS: dict[str, tuple[list[Any], list[Any]]] = {
    "numbers": ([0, "0", 0.0], [1, "1", 1.0]),
    "text first": (["0", 0, "0"], ["1", 1, 1.0]),
    "Booleans": ([False, "False", 0], [True, "true", 1.0]),
    "Booleans as text": (["False", False, "False"], ["true", True, "true"]),
    "fractions": ([0.5, "0.5", 0.5], [1e-7, "1e-7", 1e-7]),
}


def labelled(forms: tuple[list[Any], list[Any]], n: int = 300) -> list[dict[str, Any]]:
    rng, found = random.Random(0), []
    for i in range(n):
        a = rng.gauss(0.0, 1.0)
        found.append({"id": i, "a": a, "y": "other" if abs(a) > 1.5 else forms[a > 0.0][i % 3]})
    return found


def later(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return features, each followed by its label in another record."""
    pairs = (({"id": one["id"], "a": one["a"]}, {"id": one["id"], "y": one["y"]}) for one in records)
    return list(itertools.chain.from_iterable(pairs))


def prepared(folder: Path, records: list[dict[str, Any]], model: str, more: str = "") -> Path:
    named(folder / "state")
    (folder / "events.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    path = folder / "run.toml"
    path.write_text(
        f'label = "y"\nignore = ["id"]\ncoverage = 0.9\n[source]\npath = "events.jsonl"\n[model]\n{model}\n'
        '[sink]\npredictions = "out.jsonl"\n[state]\ndirectory = "state"\n[quality]\nmetrics = ["MacroF1"]\n' + more
    )
    return path


def ran(path: Path) -> Engine:
    engine = engine_of(load_config(path))
    engine.run()
    return engine


def as_json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs), pairs
    return dict(pairs)


@pytest.mark.parametrize("forms", FORMS)
@pytest.mark.parametrize("are_late", [False, True])
def test_a_label_is_known_by_its_text(tmp_path: Path, forms: str, are_late: bool) -> None:
    records, more = labelled(FORMS[forms]), ""
    if are_late:
        records, more = later(records), '[delayed_labels]\nkey = "id"\n'
    engine = ran(prepared(tmp_path, records, KERNEL, more))
    assert engine.outcomes["learned"] == 300
    assert not any(engine.refused.values())
    last = None
    for line in (tmp_path / "out.jsonl").read_text().splitlines():
        last = json.loads(line, object_pairs_hook=unique)
        shares = last["probabilities"]
        assert not shares or sum(shares.values()) == pytest.approx(1.0)
    assert last is not None
    assert len(last["probabilities"]) == 3
    firsts = [next(one["y"] for one in labelled(FORMS[forms]) if one["y"] in group) for group in FORMS[forms]]
    assert last["probabilities"].keys() == {*json.loads(as_json(dict.fromkeys(firsts))), "other"}
    engine.parts.monitor.publish_model()
    newest = engine.publisher.newest
    assert newest is not None
    found = json.loads(as_json(newest.answer({"a": 0.3})), object_pairs_hook=unique)
    assert len(found["probabilities"]) == 3
    assert len(found["set"]) == len({json.dumps(label).strip('"') for label in found["set"]})
    judged = engine.snapshot.monitoring
    assert judged is not None
    assert judged.quality is not None
    table = judged.quality.rows()["confusion"]["classes"]
    assert len(table) == len(set(table)) == 3


def test_labels_of_rivers_models_have_one_form(tmp_path: Path) -> None:
    prepared(tmp_path, labelled(FORMS["numbers"]), KERNEL)
    source, sink = FileSource(tmp_path / "events.jsonl"), FileSink(tmp_path / "out.jsonl")
    model = preprocessing.StandardScaler() | linear_model.SoftmaxRegression()
    engine = Engine(model, source, label="y", ignore=["id"], metric=metrics.CrossEntropy(), sink=sink)
    engine.run()
    last = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[-1], object_pairs_hook=unique)
    assert last["probabilities"].keys() == {"0", "1", "other"}
    assert engine.quality()["CrossEntropy"] < 1.0


def test_a_restart_has_the_same_forms(tmp_path: Path) -> None:
    records = labelled(FORMS["text first"])
    once, twice = tmp_path / "once", tmp_path / "twice"
    ran(prepared(once, records, KERNEL))
    path = prepared(twice, records[:7], KERNEL)
    ran(path)
    prepared(twice, records, KERNEL)
    ran(path)
    files = [(folder / "out.jsonl").read_text() for folder in (once, twice)]
    assert files[0].replace(str(once), "") == files[1].replace(str(twice), "")
    ends = [tensor_file.read(checkpoints(folder / "state")[-1], "checkpoint")[1] for folder in (once, twice)]
    assert {name: tensor.tobytes() for name, tensor in ends[0].items()} == {
        name: tensor.tobytes() for name, tensor in ends[1].items()
    }


def test_a_model_that_was_learned_elsewhere_has_the_forms(tmp_path: Path) -> None:
    model = KernelClassifier(learner="dsg", max_features=64)
    for i in range(10):
        model.learn_one({"a": float(i % 2)}, str(i % 2))
    model.save(tmp_path / "model.safetensors")
    records = [{"id": i, "a": float(i % 2), "y": i % 2} for i in range(20)]
    engine = ran(prepared(tmp_path, records, f'{KERNEL}\nfrom = "model.safetensors"'))
    assert (engine.outcomes["learned"], list(engine.model.labels)) == (20, ["0", "1"])


BINARY: dict[bool, list[Any]] = {
    False: [False, "False", 0, "0", 0.0, "false"],
    True: [True, "True", 1, "1", 1.0, "true"],
}


def written(folder: Path, records: list[dict[str, Any]], form: str) -> None:
    """Write records as lines of JSON or as a table."""
    with (folder / f"events.{form}").open("w", newline="") as file:
        if form == "jsonl":
            file.writelines(json.dumps(record) + "\n" for record in records)
        else:
            writer = csv.DictWriter(file, records[0])
            writer.writeheader()
            writer.writerows(records)


def several(folder: Path, form: str, more: str = "") -> Engine:
    """Run a model of two labels on a file."""
    (folder / "run.toml").write_text(
        f'label = ["p", "q"]\nignore = ["id"]\n[source]\npath = "events.{form}"\n[sink]\npredictions = "out.jsonl"\n'
        'dead_letters = "dead.jsonl"\n[state]\ndirectory = "state"\n[model]\ntype = "KernelMultiLabelClassifier"\n'
        f"max_features = 64\n{more}"
    )
    return ran(folder / "run.toml")


@pytest.mark.parametrize("form", ["jsonl", "csv"])
@pytest.mark.parametrize("are_late", [False, True])
def test_several_labels_have_one_form_each(tmp_path: Path, form: str, are_late: bool) -> None:
    """Compare with a run of the same events whose labels are all Booleans."""
    rng, truth = random.Random(0), []
    xs = [{"id": i, "a": rng.gauss(0.0, 1.0), "b": rng.gauss(0.0, 1.0)} for i in range(240)]
    mixed, plain = [], []
    for i, x in enumerate(xs):
        p, q = x["a"] > 0.0, x["b"] > 0.0
        truth.append({"p": p, "q": q})
        several_forms = {"p": BINARY[p][i % 6], "q": BINARY[q][(i + 2) % 6]}
        for records, y in ((mixed, several_forms), (plain, truth[-1])):
            records += [x, {"id": i} | y] if are_late else [x | y]
    more = '[delayed_labels]\nkey = "id"' if are_late else ""
    if are_late and form == "csv":  # columns of both
        mixed = [dict.fromkeys(("id", "a", "b", "p", "q")) | record for record in mixed]
    (tmp_path / "plain").mkdir()
    written(tmp_path, mixed, form)
    written(tmp_path / "plain", plain, "jsonl")
    engine, expected = several(tmp_path, form, more), several(tmp_path / "plain", "jsonl", more)
    assert (tmp_path / "dead.jsonl").read_text() == ""
    assert engine.outcomes == expected.outcomes
    assert engine.quality() == expected.quality()
    lines = [
        [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
        for folder in (tmp_path, tmp_path / "plain")
    ]
    assert [line["prediction"] for line in lines[0]] == [line["prediction"] for line in lines[1]]
    assert [line["probabilities"] for line in lines[0]] == [line["probabilities"] for line in lines[1]]
    if not are_late:
        assert [json.dumps(line["label"]) for line in lines[0]] == [json.dumps(y) for y in truth]


def test_a_label_that_is_neither_true_nor_false_is_refused_by_name_before_a_step_learns_it(tmp_path: Path) -> None:
    records = [{"id": i, "a": float(i % 5), "p": i % 2, "q": i % 3 > 1} for i in range(40)]
    with_others = [*records, records[0] | {"a": 1e9, "q": 2}, records[0] | {"a": 1e9, "p": "often"}]
    step = '[[preprocessing]]\ntype = "StandardScaler"'
    engines = []
    for name, found in (("alone", records), ("with others", with_others)):
        (tmp_path / name).mkdir()
        written(tmp_path / name, found, "jsonl")
        engines.append(several(tmp_path / name, "jsonl", step))
    reasons = [json.loads(line)["reason"] for line in (tmp_path / "with others/dead.jsonl").read_text().splitlines()]
    assert reasons == [
        'Expected True or False, got 2 - at field "q"',
        "Expected True or False, got 'often' - at field \"p\"",
    ]
    means = [engine.model["StandardScaler"].transformer.means["a"] for engine in engines]
    assert means[0] == means[1] == pytest.approx(2.0)


def test_several_labels_of_another_model_have_one_form_each_after_a_restart_too(tmp_path: Path) -> None:
    model = multioutput.ClassifierChain(linear_model.SoftmaxRegression(), order=["p", "q"])
    config = {"label": ("p", "q"), "metric": MacroAverage(metrics.Accuracy())}
    written(tmp_path, [{"a": i % 2, "p": [i % 2, str(i % 2)][i >= 30], "q": "yes"} for i in range(60)], "jsonl")
    processor = RecordProcessor(model, **config)
    labels = []
    for line in (tmp_path / "events.jsonl").read_text().splitlines():
        step = processor.process(Event("e", 1, b"", json.loads(line)))
        assert step is not None
        labels.append(step[1])
        if len(labels) == 30:
            state = copy.deepcopy(processor.state()) | {"setup": {}}
            processor = RecordProcessor(model, **config)
            processor.restore(state)
    assert {type(label["p"]) for label in labels} == {int}
    assert processor.state()["classes"] == {"p": [0, 1], "q": ["yes"]}
