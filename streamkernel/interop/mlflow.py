"""A flavour of MLflow: models of this library, and pipelines that end in one, with a signature and as a `pyfunc`.

It has the functions that MLflow requires of a flavour. `streamkernel.save` writes the stored file, which is read
without pickle; a loaded model continues learning.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from river import base, compose

from streamkernel import persistence
from streamkernel.versions import package_version

if TYPE_CHECKING:
    from mlflow.models.model import Model, ModelInfo

__all__ = ["get_default_pip_requirements", "load_model", "log_model", "save_model"]

FLAVOR_NAME = "streamkernel"
"""The name of the flavour in the file ``MLmodel``."""

FILE = "model.safetensors"

FUNCTIONS = ("predict", "predict_proba")
"""Methods whose results a `pyfunc` may return."""


def get_default_pip_requirements() -> list[str]:
    """Return the requirements of an environment that loads a model."""
    return [f"streamkernel=={package_version('streamkernel')}"]


def save_model(
    model: Any,
    path: str | Path,
    *,
    input_example: Any = None,
    signature: Any = None,
    pyfunc_predict_fn: str = "predict",
    mlflow_model: Model | None = None,
    **options: Any,
) -> None:
    """Write a model to a folder in the layout of MLflow.

    Parameters
    ----------
    model : River estimator
        An estimator of this library, or a pipeline that :func:`streamkernel.save` stores.
    path : str or Path
        The folder, which does not exist yet.
    input_example : DataFrame or None, default None
        A few rows. The signature is inferred from it.
    signature : mlflow.models.ModelSignature or None, default None
        Types of the inputs and of the prediction; by default the types of `input_example`.
    pyfunc_predict_fn : str, default "predict"
        ``"predict"`` for labels or numbers; ``"predict_proba"`` for a column of probabilities for each label.
    mlflow_model : mlflow.models.Model or None, default None
        The description that MLflow passes from :func:`log_model`.
    **options
        Options of ``mlflow.pyfunc.save_model``, such as `pip_requirements` and `metadata`.

    Raises
    ------
    TypeError
        If part of a pipeline cannot be stored, or the model predicts neither labels nor numbers.
    ValueError
        If `pyfunc_predict_fn` is unknown, or not one that the model has.
    ImportError
        If the extra ``mlflow`` is not installed.
    """
    pyfunc, models = _mlflow("pyfunc"), _mlflow("models")
    predictor = PyfuncModel(model, pyfunc_predict_fn)
    if signature is None and input_example is not None:
        signature = models.infer_signature(input_example, predictor.predict(input_example))
    if not {"conda_env", "pip_requirements"} & options.keys():
        options["pip_requirements"] = get_default_pip_requirements()
    description = models.Model() if mlflow_model is None else mlflow_model
    version = package_version("streamkernel")
    description.add_flavor(FLAVOR_NAME, data=f"data/{FLAVOR_NAME}/{FILE}", streamkernel_version=version)
    with TemporaryDirectory() as folder:
        data = Path(folder, FLAVOR_NAME)
        data.mkdir()
        persistence.save(model, data / FILE)
        (data / "predict_fn").write_text(pyfunc_predict_fn)
        pyfunc.save_model(
            str(path),
            loader_module=__name__,
            data_path=str(data),
            mlflow_model=description,
            signature=signature,
            input_example=input_example,
            **options,
        )


def log_model(model: Any, name: str | None = None, **options: Any) -> ModelInfo:
    """Log a model in the active run of MLflow.

    Parameters
    ----------
    model : River estimator
        As for :func:`save_model`.
    name : str or None, default None
        Name of the logged model.
    **options
        Parameters of :func:`save_model` and of ``mlflow.models.Model.log``, such as `registered_model_name`.

    Returns
    -------
    mlflow.models.model.ModelInfo
        Information on the logged model; ``info.model_uri`` is for :func:`load_model` and ``mlflow.pyfunc.load_model``.
    """
    import streamkernel.interop.mlflow as flavor

    return _mlflow("models").Model.log(None, flavor, name=name, model=model, **options)


def load_model(model_uri: str) -> Any:
    """Return the model that :func:`save_model` or :func:`log_model` stored, which continues learning.

    Parameters
    ----------
    model_uri : str
        Address, as for all flavours of MLflow: a folder, ``runs:/...``, ``models:/...``.

    Raises
    ------
    ModelFileError
        If the file in it is truncated or corrupt.
    """
    local = Path(_mlflow("artifacts").download_artifacts(model_uri))
    flavors = _mlflow("models").Model.load(str(local)).flavors
    if FLAVOR_NAME not in flavors:
        raise ValueError(f"Expected a model of the flavour streamkernel, got {', '.join(flavors)} - in {model_uri}")
    return persistence.load(local / flavors[FLAVOR_NAME]["data"])


def _load_pyfunc(path: str) -> PyfuncModel:
    """Return the model in a folder of data, for `mlflow.pyfunc`."""
    return PyfuncModel(persistence.load(Path(path, FILE)), Path(path, "predict_fn").read_text())


class PyfuncModel:
    """A model that predicts the rows of data frames, as MLflow calls it. `function` is one of `FUNCTIONS`."""

    def __init__(self, model: Any, function: str) -> None:
        last = [*model.steps.values()][-1] if isinstance(model, compose.Pipeline) else model
        classifiers = base.Classifier, base.MultiLabelClassifier
        if not isinstance(last, (*classifiers, base.Regressor, base.MultiTargetRegressor)):
            raise TypeError(f"Expected a classifier or a regressor, got a {type(last).__name__}")
        if function not in FUNCTIONS:
            raise ValueError(f"Expected pyfunc_predict_fn to be one of {', '.join(FUNCTIONS)}, got {function!r}")
        if function == "predict_proba" and not isinstance(last, classifiers):
            raise ValueError(f'Expected pyfunc_predict_fn="predict" for a {type(last).__name__}, got {function!r}')
        self.model, self.function = model, function

    def predict(self, X: pd.DataFrame, params: dict[str, Any] | None = None) -> Any:
        """Return labels or numbers, an array of shape (rows,), or a data frame of probabilities.

        Of several targets it is a data frame with a column for each, and of labels the probabilities that they are
        true.
        """
        rows = X.to_dict("records")
        if self.function == "predict":
            answers = [self.model.predict_one(x) for x in rows]
            return self._frame(answers, X) if answers and isinstance(answers[0], dict) else np.array(answers)
        answers = [self.model.predict_proba_one(x) for x in rows]
        if answers and isinstance(next(iter(answers[0].values()), None), dict):
            answers = [{name: chances[True] for name, chances in one.items()} for one in answers]
        return self._frame(answers, X)

    def _frame(self, answers: list[dict[Any, Any]], X: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame(answers, index=X.index).rename(columns=str)


def _mlflow(module: str) -> Any:
    """Return a module of MLflow."""
    try:
        return importlib.import_module(f"mlflow.{module}")
    except ImportError:
        raise ImportError("Expected the package mlflow; install it with: pip install 'streamkernel[mlflow]'") from None
