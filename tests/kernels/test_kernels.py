"""Kernels: the mean of many features is the exact kernel, whose values are the known ones."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from cases import max_examples
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, special
from sklearn import gaussian_process, metrics
from sklearn.metrics import pairwise
from streams import classifier, content, examples, learn, predictions, regressor

from streamkernel import InputError, RandomFeatures, kernels, load, losses, rules, step_sizes
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.kernels.program import KernelProgram

SIMPLE = {
    "Gaussian": kernels.Gaussian(1.3),
    "Laplacian": kernels.Laplacian(1.7),
    "Cauchy": kernels.Cauchy(1.2),
    "Matern 0.3": kernels.Matern(0.3, 1.5),
    "Matern 0.5": kernels.Matern(0.5, 1.5),
    "Matern 1.5": kernels.Matern(1.5, 1.5),
    "Matern 7.7": kernels.Matern(7.7, 0.8),
    "multi-scale": kernels.MultiScale(kernels.Gaussian(1.3), (0.5, 3.0, 1.0)),
    "multi-scale of Matern": kernels.MultiScale(kernels.Matern(0.5, 1.2), (0.4, 1.0)),
    "dot product": kernels.DotProduct([0.5, 1.0, 0.0, 0.25]),
    "exponential series": kernels.DotProduct([0.3**n / math.factorial(n) for n in range(12)]),
    "constant": kernels.DotProduct([2.0]),
    "polynomial 1": kernels.Polynomial(1, c=0.0),
    "polynomial 2": kernels.Polynomial(2, c=0.5),
    "polynomial 3": kernels.Polynomial(3, c=1.0),
    "Hellinger": kernels.Hellinger(),
    "chi squared": kernels.ChiSquared(),
    "intersection": kernels.Intersection(),
    "Jensen-Shannon": kernels.JensenShannon(),
    "skewed chi squared": kernels.SkewedChiSquared(0.5),
    "skewed intersection": kernels.SkewedIntersection(2.0),
    "exponential semigroup": kernels.ExponentialSemigroup(0.4),
    "reciprocal semigroup": kernels.ReciprocalSemigroup(1.5),
    "arc-cosine 0": kernels.ArcCosine(0),
    "arc-cosine 1": kernels.ArcCosine(1),
    "arc-cosine 2": kernels.ArcCosine(2),
}
COMPOSITE = {
    "sum": SIMPLE["Gaussian"] + SIMPLE["intersection"],
    "product": SIMPLE["Gaussian"] * SIMPLE["arc-cosine 1"],
    "product of phases": SIMPLE["Gaussian"] * SIMPLE["skewed chi squared"],
    "product with a multi-scale": SIMPLE["arc-cosine 1"] * SIMPLE["multi-scale"],
    "sum of multi-scales": 0.5 * SIMPLE["multi-scale"].on("a") + SIMPLE["multi-scale of Matern"],
    "square": SIMPLE["Cauchy"] * SIMPLE["Cauchy"],
    "product with a signed sum": SIMPLE["chi squared"] * SIMPLE["Laplacian"],
    "multiple": 2.5 * SIMPLE["Gaussian"],
    "real multiple": 0.5 * SIMPLE["Hellinger"],
    "sum of real ones": SIMPLE["polynomial 2"] + 0.1 * SIMPLE["exponential semigroup"],
    "product with a sketch": SIMPLE["polynomial 2"] * SIMPLE["Gaussian"],
    "distributed": (SIMPLE["Gaussian"] + 2.0 * SIMPLE["Hellinger"]) * (SIMPLE["Cauchy"] + SIMPLE["constant"]),
    "on some": SIMPLE["Gaussian"].on("a") * SIMPLE["Laplacian"].on("b", ("c", 1)) + SIMPLE["polynomial 1"],
    "of a transform": SIMPLE["arc-cosine 0"].of("unit") + SIMPLE["intersection"].of("simplex").on("a", "b"),
    "of a function": SIMPLE["Gaussian"].of(lambda x: {"total": sum(x.values())}),
    "of a transform of a transform": SIMPLE["Gaussian"].of("unit").of("log1p"),
}
ALL = {**SIMPLE, **COMPOSITE}
INPUTS = {
    "random": ({"a": 0.7, "b": 1.2, ("c", 1): 0.1}, {"a": 0.2, "b": 0.9, ("c", 1): 1.5}),
    "equal": ({"a": 0.7, "b": 0.2}, {"a": 0.7, "b": 0.2}),
    "nearly equal": ({"a": 0.7, "b": 0.2}, {"a": 0.71, "b": 0.19}),
    "zero": ({"a": 0.0, "b": 0.0}, {"a": 0.4, "b": 1.1}),
    "both zero": ({"a": 0.0}, {"b": 0.0}),
    "missing": ({"a": 0.7, "b": 1.2}, {"b": 0.3}),
    "apart": ({"a": 0.7}, {"b": 0.3}),
    "a string": ({"a": 0.7, "b": "red"}, {"b": "red", "c": "blue"}),
}


@pytest.mark.parametrize("pair", INPUTS)
@pytest.mark.parametrize("name", ALL)
def test_the_mean_of_many_features_is_the_kernel(name, pair):
    """In the standard error of the estimates of 60 seeds; those of a block may depend on each other."""
    kernel, (x, x2) = ALL[name], INPUTS[pair]
    if name == "of a function" and pair == "a string":
        x, x2 = {"a": 1.0}, {"a": 2.0}
    estimates = []
    for seed in range(60):
        features = RandomFeatures(kernel, n_features=150, seed=seed)
        z, z2 = features.transform_one(x), features.transform_one(x2)
        estimates.append(sum(z[output] * z2[output] for output in z))
    error = np.std(estimates) / math.sqrt(60)
    assert abs(np.mean(estimates) - kernel(x, x2)) < 5.0 * error + 2e-6 * max(1.0, abs(kernel(x, x2)))
    assert kernel(x, x2) == pytest.approx(kernel(x2, x), rel=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_the_kernel_is_not_another_one(name):
    """With 150,000 features, a kernel that is some percent off would be told."""
    kernel, (x, x2) = ALL[name], INPUTS["random"]
    estimates = []
    for seed in range(100):
        features = RandomFeatures(kernel, n_features=1500, seed=seed)
        z, z2 = features.transform_one(x), features.transform_one(x2)
        estimates.append(sum(z[output] * z2[output] for output in z))
    error = np.std(estimates) / 10.0
    assert abs(np.mean(estimates) - kernel(x, x2)) < 5.0 * error + 1e-6
    assert error < 0.05 * kernel(x, x2)


positive = st.lists(st.floats(0.0, 5.0), min_size=3, max_size=3)


def told(values):
    return dict(zip("abc", values, strict=True))


@given(positive, positive)
def test_values_match_scikit_learn(a, b):
    x, x2, A, B = told(a), told(b), [a], [b]
    distance = np.linalg.norm(np.subtract(a, b))
    known = {
        kernels.Gaussian(1.3): pairwise.rbf_kernel(A, B, gamma=0.5 / 1.3**2),
        kernels.Laplacian(1.7): pairwise.laplacian_kernel(A, B, gamma=1.0 / 1.7),
        kernels.Polynomial(3, 1.5): pairwise.polynomial_kernel(A, B, degree=3, gamma=1.0, coef0=1.5),
        kernels.DotProduct([1.0, 1.0]): gaussian_process.kernels.DotProduct(1.0)(A, B),
        kernels.Matern(0.5, 2.0): math.exp(-distance / 2.0),
        **{kernels.Matern(nu, 2.0): gaussian_process.kernels.Matern(2.0, nu=nu)(A, B) for nu in (0.3, 1.5, 2.5, 4.2)},
    }
    for kernel, value in known.items():
        assert kernel(x, x2) == pytest.approx(float(np.squeeze(value)), rel=1e-6, abs=1e-12)
    if min(a) > 0.0 and min(b) > 0.0:
        shares_a, shares_b = np.divide(a, sum(a)), np.divide(b, sum(b))
        js = kernels.JensenShannon().of("simplex")(x, x2)
        middle = 0.5 * (shares_a + shares_b)
        divergence = 0.5 * (special.rel_entr(shares_a, middle) + special.rel_entr(shares_b, middle)).sum()
        assert js == pytest.approx(1.0 - divergence / math.log(2.0))
        # 2ab/(a + b) = ½(a + b) - ½(a - b)²/(a + b); scikit-learn's kernel is the last without the ½
        half = 0.5 * (sum(a) + sum(b) + pairwise.additive_chi2_kernel(A, B)[0, 0])
        assert kernels.ChiSquared()(x, x2) == pytest.approx(half)


def test_scikit_learn_draws_the_same_skewed_and_additive_kernels():
    """Its samplers estimate the kernels that ours are told to be."""
    from sklearn.kernel_approximation import AdditiveChi2Sampler, SkewedChi2Sampler

    generator = np.random.default_rng(0)
    a, b = generator.uniform(0.1, 2.0, (2, 3))
    mapped = AdditiveChi2Sampler(sample_steps=40, sample_interval=0.05).fit_transform([a, b])
    assert kernels.ChiSquared()(told(a), told(b)) == pytest.approx(mapped[0] @ mapped[1], rel=0.02)
    mapped = SkewedChi2Sampler(skewedness=0.5, n_components=200_000, random_state=0).fit_transform([a, b])
    assert kernels.SkewedChiSquared(0.5)(told(a), told(b)) == pytest.approx(mapped[0] @ mapped[1], abs=1e-2)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_arc_cosine_kernel_is_its_integral(order):
    a, b = np.array([1.2, 0.3]), np.array([-0.4, 0.9])

    def over_angle(angle):
        u = np.array([math.cos(angle), math.sin(angle)])
        return max(u @ a, 0.0) ** order * max(u @ b, 0.0) ** order * (u @ a > 0) * (u @ b > 0)

    radial = integrate.quad(lambda r: r ** (2 * order + 1) * math.exp(-0.5 * r * r), 0.0, np.inf)[0]
    angular = integrate.quad(over_angle, 0.0, 2.0 * math.pi, limit=500)[0]
    x, x2 = dict(zip("ab", a, strict=True)), dict(zip("ab", b, strict=True))
    assert kernels.ArcCosine(order)(x, x2) == pytest.approx(2.0 * radial * angular / (2.0 * math.pi), rel=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_a_kernel_is_positive_semidefinite(name):
    generator = np.random.default_rng(1)
    xs = [dict(zip(("a", "b", ("c", 1)), map(float, row), strict=True)) for row in generator.uniform(0, 2, (12, 3))]
    K = np.array([[ALL[name](x, x2) for x2 in xs] for x in xs])
    assert np.linalg.eigvalsh(K).min() > -1e-9 * max(1.0, np.trace(K))


@pytest.mark.parametrize("name", ALL)
def test_cached_and_regenerated_features_have_the_same_bits(name):
    generator = np.random.default_rng(2)
    values = generator.uniform(0, 2, (30, 3))
    functions = [
        FirstOrderLearner(
            ALL[name],
            losses.Square(),
            rules.UDSG(2, 1),
            step_sizes.Constant(0.1),
            per_k_xx=True,
            block_size=7,
            max_features=600,
            cache_bytes=cache_bytes,
            seed=3,
        )
        for cache_bytes in (0, 20_000, 1 << 24)
    ]
    for f in functions:
        for row in values:
            f.learn_one(f.row(dict(zip("abc", row.tolist(), strict=True))), float(row.sum()))
    found = [[f.score_event({"c": 0.4, "a": 0.1, "late": 1.0}), *f.tensors().values()] for f in functions]
    assert functions[0].directions.cached_bytes < functions[1].directions.cached_bytes
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))
    assert np.isfinite(found[0][0]).all()


@pytest.mark.parametrize("name", ALL)
def test_the_order_of_names_and_names_that_are_zero_change_nothing(name):
    kernel = ALL[name]
    features = RandomFeatures(kernel, n_features=33, seed=4)
    z = features.transform_one({"a": 0.3, "b": 0.2, ("c", 1): 1.0})
    assert features.transform_one({("c", 1): 1.0, "b": 0.2, "a": 0.3}) == z
    assert features.transform_one({("c", 1): 1.0, "late": 0.0, "b": 0.2, "a": 0.3}) == z


@pytest.mark.parametrize("name", [name for name in ALL if name != "of a function"])
def test_models_of_any_kernel_learn_and_are_saved(name, tmp_path):
    xs, ys = examples(300)
    xs = [{feature: abs(value) for feature, value in x.items()} for x in xs]
    targets = [x["x0"] * x["x1"] for x in xs]
    model = learn(regressor(kernel=ALL[name], max_features=128, features_per_seed=32), xs, targets)
    assert math.isfinite(model.objective)
    assert model.objective < 0.5 * np.var(targets) or name in ("constant", "on some", "of a transform", "polynomial 1")
    twin_ = classifier(kernel=ALL[name], batch_size=4, averaging=True)
    learn(twin_, xs, ys)
    for one, labels in ((model, targets), (twin_, ys)):
        one.save(tmp_path / "model")
        twin = load(tmp_path / "model")
        assert twin.kernel == ALL[name]
        assert predictions(twin, xs[:20]) == predictions(one, xs[:20])
        assert content(learn(twin, xs[:9], labels[:9])) == content(learn(one, xs[:9], labels[:9]))


def test_a_kernel_of_a_function_is_pickled_but_not_saved(tmp_path):
    model = learn(regressor(kernel=ALL["Gaussian"].of(_total)), [{"a": 1.0}], [1.0])
    assert predictions(pickle.loads(pickle.dumps(model)), [{"a": 2.0}]) == predictions(model, [{"a": 2.0}])
    with pytest.raises(ValueError, match="Expected a transform by its name"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def _total(x):
    return {"total": sum(x.values())}


@pytest.mark.parametrize(
    ("kernel", "x", "message"),
    [
        (kernels.Hellinger(), {"a": 1.0, "b": -0.5}, "of at least 0 for Hellinger, got -0.5 - at x['b']"),
        (kernels.ChiSquared(), {"b": -1e-9}, "of at least 0 for ChiSquared, got -1e-09 - at x['b']"),
        (kernels.Intersection() * kernels.Gaussian(1.0), {"b": -1}, "of at least 0 for Intersection, got -1.0"),
        (kernels.JensenShannon(), {"b": -1}, "of at least 0 for JensenShannon"),
        (kernels.ExponentialSemigroup(), {("c", 1): -1}, "ExponentialSemigroup, got -1.0 - at x[('c', 1)]"),
        (kernels.ReciprocalSemigroup(), {"b": -1}, "of at least 0 for ReciprocalSemigroup"),
        (kernels.SkewedChiSquared(0.5), {"b": -0.5}, "above -0.5 for SkewedChiSquared, got -0.5 - at x['b']"),
        (kernels.SkewedIntersection(), {"b": -1.5}, "above -1 for SkewedIntersection, got -1.5 - at x['b']"),
        (kernels.Gaussian(1.0).of("simplex"), {"b": -1.5}, "to take shares of, got -1.5 - at x['b']"),
        (kernels.Gaussian(1.0).of("log1p"), {"b": -1.5}, "to take logarithms of, got -1.5 - at x['b']"),
        (kernels.Gaussian(1.0).of(lambda x: {"r": 1 / x["a"]}), {"b": 1.0}, "KeyError"),
        (kernels.Gaussian(1.0).of(lambda x: x if "a" in x else 7), {"b": 1.0}, "Expected features by name, got int 7"),
        (kernels.Gaussian(1.0).of(lambda x: {"r": x.get("a", math.inf)}), {"b": 1.0}, "got inf - at x['r']"),
        (kernels.Polynomial(9, 1.0), {"b": 1e20}, "of usable size for Polynomial"),
        (kernels.DotProduct([0.0, 0.0, 1.0]), {"b": 1e20}, "of usable size for DotProduct"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_values_outside_the_domain_are_named_and_change_nothing(kernel, x, message):
    """In a model that has learned and in a new one, in batches and not; and by the kernel itself where it can tell."""
    good = {"a": 0.5, "b": 0.25}
    for model in (classifier(kernel=kernel), regressor(kernel=kernel, batch_size=4)):
        for n in range(3):
            before = model.n_steps, model.predict_one(good)
            calls = [
                (model.learn_one, x, 1),
                (model.predict_one, x),
                (RandomFeatures(kernel, n_features=4).transform_one, x),
            ]
            if "usable size" not in message:
                calls.append((kernel, x, x))
            for call, *arguments in calls:
                with pytest.raises(InputError) as caught:
                    call(*arguments)
                assert message in str(caught.value)
            assert (model.n_steps, model.predict_one(good)) == before
            model.learn_one(good, n % 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: kernels.Laplacian(-1.0),
        lambda: kernels.Cauchy("mean"),
        lambda: kernels.Matern(0.0),
        lambda: kernels.Matern(1.5, length_scale=True),
        lambda: kernels.MultiScale(kernels.Hellinger()),
        lambda: kernels.MultiScale("Gaussian"),
        lambda: kernels.MultiScale(kernels.Gaussian(1.0).on("a")),
        lambda: kernels.MultiScale(kernels.Gaussian(1.0), ()),
        lambda: kernels.MultiScale(kernels.Gaussian(1.0), [1.0] * 65),
        lambda: kernels.MultiScale(kernels.Gaussian(1.0), [1.0, 0.0]),
        lambda: kernels.MultiScale(kernels.Gaussian(1.0), [math.nan]),
        lambda: kernels.MultiScale(kernels.Gaussian(1.0), "many"),
        lambda: kernels.MultiScale(kernels.Gaussian(1.0), 0.5),
        lambda: KernelProgram(SIMPLE["multi-scale"] * (SIMPLE["Cauchy"] + SIMPLE["multi-scale"].on("a")), 0),
        lambda: kernels.DotProduct([]),
        lambda: kernels.DotProduct([0.0, 0.0]),
        lambda: kernels.DotProduct([1.0, -1.0]),
        lambda: kernels.DotProduct([1.0] * 33),
        lambda: kernels.DotProduct("many"),
        lambda: kernels.Polynomial(0),
        lambda: kernels.Polynomial(2.5),
        lambda: kernels.Polynomial(2, -1.0),
        lambda: kernels.SkewedChiSquared(0.0),
        lambda: kernels.SkewedIntersection(math.inf),
        lambda: kernels.ExponentialSemigroup(0.0),
        lambda: kernels.ReciprocalSemigroup(math.nan),
        lambda: kernels.ArcCosine(3),
        lambda: -1.0 * kernels.Gaussian(1.0),
        lambda: kernels.Gaussian(1.0).on(),
        lambda: kernels.OnInputs(kernels.Gaussian(1.0), "ab"),
        lambda: kernels.Gaussian(1.0).of("cube"),
        lambda: kernels.Sum(kernels.Gaussian(1.0), 3),
        lambda: classifier(kernel="Gaussian"),
        lambda: RandomFeatures(3.0),
        lambda: KernelProgram(math.prod([kernels.Gaussian(1.0)] * 63, start=kernels.Gaussian(1.0)), 0),
    ],
)
def test_parameters_out_of_range_are_refused(make):
    with pytest.raises(ValueError, match="Expected"):
        make()


def test_only_kernels_add_and_only_numbers_multiply():
    for wrong in (lambda: kernels.Gaussian(1.0) + 1.0, lambda: "2" * kernels.Gaussian(1.0)):
        with pytest.raises(TypeError):
            wrong()


def test_a_kernel_of_pending_bandwidth_has_no_value():
    with pytest.raises(ValueError, match="taken from a stream"):
        (kernels.Hellinger() + kernels.Laplacian())({"a": 1.0}, {"a": 2.0})


def test_strings_match_one_hot_indicators():
    xs = [{"size": float(i % 5), "colour": ("red", "green", "blue")[i % 3], ("c", 1): str(i % 2)} for i in range(200)]
    told = [{"size": x["size"], f"colour={x['colour']}": 1, f"('c', 1)={x[('c', 1)]}": True} for x in xs]
    ys = [x["colour"] == "red" and x["size"] > 2 for x in xs]
    for kernel in (kernels.Gaussian(), kernels.ChiSquared() + kernels.Gaussian(1.0).on("colour")):
        a, b = learn(classifier(kernel=kernel), xs, ys), learn(classifier(kernel=kernel), told, ys)
        ours, theirs = a._learner.tensors(), b._learner.tensors()
        assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)
        assert a.predict_proba_one(xs[0]) == b.predict_proba_one(told[0])
    assert metrics.accuracy_score(ys, [a.predict_one(x) for x in xs]) > 0.8
    assert kernels.Gaussian(1.0)(xs[0], xs[1]) == kernels.Gaussian(1.0)(told[0], told[1])


def test_strings_in_a_data_frame_are_those_of_its_rows():
    import pandas as pd

    X = pd.DataFrame({"size": [0.0, 1.0, 2.0, 3.0] * 25, "colour": ["red", "blue", "red", "green"] * 25})
    y = pd.Series([True, False, True, False] * 25)
    many, one = classifier(kernel=kernels.Gaussian()), classifier(kernel=kernels.Gaussian())
    many.learn_many(X, y)
    learn(one, X.to_dict("records"), y)
    assert content(many) == content(one)
    assert many.predict_many(X).tolist() == [one.predict_one(x) for x in X.to_dict("records")]


@pytest.mark.parametrize("rule", [rules.DSG(), rules.UDSG(1, 2), rules.CDSG(math.inf), rules.CDSG()], ids=repr)
@pytest.mark.parametrize("name", ["Gaussian", "polynomial 2", "sum"])
def test_a_multiple_of_a_kernel_learns_the_same(name, rule):
    """With the default step; λ weighs another norm, and is 0."""
    xs, _ = examples(400)
    xs = [{feature: abs(value) for feature, value in x.items()} for x in xs]
    ys = [x["x0"] * x["x1"] for x in xs]
    one, other = (regressor(kernel=k, rule=rule, max_features=64) for k in (ALL[name], 7.0 * ALL[name]))
    learn(one, xs, ys)
    learn(other, xs, ys)
    assert one.n_features == other.n_features
    assert np.allclose(predictions(one, xs[:50]), predictions(other, xs[:50]), rtol=1e-4, atol=1e-4)


@max_examples(25)
@given(st.floats(1e-3, 1e3), st.sampled_from(["polynomial 2", "arc-cosine 2", "intersection", "sum", "multiple"]))
def test_the_default_step_is_in_units_of_the_kernel(scale, name):
    """Whatever the size of k(x, x), a model neither diverges nor stands still."""
    xs, _ = examples(200)
    xs = [{feature: scale * abs(value) for feature, value in x.items()} for x in xs]
    ys = [math.tanh(x["x0"] / scale - x["x1"] / scale) for x in xs]
    model = learn(regressor(kernel=ALL[name], max_features=64, features_per_seed=32), xs, ys)
    assert model.objective < 0.75 * np.var(ys)
