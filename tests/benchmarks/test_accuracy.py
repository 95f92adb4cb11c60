"""The accuracy benchmark: its scenarios, the counted events, the stored results, and the definition of a loss."""

from __future__ import annotations

import itertools
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import base, datasets, dummy, evaluate, metrics
from sklearn.datasets import load_wine
from sklearn.kernel_ridge import KernelRidge

from benchmarks import accuracy, accuracy_picture, accuracy_tables, compare, prequential, store
from benchmarks.models import BASELINES, MODELS, OURS, Size
from benchmarks.rivals import exact, moa, vowpal
from benchmarks.scenarios import (
    CLASSES,
    HELD_OUT,
    NUMBERS,
    RANKED,
    SCENARIOS,
    Event,
    Scenario,
    filled,
    numbers,
    with_binary_labels,
)
from streamkernel import KernelRegressor

NOWHERE = Path("nowhere")
STORED = store.Result(0.9, 100, 100, 100, 1.0, "library 1", "machine")


@pytest.mark.parametrize(
    ("name", "count", "inputs"),
    [("phishing", 1250, 9), ("bananas", 5300, 2), ("image_segments", 2310, 18), ("digits", 1797, 64), ("wine", 178, 13),
     ("sea_abrupt", 20_000, 3), ("friedman_gradual", 20_000, 10), ("trump_approval", 1001, 6)],
)  # fmt: skip
def test_a_scenario_has_its_events_each_time(name: str, count: int, inputs: int) -> None:
    first, second = (SCENARIOS[name].events(NOWHERE) for _ in range(2))
    assert first == second
    assert (len(first), len(first[0][0])) == (count, inputs)
    assert all(isinstance(v, float) for x, _ in first for v in x.values())


def test_the_limits_give_a_score_with_and_without_the_first_event() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs" / "explanation" / "limits.md").read_text().split())
    without = re.search(r"On trump_approval .*?; ours has ([\d.]+)", page)
    counted = re.search(r"`progressive_val_score`, which counts it, gives ours ([\d.]+)", page)
    assert without
    assert counted
    events, model = list(datasets.TrumpApproval()), KernelRegressor()
    found, *_ = prequential.stream(KernelRegressor, SCENARIOS["trump_approval"], events, 600.0, lambda n: None)
    assert found == pytest.approx(float(without[1]), abs=0.001)
    found = evaluate.progressive_val_score(events, model, metrics.R2()).get()
    assert found == pytest.approx(float(counted[1]), abs=0.001)


def test_an_abrupt_drift_is_two_streams_one_after_the_other() -> None:
    joined, first = (SCENARIOS[name].events(NOWHERE) for name in ("rbf_abrupt", "random_rbf"))
    assert joined[:10_000] == first[:10_000]
    assert joined[10_000:20_000] != first[10_000:20_000]


def test_a_small_table_is_evaluated_in_ten_orders() -> None:
    small = {name: one for name, one in SCENARIOS.items() if one.orders > 1}
    assert sorted(small) == ["breast_cancer", "diabetes", "digits", "phishing", "wine"]
    wine = small["wine"]
    orders = [tuple(tuple(x.values()) for x, _ in wine.events(NOWHERE, order)) for order in range(wine.orders)]
    assert len(set(orders)) == 10
    assert {tuple(sorted(order)) for order in orders} == {tuple(sorted(orders[0]))}
    assert wine.events(NOWHERE, 3) == wine.events(NOWHERE, 3)


def test_a_result_of_several_orders_is_their_mean() -> None:
    found = [prequential.Found(score, 10, 10, took) for score, took in ((0.5, 1.0), (0.8, 3.0))]
    whole = accuracy.joined(found, 10, "library 1")
    assert (whole.score, whole.seconds, whole.orders) == (pytest.approx(0.65), 2.0, (0.5, 0.8))
    assert accuracy.joined(found[:1], 10, "library 1").orders == ()
    assert accuracy.joined([*found, found[0]._replace(score=np.nan)], 10, "library 1").score is None
    assert accuracy_tables.cell(whole, SCENARIOS["wine"]).splitlines()[:2] == ["0.6500", "±0.2121"]


def test_a_table_is_shuffled_with_its_targets() -> None:
    X, y = load_wine(return_X_y=True)
    known = {tuple(row): target for row, target in zip(X.tolist(), y.tolist(), strict=True)}
    assert len(known) == len(X)
    for x, target in SCENARIOS["wine"].events(NOWHERE):
        assert known.pop(tuple(x.values())) == target


