"""The tables of the configuration file, with a description of each key."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from streamkernel.connectors.files.readers import is_pattern
from streamkernel.engine.checkpoint.bucket import check_address
from streamkernel.engine.config import build, registry
from streamkernel.engine.config.environment import check_address as check_collector
from streamkernel.engine.config.messages import ConfigError, collect_problems, to_toml
from streamkernel.field_types.number_texts import TimeUnit

if TYPE_CHECKING:
    from river.metrics.base import Metric

    from streamkernel.engine.http.listening import Certificate


STREAM = "-"
"""The path that means standard input or standard output."""

TOKEN = "STREAMKERNEL_HTTP_TOKEN"
"""The environment variable of the token, if the file has none."""


def _resolve_path(value: Any, info: ValidationInfo) -> Path:
    """Return a path, relative to the folder of the configuration file."""
    if not isinstance(value, (str, Path)) or not str(value):
        raise ValueError("no path")
    return Path(value) if str(value) == STREAM else Path((info.context or {}).get("folder", "."), value)


def _resolve_pattern(value: Any, info: ValidationInfo) -> Path:
    """Return a path or a pattern relative to the configuration file's folder, in which no character is special."""
    path = _resolve_path(value, info)
    return Path(glob.escape(str((info.context or {}).get("folder", "."))), value) if is_pattern(path) else path


LocalPath = Annotated[Path, BeforeValidator(_resolve_path)]
LocalPattern = Annotated[Path, BeforeValidator(_resolve_pattern)]
Name = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Name, ...], Field(min_length=1, max_length=100, strict=False)]

_TOKEN_TEXT = "text of 8 or more printable ASCII characters"


class ConfigTable(BaseModel):
    """A table that refuses unknown keys and values of the wrong type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class KafkaTable(ConfigTable):
    """The brokers, the consumer group and the processing guarantee."""

    servers: Name = Field(description='addresses of brokers, "host:port", separated by commas')
    group: Name | None = Field(default=None, description="the name of a consumer group")
    processing_guarantee: Literal["exactly_once", "at_least_once"] = "exactly_once"
    client: Literal["kafka-python", "confluent-kafka"] = "kafka-python"
    options: dict[str, Any] = Field(default={}, description="a table of options of the client")
    give_up_after: float | None = Field(default=None, gt=0, description="a number of seconds above 0")


class SchemaRegistryTable(ConfigTable):
    """Where the schemas of values are."""

    url: Name = Field(description='addresses of a registry, "https://host:8081", separated by commas')
    options: dict[str, Any] = Field(default={}, description="a table of options of confluent-kafka's registry client")


class DelayedLabelsTable(ConfigTable):
    """The join of features and labels that arrive in separate records."""

    key: Name = Field(description="the name of the field that features and their label have in common")
    time: Name | None = Field(default=None, description="the name of the field with the time of an event")
    time_unit: TimeUnit = "s"
    max_pending: int = Field(default=100_000, ge=1, le=10_000_000)
    timeout_seconds: float = Field(default=86_400.0, gt=0, description="a number of seconds above 0")

    @model_validator(mode="after")
    def _unit_of_a_field(self) -> DelayedLabelsTable:
        if "time_unit" in self.model_fields_set and self.time is None:
            raise ConfigError("delayed_labels.time_unit: only goes with time, the field that has this unit")
        return self


class StateTable(ConfigTable):
    """The state directory and the checkpoint interval."""

    directory: LocalPath | None = Field(default=None, description="the path of a directory")
    checkpoint_seconds: float = Field(default=30.0, gt=0, description="a number of seconds above 0")
    mirror: str | None = Field(default=None, description='an address as "s3://BUCKET/PREFIX"')
    shared_model: LocalPath | None = Field(default=None, description="the path of a directory")

    @field_validator("mirror")
    @classmethod
    def _is_address(cls, mirror: str | None) -> str | None:
        try:
            return mirror and check_address(mirror)
        except ValueError as error:
            raise ConfigError(f"state.mirror: {error}") from None


def _check_token(token: str) -> SecretStr:
    """Return a token that an Authorization header can carry; a line end, which files often have, is refused."""
    if re.fullmatch(r"[!-~][ -~]{6,}[!-~]", token) is None:
        raise ValueError(_TOKEN_TEXT)
    return SecretStr(token)


def _token_of_environment() -> SecretStr | None:
    token = os.environ.get(TOKEN)
    try:
        return _check_token(token) if token else None
    except ValueError:
        raise ConfigError(f"{TOKEN}: expected {_TOKEN_TEXT}, got another") from None


class HttpTable(ConfigTable):
    """The HTTP server: live page, metrics and predictions."""

    port: int | None = Field(default=None, ge=0, le=65535, description="a port from 0 to 65535")
    host: Name = Field(default="127.0.0.1", description="the name or address of a host")
    token: SecretStr | None = Field(default_factory=_token_of_environment, description=_TOKEN_TEXT)
    certificate: LocalPath | None = Field(default=None, description="the path of a certificate as a PEM file")
    key: LocalPath | None = Field(default=None, description="the path of its private key as a PEM file")

    @field_validator("token")
    @classmethod
    def _usable(cls, token: SecretStr | None) -> SecretStr | None:
        return token and _check_token(token.get_secret_value())

    @model_validator(mode="after")
    def _certificate_and_key(self) -> HttpTable:
        for name, other in (("certificate", "key"), ("key", "certificate")):
            if getattr(self, name) is not None and getattr(self, other) is None:
                raise ConfigError(f"http.{other}: required for http.{name}; expected the path of a file, got nothing")
        return self

    def read_certificate(self) -> Certificate | None:
        """Return the certificate of the server, or ``None`` if it has none."""
        from streamkernel.engine.http.listening import Certificate

        if self.certificate is None or self.key is None:
            return None
        try:
            return Certificate(self.certificate, self.key)
        except ValueError as error:
            raise ConfigError(f"http.certificate: {error}") from error


class LogTable(ConfigTable):
    """The log on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = "auto"


