"""The engine loop: which records are learned or refused, and that a restart continues with the same bits."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from river import compose, linear_model, metrics, multiclass, preprocessing
from states import state_in
from structlog.testing import capture_logs

from streamkernel import KernelClassifier, KernelRegressor, RandomFeatures, kernels, learners, tensor_file
from streamkernel.connectors import DatasetSource, DeadLetters, FileSink, FileSource
from streamkernel.engine import Engine
from streamkernel.engine.checkpoint.state_directory import (
    StateDirectory,
    StateDirectoryError,
    check_setup,
    checkpoints,
    read_newest,
)
from streamkernel.engine.telemetry.status import EngineCollector
from streamkernel.errors import ModelFileError
from streamkernel.upkeep import Pruning, Refit


def write_events(path: Path, n: int = 700, seed: int = 3) -> None:
    """Write `n` labelled records, some of them broken."""
    rng = random.Random(seed)
    lines = []
    for i in range(n):
        record: dict[str, Any] = {"id": i, "a": rng.gauss(0, 1), "b": rng.gauss(0, 1), "town": rng.choice("xyz")}
        record["y"] = rng.choice(["red", "blue"]) if i % 7 else ("red" if record["a"] * record["b"] > 0 else "blue")
        if i % 50 == 17:
            record["a"] = "broken"
        lines.append(json.dumps(record) if i % 60 != 31 else '{"id": 3, "a"')
    path.write_text("\n".join(lines) + "\n")


def pipeline(model: Any) -> Any:
    numbers = compose.SelectType(float, int) | preprocessing.StandardScaler()
    towns = compose.SelectType(str) | preprocessing.OneHotEncoder()
    return (numbers + towns) | model


def engine(folder: Path, model: Any, **options: Any) -> Engine:
    return Engine(
        model,
        FileSource(folder.parent / "events.jsonl"),
        label="y",
        ignore=["id"],
        metric=metrics.Accuracy(),
        sink=FileSink(folder / "predictions.jsonl"),
        dead_letters=DeadLetters(FileSink(folder / "dead_letters.jsonl")),
        state=state_in(folder / "state"),
        **options,
    )


def after(events: int) -> Callable[[], bool]:
    """Return a stop condition that is true after a number of events."""
    asked = iter(range(10**9))
    return lambda: next(asked) >= events


MODELS = {
    "median": lambda: pipeline(KernelClassifier()),
    "batches, averaged": lambda: pipeline(
        KernelClassifier(
            kernels.Gaussian(1.0), learner=learners.DSG(batch_size=8, averaging=True), loss="hinge", l2=0.0001
        )
    ),
    "made smaller": lambda: pipeline(
        KernelClassifier(learner="dsg", max_features=64, pruning=Pruning(every=100, window=90))
    ),
    "refitted": lambda: pipeline(
        KernelClassifier(kernels.Gaussian(1.0), learner="dsg", max_features=64, refit=Refit(every=100, window=90))
    ),
    "linear on features": lambda: pipeline(
        compose.Pipeline(RandomFeatures(kernels.Gaussian(1.0), n_features=64), linear_model.LogisticRegression())
    ),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
def test_a_stopped_run_continues_with_the_same_bits(tmp_path: Path, make: Callable[[], Any]) -> None:
    write_events(tmp_path / "events.jsonl")
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    engine(tmp_path / "whole", make()).run()
    for before, stop in itertools.pairwise([0, 1, 40, 81, 100, 255, 258, 381, 699]):
        engine(tmp_path / "parts", make()).run(stopping=after(stop - before))
    engine(tmp_path / "parts", make()).run()
    for file in ("predictions.jsonl", "dead_letters.jsonl"):
        assert (tmp_path / "parts" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    assert newest_content(tmp_path / "parts") == newest_content(tmp_path / "whole")


def newest_content(folder: Path) -> tuple[Any, dict[str, bytes]]:
    description, tensors = tensor_file.read(checkpoints(folder / "state")[-1], "checkpoint")
    return description, {name: tensor.tobytes() for name, tensor in tensors.items()}


def test_a_crash_between_checkpoints_repeats_the_same_lines(tmp_path: Path) -> None:
    write_events(tmp_path / "events.jsonl")
    for name in ("whole", "crashed"):
        (tmp_path / name).mkdir()
    engine(tmp_path / "whole", MODELS["median"]()).run()

    class CrashError(Exception):
        pass

    def crash(at: int) -> Callable[[Engine], None]:
        def watch(running: Engine) -> None:
            if running.outcomes["learned"] >= at:
                running.commit() if at == 300 else None
                raise CrashError

        return watch

    for at in (100, 300, 500):
        with pytest.raises(CrashError):
            engine(tmp_path / "crashed", MODELS["median"]()).run(watch=crash(at))
    engine(tmp_path / "crashed", MODELS["median"]()).run()
    for file in ("predictions.jsonl", "dead_letters.jsonl"):
        assert (tmp_path / "crashed" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    assert newest_content(tmp_path / "crashed") == newest_content(tmp_path / "whole")


def test_a_broken_checkpoint_falls_back_to_the_previous_one(tmp_path: Path) -> None:
    write_events(tmp_path / "events.jsonl")
    for name in ("whole", "torn"):
        (tmp_path / name).mkdir()
    engine(tmp_path / "whole", MODELS["median"]()).run()
    engine(tmp_path / "torn", MODELS["median"]()).run(stopping=after(200))
    engine(tmp_path / "torn", MODELS["median"]()).run(stopping=after(200))
    newest = checkpoints(tmp_path / "torn" / "state")[-1]
    newest.write_bytes(newest.read_bytes()[:-100])
    engine(tmp_path / "torn", MODELS["median"]()).run()
    assert newest_content(tmp_path / "torn") == newest_content(tmp_path / "whole")
    for file in checkpoints(tmp_path / "torn" / "state"):
        file.write_bytes(b"no checkpoint")
    with pytest.raises(ModelFileError, match="Expected an intact checkpoint, found none"):
        engine(tmp_path / "torn", MODELS["median"]()).run()


def test_every_record_is_learned_or_becomes_a_dead_letter_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    good = {"a": 1.5, "b": 2, "y": "red"}
    bad: dict[str, Any] = {
        '{"a": 1e999, "b": 2, "y": "red"}': 'Expected a finite number, got inf - at field "a"',
        '{"a": "x", "b": 2, "y": "red"}': "Expected a number as before, got the string 'x' - at field \"a\"",
        '{"a": [1], "b": 2, "y": "red"}': 'Expected a number or a string, got list [1] - at field "a"',
        '{"a": 1.5, "b": 2}': 'Expected a label, got no such field - at field "y"',
        '{"a": 1.5, "b": 2, "y": null}': 'Expected a label, got null - at field "y"',
        '{"a": 1.5, "b": 2, " Y": "red"}': 'Expected a label, got no such field, but " Y" - at field "y"',
        '{"y": "red"}': "Expected at least one feature besides the label, got none: there is no other field",
        '{"a": 1e39, "y": "red"}': "Expected a finite number of usable size, got 1e+39 - at x['a']",
        '{"new": {"text": [1]}, "y": "red"}': 'Expected a number or a string, got list [1] - at field "new.text"',
        "not json": "Expected valid JSON, got invalid literal",
    }
    lines = [json.dumps(good)] * 24 + [json.dumps({**good, "new": "text"}), *bad] + [json.dumps(good)] * 5
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n")
    running = engine(tmp_path / "run", KernelClassifier())
    running.run()
    assert running.outcomes == {"learned": 30, "predicted": 30, "dead_letter": len(bad), "pending": 0, "passed_over": 0}
    letters = [orjson.loads(line) for line in (tmp_path / "run" / "dead_letters.jsonl").read_bytes().splitlines()]
    for letter, (raw, reason) in zip(letters, bad.items(), strict=True):
        assert letter["reason"].startswith(reason)
        assert letter["raw"] == raw


def test_csv_values_that_json_cannot_represent(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("a,b,y\n" + "1,2,red\n" * 60 + "nan,2,red\n1,-inf,red\n1,x,red\n,2,blue\n")
    letters = DeadLetters(FileSink(tmp_path / "dead_letters.jsonl"))
    source = FileSource(tmp_path / "events.csv")
    Engine(KernelClassifier(), source, label="y", metric=metrics.Accuracy(), dead_letters=letters).run()
    reasons = [orjson.loads(line)["reason"] for line in (tmp_path / "dead_letters.jsonl").read_bytes().splitlines()]
    assert reasons == [
        f"Expected a number as before, got the string '{text}' - at field \"b\"; if it means that there is no value, "
        f"declare missing = {missing}"
        for text, missing in (("-inf", '["-inf"]'), ("x", '["-inf", "x"]'))
    ]


def test_refused_records_change_nothing(tmp_path: Path) -> None:
    """A scaler in front of the model must not see half of an event that is refused."""
    good = [json.dumps({"a": i / 7, "b": i % 5, "y": i % 2}) for i in range(300)]
    bad = [
        '{"a": 1e200, "b": 1, "y": 0}',
        '{"a": [1], "b": 1, "y": 0}',
        '{"a": 1, "b": null, "y": null}',
        '{"b": 1e999}',
    ]
    for name, lines in (("clean", good), ("mixed", [line for i, one in enumerate(good) for line in (one, bad[i % 4])])):
        (tmp_path / name / "run").mkdir(parents=True)
        (tmp_path / name / "events.jsonl").write_text("\n".join(lines) + "\n")
        engine(tmp_path / name / "run", preprocessing.StandardScaler() | KernelClassifier()).run()
    clean, mixed = (read_newest(tmp_path / name / "run" / "state") for name in ("clean", "mixed"))
    assert clean is not None
    assert mixed is not None
    x = {"a": 0.5, "b": 3}
    assert clean["model"].predict_proba_one(x) == mixed["model"].predict_proba_one(x)
    assert clean["metric"].get() == mixed["metric"].get()
    assert mixed["outcomes"]["dead_letter"] == 300


def test_a_regressor_requires_numeric_labels(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"a": 1, "y": 2}\n{"a": 1, "y": "much"}\n{"a": 2, "y": 3}\n')
    running = Engine(KernelRegressor(), FileSource(tmp_path / "events.jsonl"), label="y", metric=metrics.MAE())
    running.run()
    assert (running.outcomes["learned"], running.outcomes["dead_letter"]) == (2, 1)


def test_predictions_are_made_before_learning(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "events.jsonl").write_text('{"a": 1, "y": "red"}\n{"a": 1, "y": "blue"}\n')
    engine(tmp_path / "run", KernelClassifier()).run()
    lines = [orjson.loads(line) for line in (tmp_path / "run" / "predictions.jsonl").read_bytes().splitlines()]
    assert [line["prediction"] for line in lines] == [None, "red"]
    assert [line["label"] for line in lines] == ["red", "blue"]


def test_probabilities_for_metrics_of_probabilities(tmp_path: Path) -> None:
    running = Engine(KernelClassifier(), DatasetSource("Phishing"), label="y", metric=metrics.ROCAUC())
    running.run()
    assert running.metric.get() > 0.9


def test_a_state_directory_is_locked_by_one_process(tmp_path: Path) -> None:
    with StateDirectory(tmp_path), pytest.raises(StateDirectoryError, match="locked by another process"):
        StateDirectory(tmp_path)
    StateDirectory(tmp_path).close()


def test_another_setup_is_refused(tmp_path: Path) -> None:
    write_events(tmp_path / "events.jsonl", 20)
    (tmp_path / "run").mkdir()
    engine(tmp_path / "run", KernelClassifier(), setup={"model": {"seed": 0}}).run()
    with pytest.raises(StateDirectoryError, match=r"take another state\.directory"):
        engine(tmp_path / "run", KernelClassifier(), setup={"model": {"seed": 1}}).run()


def test_labels_beyond_the_limit_are_dead_letters_of_kind_classes(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "events.jsonl").write_text("".join(f'{{"a": {i}, "y": "user {i % 5}"}}\n' for i in range(20)))
    running = engine(tmp_path / "run", preprocessing.StandardScaler() | KernelClassifier(max_classes=3))
    running.run()
    assert (running.refused["classes"], running.outcomes["learned"]) == (8, 12)
    assert running.model["StandardScaler"].counts["a"] == 12
    letter = json.loads((tmp_path / "run" / "dead_letters.jsonl").read_text().splitlines()[0])
    assert letter["reason"] == "Expected at most 3 labels (max_classes), got one more, 'user 3' - at y"


def test_values_far_outside_their_range_are_counted_and_reported(tmp_path: Path) -> None:
    rng, records = random.Random(1), []
    for i in range(3000):
        record = {"a": rng.gauss(50, 3), "heavy": rng.lognormvariate(0, 1), "rare": int(i % 700 == 650), "y": i % 2}
        if i > 1000 and i % 200 == 7:
            record["a"] = 1e30 if i % 400 == 7 else -9999
        records.append(json.dumps(record))
    (tmp_path / "run").mkdir()
    (tmp_path / "events.jsonl").write_text("\n".join(records))
    running = engine(tmp_path / "run", linear_model.LogisticRegression())
    with capture_logs() as lines:
        running.run()
    assert (running.snapshot.outlying_inputs, running.outcomes["learned"]) == (10, 3000)
    (line,) = [line for line in lines if line["event"] == "values are far outside the usual range of their field"]
    assert (line["field"], line["log_level"]) == ("a", "warning")
    found = {metric.name: metric.samples[0].value for metric in EngineCollector(running).collect() if metric.samples}
    assert found["streamkernel_outlying_inputs"] == 10


def test_topics_can_be_added_at_the_end() -> None:
    setup = {"label": "y", "source.topics": ["a", "b"]}
    check_setup(setup, setup | {"source.topics": ["a", "b", "c"]})
    for topics in (["c", "a", "b"], ["a"], None):
        with pytest.raises(StateDirectoryError, match=r"source\.topics = \['a', 'b'\], got"):
            check_setup(setup, setup | {"source.topics": topics})


def test_the_last_checkpoints_are_kept(tmp_path: Path) -> None:
    write_events(tmp_path / "events.jsonl", 50)
    (tmp_path / "run").mkdir()
    engine(tmp_path / "run", KernelClassifier(), checkpoint_seconds=0.0).run()
    numbers = [int(path.stem.split("-")[1]) for path in checkpoints(tmp_path / "run" / "state")]
    assert len(numbers) == 3
    assert numbers[-1] > 20


def test_the_baseline_learns_the_same_events() -> None:
    baseline = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    running = Engine(
        KernelClassifier(), DatasetSource("Bananas"), label="y", metric=metrics.Accuracy(), baseline=baseline
    )
    running.run()
    ours, theirs = running.quality().values()
    assert ours > 0.89
    assert 0.5 < theirs < 0.6


@pytest.mark.parametrize("kind", [linear_model.LogisticRegression, linear_model.PAClassifier])
def test_memory_errors_end_the_run_without_a_dead_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type
) -> None:
    (tmp_path / "run").mkdir()
    write_events(tmp_path / "events.jsonl")

    def running() -> Engine:
        baseline = pipeline(multiclass.OneVsRestClassifier(linear_model.PAClassifier()))
        model = pipeline(multiclass.OneVsRestClassifier(linear_model.LogisticRegression()))
        return engine(tmp_path / "run", model, baseline=baseline)

    learn_one, calls = kind.learn_one, itertools.count()

    def limited(model: Any, x: dict[str, Any], y: Any) -> None:
        if next(calls) == 60:
            raise MemoryError("cannot allocate 1.00 GiB")
        learn_one(model, x, y)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "learn_one", limited)
        first = running()
        with pytest.raises(MemoryError, match=r"out of memory at the record of .*events.jsonl that ends at"):
            first.run()
    assert (first.refused["error"], first.baseline is None) == (0, False)
    saved = read_newest(tmp_path / "run" / "state")
    assert saved is not None
    assert saved["outcomes"]["learned"] == 0 < first.outcomes["learned"]
    again = running()
    again.run()
    assert again.outcomes["learned"] + again.outcomes["dead_letter"] == 700
