"""`streamkernel export --to` writes the model of a file or of a run for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from river import preprocessing
from typer.testing import CliRunner

from streamkernel import KernelRegressor, load, save
from streamkernel.cli import app
from streamkernel.interop.numpy_predictor import Predictor


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    model = preprocessing.StandardScaler() | KernelRegressor(learner="dsg", max_features=256)
    for i in range(50):
        model.learn_one({"a": float(i % 5), "b": 1.0 * i}, float(i % 5))
    save(model, tmp_path / "saved")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words: str) -> Any:
    return CliRunner().invoke(app, ["export", *words])


def test_a_file_is_exported_for_numpy_and_onnx(folder: Path) -> None:
    expected = load(folder / "saved").predict_one({"a": 3.0, "b": 7.0})
    assert call("saved", "--to", "numpy").output == "model.npz: StandardScaler | KernelRegressor\n"
    assert Predictor(folder / "model.npz").predict_one({"a": 3.0, "b": 7.0}) == pytest.approx(expected, abs=1e-5)
    assert (folder / "numpy_predictor.py").exists()
    words = ("saved", "--to", "onnx", "-o", "other", "--feature", "b", "--feature", "a")
    assert call(*words).output == "other: StandardScaler | KernelRegressor\n"
    session = onnxruntime.InferenceSession(folder / "other")
    (found,) = session.run(None, {"X": np.array([[7.0, 3.0]])})
    assert found.item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["saved", "--feature", "a"], "Expected --feature with --to numpy or --to onnx"),
        (["saved", "--to", "onnx", "--feature", "a"], "Expected all names of numbers that the model has learned"),
        (["nowhere", "--to", "onnx"], "Expected a state directory or the file of a model, found none - at nowhere"),
        (["saved", "--to", "pickle"], "'pickle' is not one of"),
    ],
)
def test_unsupported_models_are_rejected(words: list[str], error: str, folder: Path) -> None:
    found = call(*words)
    assert found.exit_code == 2
    assert error in " ".join(found.output.replace("│", " ").split())
    assert [path.name for path in folder.iterdir()] == ["saved"]