class ClusterTable(ConfigTable):
    """The division of a run among workers."""

    workers: int | None = Field(default=None, ge=1, le=1024, description="an integer from 1 to 1024")
    events_per_round: int = Field(default=4096, ge=1, le=10_000_000)


MOST_METRICS, MOST_SEGMENTS, MOST_FIELDS, MOST_ROWS = 20, 100, 100, 10_000


class QualityTable(ConfigTable):
    """Further metrics of the predictions."""

    metrics: tuple[build.Spec, ...] = Field(
        default=(), strict=False, max_length=MOST_METRICS, description=f"a list of at most {MOST_METRICS} River metrics"
    )

    @field_validator("metrics", mode="before")
    @classmethod
    def _can_be_built(cls, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            collect_problems(*(lambda i=i, spec=spec: metric_at(i, spec) for i, spec in enumerate(value)))
            names = [build.type_of(spec) for spec in value]
            if twice := [name for name in names if names.count(name) > 1]:
                raise ConfigError(f"quality.metrics: expected different metrics, got {to_toml(twice[0])} twice")
        return value


class SegmentsTable(ConfigTable):
    """The segments of the stream whose quality is evaluated separately."""

    field: Name = Field(description="the name of a field among the inputs")
    most: int = Field(default=10, ge=1, le=MOST_SEGMENTS)


class MonitoringTable(ConfigTable):
    """The statistics of inputs and predictions."""

    fields: Names | None = Field(default=None, description="a list of field names, at most 100")
    most: int = Field(default=20, ge=1, le=MOST_FIELDS)
    window: int = Field(default=1000, ge=100, le=MOST_ROWS)
    every: int | None = Field(default=None, ge=1, le=MOST_ROWS)


class DriftTable(ConfigTable):
    """The detection of changes without labels."""

    detectors: tuple[Literal["kernel", "adwin"], ...] = Field(
        default=("kernel", "adwin"), strict=False, min_length=1, description='a list of "kernel" and "adwin"'
    )
    fields: Names | None = Field(default=None, description="a list of field names, at most 100")
    most: int = Field(default=20, ge=1, le=MOST_FIELDS)
    scores: bool = True
    every: int | None = Field(default=None, ge=1, le=MOST_ROWS)
    average_run_length: float = Field(default=1_000_000.0, ge=2.0)
    delta: float = Field(default=0.002, gt=0.0, lt=1.0, description="a number between 0 and 1")
    action: Literal["alert", "forget"] = "alert"


class NoveltyTable(ConfigTable):
    """The detection of events unlike earlier ones."""

    fields: Names | None = Field(default=None, description="a list of field names, at most 100")
    most: int = Field(default=20, ge=1, le=MOST_FIELDS)
    every: int | None = Field(default=None, ge=1, le=MOST_ROWS)
    rate: float = Field(default=0.01, ge=0.002, le=0.5)
    average_run_length: float = Field(default=1_000_000.0, ge=2000.0)


def metric_at(i: int, spec: build.Spec) -> Metric:
    """Return the further metric that a table describes."""
    metric: Metric = build.build(spec, registry.metrics(), f"quality.metrics[{i}]")
    return metric


MOST_CHALLENGERS = 16
"""Most challengers of a run."""

_NAME = "a name of at most 64 letters, digits and . _ -"


class ChallengerTable(ConfigTable):
    """A model that learns beside the model of the run."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$", description=_NAME)]
    model: build.Spec | None = Field(default=None, description='a table with the "type" of the model')
    preprocessing: tuple[build.Spec, ...] | None = Field(
        default=None, strict=False, description="one table [[challengers.preprocessing]] per step"
    )
    begin_from: LocalPath | None = Field(
        default=None, alias="from", description="the path of a saved model or a state directory"
    )


class TelemetryTable(ConfigTable):
    """The collector that gets metrics and traces."""

    endpoint: str | None = Field(default=None, description='an address as "http://localhost:4318"')
    sampling_ratio: float | None = Field(default=None, ge=0, le=1, description="a share from 0 to 1")

    @field_validator("endpoint")
    @classmethod
    def _is_address(cls, endpoint: str | None) -> str | None:
        try:
            return endpoint and check_collector(endpoint)
        except ValueError as error:
            raise ConfigError(f"telemetry.endpoint: {error}") from None
