"""Challengers leave the champion's bits unchanged, and each has the bits that it would have as the champion."""

from __future__ import annotations

import json
import random
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from river import base, compose, linear_model, metrics, multiclass, preprocessing
from states import state_in
from structlog.testing import capture_logs
from typer.testing import CliRunner

from streamkernel import (
    KernelClassifier,
    KernelMultiTargetRegressor,
    KernelRegressor,
    LastTarget,
    load,
    save,
    tensor_file,
)
from streamkernel.cli import app
from streamkernel.connectors import DeadLetters, FileSink, FileSource
from streamkernel.engine import Engine
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.checkpoint.state_directory import StateDirectoryError, checkpoints, read_newest
from streamkernel.engine.checkpoint.state_file import unpack
from streamkernel.engine.config.config import ConfigError, load_config
from streamkernel.engine.config.start_checks import check_state
from streamkernel.engine.delayed_labels import DelayedLabels
from streamkernel.engine.roles import Candidate, PromotionError, promote, rollback
from streamkernel.engine.telemetry.status import EngineCollector, checkpoint_rows, checkpoint_table, status_of

N = 600
PAGE = Path(__file__).parents[2] / "docs" / "how_to" / "challengers.md"
SMALL = {"max_features": 64, "learner": "dsg"}

Build = Callable[[], Any]


def records(kind: str) -> list[dict[str, Any]]:
    """Return records of features and labels, some invalid; late labels are in records of their own."""
    rng = random.Random(5)
    made, later = [], []
    for i in range(N):
        x: dict[str, Any] = {"id": i, "a": rng.gauss(0, 1), "b": rng.gauss(0, 1)}
        if i > 300 and i % 3 == 0:
            x["note"] = "late"
        if i % 97 == 60:
            x["a"] = "broken"
        score = (0.0 if isinstance(x["a"], str) else x["a"]) * x["b"]
        y: dict[str, Any] = {"y": score} if "number" in kind else {"y": "up" if score > 0 else "down"}
        if kind == "numbers":
            y["z"] = x["b"]
        if not kind.startswith("late"):
            made.append(x | y)
            continue
        late = {"id": i, **y}
        made += [late, x] if i % 41 == 5 else [x]
        later += [] if i % 41 == 5 or i % 53 == 4 else [late]
        if len(later) > 25:
            made.append(later.pop(rng.randrange(len(later))))
    return made + later


def strings_break_it() -> Any:
    return preprocessing.StandardScaler() | KernelClassifier(**SMALL)


def scaled(model: Any) -> Any:
    return compose.Pipeline(("numbers", compose.Select("a", "b")), preprocessing.StandardScaler(), model)


KINDS: dict[str, tuple[Build, Build]] = {
    "class": (lambda: KernelClassifier(**SMALL), lambda: scaled(KernelClassifier(max_features=128))),
    "number": (lambda: KernelRegressor(**SMALL), lambda: LastTarget(1) | KernelRegressor(**SMALL, seed=1)),
    "numbers": (
        lambda: KernelMultiTargetRegressor(max_features=64),
        lambda: scaled(KernelMultiTargetRegressor(max_features=64, seed=1)),
    ),
    "late class": (lambda: KernelClassifier(max_features=128), lambda: scaled(KernelClassifier(**SMALL))),
    "late number": (
        lambda: LastTarget(2) | KernelRegressor(**SMALL),
        lambda: LastTarget(1) | KernelRegressor(**SMALL, seed=1),
    ),
}


def candidates(*builds: Build) -> list[Candidate]:
    names = "model", "other", "third", "fourth"
    return [Candidate(names[i], {"model": names[i], "preprocessing": []}, build) for i, build in enumerate(builds)]


