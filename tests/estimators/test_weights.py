"""Weights of examples and of classes: an example of the weight w counts as w examples, in every way of learning."""

from __future__ import annotations

import copy
import math
import random
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from river import compose, evaluate, imblearn, linear_model, metrics, preprocessing
from streams import (
    CLASSIFIERS,
    WAYS,
    as_dicts,
    classifier,
    content,
    examples,
    frame,
    nested,
    predictions,
    regressor,
    targets,
    weights,
)

from streamkernel import (
    ConformalClassifier,
    ConformalRegressor,
    GaussianProcessRegressor,
    KernelClassifier,
    KernelMultiLabelClassifier,
    KernelMultiTargetRegressor,
    KernelRegressor,
    learners,
    losses,
    rules,
    upkeep,
)
from streamkernel.errors import InputError
from streamkernel.estimators.targets import LARGEST_WEIGHT
from streamkernel.features.rows import Rows
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.kernels import Gaussian
from streamkernel.merging import second_order
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.step_sizes import Constant
from streamkernel.upkeep.work import refit

N = 700
XS, LABELS = examples(N, ("b", "a", "c"))
W = weights(N).tolist()
MODELS = {
    **{f"classifier, {name}": (classifier, options, LABELS) for name, options in CLASSIFIERS.items()},
    "regressor, default": (KernelRegressor, {"max_features": 64}, targets(XS)),
    "regressor, batches": (regressor, {"batch_size": 6, "averaging": True}, targets(XS)),
    "balanced": (classifier, {"class_weight": "balanced"}, LABELS),
    "balanced, default": (KernelClassifier, {"class_weight": "balanced", "max_features": 64}, LABELS),
    "a dictionary": (classifier, {"class_weight": {"a": 0.0, "c": 3.0}}, LABELS),
}


def model_of(name):
    kind, options, ys = MODELS[name]
    return kind(**options), ys


def learn(model, xs, ys, ws):
    for x, y, w in zip(xs, ys, ws, strict=True):
        model.learn_one(x, y, w)
    return model


