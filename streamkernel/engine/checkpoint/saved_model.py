"""The model in a file or in a state directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from river import base

from streamkernel import tensor_file
from streamkernel.engine.checkpoint import state_file
from streamkernel.engine.checkpoint.state_directory import read_newest
from streamkernel.errors import ModelFileError
from streamkernel.estimators import model_file


def read_model(path: Path) -> Any:
    """Return the model or the pipeline in a file, or that in the newest whole checkpoint of a state directory.

    Raises
    ------
    ModelFileError
        If there is no readable model.
    FileNotFoundError
        If there is no such file, or no checkpoint in the directory.
    """
    if path.is_dir():
        found = read_newest(path)
        if found is None:
            raise FileNotFoundError(f"Expected a state directory with a checkpoint, got none - at {path}")
        if not isinstance(found.get("model"), base.Base):
            raise ModelFileError(f"Expected a checkpoint of a run, got one without a model - in {path}")
        return found["model"]
    description, tensors = tensor_file.read(path, "model", "pipeline")
    if not isinstance(description, dict) or "models" not in description:
        return model_file.rebuild(description, tensors, str(path))
    return state_file.rebuild(description, tensors, str(path), base.Base)