def engine(folder: Path, kind: str, found: Sequence[Candidate], **options: Any) -> Engine:
    folder.mkdir(exist_ok=True)
    path = folder.parent / "events.jsonl"
    if not path.exists():
        path.write_text("".join(json.dumps(record) + "\n" for record in records(kind)))
    metric: Any = metrics.MAE() if "number" in kind else metrics.Accuracy()
    return Engine(
        found[0].build(),
        FileSource(path),
        label=("y", "z") if kind == "numbers" else "y",
        ignore=["id"],
        metric=metrics.multioutput.MacroAverage(metric) if kind == "numbers" else metric,
        labels=DelayedLabels("id", clock=lambda: 0.0) if kind.startswith("late") else None,
        sink=FileSink(folder / "predictions.jsonl"),
        dead_letters=DeadLetters(FileSink(folder / "dead_letters.jsonl")),
        **{"state": state_in(folder / "state"), "setup": dict(found[0].setup), "candidates": found, **options},
    )


def left(folder: Path) -> tuple[list[Any], Any]:
    """Return the champion's output and state, as bytes where possible, and the challengers' part of the checkpoint."""
    description, tensors = tensor_file.read(checkpoints(folder / "state")[-1], "checkpoint")
    state = dict(description["state"]["dict"])
    challengers, description["state"] = state.pop("challengers", None), state
    files = [(folder / name).read_bytes() for name in ("predictions.jsonl", "dead_letters.jsonl")]
    return [*files, description, {name: tensor.tobytes() for name, tensor in tensors.items()}], challengers


def stop_after(n: int) -> Callable[[], bool]:
    asked = iter(range(n))
    return lambda: next(asked, None) is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_champion_has_the_same_bits_and_each_challenger_those_of_a_champion(tmp_path: Path, kind: str) -> None:
    first, second = KINDS[kind]
    builds = [first, second, *([strings_break_it] if kind == "class" else [])]
    alone, run = (
        engine(tmp_path / "alone", kind, candidates(first)),
        engine(tmp_path / "run", kind, candidates(*builds)),
    )
    other = engine(tmp_path / "other", kind, candidates(second))
    for one in (alone, run, other):
        one.run()
    (*files, description, tensors), none = left(tmp_path / "alone")
    (*seen_files, seen, seen_tensors), challengers = left(tmp_path / "run")
    assert none is None
    assert len(dict(challengers["dict"])["models"]) == len(builds) - 1
    assert seen_files == files
    assert seen["models"][: len(description["models"])] == description["models"]
    assert seen["state"] == description["state"]
    assert {name: tensor for name, tensor in seen_tensors.items() if name in tensors} == tensors
    found = run.snapshot.challengers.models[0]
    assert (found.errors, found.judged) == (0, alone.outcomes["learned"])
    assert found.scores.ours == other.snapshot.scores.ours
    assert found.scores.pairs == other.snapshot.scores.pairs
    model, expected = (read_newest(tmp_path / name / "state") or {} for name in ("run", "other"))
    probe = {"a": 0.3, "b": -1.0}
    assert model["challengers"]["models"][0]["model"].predict_one(probe) == expected["model"].predict_one(probe)
    if kind == "class":
        broken = run.snapshot.challengers.models[1]
        assert 10 < broken.errors < 20  # one of three events
        assert broken.is_suspended
        assert broken.reason.startswith("TypeError: unsupported operand")


@pytest.mark.parametrize("kind", ["class", "late class", "late number"])
def test_a_run_that_crashes_continues_with_the_bits_of_one_that_did_not(tmp_path: Path, kind: str) -> None:
    found = candidates(*KINDS[kind], *([strings_break_it] if kind == "class" else []))
    engine(tmp_path / "whole", kind, found).run()
    for n in (60, 150, 333):
        one = engine(tmp_path / "crashed", kind, found)
        seen = iter(range(n))

        def crash(one: Engine = one, seen: Any = seen, n: int = n) -> bool:
            at = next(seen, None)
            if at == n // 2:
                one.commit()
            if at is None:
                raise KeyboardInterrupt
            return False

        with pytest.raises(KeyboardInterrupt):
            one.run(crash)
    engine(tmp_path / "crashed", kind, found).run()
    crashed, challengers = left(tmp_path / "crashed")
    whole, expected = left(tmp_path / "whole")
    assert crashed[2]["models"] == whole[2]["models"]
    assert crashed[3] == whole[3]
    assert crashed[:2] == whole[:2]
    assert challengers == expected


