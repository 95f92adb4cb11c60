"""Checks of a configuration that need neither the state directory nor brokers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from river import base, compose

from streamkernel.engine.checkpoint import river_state
from streamkernel.engine.checkpoint.bucket import library
from streamkernel.engine.config import build, registry
from streamkernel.engine.config.messages import ConfigError, collect_problems, did_you_mean, problem_at, to_key, to_toml
from streamkernel.engine.config.models import check_challengers
from streamkernel.engine.config.monitoring import check_monitoring, check_telemetry, further_metrics
from streamkernel.engine.config.schema import STREAM
from streamkernel.engine.config.source_and_sink import check_registered
from streamkernel.engine.config.streams import build_source, kafka_options, predictions_writer
from streamkernel.engine.fields import OnFields
from streamkernel.engine.pipelines import is_explainable
from streamkernel.engine.shared_model import merge_problems
from streamkernel.field_types.declared import LABEL_TYPES, declared_type
from streamkernel.time_series import HistoryTransformer, LastTarget
from streamkernel.time_series.history import first_steps

if TYPE_CHECKING:
    from streamkernel.engine.config.settings import Settings


_NAMES_SHOWN = 20


def check_config(settings: Settings) -> None:
    """Build all components once, as a run would, and raise their problems as one `ConfigError`."""
    of_model = _check_history, check_targets, _check_additions, _check_state
    checks = (
        _check_history,
        check_targets,
        _check_metric,
        _check_baseline,
        _check_additions,
        partial(check_challengers, checks=of_model),
        check_monitoring,
        _check_state,
        _check_shared,
        _check_mirror,
        _check_kafka,
        _check_sink,
        _check_source,
        _check_http,
        check_telemetry,
    )
    collect_problems(*(partial(check, settings) for check in checks))


def conflicts(settings: Settings) -> Iterator[str]:
    """Yield the problems of fields and files with two conflicting uses."""
    for label in settings.labels:
        if label in settings.ignore:
            yield f"ignore: expected fields other than the label, got {to_toml(label)}"
    if settings.weight is not None and settings.weight in settings.fields:
        yield f"fields: expected other fields than the weight, got {to_toml(settings.weight)}"
    for label in settings.fields.keys() & {*settings.labels}:
        kind = declared_type(settings.fields[label]).type
        if kind not in LABEL_TYPES:
            yield f'fields.{to_key(label)}: expected a number or a category as label, got "{kind}"'
    if settings.weight is not None and settings.weight in (*settings.labels, *settings.ignore):
        other = "the label" if settings.weight in settings.labels else "the fields of ignore"
        yield f"weight: expected a field other than {other}, got {to_toml(settings.weight)}"
    if settings.delayed_labels is not None:
        for field, name in (("key", settings.delayed_labels.key), ("time", settings.delayed_labels.time)):
            if name in settings.labels:
                yield f"delayed_labels.{field}: expected a field other than the label, got {to_toml(name)}"
    used: dict[Path, str] = {}
    if settings.source.path is not None and settings.source.path != Path(STREAM):
        used[settings.source.path] = "source.path"
    for key, path in (
        ("sink.predictions", settings.sink.predictions),
        ("sink.dead_letters", settings.dead_letters_path),
    ):
        if path is None:
            continue
        if path in used:
            yield f"{key}: expected a file that is not used otherwise, got the file of {used[path]}"
        elif settings.source.reads(path):
            yield f"{key}: expected a file that source.path does not match, got {path}"
        used[path] = key


def check_label(settings: Settings) -> None:
    """Check that the first records of files have the label.

    Raise `ConfigError` if they have other fields only. This is not checked if labels arrive in separate records.
    """
    from streamkernel.connectors import field_names

    source = settings.source
    path = source.path
    if path is None or path == Path(STREAM) or settings.delayed_labels is not None:
        return
    with problem_at("source.path", OSError, ValueError):
        names = field_names(
            path, source.format, follow=source.follow, csv=settings.csv, max_list_length=source.max_list_length
        )
    for label in settings.labels if names else ():
        if label in names:
            continue
        more = f" and {len(names) - _NAMES_SHOWN:,} more" if len(names) > _NAMES_SHOWN else ""
        got = f"{to_toml(label)}{did_you_mean(label, names)}"
        raise ConfigError(
            f"label: expected a field of the records, got {got}; "
            f"{path} has {', '.join(map(to_toml, names[:_NAMES_SHOWN]))}{more}"
        )


def check_storable(where: str, part: Any) -> None:
    """Raise a ConfigError if a checkpoint cannot hold the state of a part."""
    ours = (*registry.models().classes.values(), registry.transformers().classes["RandomFeatures"])
    try:
        river_state.encode(part, hook=lambda obj: {} if isinstance(obj, ours) else None)
    except TypeError as error:
        kind = type(part.transformer if isinstance(part, OnFields) else part).__name__
        raise ConfigError(f"{where}: {kind} cannot be stored in a checkpoint: {error}") from error


def _kind_of_model(settings: Settings) -> str:
    is_numeric = issubclass(settings.estimator_class, (base.Regressor, base.MultiTargetRegressor))
    return "regressor" if is_numeric else "classifier"


def _check_history(settings: Settings) -> None:
    pipeline = settings.build_pipeline()
    if settings.delayed_labels is None or not isinstance(pipeline, compose.Pipeline):
        return
    steps = list(map(id, first_steps(pipeline)))
    for i, step in enumerate(pipeline.steps.values()):
        if isinstance(step, HistoryTransformer) and id(step) not in steps:
            raise ConfigError(
                f"preprocessing[{i}]: expected {type(step).__name__} before other steps but Calendar, where labels "
                "come later, got one after them"
            )


def _check_metric(settings: Settings) -> None:
    if are_as_many(settings) and not settings.build_metric().works_with(settings.build_model()):
        wanted = f"a metric for a {_kind_of_model(settings)}, which {build.type_of(settings.model)} is"
        raise ConfigError(f"metric: expected {wanted}, got {to_toml(build.type_of(settings.metric))}")


def _check_baseline(settings: Settings) -> None:
    if settings.baseline is None:
        return
    name, kind = build.type_of(settings.baseline), _kind_of_model(settings)
    wanted = base.Regressor if kind == "regressor" else base.Classifier
    if not issubclass(registry.baselines().classes[name], wanted):
        raise ConfigError(f"baseline: expected a {kind} like the model, got {to_toml(name)}")


def _check_additions(settings: Settings) -> None:
    kinds = base.Classifier, base.Regressor, base.MultiLabelClassifier, base.MultiTargetRegressor
    if settings.coverage is not None and not issubclass(settings.estimator_class, kinds):
        got = build.type_of(settings.model)
        raise ConfigError(f"coverage: expected a model that predicts labels or numbers, got {got}")
    if settings.sink.explain and not is_explainable(settings.estimator_class):
        got = build.type_of(settings.model)
        raise ConfigError(f"sink.explain: expected a model with explain_one, got {got}")


def _check_sink(settings: Settings) -> None:
    if settings.sink.choice is not None:
        check_registered(settings.sink.choice, settings.folder)


def _check_source(settings: Settings) -> None:
    build_source(settings).close()


def _check_http(settings: Settings) -> None:
    settings.http.read_certificate()
    if settings.source.key == "http" and settings.http.port is None:
        raise ConfigError("http.port: required for source.http; expected a port from 0 to 65535, got nothing")


def _check_kafka(settings: Settings) -> None:
    if settings.kafka is not None:
        kafka_options(settings)
        predictions_writer(settings)


def _check_shared(settings: Settings) -> None:
    if settings.state.shared_model is None:
        return
    problems = list(merge_problems(settings.build_pipeline(), "with state.shared_model"))
    if settings.challengers:
        problems.append("challengers: expected none with state.shared_model, got some")
    if settings.state.directory is None:
        problems.append("state.directory: required for state.shared_model; expected a directory, got nothing")
    if problems:
        raise ConfigError(*problems)


def _check_mirror(settings: Settings) -> None:
    state, kafka = settings.state, settings.kafka
    if state.mirror is None:
        return
    problems = []
    if state.directory is None:
        problems.append("state.directory: required for state.mirror; expected a directory, got nothing")
    if state.shared_model is not None:
        problems.append(
            "state.shared_model: expected none with state.mirror, because a member that returns with an older model "
            "would add its events twice; got a directory"
        )
    if settings.source.key == "http":
        problems.append("state.mirror: expected none with source.http, whose events are on this disk, got one")
    if kafka is not None and kafka.group is None and kafka.processing_guarantee == "exactly_once":
        problems.append(
            "kafka.group: required for state.mirror with exactly_once, because its offsets tell which predictions are "
            "committed; expected a name, got nothing"
        )
    if problems:
        raise ConfigError(*problems)
    library()


def _check_state(settings: Settings) -> None:
    steps = [(f"preprocessing[{i}]", step) for i, (_, step) in enumerate(settings.build_steps())]
    further = [(f"quality.metrics[{i}]", metric) for i, metric in enumerate(further_metrics(settings).values())]
    parts = [*steps, ("metric", settings.build_metric()), *further, ("baseline", settings.build_baseline())]
    collect_problems(*(lambda part=part: check_storable(*part) for part in parts))


_READ_LABELS = (base.SupervisedTransformer, LastTarget)


def are_as_many(settings: Settings) -> bool:
    """Return whether a model of several targets has several labels, and another model has one."""
    several = base.MultiTargetRegressor, base.MultiLabelClassifier
    return issubclass(settings.estimator_class, several) != isinstance(settings.label, str)


def check_targets(settings: Settings) -> None:
    """Raise a ConfigError for a wrong number of targets, and for settings that do not support them."""
    problems = list(_problems(settings))
    if problems:
        raise ConfigError(*problems)


def _problems(settings: Settings) -> Iterator[str]:
    """Yield the errors of settings that do not support the targets."""
    got = to_toml(settings.label)
    name, is_one = build.type_of(settings.model), isinstance(settings.label, str)
    if not are_as_many(settings):
        yield f"label: expected {'a list of fields' if is_one else 'one field'} for {name}, got {got}"
    if is_one:
        return
    if len(set(settings.labels)) < len(settings.labels):
        yield f"label: expected different fields, got {got}"
    if settings.source.dataset is not None:
        yield f"label: expected one field with source.dataset, got {got}"
    if settings.baseline is not None:
        yield f"baseline: expected none with several targets, got {to_toml(build.type_of(settings.baseline))}"
    if settings.sink.predictions_format != "json":
        yield f'sink.predictions_format: expected "json" with several targets, got {settings.sink.predictions_format}'
    if not getattr(settings.build_metric(), "requires_labels", True):
        wanted = "a metric of labels, not of probabilities, with several targets"
        yield f"metric: expected {wanted}, got {to_toml(build.type_of(settings.metric_spec))}"
    for i, (kind, step) in enumerate(settings.build_steps()):
        if isinstance(step.transformer if isinstance(step, OnFields) else step, _READ_LABELS):
            yield f"preprocessing[{i}]: expected a step that reads no label with several targets, got {kind}"
