"""Additional metrics of a run equal those of River and scikit-learn, for any batches and restarts."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from river import metrics
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support
from states import named

from streamkernel.engine import Engine
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.checkpoint.state_directory import read_newest
from streamkernel.engine.config.config import ConfigError, load_config
from streamkernel.engine.monitoring.kappa_t import KappaT
from streamkernel.engine.monitoring.monitoring import JUDGED, Monitoring
from streamkernel.engine.monitoring.several_metrics import OTHER, confusion_table
from streamkernel.engine.runner import StreamRunner

N = 2600
CONFIG = """
label = "y"
metric = "Accuracy"
[source]
path = "events.jsonl"
[model]
type = "KernelClassifier"
max_features = 64
learner = "dsg"
[sink]
predictions = "out.jsonl"
[state]
directory = "state"
checkpoint_seconds = 1000.0
"""
QUALITY = """
[quality]
metrics = ["MacroF1", "CrossEntropy", "CohenKappa", "KappaT"]
[segments]
field = "town"
most = 3
"""


def records() -> list[dict[str, Any]]:
    rng, found = random.Random(5), []
    for i in range(N):
        town = rng.choices(["Graz", "Linz", "Wels", "Enns", None], [6, 3, 2, 1, 1])[0]
        x = {"a": rng.gauss(0.0, 1.0), "b": rng.gauss(0.0, 1.0), "town": town}
        found.append(x | {"y": "late" if i > 1500 and x["b"] > 1.0 else "up" if x["a"] * x["b"] > 0.0 else "down"})
    return found


def prepared(folder: Path, more: str = QUALITY, config: str = CONFIG) -> Path:
    named(folder / "state")
    (folder / "events.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records()))
    (folder / "run.toml").write_text(config + more)
    return folder / "run.toml"


def ran(path: Path, stop_after: int | None = None) -> Engine:
    engine, asked = engine_of(load_config(path)), itertools.count()
    engine.run(lambda: stop_after is not None and next(asked) >= stop_after)
    return engine


def rows(engine: Engine) -> dict[str, Any]:
    assert engine.snapshot.monitoring is not None
    return engine.snapshot.monitoring.rows()


def test_metrics_are_those_of_river_and_classes_those_of_scikit_learn(tmp_path: Path) -> None:
    found = rows(ran(prepared(tmp_path)))["quality"]
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    towns = [record["town"] or "(missing)" for record in records()]
    most = [town for town, _ in Counter(towns[:1000]).most_common(3)]
    assert list(found["segments"]) == [*most, OTHER]
    judged = [(line["label"], line["prediction"], line["probabilities"]) for line in lines]

    def expected(metric: Any, some: list[Any]) -> float:
        for y, prediction, probabilities in some:
            answer = prediction if metric.requires_labels else probabilities
            if answer:
                metric.update(y, answer)
        return float(metric.get())

    def every(kind: Any) -> int:
        return 8 if kind is metrics.CrossEntropy else 1  # since the start

    kinds = [metrics.MacroF1, metrics.CrossEntropy, metrics.CohenKappa, KappaT]
    assert found["metrics"] == {
        kind.__name__: {
            "since start": pytest.approx(expected(kind(), judged[:: every(kind)])),
            "recent": pytest.approx(expected(kind(), judged[-1000:])),
        }
        for kind in kinds
    }
    for name, of in found["segments"].items():
        inside = [(town if town in most else OTHER) == name for town in towns]
        assert of["labels"] == sum(inside)
        for kind in (metrics.Accuracy, *kinds):
            for key, part in (("since start", slice(None, None, every(kind))), ("recent", slice(N - 1000, None))):
                some = list(itertools.compress(judged[part], inside[part]))
                assert of[key][kind.__name__] == pytest.approx(expected(kind(), some))
    names = found["confusion"]["classes"]
    pairs = [(y, prediction) for y, prediction, _ in judged if prediction is not None]
    assert found["confusion"]["counts"] == confusion_matrix(*zip(*pairs, strict=True), labels=names).tolist()
    precision, recall, f1, labels = precision_recall_fscore_support(*zip(*pairs[-1000:], strict=True), labels=names)
    for i, name in enumerate(names):
        one = found["classes"][name]
        assert (one["precision"], one["recall"], one["f1"]) == pytest.approx((precision[i], recall[i], f1[i]))
        assert one["labels"] == labels[i]


def test_kappa_t_is_that_of_its_definition() -> None:
    rng, metric = random.Random(1), KappaT()
    labels = list(itertools.accumulate(range(500), lambda y, _: y if rng.random() < 0.8 else rng.randrange(3)))
    predictions = [y if rng.random() < 0.7 else rng.randrange(3) for y in labels]
    assert metric.get() == 0.0
    for y, prediction in zip(labels, predictions, strict=True):
        metric.update(y, prediction)
    p = sum(y == prediction for y, prediction in zip(labels, predictions, strict=True)) / 500
    q = sum(y == before for y, before in itertools.pairwise(labels)) / 500
    assert metric.get() == pytest.approx((p - q) / (1.0 - q))


def test_a_restart_and_any_batches_leave_the_same(tmp_path: Path) -> None:
    whole = rows(ran(prepared(tmp_path / "whole")))
    path = prepared(tmp_path / "parts")
    for stop in (3, 2, 4):  # numbers of polls; the batches become larger
        ran(path, stop)
    assert rows(ran(path)) == whole
    alone, config = prepared(tmp_path / "alone"), load_config(tmp_path / "alone" / "run.toml")
    engine = engine_of(config)
    engine.runner = StreamRunner(engine.parts, at_once=1)
    engine.run()
    assert rows(engine) == whole
    assert read_newest(alone.parent / "state")["monitoring"]["quality"]["count"] == N


@pytest.mark.parametrize("at_once", [1, 512])
@pytest.mark.parametrize("kind", ["dsg", "default", "pipeline"])
def test_probabilities_without_a_sink_are_those_of_lines(tmp_path: Path, kind: str, at_once: int) -> None:
    """With a sink they are computed with each prediction, and without one if a metric reads them."""
    found, config, more = [], CONFIG if kind == "dsg" else CONFIG.replace('learner = "dsg"', ""), QUALITY
    if kind == "pipeline":
        config = config.replace(
            "[source]", 'preprocessing = [{ type = "StandardScaler" }]\nignore = ["town"]\n[source]'
        )
        more = QUALITY.partition("[segments]")[0]
    for name, text in {"sink": config, "none": config.replace('[sink]\npredictions = "out.jsonl"', "")}.items():
        engine = engine_of(load_config(prepared(tmp_path / name, more, text)))
        engine.runner = StreamRunner(engine.parts, at_once=at_once)
        assert engine.parts.processor.with_probabilities is (name == "sink")
        engine.run()
        saved = read_newest(tmp_path / name / "state")["monitoring"]["quality"]["recent"]
        assert all(type(probabilities) is dict for probabilities in saved[2])
        found.append((rows(engine), saved))
    assert found[0] == found[1]


def test_tables_can_be_added_changed_and_removed(tmp_path: Path) -> None:
    path = prepared(tmp_path, more="")
    assert ran(path, 4).snapshot.monitoring is None
    before = read_newest(tmp_path / "state")["outcomes"]["learned"]
    path.write_text(CONFIG + QUALITY)
    ran(path, 6)
    between = read_newest(tmp_path / "state")["outcomes"]["learned"]
    assert read_newest(tmp_path / "state")["monitoring"]["quality"]["count"] == between - before
    path.write_text(CONFIG + '[quality]\nmetrics = ["MicroF1"]')
    found = rows(ran(path))["quality"]
    assert sum(map(sum, found["confusion"]["counts"])) == N - between
    path.write_text(CONFIG)
    assert ran(path).snapshot.monitoring is None


def test_metrics_get_many_predictions_together_and_few_are_kept() -> None:
    passed: list[int] = []
    quality: Any = SimpleNamespace(needs_probabilities=False, fold=lambda judged: passed.append(len(judged)))
    monitoring, events = Monitoring(quality=quality), 3 * JUDGED
    for _ in range(events // 512):
        monitoring.add_all([{}] * 512, [True] * 512, [(True, None)] * 512)
        monitoring.fold()
    assert passed == [JUDGED] * 3


def test_the_table_of_confusions_is_bounded() -> None:
    pairs = {(i, i + 1): 100 - i for i in range(50)}
    names, table = confusion_table(pairs)
    assert names == [*map(str, range(20)), OTHER]
    assert sum(map(sum, table)) == sum(pairs.values())
    assert table[19][20] == pairs[19, 20]


REFUSED = {
    '[quality]\nmetrics = ["ROCUAC"]': (
        'quality.metrics[0]: expected a River metric, got "ROCUAC"; did you mean "ROCAUC"?'
    ),
    '[quality]\nmetrics = ["F1", "F1"]': 'quality.metrics: expected different metrics, got "F1" twice',
    '[quality]\nmetrics = ["Accuracy"]': (
        'quality.metrics[0]: expected another metric than the key metric has, got "Accuracy"'
    ),
    '[quality]\nmetrics = ["MAE"]': 'quality.metrics[0]: expected a metric for KernelClassifier, got "MAE"',
    '[segments]\nfield = "y"': 'segments.field: expected an input of the model, got "y"',
    '[segments]\nfield = "a"\nmost = 0': "segments.most: expected an integer from 1 to 100, got 0",
    "[segments]": "segments.field: required; expected the name of a field among the inputs, got nothing",
}


@pytest.mark.parametrize(("more", "message"), REFUSED.items(), ids=range(len(REFUSED)))
def test_invalid_metrics_are_refused(tmp_path: Path, more: str, message: str) -> None:
    path = prepared(tmp_path, more)
    with pytest.raises(ConfigError) as raised:
        load_config(path).check()
    assert str(raised.value) == message
