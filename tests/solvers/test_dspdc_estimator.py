"""DSPDC as an estimator of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import scale
from sklearn.utils.estimator_checks import parametrize_with_checks

from streamkernel.errors import InputError
from streamkernel.solvers import DSPDC, dspdc
from streamkernel.solvers.saddle_point import Factorised


@parametrize_with_checks([DSPDC("square"), DSPDC("logistic"), DSPDC("smooth_hinge")])
def test_scikit_learn_checks(estimator, check) -> None:
    if check.func.__name__ != "check_array_api_input":  # needs an environment variable of SciPy
        check(estimator)


def test_the_estimator_type_follows_the_loss() -> None:
    assert is_regressor(DSPDC("square"))
    assert not hasattr(DSPDC("square"), "decision_function")
    for loss in ("logistic", "smooth_hinge"):
        assert is_classifier(DSPDC(loss))
        assert hasattr(DSPDC(loss), "predict_proba") == (loss == "logistic")


def test_square_loss_matches_elastic_net() -> None:
    X, y = load_diabetes(return_X_y=True)
    net = ElasticNet(alpha=0.3, l1_ratio=0.9, tol=1e-10, max_iter=10**5).fit(scale(X), y)
    model = DSPDC(l1=0.27, l2=0.03, tol=1e-12).fit(scale(X), y)
    np.testing.assert_allclose(model.coef_, net.coef_, atol=1e-3)
    assert model.intercept_ == pytest.approx(net.intercept_, abs=1e-6)
    assert model.score(scale(X), y) == pytest.approx(net.score(scale(X), y), abs=1e-6)
    assert model.gap_ <= 1e-12 * 0.5 * y.var()


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, lambda X: Factorised(X, np.eye(X.shape[1]))])
def test_logistic_loss_matches_logistic_regression(form) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X, names = scale(X), np.array(["malignant", "benign"])[y]
    other = LogisticRegression(C=1.0 / (len(y) * 0.01), tol=1e-10, max_iter=10**4).fit(X, names)
    model = DSPDC("logistic", l2=0.01, tol=1e-12).fit(form(X), names)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(form(X)), other.predict_proba(X), atol=1e-5)
    assert (model.predict(form(X)) == other.predict(X)).all()
    assert model.score(form(X), names) == other.score(X, names)
    assert model.n_features_in_ == 30


def test_more_classes_are_one_against_the_rest() -> None:
    X, y = load_iris(return_X_y=True)
    X = scale(X)
    base = LogisticRegression(C=1.0 / (len(y) * 0.01), tol=1e-10, max_iter=10**4)
    other = OneVsRestClassifier(base).fit(X, y)
    model = DSPDC("logistic", l2=0.01, tol=1e-12).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), atol=1e-5)
    assert model.coef_.shape == (3, 4)
    assert model.intercept_.shape == (3,)
    signs = np.where(y == np.arange(3)[:, None], 1.0, -1.0)
    f = X @ model.coef_.T + model.intercept_
    losses = sum(np.logaddexp(0.0, -sign * column).mean() for sign, column in zip(signs, f.T, strict=True))
    assert model.objective_ == pytest.approx(losses + 0.005 * (model.coef_**2).sum())


def test_interruption_leaves_a_model_and_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(*args, tell, **given):
        told = []

        def interrupt(done, text):
            told.append(text)
            if len(told) == 5:
                raise KeyboardInterrupt

        return saved(*args, tell=interrupt, **given)

    saved = dspdc.minimise
    monkeypatch.setattr(dspdc, "minimise", impatient)
    X, y = load_iris(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match="gap"):
        model = DSPDC("logistic", l2=1e-9, tol=1e-12).fit(X, y)
    assert model.gap_ > 1e-9
    assert model.predict(X).shape == (150,)
    assert model.objective_ < 3.0 * np.log(2.0)


def test_interruption_before_the_first_step_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args, **given):
        raise KeyboardInterrupt

    monkeypatch.setattr(dspdc, "minimise", interrupt)
    with pytest.raises(KeyboardInterrupt):
        DSPDC().fit([[0.0], [1.0]], [0.0, 1.0])


def test_a_gap_above_tol_is_reported() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match="max_epochs"):
        model = DSPDC("smooth_hinge", l2=1e-6, max_epochs=2).fit(X, y)
    assert model.gap_ > 0.5e-6


def test_progress_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = load_iris(return_X_y=True)
    DSPDC("logistic", verbose=True).fit(X, y)
    assert "Fitting" in capsys.readouterr().err


def test_parameters_and_seeds() -> None:
    X, y = load_iris(return_X_y=True)
    model = DSPDC("smooth_hinge", l2=0.1, l1=0.01, m=10, q=2, seed=3)
    first, second = clone(model).fit(X, y), clone(model).fit(X, y)
    np.testing.assert_array_equal(first.coef_, second.coef_)
    assert first.get_params()["m"] == 10
    assert "10 of 150 rows and 2 of 4 columns" in first.method_


@pytest.mark.parametrize(
    ("given", "X", "y", "message"),
    [
        ({"loss": "hinge"}, np.eye(2), [0, 1], "loss to be one of square, logistic, smooth_hinge"),
        ({"loss": "logistic"}, np.eye(2), ["a", "a"], "at least two classes in y, got one class: .*a"),
        ({"l2": -1.0}, np.eye(2), [0, 1], "positive l2"),
        ({}, Factorised(np.ones((2, 3)), np.ones((2, 2))), [0, 1], "as many columns of U as rows of V"),
        ({}, Factorised(np.ones((3, 2)), np.ones((2, 2))), [0, 1], r"b of shape \(3,\)"),
        ({"m": 3}, np.eye(2), [0, 1], "m from 1 to 2"),
    ],
)
def test_errors_name_the_expected_value(given, X, y, message) -> None:
    with pytest.raises(InputError, match=f"Expected.*{message}"):
        DSPDC(**given).fit(X, y)
