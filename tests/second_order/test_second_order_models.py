"""Estimators with second-order steps: any stream, any grouping of events, copies and files."""

from __future__ import annotations

import copy
import itertools
import math

import numpy as np
import pandas as pd
import pytest
from cases import covering
from streams import WAYS, as_dicts, content, examples, frame, learn, least_growth, nested, predictions, write_parts

from streamkernel import (
    InputError,
    KernelClassifier,
    KernelRegressor,
    ModelFileError,
    learners,
    load,
    losses,
    tensor_file,
    upkeep,
)
from streamkernel import kernels as k
from streamkernel.estimators import model_file
from streamkernel.second_order import growth

SMALL = {"features_per_seed": 8, "max_features": 36}
KERNELS = {
    "default": None,
    "Gaussian": k.Gaussian(1.5),
    "dot product": k.DotProduct(),
    "arc-cosine": k.ArcCosine(1),
    "polynomial": k.Polynomial(2),
    "composite": k.Gaussian("median") * k.ArcCosine(1) + 0.5 * k.Matern(1.5, 2.0).on("x0"),
}
OPTIONS = {
    **{name: {"kernel": kernel} for name, kernel in KERNELS.items()},
    "joint": {"learner": "joint"},
    "forgetting": {"forgetting": 0.99, "l2": 0.01, "learner": "newton"},
    "batches": {"batch_size": 7},
    "long batches": {"batch_size": 100},
    "one feature a seed": {"features_per_seed": 1, "max_features": 5},
    "regenerated": {"cache_bytes": 0},
    "softmax": {"loss": "softmax"},
    "squared hinge": {"loss": "squared_hinge"},
    "smooth hinge": {"loss": "smooth_hinge", "kernel": k.Gaussian(1.0)},
}
REGRESSORS = {"square": {}, "Huber": {"loss": losses.Huber(0.5)}, "dot product": {"kernel": k.DotProduct()}}


def classifier(**options):
    return KernelClassifier(**nested(**{**SMALL, **options}))


def regressor(**options):
    return KernelRegressor(**nested(**{**SMALL, **options}))


def curve(X):
    return np.sin(X[:, 0]) + X[:, 1] * X[:, 2]


def regression(n, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, 3))
    return X, curve(X) + 0.1 * generator.normal(size=n)


def progressive(model, X, y):
    """Return predictions of each row before it is learned."""
    found = []
    for x, target in zip(as_dicts(X), y.tolist(), strict=True):
        found.append(model.predict_one(x))
        model.learn_one(x, target)
    return np.array(found)


def r2(y, p):
    return 1.0 - np.mean((y - p) ** 2) / np.var(y)


@pytest.mark.parametrize(("options", "n", "way"), covering(itertools.product(OPTIONS, [0, 1, 130, 259, 530], WAYS)))
def test_a_copy_predicts_and_learns_the_same_bits(options, n, way, tmp_path):
    """Among the first examples, in the middle of a batch, before and after new labels."""
    xs, ys = examples(620, ("b", "a", "d"))
    model = learn(classifier(**OPTIONS[options]), xs[:n], ys[:n])
    before = content(model)
    twin = WAYS[way](model, tmp_path)
    assert content(twin) == before
    assert predictions(twin, xs[-20:]) == predictions(model, xs[-20:])
    learn(twin, xs[n:], ys[n:])
    assert content(model) == before  # they share nothing
    assert content(twin) == content(learn(model, xs[n:], ys[n:]))
    assert predictions(twin, xs[-20:]) == predictions(model, xs[-20:])