@pytest.mark.parametrize("loss", [losses.Square(), losses.Logistic()])
def test_a_newton_step_takes_an_example_of_weight_2_as_two(loss):
    X, y = np.random.default_rng(3).normal(size=(16, 3)), np.arange(16) % 2.0
    heavy = np.arange(16) % 3 == 0
    twice = np.repeat(np.arange(16), 1 + heavy)

    def learned(at, w):
        f = SecondOrderLearner(
            Gaussian(1.0), loss, Constant(0.75), joint=True, block_size=8, max_features=8, batch_size=len(at)
        )
        f.learn(f.directions.rows("abc", X[at])._replace(weights=w), y[at])
        f.settle()
        return f.groups[0]

    once, both = learned(np.arange(16), 1.0 + heavy), learned(twice, np.ones(len(twice)))
    assert np.abs(once.newton).max() > 0.1
    assert np.allclose(once.newton, both.newton, rtol=1e-5, atol=1e-5)  # the factors are float32
    gram, expected = (group.factor.T @ group.factor for group in (once, both))
    assert np.allclose(gram, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_the_sums_of_a_regressor_count_weights_as_repeated_examples():
    """Σ wφφᵀ, Σ wφ and Σ wyφ, if no gradient is clipped, as here; the offsets differ in between."""
    generator = np.random.default_rng(4)
    X, times = generator.uniform(-1.0, 1.0, (400, 3)), [1, 1, 1, 1, *generator.integers(1, 4, 396).tolist()]
    ys = [12.0, -12.0, *(np.sin(3.0 * X[2:, 0]) + X[2:, 1] * X[2:, 2]).tolist()]
    once, both = (
        KernelRegressor(Gaussian(1.0), learner=learners.Newton(forgetting=1.0), max_features=64) for _ in range(2)
    )
    for x, y, w in zip(as_dicts(X), ys, times, strict=True):
        once.learn_one(x, y, w)
        for _ in range(w):
            both.learn_one(x, y)
    part, other = (second_order.summarize(model._learner) for model in (once, both))
    sizes = [len(gram) for gram in part.grams if len(gram)]
    assert len(sizes) == 4
    for g in range(4):
        assert part.grams[g] == pytest.approx(other.grams[g], abs=1e-4 * np.abs(other.grams[g]).max())
        assert part.centring[g][0] == pytest.approx(other.centring[g][0], rel=1e-9, abs=1e-9)
        of_targets, expected = (one.moments[g][0] + one.centring[g][1] for one in (part, other))
        assert of_targets == pytest.approx(expected, abs=1e-5 * np.abs(expected).max())


def test_a_gradient_is_multiplied_by_the_weight():
    found = []
    for w in (1.0, 2.5):
        f = FirstOrderLearner(Gaussian(1.0), losses.Square(), rules.DSG(), Constant(0.1), seed=1)
        row = f.row({"x": 1.0})
        f.learn(row.with_weight(w), np.array([2.0]))
        found.append(f.scores(row)[0, 0])
    assert found[0] > 0.0
    assert found[1] == pytest.approx(2.5 * found[0])


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"learner": "newton", "max_features": 512}, 0.02),
        ({"learner": learners.Newton(joint=True), "max_features": 256}, 0.02),
        ({"learner": learners.Newton(forgetting=0.999), "max_features": 256}, 0.03),
        ({"learner": "newton", "max_features": 256, "loss": "huber"}, 0.05),
        ({"learner": "dsg"}, 0.05),
        ({"learner": learners.DSG(rule=rules.UDSG(), features_per_seed=32)}, 0.05),
        ({"learner": learners.DSG(batch_size=16)}, 0.1),
    ],
)
def test_a_weight_is_equivalent_to_repeated_examples(options, most):
    """The difference of the predictions and the errors of both models are small relative to the signal."""
    X = np.random.default_rng(0).normal(size=(2400, 2))
    y, xs = np.sin(2.0 * X[:, 0]) * X[:, 1], as_dicts(X)
    once, both = KernelRegressor(**options), KernelRegressor(**options)
    for i, (x, target) in enumerate(zip(xs[:2000], y[:2000].tolist(), strict=True)):
        times = 1 + i % 3
        once.learn_one(x, target, times)
        for _ in range(times):
            both.learn_one(x, target)
    a, b = (np.array([model.predict_one(x) for x in xs[2000:]]) for model in (once, both))
    assert np.mean((a - b) ** 2) < most * y.var()
    assert np.mean((a - y[2000:]) ** 2) < 2.0 * most * y.var()
    assert once._learner.numbers["weight"] == pytest.approx(both._learner.numbers["weight"], abs=48)


@pytest.mark.parametrize(("w", "seed"), [(1e6, 3), (1e8, 1)])
def test_examples_of_a_million_times_the_weight_of_others(w, seed):
    """No running loss is below 0 by rounding, as in -4e-15; with 1e8 and seed 1 the error was 0.83, it is 0.08."""
    generator, model, wrong = random.Random(seed), KernelClassifier(max_features=256), []
    for i in range(500):
        a = generator.gauss(0.0, 1.0)
        wrong.append(model.predict_one({"a": a}) != (a > 0.0))
        model.learn_one({"a": a}, a > 0.0, w if i % 7 == 0 else 1.0)
        assert model._learner.arrays.losses.min() >= 0.0
    assert np.mean(wrong[250:]) < 0.3


