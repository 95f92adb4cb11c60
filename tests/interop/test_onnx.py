"""An ONNX graph in onnxruntime predicts the same as the model: numbers to 1e-5 of the deviation of the predictions,
probabilities to 1e-5.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from frozen_models import KERNELS, MODELS, MORE_KERNELS, compare, learned, predictions

from streamkernel import KernelClassifier
from streamkernel.interop import to_onnx


def read(x: dict[Any, Any], name: Any) -> float:
    if isinstance(name, str) and "=" in name:
        field, _, value = name.partition("=")
        return float(x.get(field) == value)
    value = x.get(name)
    return np.nan if value is None else value


def run(made: Any, examples: Any) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    names = metadata(made)["features"]
    rows = np.array([[read(x, name) for name in names] for x, _ in examples], np.float64)
    outputs = [one.name for one in session.get_outputs()]
    return dict(zip(outputs, session.run(outputs, {"X": rows}), strict=True))


def metadata(made: Any) -> dict[str, Any]:
    return {entry.key: json.loads(entry.value) for entry in made.metadata_props}


@pytest.mark.parametrize("name", [*MODELS, *KERNELS, *MORE_KERNELS])
def test_onnxruntime_matches_the_model(name: str) -> None:
    model, examples, features = learned(name)
    made = to_onnx(model, features)
    onnx.checker.check_model(made, full_check=True)
    found = run(made, examples)
    compare(found["probabilities" if "label" in found else "variable"], predictions(model, examples))
    if name == "several labels":
        assert found["label"].tolist() == [[*map(int, model.predict_one(x).values())] for x, _ in examples]
    elif "label" in found:
        assert found["label"].tolist() == [model.predict_one(x) for x, _ in examples]
        assert metadata(made)["classes"] == list(found_labels(model))


def test_targets_are_named_in_the_metadata() -> None:
    assert metadata(to_onnx(learned("several numbers")[0]))["targets"] == ["y", "squared"]


def found_labels(model: Any) -> Any:
    return (list(model.steps.values())[-1] if hasattr(model, "steps") else model).labels


def test_unknown_names_of_columns_are_required() -> None:
    for name in ("strings", "joint"):
        with pytest.raises(ValueError, match=r"Expected features=\[...\], the names of the columns"):
            to_onnx(learned(name)[0])


def test_labels_of_mixed_types_are_rejected() -> None:
    model = KernelClassifier(max_features=256)
    for i in range(4):
        model.learn_one({"x": float(i)}, ["a", 1][i % 2])
    with pytest.raises(ValueError, match="Expected labels that are all strings, or all integers or Booleans, for ONNX"):
        to_onnx(model)


def test_single_rows_and_empty_tables() -> None:
    model, examples, _ = learned("default")
    made = to_onnx(model)
    assert run(made, examples[:1])["variable"].shape == (1, 1)
    session = onnxruntime.InferenceSession(made.SerializeToString())
    assert session.run(None, {"X": np.zeros((0, 5))})[0].shape == (0, 1)
