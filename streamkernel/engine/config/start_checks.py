"""Checks of the state directory, brokers and topics that a start would make, without a start."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from streamkernel.connectors.kafka import Writer
from streamkernel.connectors.schema_registry import RegistryUnavailableError
from streamkernel.engine.checkpoint.state_directory import StateDirectory, StateDirectoryError, check_setup, read_newest
from streamkernel.engine.config.config import Config
from streamkernel.engine.config.messages import ConfigError, of_error
from streamkernel.engine.config.models import candidates_of, first_model
from streamkernel.engine.config.streams import kafka_options, kafka_source, registry_of
from streamkernel.engine.mirror.bucket import Bucket, MirrorError
from streamkernel.engine.roles import roles_in
from streamkernel.engine.shared_model import check_version, versions


def check_state(config: Config) -> str:
    """Compare the newest checkpoint with the configuration, and change nothing.

    Raise `ConfigError` if the source cannot be read from the position of the checkpoint, or a file of results cannot be
    written or has become shorter; `StateDirectoryError` if the state directory belongs to a run with another setup;
    `ModelFileError` if there are checkpoints and none is whole. The result says why a run that starts now would be
    refused though the configuration is valid, or nothing.
    """
    first_model(config)
    if (shared := config.state.shared_model) is not None and (newest := versions(shared)):
        check_version(newest[-1], config.setup())
    path = config.state.directory
    for key, file in (("predictions", config.sink.predictions), ("dead_letters", config.sink.dead_letters)):
        if file is not None and file.name != "-" and file.parent != path:  # a start makes the state directory
            _check_place(f"sink.{key}", file)
    if path is None or not (path.exists() or path.is_symlink()):
        return ""
    if not path.is_dir():
        raise ConfigError(f"state.directory: expected a directory, got a file or a link to nothing: {path}")
    saved = read_newest(path)
    if saved is not None:
        setup = config.setup()
        check_setup(saved["setup"], {**setup, **roles_in(saved, candidates_of(config)).setup})
        source = config.build_source()
        try:
            source.seek(saved["positions"])
        except (OSError, ValueError) as error:
            raise ConfigError(of_error("source", error)) from error
        finally:
            source.close()
        for key, file in (("predictions", config.sink.predictions), ("dead_letters", config.dead_letters_path)):
            if file is not None:
                _check_length(f"sink.{key}", file, saved["sink" if key == "predictions" else key])
    try:
        StateDirectory(path).close()
    except StateDirectoryError as error:
        return str(error)
    return ""


def separate_models(config: Config) -> str:
    """Return a note if members of a group will have separate models, else nothing.

    Examples
    --------
    >>> found = {"label": "y", "source": {"dataset": "Phishing"}, "model": "KernelClassifier"}
    >>> separate_models(Config.model_validate(found))
    ''
    """
    if config.kafka is None or config.kafka.group is None or config.state.shared_model is not None:
        return ""
    return (
        f'members of the group "{config.kafka.group}" will have separate models, each of its own partitions; '
        "with state.shared_model they have one, and with --cluster one run has many workers"
    )


def mirror_promise(config: Config) -> str:
    """Return a note on what remains if the disk of the state directory is lost, else nothing.

    Examples
    --------
    >>> found = {"label": "y", "source": {"dataset": "Phishing"}, "model": "KernelClassifier"}
    >>> mirror_promise(Config.model_validate(found))
    ''
    """
    if config.state.mirror is None:
        return ""
    text = (
        f"if the disk is lost, the next start with an empty state directory continues from the last checkpoint in "
        f"{config.state.mirror}, and learns the events since then again; "
    )
    if config.kafka is None or config.source.topics is None:
        return text + "files of results on that disk are lost, and later lines are appended to new ones"
    if config.kafka.processing_guarantee == "at_least_once":
        return text + "some predictions and dead letters are written twice"
    return text + (
        "what topics have of them is not written again, so read_committed consumers see each prediction and dead "
        "letter once; a partition that was first read after that checkpoint continues at its committed offset"
    )


def check_connections(config: Config) -> None:
    """Connect to brokers and registry with the configured credentials, check that topics exist, and read nothing.

    Raise `ConfigError` if brokers, the registry or the mirror are unavailable, a topic or a partition does not exist,
    or a topic was made again since the last checkpoint.
    """
    calls: list[Callable[[], None]] = []
    if config.source.topics is not None:
        calls.append(lambda: _check_source(config))
    for topic in (config.sink.predictions_topic, config.sink.dead_letters_topic):
        if topic is not None:
            calls.append(lambda topic=topic: Writer(kafka_options(config)).open(topic))  # type: ignore[misc]
    if config.schema_registry is not None:
        calls.append(lambda: registry_of(config).check())
    if (mirror := config.state.mirror) is not None:
        calls.append(lambda: _check_mirror(mirror))
    problems = []
    for call in calls:
        try:
            call()
        except (OSError, ValueError) as error:
            of = "schema_registry" if isinstance(error, RegistryUnavailableError) else "kafka"
            of = "state.mirror" if isinstance(error, MirrorError) else of
            problems.append(of_error(of, error))
    if problems:
        raise ConfigError(*dict.fromkeys(problems))


def _check_source(config: Config) -> None:
    source = kafka_source(config, None)
    path = config.state.directory
    if path is not None and path.is_dir() and (saved := read_newest(path)) is not None:
        source.restore(saved)
    try:
        source.open()
        if source.group is not None:  # which the credentials may not be for
            source.client.committed(source.client.partitions_of(source.topics[0])[0])
    finally:
        source.close()


def _check_mirror(address: str) -> None:
    Bucket(address).names()


def _check_place(key: str, path: Path) -> None:
    """Raise a ConfigError if a file of results cannot be written there."""
    if path.is_dir():
        raise ConfigError(f"{key}: expected a file, got a directory: {path}")
    if not path.parent.is_dir():
        raise ConfigError(f"{key}: expected a file in a directory that exists, got none: {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(f"{key}: expected a file that can be written to, got one that cannot: {path}")


def _check_length(key: str, path: Path, position: object) -> None:
    """Raise a ConfigError if a file has become shorter than it was at the checkpoint."""
    length = path.stat().st_size if path.is_file() else 0
    if isinstance(position, int) and path.name != "-" and not path.is_char_device() and length < position:
        raise ConfigError(
            f"{key}: expected at least the {position:,} bytes that the checkpoint has, got {length:,}: {path}"
        )


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
    other sources; one is enough for dead letters. Raise `ConfigError` if there is no table ``[kafka]``;
    `UnavailableError` if no broker can be reached.
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
    partitions = max((counts[name] for name in sources), default=0)
    wanted = max(partitions, *(number + 1 for number in config.source.partitions or ()), 0) or None
    return [
        Topic(name, purpose, counts[name] or (1 if purpose == "dead letters" else wanted), counts[name] > 0)
        for name, purpose in purposes.items()
    ]


def report_topics(config: Config, *, create: bool) -> tuple[list[str], bool]:
    """Return a report on the required topics, and whether all exist.

    `create` says whether to create missing topics, with as many replicas as the brokers have as their default. Raise
    `ConfigError` if there is no table ``[kafka]``; `OSError` if no broker can be reached, or the brokers refuse to
    create a topic.
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