def test_rivals_get_a_zero_for_absent_indicators() -> None:
    events: list[Event] = [({"a": 1.0, "c=red": 1.0}, 0), ({"a": 2.0, "c=blue": 1.0}, 1)]
    assert filled(events) == [
        ({"a": 1.0, "c=red": 1.0, "c=blue": 0.0}, 0),
        ({"a": 2.0, "c=red": 0.0, "c=blue": 1.0}, 1),
    ]
    assert events[0][0] == {"a": 1.0, "c=red": 1.0}


def test_two_labels_that_are_text_are_false_and_true() -> None:
    events: list[Event] = [({"a": 1.0}, "yes"), ({"a": 2.0}, "no")]
    assert with_binary_labels(events) == [({"a": 1.0}, True), ({"a": 2.0}, False)]
    for others in ([*events, ({"a": 3.0}, "maybe")], [({"a": 1.0}, 0), ({"a": 2.0}, 1)]):
        assert with_binary_labels(others) == others


def test_strings_are_indicators() -> None:
    assert numbers({"a": 2, 3: True, "c": "red"}) == {"a": 2.0, "3": 1.0, "c=red": 1.0}


@pytest.mark.parametrize(("task", "classes"), [(CLASSES, 2), (CLASSES, 3), (NUMBERS, 0)])
def test_every_model_learns(task: str, classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vowpal, "workspace", Lines)
    generator = np.random.default_rng(1)
    for make in MODELS[task].values():
        model = make(Size(2, classes))
        for a, b in generator.normal(size=(30, 2)).tolist():
            y: Any = a + b if task == NUMBERS else int(generator.integers(classes))
            model.predict_one({"a": a, "b": b})
            model.learn_one({"a": a, "b": b}, y)
        found = model.predict_one({"a": 0.1, "b": 0.2})
        assert found in range(classes) if task == CLASSES else np.isfinite(found)


class Lines:
    """Replaces Vowpal Wabbit: keeps the lines that it learns, and predicts the last label."""

    def __init__(self, options: str = "") -> None:
        self.options = options
        self.lines: list[str] = []

    def learn(self, line: str) -> None:
        self.lines.append(line)

    def predict(self, line: str) -> float:
        assert line.startswith("| ")
        return float(self.lines[-1].split()[0]) if self.lines else 0.0


def test_vowpal_gets_events_in_its_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vowpal, "workspace", Lines)
    two, three, number = (
        vowpal.VowpalClassifier("--nn 5"),
        vowpal.VowpalClassifier("", classes=3),
        vowpal.VowpalRegressor("--nn 5"),
    )
    for y in ("no", "yes", "no"):
        two.learn_one({"a": 0.25, "b": -1e-9}, y)
        assert two.predict_one({}) == y
    assert two._learner.lines == [f"{label} | a:0.25 b:-1e-09" for label in (-1, 1, -1)]
    assert two.predict_proba_one({}) == pytest.approx({"no": 1 / (1 + np.exp(-1)), "yes": 1 / (1 + np.exp(1))})
    for y in ("p", "q", "r", "q"):
        three.learn_one({"a": 1.0}, y)
        assert three.predict_one({}) == y
    assert three._learner.lines == [f"{label} | a:1" for label in (1, 2, 3, 2)]
    assert three._learner.options.endswith("--oaa 3")
    number.learn_one({"a": 1.0}, -2.5)
    assert number._learner.lines == ["-2.5 | a:1"]
    assert number.predict_one({}) == -2.5


class Remembers(base.Classifier):
    """Predicts the number of events it has learned."""

    def __init__(self) -> None:
        self.learnt = 0

    def learn_one(self, x: dict[str, float], y: int) -> None:
        self.learnt += 1

    def predict_one(self, x: dict[str, float]) -> int:
        return self.learnt


def run(scenario: Scenario, events: list[Event], budget: float = 1e9) -> tuple[float, int, int, float]:
    return prequential.stream(Remembers, scenario, events, budget, lambda n: None)


def test_an_event_is_predicted_before_it_is_learned() -> None:
    events = [({"a": 0.0}, i if i % 4 else -1) for i in range(400)]
    score, done, tested, _ = run(Scenario(RANKED, CLASSES, lambda folder: []), events)
    assert (score, done, tested) == (0.75, 400, 400)


def test_held_out_events_are_only_predicted() -> None:
    events = [({"a": 0.0}, 300)] * 400
    score, done, tested, _ = run(Scenario(RANKED, CLASSES, lambda folder: [], held_back=100), events)
    assert (score, done, tested) == (1.0, 300, 100)


