"""Examples that are predicted and learned in one compiled call: the bits of one after the other."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from streams import content

from streamkernel import KernelClassifier, KernelRegressor, kernels, learners, losses, rules, step_sizes
from streamkernel.estimators.internals import answers_of, predict_and_learn
from streamkernel.features import directions
from streamkernel.features.dictionaries import FAST
from streamkernel.second_order import bandwidths, growth, mixture_state

UNIT = kernels.Gaussian(1.0)
LARGEST = 1e100

CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "default": lambda: KernelClassifier(learner="dsg", max_features=64),
    "growing": lambda: KernelClassifier(UNIT, learner=learners.DSG(features_per_seed=16), max_features=None),
    "averaged": lambda: KernelClassifier(
        UNIT, learner=learners.DSG(averaging=True, step_size=step_sizes.InverseTime(1.0)), max_features=64
    ),
    "reused": lambda: KernelClassifier(UNIT, learner=learners.DSG(rule=rules.UDSG(1, 1)), max_features=64),
    "hinge": lambda: KernelClassifier(UNIT, learner="dsg", loss="hinge", max_features=64),
    "newton": lambda: KernelClassifier(learner=learners.Newton(features_per_seed=8), max_features=128),
    "newton, one group": lambda: KernelClassifier(UNIT, learner=learners.Newton(joint=True), max_features=32),
}


@pytest.fixture(autouse=True)
def early_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin larger groups of second-order models early."""
    monkeypatch.setattr(growth, "FROM", 256)
    monkeypatch.setattr(bandwidths, "PROBED", 256)