@pytest.mark.parametrize("kind", ["class", "late class", "late number"])
def test_promote_and_rollback_leave_each_model_as_if_it_had_been_alone(tmp_path: Path, kind: str) -> None:
    """The first model writes lines before the promotion and after the rollback, the second the lines between."""
    first, second = KINDS[kind]
    found = candidates(first, second)
    for name, build in (("model", first), ("other", second)):
        engine(tmp_path / name, kind, candidates(build)).run()
    directory = tmp_path / "run" / "state"
    lines = [0]
    for action, n in ((lambda: promote(directory, "other"), 200), (lambda: rollback(directory), 300), (None, 10_000)):
        engine(tmp_path / "run", kind, found).run(stop_after(n))
        lines.append(len((tmp_path / "run" / "predictions.jsonl").read_text().splitlines()))
        if action is not None:
            assert "is the champion after" in action()
    whole = {
        name: (tmp_path / name / "predictions.jsonl").read_text().splitlines() for name in ("model", "other", "run")
    }
    assert 20 < lines[1] < lines[2] - 20 < lines[3] - 40
    for name, start, end in zip(("model", "other", "model"), lines, lines[1:], strict=False):
        assert whole["run"][start:end] == whole[name][start:end]
    seen = read_newest(directory) or {}
    (other,) = seen["challengers"]["models"]
    for part, name in ((seen, "model"), (other, "other")):
        expected = read_newest(tmp_path / name / "state") or {}
        assert part["metric"].get() == expected["metric"].get()
        assert part["quality"] == expected["quality"]
        assert part["model"].predict_one({"a": 0.3, "b": -1.0}) == expected["model"].predict_one({"a": 0.3, "b": -1.0})
    assert [one["action"] for one in seen["challengers"]["promotions"]] == ["promote", "rollback"]
    rows = dict(checkpoint_rows(seen))
    assert rows["promote"].startswith("other in place of model after ")
    assert rows["champion model"].endswith(f"{seen['outcomes']['learned']:,} events")


def test_a_promotion_leaves_the_baseline_and_the_coverage_of_the_run(tmp_path: Path) -> None:
    found = candidates(*KINDS["late class"])

    def run(folder: str, stop: Callable[[], bool]) -> dict[str, Any]:
        model = preprocessing.StandardScaler() | linear_model.LogisticRegression()
        numbers = multiclass.OneVsRestClassifier(compose.Select("a", "b") | model)
        engine(tmp_path / folder, "late class", found, baseline=numbers, coverage=0.9).run(stop)
        return read_newest(tmp_path / folder / "state") or {}

    run("run", stop_after(400))
    waiting = len(unpack((read_newest(tmp_path / "run" / "state") or {})["labels"]["waiting"]))
    promote(tmp_path / "run" / "state", "other")
    promoted, whole = run("run", lambda: False), run("whole", lambda: False)
    assert promoted["baseline_metric"].get() == whole["baseline_metric"].get()
    assert promoted["quality"]["baseline_recent"] == whole["quality"]["baseline_recent"]
    assert promoted["outcomes"] == whole["outcomes"]
    judged = [saved["coverage"]["judged"] for saved in (promoted, whole)]
    assert 0 < judged[1] - judged[0] <= waiting


def test_models_that_a_configuration_no_longer_has_are_dropped_and_new_ones_begin(tmp_path: Path) -> None:
    first, second = KINDS["class"]
    one, two, three, four = candidates(first, second, lambda: KernelClassifier(**SMALL), lambda: scaled(first()))
    engine(tmp_path / "run", "class", [one, two, three]).run(stop_after(200))
    before = (read_newest(tmp_path / "run" / "state") or {})["challengers"]["models"]
    renamed, changed = two._replace(name="renamed"), three._replace(setup={**three.setup, "model": "changed"})
    with capture_logs() as logs:
        engine(tmp_path / "run", "class", [one, renamed, changed, four]).run(lambda: True)
    after = (read_newest(tmp_path / "run" / "state") or {})["challengers"]["models"]
    assert [part["name"] for part in after] == ["other", "third"]  # nothing was processed, so nothing was written
    told = [(log["event"], log["model"]) for log in logs if "model" in log]
    assert told == [
        ("a challenger is dropped, because the configuration has no model like it", "third"),
        ('a challenger was called "other" before', "renamed"),
        ("a challenger begins", "third"),
        ("a challenger begins", "fourth"),
    ]
    run = engine(tmp_path / "run", "class", [one, renamed, changed, four])
    run.run()
    judged = {model.name: model.judged for model in run.snapshot.challengers.models}
    learned = run.outcomes["learned"]
    assert judged["renamed"] == learned
    assert judged["third"] == judged["fourth"] == learned - before[0]["quality"]["count"]
    engine(tmp_path / "run", "class", [one]).run()
    assert [name for name, _ in checkpoint_rows(read_newest(tmp_path / "run" / "state") or {}) if "challenger" in name]