def test_r2_begins_with_the_second_event() -> None:
    events = [({"a": 0.0}, y) for y in (1e6, 1.0, 2.0, 4.0)]
    score, *_ = run(Scenario(RANKED, NUMBERS, lambda folder: []), events)
    assert score == pytest.approx(1.0 - 1.0 / np.sum((np.array([1.0, 2.0, 4.0]) - 7 / 3) ** 2))


def test_the_budget_ends_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()  # a second between any two looks at it: a part takes one
    monkeypatch.setattr(prequential.time, "process_time", lambda: float(next(clock)))
    events = [({"a": 0.0}, 0)] * 10_000
    _, done, tested, took = run(Scenario(RANKED, CLASSES, lambda folder: []), events, budget=3.0)
    assert (done, tested, took) == (3 * prequential.PART, 3 * prequential.PART, 3.0)
    _, done, tested, _ = run(Scenario(RANKED, CLASSES, lambda folder: [], held_back=5000), events, budget=6.0)
    assert (done, tested) == (6 * prequential.PART, 2 * prequential.PART)


def test_baselines_match_their_names() -> None:
    labels = [int(y) for y in np.random.default_rng(1).integers(0, 3, 500)]
    events: list[Event] = [({"a": 0.0}, y) for y in labels]
    size, scenario = Size(1, 3), Scenario(RANKED, CLASSES, lambda folder: [])

    def score(name: str) -> float:
        return prequential.stream(lambda: MODELS[CLASSES][name](size), scenario, events, 1e9, lambda n: None)[0]

    assert score("last label") == np.mean(np.diff(labels) == 0) * 499 / 500
    right = 0
    for i, y in enumerate(labels):
        seen = Counter(labels[:i])
        right += bool(seen) and y in [c for c in seen if seen[c] == max(seen.values())]
    assert score("majority") == pytest.approx(right / 500, abs=0.05)  # ties go either way


def test_models_are_selected_by_name_part_and_group() -> None:
    groups = {"held-out": [name for name in SCENARIOS if SCENARIOS[name].group == HELD_OUT]}
    assert accuracy.chosen("all", SCENARIOS, groups) == list(SCENARIOS)
    assert accuracy.chosen("held-out", SCENARIOS, groups) == groups["held-out"]
    assert accuracy.chosen("a9a,rbf", SCENARIOS, {}) == [
        "a9a", "random_rbf", "rbf_abrupt", "rbf_gradual", "rbf_moving", "moa_rbf", "moa_rbf_m", "moa_rbf_f"
    ]  # fmt: skip


