"""The estimators equal their online models, event by event, and work with scikit-learn's tools."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_iris, make_friedman1
from sklearn.exceptions import NotFittedError
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

import streamkernel
from streamkernel import learners, load
from streamkernel.kernels import Gaussian
from streamkernel.sklearn import KernelClassifier, KernelNoveltyDetector, KernelRegressor

SMALL: dict[str, Any] = {"max_features": 64}
generator = np.random.default_rng(3)
X = generator.normal(size=(300, 4))
Y = np.where(X[:, 0] * X[:, 1] > 0.0, "up", "down")
THREE = np.digitize(X[:, 0] + X[:, 1], [-0.5, 0.5])
W = generator.choice([0.0, 0.5, 1.0, 3.0], size=300)
ROWS = [dict(enumerate(row)) for row in X.tolist()]


@pytest.mark.parametrize("y", [Y, THREE], ids=["two", "three"])
@pytest.mark.parametrize("weights", [None, W], ids=["no weights", "weights"])
@pytest.mark.parametrize("learner", ["newton", "dsg"])
def test_a_classifier_equals_its_online_model(learner: str, weights: Any, y: Any) -> None:
    online = streamkernel.KernelClassifier(learner=learner, **SMALL)
    for x, label, w in zip(ROWS, y.tolist(), (np.ones(300) if weights is None else weights).tolist(), strict=True):
        online.learn_one(x, label, w)
    model = KernelClassifier(learner=learner, shuffle=False, **SMALL).fit(X, y, weights)
    assert model.predict(X).tolist() == [online.predict_one(x) for x in ROWS]
    proba = [online.predict_proba_one(x) for x in ROWS]
    np.testing.assert_array_equal(
        model.predict_proba(X), [[one[label] for label in model.classes_.tolist()] for one in proba]
    )
    assert model.model_.n_steps == online.n_steps


def test_a_regressor_equals_its_online_model() -> None:
    online = streamkernel.KernelRegressor(Gaussian(2.0), loss="huber", **SMALL)
    for x, target, w in zip(ROWS, X[:, 0].tolist(), W.tolist(), strict=True):
        online.learn_one(x, target, w)
    model = KernelRegressor(Gaussian(2.0), loss="huber", shuffle=False, **SMALL).fit(X, X[:, 0], W)
    np.testing.assert_array_equal(model.predict(X), [online.predict_one(x) for x in ROWS])


def test_a_detector_equals_its_online_model() -> None:
    online = streamkernel.KernelNoveltyDetector(nu=0.2, **SMALL)
    for x in ROWS:
        online.learn_one(x)
    model = KernelNoveltyDetector(nu=0.2, shuffle=False, **SMALL).fit(X)
    np.testing.assert_array_equal(model.decision_function(X), [-online.score_one(x) for x in ROWS])
    np.testing.assert_array_equal(model.score_samples(X) - model.offset_, model.decision_function(X))
    assert model.predict(X).tolist() == [-1 if online.score_one(x) > 0.0 else 1 for x in ROWS]
    assert set(model.fit_predict(X)) == {-1, 1}


def test_fit_shuffles_rows_and_partial_fit_does_not() -> None:
    order = np.random.default_rng(5).permutation(300)
    once = KernelClassifier(seed=5, **SMALL).fit(X, Y, W)
    same = KernelClassifier(seed=5, shuffle=False, **SMALL).fit(X[order], Y[order], W[order])
    np.testing.assert_array_equal(once.predict_proba(X), same.predict_proba(X))
    parts = KernelClassifier(seed=5, **SMALL).partial_fit(X[:100], Y[:100], classes=["down", "up"])
    parts.partial_fit(X[100:], Y[100:])
    whole = KernelClassifier(seed=5, shuffle=False, **SMALL).fit(X, Y)
    np.testing.assert_array_equal(parts.predict_proba(X), whole.predict_proba(X))


def test_a_sorted_table_is_learned_as_well_as_by_scikit_learn() -> None:
    X, y = load_iris(return_X_y=True)
    ours = cross_val_score(KernelClassifier(max_features=512), X, y, cv=5).mean()
    assert ours > cross_val_score(SVC(), X, y, cv=5).mean() - 0.02
    peer = make_pipeline(StandardScaler(), RBFSampler(random_state=0), SGDClassifier(random_state=0))
    assert ours > cross_val_score(peer, X, y, cv=5).mean() - 0.02


@pytest.mark.parametrize("classes", [["down", "up"], ["down", "even", "up"]])
@pytest.mark.parametrize("loss", ["logistic", "hinge", "softmax"])
def test_classes_without_rows_have_columns(loss: str, classes: list[str]) -> None:
    model = KernelClassifier(loss=loss, learner="dsg", **SMALL)
    model.partial_fit(X[:5], ["up"] * 5, classes=classes)
    assert set(model.predict(X)) == {"up"}
    shape = (300,) if len(classes) == 2 else (300, 3)
    assert model.decision_function(X).shape == shape
    assert hasattr(model, "predict_proba") == (loss != "hinge")
    if loss != "hinge":
        np.testing.assert_array_equal(model.predict_proba(X), [[0.0] * (len(classes) - 1) + [1.0]] * 300)
    model.partial_fit(X, Y)
    scores = model.decision_function(X)
    chosen = (scores > 0.0).astype(int) if len(classes) == 2 else scores.argmax(axis=1)
    assert (model.classes_[chosen] == model.predict(X)).all()


ERRORS = {
    "lengths": (lambda: KernelClassifier().fit(X, Y[:9]), "inconsistent numbers of samples"),
    "lengths of weights": (lambda: KernelClassifier().fit(X, Y, W[:9]), "sample_weight.shape"),
    "negative weights": (lambda: KernelClassifier().fit(X, Y, -W), "(?i)negative values"),
    "NaN weights": (lambda: KernelRegressor().fit(X, X[:, 0], np.full(300, np.nan)), "sample_weight contains NaN"),
    "zeros as weights": (lambda: KernelRegressor().fit(X, X[:, 0], W * 0.0), "zero"),
    "weights too large": (lambda: KernelRegressor().fit(X, X[:, 0], W * 1e12), "Expected a weight from 0 to 1e.09"),
    "one class": (lambda: KernelClassifier().fit(X, ["up"] * 300), "at least two classes in y, got one class"),
    "one class with a weight": (lambda: KernelClassifier().fit(X, Y, (Y == "up") * 1.0), "got one class: ..up"),
    "no classes at first": (lambda: KernelClassifier().partial_fit(X, Y), "Expected classes, those of all later calls"),
    "one class at first": (lambda: KernelClassifier().partial_fit(X, Y, classes=["up"]), "at least two classes"),
    "another class": (lambda: KernelClassifier().partial_fit(X, Y, classes=["no", "up"]), r"\['no', 'up'\], got \['d"),
    "a later class": (lambda: KernelClassifier().fit(X, Y).partial_fit(X, THREE), "got"),
    "other classes": (lambda: KernelClassifier().fit(X, Y).partial_fit(X, Y, classes=["a", "b"]), "as before"),
    "too many classes": (lambda: KernelClassifier(max_classes=2).fit(X, THREE), "at most 2 labels"),
    "numbers as classes": (lambda: KernelClassifier().fit(X, X[:, 0]), "Unknown label type"),
    "an infinite value": (lambda: KernelClassifier().fit(np.where(X > 2.0, np.inf, X), Y), "infinity"),
    "an infinite value of a frame": (lambda: KernelRegressor().fit(pd.DataFrame({"a": [np.inf]}), [1.0]), "X.'a'"),
    "a string for a number": (
        lambda: (
            KernelRegressor().fit(pd.DataFrame({"a": np.ones(16)}), np.ones(16)).predict(pd.DataFrame({"a": ["b"]}))
        ),
        "Expected a number as learned before",
    ),
    "no rows": (lambda: KernelRegressor().fit(pd.DataFrame({"a": []}), []), "at least one row"),
    "a parameter": (lambda: KernelRegressor(loss="logarithmic").fit(X, X[:, 0]), "logarithmic"),
    "not fitted": (lambda: KernelRegressor().predict(X), "not fitted yet"),
}


@pytest.mark.parametrize(("do", "message"), ERRORS.values(), ids=ERRORS)
def test_errors_name_the_problem(do: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        do()


def test_a_refused_call_of_partial_fit_learns_nothing() -> None:
    model = KernelClassifier(**SMALL).fit(X, Y)
    before = pickle.dumps(model.model_)
    with pytest.raises(ValueError, match="up"):
        model.partial_fit(X, np.where(Y == "up", "sideways", Y))
    with pytest.raises(ValueError, match="w, row 1"):
        model.partial_fit(X, Y, sample_weight=np.arange(300) * 1e10)
    assert pickle.dumps(model.model_) == before


FRAME = pd.DataFrame({"size": X[:, 0], "colour": np.where(X[:, 1] > 0.0, "red", "blue"), "age": X[:, 2]})
FRAME.loc[::7, "age"] = np.nan


def test_data_frames_have_names_strings_and_missing_values() -> None:
    model = KernelClassifier(max_features=256, shuffle=False).fit(FRAME, Y)
    assert model.feature_names_in_.tolist() == ["size", "colour", "age"]
    online = streamkernel.KernelClassifier(max_features=256)
    online.learn_many(FRAME, pd.Series(Y))
    assert model.predict(FRAME).tolist() == online.predict_many(FRAME).tolist()
    assert set(model.model_.explain_one({"size": 1.0, "colour": "red", "age": 0.0})) == {"size", "colour", "age"}
    table = pa.Table.from_pandas(FRAME)
    np.testing.assert_array_equal(model.predict_proba(table), model.predict_proba(FRAME))
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    assert model.feature_importances_[2] < model.feature_importances_[0]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(FRAME[["age", "size", "colour"]])


def test_before_256_rows_there_are_no_importances() -> None:
    with pytest.raises(NotFittedError):
        KernelRegressor().predict(X)
    assert not hasattr(KernelRegressor().fit(X[:50], X[:50, 0]), "feature_importances_")


def test_pipelines_searches_and_calibration() -> None:
    encoded = make_column_transformer((OneHotEncoder(), ["colour"]), remainder="passthrough", sparse_threshold=1.0)
    pipeline = make_pipeline(encoded, KernelClassifier(**SMALL)).fit(FRAME, Y)
    assert pipeline.score(FRAME, Y) > 0.8
    assert "<div" in pipeline._repr_html_()
    scaled = (
        make_pipeline(StandardScaler(), KernelClassifier(**SMALL))
        .set_output(transform="pandas")
        .fit(FRAME[["size"]], Y)
    )
    assert scaled[-1].feature_names_in_.tolist() == ["size"]
    grid = GridSearchCV(
        KernelClassifier(learner="dsg", **SMALL), {"kernel": [Gaussian(0.5), Gaussian(50.0)], "l2": [0.0]}, cv=3
    ).fit(X, Y)
    assert grid.best_params_["kernel"] == Gaussian(0.5)
    calibrated = CalibratedClassifierCV(KernelClassifier(loss="hinge", learner="dsg", **SMALL), cv=3).fit(X, Y)
    np.testing.assert_allclose(calibrated.predict_proba(X).sum(axis=1), 1.0)


def test_fields_of_a_kernel_and_a_learner_are_parameters() -> None:
    model = KernelClassifier(Gaussian(1.0), learner="dsg", **SMALL)
    assert model.get_params()["kernel__sigma"] == 1.0
    model.set_params(kernel__sigma=2.0, learner__averaging=True, l2=0.5)
    assert (model.kernel, model.learner.averaging, model.l2) == (Gaussian(2.0), True, 0.5)
    assert clone(model).get_params() == model.get_params()
    model.set_params(learner="newton", learner__forgetting=0.999)
    assert model.learner == learners.Newton(forgetting=0.999)
    assert model.fit(X, Y).model_.learner.forgetting == 0.999
    model.set_params(kernel=Gaussian(1.0) + Gaussian(3.0), kernel__left__sigma=5.0)
    assert model.kernel == Gaussian(5.0) + Gaussian(3.0)
    grid = GridSearchCV(
        KernelClassifier(Gaussian(1.0), learner="dsg", **SMALL),
        {"kernel__sigma": [0.5, 50.0], "learner__averaging": [True]},
    )
    assert grid.fit(X, Y).best_params_["kernel__sigma"] == 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kernel__sigma": 2.0}, "Expected a kernel that has fields, got kernel__sigma with kernel=None"),
        ({"learner__nonsense": 2.0}, "Expected one of forgetting, .*, got learner__nonsense with learner=Newton"),
        ({"learner__forgetting": 2.0}, "Expected forgetting"),
        ({"nonsense__l2": 2.0}, "Expected a nonsense that has fields, got nonsense__l2"),
    ],
)
def test_fields_that_are_not_there_are_named(changes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KernelClassifier().set_params(**changes)


def test_copies_are_the_same(tmp_path: Any) -> None:
    model = KernelClassifier(Gaussian(1.0), **SMALL).fit(X, Y)
    joblib.dump(model, tmp_path / "model.joblib")
    copies = joblib.load(tmp_path / "model.joblib"), pickle.loads(pickle.dumps(model)), clone(model).fit(X, Y)
    for copy in copies:
        np.testing.assert_array_equal(copy.predict_proba(X), model.predict_proba(X))
    model.model_.save(tmp_path / "model")
    assert load(tmp_path / "model").predict_many(X).tolist() == model.predict(X).tolist()
    other = KernelClassifier(Gaussian(1.0), **SMALL).fit(X, Y)
    assert model.model_.merge(other.model_).n_steps == 600


def test_numbers_are_predicted_as_well_as_by_scikit_learn() -> None:
    from sklearn.svm import SVR

    X, y = make_friedman1(1000, noise=1.0, random_state=0)
    ours = KernelRegressor(max_features=512).fit(X[:500], y[:500]).score(X[500:], y[500:])
    assert ours > make_pipeline(StandardScaler(), SVR()).fit(X[:500], y[:500]).score(X[500:], y[500:])


@pytest.mark.parametrize("model", [KernelClassifier(**SMALL), KernelRegressor(**SMALL), KernelNoveltyDetector(**SMALL)])
def test_verbose_shows_a_line(model: Any, capfd: pytest.CaptureFixture[str]) -> None:
    y = X[:, 0] if isinstance(model, KernelRegressor) else Y
    quiet = clone(model).fit(X, y)
    assert capfd.readouterr().err == ""
    shown = clone(model).set_params(verbose=True).fit(X, y)
    assert "300 of 300 rows" in capfd.readouterr().err
    assert pickle.dumps(quiet.model_) == pickle.dumps(shown.model_)


def test_breast_cancer_needs_no_scaler() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    assert cross_val_score(KernelClassifier(max_features=512), X, y, cv=3).mean() > 0.95


def test_sparse_and_dense_tables_give_the_same_model() -> None:
    table = X * (generator.random(X.shape) < 0.4)
    dense = KernelClassifier(**SMALL).fit(table, Y)
    for kind in (sp.csr_matrix, sp.csc_array, sp.coo_array):
        sparse = KernelClassifier(**SMALL).fit(kind(table), Y)
        np.testing.assert_array_equal(sparse.predict_proba(table), dense.predict_proba(kind(table)))


def test_importing_the_library_imports_neither_scikit_learn_nor_matplotlib() -> None:
    code = """
import sys, streamkernel
assert not {"sklearn", "matplotlib", "rich"} & {name.partition(".")[0] for name in sys.modules}
print(streamkernel.sklearn.KernelClassifier(), streamkernel.plot.__name__)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "KernelClassifier() streamkernel.plot\n"