def test_the_champion_of_a_state_has_to_be_in_the_configuration(tmp_path: Path) -> None:
    one, two = candidates(*KINDS["class"])
    directory = tmp_path / "run" / "state"
    run = engine(tmp_path / "run", "class", [one, two])
    with pytest.raises(StateDirectoryError, match="locked by another process"):
        promote(directory, "other")
    run.run(stop_after(200))
    with pytest.raises(PromotionError, match='which here are "other", got "nobody"'):
        promote(directory, "nobody")
    with pytest.raises(PromotionError, match="no promotion to roll back"):
        rollback(directory)
    with pytest.raises(PromotionError, match='"model" is the champion already'):
        promote(directory, "model")
    promote(directory, "other")
    with pytest.raises(StateDirectoryError, match='champion of this state, "other", in \\[model\\]'):
        engine(tmp_path / "run", "class", [one])
    swapped = [Candidate("model", two.setup, two.build), Candidate("former", one.setup, one.build)]
    run = engine(tmp_path / "run", "class", swapped)  # the configuration makes the promotion permanent
    run.run()
    assert run.snapshot.challengers.champion == "model"
    assert run.snapshot.challengers.models[0].judged == run.outcomes["learned"]
    assert '"former" is the champion' in rollback(directory)


def test_a_challenger_begins_from_a_saved_model_and_needs_it_once(tmp_path: Path) -> None:
    second = KINDS["class"][1]
    engine(tmp_path / "before", "class", candidates(second)).run()
    expected = load(tmp_path / "before" / "state")
    save(expected, tmp_path / "saved.safetensors")
    path = tmp_path / "run.toml"
    path.write_text("""
        label = "y"
        ignore = ["id"]
        source.path = "events.jsonl"
        state.directory = "state"
        model = { type = "KernelClassifier", learner = "dsg", max_features = 64 }
        [[challengers]]
        name = "file"
        from = "saved.safetensors"
        [[challengers]]
        name = "state"
        from = "before/state"
    """)
    run, metric = engine_of(load_config(path)), metrics.Accuracy()
    run.run(stop_after(100))
    learned = run.outcomes["learned"]
    for record in [record for record in records("class") if not isinstance(record["a"], str)][:learned]:
        x, y = {name: value for name, value in record.items() if name not in ("id", "y")}, record["y"]
        metric.update(y, expected.predict_one(x))
        expected.learn_one(x, y)
    file, state = run.snapshot.challengers.models
    assert file.judged == learned > 90
    assert file.scores.ours == state.scores.ours == metric.get()
    (tmp_path / "saved.safetensors").unlink()
    config = load_config(path)
    config.check()
    promote(tmp_path / "state", "file")
    assert check_state(config) == ""
    run = engine_of(config)
    assert run.snapshot.challengers.champion == "file"
    assert run.model.predict_one({"a": 0.3, "b": -1.0}) == expected.predict_one({"a": 0.3, "b": -1.0})
    run.close()
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(ConfigError, match=r"challengers\[0\].from: expected a model file, found none"):
        config.check()


