"""Contributions of fields to a prediction, against differences of predictions and known functions."""

from __future__ import annotations

import copy
import math
import pickle
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from river import compose, preprocessing
from streams import WAYS, learn, write_parts

from streamkernel import InputError, KernelClassifier, KernelRegressor, ModelFileError, kernels, learners, load, rules
from streamkernel.errors import LabelError, NotFittedError
from streamkernel.estimators import explaining, model_file
from streamkernel.estimators.explaining import compare
from streamkernel.estimators.internals import prediction_copy
from streamkernel.features import numeric_names
from streamkernel.features.rows import Rows
from streamkernel.second_order import bandwidths, growth, sensitivity
from streamkernel.second_order.linear.steps import slope
from streamkernel.upkeep.work import prune

SMALL = {"learner": learners.Newton(features_per_seed=16), "max_features": 256}
GAUSSIAN = kernels.Gaussian(2.0)


@pytest.fixture(autouse=True)
def early(monkeypatch):
    """Begin groups in a metric and larger groups after fewer examples than by default."""
    monkeypatch.setattr(growth, "FROM", 512)
    monkeypatch.setattr(bandwidths, "TRUSTED", 2.0)


def mixed(n, seed=0):
    """Return examples of numbers in several units and a string, and targets of them."""
    generator = np.random.default_rng(seed)
    A = generator.normal(size=n)
    xs = [
        {"a": a, "b": 1e3 + 50.0 * b, "c": 1e-3 * c, "kind": str(kind), "none": z}
        for a, b, c, kind, z in zip(
            A.tolist(),
            generator.normal(size=n).tolist(),
            generator.uniform(-1.0, 1.0, n).tolist(),
            generator.choice(["u", "v", "w"], n).tolist(),
            generator.normal(size=n).tolist(),
            strict=True,
        )
    ]
    ys = [math.sin(2.0 * x["a"]) + 0.5 * (x["b"] - 1e3) / 50.0 + x["a"] * x["c"] * 1e3 + (x["kind"] == "u") for x in xs]
    return xs, ys


