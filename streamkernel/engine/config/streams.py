"""Sources, topics and formats of values of a configuration; a `ConfigError` names what is wrong with one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from streamkernel.connectors import DatasetSource, FileSource
from streamkernel.engine.config import build, registry
from streamkernel.engine.config.environment import read_whole
from streamkernel.engine.config.messages import ConfigError, problem_at
from streamkernel.engine.config.source_and_sink import REGISTRY_FORMATS, build_registered

if TYPE_CHECKING:
    from streamkernel.connectors import KafkaSource, Source, Transactions
    from streamkernel.connectors.formats import ValueDecoder
    from streamkernel.connectors.json_values import JsonFields
    from streamkernel.connectors.kafka import Options, Writer
    from streamkernel.connectors.schema_registry import Registry
    from streamkernel.connectors.schema_registry.writing import ValueWriter
    from streamkernel.engine.config.settings import Settings


def build_source(settings: Settings, member: str | None = None) -> Source:
    """Return the source of records; a consumer group knows it as `member`."""
    source = settings.source
    if source.choice is not None:
        return cast("Source", build_registered(source.choice, settings.folder))
    if source.topics is not None:
        return kafka_source(settings, member)
    if source.path is None:
        datasets = registry.datasets()
        registry.find_kind(source.dataset, datasets, "source.dataset")
        dataset = build.build({**source.params, "type": source.dataset}, datasets, "source.params")
        return DatasetSource(dataset, label=settings.labels[0], limit=source.limit)
    with problem_at("source.path", ImportError, OSError, ValueError):
        return FileSource(
            source.path,
            source.format,
            source.follow,
            csv=settings.csv,
            max_list_length=source.max_list_length,
            zones=settings.zones,
        )


LONGEST_TRANSACTION = 900.0
"""Default timeout of a transaction in seconds."""


class TopicOutput(NamedTuple):
    """A writer of topics, and the record of committed checkpoints if it is the same."""

    writer: Writer
    transactions: Transactions | None


def kafka_problems(settings: Settings) -> Iterator[str]:
    """Yield the problems of options that cannot be combined."""
    source, sink, kafka = settings.source, settings.sink, settings.kafka
    topics = source.topics is not None
    writes = sink.predictions_topic or sink.dead_letters_topic
    if kafka is None:
        if topics or writes:
            what = "source.topics" if topics else "topics in sink"
            yield f"kafka: required for {what}; expected a table, got nothing"
        return
    if not topics and not writes:
        yield "kafka: expected topics in source or sink, got none"
    if topics and settings.delayed_labels is not None and kafka.group is not None and source.partitions is None:
        yield (
            "kafka.group: expected none with [delayed_labels], so that one process reads all partitions, or "
            f'source.partitions for each process, got "{kafka.group}"; features wait for their label in the memory of '
            "one process, and a group moves partitions from one to another"
        )
    if kafka.processing_guarantee == "exactly_once":
        if not topics:
            expected = 'expected "at_least_once", because the source is not a topic, got "exactly_once"'
            yield f"kafka.processing_guarantee: {expected}"
        elif settings.state.directory is None:
            yield "state.directory: required to learn each event exactly once; expected a directory, got nothing"
        if 2.0 * settings.state.checkpoint_seconds > LONGEST_TRANSACTION:
            yield (
                f"state.checkpoint_seconds: expected at most {LONGEST_TRANSACTION / 2.0:g}, since a transaction is "
                f"open for so long, got {settings.state.checkpoint_seconds:g}"
            )


def kafka_source(settings: Settings, member: str | None) -> KafkaSource:
    """Return the source; it connects when it is polled."""
    from streamkernel.connectors import KafkaSource

    source, options, decoder = settings.source, kafka_options(settings), decoder_of(settings)
    with problem_at("source", ValueError):
        return KafkaSource(
            options,
            source.topics or (),
            group=settings.kafka.group if settings.kafka else None,
            member=member,
            partitions=source.partitions,
            start=source.start,
            until=source.until,
            order=source.order,
            decoder=decoder,
            key=source.key_as_field,
            key_format=source.key_format,
            copartitioned=settings.delayed_labels is not None,
        )


def decoder_of(settings: Settings) -> Any:
    """Return the function from bytes to fields, or ``None`` for JSON."""
    if settings.source.decoder is None:
        return value_decoder(settings)
    from streamkernel.connectors.registry import function_at

    with problem_at("source.decoder", ValueError):
        return function_at(settings.source.decoder, settings.folder)


def kafka_options(settings: Settings) -> Options:
    """Return the options of the client. Raise `ConfigError` if one is none, or the client is not installed."""
    from streamkernel.connectors.kafka import Options

    if settings.kafka is None:
        raise ConfigError("kafka: required for topics; expected a table, got nothing")
    with problem_at("kafka.client", ImportError), problem_at("kafka.options", ValueError):
        return Options(settings.kafka.servers, settings.kafka.options, settings.kafka.client, settings.folder)


def outlet(settings: Settings, source: Any, identity: str) -> TopicOutput | None:
    """Return the writer of topics, which connects when it is used, or ``None`` if no topic is written."""
    from streamkernel.connectors import KafkaTransactions
    from streamkernel.connectors.kafka import Writer

    if settings.kafka is None:
        return None
    if settings.kafka.processing_guarantee == "at_least_once":
        writes = settings.sink.predictions_topic or settings.sink.dead_letters_topic
        return TopicOutput(Writer(kafka_options(settings)), None) if writes else None
    name = f"{settings.kafka.group or 'streamkernel'}-{identity}"
    seconds = max(60.0, 2.0 * settings.state.checkpoint_seconds)
    transactions = KafkaTransactions(source, name, seconds)
    return TopicOutput(transactions, transactions)


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
    """Return the decoder of values."""
    from streamkernel.connectors.formats import CsvRow, ValueDecoder
    from streamkernel.connectors.json_values import JsonFields, json_object

    source = settings.source
    form = source.format or "json"
    if form == "csv":
        return ValueDecoder(CsvRow(settings.csv.columns, settings.csv))
    if form in REGISTRY_FORMATS:
        from streamkernel.connectors.schema_registry import registry_reader

        registry = registry_of(settings)
        with _extra_installed():
            read = registry_reader(registry, form, _reader_schema(settings))
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
    """Return the encoder of predictions for a topic, or ``None`` for JSON."""
    form, topic = settings.sink.predictions_format, settings.sink.predictions_topic
    if form not in REGISTRY_FORMATS or topic is None:
        return None
    from streamkernel.connectors.schema_registry.writing import record_writer

    registry = registry_of(settings)
    with _extra_installed():
        return record_writer(registry, topic, form, PREDICTION_FIELDS)


def registry_of(settings: Settings) -> Registry:
    """Return the registry. Raise `ConfigError` if there is no table of it, or an option is wrong."""
    from streamkernel.connectors.schema_registry import Registry

    table = settings.schema_registry
    if table is None:
        raise ConfigError("schema_registry: expected a table, got nothing")
    with _extra_installed(), problem_at("schema_registry", ValueError):
        return Registry(table.url, table.options, settings.folder)


def _reader_schema(settings: Settings) -> str | None:
    path = settings.source.reader_schema
    if path is None:
        return None
    from streamkernel.connectors.schema_registry import parsed_avro

    with _extra_installed(), problem_at("source.reader_schema", OSError, ValueError):
        text = read_whole(path).decode()
        parsed_avro(text)
    return text


@contextmanager
def _extra_installed() -> Iterator[None]:
    """Raise an ImportError as a problem that names the packages to install."""
    try:
        yield
    except ImportError as error:
        what = "it needs pip install 'streamkernel[schema-registry]'"
        raise ConfigError(f'schema_registry: {what}, got no module "{error.name}"') from error


SECURITY = ("security", "sasl", "ssl")
"""Prefixes of options that Kafka's own tools need as well."""