@pytest.mark.parametrize("w", [1e4, LARGEST_WEIGHT])
@pytest.mark.parametrize("kind", [KernelClassifier, KernelRegressor])
def test_a_huge_weight_leaves_a_finite_model(kind, w):
    """The heavy example dominates the others and is learned; later examples are learned as well."""
    X = np.random.default_rng(1).normal(size=(600, 2))
    ys = (X[:, 0] > 0.0).tolist() if kind is KernelClassifier else X[:, 0].tolist()
    model = kind(max_features=64)
    for i, (x, y) in enumerate(zip(as_dicts(X), ys, strict=True)):
        model.learn_one(x, y, w if i == 300 else 1.0)
    said = [model.predict_one(x) for x in as_dicts(X)]
    if kind is KernelClassifier:
        assert np.mean(np.array(said) == ys) > 0.8
    else:
        assert np.isfinite(said).all()
        assert abs(said[300] - ys[300]) < 0.2


@pytest.mark.parametrize("w", [0.0, 5e-324, 1e-309])
@pytest.mark.parametrize("name", MODELS)
def test_an_example_of_weight_0_changes_nothing(name, w):
    """A weight too small for all digits of a number is one of 0."""
    model, ys = model_of(name)
    learn(model, XS[:300], ys[:300], W[:300])
    before = content(model)
    model.learn_one({"new": 1.0}, ys[0], w)
    if isinstance(model, KernelClassifier):
        model.learn_one(XS[0], "never seen", w)
    model.learn_many(frame(XS[:5]), pd.Series(ys[:5]), [w] * 5)
    assert content(model) == before


@pytest.mark.parametrize("name", MODELS)
def test_tables_match_single_examples(name):
    (one, ys), (many, _) = model_of(name), model_of(name)
    ws = [0.0 if i % 11 == 5 else w for i, w in enumerate(W)]
    learn(one, XS, ys, ws)
    for first in (0, 1, 90, 400):
        last = {0: 1, 1: 90, 90: 400, 400: N}[first]
        many.learn_many(frame(XS[first:last]), pd.Series(ys[first:last]), np.array(ws[first:last]))
    assert predictions(many, XS[:20]) == predictions(one, XS[:20])
    assert many._learner.numbers["weight"] == one._learner.numbers["weight"] < sum(ws) * 2.0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_a_copy_continues_with_the_same_bits(name, way, tmp_path):
    model, ys = model_of(name)
    learn(model, XS[:301], ys[:301], W[:301])
    twin = WAYS[way](model, tmp_path)
    assert content(twin) == content(model)
    for one in (model, twin):
        learn(one, XS[301:], ys[301:], W[301:])
    assert content(twin) == content(model)


@pytest.mark.parametrize("options", [{}, {"learner": "newton", "kernel": None, "features_per_seed": "auto"}])
def test_weights_of_models_that_are_merged_add_up(options):
    """The weights of the classes add up too: the merged model balances classes as one model of all events."""
    options = {**options, "class_weight": "balanced"}
    base = learn(classifier(**options), XS[:280], LABELS[:280], W[:280])
    first, second = copy.deepcopy(base), copy.deepcopy(base)
    learn(first, XS[280:500], LABELS[280:500], W[280:500])
    learn(second, XS[500:], LABELS[500:], W[500:])
    total = sum(sign * model._learner.numbers["weight"] for sign, model in ((1, first), (1, second), (-1, base)))
    first.merge(second, base=base)
    assert first._learner.numbers["weight"] == pytest.approx(total)
    counts = dict(zip(first.labels, first._state.own.tolist(), strict=True))
    assert counts == {label: LABELS.count(label) for label in first.labels}


def test_the_mean_of_merged_targets_is_weighted():
    models = [regressor(max_features=64) for _ in range(2)]
    for model, w, y in zip(models, (1.0, 3.0), (0.0, 4.0), strict=True):
        for x in XS[:300]:
            model.learn_one(x, y, w)
    models[0].merge(models[1])
    assert models[0]._learner.numbers["offset"] == pytest.approx(3.0)


def test_weights_by_label_multiply_the_weights():
    table = {"a": 2.0, "c": 0.5}
    own = learn(classifier(class_weight=table), XS, LABELS, W)
    other = learn(classifier(), XS, LABELS, [w * table.get(y, 1.0) for y, w in zip(LABELS, W, strict=True)])
    assert predictions(own, XS[:20]) == predictions(other, XS[:20])


