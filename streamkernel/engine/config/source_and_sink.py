"""The tables ``[source]`` and ``[sink]``, and the registered classes that they may name."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field, ModelWrapValidatorHandler, PrivateAttr, model_validator

from streamkernel.connectors.csv_table import CsvOptions, check_encoding
from streamkernel.connectors.files.readers import is_pattern, matches
from streamkernel.connectors.formats import SUFFIXES, VALUE_FORMATS, suffix_of
from streamkernel.connectors.registry import SINKS, SOURCES, class_at, installed
from streamkernel.engine.config import build, registry
from streamkernel.engine.config.messages import ConfigError, did_you_mean, problem_at
from streamkernel.engine.config.registry import parameters_of, takes_paths
from streamkernel.engine.config.schema import STREAM, ConfigTable, LocalPath, LocalPattern, Name

Moment = str | int | dt.datetime
_MOMENT = '"earliest", "latest", an offset or a time with its zone'
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


class _TableWithClass(ConfigTable):
    """A table that a registered class may take the place of."""

    _choice: RegisteredClass | None = PrivateAttr(default=None)

    @property
    def choice(self) -> RegisteredClass | None:
        """The registered class that the table selects, with its parameters."""
        return self._choice


class SourceTable(_TableWithClass):
    """The source of records: a file, the files that match a pattern, a data set, or topics."""

    path: LocalPattern | None = Field(default=None, description='the path of a file, or "-" for standard input')
    dataset: Name | None = Field(default=None, description="the name of one of River's data sets")
    format: Literal["csv", "jsonl", "parquet", "svmlight", "json", "avro", "protobuf", "json-schema"] | None = Field(
        default=None,
        description='"csv", "jsonl", "parquet" or "svmlight" of a file, "json", "csv", "avro", "protobuf" or '
        '"json-schema" of topics',
    )
    follow: bool = False
    params: dict[str, Any] = Field(default={}, description="a table with the parameters of the data set")
    limit: int | None = Field(default=None, ge=1)
    topics: tuple[Name, ...] | None = Field(default=None, strict=False, min_length=1, description="a list of topics")
    partitions: tuple[int, ...] | None = Field(default=None, strict=False, description="a list of partition numbers")
    start: Moment = Field(default="earliest", description=_MOMENT)
    until: Moment | None = Field(default=None, description=_MOMENT)
    order: Literal["arrival", "deterministic"] = "arrival"
    decoder: Name | None = Field(default=None, description='a function from bytes to a dict, "package.module:name"')
    key_as_field: Name | None = Field(default=None, description="the name of a field for the key of a record")
    key_format: Literal["string", "long", "integer", "json"] = "string"
    columns: tuple[Name, ...] | None = Field(
        default=None, strict=False, min_length=1, description="a list of the names of columns"
    )
    delimiter: Literal[",", ";", "\t", "|"] | None = None
    decimal: Literal[".", ","] = "."
    encoding: Annotated[str, AfterValidator(check_encoding)] = Field(
        default="utf-8", description='one of Python\'s text encodings, such as "latin-1"'
    )
    reader_schema: LocalPath | None = Field(default=None, description="the path of a schema of Avro")
    envelope: Literal["debezium"] | None = None
    max_list_length: int = Field(default=0, ge=0, le=10_000)

    @model_validator(mode="wrap")
    @classmethod
    def _by_its_class(cls, data: Any, validate: ModelWrapValidatorHandler[SourceTable]) -> SourceTable:
        """Pass the keys of a registered source to its class as parameters."""
        choice = choose(data, SOURCES, "streamkernel.sources", "source", cls.model_fields)
        if choice is None:
            return validate(data)
        table = cls.model_construct()
        table._choice = choice  # noqa: SLF001 - one of this class
        return table

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
        keys = [name for name in _GO_WITH if getattr(self, name) is not None]
        if len(keys) != 1:
            got = " and ".join(keys) or "none of them"
            others = "".join(f", {key}" for key in SOURCES if key not in _GO_WITH)
            raise ConfigError(f"source: expected a path, a dataset{others} or topics, got {got}")
        usable = _GO_WITH[keys[0]]
        lines = [
            f"source.{key}: only goes with {_kinds_with(key)}"
            for key in dict.fromkeys(chain.from_iterable(_GO_WITH.values()))
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
        keys = self.model_fields_set
        formats = VALUE_FORMATS if self.topics is not None else FILE_FORMATS
        if self.dataset is not None and self.format is not None:
            yield "source.format: only goes with a path or topics"
        elif self.format is not None and self.format not in formats:
            names = ", ".join(f'"{name}"' for name in formats)
            yield f'source.format: expected one of {names}, got "{self.format}"'
        if self.path is not None:
            yield from self._problems_of_file(keys)
        if self.topics is None:
            return
        for key in _CSV_KEYS[:3]:
            if key in keys and self.format != "csv":
                yield f'source.{key}: only goes with format = "csv", got "{self.format or "json"}"'
        if "key_format" in keys and self.key_as_field is None:
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
                if key in keys:
                    yield f"source.{key}: does not go with a decoder, which returns the fields itself"

    def _problems_of_file(self, keys: set[str]) -> Iterator[str]:
        """Yield the keys that do not go with the format of a file, if it is known already."""
        form = self.format or SUFFIXES.get(suffix_of(self.path or Path()))
        if form is None:
            return
        for of_form, forms in ((_CSV_KEYS, ("csv",)), (("max_list_length",), ("jsonl", "parquet"))):
            if form not in forms:
                names = " or ".join(f'"{name}"' for name in forms)
                yield from (
                    f'source.{key}: only goes with the format {names}, got "{form}"' for key in of_form if key in keys
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


class SinkTable(_TableWithClass):
    """The destinations of results."""

    predictions: LocalPath | None = Field(default=None, description='the path of a file, or "-" for standard output')
    dead_letters: LocalPath | None = Field(default=None, description='the path of a file, or "-" for standard output')
    predictions_topic: Name | None = Field(default=None, description="the name of a topic")
    predictions_format: Literal["json", "avro", "protobuf", "json-schema"] = "json"
    dead_letters_topic: Name | None = Field(default=None, description="the name of a topic")
    explain: int = Field(default=0, ge=0, le=200)

    @model_validator(mode="wrap")
    @classmethod
    def _by_its_class(cls, data: Any, validate: ModelWrapValidatorHandler[SinkTable]) -> SinkTable:
        """Pass the keys of a registered sink of predictions to its class as parameters."""
        predictions = data.get("predictions") if isinstance(data, dict) else None
        choice = choose(predictions, SINKS, "streamkernel.sinks", "sink.predictions")
        if choice is not None:
            table = validate({name: value for name, value in data.items() if name != "predictions"})
            if table.predictions_topic:
                raise ConfigError("sink.predictions: expected a table or a topic, got both")
            table._choice = choice  # noqa: SLF001 - one of this class
        else:
            table = validate(data)
        if table.explain and not table.has_predictions:
            raise ConfigError("sink.explain: expected predictions or predictions_topic to explain, got neither")
        return table

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


class RegisteredClass(NamedTuple):
    """A registered class that a table selects.

    `place` is its module and class. `where` is the path of the table with these parameters. `is_table` says whether the
    table has the name, as ``[source.nats]``; otherwise a key of the table selects the class.
    """

    name: str
    place: str
    parameters: dict[str, Any]
    where: str
    is_table: bool

    @property
    def path(self) -> str:
        """The path of the key or the table that selects the class."""
        return self.where if self.is_table else f"{self.where}.{self.name}"

    @property
    def table(self) -> dict[str, Any]:
        """The content of the table ``[source]`` or ``[sink.predictions]``."""
        return {self.name: self.parameters} if self.is_table else self.parameters


def choose(
    table: Any, keys: Mapping[str, str], group: str, where: str, fields: Collection[str] = ()
) -> RegisteredClass | None:
    """Return the registered class that a table selects, or ``None``.

    Raise `ConfigError` if no class of that name is installed, or there are other keys beside the name. `keys` are the
    places of classes by the keys that select them. `group` is the group of entry points for tables with a name.
    `fields` are keys of the table that select nothing here.
    """
    if not isinstance(table, dict):
        return None
    for key in keys:
        if key in table and key not in fields:
            return RegisteredClass(key, keys[key], dict(table), where, is_table=False)
    names = [name for name, value in table.items() if isinstance(value, dict) and name not in fields]
    plugins = installed(group) if names else {}
    name = next((name for name in names if name in plugins), names[0] if len(table) == len(names) == 1 else None)
    if name is None:
        return None
    if name not in plugins:
        what, others = group.rpartition(".")[2].removesuffix("s"), ", ".join(f'"{one}"' for one in sorted(plugins))
        raise ConfigError(
            f"{where}.{name}: expected the name of an installed {what}, one of {others}, got "
            f'"{name}"{did_you_mean(name, plugins)}'
        )
    if len(table) > 1:
        others = ", ".join(key for key in table if key != name)
        raise ConfigError(f"{where}: expected no keys beside the table {name}, got {others}")
    return RegisteredClass(name, plugins[name], dict(table[name]), f"{where}.{name}", is_table=True)


def build_registered(choice: RegisteredClass, folder: Path) -> Any:
    """Return the object that a table describes; relative paths in it are relative to the folder."""
    with problem_at(choice.path, OSError):
        return build.build(*_spec(choice, folder), choice.where)


def check_registered(choice: RegisteredClass, folder: Path) -> None:
    """Raise the ConfigError of :func:`build_registered` for wrong and unknown parameters, without opening anything."""
    build.check(*_spec(choice, folder), choice.where)


def identity_of(choice: RegisteredClass) -> dict[str, Any]:
    """Return the table without the parameters that may change while a state directory is used."""
    names = getattr(_class_of(choice), "identity", choice.parameters)
    return choice._replace(parameters={key: choice.parameters[key] for key in names if key in choice.parameters}).table


def weaker_guarantees(source: RegisteredClass | None, sink: RegisteredClass | None) -> Iterator[str]:
    """Yield a note for the source and the sink of predictions, each if it does not give exactly-once results."""
    again = "events", "are learned again"
    for choice in (source, sink):
        if choice is not None and getattr(_class_of(choice), "guarantee", "exactly_once") == "at_least_once":
            yield f"{choice.path} is at least once: after a crash, {again[0]} since the last checkpoint {again[1]}"
        again = "predictions", "are written again"


def _class_of(choice: RegisteredClass) -> type:
    with problem_at(choice.path, ImportError, AttributeError):
        return class_at(choice.place)


def _spec(choice: RegisteredClass, folder: Path) -> tuple[dict[str, Any], registry.Catalogue]:
    kind = _class_of(choice)
    paths = {name for name, parameter in parameters_of(kind).items() if takes_paths(parameter.annotation)}
    spec = {name: str(folder / value) if name in paths else value for name, value in choice.parameters.items()}
    return {**spec, "type": kind.__name__}, registry.Catalogue(choice.name, {kind.__name__: kind})
