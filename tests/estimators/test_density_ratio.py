"""Density ratios: the losses are the duals, the steps those of the paper, and the limits known densities."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from cases import covering
from hypothesis import assume, given
from hypothesis import strategies as st
from reference import algorithms
from reference import tasks as plain
from river import preprocessing
from streams import SMALL, WAYS, content, examples, nested

from streamkernel import InputError, KernelDensityRatio, ModelFileError, learners, load, rules, step_sizes, tensor_file
from streamkernel.estimators import model_file
from streamkernel.estimators.densities import Ratio, TruncatedRatio
from streamkernel.kernels import Gaussian
from streamkernel.losses.loss import LARGEST_EXPONENT

SETTLING = step_sizes.PowerDecay(0.05, c=3e-4)


def events(X):
    return [dict(enumerate(row)) for row in X.tolist()]


def learn(model, xs, ys):
    for x, y in zip(xs, ys, strict=True):
        model.learn_one(x, y)
    return model


def mixed(q, p, seed=0):
    """Return events of q and p in random order, and which are of q."""
    order = np.random.default_rng(seed).permutation(len(q) + len(p))
    return np.array(events(np.concatenate([q, p])), object)[order], (order < len(q)).tolist()


@pytest.mark.parametrize("f", [-4.0, -1.0, -0.2, 0.3, 2.0])
@pytest.mark.parametrize("rho", [None, 0.0, -0.7, -2.0])
def test_the_loss_of_q_is_the_fenchel_dual(rho, f):
    loss = Ratio() if rho is None else TruncatedRatio(rho)
    assert loss.value(f, 1.0) == pytest.approx(plain.Ratio(rho).dual(-math.exp(f)), abs=1e-6)
    assert loss.value(f, -1.0) == pytest.approx(math.exp(f))
    assert loss.value(f, 3.0) == pytest.approx(3.0 * loss.value(f, 1.0))
    assert loss.value(f, -3.0) == pytest.approx(3.0 * math.exp(f))


@given(st.floats(-20, 60), st.sampled_from([-2.5, -1.0, 1.0, 0.3]), st.sampled_from([None, 0.0, -1.5]))
def test_the_derivative_matches_finite_differences(f, y, rho):
    loss = Ratio() if rho is None else TruncatedRatio(rho)
    h = 1e-5
    assume(rho is None or abs(f + rho) > 2.0 * h)
    assume(abs(f - LARGEST_EXPONENT) > 2.0 * h)
    difference = (loss.value(f + h, y) - loss.value(f - h, y)) / (2.0 * h)
    assert loss.derivative(f, y)[0] == pytest.approx(difference, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("f", [-1e3, 1e3, 1e8, -1e90, 1e90])
@pytest.mark.parametrize("loss", [Ratio(), TruncatedRatio(-1.0)], ids=repr)
def test_scores_of_any_size_have_finite_losses(loss, f):
    for y in (1.0, -1.0):
        assert math.isfinite(loss.value(f, y))
        assert np.isfinite(loss.derivative(f, y)).all()


@pytest.mark.parametrize("rho", [None, 0.0, -1.0])
@pytest.mark.parametrize("share", [0.5, 0.2])
def test_steps_match_the_reference(share, rho):
    """α moves by -γw(δ_p exp f - δ_q)φ, and shrinks by 1 - γλ, with the weights that the docstring names."""
    generator = np.random.default_rng(4)
    X, of_q = generator.normal(size=(160, 3)), generator.random(160) < share
    X[of_q] += 0.8
    options = {
        "features_per_seed": 8,
        "max_features": 80,
        "l2": 0.05,
        "step_size": step_sizes.PowerDecay(0.5, c=0.05),
        "seed": 2,
    }
    form = {"divergence": "kl"} if rho is None else {"divergence": "novelty", "rho": rho}
    model = KernelDensityRatio(**nested(kernel=Gaussian(1.3), learner="novelty", **form, **options))
    reference = algorithms.Reference(
        algorithms.gaussian([0, 1, 2], 1.3, 8, seed=2), plain.Ratio(rho), algorithms.dsg,
        lambda t: 0.5 / (1.0 + 0.05 * t), block_size=8, most_blocks=10, seed=2,
    )  # fmt: skip
    counts, values = {True: 0, False: 0}, {True: [], False: []}
    for i, (x, y) in enumerate(zip(events(X), of_q.tolist(), strict=True)):
        f = reference.scores(X[i : i + 1])[0]
        assert model._model.score(x)[0] == pytest.approx(f[0], abs=1e-4)
        values[y].append(plain.Ratio(rho).value(f, 1.0 if y else -1.0))
        counts[y] += 1
        shares = {side: (n + 1) / (i + 3) for side, n in counts.items()}
        rare = min(shares.values())
        model.learn_one(x, y)
        reference.l2 = 0.05 * 2.0 * rare
        reference.learn(X[i : i + 1], [(1.0 if y else -1.0) * 2.0 * rare / shares[y]])
    assert model.divergence_ == pytest.approx(-np.mean(values[True]) - np.mean(values[False]), abs=1e-4)


CORRELATED = np.array([[1.0, 0.7], [0.7, 1.0]])


def gaussians(name, n, m, seed=0):
    """Return n events of q, m of p, the logarithm of their ratio, and KL(q‖p)."""
    generator = np.random.default_rng(seed)
    if name == "shifted":
        q, p = generator.normal(1.0, 1.0, (n, 1)), generator.normal(0.0, 1.0, (m, 1))
        return q, p, lambda X: X[:, 0] - 0.5, 0.5
    q = generator.normal(size=(n, 2)) @ np.linalg.cholesky(CORRELATED).T
    precision, logdet = np.linalg.inv(CORRELATED), np.log(np.linalg.det(CORRELATED))
    return (
        q,
        generator.normal(size=(m, 2)),
        lambda X: 0.5 * ((X**2).sum(1) - np.einsum("ij,jk,ik->i", X, precision, X) - logdet),
        -0.5 * logdet,
    )


def errors(model, X, log_ratio):
    return np.array([model.predict_one(x) for x in events(X)]) - log_ratio(X)


@pytest.mark.parametrize(
    ("name", "lengths"),
    covering(itertools.product(["shifted", "correlated"], [(6000, 6000), (2500, 12_000), (12_000, 2500)]), together=1),
)
def test_the_log_ratio_of_gaussians_is_learned_whatever_the_streams_lengths(name, lengths):
    q, p, log_ratio, divergence = gaussians(name, *lengths)
    model = learn(
        KernelDensityRatio(learner=learners.DSG(rule=rules.DSG(), step_size=SETTLING, averaging=True), l2=0.0001),
        *mixed(q, p),
    )
    fresh, others, _, _ = gaussians(name, 400, 2000, seed=1)
    fresh = fresh[(np.abs(fresh) < 2.0).all(axis=1)]  # where both have events
    assert np.sqrt(np.mean(errors(model, fresh, log_ratio) ** 2)) < 0.3
    assert np.mean(errors(model, fresh, log_ratio)) == pytest.approx(0.0, abs=0.15)
    assert np.exp([model.predict_one(x) for x in events(others)]).mean() == pytest.approx(1.0, abs=0.15)
    assert model.divergence_ == pytest.approx(divergence, abs=0.15)


def test_equal_streams_have_no_divergence():
    generator = np.random.default_rng(3)
    X = generator.normal(size=(6000, 2))
    model = learn(
        KernelDensityRatio(learner=learners.DSG(rule=rules.DSG(), step_size=SETTLING, averaging=True)),
        events(X),
        (generator.random(6000) < 0.5).tolist(),
    )
    assert model.divergence_ == pytest.approx(0.0, abs=0.05)
    assert np.abs([model.predict_one(x) for x in events(X[:200])]).mean() < 0.15


def test_the_novelty_form_learns_only_ratios_above_its_threshold():
    """With ρ = -½ and log q/p = x - ½: truncated below x = 1, and E_q max(0, x - 1) is (2π)^-½."""
    q, p, log_ratio, _ = gaussians("shifted", 8000, 8000)
    model = learn(
        KernelDensityRatio(
            learner=learners.DSG(rule=rules.DSG(), step_size=SETTLING), divergence="novelty", rho=-0.5, l2=0.0001
        ),
        *mixed(q, p),
    )
    low = np.linspace(-2.0, 0.5, 9)[:, None]
    assert [model.predict_one(x) for x in events(low)] == [0.5] * 9
    high = np.linspace(1.3, 2.5, 9)[:, None]
    assert np.abs(errors(model, high, log_ratio)).max() < 0.35
    assert model.divergence_ == pytest.approx((2.0 * math.pi) ** -0.5, abs=0.1)


def test_it_works_behind_a_scaler():
    xs, ys = examples(50, (False, True))
    model = preprocessing.StandardScaler() | KernelDensityRatio(**nested(learner="novelty", **SMALL))
    learn(model, xs, ys)
    assert isinstance(model.predict_one(xs[0]), float)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "options", [{}, {"divergence": "novelty", "rho": -1.0, "batch_size": 4, "kernel": Gaussian(1.0)}]
)
@pytest.mark.parametrize("n", [0, 1, 130, 290])
def test_a_copy_predicts_and_learns_the_same_bits(n, options, way, tmp_path):
    xs, ys = examples(330, (False, True))
    model = learn(KernelDensityRatio(**nested(learner="novelty", **SMALL, **options)), xs[:n], ys[:n])
    twin = WAYS[way](model, tmp_path)
    assert content(twin) == content(model)
    assert twin.divergence_ == model.divergence_
    assert [twin.predict_one(x) for x in xs] == [model.predict_one(x) for x in xs]
    assert content(learn(twin, xs[n:], ys[n:])) == content(learn(model, xs[n:], ys[n:]))


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("counts", np.array([-1, 2])),
        ("counts", np.ones(2)),
        ("losses", np.array([0.0, np.nan])),
        ("losses", np.zeros(3)),
    ],
)
def test_a_file_with_invalid_running_numbers_is_rejected(name, tensor, tmp_path):
    description, tensors = model_file.describe(
        learn(KernelDensityRatio(**nested(learner="novelty", **SMALL)), *examples(5, (False, True)))
    )
    tensor_file.write(tmp_path / "model", "model", description, tensors | {name: tensor})
    with pytest.raises(ModelFileError, match="expected"):
        load(tmp_path / "model")


def test_features_and_memory_are_bounded():
    xs, ys = examples(400, (False, True))
    model = learn(KernelDensityRatio(**nested(learner="novelty", **SMALL)), xs, ys)
    assert model.n_features == 32
    assert model.n_steps == 400
    assert model._state.first is None


@pytest.mark.parametrize("value", [float("inf"), 1e39, [1.0]], ids=repr)
def test_a_bad_value_is_named_and_changes_nothing(value):
    xs, ys = examples(40, (False, True))
    for kernel in (None, Gaussian(1.0)):
        model = learn(KernelDensityRatio(**nested(kernel=kernel, learner="novelty", **SMALL)), xs, ys)
        before = content(model)
        for call in (lambda x, model=model: model.learn_one(x, True), model.predict_one):
            with pytest.raises(InputError, match=r"at x\['x1'\]"):
                call({"x0": 1.0, "x1": value})
        with pytest.raises(InputError, match="at y"):
            model.learn_one({"x0": 1.0}, value)
        assert content(model) == before


@pytest.mark.parametrize(
    "options", [{"divergence": "l2"}, {"divergence": None}, {"rho": 0.1}, {"rho": "0"}, {"rho": -math.inf}]
)
def test_parameters_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match="Expected"):
        KernelDensityRatio(**nested(learner="novelty", **options))
