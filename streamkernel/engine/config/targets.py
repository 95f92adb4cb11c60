"""Checks of a configuration with several targets: unsupported settings are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from river import base

from streamkernel.engine.config import build
from streamkernel.engine.config.messages import ConfigError, to_toml
from streamkernel.engine.fields import OnFields
from streamkernel.time_series import LastTarget

if TYPE_CHECKING:
    from streamkernel.engine.config.settings import Settings

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
