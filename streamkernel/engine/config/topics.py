"""The topics that a configuration needs: which exist, and how to create the others."""

from __future__ import annotations

import shlex
from contextlib import closing
from typing import NamedTuple

from streamkernel.engine.config.config import Config
from streamkernel.engine.config.kafka import kafka_options

SECURITY = ("security", "sasl", "ssl")
"""Prefixes of options that Kafka's own tools need as well."""


class Topic(NamedTuple):
    """A topic that a configuration names.

    Parameters
    ----------
    name
        Its name.
    purpose
        Its use in the run.
    partitions
        The number that it has, or should have; ``None`` for the brokers' default.
    exists
        Whether it exists.
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

    def command(self, config: Config) -> str:
        """Return the command of Kafka that creates it."""
        options = kafka_options(config)
        words = ["kafka-topics.sh", "--bootstrap-server", options.servers]
        if any(name.startswith(SECURITY) for name in options.given):
            words += ["--command-config", "client.properties"]
        words += ["--create", "--topic", self.name]
        return shlex.join(words if self.partitions is None else [*words, "--partitions", str(self.partitions)])


def find_topics(config: Config) -> list[Topic]:
    """Look up the configured topics at the brokers.

    A missing topic of predictions should have as many partitions as the source, and a missing source as many as the
    other sources; one is enough for dead letters.

    Raises
    ------
    ConfigError
        If there is no table ``[kafka]``.
    UnavailableError
        If no broker can be reached.
    """
    sources, sink = config.source.topics or (), config.sink
    purposes: dict[str, str] = {}
    features = "source" if config.delayed_labels is None else "source of features and labels"
    for name, purpose in (
        *((name, features) for name in sources),
        (sink.predictions_topic, "predictions"),
        (sink.dead_letters_topic, "dead letters"),
    ):
        if name is not None:
            purposes[name] = f"{purposes[name]} and {purpose}" if name in purposes else purpose
    with closing(kafka_options(config).consumer()) as asked:
        counts = {name: len(asked.partitions_of(name)) for name in purposes}
    known = max((counts[name] for name in sources), default=0)
    wanted = max(known, *(number + 1 for number in config.source.partitions or ()), 0) or None
    return [
        Topic(name, purpose, counts[name] or (1 if purpose == "dead letters" else wanted), counts[name] > 0)
        for name, purpose in purposes.items()
    ]


def report_topics(config: Config, *, create: bool) -> tuple[list[str], bool]:
    """Return a report on the required topics, and whether all exist.

    Parameters
    ----------
    config
        The configuration.
    create
        Whether to create those that are missing, with as many replicas as the brokers have as their default.

    Raises
    ------
    ConfigError
        If there is no table ``[kafka]``.
    OSError
        If no broker can be reached, or the brokers refuse to create a topic.
    """
    topics = find_topics(config)
    missing = [topic for topic in topics if not topic.exists]
    if create and missing:
        kafka_options(config).create_topics({topic.name: topic.partitions for topic in missing})
    state = "created with" if create else "missing, should have"
    lines = [f"{one.name} ({one.purpose}): {'exists with' if one.exists else state} {one.size}" for one in topics]
    if create or not missing:
        return lines, True
    commands = [topic.command(config) for topic in missing]
    return [*lines, "", "create what is missing with --create, or with", *commands], False