@pytest.fixture(scope="module")
def grown():
    """Return a model with groups in a metric, and its stream."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growth, "FROM", 512)
        patch.setattr(bandwidths, "TRUSTED", 2.0)
        xs, ys = mixed(1100)
        model = learn(KernelRegressor(**SMALL), xs, ys)
    assert model._learner.arrays.metric.known.any()
    assert model._learner.shares["linear"] != 0.0
    return model, xs, ys


def differences(score, x, steps):
    """Return finite differences of a score by each number of an example."""
    return {
        name: (score({**x, name: x[name] + step}) - score({**x, name: x[name] - step})) / (2.0 * step)
        for name, step in steps.items()
    }


STEPS = {"a": 3e-3, "b": 0.15, "c": 3e-6, "none": 3e-3}
UNITS = {"a": 1.0, "b": 50.0, "c": 1e-3, "none": 1.0}


def check_gradient(model, score, x, steps=STEPS, tolerance=3e-3, **options):
    """Compare contributions of the random features, divided by the distance from the mean, with finite differences."""
    compared = compare(model._model.complete(), x)
    means = {compared.fields[i]: mean for i, mean in zip(compared.field_of, compared.means, strict=True)}
    with only(model, of_features=True):
        found, expected = model.explain_one(x, **options), differences(score, x, steps)
    assert list(found) == list(x)
    for name in steps:
        unit = UNITS.get(name, 1.0)
        own = found[name] / (x[name] - means[name]) * unit
        assert own == pytest.approx(expected[name] * unit, rel=tolerance, abs=tolerance), name


@contextmanager
def only(model, *, of_features):
    """Give no weight to the linear functions and the neighbours, or to the functions of random features."""
    learner = model._learner
    weights = learner.arrays.weights if "level" in getattr(learner, "shares", {}) else np.zeros(0)
    before = weights.copy()
    others = np.arange(len(weights)) > 2 * len(getattr(learner, "groups", ()))
    weights[others == of_features] = 0.0
    try:
        yield
    finally:
        weights[:] = before


def check_changes(model, x):
    """Compare contributions of the linear functions and the neighbours with the changes of the score when a field is
    set alone, and when it is set last.
    """
    compared, k = compare(model._state, x), len(x)
    each = np.eye(k, dtype=bool)
    with only(model, of_features=False):
        nothing, alone, without, everything = (
            scores(model, compared.rows(model._learner.directions, sets))
            for sets in (np.zeros((1, k), bool), each, ~each, np.ones((1, k), bool))
        )
        found = model.explain_one(x)
    expected = 0.5 * ((alone - nothing) + (everything - without))
    assert np.abs(expected).max() > 0.01
    assert found == pytest.approx(dict(zip(compared.fields, expected, strict=True)), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    "change",
    [{}, {"a": 4.0}, {"b": 1400.0, "c": 0.0}, {"kind": "v"}, {"kind": "new"}, {"none": -10.0}],
    ids=str,
)
def test_gradients_match_finite_differences(change, grown):
    """The examples have outliers, which the scaling compresses, values of 0, and strings."""
    model, xs, _ = grown
    check_gradient(model, model.predict_one, xs[7] | change)
    check_changes(model, xs[7] | change)


def test_gradients_of_a_field_at_its_centre(grown):
    model, xs, _ = copy.deepcopy(grown)
    model._learner.arrays.weights[2 * len(model._learner.groups) + 1 :] = 0.0
    table = model._state.scales.state.table
    (row,) = [row for row in table if row["key"] == numeric_names.read_hash("b", 1.0)]
    x = xs[7] | {"b": float(row["centre"])}
    compared = compare(model._state, x)
    (at,) = np.flatnonzero(compared.hashes == row["key"])
    found = model._learner.derivatives(compared.row(model._learner.directions), model._state.scales)[0, at]
    assert 50.0 * found == pytest.approx(50.0 * differences(model.predict_one, x, {"b": 0.15})["b"], rel=3e-3, abs=3e-3)


OTHERS = {
    "all blocks together": lambda: KernelRegressor(learner=learners.Newton(joint=True), max_features=64),
    "a kernel that is given": lambda: KernelRegressor(GAUSSIAN, max_features=64),
    "a multi-scale that is given": lambda: KernelRegressor(kernels.MultiScale(GAUSSIAN, (0.5, 2.0)), max_features=64),
    "first order": lambda: KernelRegressor(GAUSSIAN, learner="dsg", max_features=64),
    "several blocks": lambda: KernelRegressor(
        kernels.Matern(1.5, 2.0), learner=learners.DSG(rule=rules.UDSG(), features_per_seed=8), max_features=64
    ),
    "a multi-scale of first order": lambda: KernelRegressor(
        kernels.MultiScale(GAUSSIAN, (0.5, 2.0)), learner="dsg", max_features=64
    ),
    "averaged": lambda: KernelRegressor(GAUSSIAN, learner=learners.DSG(averaging=True), max_features=64),
    "of some inputs": lambda: KernelRegressor(GAUSSIAN.on("a", "none"), learner="dsg", max_features=64),
}


@pytest.mark.parametrize("name", OTHERS)
def test_gradients_of_other_learners(name):
    xs, ys = mixed(300)
    xs = [{"a": x["a"], "c": 1e3 * x["c"], "none": x["none"]} for x in xs]
    model = learn(OTHERS[name](), xs, ys)
    for x in xs[:3]:
        check_gradient(model, model.predict_one, x, dict.fromkeys(x, 3e-3))


def test_gradients_of_a_model_that_was_pruned(grown):
    model, xs, ys = grown
    model = copy.deepcopy(model)
    learner = model._learner
    rows = Rows.stack([model._state.scales(learner.directions.row(x)) for x in xs])
    model._state.learner = prune(learner, rows, np.array(ys), 0.5, model._model.with_columns)
    check_gradient(model, model.predict_one, xs[7])
    check_changes(model, xs[7])
    assert model.feature_importances_ == grown[0].feature_importances_


def test_gradients_of_names_that_came_late(grown):
    """The metrics of groups that began earlier lack these names."""
    model, xs, ys = copy.deepcopy(grown)
    more = [x | {"late": math.sin(i)} for i, x in enumerate(xs)]
    learn(model, more, [y + 2.0 * x["late"] for x, y in zip(more, ys, strict=True)])
    check_gradient(model, model.predict_one, more[7], STEPS | {"late": 3e-3})
    check_changes(model, more[7])
    assert model.feature_importances_["late"] > 0.05


def test_more_names_than_the_metric_holds():
    generator = np.random.default_rng(0)
    xs = [{f"x{i}": float(v) for i, v in enumerate(row)} for row in generator.normal(size=(1500, 150))]
    model = learn(KernelRegressor(**SMALL), xs, [x["x149"] + 0.5 * x["x3"] for x in xs])
    shares = model.feature_importances_
    assert [*shares][:2] == ["x149", "x3"]
    assert shares["x149"] > 0.5
    assert len(shares) == 150


def test_a_prediction_copy_is_unchanged(grown):
    model, xs, ys = copy.deepcopy(grown)
    twin, before = prediction_copy(model), model.feature_importances_
    explained = [model.explain_one(xs[0], method=method) for method in explaining.METHODS]
    learn(model, xs[:200], ys[:200])
    assert twin.feature_importances_ == before != model.feature_importances_
    assert [twin.explain_one(xs[0], method=method) for method in explaining.METHODS] == explained


def log_odds(model, label):
    """Return the log odds of a label of two, or its log-probability less the mean of all."""

    def score(x):
        logs = {one: math.log(p) for one, p in model.predict_proba_one(x).items()}
        return (
            2.0 * (logs[label] - sum(logs.values()) / 2.0)
            if len(logs) == 2
            else logs[label] - np.mean(list(logs.values()))
        )

    return score


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_two_labels_have_log_odds(loss):
    xs, ys = mixed(600)
    model = learn(KernelClassifier(**SMALL, loss=loss), xs, [y < 0.0 for y in ys])
    for x in xs[:3]:
        check_gradient(model, log_odds(model, True), x)
        check_gradient(model, log_odds(model, False), x, label=False)
        found, other = model.explain_one(x), model.explain_one(x, label=False)
        assert found == {name: pytest.approx(-value) for name, value in other.items()}


def test_more_labels_have_log_probabilities():
    xs, ys = mixed(600)
    model = learn(KernelClassifier(**SMALL), xs, [("low", "mid", "high")[int(np.digitize(y, [-0.7, 0.7]))] for y in ys])
    for x in xs[:3]:
        check_gradient(model, log_odds(model, "mid"), x, label="mid", tolerance=1e-2)
        assert model.explain_one(x) == model.explain_one(x, label=model.predict_one(x))
        each = [model.explain_one(x, label=label, method="sampling") for label in model.labels]
        assert sum(found["a"] for found in each) == pytest.approx(0.0, abs=1e-9)


def scores(model, rows):
    """Return f of each row."""
    return model._learner.scores(rows, model._state.scales)[:, 0]


def mean_score(model, x):
    """Return f at the mean of the fields of x."""
    compared = compare(model._state, x)
    nothing = np.zeros((1, len(x)), bool)
    return float(scores(model, compared.rows(model._learner.directions, nothing))[0])


@pytest.mark.parametrize("n_orders", [1, 2, 3, 32], ids=str)
def test_contributions_add_up(n_orders, grown):
    """With few orders, and with 32 orders, which suffice to evaluate all 2⁵ sets of five fields."""
    model, xs, _ = grown
    for x in [*xs[:3], xs[0] | {"kind": None}, xs[0] | {"a": None}, xs[0] | {"new": 3.0}, {"a": 1.0}, {"new": 1.0}]:
        found = model.explain_one(x, method="sampling", n_orders=n_orders)
        assert list(found) == list(x)
        assert sum(found.values()) == pytest.approx(model.predict_one(x) - mean_score(model, x), abs=1e-9)


def test_explanations_compare_with_the_mean_of_the_examples(grown):
    model, xs, _ = grown
    x = xs[3]
    compared = compare(model._state, x)
    means = {name: np.mean([x[name] for x in xs]) for name in STEPS}
    shares = [np.mean([x["kind"] == kind for x in xs]) for kind in "uvw"]
    kinds = sorted(float(compared.means[i]) for i in np.flatnonzero(compared.field_of == compared.fields.index("kind")))
    assert kinds == pytest.approx(sorted(shares), abs=5e-3)
    for name, mean in means.items():
        (at,) = np.flatnonzero(compared.field_of == compared.fields.index(name))
        assert compared.means[at] == pytest.approx(mean, abs=5e-3 * UNITS[name])


def test_all_sets_and_many_orders_agree(grown):
    model, xs, _ = grown
    for x in xs[:3]:
        exact = model.explain_one(x, method="sampling")
        compared = compare(model._state, x)
        directions = model._learner.directions
        found = explaining._over_orders(
            lambda sets, own=compared, its=directions: scores(model, own.rows(its, sets))[:, None], len(x), 4000, 0
        )
        np.testing.assert_allclose(found[:, 0], [exact[name] for name in compared.fields], atol=0.05)


def test_shapley_values_of_known_functions():
    for k in (1, 2, 3):
        both = explaining._over_sets(
            lambda sets, k=k: np.stack([sets @ np.arange(1.0, k + 1.0), sets.all(axis=1)], 1), k
        )
        np.testing.assert_allclose(both[:, 0], np.arange(1.0, k + 1.0))  # of a linear function, its coefficients
        np.testing.assert_allclose(both[:, 1], 1.0 / k)  # of a product, the same share each


def test_an_example_of_many_words():
    generator, words = np.random.default_rng(0), [f"word{i}" for i in range(600)]
    xs = [dict.fromkeys(generator.choice(words, 20, replace=False).tolist(), 1) for _ in range(400)]
    model = learn(KernelRegressor(**SMALL), xs, [float("word1" in x) for x in xs])
    x = dict.fromkeys(words, 1)
    found = model.explain_one(x, method="sampling", n_orders=2)
    assert sum(found.values()) == pytest.approx(model.predict_one(x) - mean_score(model, x), abs=1e-9)
    assert max(found, key=found.get) == "word1"
    assert len(model.explain_one(x)) == 600


@pytest.mark.parametrize("method", explaining.METHODS)
def test_the_order_of_fields_and_batches_does_not_matter(method, grown):
    model, xs, ys = grown
    wide = [x | {f"more{i}": float(i) for i in range(9)} for x in xs[:3]]  # orders are sampled
    for x in [*xs[:3], *wide]:
        found = model.explain_one(x, method=method)
        assert model.explain_one(dict(reversed(x.items())), method=method) == found
        assert model.explain_one(x, method=method) == found
    at_once = KernelRegressor(**SMALL)
    at_once.learn_many(pd.DataFrame(xs), pd.Series(ys))
    assert at_once.explain_one(xs[0], method=method) == model.explain_one(xs[0], method=method)
    assert at_once.feature_importances_ == model.feature_importances_


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_gives_the_same_explanations(way, grown, tmp_path):
    model, xs, ys = grown
    twin = WAYS[way](model, tmp_path)
    for _ in range(2):
        assert twin.feature_importances_ == model.feature_importances_
        assert [*twin.feature_importances_] == [*model.feature_importances_]
        for method in explaining.METHODS:
            assert twin.explain_one(xs[0], method=method) == model.explain_one(xs[0], method=method)
        model = copy.deepcopy(model)
        learn(model, xs[:60], ys[:60])
        learn(twin, xs[:60], ys[:60])


def test_explaining_changes_nothing(grown):
    model, xs, _ = grown
    before = pickle.dumps(model)
    model.explain_one(xs[0] | {"other": "x"}, method="sampling")
    model.explain_one(xs[0] | {"other": "x"})
    assert model.feature_importances_
    assert pickle.dumps(model) == before


def test_a_linear_function_is_explained_in_its_units():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(2000, 4)) * [1.0, 1.0, 0.01, 1.0] + [5.0, 0.0, 0.0, -3.0]
    xs = [dict(zip("abcd", x, strict=True)) for x in X.tolist()]
    model = learn(KernelRegressor(**SMALL), xs, (X @ [3.0, 1.0, 100.0, 0.0]).tolist())
    for method in explaining.METHODS:
        found = model.explain_one({"a": 6.0, "b": -1.0, "c": 0.01, "d": -2.0}, method=method)
        assert found == pytest.approx({"a": 3.0, "b": -1.0, "c": 1.0, "d": 0.0}, abs=0.2)
    shares = model.feature_importances_
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares == pytest.approx({"a": 9 / 11, "b": 1 / 11, "c": 1 / 11, "d": 0.0}, abs=0.02)
    assert [*shares.values()] == sorted(shares.values(), reverse=True)


def test_importances_of_friedmans_function():
    """Inputs 0 to 4 matter, by the mean squares of the derivatives: 5π²·… for the product, 100/9·…, 100, 25."""
    generator = np.random.default_rng(0)
    X = generator.uniform(size=(6000, 10))
    y = 10.0 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20.0 * (X[:, 2] - 0.5) ** 2 + 10.0 * X[:, 3] + 5.0 * X[:, 4]
    y += generator.normal(size=6000)
    xs = [dict(enumerate(x)) for x in X.tolist()]
    model = learn(KernelRegressor(max_features=1024), xs, y.tolist())
    by_product = (10.0 * np.pi * np.cos(np.pi * X[:, 0] * X[:, 1])) ** 2
    squares = [(by_product * X[:, 1] ** 2).mean(), (by_product * X[:, 0] ** 2).mean(), 1600.0 / 12.0, 100.0, 25.0]
    expected = dict(enumerate([*(np.array(squares) / sum(squares)).tolist(), *[0.0] * 5]))
    assert model.feature_importances_ == pytest.approx(expected, abs=0.06)
    assert all(model.feature_importances_[i] < 0.015 for i in range(5, 10))


def test_a_string_is_one_field():
    """The importance of a string is its share of the variance, for any coding of its values."""
    generator = np.random.default_rng(0)
    xs = [
        {"a": float(a), "s": str(s)}
        for a, s in zip(generator.normal(size=2000), generator.integers(0, 4, 2000), strict=True)
    ]
    model = learn(KernelRegressor(), xs, [x["a"] + 2.0 * (x["s"] in "01") for x in xs])  # variances 1 and 1
    assert model.feature_importances_ == pytest.approx({"a": 0.5, "s": 0.5}, abs=0.15)
    found = [model.explain_one({"a": 1.0, "s": s}, method="sampling")["s"] for s in "0123"]
    assert found == pytest.approx([1.0, 1.0, -1.0, -1.0], abs=0.3)
    found = [model.explain_one({"a": 1.0, "s": s})["s"] for s in "0123"]
    assert found == pytest.approx([1.0, 1.0, -1.0, -1.0], abs=0.45)


def test_behind_a_scaler_names_stay(grown):
    _, xs, ys = grown
    xs = [{"a": x["a"], "b": x["b"]} for x in xs[:600]]
    own = KernelRegressor(kernels.Gaussian(1.0), learner="dsg")
    model = learn(preprocessing.StandardScaler() | own, xs, ys[:600])
    x = xs[0]
    scaled = model["StandardScaler"].transform_one(x)
    found = own.explain_one(scaled, method="sampling")
    nothing = own.predict_one(dict.fromkeys(x, 0.0))
    assert sum(found.values()) == pytest.approx(model.predict_one(x) - nothing)
    default = KernelRegressor(**SMALL)
    model = learn(compose.Pipeline(preprocessing.StandardScaler(), default), xs, ys[:600])
    assert default.feature_importances_.keys() == {"a", "b"}
    check_gradient(default, default.predict_one, model["StandardScaler"].transform_one(x), dict.fromkeys(x, 3e-3))


def test_missing_fields_contribute_nothing(grown):
    model, xs, _ = grown
    for method in explaining.METHODS:
        for missing in (None, math.nan):
            assert model.explain_one(xs[0] | {"b": missing}, method=method)["b"] == pytest.approx(0.0, abs=1e-12)
        assert model.explain_one(xs[0] | {"unheard": None}, method=method)["unheard"] == pytest.approx(0.0, abs=1e-12)


def test_flags_that_are_usually_absent():
    xs, ys = mixed(1000)
    generator = np.random.default_rng(1)
    xs = [x | ({"flag": 1} if one else {}) for x, one in zip(xs, generator.random(1000) < 0.2, strict=True)]
    model = learn(KernelRegressor(**SMALL), xs, [y + 3.0 * x.get("flag", 0) for x, y in zip(xs, ys, strict=True)])
    without = {name: value for name, value in xs[0].items() if name != "flag"}
    for method in explaining.METHODS:
        assert model.explain_one(without | {"flag": 1}, method=method)["flag"] == pytest.approx(2.4, abs=0.5)
        assert model.explain_one(without | {"flag": 0}, method=method)["flag"] == pytest.approx(-0.6, abs=0.5)
    assert model.feature_importances_["flag"] > 0.2


def test_importances_are_made_of_the_derivatives_of_saturated_scores():
    """Those of the nearest neighbours, which are not among them, have no weight here."""
    generator = np.random.default_rng(3)
    X = generator.normal(size=(704, 2))
    xs, ys = [{"a": a, "b": 5.0 * b} for a, b in X.tolist()], X @ [1.0, 2.0] > 0.0
    model = learn(KernelClassifier(max_features=32), xs[:703], ys[:703].tolist())
    f, scales, row = model._learner, model._state.scales, model._learner.row(xs[703])
    own, base = f.arrays.linear, 2 * len(f.groups) + 1
    place = [own.names.tolist().index(name) for name in row.hashes.tolist()]
    score = f.scores_of_others(row, scales)[0, 1]
    of_linear = f.arrays.weights[base] * slope(own, score) * own.w[0, place]
    slopes = f.derivatives(row, scales)[0] + of_linear / own.scales[place, 1]
    slopes *= scales.in_use(row.hashes)["unit"]
    table = f.arrays.metric.sensitivities
    before = dict(zip(table["key"].tolist(), table["squares"].tolist(), strict=True))
    model.learn_one(xs[703], bool(ys[703]))
    after = dict(zip(table["key"].tolist(), table["squares"].tolist(), strict=True))
    added = [after[name] - before[name] for name in row.hashes.tolist()]
    assert added == pytest.approx(np.square(slopes).tolist(), rel=1e-4)
    assert min(added) > 1e-3


def test_importances_before_there_are_enough_examples():
    xs, ys = mixed(256)
    model = KernelRegressor(**SMALL)
    for x, y in zip(xs, ys, strict=True):
        assert not hasattr(model, "feature_importances_")
        with pytest.raises(NotFittedError, match=r"learned 256 examples .* got one of \d+"):
            _ = model.feature_importances_
        model.learn_one(x, y)
    assert model.feature_importances_.keys() == xs[0].keys()
    untrained = KernelRegressor()
    assert untrained.explain_one({"a": 1.0}) == {"a": 0.0}
    assert KernelClassifier().explain_one({"a": 1.0}, method="sampling") == {"a": 0.0}


def test_a_constant_function_has_no_importances():
    model = learn(KernelRegressor(**SMALL), mixed(300)[0], [1.0] * 300)
    assert {*model.feature_importances_.values()} == {0.0}


@pytest.mark.parametrize(
    "model",
    [
        KernelRegressor(learner="dsg"),
        KernelClassifier(GAUSSIAN),
        KernelRegressor(learner=learners.Newton(joint=True), max_features=64),
        KernelRegressor(learner=learners.Newton(features_per_seed=64), max_features=128),
    ],
    ids=repr,
)
def test_models_without_gradients_have_no_importances(model):
    xs, ys = mixed(300)
    learn(model, xs, [y > 0.0 for y in ys])
    assert not hasattr(model, "feature_importances_")
    with pytest.raises(AttributeError, match="explain_one"):
        _ = model.feature_importances_


@pytest.mark.parametrize(
    "kernel", [GAUSSIAN + kernels.Matern(1.5, 1.0), kernels.Polynomial(), GAUSSIAN.of("unit")], ids=repr
)
def test_kernels_without_gradients_are_rejected(kernel):
    xs, ys = mixed(50)
    xs = [{"a": x["a"], "none": x["none"]} for x in xs]
    model = learn(KernelRegressor(kernel, learner="dsg", max_features=64), xs, ys)
    with pytest.raises(InputError, match='Expected method="sampling" for '):
        model.explain_one(xs[0])
    found = model.explain_one(xs[0], method="sampling")
    nothing = {} if model._learner.directions.plan.transforms else dict.fromkeys(xs[0], 0.0)
    row = model._learner.directions.row(nothing)
    expected = model.predict_one(xs[0]) - model._learner.scores(row)[0, 0]
    assert sum(found.values()) == pytest.approx(expected, abs=1e-9)


def test_bad_input_is_refused(grown):
    model, xs, ys = grown
    for method in explaining.METHODS:
        assert model.explain_one({}, method=method) == {}
        for x in ({"a": math.inf}, {"a": "text"}, {"a": [1]}, {"a": 1e300}):
            with pytest.raises(InputError):
                model.explain_one(x, method=method)
        with pytest.raises(TypeError, match="dictionary"):
            model.explain_one([1.0], method=method)
    with pytest.raises(ValueError, match="method="):
        model.explain_one(xs[0], method="shap")
    for n_orders in (0, 1.5, True, "many"):
        with pytest.raises(ValueError, match="n_orders"):
            model.explain_one(xs[0], method="sampling", n_orders=n_orders)
    classifier = learn(KernelClassifier(**SMALL), xs[:20], [y > 0.0 for y in ys[:20]])
    with pytest.raises(LabelError, match="at label"):
        classifier.explain_one(xs[0], label="unknown")


def test_replicas_merge_with_their_names(grown):
    model, xs, ys = grown
    base, parts = copy.deepcopy(model), [copy.deepcopy(model) for _ in range(2)]
    for number, part in enumerate(parts):
        part._model.divide(number, 2)
        learn(part, [x | {f"own{number}": x["a"]} for x in xs[number:200:2]], ys[number:200:2])
    merged = parts[0].merge(parts[1], base=base)
    assert merged.feature_importances_.keys() == {*xs[0], "own0", "own1"}
    assert sum(merged.feature_importances_.values()) == pytest.approx(1.0)
    assert merged.feature_importances_["a"] == pytest.approx(model.feature_importances_["a"], abs=0.1)


NAMES = [0, 1.5, True, ("a", 2), ("b", ("c", "d")), "s=t", "ü", "\ud800", np.int64(7), ""]


def test_any_name_is_kept(tmp_path):
    generator = np.random.default_rng(0)
    xs = [dict(zip(NAMES, x, strict=True)) for x in generator.normal(size=(300, len(NAMES))).tolist()]
    model = learn(KernelRegressor(**SMALL), xs, [x["ü"] for x in xs])
    assert set(model.feature_importances_) == set(NAMES)
    model.save(tmp_path / "model")
    twin = load(tmp_path / "model")
    assert twin.feature_importances_ == model.feature_importances_
    assert twin.explain_one(xs[0]) == model.explain_one(xs[0])


def test_names_are_bounded_and_values_are_not_kept(tmp_path):
    """A file has no value of a string."""
    model = KernelRegressor(**SMALL)
    for i in range(600):
        model.learn_one({"id": f"secret{i}", f"name{i}": 1.0, "long" * 500: 1.0, "a": i % 7}, i % 7)
    known = model._state.numeric.fields
    assert len(known) == numeric_names.MOST_NAMES
    assert "long" * 500 not in known.values()
    assert sum(model.feature_importances_.values()) == pytest.approx(1.0)
    assert len(model.feature_importances_) <= numeric_names.MOST_NAMES
    model.save(tmp_path / "model")
    assert b"name5" in (tmp_path / "model").read_bytes()
    assert b"secret" not in (tmp_path / "model").read_bytes()
    at_once = KernelRegressor(**SMALL)
    xs = [{"id": f"secret{i}", "other": f"secret{-i}", "a": i % 7} for i in range(800)]
    at_once.learn_many(pd.DataFrame(xs), pd.Series([x["a"] for x in xs]))
    one_by_one = learn(KernelRegressor(**SMALL), xs, [x["a"] for x in xs])
    assert at_once._state.numeric == one_by_one._state.numeric
    assert at_once.feature_importances_ == one_by_one.feature_importances_


CRAFTED = {
    "no hashes": lambda t: t.pop("field_names"),
    "a hash twice": lambda t: t["field_names"].__setitem__((0, 0), t["field_names"][1, 0]),
    "a field that is none": lambda t: t["field_names"].__setitem__((0, 1), 99),
    "a field below none": lambda t: t["field_names"].__setitem__((0, 1), -1),
    "fields of no name": lambda t: t["field_names"].__setitem__((slice(None), 1), 0),
    "no sensitivities": lambda t: t.pop("metric.sensitivities"),
    "no weight": lambda t: t.pop("metric.weight"),
    "sums below 0": lambda t: t["metric.sensitivities"].fill(-1.0),
    "sums that are not numbers": lambda t: t["metric.sensitivities"].fill(np.nan),
    "more examples than there are": lambda t: t["metric.weight"].fill(1.0),
    "without end": lambda t: t["metric.weight"].fill(np.inf),
    "names in another order": lambda t: t["metric.sensitive_names"].__setitem__(
        slice(None), t["metric.sensitive_names"][::-1].copy()
    ),
    "more names than there may be": lambda t: t.update(
        {
            "metric.sensitive_names": np.arange(1, sensitivity.MOST_NAMES + 2),
            "metric.sensitivities": np.zeros((sensitivity.MOST_NAMES + 1, 2)),
        }
    ),
}


@pytest.mark.parametrize("change", CRAFTED)
def test_a_crafted_file_is_refused(change, grown, tmp_path):
    parts = model_file.describe(grown[0])
    assert load(write_parts(tmp_path, parts)).feature_importances_ == grown[0].feature_importances_
    with pytest.raises(ModelFileError):
        load(write_parts(tmp_path, parts, CRAFTED[change]))


@pytest.mark.parametrize("names", [None, "a", 5, [None], [{}], [["a", None]], ["x" * 9999], [math.nan]], ids=str)
def test_crafted_names_are_refused(names, grown, tmp_path):
    description, tensors = model_file.describe(grown[0])
    description["state"]["fields"] = names
    with pytest.raises(ModelFileError):
        load(write_parts(tmp_path, (description, tensors)))


def test_the_most_frequent_names_are_kept_beyond_the_limit():
    tables = []
    for k in range(2):
        known = np.zeros(800, sensitivity.SENSITIVITY)
        known["key"] = np.arange(1, 801) + 1000 * k
        known["present"] = np.arange(800) if k else 500
        tables.append(sensitivity.of_names(known, 800.0)[0])
    table, totals = sensitivity.merge_tables(tables, [800.0, 800.0])
    rows = sensitivity.rows_of(table)
    assert totals.tolist() == [sensitivity.MOST_NAMES, 1600.0]
    assert rows["present"].min() == 500.0
