"""Formats of the values of records in topics: what a configuration says of them, and what reads and writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamkernel.engine.config.messages import ConfigError, of_error
from streamkernel.engine.config.schema import REGISTRY_FORMATS

if TYPE_CHECKING:
    from streamkernel.connectors.json_values import JsonFields
    from streamkernel.connectors.schema_registry import Registry, ValueWriter
    from streamkernel.connectors.values import ValueDecoder
    from streamkernel.engine.config.settings import Settings

PREDICTION_FIELDS = {
    "topic": "text",
    "partition": "integer",
    "offset": "integer",
    "timestamp": "integer",
    "stream": "text",
    "position": "json",
    "model_version": "integer",
    "member": "text",
    "label": "value",
    "prediction": "value",
    "probabilities": "numbers",
    "key": "value",
    "lower": "number",
    "upper": "number",
    "set": "values",
    "explanation": "numbers",
    "novelty": "number",
    "is_novel": "boolean",
}
"""The fields of predictions, numbered in this order in Protobuf: a new one comes last."""


def value_problems(settings: Settings) -> Iterator[str]:
    """Yield what cannot be combined."""
    uses = [
        f'{key} = "{form}"'
        for key, form in (
            ("source.format", settings.source.format),
            ("sink.predictions_format", settings.sink.predictions_format),
        )
        if form in REGISTRY_FORMATS
    ]
    if uses and settings.schema_registry is None:
        yield f"schema_registry: required for {' and '.join(uses)}; expected a table, got nothing"
    if not uses and settings.schema_registry is not None:
        names = ", ".join(f'"{name}"' for name in REGISTRY_FORMATS)
        yield f"schema_registry: expected a format with schemas in source or sink, {names}, got none"


def value_decoder(settings: Settings) -> ValueDecoder | JsonFields:
    """Return the decoder of values.

    Raises
    ------
    ConfigError
        If the schema that is read into is none, or the registry's options are wrong.
    """
    from streamkernel.connectors.json_values import JsonFields, json_object
    from streamkernel.connectors.values import CsvRow, ValueDecoder

    source = settings.source
    form = source.format or "json"
    if form == "csv":
        return ValueDecoder(CsvRow(settings.csv.columns, settings.csv))
    if form in REGISTRY_FORMATS:
        from streamkernel.connectors.schema_registry import registry_reader

        registry = registry_of(settings)
        try:
            read = registry_reader(registry, form, _reader_schema(settings))
        except ImportError as error:
            raise ConfigError(_needs_extra(error)) from error
    elif source.envelope is None and not source.max_list_length:
        return JsonFields(texts=settings.csv.texts)
    else:
        return ValueDecoder(
            json_object,
            envelope=source.envelope,
            max_list_length=source.max_list_length,
            texts=settings.csv.texts,
            zones=settings.zones,
        )
    return ValueDecoder(read, envelope=source.envelope, max_list_length=source.max_list_length, zones=settings.zones)


def predictions_writer(settings: Settings) -> ValueWriter | None:
    """Return the encoder of predictions for a topic, or ``None`` for JSON.

    Raises
    ------
    ConfigError
        If the registry's options are wrong.
    """
    form, topic = settings.sink.predictions_format, settings.sink.predictions_topic
    if form not in REGISTRY_FORMATS or topic is None:
        return None
    from streamkernel.connectors.schema_registry import record_writer

    registry = registry_of(settings)
    try:
        return record_writer(registry, topic, form, PREDICTION_FIELDS)
    except ImportError as error:
        raise ConfigError(_needs_extra(error)) from error


def registry_of(settings: Settings) -> Registry:
    """Return the registry.

    Raises
    ------
    ConfigError
        If there is no table of it, or an option is wrong.
    """
    from streamkernel.connectors.schema_registry import Registry

    table = settings.schema_registry
    if table is None:
        raise ConfigError("schema_registry: expected a table, got nothing")
    try:
        return Registry(table.url, table.options, settings.folder)
    except ImportError as error:
        raise ConfigError(_needs_extra(error)) from error
    except ValueError as error:
        raise ConfigError(of_error("schema_registry", error)) from error


def _reader_schema(settings: Settings) -> str | None:
    path = settings.source.reader_schema
    if path is None:
        return None
    from streamkernel.connectors.schema_registry.avro import parsed

    try:
        text = path.read_text()
        parsed(text)
    except ImportError as error:
        raise ConfigError(_needs_extra(error)) from error
    except (OSError, ValueError) as error:
        raise ConfigError(of_error("source.reader_schema", error)) from error
    return text


def _needs_extra(error: ImportError) -> str:
    return f"schema_registry: it needs pip install 'streamkernel[schema-registry]', got no module \"{error.name}\""
