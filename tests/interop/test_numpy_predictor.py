"""The predictor that needs only NumPy predicts the same as the model, to 1e-5 of the deviation of its predictions."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from frozen_models import KERNELS, MODELS, MORE_KERNELS, columns_of, compare, learned, predictions
from river import compose, preprocessing

from streamkernel import (
    GaussianProcessRegressor,
    KernelClassifier,
    KernelMultiTargetRegressor,
    KernelRegressor,
    kernels,
)
from streamkernel.estimators.internals import learner_of
from streamkernel.interop import numpy_predictor, to_numpy
from streamkernel.interop.numpy_predictor import Predictor

ALONE = """
import runpy, sys
for name in ("numba", "river", "scipy", "pandas", "safetensors", "llvmlite", "streamkernel", "sklearn"):
    sys.modules[name] = None
sys.argv = ["numpy_predictor.py", "model.npz"]
runpy.run_path("numpy_predictor.py", run_name="__main__")
"""


def exported(model: Any, path: Path, **options: Any) -> Predictor:
    to_numpy(model, path / "model.npz", **options)
    return Predictor(path / "model.npz")


@pytest.mark.parametrize("name", [*MODELS, *KERNELS])
def test_the_predictor_matches_the_model(name: str, tmp_path: Path) -> None:
    model, examples, features = learned(name)
    to_numpy(model, tmp_path / "model.npz", features if name in KERNELS or name == "some scaled" else None)
    lines = "".join(json.dumps(x) + "\n" for x, _ in examples)
    words = [sys.executable, "-I", "-c", ALONE]
    done = subprocess.run(words, input=lines, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stderr == ""
    found = [json.loads(line) for line in done.stdout.splitlines()]
    compare(np.array([*map(columns_of, found)]), predictions(model, examples))


def test_rows_of_an_array_labels_and_names(tmp_path: Path) -> None:
    model, examples, _ = learned("three classes")
    twin = exported(model, tmp_path)
    assert twin.features == [f"x{i}" for i in range(5)]
    rows = np.array([[x[name] for name in twin.features] for x, _ in examples], float)  # None is NaN
    assert twin.predict(rows) == [model.predict_one(x) for x, _ in examples]
    compare(twin.predict_proba(rows), predictions(model, examples))
    assert [twin.predict_one(x) for x, _ in examples] == twin.predict(rows)
    assert list(twin.predict_proba_one(examples[0][0])) == list(model.labels)
    assert exported(model, tmp_path, features=["x4", "x2", "x0", "x1", "x3"]).features[0] == "x4"


def test_several_targets_are_dictionaries_or_columns(tmp_path: Path) -> None:
    for name in ("several numbers", "several labels"):
        model, examples, _ = learned(name)
        twin, (x, _) = exported(model, tmp_path), examples[0]
        assert twin.predict_one(x) == pytest.approx(model.predict_one(x), rel=1e-5)
        rows = np.array([[x[name] for name in twin.features] for x, _ in examples], float)
        assert twin.predict(rows).shape == (len(rows), 2)
    assert {type(value) for value in twin.predict_one(x).values()} == {bool}
    assert twin.predict_proba_one(x)["many"] == pytest.approx(model.predict_proba_one(x)["many"], abs=1e-5)
    with pytest.raises(ValueError, match="Expected a model of labels, got one that predicts numbers"):
        exported(learned("several numbers")[0], tmp_path).predict_proba_one(x)
    with pytest.raises(ValueError, match="Expected a model that has learned its targets"):
        exported(KernelMultiTargetRegressor(kernels.Gaussian(1.0)), tmp_path, features=["x"])


def test_columns_of_strings_may_be_listed(tmp_path: Path) -> None:
    model, examples, features = learned("strings")
    listed = exported(model, tmp_path, features=features)
    assert listed.features == features
    found = [[listed.predict_one(x)] for x, _ in examples]
    compare(np.array(found), predictions(model, examples))


def test_a_string_that_was_never_learned_is_missing(tmp_path: Path) -> None:
    model, examples, _ = learned("strings")
    twin, x = exported(model, tmp_path), examples[0][0]
    rest = {name: value for name, value in x.items() if name != "colour"}
    assert twin.predict_one(rest | {"colour": "mauve"}) == twin.predict_one(rest | {"colour": None})
    assert twin.predict_one(x) != twin.predict_one(rest)


@pytest.mark.parametrize(
    ("x", "error"),
    [
        ({"x0": "high"}, r"Expected a number, got 'high' - at x\['x0'\]"),
        ({"other": 1.0}, "Expected a name that the model has learned, got 'other' - at x"),
        ({"x0": 1e31}, "Expected rows of 5 numbers of usable size"),
        ({"x0": math.inf}, "Expected rows of 5 numbers of usable size"),
        ([1.0], "Expected a dictionary of features, got list - at x"),
    ],
)
def test_inputs_of_the_wrong_type_or_shape_are_rejected(x: Any, error: str, tmp_path: Path) -> None:
    twin = exported(learned("default")[0], tmp_path)
    with pytest.raises((TypeError, ValueError), match=error):
        twin.predict_one(x)


def test_values_outside_of_the_domain_of_the_kernel_are_refused(tmp_path: Path) -> None:
    twin = exported(learned("Hellinger")[0], tmp_path)
    with pytest.raises(ValueError, match="out of its domain"):
        twin.predict_one({"x0": -1.0})


def function(x: Any) -> Any:
    return x


REFUSED: dict[str, tuple[Any, str]] = {
    "another model": (
        lambda: GaussianProcessRegressor(),
        "Expected a KernelClassifier, a KernelRegressor or one of several targets, got a GaussianProcessRegressor",
    ),
    "another step": (
        lambda: preprocessing.OneHotEncoder() | KernelRegressor(),
        "Expected one of StandardScaler, MinMaxScaler, MaxAbsScaler in front of the model, got a OneHotEncoder",
    ),
    "a function": (
        lambda: compose.FuncTransformer(function) | KernelRegressor(),
        "in front of the model, got a FuncTransformer",
    ),
    "a transform": (
        lambda: KernelRegressor(kernels.Gaussian(1.0).of("unit"), learner="dsg"),
        r"Expected a kernel without transforms of its inputs, got .*unit",
    ),
    "a kernel on some inputs": (
        lambda: KernelRegressor(kernels.Gaussian(1.0).on("x0"), learner="dsg"),
        r"Expected features=\[...\], the names of all inputs, for ",
    ),
    "nothing learned": (lambda: KernelRegressor(), "Expected a model that has learned from 1 to 1024 names, got 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_models_are_rejected_by_name(name: str, tmp_path: Path) -> None:
    make, error = REFUSED[name]
    model = make()
    if name != "nothing learned":
        for i in range(3):
            model.learn_one({"x0": float(i), "x1": 1.0}, 2.0)
    with pytest.raises(ValueError, match=error):
        to_numpy(model, tmp_path / "model.npz")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", MORE_KERNELS)
def test_kernels_supported_only_by_onnx_are_rejected(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=rf"Expected a kernel that the predictor with NumPy has, got .*{name.split()[-1]}\(.*; use ONNX",
    ):
        to_numpy(learned(name)[0], tmp_path / "model.npz")


@pytest.mark.parametrize(
    ("features", "error"),
    [
        (["x0", "x1"], r"Expected all names of numbers that the model has learned as features, missing 'x[234]'"),
        (["x0", "x0"], "Expected different names as features"),
        ([f"x{i}" for i in range(6)], "Expected names that the model has learned as features, got 'x5'"),
    ],
)
def test_features_are_checked(features: Any, error: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=error):
        to_numpy(learned("default")[0], tmp_path / "model.npz", features)


def test_partly_stored_names_have_to_be_listed(tmp_path: Path) -> None:
    model = KernelRegressor(kernels.Gaussian(1.0), learner="dsg", max_features=64)
    model.learn_one({f"x{i}": 0.1 for i in range(1025)}, 1.0)
    with pytest.raises(ValueError, match=r"Expected features=\[...\], the names of all inputs: the model keeps 1024"):
        to_numpy(model, tmp_path / "model.npz")


def test_the_default_model_contains_every_tested_function() -> None:
    learner = learner_of(learned("default")[0])
    assert learner.arrays.metric.known.max() == 5
    assert (learner.arrays.weights[-5:-1] != 0.0).all()  # linear functions, and those of neighbours
    assert len(learner.arrays.layout) > 4


def test_exporting_does_not_change_the_model(tmp_path: Path) -> None:
    model = preprocessing.StandardScaler() | KernelRegressor(max_features=256)
    for x, y in learned("scaled")[1]:
        model.learn_one(x, y)
    before = dict(model["StandardScaler"].means)
    to_numpy(model, tmp_path / "model.npz")
    assert dict(model["StandardScaler"].means) == before


def test_an_untrained_classifier_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="got 0"):
        to_numpy(KernelClassifier(), tmp_path / "model.npz")


def test_a_model_continues_learning_and_a_pruned_one_is_exported(tmp_path: Path) -> None:
    from streamkernel import upkeep

    model = KernelRegressor(max_features=1024)
    _, examples, _ = learned("default")
    for x, y in examples:
        model.learn_one(x, y)
    before = exported(model, tmp_path).predict_one(examples[0][0])
    upkeep.apply(upkeep.Pruning(window=400, keep=0.4), model, examples)
    assert model.n_features < 1024
    compare(
        np.array([[exported(model, tmp_path).predict_one(x)] for x, _ in examples[:20]]),
        predictions(model, examples[:20]),
    )
    assert before != exported(model, tmp_path).predict_one(examples[0][0])


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    to_numpy(learned("one class")[0], tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as file:
        arrays = dict(file)
    about = json.loads(str(arrays.pop("about"))) | {"version": 2}
    np.savez(tmp_path / "model.npz", about=np.array(json.dumps(about)), **arrays)
    with pytest.raises(ValueError, match="Expected a model of version 1, got 2"):
        Predictor(tmp_path / "model.npz")


def test_the_page_states_the_length_of_the_predictor() -> None:
    lines = [line for line in Path(numpy_predictor.__file__).read_text().splitlines() if line.strip()]
    page = (Path(__file__).parents[2] / "docs" / "how_to" / "other_programs.md").read_text()
    assert f"The predictor has {len(lines)} lines," in " ".join(page.split())