def test_a_product_of_weights_that_is_too_small_is_0():
    model = classifier(class_weight={"a": 1e-160})
    learn(model, XS[:100], LABELS[:100], W[:100])
    before = content(model)
    model.learn_one(XS[0], "a", 1e-160)
    model.learn_many(frame(XS[:5]), pd.Series(["a"] * 5), [1e-160] * 5)
    assert content(model) == before


@pytest.mark.parametrize("kind", ["dsg", "newton"])
def test_balanced_classes_weigh_the_same(kind):
    """A class counts as much as the rarest known one, times the example's weight; frequencies ignore the weights."""
    options = {"learner": kind, "kernel": None, "features_per_seed": "auto", "max_features": 64}
    own = learn(classifier(**options, class_weight="balanced"), XS, LABELS, W)
    counts: dict[str, int] = {}
    ws = []
    for y, w in zip(LABELS, W, strict=True):
        counts[y] = counts.get(y, 0) + 1
        ws.append(w * (min(counts.values()) / counts[y]))
    other = learn(classifier(**options), XS, LABELS, ws)
    assert predictions(own, XS[:20]) == predictions(other, XS[:20])


@pytest.mark.parametrize("learner", ["newton", "dsg"])
def test_balanced_weights_find_rare_cases(learner):
    X = np.random.default_rng(0).normal(size=(6000, 2))
    y = np.sin(2.0 * X[:, 0]) * X[:, 1] > 1.3
    assert 0.02 < y.mean() < 0.06
    recall = {}
    for class_weight in (None, "balanced"):
        model, found = KernelClassifier(class_weight=class_weight, learner=learner, max_features=256), []
        for x, label in zip(as_dicts(X), y.tolist(), strict=True):
            found.append(model.predict_one(x))
            model.learn_one(x, label)
        said, late = np.array(found[2000:]) == 1, y[2000:]
        recall[class_weight] = said[late].mean()
        assert said[~late].mean() < 0.1
    assert recall["balanced"] > 0.9 > recall[None]


HIGH = np.random.default_rng(2).integers(2, size=800)
"""For y = 0 and y = 4 at the same x, the weighted mean is 3 if the second has three times the weight."""


def test_coefficients_are_refitted_with_weights():
    model = KernelRegressor(Gaussian(1.0), learner="dsg", max_features=256)
    for x in XS[:100]:
        model.learn_one(x, 1.0)
    f = model._learner
    rows = Rows.stack([f.row({"x0": 0.5})] * len(HIGH))._replace(weights=1.0 + 2.0 * HIGH)
    new, _ = refit(f, rows, 4.0 * HIGH, upkeep.Refit(), model._model.with_columns)
    expected = np.average(4.0 * HIGH, weights=rows.weights)
    assert new.scores(rows)[0, 0] == pytest.approx(expected, abs=0.06)


def test_pruning_uses_weights():
    model = KernelRegressor(max_features=1024, pruning=upkeep.Pruning(every=300, window=200))
    for high in HIGH.tolist():
        model.learn_one({"x": 0.5}, 4.0 * high, 1.0 + 2.0 * high)
    assert model.n_prunings == 1
    assert model.predict_one({"x": 0.5}) == pytest.approx(3.0, abs=0.3)


@pytest.mark.parametrize("w", [-1.0, math.nan, math.inf, 2.0 * LARGEST_WEIGHT, "2", None, [1.0], Decimal("sNaN")])
@pytest.mark.parametrize("name", ["classifier, default", "regressor, default", "classifier, softmax", "a dictionary"])
def test_an_invalid_weight_is_rejected(name, w):
    model, ys = model_of(name)
    model.learn_one(XS[0], ys[0])
    before = content(model)
    with pytest.raises(InputError, match=r"at w$"):
        model.learn_one(XS[1], ys[1], w)
    if w is not None:
        with pytest.raises(InputError, match=r"at w, row 1$"):
            model.learn_many(frame(XS[:2]), pd.Series(ys[:2]), [1.0, w])
    assert content(model) == before


