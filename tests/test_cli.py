"""The command line for users: in real processes for signals, pipes and ports, otherwise in this process."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import logging
import os
import pickle
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import Result
from forked import Process
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from river import preprocessing
from typer.testing import CliRunner
from waiting import LIMIT, wait_for

from streamkernel import (
    GaussianProcessRegressor,
    KernelClassifier,
    KernelMultiLabelClassifier,
    KernelNoveltyDetector,
    KernelRegressor,
    __version__,
    kernels,
    learners,
    load,
    save,
    step_sizes,
    tensor_file,
)
from streamkernel.cli import app
from streamkernel.commands.process import StopSignal
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.checkpoint.state_directory import StateDirectory, checkpoints, read_newest
from streamkernel.engine.config.config import load_config
from streamkernel.engine.runner import CREATED
from streamkernel.engine.telemetry import terminal
from streamkernel.jit import cache

CONFIG = """
label = "y"
ignore = ["id"]

[source]
path = "events.jsonl"
follow = true

[[preprocessing]]
type = "StandardScaler"

[model]
type = "KernelClassifier"
max_features = 512

[sink]
predictions = "predictions.jsonl"

[state]
directory = "state"
checkpoint_seconds = 0.2
"""


CHALLENGER = """
[[challengers]]
name = "other"
model = { type = "KernelClassifier", learner = "dsg", max_features = 128 }
"""


def command(*words: object) -> list[str]:
    return [sys.executable, "-c", "from streamkernel.cli import main; main()", *map(str, words)]


def call(*words: object, cwd: Path | None = None) -> Result:
    """Run a command in this process, as if started in a directory, and leave signals and logs as they were."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    root = logging.getLogger()
    before = root.handlers, root.level, structlog.get_config()
    try:
        with contextlib.chdir(cwd or Path.cwd()):
            return CliRunner().invoke(app, [str(word) for word in words])
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        root.handlers, level, config = before
        root.setLevel(level)
        structlog.configure(**config)


def log_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def events(n: int, seed: int = 5) -> str:
    rng = random.Random(seed)
    records = ({"id": i, "a": rng.gauss(0, 1), "b": rng.gauss(0, 1)} for i in range(n))
    return "".join(json.dumps(record | {"y": record["a"] * record["b"] > 0}) + "\n" for record in records)


def prepared(folder: Path, text: str, extra: str = "") -> Path:
    folder.mkdir()
    (folder / "events.jsonl").write_text(text)
    (folder / "config.toml").write_text(CONFIG + extra)
    return folder / "config.toml"


def predictions(folder: Path, state: Path | None = None) -> str:
    """Return the predictions of a run without the name of its state directory."""
    identity = ((state or folder / "state") / "identity").read_text()
    text = (folder / "predictions.jsonl").read_text()
    assert text.count(identity) == text.count("\n")
    return text.replace(identity, "")


def wait_for_lines(path: Path, lines: int) -> None:
    wait_for(lambda: path.exists() and path.read_bytes().count(b"\n") >= lines, what=lambda: f"{lines} in {path.name}")


def stop(process: Process, number: signal.Signals) -> int:
    process.send_signal(number)
    return process.wait(LIMIT)


def newest(folder: Path) -> tuple[Any, dict[str, bytes]]:
    description, tensors = tensor_file.read(checkpoints(folder / "state")[-1], "checkpoint")
    description["state"] = json.loads(json.dumps(description["state"]).replace(str(folder), "FOLDER"))
    return description, {name: tensor.tobytes() for name, tensor in tensors.items()}


def run_until(config: Path, lines: int) -> None:
    """Run in this process until there are so many predictions."""
    engine = engine_of(load_config(config))
    engine.run(stopping=lambda: engine.outcomes["predicted"] >= lines)


def test_stops_and_kills_change_no_result(tmp_path: Path) -> None:
    n = 8000
    text = events(n)
    whole, parts = (prepared(tmp_path / name, text, CHALLENGER) for name in ("whole", "parts"))
    (parts.parent / "events.jsonl").unlink()
    (parts.parent / "events.jsonl").hardlink_to(whole.parent / "events.jsonl")  # Positions say of which file they are.
    run_until(whole, n)
    for at, number, code in [(300, signal.SIGKILL, -9), (2000, signal.SIGTERM, 0), (4000, signal.SIGINT, 0)]:
        process = subprocess.Popen(command("run", parts), stderr=subprocess.DEVNULL, text=True)
        wait_for_lines(parts.parent / "predictions.jsonl", at)
        assert stop(process, number) == code
    run_until(parts, n)
    ours, theirs = predictions(parts.parent), predictions(whole.parent)
    assert ours.replace(str(parts.parent), "") == theirs.replace(str(whole.parent), "")
    assert ours.count("\n") == n
    assert newest(parts.parent) == newest(whole.parent)
    assert len(newest(whole.parent)[0]["models"]) == 2  # the challenger is in the checkpoint, too