class Vandal(base.Classifier):
    """A classifier that changes its arguments, returns values that are not finite, and sometimes fails."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error

    def predict_one(self, x: dict[str, Any]) -> Any:
        return max(self.predict_proba_one(x))

    def predict_proba_one(self, x: dict[str, Any]) -> dict[str, float]:
        if self.error is not None:
            raise self.error
        x.clear()
        return {"up": float("nan"), "down": 1.0}

    def learn_one(self, x: dict[str, Any], y: Any) -> None:
        x.clear()


def test_a_challenger_cannot_change_the_inputs_of_the_champion(tmp_path: Path) -> None:
    first = KINDS["late class"][0]
    engine(tmp_path / "alone", "late class", candidates(first), state=None).run()
    run = engine(tmp_path / "run", "late class", candidates(first, Vandal), state=None)
    with capture_logs() as logs:
        run.run()
    for name in ("predictions.jsonl", "dead_letters.jsonl"):
        seen, expected = ((tmp_path / folder / name).read_text() for folder in ("run", "alone"))
        assert seen == expected
    (vandal,) = run.snapshot.challengers.models
    assert (vandal.errors, vandal.judged, vandal.is_suspended) == (10, 0, True)
    assert vandal.reason == "ValueError: Expected a finite prediction, got nan"
    assert [log["event"].split(";")[0] for log in logs if log.get("model") == "other"] == [
        "a challenger failed",
        "a challenger is suspended after repeated errors",
    ]


def test_a_challenger_without_memory_ends_the_run_as_a_champion_does(tmp_path: Path) -> None:
    run = engine(tmp_path / "run", "class", candidates(KINDS["class"][0], lambda: Vandal(MemoryError())), state=None)
    with pytest.raises(MemoryError, match="resumes from the last checkpoint"):
        run.run()


def test_metrics_and_status_have_each_model(tmp_path: Path) -> None:
    first, second = KINDS["class"]
    run = engine(tmp_path / "run", "class", candidates(first, second, strings_break_it))
    run.run()
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in EngineCollector(run).collect()
        for sample in family.samples
        if "challenger" in sample.name or "champion" in sample.name
    }
    other, third = run.snapshot.challengers.models
    assert samples["streamkernel_champion_info", "model"] == 1.0
    assert samples["streamkernel_challenger_metric", "Accuracy", "other"] == other.scores.ours
    assert samples["streamkernel_challenger_metric_recent", "Accuracy", "other"] == other.scores.recent[0]
    assert samples["streamkernel_challenger_events_total", "other", "judged"] == run.outcomes["learned"]
    assert samples["streamkernel_challenger_events_total", "third", "error"] == third.errors > 0
    assert samples["streamkernel_challenger_suspended", "third"] == 1.0
    assert samples["streamkernel_challenger_seconds_total", "other"] > 0.0
    rows = status_of(run)["models"]
    assert [(row["model"], row["role"]) for row in rows] == [
        ("model", "champion"),
        ("other", "challenger"),
        ("third", "suspended"),
    ]
    assert rows[1]["metric"] == other.scores.ours
    assert checkpoint_table(read_newest(tmp_path / "run" / "state") or {}) == rows
    with pytest.raises(PromotionError, match='"third" was suspended after'):
        promote(tmp_path / "run" / "state", "third")
    alone = engine(tmp_path / "alone", "class", candidates(lambda: linear_model.LogisticRegression()), state=None)
    assert status_of(alone)["models"] == []
    assert not [family for family in EngineCollector(alone).collect() if "challenger" in family.name]


def test_the_commands_of_the_page_work_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text, runner = PAGE.read_text(), CliRunner()
    for name, content in re.findall(r'```toml title="([\w.]+)"\n(.*?)```', text, re.DOTALL):
        (tmp_path / name).write_text(content)
    shown = ""
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            variables, _, arguments = command.partition("streamkernel ")
            given = dict(variable.split("=") for variable in variables.split())
            done = runner.invoke(app, shlex.split(arguments), env=given)
            assert done.exit_code == 0, (command, done.output)
            assert output.strip() in done.output
            shown = done.output
    rows = re.findall(r"(champion|challenger|promote|rollback) +(\w+)?", shown)
    assert [row[1] for row in rows if row[0] == "champion"] == ["model"]
    assert {row[0] for row in rows} == {"champion", "challenger", "promote", "rollback"}
