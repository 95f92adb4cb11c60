"""Models in files: models of this library, pipelines that end in one, and checkpoints of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from river import base

from streamkernel import tensor_file
from streamkernel.estimators import model_file


def save(model: Any, path: str | Path) -> None:
    """Write a model or a River pipeline to one file.

    Parameters
    ----------
    model : object
        A model of this library, whose own ``save`` does the same, or a River pipeline of steps that a run can store.
    path : str or Path
        The file; it is replaced atomically.

    Raises
    ------
    TypeError
        If `model` is neither, or a part of the pipeline cannot be stored; the message names the part.
    ModelFileError
        If the model could not be read again; the file is as before.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from river import preprocessing
    >>> from streamkernel import KernelRegressor, load, save
    >>> model = preprocessing.StandardScaler() | KernelRegressor()
    >>> model.learn_one({"x": 1.0}, 2.0)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     save(model, pathlib.Path(directory) / "model.safetensors")
    ...     twin = load(pathlib.Path(directory) / "model.safetensors")
    >>> twin.predict_one({"x": 1.0}) == model.predict_one({"x": 1.0})
    True
    """
    if isinstance(model, model_file.Serializable):
        model.save(path)
        return
    if not isinstance(model, base.Base):
        raise TypeError(f"Expected a model of this library or a River pipeline to save, got a {type(model).__name__}")
    from streamkernel.engine.checkpoint import state_file

    state_file.write(Path(path), "pipeline", model)


def load(path: str | Path) -> Any:
    """Read a model from a file, or from the state directory of a run.

    Parameters
    ----------
    path : str or Path
        A file that :func:`save` or a model's own ``save`` wrote; or a state directory, whose newest whole checkpoint is
        read, also during the run.

    Returns
    -------
    KernelClassifier, KernelRegressor, GaussianProcessRegressor, RandomFeatures, another estimator, or a River pipeline
        The model; its predictions and its further learning have the same bits as the original's. A run with
        preprocessing has a pipeline.

    Raises
    ------
    ModelFileError
        If the file is truncated or corrupt, is of another format version, or holds no model.
    FileNotFoundError
        If there is no such file, or no checkpoint in the directory.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from streamkernel import KernelClassifier, load
    >>> model = KernelClassifier()
    >>> model.learn_one({"x": 1.0}, "yes")
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     model.save(pathlib.Path(directory) / "model.safetensors")
    ...     twin = load(pathlib.Path(directory) / "model.safetensors")
    >>> twin.predict_one({"x": 1.0})
    'yes'
    """
    path = Path(path)
    if path.is_dir():
        from streamkernel.engine.checkpoint.state_directory import read_model

        return read_model(path)
    description, tensors = tensor_file.read(path, "model", "pipeline")
    if not isinstance(description, dict) or "models" not in description:
        return model_file.rebuild(description, tensors, str(path))
    from streamkernel.engine.checkpoint import state_file

    return state_file.rebuild(description, tensors, str(path), base.Base)
