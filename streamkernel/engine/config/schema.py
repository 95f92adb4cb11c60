"""The tables of the configuration file, with a description of each key."""

from __future__ import annotations

import datetime as dt
import glob
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from connectors.files.many_files import is_pattern, matches
from connectors.registry import SINKS, SOURCES
from streamkernel.engine.config.messages import ConfigError

STREAM = "-"
"""The path that stands for standard input, or standard output."""

TOKEN = "STREAMKERNEL_HTTP_TOKEN"
"""The variable of the environment with the token, where the file has none."""


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


Moment = str | int | dt.datetime
_MOMENT = '"earliest", "latest", an offset or a time with its zone'
_TOKEN_TEXT = "text of 8 or more printable ASCII characters"
_GO_WITH: dict[str, tuple[str, ...]] = {
    "path": ("format", "follow"),
    "dataset": ("params", "limit"),
    "topics": ("partitions", "start", "until", "order", "decoder", "key_as_field"),
}
"""What the keys of a source go with."""


class ConfigTable(BaseModel):
    """A table that refuses unknown keys and values of the wrong type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class KafkaTable(ConfigTable):
    """The brokers, the consumer group and the processing guarantee."""

    servers: Name = Field(description='addresses of brokers, "host:port", separated by commas')
    group: Name | None = Field(default=None, description="the name of a consumer group")
    processing_guarantee: Literal["exactly_once", "at_least_once"] = Field(
        default="exactly_once", description='"exactly_once" or "at_least_once"'
    )
    client: Literal["kafka-python", "confluent-kafka"] = Field(
        default="kafka-python", description='"kafka-python" or "confluent-kafka"'
    )
    options: dict[str, Any] = Field(default={}, description="a table of options of the client")
    give_up_after: float | None = Field(default=None, gt=0, description="a number of seconds above 0")


class SourceTable(ConfigTable):
    """The source of records: a file, the files that match a pattern, a data set, or topics."""

    path: LocalPattern | None = Field(default=None, description='the path of a file, or "-" for standard input')
    dataset: Name | None = Field(default=None, description="the name of one of River's data sets")
    format: Literal["csv", "jsonl", "parquet", "svmlight"] | None = Field(
        default=None, description='"csv", "jsonl", "parquet" or "svmlight"'
    )
    follow: bool = Field(default=False, description="true or false")
    params: dict[str, Any] = Field(default={}, description="a table of what to make the data set with")
    limit: int | None = Field(default=None, ge=1, description="an integer of at least 1")
    topics: tuple[Name, ...] | None = Field(default=None, strict=False, min_length=1, description="a list of topics")
    partitions: tuple[int, ...] | None = Field(default=None, strict=False, description="a list of partition numbers")
    start: Moment = Field(default="earliest", description=_MOMENT)
    until: Moment | None = Field(default=None, description=_MOMENT)
    order: Literal["arrival", "deterministic"] = Field(default="arrival", description='"arrival" or "deterministic"')
    decoder: Name | None = Field(default=None, description='a function from bytes to a dict, "package.module:name"')
    key_as_field: Name | None = Field(default=None, description="the name of a field for the key of a record")

    _parameters: dict[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _by_its_class(cls, data: Any, validate: ModelWrapValidatorHandler[SourceTable]) -> SourceTable:
        """Pass the keys of a registered source to its class as parameters."""
        if not isinstance(data, dict) or not data.keys() & (SOURCES.keys() - cls.model_fields.keys()):
            return validate(data)
        found = cls.model_construct()
        found._parameters = dict(data)  # noqa: SLF001 - one of this class
        return found

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of a registered source."""
        return self._parameters

    @property
    def key(self) -> str:
        """The key that selects the kind of source."""
        return next(key for key in SOURCES if key in self._parameters or getattr(self, key, None) is not None)

    @model_validator(mode="after")
    def _one_of_these(self) -> SourceTable:
        if self._parameters:
            return self
        given = [name for name in _GO_WITH if getattr(self, name) is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none of them"
            others = "".join(f", {key}" for key in SOURCES if key not in _GO_WITH)
            raise ConfigError(f"source: expected a path, a dataset{others} or topics, got {got}")
        lines = [
            f"source.{key}: only goes with {'topics' if other == 'topics' else f'a {other}'}"
            for other, keys in _GO_WITH.items()
            for key in keys
            if other not in given and key in self.model_fields_set
        ]
        if self.path == Path(STREAM) and self.format is None:
            lines.append('source.format: standard input needs it; expected "csv", "jsonl" or "svmlight", got nothing')
        if lines:
            raise ConfigError(*lines)
        return self

    def reads(self, path: Path) -> bool:
        """Return whether the pattern matches a file, existing or not."""
        return self.path is not None and is_pattern(self.path) and matches(path, self.path)


class SinkTable(ConfigTable):
    """The destinations of results."""

    predictions: LocalPath | None = Field(default=None, description='the path of a file, or "-" for standard output')
    dead_letters: LocalPath | None = Field(default=None, description='the path of a file, or "-" for standard output')
    predictions_topic: Name | None = Field(default=None, description="the name of a topic")
    dead_letters_topic: Name | None = Field(default=None, description="the name of a topic")

    _parameters: dict[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _by_its_class(cls, data: Any, validate: ModelWrapValidatorHandler[SinkTable]) -> SinkTable:
        """Pass the keys of a registered sink of predictions to its class as parameters."""
        given = data.get("predictions") if isinstance(data, dict) else None
        if not isinstance(given, dict) or not given.keys() & SINKS.keys():
            return validate(data)
        found = validate({name: value for name, value in data.items() if name != "predictions"})
        if found.predictions_topic:
            raise ConfigError("sink.predictions: expected a table or a topic, got both")
        found._parameters = given  # noqa: SLF001 - one of this class
        return found

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of a registered sink of predictions."""
        return self._parameters

    @property
    def has_predictions(self) -> bool:
        """Whether predictions are written."""
        return bool(self.predictions or self.predictions_topic or self._parameters)

    @model_validator(mode="after")
    def _one_each(self) -> SinkTable:
        both = [
            name for name in ("predictions", "dead_letters") if getattr(self, name) and getattr(self, f"{name}_topic")
        ]
        if both:
            raise ConfigError(*(f"sink.{name}: expected a path or a topic, got both" for name in both))
        return self


class DelayedLabelsTable(ConfigTable):
    """The join of features and labels that arrive in separate records."""

    key: Name = Field(description="the name of the field that features and their label have in common")
    time: Name | None = Field(default=None, description="the name of the field with the time of an event")
    max_pending: int = Field(default=100_000, ge=1, le=10_000_000, description="an integer from 1 to 10,000,000")
    timeout_seconds: float = Field(default=86_400.0, gt=0, description="a number of seconds above 0")


class StateTable(ConfigTable):
    """The state directory and the checkpoint interval."""

    directory: LocalPath | None = Field(default=None, description="the path of a directory")
    checkpoint_seconds: float = Field(default=30.0, gt=0, description="a number of seconds above 0")


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

    @field_validator("token")
    @classmethod
    def _usable(cls, token: SecretStr | None) -> SecretStr | None:
        return token and _check_token(token.get_secret_value())


class LogTable(ConfigTable):
    """The log on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description='"debug", "info", "warning" or "error"'
    )
    format: Literal["auto", "console", "json"] = Field(default="auto", description='"auto", "console" or "json"')


class ClusterTable(ConfigTable):
    """The division of a run among workers."""

    workers: int | None = Field(default=None, ge=1, le=1024, description="an integer from 1 to 1024")
    events_per_round: int = Field(default=4096, ge=1, le=10_000_000, description="an integer from 1 to 10,000,000")
