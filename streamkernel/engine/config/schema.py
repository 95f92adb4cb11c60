"""The tables of the configuration file, with a description of each key."""

from __future__ import annotations

import datetime as dt
import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
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

from streamkernel.connectors.csv_table import CsvOptions, check_encoding
from streamkernel.connectors.files.many_files import is_pattern, matches
from streamkernel.connectors.formats import SUFFIXES, suffix_of
from streamkernel.connectors.registry import SINKS, SOURCES
from streamkernel.connectors.values import VALUE_FORMATS
from streamkernel.engine.config.messages import ConfigError
from streamkernel.engine.config.registered import RegisteredClass, choose
from streamkernel.engine.mirror.bucket import check_address
from streamkernel.field_types.times import TimeUnit

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


Moment = str | int | dt.datetime
_MOMENT = '"earliest", "latest", an offset or a time with its zone'
_TOKEN_TEXT = "text of 8 or more printable ASCII characters"
_CSV_KEYS = ("delimiter", "decimal", "encoding", "columns")
_GO_WITH: dict[str, tuple[str, ...]] = {
    "path": ("follow", *_CSV_KEYS, "max_list_length"),
    "dataset": ("params", "limit"),
    "topics": (
        "partitions", "start", "until", "order", "decoder", "key_as_field", "key_format",
        "reader_schema", "envelope", *_CSV_KEYS, "max_list_length",
    ),
}  # fmt: skip
"""The keys that are valid for a kind of source, and for no kind that does not have them."""

FILE_FORMATS = ("csv", "jsonl", "parquet", "svmlight")
REGISTRY_FORMATS = VALUE_FORMATS[2:]
"""Formats of values whose schemas are in a registry."""


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


class SchemaRegistryTable(ConfigTable):
    """Where the schemas of values are."""

    url: Name = Field(description='addresses of a registry, "https://host:8081", separated by commas')
    options: dict[str, Any] = Field(default={}, description="a table of options of confluent-kafka's registry client")


