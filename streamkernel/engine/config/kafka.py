"""The Kafka tables of a configuration, and the objects that they describe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from streamkernel.engine.config.messages import ConfigError, of_error
from streamkernel.engine.config.values import value_decoder

if TYPE_CHECKING:
    from streamkernel.connectors import KafkaSource, Transactions
    from streamkernel.connectors.kafka import Options, Writer
    from streamkernel.engine.config.settings import Settings

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
    """Return the source; it connects when it is polled.

    Raises
    ------
    ConfigError
        If an option is not one, or there is no such decoder.
    """
    from streamkernel.connectors import KafkaSource

    source, options, decoder = settings.source, kafka_options(settings), decoder_of(settings)
    try:
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
    except ValueError as error:
        raise ConfigError(of_error("source", error)) from error


def decoder_of(settings: Settings) -> Any:
    """Return the function from bytes to fields, or ``None`` for JSON.

    Raises
    ------
    ConfigError
        If there is no such function, or what the format needs is wrong.
    """
    if settings.source.decoder is None:
        return value_decoder(settings)
    from streamkernel.connectors.python_names import function_at

    try:
        return function_at(settings.source.decoder, settings.folder)
    except ValueError as error:
        raise ConfigError(of_error("source.decoder", error)) from error


def kafka_options(settings: Settings) -> Options:
    """Return the options of the client.

    Raises
    ------
    ConfigError
        If one is none, or the client is not installed.
    """
    from streamkernel.connectors.kafka import Options

    if settings.kafka is None:
        raise ConfigError("kafka: required for topics; expected a table, got nothing")
    try:
        return Options(settings.kafka.servers, settings.kafka.options, settings.kafka.client, settings.folder)
    except ImportError as error:
        raise ConfigError(of_error("kafka.client", error)) from error
    except ValueError as error:
        raise ConfigError(of_error("kafka.options", error)) from error


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
