"""The model with which a new state begins: an untrained one, or one that was saved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from streamkernel.engine.checkpoint.saved_model import read_model
from streamkernel.engine.checkpoint.state_directory import StateDirectoryError, check_setup, checkpoints, read_newest
from streamkernel.engine.config.messages import ConfigError, of_error, to_toml
from streamkernel.engine.fields import OnFields
from streamkernel.engine.pipelines import first_steps, last_step
from streamkernel.errors import ModelFileError
from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.parameters import parameters_of

if TYPE_CHECKING:
    from river import base

    from streamkernel.engine.config.config import Config

_OF_INPUTS = ("label", "ignore", "weight", "preprocessing", "model")
_MAY_DIFFER = ("cache_bytes", "pruning", "refit")


def first_model(config: Config) -> base.Estimator:
    """Return the model with which a run begins if its state directory is empty.

    Raises
    ------
    ConfigError
        If `model.from` cannot be read, or has other inputs or parameters than the configuration.
    """
    made = config.build_pipeline()
    path, directory = config.begins_from, config.state.directory
    if path is None or (directory is not None and checkpoints(directory)):
        return made
    try:
        found = _read(config, path)
    except (OSError, ModelFileError, StateDirectoryError) as error:
        raise ConfigError(of_error("model.from", error)) from error
    for what, wanted, got in _differences(made, found):
        raise ConfigError(f"model.from: expected {what} {wanted}, as here, got {got} in {path}")
    return cast("base.Estimator", found)


def _read(config: Config, path: Path) -> Any:
    """Return the model in a file or in a state directory."""
    if path.is_dir() and (saved := read_newest(path)) is not None:
        check_setup(*({key: setup.get(key) for key in _OF_INPUTS} for setup in (saved["setup"], config.setup())))
    return read_model(path)


def _differences(made: Any, found: Any) -> Any:
    """Yield what differs between the model of the configuration and the saved one, and both values."""
    steps = [
        [
            type(step.transformer if isinstance(step, OnFields) else step).__name__
            for step in first_steps(model).values()
        ]
        for model in (made, found)
    ]
    if steps[0] != steps[1]:
        yield "the steps", *(", ".join(names) or "none" for names in steps)
    ours, theirs = last_step(made), last_step(found)
    if type(ours) is not type(theirs):
        yield "a", type(ours).__name__, f"a {type(theirs).__name__}"
    elif isinstance(ours, KernelModel):
        got = parameters_of(theirs)
        for name, value in parameters_of(ours).items():
            if name not in _MAY_DIFFER and value != got[name]:
                yield name, f"= {to_toml(value) if isinstance(value, str) else value}", repr(got[name])