def examples(n: int, labels: list[Any], seed: int = 1) -> list[tuple[dict[str, Any], Any]]:
    """Return examples of which some need more than a step: new labels and names, strings, missing and large values."""
    rng = random.Random(seed)
    found = []
    for i in range(n):
        x: dict[str, Any] = {"a": rng.gauss(0, 1), "b": rng.randrange(5), "c": rng.random() < 0.5}
        if i > 0.4 * n:
            x["late"] = rng.random()
        if i % 97 == 50:
            x["b"] = rng.choice([None, float("nan")])
        if i % 89 == 70:
            x = dict(reversed(x.items()))
        if i % 101 == 60:
            x["town"] = rng.choice("xyz")
        found.append((x, labels[min(len(labels) - 1, (i * len(labels)) // n, rng.randrange(1 + i))]))
    return found


def plain(n: int) -> list[tuple[dict[str, Any], Any]]:
    """Return examples that all have the same names, and numbers."""
    rng = random.Random(2)
    xs = [{"a": rng.gauss(0, 1), "b": rng.gauss(0, 1)} for _ in range(n)]
    return [(x, x["a"] > x["b"]) for x in xs]


def one_by_one(model: Any, data: list[tuple[dict[str, Any], Any]], with_probabilities: bool) -> list[Any]:
    answers = []
    for x, y in data:
        if with_probabilities:
            found = model.predict_proba_one(x)
            answers.append((max(found, key=found.get, default=None), found))
        else:
            answers.append((model.predict_one(x), None))
        model.learn_one(x, y)
    return answers


def together(model: Any, data: list[tuple[dict[str, Any], Any]], with_probabilities: bool) -> tuple[list[Any], int]:
    """Return the answers, and how many examples were learned in calls of several."""
    answers: list[Any] = []
    alone: list[Any] = []
    learn_one = model.learn_one
    model.learn_one = lambda x, y: alone.append(x) or learn_one(x, y)
    while len(answers) < len(data):
        rest = data[len(answers) : len(answers) + 50]
        scores, values = predict_and_learn(model, [x for x, _ in rest], [y for _, y in rest], LARGEST)
        answers += answers_of(model, scores, with_probabilities=with_probabilities)
        assert values.tolist() == [[float(value) for value in x.values()] for x, _ in rest[: len(scores)]]
        if len(scores) < len(rest):
            answers += one_by_one(model, rest[len(scores) : len(scores) + 1], with_probabilities)
    del model.learn_one
    return answers, len(data) - len(alone)


@pytest.mark.skipif(FAST is None, reason="no dictionary is read by compiled code")
@pytest.mark.parametrize("with_probabilities", [False, True])
@pytest.mark.parametrize("labels", [[True, False], ["red", "blue", 3]])
@pytest.mark.parametrize("make", CLASSIFIERS.values(), ids=CLASSIFIERS.keys())
def test_a_classifier_has_the_bits_of_one_example_after_the_other(
    make: Callable[[], Any], labels: list[Any], with_probabilities: bool
) -> None:
    data, one, other = examples(700, labels), make(), make()
    expected = one_by_one(one, data, with_probabilities)
    found, several = together(other, data, with_probabilities)
    assert found == expected
    assert several > 250
    assert content(other) == content(one)


@pytest.mark.skipif(FAST is None, reason="no dictionary is read by compiled code")
def test_newton_steps_that_are_spread_over_events_have_these_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixture_state, "SPREAD", 0)
    data, one, other = examples(700, [True, False]), CLASSIFIERS["newton"](), CLASSIFIERS["newton"]()
    assert together(other, data, with_probabilities=False)[0] == one_by_one(one, data, with_probabilities=False)
    assert content(other) == content(one)


@pytest.mark.skipif(FAST is None, reason="no dictionary is read by compiled code")
def test_examples_with_many_names_are_learned_in_smaller_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    data, model = plain(350), CLASSIFIERS["newton"]()
    one_by_one(model, data[:270], with_probabilities=False)
    monkeypatch.setattr(directions, "MOST_VALUES", 40)
    xs, ys = zip(*data[270:], strict=True)
    assert len(predict_and_learn(model, [*xs], ys, LARGEST)[0]) == 20


@pytest.mark.skipif(FAST is None, reason="no dictionary is read by compiled code")
def test_an_error_ends_it_before_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    data = plain(350)
    first, (xs, ys) = data[:270], zip(*data[270:], strict=True)
    one, other = CLASSIFIERS["newton"](), CLASSIFIERS["newton"]()
    for model in (one, other):
        one_by_one(model, first, with_probabilities=False)

    def fail(*words: Any) -> None:
        raise RuntimeError("a Newton step fails")

    with monkeypatch.context() as patch:
        patch.setattr(KernelClassifier, "learn_one", fail)
        n = len(predict_and_learn(other, [*xs], ys, LARGEST)[0])
    assert 0 < n < len(ys)
    one_by_one(one, data[270 : 270 + n], with_probabilities=False)
    assert content(other) == content(one)


@pytest.mark.skipif(FAST is None, reason="no dictionary is read by compiled code")
@pytest.mark.parametrize("loss", ["square", losses.Quantile(0.9)])
def test_a_regressor_has_the_bits_of_one_example_after_the_other(loss: Any) -> None:
    data = [(x, 3.0 * x["a"] + i % 3) for i, (x, _) in enumerate(examples(700, [0]))]
    one, other = (KernelRegressor(learner="dsg", loss=loss, max_features=64) for _ in range(2))
    expected = one_by_one(one, data, with_probabilities=False)
    found, several = together(other, data, with_probabilities=False)
    assert found == expected
    assert several > 250
    assert content(other) == content(one)


@pytest.mark.parametrize("name", ["hinge", "newton"])
def test_an_event_that_cannot_be_learned_together_is_not_learned(name: str) -> None:
    data = [(x, y) for x, y in examples(700, [True, False]) if len(x) == 3]
    model = CLASSIFIERS[name]()
    one_by_one(model, data, with_probabilities=False)
    before = content(model)
    x = dict(data[0][0])
    cases: list[tuple[Any, Any]] = [
        (x, "new"),
        (x | {"a": "text"}, True),
        (x | {"a": None}, True),
        (x | {"a": float("nan")}, True),
        (x | {"a": float("inf")}, True),
        (x | {"a": 2e100}, True),
        (x | {"a": 1e99}, True),
        (x | {"a": 10**400}, True),
        (x | {"more": 1.0}, True),
        ({"a": 1.0}, True),
        ({}, True),
    ]
    for case, y in cases:
        scores, _ = predict_and_learn(model, [case, x], [y, True], LARGEST)
        assert len(scores) == 0, case
    assert content(model) == before


@pytest.mark.parametrize(
    "model",
    [
        KernelClassifier(max_features=256),
        KernelClassifier(UNIT, max_features=256),
        KernelClassifier(UNIT, learner="dsg", class_weight={True: 2.0}),
        KernelClassifier(UNIT, learner=learners.DSG(batch_size=4)),
        KernelClassifier(learner="dsg"),
    ],
    ids=["newton", "newton with a kernel", "class weights", "batches", "young"],
)
def test_a_model_that_takes_more_than_a_step_learns_nothing_together(model: Any) -> None:
    data = examples(30, [True, False])
    for x, y in data:
        model.learn_one(x, y)
    before = content(model)
    assert len(predict_and_learn(model, [x for x, _ in data], [y for _, y in data], LARGEST)[0]) == 0
    assert content(model) == before
