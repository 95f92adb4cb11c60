"""The configuration file: source, model, and destinations of results."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, PrivateAttr, ValidationError, ValidationInfo, field_validator, model_validator
from river import base, compose, multiclass, preprocessing

from streamkernel.engine.checkpoint.names_of_0_1 import with_learner
from streamkernel.engine.config import build
from streamkernel.engine.config.checks import check_config, check_label
from streamkernel.engine.config.kafka import kafka_problems, kafka_source
from streamkernel.engine.config.messages import ConfigError, collect_problems, of_error, to_toml
from streamkernel.engine.config.schema import (
    STREAM,
    ClusterTable,
    ConfigTable,
    DelayedLabelsTable,
    HttpTable,
    KafkaTable,
    LogTable,
    Name,
    SinkTable,
    SourceTable,
    StateTable,
)
from streamkernel.engine.config.validation_errors import problems_of, syntax_problem

if TYPE_CHECKING:
    from river.metrics.base import Metric

    from connectors import Source

__all__ = ["Config", "ConfigError", "load_config"]


class Config(ConfigTable):
    """A whole configuration.

    Examples
    --------
    >>> config = Config.model_validate({
    ...     "label": "phishing",
    ...     "source": {"dataset": "Phishing"},
    ...     "preprocessing": [{"type": "StandardScaler"}],
    ...     "model": {"type": "KernelClassifier", "kernel": {"type": "Gaussian", "sigma": 2.0}},
    ... })
    >>> config.check()
    >>> list(config.build_pipeline().steps)
    ['StandardScaler', 'KernelClassifier']
    >>> config.build_metric()
    Accuracy: 0.00%
    """

    label: Name = Field(description="the name of the field to predict")
    ignore: tuple[Name, ...] = Field(default=(), strict=False, description="a list of field names")
    weight: Name | None = Field(default=None, description="the name of the field with the weight of an event")
    metric: build.Spec | None = Field(default=None, description="a River metric")
    source: SourceTable = Field(description="a table with a path, a dataset or topics")
    preprocessing: tuple[build.Spec, ...] = Field(
        default=(), strict=False, description="one table [[preprocessing]] per step"
    )
    model: build.Spec = Field(description='a table with the "type" of the model')
    baseline: build.Spec | None = Field(default=None, description="a linear model of River")
    kafka: KafkaTable | None = Field(default=None, description="a table with the servers")
    delayed_labels: DelayedLabelsTable | None = None
    sink: SinkTable = SinkTable()
    state: StateTable = StateTable()
    http: HttpTable = Field(default_factory=HttpTable)
    cluster: ClusterTable = ClusterTable()
    log: LogTable = LogTable()

    _folder: Path = PrivateAttr(Path())

    def model_post_init(self, context: Any) -> None:
        """Remember the folder of the file."""
        self._folder = (context or {}).get("folder", Path())

    @property
    def folder(self) -> Path:
        """The folder of the file, which paths are relative to."""
        return self._folder

    @field_validator("metric", "preprocessing", "model", "baseline", mode="before")
    @classmethod
    def _can_be_built(cls, value: Any, info: ValidationInfo) -> Any:
        if info.field_name == "metric":
            build.build(value, build.metrics(), "metric")
        elif info.field_name == "model":
            build.build(value, build.models(), "model")
        elif info.field_name == "baseline":
            build.build(value, build.baselines(), "baseline")
        elif isinstance(value, (list, tuple)):
            collect_problems(*(lambda i=i, spec=spec: build.build_step_at(i, spec) for i, spec in enumerate(value)))
        return value

    @model_validator(mode="after")
    def _no_confusion(self) -> Config:
        problems = []
        if self.label in self.ignore:
            problems.append(f"ignore: expected fields other than the label, got {to_toml(self.label)}")
        if self.weight is not None and self.weight in (self.label, *self.ignore):
            other = "the label" if self.weight == self.label else "those of ignore"
            problems.append(f"weight: expected a field other than {other}, got {to_toml(self.weight)}")
        if self.delayed_labels is not None:
            for field, name in (("key", self.delayed_labels.key), ("time", self.delayed_labels.time)):
                if name == self.label:
                    problems.append(
                        f"delayed_labels.{field}: expected a field other than the label, got {to_toml(name)}"
                    )
        used: dict[Path, str] = {}
        if self.source.path is not None and self.source.path != Path(STREAM):
            used[self.source.path] = "source.path"
        for key, path in (("sink.predictions", self.sink.predictions), ("sink.dead_letters", self.dead_letters_path)):
            if path is None:
                continue
            if path in used:
                problems.append(f"{key}: expected a file of its own, got that of {used[path]}")
            elif self.source.reads(path):
                problems.append(f"{key}: expected a file that source.path does not match, got {path}")
            used[path] = key
        problems += kafka_problems(self)
        if problems:
            raise ConfigError(*problems)
        return self

    @property
    def dead_letters_path(self) -> Path:
        """Where records go that cannot be used: by default beside the state, or beside the configuration."""
        return self.sink.dead_letters or (self.state.directory or self._folder) / "dead_letters.jsonl"

    def setup(self) -> dict[str, Any]:
        """Return the settings that must stay the same for a run to continue from its state, as plain values."""
        return {
            "label": self.label,
            "ignore": sorted(self.ignore),
            "weight": self.weight,
            "metric": self.metric_spec,
            "preprocessing": list(self.preprocessing),
            "model": with_learner(self.model),
            "baseline": self.baseline,
            "delayed_labels.key": self.delayed_labels and self.delayed_labels.key,
            "delayed_labels.time": self.delayed_labels and self.delayed_labels.time,
            "source.dataset": self.source.dataset,
            "source.params": self.source.params,
            "source.topics": self.source.topics and list(self.source.topics),
        }

    def without_secrets(self) -> dict[str, Any]:
        """Return what the file says as JSON values, with no secret in it."""
        from connectors.kafka.options import is_secret

        found = self.model_dump(mode="json", exclude_unset=True)
        if self.kafka is not None and self.kafka.options:
            options = self.kafka.options.items()
            found["kafka"]["options"] = {name: "***" if is_secret(name) else value for name, value in options}
        return found

    def build_pipeline(self) -> base.Estimator:
        """Return the preprocessing steps and the model as one pipeline, or the model if there are no steps."""
        steps = self.build_steps()
        model = self.build_model()
        return compose.Pipeline(*steps, (build.type_of(self.model), model)) if steps else model

    def build_model(self) -> base.Estimator:
        """Return the model without the preprocessing steps."""
        model: base.Estimator = build.build(self.model, build.models(), "model")
        return model

    def build_baseline(self) -> base.Estimator | None:
        """Return the baseline behind the same steps, and others that make numbers of all fields, on one scale."""
        if self.baseline is None:
            return None
        more = {"to scale": preprocessing.StandardScaler(), "to encode": preprocessing.OneHotEncoder()}
        steps = self.build_steps() + [(name, build.transformer_on(step)) for name, step in more.items()]
        model = build.build(self.baseline, build.baselines(), "baseline")
        if isinstance(model, base.Classifier) and not model._multiclass:  # it knows true and false alone
            model = multiclass.OneVsRestClassifier(model)
        return compose.Pipeline(*steps, (build.type_of(self.baseline), model))

    def build_metric(self) -> Metric:
        """Return the metric."""
        metric: Metric = build.build(self.metric_spec, build.metrics(), "metric")
        return metric

    def build_source(self, member: str | None = None) -> Source:
        """Return the source of records; a consumer group knows it as `member`.

        Raises
        ------
        ConfigError
            If it cannot be opened, or there is no such data set.
        """
        from connectors import DatasetSource, FileSource

        source = self.source
        if source.topics is not None:
            return kafka_source(self, member)
        if source.path is None:
            known = build.datasets()
            build.find_kind(source.dataset, known, "source.dataset")
            dataset = build.build({**source.params, "type": source.dataset}, known, "source.params")
            return DatasetSource(dataset, label=self.label, limit=source.limit)
        try:
            return FileSource(source.path, format=source.format, follow=source.follow)
        except (ImportError, OSError, ValueError) as error:
            raise ConfigError(of_error("source.path", error)) from error

    def check(self) -> None:
        """Build everything once, as a run would.

        Raises
        ------
        ConfigError
            If something cannot be built or opened, the metric is not for the model, or a step cannot be stored.
        """
        check_config(self)

    def check_records(self) -> None:
        """Check that the first records of files have the label.

        Raises
        ------
        ConfigError
            If they have other fields only. It cannot be known where labels come in records of their own.
        """
        check_label(self)

    def build_steps(self) -> list[tuple[str, base.Transformer]]:
        """Return the preprocessing steps with their names."""
        return [(build.type_of(spec), build.build_step_at(i, spec)) for i, spec in enumerate(self.preprocessing)]

    @property
    def metric_spec(self) -> build.Spec:
        """The metric, or the default for the model."""
        return self.metric or ("MAE" if issubclass(self.estimator_class, base.Regressor) else "Accuracy")

    @property
    def estimator_class(self) -> type:
        """The class of the model."""
        return build.models().classes[build.type_of(self.model)]


def load_config(path: str | Path) -> Config:
    """Return the configuration in a TOML file; relative paths in it are relative to its folder.

    Raises
    ------
    ConfigError
        If the file cannot be read; all problems of its content are reported together.

    Examples
    --------
    >>> load_config("missing.toml")
    Traceback (most recent call last):
    streamkernel.engine.config.messages.ConfigError: missing.toml: no such file or directory
    """
    path = Path(path)
    try:
        content = path.read_bytes()
        text = content.decode("utf-8-sig")
        data = tomllib.loads(text)
        return Config.model_validate(data, context={"folder": path.absolute().parent})
    except OSError as error:
        raise ConfigError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}, line {line}: expected UTF-8 text, got {content[error.start]:#04x}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(syntax_problem(path, text, str(error))) from error
    except ValidationError as error:
        raise ConfigError(*dict.fromkeys(problems_of(error, data, Config))) from error