@pytest.fixture(name="command")
def of_small_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Run the command on wine, with dummies for ours and one rival; neither Vowpal Wabbit nor Java is installed."""
    runs: list[str] = []

    def counted(name: str) -> Any:
        return lambda size: runs.append(name) or dummy.NoChangeClassifier()

    small = {name: counted(name) for name in (OURS[CLASSES], "rival", *BASELINES[CLASSES])}
    models = {CLASSES: small | {"VW linear": MODELS[CLASSES]["VW linear"]}}
    for module in (accuracy, accuracy_tables):
        monkeypatch.setattr(module, "MODELS", models)
    monkeypatch.setattr(moa, "LEARNERS", {CLASSES: {"MOA learner": moa.Learner("no.Learner")}})
    monkeypatch.setattr(moa.shutil, "which", lambda name: None)
    monkeypatch.setitem(sys.modules, "vowpalwabbit", None)
    monkeypatch.setattr(store, "newest", dict)

    def command(*options: str) -> tuple[list[str], store.Results]:
        runs.clear()
        given = ["--data", str(tmp_path), "--results", str(tmp_path / "0.json"), *options]
        monkeypatch.setattr(sys, "argv", ["accuracy", *given])
        accuracy.main()
        return sorted(set(runs)), store.read(tmp_path / "0.json")

    return command


def test_rivals_are_run_once_and_ours_always(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    every = ["KernelClassifier()", "last label", "majority", "rival"]
    ran, first = command("--scenarios", "wine")
    assert ran == every
    assert sorted(first["wine"]) == every
    printed = capsys.readouterr().out
    assert "vowpalwabbit is not installed" in printed
    assert "java is not installed" in printed
    assert f"{first['wine']['rival'].score:.4f}" in printed
    ran, second = command("--scenarios", "wine")
    assert ran == every[:1]
    assert second["wine"]["rival"] == first["wine"]["rival"]
    assert command("--scenarios", "wine", "--again")[0] == every
    assert command("--scenarios", "wine", "--models", "none")[0] == []


def test_a_missing_file_is_reported(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    command("--scenarios", "elec2,wine")
    assert "elec2.csv.gz" in capsys.readouterr().out


def test_a_new_release_begins_with_the_results_of_the_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(store, "FOLDER", tmp_path)
    monkeypatch.setattr(store, "path", lambda: tmp_path / "0.11.0.json")
    assert store.newest() == {}
    for name, score in (("0.9.0", 0.1), ("0.10.0", 0.2)):
        store.write({"wine": {"rival": replace(STORED, score=score)}}, tmp_path / f"{name}.json")
    assert store.newest()["wine"]["rival"].score == 0.2


def test_the_file_is_that_of_this_release() -> None:
    assert store.path().parent.name == "results"
    assert f'version = "{store.path().stem}"' in Path("pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("change", "lost"),
    [({}, []), ({"score": 0.896}, []), ({"score": 0.894}, ["accuracy"]), ({"score": None}, ["accuracy"]),
     ({"seconds": 1.4}, []), ({"seconds": 1.6}, ["speed"]), ({"seconds": 1.6, "machine": "other"}, []),
     ({"score": 0.5, "events": 90, "tested": 90}, [])],
)  # fmt: skip
def test_losses_are_reported(change: dict[str, Any], lost: list[str]) -> None:
    new = {"wine": {"a": replace(STORED, **change)}}
    assert [row[2] for row in compare.losses({"wine": {"a": STORED}}, new, 0.5, 1.5)] == lost
    assert [row[2] for row in compare.losses({"wine": {"a": STORED}}, {}, 0.5, 1.5)] == ["result"]


def test_a_loss_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, score in (("old", 0.9), ("new", 0.8)):
        store.write({"wine": {"a": replace(STORED, score=score)}}, tmp_path / f"{name}.json")
    monkeypatch.setattr(sys, "argv", ["compare", str(tmp_path / "new.json"), str(tmp_path / "old.json")])
    compare.main()
    monkeypatch.setattr(sys, "argv", ["compare", str(tmp_path / "old.json"), str(tmp_path / "new.json")])
    with pytest.raises(SystemExit, match="1"):
        compare.main()


def test_exact_machines_are_tuned_and_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, rows in (("RIDGE_ROWS", 300), ("SVM_ROWS", 300), ("TUNED_ON", 150), ("TUNED_BY", 100)):
        monkeypatch.setattr(exact, name, rows)
    generator = np.random.default_rng(1)
    X = generator.normal(size=(400, 2)) * [1.0, 30.0] + 5.0
    y = 100.0 + 20.0 * np.sin(X[:, 0]) + X[:, 1] + 0.1 * generator.normal(size=400)
    found = exact.ridge(X, y)()(X[300:])
    Z, mean = (X - X[:300].mean(axis=0)) / X[:300].std(axis=0), y[:300].mean()
    candidates = [
        KernelRidge(alpha=l2, kernel="rbf", gamma=0.25 / sigma**2).fit(Z[:300], y[:300] - mean).predict(Z[300:]) + mean
        for sigma in (0.25, 0.5, 0.71, 1.0, 1.41)
        for l2 in (1e-3, 1e-2, 0.1, 1.0)
    ]
    assert min(np.abs(found - one).max() for one in candidates) < 1e-6
    assert np.corrcoef(found, y[300:])[0, 1] > 0.99
    right = (X[:, 0] - 5.0) * (X[:, 1] - 5.0) > 0.0
    assert np.mean(exact.svm(X, right)()(X[300:]) == right[300:]) > 0.7


def test_the_picture_is_of_mean_distances_and_times() -> None:
    def of(score: float, seconds: float) -> store.Result:
        return replace(STORED, score=score, seconds=seconds)

    results = {
        "bananas": {"KernelClassifier()": of(0.9, 1e-4), "GaussianNB": of(0.8, 4e-4), "majority": of(0.99, 1.0),
                    "KNNClassifier": of(0.8, 1e-4)},
        "phishing": {"KernelClassifier()": of(0.7, 4e-4), "GaussianNB": of(-3.0, 4e-4)},
        "wine": {"KernelClassifier()": of(0.1, 1.0)},
    }  # fmt: skip
    found = accuracy_picture.points(results, CLASSES)
    assert found["KernelClassifier()"] == pytest.approx((2.0, 0.0))
    assert found["GaussianNB"] == pytest.approx((4.0, (10.0 + accuracy_picture.MOST) / 2))
    assert len(found) == 2
