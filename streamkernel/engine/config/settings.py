"""The settings of a run: all tables together, and the models, metrics and steps that they describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator
from river import base, compose, linear_model, multiclass, preprocessing
from river.metrics.multioutput import MacroAverage

from streamkernel.engine.config import build, registry
from streamkernel.engine.config.environment import Resolved
from streamkernel.engine.config.messages import ConfigError, collect_problems, to_key, to_toml
from streamkernel.engine.config.schema import (
    MOST_CHALLENGERS,
    ChallengerTable,
    ClusterTable,
    ConfigTable,
    DelayedLabelsTable,
    DriftTable,
    HttpTable,
    KafkaTable,
    LogTable,
    MonitoringTable,
    Name,
    Names,
    NoveltyTable,
    QualityTable,
    SchemaRegistryTable,
    SegmentsTable,
    StateTable,
    TelemetryTable,
)
from streamkernel.engine.config.source_and_sink import SinkTable, SourceTable, identity_of
from streamkernel.field_types import Fields
from streamkernel.field_types.declared import ByPath, declared_type

if TYPE_CHECKING:
    from river.metrics.base import Metric

    from streamkernel.connectors.csv_table import CsvOptions


FieldSpec = str | dict[str, Any]
"""The type of a field, or a table with it as ``type`` and more keys."""


class Settings(ConfigTable):
    """The tables of a configuration, and the models, metrics and steps that they describe."""

    label: Name | Names = Field(description="the name of the field to predict")
    ignore: tuple[Name, ...] = Field(default=(), strict=False, description="a list of field names")
    fields: dict[Name, FieldSpec] = Field(default={}, description="a table of types by field")
    missing: tuple[str | int | float, ...] = Field(
        default=(), strict=False, description="a list of strings and numbers that mean that there is no value"
    )
    weight: Name | None = Field(default=None, description="the name of the field with the weight of an event")
    coverage: float | None = Field(default=None, gt=0, le=0.996, description="a share above 0, at most 0.996")
    metric: build.Spec | None = Field(default=None, description="a River metric")
    source: SourceTable = Field(description="a table with a path, a dataset, http or topics")
    preprocessing: tuple[build.Spec, ...] = Field(
        default=(), strict=False, description="one table [[preprocessing]] per step"
    )
    model: build.Spec = Field(description='a table with the "type" of the model')
    baseline: build.Spec | None = Field(default=None, description="a linear model of River")
    challengers: tuple[ChallengerTable, ...] = Field(
        default=(),
        strict=False,
        max_length=MOST_CHALLENGERS,
        description=f"at most {MOST_CHALLENGERS} tables [[challengers]]",
    )
    kafka: KafkaTable | None = Field(default=None, description="a table with the servers")
    schema_registry: SchemaRegistryTable | None = Field(default=None, description="a table with the url")
    delayed_labels: DelayedLabelsTable | None = None
    quality: QualityTable | None = None
    segments: SegmentsTable | None = None
    monitoring: MonitoringTable | None = None
    drift: DriftTable | None = None
    novelty: NoveltyTable | None = None
    telemetry: TelemetryTable | None = None
    sink: SinkTable = SinkTable()
    state: StateTable = StateTable()
    http: HttpTable = Field(default_factory=HttpTable)
    cluster: ClusterTable = ClusterTable()
    log: LogTable = LogTable()

    _folder: Path = PrivateAttr(Path())
    _resolved: Resolved | None = PrivateAttr(None)

    def model_post_init(self, context: Any) -> None:
        """Store the folder of the file."""
        self._folder = (context or {}).get("folder", Path())
        self._resolved = (context or {}).get("resolved")

    @property
    def folder(self) -> Path:
        """The folder of the file; relative paths are relative to it."""
        return self._folder

    @field_validator("fields", mode="before")
    @classmethod
    def _have_types(cls, value: Any) -> Any:
        problems = []
        for name, spec in value.items() if isinstance(value, dict) else ():
            try:
                declared_type(spec)
            except ValueError as error:
                problems.append(f"fields.{to_key(name)}: {error}")
        if problems:
            raise ConfigError(*problems)
        return value

    @field_validator("metric", "preprocessing", "model", "baseline", mode="before")
    @classmethod
    def _can_be_built(cls, value: Any, info: ValidationInfo) -> Any:
        if info.field_name == "metric":
            build.build(value, registry.metrics(), "metric")
        elif info.field_name == "model":
            build.build(_without_from(value), registry.models(), "model")
        elif info.field_name == "baseline":
            build.build(value, registry.baselines(), "baseline")
        elif isinstance(value, (list, tuple)):
            collect_problems(*(partial(build.build_step, spec, f"preprocessing[{i}]") for i, spec in enumerate(value)))
        return value

    @property
    def labels(self) -> tuple[str, ...]:
        """The fields to predict."""
        return (self.label,) if isinstance(self.label, str) else self.label

    @property
    def ignored(self) -> ByPath:
        """The fields of `ignore`, with the fields inside them but without labels."""
        return ByPath(dict.fromkeys(self.ignore, True) | dict.fromkeys(self.labels, False))

    @property
    def dead_letters_path(self) -> Path:
        """The file of dead letters: by default in the state directory, or beside the configuration."""
        return self.sink.dead_letters or (self.state.directory or self._folder) / "dead_letters.jsonl"

    def setup(self) -> dict[str, Any]:
        """Return the settings that must stay the same for a run to continue from its state, as plain values."""
        return {
            "label": self.label if isinstance(self.label, str) else list(self.label),
            "ignore": sorted(self.ignore),
            "weight": self.weight,
            "metric": self.metric_spec,
            "preprocessing": list(self.preprocessing),
            "model": _without_from(self.model),
            "model.from": self.model.get("from") if isinstance(self.model, dict) else None,
            "baseline": self.baseline,
            "delayed_labels.key": self.delayed_labels and self.delayed_labels.key,
            "delayed_labels.time": self.delayed_labels and self.delayed_labels.time,
            "source.dataset": self.source.dataset,
            "source.params": self.source.params,
            "source.topics": self.source.topics and list(self.source.topics),
            "source.parameters": None if self.source.choice is None else _masked(identity_of(self.source.choice)),
        }

    def without_http(self) -> Self:
        """Return a copy for workers: without the table ``[http]``, its token, and the texts that the file refers to."""
        copy = self.model_copy(update={"http": None})
        copy._resolved = None
        return copy

    def without_secrets(self) -> dict[str, Any]:
        """Return the settings as JSON values, without secrets."""
        from streamkernel.connectors.kafka.options import is_secret
        from streamkernel.connectors.schema_registry import SECRET

        values = self.model_dump(mode="json", exclude_unset=True, by_alias=True)
        if self.source.choice is not None:
            values["source"] |= _masked(self.source.choice.table)
        if self.sink.choice is not None:
            values["sink"]["predictions"] = _masked(self.sink.choice.table)
        if self.kafka is not None and self.kafka.options:
            options = self.kafka.options.items()
            values["kafka"]["options"] = {name: "***" if is_secret(name) else value for name, value in options}
        if self.schema_registry is not None and self.schema_registry.options:
            options = self.schema_registry.options.items()
            values["schema_registry"]["options"] = {name: "***" if name in SECRET else value for name, value in options}
        if self._resolved is not None:
            values = self._resolved.hide(values)
        return values

    @property
    def csv(self) -> CsvOptions:
        """How tables are written; columns of texts are declared codes, and the key of delayed labels."""
        keys = () if self.delayed_labels is None else (self.delayed_labels.key,)
        return replace(self.source.csv, texts=(*Fields(self.fields).texts, *keys))

    @property
    def zones(self) -> dict[str, str]:
        """The declared zones of times without one, by field."""
        zones = {name: spec.get("zone") for name, spec in self.fields.items() if isinstance(spec, dict)}
        return {name: zone for name, zone in zones.items() if zone is not None}

    def build_fields(self) -> Fields | None:
        """Return the declared types of fields and markers of missing values, or ``None`` if there are none."""
        return Fields(self.fields, self.missing) if self.fields or self.missing else None

    def build_pipeline(self) -> base.Estimator:
        """Return the preprocessing steps and the model as one pipeline, or the model if there are no steps."""
        steps = self.build_steps()
        model = self.build_model()
        return compose.Pipeline(*steps, (build.type_of(self.model), model)) if steps else model

    def build_model(self) -> base.Estimator:
        """Return the model without the preprocessing steps."""
        model: base.Estimator = build.build(_without_from(self.model), registry.models(), "model")
        return model

    @property
    def begins_from(self) -> Path | None:
        """The saved model or the state directory with whose model a new state begins."""
        begins = self.setup()["model.from"]
        return None if begins is None else self._folder / begins

    def build_models(self) -> list[base.Estimator]:
        """Return the model and the models of challengers that begin empty, without preprocessing."""
        others = [table.model for table in self.challengers if table.model is not None]
        return [build.build(spec, registry.models(), "model") for spec in (_without_from(self.model), *others)]

    def build_baseline(self) -> base.Estimator | None:
        """Return the baseline, behind the same steps and others that turn all fields into scaled numbers."""
        if self.baseline is None:
            return None
        more = {"to scale": preprocessing.StandardScaler(), "to encode": preprocessing.OneHotEncoder()}
        steps = self.build_steps() + [(name, build.transformer_on(step)) for name, step in more.items()]
        model = build.build(self.baseline, registry.baselines(), "baseline")
        if isinstance(model, base.Classifier) and not isinstance(model, linear_model.SoftmaxRegression):
            model = multiclass.OneVsRestClassifier(model)
        return compose.Pipeline(*steps, (build.type_of(self.baseline), model))

    def build_metric(self) -> Metric:
        """Return the metric; for several targets the mean of one for each."""
        metric: Metric = build.build(self.metric_spec, registry.metrics(), "metric")
        return metric if isinstance(self.label, str) else MacroAverage(metric)

    def build_steps(self) -> list[tuple[str, base.Transformer]]:
        """Return the preprocessing steps with their names."""
        return [
            (build.type_of(spec), build.build_step(spec, f"preprocessing[{i}]"))
            for i, spec in enumerate(self.preprocessing)
        ]

    @property
    def metric_spec(self) -> build.Spec:
        """The metric, or the default for the model."""
        is_numeric = issubclass(self.estimator_class, (base.Regressor, base.MultiTargetRegressor))
        return self.metric or ("MAE" if is_numeric else "Accuracy")

    @property
    def estimator_class(self) -> type:
        """The class of the model."""
        return registry.models().classes[build.type_of(self.model)]


def _without_from(spec: Any) -> Any:
    """Return the table of a model without the path of the model that it begins from."""
    if not isinstance(spec, dict) or "from" not in spec:
        return spec
    if not isinstance(spec["from"], str) or not spec["from"]:
        raise ConfigError(f"model.from: expected the path of a model or a state directory, got {to_toml(spec['from'])}")
    return {key: value for key, value in spec.items() if key != "from"}


def _masked(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of a connector without secrets."""
    from streamkernel.connectors.kafka.options import is_secret

    return {
        name: _masked(value) if isinstance(value, Mapping) else "***" if is_secret(name) else value
        for name, value in table.items()
    }