@pytest.mark.parametrize(
    ("make", "y"),
    [
        (GaussianProcessRegressor, 1.0),
        (KernelMultiTargetRegressor, {"a": 1.0}),
        (KernelMultiLabelClassifier, {"a": True}),
        (lambda: ConformalRegressor(KernelRegressor()), 1.0),
        (lambda: ConformalClassifier(KernelClassifier()), "a"),
    ],
)
def test_other_models_reject_a_decimal_that_cannot_be_compared(make, y):
    with pytest.raises(InputError, match=r"got Decimal .* - at w$"):
        make().learn_one({"x": 1.0}, y, Decimal("sNaN"))


def test_one_weight_is_that_of_all_rows_and_other_lengths_are_refused():
    one, each = classifier(), classifier()
    one.learn_many(frame(XS[:50]), pd.Series(LABELS[:50]), 0.5)
    each.learn_many(frame(XS[:50]), pd.Series(LABELS[:50]), [0.5] * 50)
    assert content(one) == content(each)
    with pytest.raises(ValueError, match="Expected as many weights as rows, got 3 weights and 2 rows"):
        classifier().learn_many(frame(XS[:2]), pd.Series(LABELS[:2]), [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ("balance", 'None, "balanced" or a dictionary'),
        (2.0, 'None, "balanced" or a dictionary'),
        ({"a": -1.0}, r"from 0 to 1e\+09, got -1.0 - at class_weight\['a'\]"),
        ({"a": "much"}, r"got str 'much' - at class_weight\['a'\]"),
        ({None: 1.0}, "a label that is a string"),
    ],
)
def test_invalid_class_weights_are_rejected(class_weight, message):
    with pytest.raises(ValueError, match=message):
        KernelClassifier(class_weight=class_weight)


def test_rivers_evaluation_passes_weights_on():
    """Pipelines and wrappers forward the weights."""
    pairs = list(zip(XS, [label == "a" for label in LABELS], W, strict=True))
    models = [preprocessing.StandardScaler() | KernelClassifier(**nested(max_features=64)) for _ in range(2)]
    evaluate.progressive_val_score([(x, y, {"w": w}) for x, y, w in pairs], models[0], metrics.Accuracy())
    for x, y, w in pairs:
        models[1].predict_one(x)
        models[1].learn_one(x, y, w=w)
    last = [model["KernelClassifier"] for model in models]
    assert content(last[0]) == content(last[1])
    assert last[0]._learner.numbers["weight"] == pytest.approx(sum(W))


def test_a_weighted_fit_matches_rivers_linear_regression():
    """With constant inputs both models approach the weighted mean, and are nearer to it than to the unweighted mean."""
    ours = KernelRegressor(max_features=16)
    theirs = compose.Pipeline(preprocessing.StandardScaler(), linear_model.LinearRegression(intercept_lr=0.02))
    for i, high in enumerate(np.random.default_rng(2).integers(2, size=3000).tolist()):
        x, y, w = {"x": float(i % 5)}, 10.0 * high, 1.0 + 3.0 * high
        for model in (ours, theirs):
            model.learn_one(x, y, w=w)
    assert ours.predict_one({"x": 2.0}) == pytest.approx(8.0, abs=0.5)
    assert theirs.predict_one({"x": 2.0}) == pytest.approx(8.0, abs=1.5)


def test_rivers_samplers_can_wrap_it():
    model = imblearn.RandomUnderSampler(KernelClassifier(max_features=64), {True: 0.5, False: 0.5}, seed=1)
    for x, label in zip(XS, LABELS, strict=True):
        model.learn_one(x, label == "a")
    assert set(model.predict_proba_one(XS[0])) == {True, False}
