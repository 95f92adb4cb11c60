"""The model with which a run begins, and its challengers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from river import base

from streamkernel.engine.checkpoint.state_directory import (
    StateDirectoryError,
    check_setup,
    checkpoints,
    read_model,
    read_newest,
)
from streamkernel.engine.config import build, registry
from streamkernel.engine.config.messages import ConfigError, of_error, problem_at, to_toml
from streamkernel.engine.fields import OnFields
from streamkernel.engine.pipelines import first_steps
from streamkernel.engine.roles import KEYS, MODEL, Candidate, own_setup
from streamkernel.errors import ModelFileError
from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.internals import last_step
from streamkernel.estimators.parameters import parameters_of

if TYPE_CHECKING:
    from streamkernel.engine.config.schema import ChallengerTable
    from streamkernel.engine.config.settings import Settings


_KINDS = base.Classifier, base.Regressor, base.MultiTargetRegressor, base.MultiLabelClassifier


def candidates_of(settings: Settings) -> list[Candidate]:
    """Return the model of a configuration and its challengers, in this order."""
    candidates = [Candidate(MODEL, _setup(settings), settings.build_pipeline)]
    return candidates + [_candidate(settings, table) for table in settings.challengers]


def challenger_problems(settings: Settings) -> Iterator[str]:
    """Yield the errors within the tables of challengers."""
    names = [table.name for table in settings.challengers]
    for i, table in enumerate(settings.challengers):
        where = f"challengers[{i}]"
        if table.name == MODEL:
            yield f'{where}.name: expected another name than "{MODEL}", which the table [model] has'
        elif table.name in names[:i]:
            yield f"{where}.name: expected different names, got {to_toml(table.name)} twice"
        if (table.model is None) == (table.begin_from is None):
            got = "neither" if table.model is None else "both"
            yield f"{where}: expected a model or from, got {got}"
        if table.begin_from is not None and table.preprocessing is not None:
            yield f"{where}.preprocessing: expected none with from, whose model has its own, got some"
        checks = [partial(build.build_step, spec, f"{where}.preprocessing[{j}]") for j, spec in _steps(table)]
        if table.model is not None:
            checks.append(partial(build.build, table.model, registry.models(), f"{where}.model"))
        for check in checks:
            try:
                check()
            except ConfigError as error:
                yield from error.problems


def check_challengers(settings: Settings, checks: Any) -> None:
    """Check with these functions that each challenger could be the model of the run."""
    problems: list[str] = []
    for i, table in enumerate(settings.challengers):
        where = f"challengers[{i}]"
        try:
            wanted = _kinds(settings.estimator_class)
            if table.begin_from is None:
                of = with_model(settings, table)
                kind, at = of.estimator_class, "model"
            else:
                kind, at = _class_in_file(settings, table), "from"
            if _kinds(kind) != wanted:
                name = build.type_of(settings.model)
                raise ConfigError(f"{at}: expected a model of the same kind as {name}, got {kind.__name__}")
            for check in checks if table.begin_from is None else ():
                check(of)
        except ConfigError as error:
            problems += [f"{where}.{problem}" for problem in error.problems]
    if problems:
        raise ConfigError(*problems)


def with_model(settings: Settings, table: ChallengerTable) -> Settings:
    """Return the configuration with the model and the preprocessing of a challenger."""
    steps = settings.preprocessing if table.preprocessing is None else table.preprocessing
    return settings.model_copy(update={"model": table.model, "preprocessing": steps})


def _candidate(settings: Settings, table: ChallengerTable) -> Candidate:
    if table.begin_from is not None:
        setup = {"preprocessing": [], "model": {"from": str(table.begin_from)}}
        return Candidate(table.name, setup, partial(read_model, table.begin_from))
    of = with_model(settings, table)
    return Candidate(table.name, _setup(of), of.build_pipeline)


def _setup(settings: Settings) -> dict[str, Any]:
    setup = settings.setup()
    return {key: setup[key] for key in KEYS}


def _steps(table: ChallengerTable) -> Iterator[tuple[int, build.Spec]]:
    yield from enumerate(table.preprocessing or ())


def _kinds(kind: type) -> list[bool]:
    return [issubclass(kind, one) for one in _KINDS]


def _class_in_file(settings: Settings, table: ChallengerTable) -> type:
    """Return the class of the model that a challenger begins from; it may be gone once the state has the challenger."""
    assert table.begin_from is not None
    try:
        return type(last_step(read_model(table.begin_from)))
    except (OSError, ValueError) as error:
        if not table.begin_from.exists() and _is_in_state(settings, table):
            return settings.estimator_class
        raise ConfigError(of_error("from", error)) from error


def _is_in_state(settings: Settings, table: ChallengerTable) -> bool:
    path, setup = settings.state.directory, _candidate(settings, table).setup
    saved = None if path is None or not path.is_dir() else read_newest(path)
    if saved is None:
        return False
    models = [*(saved.get("challengers") or {}).get("models", ()), {"setup": saved["setup"]}]
    return any(own_setup(one["setup"]) == own_setup(setup) for one in models)


_OF_INPUTS = ("label", "ignore", "weight", "preprocessing", "model")
_MAY_DIFFER = ("cache_bytes", "pruning", "refit")


def first_model(config: Settings) -> base.Estimator:
    """Return the model with which a run begins if its state directory is empty.

    Raise `ConfigError` if `model.from` cannot be read, or has other inputs or parameters than the configuration.
    """
    made = config.build_pipeline()
    path, directory = config.begins_from, config.state.directory
    if path is None or (directory is not None and checkpoints(directory)):
        return made
    with problem_at("model.from", OSError, ModelFileError, StateDirectoryError):
        model = _stored_model(config, path)
    for what, wanted, got in _differences(made, model):
        raise ConfigError(f"model.from: expected {what} {wanted}, as here, got {got} in {path}")
    return cast("base.Estimator", model)


def _stored_model(config: Settings, path: Path) -> Any:
    if path.is_dir() and (saved := read_newest(path)) is not None:
        check_setup(*({key: setup.get(key) for key in _OF_INPUTS} for setup in (saved["setup"], config.setup())))
    return read_model(path)


def _differences(made: Any, saved: Any) -> Any:
    """Yield what differs between the model of the configuration and the saved one, and both values."""
    steps = [
        [
            type(step.transformer if isinstance(step, OnFields) else step).__name__
            for step in first_steps(model).values()
        ]
        for model in (made, saved)
    ]
    if steps[0] != steps[1]:
        yield "the steps", *(", ".join(names) or "none" for names in steps)
    ours, theirs = last_step(made), last_step(saved)
    if type(ours) is not type(theirs):
        yield "a", type(ours).__name__, f"a {type(theirs).__name__}"
    elif isinstance(ours, KernelModel):
        got = parameters_of(theirs)
        for name, value in parameters_of(ours).items():
            if name not in _MAY_DIFFER and value != got[name]:
                yield name, f"= {to_toml(value) if isinstance(value, str) else value}", repr(got[name])
