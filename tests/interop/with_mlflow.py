"""Log, save and load models with MLflow; test_mlflow.py runs it in an environment that has MLflow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from frozen_models import classes, numbers, strings
from river import preprocessing

from streamkernel import GaussianProcessRegressor, KernelClassifier, KernelRegressor, ModelFileError
from streamkernel.interop import mlflow as flavor


def learned(model: Any, examples: Any) -> Any:
    for x, y in examples:
        model.learn_one(x, y)
    return model


def frame(examples: Any) -> pd.DataFrame:
    return pd.DataFrame([x for x, _ in examples])


def check_logged(mlflow: Any) -> None:
    model, examples = learned(KernelClassifier(max_features=256), classes(300)), classes(20)
    with mlflow.start_run():
        info = flavor.log_model(model, name="classes", input_example=frame(classes(40)), registered_model_name="kernel")
    assert set(info.flavors) == {"streamkernel", "python_function"}
    assert [one.name for one in info.signature.inputs] == [f"x{i}" for i in range(5)]
    assert [one.required for one in info.signature.inputs] == [True, True, True, False, True]  # x3 may be missing
    for uri in (info.model_uri, "models:/kernel/1"):
        found = mlflow.pyfunc.load_model(uri)
        assert found.predict(frame(examples)).tolist() == [model.predict_one(x) for x, _ in examples]
    twin = flavor.load_model(info.model_uri)
    for x, y in examples:
        assert twin.predict_proba_one(x) == model.predict_proba_one(x)
        twin.learn_one(x, y)
        model.learn_one(x, y)


def check_saved(mlflow: Any, folder: Path) -> None:
    made = {
        "regressor": (learned(KernelRegressor(max_features=256), numbers(300)), numbers(20), "predict"),
        "strings": (learned(KernelRegressor(max_features=256), strings(300)), strings(20), "predict"),
        "probabilities": (learned(KernelClassifier(max_features=256), classes(300)), classes(20), "predict_proba"),
        "pipeline": (
            learned(preprocessing.StandardScaler() | KernelClassifier(learner="dsg"), strings_as_numbers(300)),
            strings_as_numbers(20),
            "predict_proba",
        ),
        "posterior": (learned(GaussianProcessRegressor(), numbers(100)), numbers(20), "predict"),
    }
    for name, (model, examples, function) in made.items():
        flavor.save_model(
            model,
            folder / name,
            input_example=frame(examples),
            pyfunc_predict_fn=function,
            metadata={"stream": name},
        )
        found = mlflow.pyfunc.load_model(str(folder / name))
        predicted = found.predict(frame(examples))
        if function == "predict_proba":
            expected = pd.DataFrame([model.predict_proba_one(x) for x, _ in examples]).rename(columns=str)
            pd.testing.assert_frame_equal(predicted, expected)
        else:
            assert np.array_equal(predicted, [model.predict_one(x) for x, _ in examples])
        description = yaml.safe_load((folder / name / "MLmodel").read_text())
        assert description["metadata"] == {"stream": name}
        assert description["flavors"]["python_function"]["loader_module"] == "streamkernel.interop.mlflow"
        assert not list((folder / name).rglob("*.pkl"))
        assert "streamkernel==" in (folder / name / "requirements.txt").read_text()


def strings_as_numbers(n: int) -> Any:
    """Return inputs that River's scaler takes, integers among them, and Booleans to predict."""
    return [({"n": x["n"], "even": x["n"] % 2}, y > 0.5) for x, y in strings(n)]


def check_refused(folder: Path) -> None:
    flavor.save_model(KernelRegressor(), folder / "model")
    damaged = folder / "model" / "data" / "streamkernel" / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    with pytest.raises(ModelFileError, match=str(damaged)):
        flavor.load_model(str(folder / "model"))


if __name__ == "__main__":
    import mlflow  # the environment of the other tests has none

    root = Path(sys.argv[1])
    mlflow.set_tracking_uri(f"file:{root}/runs")
    check_logged(mlflow)
    (root / "saved").mkdir()
    check_saved(mlflow, root / "saved")
    check_refused(root)
    print("done")