@pytest.mark.parametrize("options", REGRESSORS.values(), ids=REGRESSORS)
def test_a_copy_of_a_regressor_predicts_and_learns_the_same_bits(options, tmp_path):
    X, y = regression(560)
    xs = as_dicts(X)
    for n in (0, 33, 259, 530):
        model = learn(regressor(**options), xs[:n], y[:n])
        twin = WAYS["file"](model, tmp_path)
        assert predictions(twin, xs) == predictions(model, xs)
        assert content(learn(twin, xs[n:], y[n:])) == content(learn(model, xs[n:], y[n:]))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_any_grouping_of_events_has_the_same_bits(options):
    """Across the first examples, changes of scale at 512 and 1024, new labels, and batches."""
    xs, ys = examples(1100, ("b", "a", "d"))
    xs = [{name: value * (1.0 if i < 520 else 3.0) for name, value in x.items()} for i, x in enumerate(xs)]
    one = learn(classifier(**options), xs, ys)
    edges = np.sort(np.random.default_rng(1).choice(np.arange(1, 1100), 17, replace=False)).tolist()
    for cuts in ([], edges):
        many = classifier(**options)
        for first, last in zip([0, *cuts], [*cuts, 1100], strict=True):
            many.learn_many(frame(xs[first:last]), pd.Series(ys[first:last]))
        assert content(many) == content(one)
    together = one.predict_proba_many(frame(xs[:50]))
    for i, x in enumerate(xs[:50]):
        assert together.iloc[i].to_dict() == pytest.approx(one.predict_proba_one(x), abs=1e-15)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_cache_and_the_order_of_keys_do_not_change_a_bit(options):
    xs, ys = examples(600, ("b", "a", "d"))
    model = learn(classifier(**options), xs, ys)
    turned = [dict(reversed(x.items())) for x in xs]
    for cache_bytes in (0, 3000):
        twin = learn(classifier(**{**options, "cache_bytes": cache_bytes}), turned, ys)
        assert predictions(twin, turned[:50]) == predictions(model, xs[:50])


@pytest.mark.parametrize("way", ["newton", "joint"])
def test_new_names_strings_and_late_labels_are_learned(way):
    """A column appears, then a string decides; the third class comes after 1000 examples."""
    generator = np.random.default_rng(2)
    for loss in ("logistic", "squared_hinge", "softmax"):
        model = KernelClassifier(**nested(way, loss=loss, max_features=64))
        right = []
        for i in range(3000):
            x = {"a": generator.normal(), "colour": generator.choice(["red", "green"])}
            if i > 300:
                x["b"] = generator.normal()
            y = "third" if i >= 1000 and x["colour"] == "red" else str(x["a"] > 0.0)
            right.append(model.predict_one(x) == y)
            model.learn_one(x, y)
        assert np.mean(right[500:1000]) > 0.9
        assert np.mean(right[2000:]) > 0.9
        assert sum(model.predict_proba_one(x).values()) == pytest.approx(1.0)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_a_third_label_leaves_the_scores_of_two(loss):
    xs, ys = examples(700)
    model = learn(classifier(loss=loss), xs, ys)
    before = [model.predict_proba_one(x) for x in xs[:50]]
    scores = [np.atleast_1d(model._model.score(x)[0]).copy() for x in xs[:50]]
    model._model.state = model._model.outputs.with_label(model._state, "third")
    for x, odds, score in zip(xs[:50], before, scores, strict=True):
        found = np.atleast_1d(model._model.score(x)[0])
        half = 0.5 if loss == "logistic" else 1.0
        assert found[1] - found[0] == pytest.approx(2.0 * half * score[0], abs=1e-12)
        assert found[2] < (found[0] + found[1]) / 2.0  # no neighbour has it
        if loss == "logistic":
            after = model.predict_proba_one(x)
            assert after["yes"] / after["no"] == pytest.approx(odds["yes"] / odds["no"], rel=1e-9)
    learn(model, xs, ys)


def test_the_unit_of_targets_does_not_matter():
    X, y = regression(2500)
    base = progressive(regressor(), X, y)
    assert r2(y[1000:], base[1000:]) > 0.9
    for unit, shift in ((1e-6, 0.0), (1e6, 0.0), (1e-60, 0.0), (1e60, 0.0), (1.0, 1e6), (1e6, 1e7)):
        found = progressive(regressor(), X, unit * (y + shift))
        # rounding may decide what block begins in which metric
        assert r2(y[1000:], found[1000:] / unit - shift) == pytest.approx(r2(y[1000:], base[1000:]), abs=3e-3)


@pytest.mark.parametrize(("unit", "shift"), [(1e-6, 0.0), (1e6, 0.0), (1.0, 1e9), (1e-3, 1e4), (1e12, -1e13)])
def test_the_unit_of_inputs_does_not_matter(unit, shift):
    X, y = regression(2500)
    base, found = (r2(y[1000:], progressive(regressor(), Z, y)[1000:]) for Z in (X, unit * X + shift))
    assert found == pytest.approx(base, abs=0.01)


