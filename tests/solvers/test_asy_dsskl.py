"""AsyDSSKL as an estimator: scikit-learn's checks, accuracy, sparsity, the final model, Ctrl-C."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cases import slow
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import check_estimator

from streamkernel import kernels, losses
from streamkernel.features.compiled_kernel import BY_FEATURES
from streamkernel.kernels.program import KernelProgram
from streamkernel.posterior.posteriors import FeatureMap
from streamkernel.solvers import AsyDSSKL, rounds
from streamkernel.solvers.rounds import PER_BLOCK, ChosenFeatures

SMALL: dict[str, Any] = {"rounds": 2, "features_per_round": 32, "max_epochs": 60}


@pytest.mark.parametrize("loss", ["smooth_hinge", "square", slow("logistic"), slow("sigmoid"), slow("correntropy")])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_checks(loss: str) -> None:
    results = check_estimator(AsyDSSKL(loss=loss, **SMALL), on_skip=None)
    assert sum(result["status"] == "passed" for result in results) > 50
    assert {result["status"] for result in results} <= {"passed", "skipped"}  # arrays of other libraries are skipped


def rings(n: int = 600, classes: int = 2, seed: int = 0) -> tuple[Any, Any]:
    """Points whose class is the ring they are in."""
    X = np.random.default_rng(seed).uniform(-1, 1, (n, 2))
    return X, np.minimum((np.hypot(*X.T) * classes).astype(int), classes - 1)


def waves(n: int = 600, seed: int = 0) -> tuple[Any, Any]:
    """Return points and a smooth function of them, with a large mean and deviation."""
    X = np.random.default_rng(seed).uniform(-2, 2, (n, 2))
    return X, 1000.0 + 50.0 * np.sin(2 * X[:, 0]) * X[:, 1]


@pytest.mark.parametrize(
    ("loss", "classes"),
    [("logistic", 2), slow("smooth_hinge", 2), ("sigmoid", 2), slow("logistic", 4), ("smooth_hinge", 4)],
)
def test_rings_are_separated_with_some_of_the_features(loss: str, classes: int) -> None:
    X, y = rings(classes=classes)
    names = np.array(["a", "b", "c", "d"])[y]
    model = AsyDSSKL(loss=loss, rounds=2, features_per_round=128).fit(X, names)
    X_test, y_test = rings(seed=1, classes=classes)
    assert model.score(X_test, np.array(["a", "b", "c", "d"])[y_test]) > (0.96 if classes == 2 else 0.9)
    assert 0 < len(model.features_) < 256
    assert model.coef_.shape == (1 if classes == 2 else 4, 2 * len(model.features_))
    assert is_classifier(model)
    assert hasattr(model, "predict_proba") == (loss == "logistic")


@pytest.mark.parametrize("loss", ["square", "correntropy"])
def test_waves_in_units_of_the_target(loss: str) -> None:
    X, y = waves()
    model = AsyDSSKL(loss=loss, rounds=2, features_per_round=128).fit(X, y)
    assert model.score(*waves(seed=1)) > 0.9
    assert is_regressor(model)


def test_outliers_do_not_move_correntropy() -> None:
    X, y = waves()
    y[::10] += 10_000.0
    square, robust, told = (
        AsyDSSKL(loss=loss, rounds=2, features_per_round=128).fit(X, y).score(*waves(seed=1))
        for loss in ("square", "correntropy", losses.Correntropy(100.0))
    )
    assert square < 0.5
    assert robust > 0.9
    assert told > 0.9


def test_probabilities_are_those_of_the_scores() -> None:
    X, y = rings(classes=3)
    model = AsyDSSKL(**SMALL).fit(X, y)
    p, f = model.predict_proba(X), model.decision_function(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(np.log(p[:, 1] / p[:, 0]), f[:, 1] - f[:, 0], atol=1e-6)
    X, y = rings()
    model = AsyDSSKL(**SMALL).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 1.0 / (1.0 + np.exp(-model.decision_function(X))))


def test_features_match_the_online_model() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((7, 3))
    for kernel in (kernels.Gaussian(0.8), kernels.MultiScale(kernels.Laplacian(1.0)), kernels.ArcCosine(1)):
        whole = FeatureMap(kernel, PER_BLOCK, 3, 0)
        dense = whole(whole.directions.rows(["a", "b", "c"], X)) * np.sqrt(PER_BLOCK)
        places = np.array([[0, 3], [0, 60]])
        plan = KernelProgram(kernel, 3, turns=BY_FEATURES)
        some = ChosenFeatures(plan, ["a", "b", "c"], places)(X)
        expected = dense.reshape(7, PER_BLOCK, -1)[:, [3, 60]].reshape(7, -1)
        np.testing.assert_allclose(some, expected, atol=1e-5)


def test_a_prediction_is_the_sum_over_the_features_that_stayed() -> None:
    X, y = waves(300)
    model = AsyDSSKL(kernels.Gaussian(1.0), loss="square", seed=5, **SMALL).fit(X, y)
    features = ChosenFeatures(KernelProgram(kernels.Gaussian(1.0), 5), ["0", "1"], model.features_)(X)
    scaled = features @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(model.predict(X), y.mean() + y.std() * scaled)


def test_data_frames_in_any_order_of_their_columns_have_the_same_features() -> None:
    X, y = rings(300)
    frame = pd.DataFrame(X, columns=["east", "north"])
    model = AsyDSSKL(**SMALL).fit(frame, y)
    turned = AsyDSSKL(**SMALL).fit(frame[["north", "east"]], y)
    assert (model.predict(frame) == turned.predict(frame[["north", "east"]])).mean() > 0.99
    assert list(model.feature_names_in_) == ["east", "north"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"east": "west"}))


def test_one_thread_and_pickles_have_the_same_bits() -> None:
    X, y = rings(300)
    one, again = (AsyDSSKL(**SMALL).fit(X, y) for _ in range(2))
    assert one.coef_.tobytes() == again.coef_.tobytes()
    loaded = pickle.loads(pickle.dumps(one))
    assert loaded.decision_function(X).tobytes() == one.decision_function(X).tobytes()


def test_two_threads_learn_as_well() -> None:
    X, y = rings()
    assert AsyDSSKL(threads=2, rounds=2, features_per_round=64).fit(X, y).score(*rings(seed=1)) > 0.95


def test_a_higher_penalty_keeps_fewer_features_and_refitting_undoes_shrinkage() -> None:
    X, y = waves()
    told: dict[str, Any] = {"loss": "square", "rounds": 2, "features_per_round": 64}
    few, many = (AsyDSSKL(l1=l1, **told).fit(X, y) for l1 in (0.1, 0.001))
    assert 0 < len(few.features_) < len(many.features_)
    shrunk = AsyDSSKL(l1=0.1, refit=False, **told).fit(X, y)
    assert (shrunk.features_ == few.features_).all()
    assert np.linalg.norm(shrunk.coef_) < np.linalg.norm(few.coef_)


@pytest.mark.parametrize("seed", range(3))
def test_a_bound_on_features_is_more_accurate_than_a_penalty(seed: int) -> None:
    X, y = waves()
    told: dict[str, Any] = {"loss": "square", "rounds": 2, "features_per_round": 64, "seed": seed}
    priced = AsyDSSKL(l1=0.03, **told).fit(X, y)
    bounded = AsyDSSKL(max_features=len(priced.features_), **told).fit(X, y)
    assert len(bounded.features_) == len(priced.features_) < 64
    assert bounded.score(*waves(seed=1)) > priced.score(*waves(seed=1)) + 0.05


def test_a_bound_above_the_number_of_features_changes_nothing() -> None:
    X, y = rings()
    free, bounded = (AsyDSSKL(l1=0.01, max_features=most, **SMALL).fit(X, y) for most in (None, 64))
    assert free.features_.tolist() == bounded.features_.tolist()
    assert free.coef_.tobytes() == bounded.coef_.tobytes()


@pytest.mark.parametrize("told", [{}, {"refit": False}, {"loss": "smooth_hinge"}, {"loss": "sigmoid"}])
def test_a_bound_of_features_for_several_classes(told: dict[str, Any]) -> None:
    X, y = rings(classes=3)
    model = AsyDSSKL(max_features=20, rounds=3, features_per_round=32, **told).fit(X, y)
    assert len(model.features_) == 20
    assert model.coef_.shape == (3, 40)
    assert model.score(*rings(classes=3, seed=1)) > 0.85


def test_ctrl_c_keeps_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rings()
    whole, calls = rounds.minimise_sparse, []

    def interrupted(*args: Any, **options: Any) -> Any:
        calls.append(options["l1"])
        found = whole(*args, **options)
        return found._replace(interrupted=True) if len(calls) == 2 else found

    monkeypatch.setattr(rounds, "minimise_sparse", interrupted)
    model = AsyDSSKL(l1=0.005, rounds=5, features_per_round=64).fit(X, y)
    assert len(calls) == 2
    assert model.score(X, y) > 0.9
    assert (model.features_[:, 0] < 2).all()


def test_too_few_passes_are_reported() -> None:
    X, y = rings()
    with pytest.warns(ConvergenceWarning, match="violation of"):
        AsyDSSKL(l1=0.001, rounds=1, max_epochs=2, tol=1e-4).fit(X, y)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"loss": "hinge"}, "a loss of logistic, smooth_hinge, sigmoid, square, correntropy, got 'hinge'"),
        ({"rounds": 0}, "rounds as an integer of 1 or more, got 0"),
        ({"max_features": 0}, "max_features as an integer of 1 or more, got 0"),
        ({"features_per_round": 2.5}, "features_per_round as an integer of 1 or more, got 2.5"),
        ({"l1": -1.0}, "l1 > 0, got -1.0"),
        ({"kernel": kernels.Polynomial(2)}, "features have directions of their own, got Polynomial"),
        ({"kernel": kernels.Intersection()}, "at x"),
        ({"kernel": "rbf"}, "one of streamkernel.kernels"),
    ],
)
def test_errors_name_the_argument(told: dict[str, Any], message: str) -> None:
    X, y = rings(100)
    with pytest.raises(ValueError, match=message):
        AsyDSSKL(**(SMALL | told)).fit(X, y)


def test_parameters_are_kept_as_given() -> None:
    model = AsyDSSKL(kernels.Gaussian(2.0), losses.Sigmoid(), seed=3)
    assert clone(model).get_params() == model.get_params()