def test_sighup_stops_a_run_like_sigterm(tmp_path: Path) -> None:
    config = prepared(tmp_path / "run", events(300), "[http]\nport = 0\n")
    config.write_text(config.read_text().replace("checkpoint_seconds = 0.2", "checkpoint_seconds = 1000"))
    unignored = functools.partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)  # nohup may have started the tests
    words = command("run", config)
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, preexec_fn=unignored) as process:
        assert process.stderr is not None
        address = next(found[0] for line in process.stderr if (found := re.search(r"http://\S+/metrics", line)))
        wait_for(lambda: samples(address).get("streamkernel_events_total{learned}") == 300)
        assert stop(process, signal.SIGHUP) == 0
    saved = read_newest(tmp_path / "run" / "state")
    assert saved is not None
    assert saved["outcomes"]["learned"] == 300


def test_a_run_rarely_looks_for_garbage(tmp_path: Path) -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(700, *before[1:])
        assert call("run", once(prepared(tmp_path / "run", events(20)))).exit_code == 0
        assert gc.get_threshold() == (CREATED, *before[1:])
    finally:
        gc.set_threshold(*before)


@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.default_int_handler])
def test_an_existing_sighup_handler_is_kept(before: Any) -> None:
    """Under nohup it is ignored, and on a cluster it changes the number of workers."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = [signal.getsignal(number) for number in numbers]
    try:
        signal.signal(signal.SIGHUP, before)
        StopSignal()
        assert signal.getsignal(signal.SIGHUP) == before
    finally:
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)


def test_a_closed_pipe_ends_the_run_with_a_one_line_message(tmp_path: Path) -> None:
    config = prepared(tmp_path / "run", events(5000))
    config.write_text(CONFIG.replace('"predictions.jsonl"', '"-"'))
    process = subprocess.Popen(command("run", once(config)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    _, said = process.communicate(timeout=180)
    assert process.returncode == 128 + signal.SIGPIPE
    assert said.count("standard output was closed") == 1
    assert "Error" not in said
    closed = f"exec {' '.join(map(shlex.quote, command('run', once(config))))} >&-"
    answer = subprocess.run(["sh", "-c", closed], stderr=subprocess.PIPE, text=True, check=False)
    errors = [line["event"] for line in log_lines(answer.stderr) if line["level"] == "error"]
    assert (answer.returncode, len(errors)) == (128 + signal.SIGPIPE, 1)


def once(config: Path) -> Path:
    """Return a copy of a configuration that ends at the end of the file."""
    copy = config.with_name("once.toml")
    copy.write_text(config.read_text().replace("follow = true", "follow = false"))
    return copy


def test_a_growing_file_is_followed_and_scraped(tmp_path: Path) -> None:
    config = prepared(tmp_path / "run", events(500), "[http]\nport = 0\n")
    began = time.monotonic()
    process = subprocess.Popen(command("run", config), stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        address = next(
            found for line in process.stderr if (found := re.search(r"http://127\.0\.0\.1:\d+/metrics", line))
        )
        with (tmp_path / "run" / "events.jsonl").open("a") as file:
            file.write(events(300, seed=6) + "half a li")
            file.flush()
            wait_for(lambda: samples(address[0]).get("streamkernel_events_total{learned}") == 800.0)
            file.write("ne\n")
            file.flush()
            wait_for(lambda: samples(address[0]).get("streamkernel_events_total{dead_letter}") == 1.0)
        found = samples(address[0])
        assert found["streamkernel_features"] == 512.0
        assert found["streamkernel_seeds"] == 4.0
        assert found["streamkernel_reused_total"] == 796.0
        assert 0.0 < found["streamkernel_objective"] < 1.0
        assert 0.5 < found["streamkernel_metric{Accuracy}"] <= 1.0
        assert found["streamkernel_event_seconds_count"] == 801.0
        assert found["streamkernel_consumer_lag{0," + str(tmp_path / "run" / "events.jsonl") + "}"] == 0.0
        assert 0.0 <= found["streamkernel_checkpoint_age_seconds"] < time.monotonic() - began
    finally:
        assert stop(process, signal.SIGTERM) == 0
        process.stderr.close()  # type: ignore[union-attr]


def samples(address: str) -> dict[str, float]:
    with urllib.request.urlopen(address, timeout=LIMIT) as answer:
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(sample.labels.values())
            found[sample.name + (f"{{{labels}}}" if labels else "")] = sample.value
    return found


def test_standard_input(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        'label = "y"\n[source]\npath = "-"\nformat = "jsonl"\n[model]\ntype = "KernelClassifier"\n'
    )
    text = events(200) + "{broken\n"
    answer = subprocess.run(
        command("run", tmp_path / "config.toml"), input=text, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert log_lines(answer.stderr)[-1]["events learned"] == "200"
    assert b"{broken" in (tmp_path / "dead_letters.jsonl").read_bytes()


def test_inspect_describes_the_model(tmp_path: Path) -> None:
    config = prepared(tmp_path / "run", events(400))
    assert call("run", once(config)).exit_code == 0
    answer = call("inspect", tmp_path / "run" / "state")
    assert answer.exit_code == 0
    for text in ("KernelClassifier", "512 in 4 blocks", "max_features = 512", "events learned", "400"):
        assert text in answer.stdout


def test_a_replay_gives_the_same_model_and_changes_no_other_file(tmp_path: Path) -> None:
    config = prepared(tmp_path / "run", events(400))
    assert call("run", once(config)).exit_code == 0
    before = {path: path.read_bytes() for path in config.parent.rglob("*") if path.is_file()}
    answer = call("replay", config, tmp_path / "again", cwd=tmp_path)
    assert answer.exit_code == 0, answer.stderr
    assert "events learned" in answer.stdout
    assert {path: path.read_bytes() for path in before} == before
    assert predictions(tmp_path / "again", tmp_path / "again") == predictions(config.parent)
    assert checkpoints(tmp_path / "again")
    for words, text in [
        ([config.parent / "state"], "expected another directory to replay into"),
        ([tmp_path / "third", "--start", "3"], "expected topics, of which a range can be replayed, got none"),
    ]:
        answer = call("replay", config, *words)
        assert (answer.exit_code, text in answer.stderr) == (2, True), answer.stderr


def test_a_saved_model_is_pruned_and_refitted(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text(events(500) + "{broken\n")
    model, hinge = KernelClassifier(learner="dsg", max_features=128), KernelClassifier(learner="dsg", loss="hinge")
    for line in events(500).splitlines():
        x = json.loads(line)
        y = x.pop("y")
        model.learn_one(x, y)
        hinge.learn_one(x, y)
    model.save(tmp_path / "model")
    hinge.save(tmp_path / "hinge")
    told = ["events.jsonl", "--label", "y", "-o", "other"]
    for command, text in [("prune", "other: 32 features of 128"), ("refit", "primal-dual gap")]:
        answer = call(command, "model", *told, cwd=tmp_path)
        assert (answer.exit_code, text in answer.stdout, "1 could not be used" in answer.stdout) == (0, True, True)
        assert "predict_proba_one" in dir(load(tmp_path / "other"))
    for command, what in [("prune", "pruned"), ("refit", "refitted")]:
        answer = call(command, tmp_path / "model", "events.jsonl", "--label", "y", cwd=tmp_path)
        assert (answer.exit_code, load(tmp_path / f"model.{what}").n_steps > 0) == (0, True), answer.stderr
    KernelClassifier().save(tmp_path / "second")
    KernelMultiLabelClassifier().save(tmp_path / "several")
    for words, text in [
        (["prune", "several", *told], "Expected a model of one target for Pruning("),
        (["refit", "several", *told], "got a KernelMultiLabelClassifier"),
        (["refit", "hinge", *told], "Expected a loss of square, logistic, smooth_hinge with refit, got Hinge()"),
        (["refit", "second", *told], "Expected two events or more"),
        (
            ["refit", "model", "events.jsonl", "--label", "z", "-o", "other"],
            'with the label "z", got 0 - in events.jsonl',
        ),
        (["prune", "model", *told, "--keep", "0.9"], "Expected 0 < keep <= 0.5, got 0.9"),
        (["prune", "nowhere", *told], "Expected a model file, found none - at nowhere"),
        (["prune", "events.jsonl", *told], "Expected a complete safetensors file"),
        (["prune", "model", "nothing.csv", "--label", "y", "-o", "other"], "nothing.csv"),
    ]:
        answer = call(*words, cwd=tmp_path)
        assert (answer.exit_code, text in answer.stderr.replace("\n", "")) == (2, True), answer.stderr
        assert "Traceback" not in answer.stderr


def test_the_model_of_a_run_is_exported_and_maintained(tmp_path: Path) -> None:
    config = prepared(tmp_path / "run", events(600))
    assert call("run", once(config)).exit_code == 0
    state = config.parent / "state"
    saved = read_newest(state)
    assert saved is not None
    x = {"a": 0.3, "b": -0.2}
    expected = saved["model"].predict_proba_one(x)
    answer = call("export", state, "-o", "model", cwd=tmp_path)
    assert (answer.exit_code, answer.stdout) == (0, "model: OnFields | KernelClassifier\n")
    for place in (state, tmp_path / "model"):
        assert load(place).predict_proba_one(x) == expected
    alone = prepared(tmp_path / "alone", events(600))
    alone.write_text(re.sub(r"\[\[preprocessing\]\]\n.*\n", "", CONFIG))
    assert call("run", once(alone)).exit_code == 0
    assert call("export", alone.parent / "state", "-o", "single", cwd=tmp_path).exit_code == 0
    assert isinstance(load(tmp_path / "single"), KernelClassifier)
    twin = load(tmp_path / "single")
    twin.learn_one(x, True)
    twin.save(tmp_path / "twin")
    assert call("merge", "single", "twin", "-o", "both", cwd=tmp_path).exit_code == 0
    assert call("merge", "single", "twin", cwd=tmp_path).exit_code == 0
    merged, both = (load(tmp_path / name) for name in ("merged.safetensors", "both"))
    assert merged.predict_proba_one(x) == both.predict_proba_one(x)
    assert call("export", state, cwd=tmp_path).exit_code == 0
    assert load(tmp_path / "model.safetensors").predict_proba_one(x) == expected
    for words, text in [
        (
            ["export", "nowhere", "-o", "other"],
            "Expected a state directory or the file of a model, found none - at nowhere",
        ),
        (["export", ".", "-o", "other"], "Expected a state directory with a checkpoint, got none - at ."),
        (["merge", "model", "single", "-o", "other"], "got a pipeline - in model"),
    ]:
        answer = call(*words, cwd=tmp_path)
        assert (answer.exit_code, text in answer.stderr.replace("\n", "")) == (2, True), answer.stderr


def test_the_model_in_an_exported_pipeline_is_refitted_on_transformed_events(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text(events(500))
    model = preprocessing.StandardScaler() | KernelClassifier(learner="dsg", max_features=64)
    for line in events(500).splitlines():
        x = json.loads(line)
        y = x.pop("y")
        model.learn_one(x, y)
    save(model, tmp_path / "model")
    answer = call("refit", "model", "events.jsonl", "--label", "y", "-o", "other", cwd=tmp_path)
    assert (answer.exit_code, "primal-dual gap" in answer.stdout) == (0, True), answer.output
    other = load(tmp_path / "other")
    assert other["StandardScaler"].means == model["StandardScaler"].means
    right = sum(other.predict_one({"a": a, "b": b}) == (a * b > 0) for a in (-1.5, -0.8, 0.8, 1.5) for b in (-1.0, 1.0))
    assert right >= 6


def test_saved_models_are_merged(tmp_path: Path) -> None:
    base = KernelClassifier(kernels.Gaussian(1.0), learner="dsg", max_features=128)
    base.learn_one({"a": 1.0}, "no")
    parts = [pickle.loads(pickle.dumps(base)) for _ in range(2)]
    for model, n, label in zip(parts, (40, 1200), ("yes", "perhaps"), strict=True):
        for line in events(n, seed=n).splitlines():
            x = json.loads(line)
            model.learn_one(x, label if x.pop("y") else "no")
    for name, model in {"base": base, "a": parts[0], "b": parts[1]}.items():
        model.save(tmp_path / name)
    answer = call("merge", "a", "b", "-o", "both", "--base", "base", cwd=tmp_path)
    assert answer.stdout == (
        "both: 1,241 events (41 - in a, 1,201 - in b), 128 features, labels 'no', 'yes', 'perhaps'\n"
    )
    both, expected = load(tmp_path / "both"), parts[0].merge(parts[1], base=base)
    assert both.predict_proba_one({"a": 0.5, "b": 0.5}) == expected.predict_proba_one({"a": 0.5, "b": 0.5})
    assert call("merge", "b", "both", "-o", "b", cwd=tmp_path).exit_code == 0
    GaussianProcessRegressor().save(tmp_path / "process")
    novelty = KernelNoveltyDetector()
    novelty.save(tmp_path / "novelty")
    novelty.learn_one({"a": 1.0})
    novelty.save(tmp_path / "novel")
    KernelRegressor(kernels.Gaussian(1.0), learner="dsg", max_features=128).save(tmp_path / "regressor")
    KernelClassifier(kernels.Gaussian(1.0), learner="dsg", max_features=128, seed=7).save(tmp_path / "seed")
    before = (tmp_path / "a").read_bytes()
    for words, text in [
        (["a", "seed", "a"], "Expected models that learned separate events, got one twice - at a and a"),
        (["a"], "Expected two models or more to merge, got 1"),
        (["a", "nowhere"], "Expected a model file, found none - at nowhere"),
        (["a", "b", "--base", "nowhere"], "Expected a model file, found none - at nowhere"),
        (["a", "process"], "Expected a classifier or a regressor, got a GaussianProcessRegressor - in process"),
        (["novelty", "novel"], "Expected classifiers or regressors to merge, got a KernelNoveltyDetector"),
        (["a", "regressor"], "Expected models of the same class, got 'KernelClassifier' and 'KernelRegressor'"),
        (["a", "seed"], "Expected models of the same seed, got 0 and 7"),
        (["a", "b", "--base", "both"], "Expected models that continued from one of 1241 examples, got one of 41"),
    ]:
        answer = call("merge", *words, "-o", "a", cwd=tmp_path)
        assert (answer.exit_code, text in answer.stderr.replace("\n", "")) == (2, True), answer.stderr
        assert "Traceback" not in answer.stderr
    assert (tmp_path / "a").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["inspect", "nowhere"], "Expected a state directory, found none - at nowhere"),
        (["inspect", "."], "Expected a checkpoint, found none - in ."),
        (["run", "nowhere.toml"], "nowhere.toml"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, words: list[str], text: str) -> None:
    answer = call(*words, cwd=tmp_path)
    assert answer.exit_code == 2
    assert text in answer.stderr
    assert "Traceback" not in answer.stderr


def test_check_reports_every_problem_without_running(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        'label = "y"\n[source]\npath = "events.jsonl"\nfolow = true\n[model]\ntype = "KernelClasifier"\n[state]\n'
        'directory = "state"\ncheckpoint_seconds = "often"\n'
    )
    answer = call("run", "--check", config)
    assert answer.exit_code == 2
    for text in ("source.folow", "follow", "model.type", "KernelClassifier", "state.checkpoint_seconds", 'got "often"'):
        assert text in answer.stderr
    assert not (tmp_path / "state").exists()
    config.write_text(CONFIG)
    (tmp_path / "events.jsonl").write_text("")
    answer = call("run", "--check", config)
    assert answer.exit_code == 0
    assert answer.stdout.splitlines() == [
        f"{config} is valid",
        "note: the source has no records yet",
    ]
    assert not (tmp_path / "state").exists()


def test_another_model_in_an_old_state_directory_is_refused(tmp_path: Path) -> None:
    config = prepared(tmp_path / "run", events(50))
    assert call("run", once(config)).exit_code == 0
    config.write_text(CONFIG.replace("512", "256"))
    answer = call("run", once(config))
    assert answer.exit_code == 2
    assert "512" in answer.stderr
    assert "256" in answer.stderr


def test_check_reports_conflicts_with_the_state_directory(tmp_path: Path) -> None:
    config = once(prepared(tmp_path / "run", events(300)))
    text = config.read_text()
    assert call("run", config).exit_code == 0
    content = {path.name: path.read_bytes() for path in (tmp_path / "run" / "state").iterdir()}
    for old, new, problem in [
        ("= 512", "= 256", "Expected the setup the state directory was made with, model = "),
        ('path = "events.jsonl"', 'path = "other.jsonl"', 'source: expected a position of "'),
        ('"predictions.jsonl"', '"short.jsonl"', "sink.predictions: expected at least the "),
    ]:
        (tmp_path / "run" / "other.jsonl").write_text(events(1))
        config.write_text(text.replace(old, new))
        answer = call("run", "--check", config)
        assert (answer.exit_code, problem in answer.stderr) == (2, True), answer.output
    config.write_text(text)
    with StateDirectory(tmp_path / "run" / "state"):
        answer = call("run", "--check", config)
    assert answer.stdout.startswith(f"{config} is valid, but the state directory is locked by another process")
    answer = call("run", "--check", config)
    assert (answer.exit_code, answer.stdout.splitlines()[0]) == (0, f"{config} is valid")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run" / "state").iterdir()} == content


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('[{"a": 1, "y": 1}]\n', "source.path: expected a JSON object, got an array - at line 1 of {}/events.jsonl"),
        ("a,y\n1,2\n", "source.path: expected valid JSON, got unexpected character, "),
        ('{"a": 1, "y": 1}\n', None),
        ('[1]\n{"a": 1, "y": 1}\n', None),
    ],
)
def test_check_reports_a_file_of_which_no_record_can_be_read(tmp_path: Path, content: str, problem: str | None) -> None:
    answer = call("run", "--check", once(prepared(tmp_path / "run", content)))
    assert answer.exit_code == (0 if problem is None else 2)
    assert (problem or "").format(tmp_path / "run") in answer.stderr


def test_a_followed_file_may_begin_with_half_a_line(tmp_path: Path) -> None:
    config = prepared(tmp_path / "run", '{"a": 1, "y"')
    assert "follow = true" in config.read_text()
    assert call("run", "--check", config).exit_code == 0


@pytest.mark.parametrize(
    ("key", "place", "problem"),
    [
        ("predictions", "nowhere/p.jsonl", "expected a file in a directory that exists, got none: {}/nowhere"),
        ("dead_letters", ".", "expected a file, got a directory: {}"),
    ],
)
def test_check_reports_a_place_where_no_result_can_be(tmp_path: Path, key: str, place: str, problem: str) -> None:
    config = once(prepared(tmp_path / "run", events(3)))
    config.write_text(config.read_text().replace('predictions = "predictions.jsonl"', f'{key} = "{place}"'))
    answer = call("run", "--check", config)
    assert answer.exit_code == 2
    assert answer.stderr == f"streamkernel: sink.{key}: {problem.format(tmp_path / 'run')}\n"


@pytest.mark.parametrize("is_link", [False, True])
def test_a_state_directory_that_is_none_is_named_by_check_and_start(tmp_path: Path, is_link: bool) -> None:
    config = once(prepared(tmp_path / "run", events(3)))
    state = tmp_path / "run" / "state"
    state.symlink_to("nowhere") if is_link else state.write_text("")
    for words, where in ((["--check"], "state.directory: expected a directory"), ([], "Expected a directory")):
        answer = call("run", *words, config)
        assert answer.exit_code == 2
        assert f"{where}, got a file or a link to nothing" in answer.stderr


def test_check_connects_to_brokers(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    config.write_text(
        f'label = "y"\n[kafka]\nservers = "127.0.0.1:{port}"\noptions = {{ bootstrap_timeout_ms = 500 }}\n'
        '[source]\ntopics = ["a"]\n[model]\ntype = "KernelClassifier"\n[state]\ndirectory = "state"\n'
    )
    assert call("run", "--check", config).exit_code == 0
    answer = call("run", "--check", "--connect", config)
    assert (answer.exit_code, f"kafka: Kafka at 127.0.0.1:{port} cannot be reached" in answer.stderr) == (2, True)
    assert call("run", "--connect", config).stderr == "streamkernel: --connect needs --check\n"


def test_output_without_a_terminal_is_json(tmp_path: Path) -> None:
    config = once(prepared(tmp_path / "run", events(300) + "{broken\n", "[http]\nport = 0\n"))
    text = config.read_text().replace("checkpoint_seconds = 0.2", "checkpoint_seconds = 0.001")
    config.write_text(text + '[log]\nlevel = "debug"\n')
    environment = {**os.environ, "STREAMKERNEL_HTTP_TOKEN": "do-not-show"}
    answer = subprocess.run(command("run", config), capture_output=True, text=True, check=True, env=environment)
    lines = log_lines(answer.stderr)
    assert all({"event", "level", "timestamp"} <= line.keys() for line in lines)
    said = [line["event"] for line in lines]
    start = lines[said.index("starting")]
    assert (start["configuration"]["model"]["max_features"], bool(start["version"])) == (512, True)
    assert any(event.startswith("live page at http://127.0.0.1:") for event in said)
    written = [line for line in lines if line["event"] == "checkpoint written"]
    assert [line["level"] for line in written[:2]] == ["info", "debug"]
    assert (said[-1], lines[-1]["events learned"], lines[-1]["dead letters"]) == ("the run has ended", "300", "1")
    assert "do-not-show" not in answer.stderr
    config.write_text(text + '[log]\nlevel = "warning"\n')
    answer = call("run", config)
    assert (answer.exit_code, answer.stderr) == (0, "")
    config.write_text(text + '[log]\nlevel = "loud"\n')
    (error,) = log_lines(call("run", config).stderr)
    assert (error["level"], error["event"]) == (
        "error", 'log.level: expected "debug", "info", "warning" or "error", got "loud"'
    )  # fmt: skip


def test_a_model_that_cannot_learn_synthetic_examples_starts() -> None:
    steep = KernelRegressor(learner=learners.DSG(step_size=step_sizes.Constant(1e200)))
    terminal.compile_for(steep, Console(quiet=True))
    assert steep.n_steps == 0


def test_the_version_is_printed() -> None:
    answer = call("--version")
    assert (answer.exit_code, answer.output, answer.output.strip()) == (0, f"{__version__}\n", version("streamkernel"))


def test_compilation_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(KernelClassifier, "learn_one", lambda *example: cache._announce.__wrapped__())
    with caplog.at_level(logging.INFO, "streamkernel"):
        terminal.compile_for(KernelClassifier(), Console(quiet=True))
    assert "compiling for this machine" in caplog.text


def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        answer = call("run", prepared(tmp_path / "run", events(10), f"[http]\nport = {port}\n"))
    assert answer.exit_code == 2
    assert f"127.0.0.1:{port}" in answer.stderr


def test_the_demo_leaves_a_plot_and_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    answer = call("demo", "--events", 1500, "--directory", tmp_path / "demo")
    assert answer.exit_code == 0, answer.stderr
    assert (tmp_path / "demo" / "demo.png").read_bytes().startswith(b"\x89PNG")
    model = load(tmp_path / "demo" / "model-1.safetensors")
    assert 512 <= model.n_features <= 4096
    assert len((tmp_path / "demo" / "predictions-2.jsonl").read_bytes().splitlines()) == 1500
    assert "LogisticRegression, last 1,000" in answer.stderr


def test_the_demo_runs_without_matplotlib_and_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("streamkernel.KernelClassifier", lambda: KernelClassifier(learner="dsg", max_features=64))
    answer = call("demo", "--events", 1000, "--directory", tmp_path / "demo")
    assert answer.exit_code == 0, answer.stderr
    assert not (tmp_path / "demo" / "demo.png").exists()
    assert "pip install 'streamkernel[plot]'" in answer.stderr
    assert load(tmp_path / "demo" / "model-2.safetensors").n_features


def test_a_label_missing_from_all_records_is_reported(tmp_path: Path) -> None:
    config = prepared(tmp_path / "run", events(150).replace('"y"', '"ys"'))
    answer = call("run", "--check", config)
    assert answer.exit_code == 2
    assert 'label: expected a field of the records, got "y"; did you mean "ys"?; ' in answer.stderr
    assert answer.stderr.strip().endswith('events.jsonl has "id", "a", "b", "ys"')
    answer = call("run", once(config))
    assert answer.exit_code == 1
    lines = log_lines(answer.stderr)
    assert [line["event"].startswith("every record so far was refused, 100 in all") for line in lines].count(True) == 1
    assert lines[-1]["event"].endswith('(150 label); the last one: Expected a label, got no such field - at field "y"')
    assert lines[-2]["events/s"] == "–"
    assert checkpoints(tmp_path / "run" / "state")


def test_the_rate_is_unknown_after_a_restart_without_events(tmp_path: Path) -> None:
    config = once(prepared(tmp_path / "run", events(50)))
    for rate in (r"[0-9,]+", "–"):
        answer = call("run", config)
        assert answer.exit_code == 0
        assert re.fullmatch(rate, log_lines(answer.stderr)[-1]["events/s"])