def test_constant_and_heavy_tailed_columns_do_little_harm():
    """In the mean of three streams."""
    explained = []
    for seed in range(3):
        X, y = regression(3000, seed)
        generator = np.random.default_rng(3 + seed)
        heavy = np.sign(generator.normal(size=3000)) * generator.pareto(0.5, 3000)
        X[:, 0] = np.sinh(2.0 * X[:, 0])
        y = y - np.sin(np.arcsinh(X[:, 0]) / 2.0) + 2.0 * np.tanh(X[:, 0])
        model, found = regressor(max_features=64), []
        for x, target, tail in zip(as_dicts(X), y.tolist(), heavy.tolist(), strict=True):
            x |= {"constant": 7.0, "zero": 0.0, "tail": tail}
            found.append(model.predict_one(x))
            model.learn_one(x, target)
        explained.append(r2(y[1000:], np.array(found[1000:])))
    assert np.mean(explained) > 0.5


@pytest.mark.parametrize("n", [0, 5, 256, 300, 512, 1024])
@pytest.mark.parametrize("bad", [math.inf, -math.inf, 1e39, [1.0]], ids=repr)
def test_rejected_examples_are_named_and_change_nothing(bad, n):
    X, y = regression(n)
    xs = as_dicts(X)
    for make, targets in ((regressor, y.tolist()), (classifier, ["yes", "no"] * (n // 2) + ["yes"] * (n % 2))):
        model = learn(make(), xs, targets)
        before = content(model)
        with pytest.raises(InputError, match="x1"):
            model.learn_one({"x0": 1.0, "x1": bad, "x2": 0.0}, targets[0] if targets else 1.0)
        with pytest.raises(InputError, match="x1"):
            model.predict_one({"x0": 1.0, "x1": bad, "x2": 0.0})
        assert content(model) == before


def test_a_rejected_example_at_a_halving_of_scales_changes_nothing():
    X, y = regression(16_384)
    model = regressor(features_per_seed=1, max_features=2)
    model.learn_many(pd.DataFrame(X, columns=["x0", "x1", "x2"]), pd.Series(y))
    before = content(model)
    with pytest.raises(InputError, match="x1"):
        model.learn_one({"x0": 1.0, "x1": math.inf}, 1.0)
    assert content(model) == before


@pytest.mark.parametrize("outlier", [1e4, -1e12, 1e60])
@pytest.mark.parametrize("at", [600, 2000])
def test_one_extreme_target_is_forgotten(at, outlier):
    X, y = regression(3000)
    base = progressive(regressor(), X, y)
    spoilt = y.copy()
    spoilt[at] = outlier
    found = progressive(regressor(), X, spoilt)
    assert np.abs(found[at + 1 :]).max() < 20.0
    errors = [np.sqrt(np.mean((p - y)[at + 200 :] ** 2)) for p in (base, found)]
    assert errors[1] < 2.0 * errors[0]


def test_targets_that_change_a_thousandfold_are_followed():
    X, y = regression(5000)
    y[1500:] = 1000.0 * y[1500:] + 5000.0
    found = progressive(regressor(), X, y)
    assert r2(y[3000:], found[3000:]) > 0.7


@pytest.mark.parametrize("forgetting", [1.0, 0.9999, 0.999, 0.99, 0.9])
@pytest.mark.parametrize("l2", [0.0, 1e-4, 0.01, 1.0])
@pytest.mark.parametrize("way", ["newton", "joint"])
def test_coefficients_stay_bounded_with_any_forgetting(way, l2, forgetting):
    """More directions than a short memory holds examples, with steps of 64."""
    X, y = regression(6000)
    model = regressor(
        kernel=k.Gaussian(3.0), learner=way, forgetting=forgetting, features_per_seed=32, max_features=64, l2=l2
    )
    model.learn_many(pd.DataFrame(X, columns=["x0", "x1", "x2"]), pd.Series(y))
    assert np.abs(model._learner.groups.flat.newton).max() < 1e3
    p = model.predict_many(pd.DataFrame(X[:500], columns=["x0", "x1", "x2"]))
    assert np.abs(p).max() < 10.0
    if l2 < 1.0:
        assert r2(y[:500], p) > 0.2


@pytest.mark.parametrize("kernel", [k.DotProduct(), k.Polynomial(2), k.ArcCosine(1), k.Gaussian(1.0)], ids=repr)
@pytest.mark.parametrize("size", [1e-25, 1e-20, 1e-15, 1e-10, 1e-5, 1e5, 1e6])
def test_inputs_of_any_size_leave_finite_models(size, kernel):
    """Where nothing scales them: sines and products are of sizes whose squares float32 does not hold."""
    X, y = regression(400)
    model = regressor(kernel=kernel)
    for x, target in zip(as_dicts(size * X), y.tolist(), strict=True):
        try:
            model.learn_one(x, target)
        except InputError as error:
            assert "size" in str(error)  # noqa: PT017
    assert all(np.isfinite(tensor).all() for tensor in model._describe()[1].values())
    assert math.isfinite(model.predict_one({"x0": size}))


@pytest.mark.parametrize("options", [{}, {"batch_size": 7}, {"forgetting": 0.99}, {"cache_bytes": 5000}], ids=repr)
def test_memory_is_flat(options):
    xs, ys = examples(3000)
    model = learn(classifier(**options), xs[:2100], ys[:2100])  # groups may change their places at looks
    model.predict_one(xs[0])  # its code is loaded
    own = model._raw_memory_usage

    def event(x, y):
        model.predict_one(x)
        model.learn_one(x, y)

    assert least_growth(event, list(zip(xs[2100:], ys[2100:], strict=True))) < 5000  # one object per event: 7,200
    assert model._raw_memory_usage - own < 10_000


@pytest.mark.parametrize(("cap", "seeds", "at_once"), [(8, 1, 1), (15, 1, 1), (16, 2, 2), (36, 4, 4), (100, 12, 4)])
def test_features_never_exceed_the_cap(cap, seeds, at_once):
    xs, ys = examples(200)
    for way, expected in (("newton", at_once), ("joint", seeds)):
        model = learn(classifier(max_features=cap, learner=way), xs, ys)
        assert (model.n_seeds, model.n_features) == (expected, 8 * expected)


@pytest.mark.parametrize("estimator", [KernelClassifier, KernelRegressor])
def test_a_model_takes_no_memory_before_its_first_event(estimator):
    model = estimator()
    assert model._raw_memory_usage < 100_000
    model.predict_one({"x": 1.0})
    assert model._raw_memory_usage > 1_000_000


def test_a_huge_cap_allocates_no_memory(monkeypatch):
    """No more than 64 blocks are ever in use."""
    monkeypatch.setattr(growth, "FROM", 256)
    xs, ys = examples(300)
    model = learn(classifier(max_features=10**12), xs, ys)
    assert model.n_seeds == 6
    assert model._learner.most_blocks == 64


WRONG = [
    ({"loss": "hinge"}, "loss"),
    ({"loss": losses.Sigmoid()}, "loss"),
    ({"max_features": None}, "max_features"),
    ({"refit": upkeep.Refit()}, "refit"),
]


@pytest.mark.parametrize(("options", "name"), WRONG, ids=repr)
def test_options_of_first_order_are_rejected(options, name):
    for way in ("newton", learners.Newton(joint=True)):
        with pytest.raises(ValueError, match=rf'learner="dsg" with {name}=.* got learner='):
            KernelClassifier(learner=way, **options)
    assert KernelClassifier(learner="dsg", **options)


@pytest.mark.parametrize("forgetting", [0.0, -0.5, 1.0001, 2, math.nan, math.inf, "1"])
def test_forgetting_is_between_0_and_1(forgetting):
    with pytest.raises(ValueError, match="forgetting"):
        KernelRegressor(learner=learners.Newton(forgetting=forgetting))


@pytest.mark.parametrize("learner", ["blocks", True, 1, ["newton"], None, learners.DSG])
def test_another_learner_is_refused(learner):
    with pytest.raises(ValueError, match="Expected learner as"):
        KernelRegressor(learner=learner)


def filled(name, value):
    return lambda t: t[name].fill(value)


def put(name, place, value):
    return lambda t: t[name].__setitem__(place, value)


ARRAYS = ("newton", "steady", "sums", "weights", "mixer", "positive", "lead", "bounds", "standing", "priors")
TRIANGLE = 16 * 17 // 2
"""Numbers in the factor of a block."""

CRAFTED = {
    **{f"no {name}": (lambda t, name=name: t.pop(name)) for name in (*ARRAYS, "factor", "rows", "table")},
    **{
        f"{name} is {value}": filled(name, value)
        for name in (*ARRAYS, "factor", "rows", "reals")
        for value in (math.nan, math.inf)
    },
    **{
        f"{name} of another shape": (lambda t, name=name: t.update({name: t[name][..., :-1].copy()}))
        for name in (*ARRAYS, "factor", "rows", "table")
    },
    "only diagonals of factors": filled("diagonal", True),
    "a form of factors for fewer groups": lambda t: t.update(diagonal=t["diagonal"][:-1].copy()),
    "another form of factors": lambda t: t.update(diagonal=t["diagonal"].astype(np.int64)),
    "fewer groups": lambda t: t.update(factor=t["factor"][:TRIANGLE].copy()),
    "a factor of zeros": filled("factor", 0.0),
    "a diagonal with a zero": put("factor", TRIANGLE, 0.0),
    "a diagonal below 0": put("factor", TRIANGLE - 1, -1.0),
    "a mixer with a zero": put("mixer", (2, 2), 0.0),
    "a mixer below 0": put("mixer", (0, 0), -1.0),
    "signed weights of another shape": lambda t: t.update(signed=t["signed"][:-1].copy()),
    "positive weights below 0": put("positive", 1, -1e-9),
    "a lead beyond its bound": put("lead", 0, 11.0),
    "no priors": filled("priors", 0.0),
    "priors without end": filled("priors", 1e300),
    "bounds below 0": filled("bounds", -1.0),
    "losses below 0": filled("standing", -1.0),
    "the loss of nothing below 0": put("standing", -1, -1.0),
    "two blocks in a group": put("table", (0, 0), 2),
    "no blocks in a group": put("table", (3, 0), 0),
    "another bandwidth": put("table", (1, 1), 0),
    "a later first example": put("table", (2, 2), 256),
    "one group more": lambda t: t.update(table=np.pad(t["table"], ((0, 1), (0, 0)))),
    "a table of others": lambda t: t.update(table=t["table"].astype(np.float64)),
    "larger groups where there is no room": lambda t: t.update(table=np.concatenate([t["table"], [[2, 0, 256]]])),
    "fewer than none wait": put("ints", 4, -1),
    "more wait than there are": put("ints", 4, 3),
    "more wait than may": lambda t: t["ints"].__setitem__(4, 64) or t.update(rows=np.zeros(4 * 64 * 16, np.float32)),
    "very many wait": put("ints", 4, 2**63 - 1),
    "blocks beyond the cap": put("ints", 0, 5),
    "very many steps": put("ints", 1, 2**63 - 1),
    "very many examples": put("ints", 3, 2**63 - 1),
    "very many of both": lambda t: t["ints"].__setitem__([1, 3], 2**63 - 1),
    "no scales": lambda t: t.pop("scales.n"),
}


@pytest.fixture(scope="module")
def parts():
    xs, ys = examples(290)
    model = learn(classifier(), xs, ys)
    assert model._learner.numbers["buffered"] == 2
    return model_file.describe(model)


LARGER = {
    "a group of no blocks": put("table", (4, 0), 0),
    "a group of three blocks": put("table", (4, 0), 3),
    "a group of less than no blocks": put("table", (4, 0), -4),
    "a group of very many blocks": put("table", (4, 0), 2**62),
    "one block in a larger group": put("table", (5, 0), 1),
    "groups in each other's place": lambda t: t["table"].__setitem__([4, 5], t["table"][[5, 4]]),
    "a larger single group": put("table", (3, 0), 2),
    "no such bandwidth": put("table", (4, 1), 4),
    "a bandwidth below 0": put("table", (5, 1), -1),
    "a first example below 0": put("table", (4, 2), -1),
    "a first example to come": put("table", (4, 2), 1101),
    "a first example far off": put("table", (5, 2), 2**63 - 1),
    "only the single groups": lambda t: t.update(table=t["table"][:4].copy()),
    "no losses": lambda t: t.pop("standing"),
    "losses of the single groups": lambda t: t.update(standing=t["standing"][:9].copy()),
    "losses that are not numbers": put("standing", 4, math.nan),
    "a loss below 0": put("standing", 10, -1e-9),
    "no blocks": put("ints", 0, 0),
    "the single blocks": put("ints", 0, 4),
    "a block less": put("ints", 0, 9),
    "a block more": put("ints", 0, 11),
    "all blocks": put("ints", 0, 16),
    "blocks beyond the cap": put("ints", 0, 17),
    "blocks below 0": put("ints", 0, -10),
    "a zero in the factor of the largest": put("factor", 4 * 36, 0.0),
    "a factor below 0 in the last": put("factor", -1, -1.0),
    "functions of the single groups": lambda t: t.update(newton=t["newton"][: 3 * 4 * 8].copy()),
    "rows of the single groups": lambda t: t.update(rows=t["rows"][: 4 * 4 * 8].copy()),
}
"""Where groups of four and of two blocks of four features stand at 4 and 8, and four examples wait."""


@pytest.fixture(scope="module")
def grown_parts():
    xs, ys = examples(1100, ("b", "a", "d"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growth, "FROM", 256)
        patch.setattr(growth, "WORTH", -math.inf)  # no group ends
        model = learn(classifier(kernel=k.Gaussian(1.5), features_per_seed=4, max_features=64), xs, ys)
    assert model._learner.table[4:6, 0].tolist() == [4, 2]
    assert model._learner.tensors()["ints"].tolist()[:5] == [10, 1100, 1096, 1100, 4]
    return model_file.describe(model)


@pytest.mark.parametrize("change", LARGER)
def test_a_crafted_file_with_larger_groups_is_refused(change, grown_parts, tmp_path):
    assert load(write_parts(tmp_path, grown_parts)).n_features == 40
    with pytest.raises(ModelFileError):
        load(write_parts(tmp_path, grown_parts, LARGER[change]))


@pytest.mark.parametrize("change", CRAFTED)
def test_a_crafted_file_is_refused(change, parts, tmp_path):
    """Compiled code trusts the accepted state."""
    assert load(write_parts(tmp_path, parts)).n_steps == 290
    with pytest.raises(ModelFileError):
        load(write_parts(tmp_path, parts, CRAFTED[change]))


YOUNG = {
    "no form of factors": lambda t: t.pop("diagonal"),
    "a whole factor": put("diagonal", 0, False),
    "a diagonal with a zero": put("factor", 16, 0.0),
    "a diagonal below 0": put("factor", 15, -1.0),
}


@pytest.mark.parametrize("change", YOUNG)
def test_a_crafted_file_before_the_first_newton_step_is_refused(change, tmp_path):
    """Of the factors there are only the diagonals."""
    young = model_file.describe(learn(classifier(), *examples(5)))
    assert young[1]["factor"].shape == (5 * 16,)
    assert load(write_parts(tmp_path, young)).n_steps == 5
    with pytest.raises(ModelFileError):
        load(write_parts(tmp_path, young, YOUNG[change]))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learner", {"forgetting": 0.0}),
        ("learner", {"forgetting": "a"}),
        ("learner", {"forgetting": None}),
        ("learner", {"joint": 5}),
        ("learner", {"joint": True}),
        ("learner", {"features_per_seed": 4}),
        ("learner", "dsg"),
        ("learner", None),
        ("loss", "hinge"),
        ("max_features", 10**9),
        ("max_features", 64),
    ],
)
def test_a_crafted_parameter_is_refused(name, value, parts, tmp_path):
    description, tensors = copy.deepcopy(parts)
    parameters = description["parameters"]
    parameters[name] = {**parameters[name], **value} if isinstance(value, dict) else value
    tensor_file.write(tmp_path / "model", "model", description, tensors)
    with pytest.raises(ModelFileError):
        load(tmp_path / "model")