class Topic(NamedTuple):
    """A topic that a configuration names.

    `purpose` is its use in the run. `partitions` is the number that it has, or should have; ``None`` for the brokers'
    default. `exists` says whether it exists.
    """

    name: str
    purpose: str
    partitions: int | None
    exists: bool

    @property
    def size(self) -> str:
        """The number of partitions, as text."""
        if self.partitions is None:
            return "the brokers' default number of partitions"
        return f"{self.partitions} partition{'' if self.partitions == 1 else 's'}"

    def command(self, settings: Settings) -> str:
        """Return the command of Kafka that creates it."""
        options = kafka_options(settings)
        words = ["kafka-topics.sh", "--bootstrap-server", options.servers]
        if any(name.startswith(SECURITY) for name in options.given):
            words += ["--command-config", "client.properties"]
        words += ["--create", "--topic", self.name]
        return shlex.join(words if self.partitions is None else [*words, "--partitions", str(self.partitions)])


def find_topics(settings: Settings) -> list[Topic]:
    """Look up the configured topics at the brokers.

    A missing topic of predictions should have as many partitions as the source, and a missing source as many as the
    other sources; one is enough for dead letters. Raise `ConfigError` if there is no table ``[kafka]``;
    `UnavailableError` if no broker can be reached.
    """
    sources, sink = settings.source.topics or (), settings.sink
    purposes: dict[str, str] = {}
    features = "source" if settings.delayed_labels is None else "source of features and labels"
    for name, purpose in (
        *((name, features) for name in sources),
        (sink.predictions_topic, "predictions"),
        (sink.dead_letters_topic, "dead letters"),
    ):
        if name is not None:
            purposes[name] = f"{purposes[name]} and {purpose}" if name in purposes else purpose
    with closing(kafka_options(settings).consumer()) as asked:
        counts = {name: len(asked.partitions_of(name)) for name in purposes}
    partitions = max((counts[name] for name in sources), default=0)
    wanted = max(partitions, *(number + 1 for number in settings.source.partitions or ()), 0) or None
    return [
        Topic(name, purpose, counts[name] or (1 if purpose == "dead letters" else wanted), counts[name] > 0)
        for name, purpose in purposes.items()
    ]


def report_topics(settings: Settings, *, create: bool) -> tuple[list[str], bool]:
    """Return a report on the required topics, and whether all exist.

    `create` says whether to create missing topics, with as many replicas as the brokers have as their default. Raise
    `ConfigError` if there is no table ``[kafka]``; `OSError` if no broker can be reached, or the brokers refuse to
    create a topic.
    """
    topics = find_topics(settings)
    missing = [topic for topic in topics if not topic.exists]
    if create and missing:
        kafka_options(settings).create_topics({topic.name: topic.partitions for topic in missing})
    state = "created with" if create else "missing, should have"
    lines = [f"{one.name} ({one.purpose}): {'exists with' if one.exists else state} {one.size}" for one in topics]
    if create or not missing:
        return lines, True
    commands = [topic.command(settings) for topic in missing]
    return [*lines, "", "create what is missing with --create, or with", *commands], False