class SourceTable(ConfigTable):
    """The source of records: a file, the files that match a pattern, a data set, or topics."""

    path: LocalPattern | None = Field(default=None, description='the path of a file, or "-" for standard input')
    dataset: Name | None = Field(default=None, description="the name of one of River's data sets")
    format: Literal["csv", "jsonl", "parquet", "svmlight", "json", "avro", "protobuf", "json-schema"] | None = Field(
        default=None,
        description='"csv", "jsonl", "parquet" or "svmlight" of a file, "json", "csv", "avro", "protobuf" or '
        '"json-schema" of topics',
    )
    follow: bool = Field(default=False, description="true or false")
    params: dict[str, Any] = Field(default={}, description="a table with the parameters of the data set")
    limit: int | None = Field(default=None, ge=1, description="an integer of at least 1")
    topics: tuple[Name, ...] | None = Field(default=None, strict=False, min_length=1, description="a list of topics")
    partitions: tuple[int, ...] | None = Field(default=None, strict=False, description="a list of partition numbers")
    start: Moment = Field(default="earliest", description=_MOMENT)
    until: Moment | None = Field(default=None, description=_MOMENT)
    order: Literal["arrival", "deterministic"] = Field(default="arrival", description='"arrival" or "deterministic"')
    decoder: Name | None = Field(default=None, description='a function from bytes to a dict, "package.module:name"')
    key_as_field: Name | None = Field(default=None, description="the name of a field for the key of a record")
    key_format: Literal["string", "long", "integer", "json"] = Field(
        default="string", description='"string", "long", "integer" or "json"'
    )
    columns: tuple[Name, ...] | None = Field(
        default=None, strict=False, min_length=1, description="a list of the names of columns"
    )
    delimiter: Literal[",", ";", "\t", "|"] | None = Field(default=None, description='",", ";", "\\t" or "|"')
    decimal: Literal[".", ","] = Field(default=".", description='"." or ","')
    encoding: Annotated[str, AfterValidator(check_encoding)] = Field(
        default="utf-8", description='one of Python\'s text encodings, such as "latin-1"'
    )
    reader_schema: LocalPath | None = Field(default=None, description="the path of a schema of Avro")
    envelope: Literal["debezium"] | None = Field(default=None, description='"debezium"')
    max_list_length: int = Field(default=0, ge=0, le=10_000, description="an integer from 0 to 10,000")

    _choice: RegisteredClass | None = PrivateAttr(default=None)

    @model_validator(mode="wrap")
    @classmethod
    def _by_its_class(cls, data: Any, validate: ModelWrapValidatorHandler[SourceTable]) -> SourceTable:
        """Pass the keys of a registered source to its class as parameters."""
        choice = choose(data, SOURCES, "streamkernel.sources", "source", cls.model_fields)
        if choice is None:
            return validate(data)
        found = cls.model_construct()
        found._choice = choice  # noqa: SLF001 - one of this class
        return found

    @property
    def choice(self) -> RegisteredClass | None:
        """The class of a registered source, with its parameters."""
        return self._choice

    @property
    def key(self) -> str:
        """The key that selects the kind of source."""
        if self._choice is not None:
            return self._choice.name
        return next(key for key in SOURCES if getattr(self, key, None) is not None)

    @model_validator(mode="after")
    def _one_of_these(self) -> SourceTable:
        if self._choice is not None:
            return self
        given = [name for name in _GO_WITH if getattr(self, name) is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none of them"
            others = "".join(f", {key}" for key in SOURCES if key not in _GO_WITH)
            raise ConfigError(f"source: expected a path, a dataset{others} or topics, got {got}")
        usable = _GO_WITH[given[0]]
        lines = [
            f"source.{key}: only goes with {_kinds_with(key)}"
            for key in dict.fromkeys(key for keys in _GO_WITH.values() for key in keys)
            if key not in usable and key in self.model_fields_set
        ]
        lines += self._problems_of_format()
        if self.path == Path(STREAM) and self.format is None:
            lines.append(
                'source.format: required for standard input; expected "csv", "jsonl" or "svmlight", got nothing'
            )
        if lines:
            raise ConfigError(*lines)
        return self

    def _problems_of_format(self) -> Iterator[str]:
        """Yield what does not go with the format."""
        given = self.model_fields_set
        known = VALUE_FORMATS if self.topics is not None else FILE_FORMATS
        if self.dataset is not None and self.format is not None:
            yield "source.format: only goes with a path or topics"
        elif self.format is not None and self.format not in known:
            names = ", ".join(f'"{name}"' for name in known)
            yield f'source.format: expected one of {names}, got "{self.format}"'
        if self.path is not None:
            yield from self._problems_of_file(given)
        if self.topics is None:
            return
        for key in _CSV_KEYS[:3]:
            if key in given and self.format != "csv":
                yield f'source.{key}: only goes with format = "csv", got "{self.format or "json"}"'
        if "key_format" in given and self.key_as_field is None:
            yield "source.key_format: only goes with key_as_field, the name of a field for the key"
        if (self.format == "csv") != (self.columns is not None):
            got = "none" if self.columns is None else f'format = "{self.format or "json"}"'
            yield f'source.columns: expected a list of names with format = "csv", and only there, got {got}'
        if self.reader_schema is not None and self.format != "avro":
            yield f'source.reader_schema: only goes with format = "avro", got "{self.format or "json"}"'
        if self.envelope is not None and self.format == "csv":
            yield 'source.envelope: expected a format with objects, got "csv"'
        if self.decoder is not None:
            for key in ("format", "envelope", "max_list_length"):
                if key in given:
                    yield f"source.{key}: does not go with a decoder, which returns the fields itself"

    def _problems_of_file(self, given: set[str]) -> Iterator[str]:
        """Yield the keys that do not go with the format of a file, if it is known already."""
        form = self.format or SUFFIXES.get(suffix_of(self.path or Path()))
        if form is None:
            return
        for keys, forms in ((_CSV_KEYS, ("csv",)), (("max_list_length",), ("jsonl", "parquet"))):
            if form not in forms:
                names = " or ".join(f'"{name}"' for name in forms)
                yield from (
                    f'source.{key}: only goes with the format {names}, got "{form}"' for key in keys if key in given
                )

    @property
    def csv(self) -> CsvOptions:
        """How tables are written."""
        return CsvOptions(self.delimiter, self.decimal, self.encoding, self.columns or ())

    def reads(self, path: Path) -> bool:
        """Return whether the pattern matches a file, existing or not."""
        return self.path is not None and is_pattern(self.path) and matches(path, self.path)


def _kinds_with(key: str) -> str:
    kinds = [kind for kind, keys in _GO_WITH.items() if key in keys]
    return " or ".join("topics" if kind == "topics" else f"a {kind}" for kind in kinds)


class SinkTable(ConfigTable):
    """The destinations of results."""

    predictions: LocalPath | None = Field(default=None, description='the path of a file, or "-" for standard output')
    dead_letters: LocalPath | None = Field(default=None, description='the path of a file, or "-" for standard output')
    predictions_topic: Name | None = Field(default=None, description="the name of a topic")
    predictions_format: Literal["json", "avro", "protobuf", "json-schema"] = Field(
        default="json", description='"json", "avro", "protobuf" or "json-schema"'
    )
    dead_letters_topic: Name | None = Field(default=None, description="the name of a topic")
    explain: int = Field(default=0, ge=0, le=200, description="an integer from 0 to 200")

    _choice: RegisteredClass | None = PrivateAttr(default=None)

    @model_validator(mode="wrap")
    @classmethod
    def _by_its_class(cls, data: Any, validate: ModelWrapValidatorHandler[SinkTable]) -> SinkTable:
        """Pass the keys of a registered sink of predictions to its class as parameters."""
        given = data.get("predictions") if isinstance(data, dict) else None
        choice = choose(given, SINKS, "streamkernel.sinks", "sink.predictions")
        if choice is not None:
            found = validate({name: value for name, value in data.items() if name != "predictions"})
            if found.predictions_topic:
                raise ConfigError("sink.predictions: expected a table or a topic, got both")
            found._choice = choice  # noqa: SLF001 - one of this class
        else:
            found = validate(data)
        if found.explain and not found.has_predictions:
            raise ConfigError("sink.explain: expected predictions or predictions_topic to explain, got neither")
        return found

    @property
    def choice(self) -> RegisteredClass | None:
        """The class of a registered sink of predictions, with its parameters."""
        return self._choice

    @property
    def has_predictions(self) -> bool:
        """Whether predictions are written."""
        return bool(self.predictions or self.predictions_topic or self._choice)

    @model_validator(mode="after")
    def _one_each(self) -> SinkTable:
        both = [
            name for name in ("predictions", "dead_letters") if getattr(self, name) and getattr(self, f"{name}_topic")
        ]
        if both:
            raise ConfigError(*(f"sink.{name}: expected a path or a topic, got both" for name in both))
        if "predictions_format" in self.model_fields_set and self.predictions_topic is None:
            raise ConfigError("sink.predictions_format: only goes with predictions_topic; files are JSON lines")
        return self


class DelayedLabelsTable(ConfigTable):
    """The join of features and labels that arrive in separate records."""

    key: Name = Field(description="the name of the field that features and their label have in common")
    time: Name | None = Field(default=None, description="the name of the field with the time of an event")
    time_unit: TimeUnit = Field(default="s", description='"s", "ms", "us" or "ns"')
    max_pending: int = Field(default=100_000, ge=1, le=10_000_000, description="an integer from 1 to 10,000,000")
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
