"""A run on a cluster from a configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from streamkernel.cluster.runner import ClusterRunner
from streamkernel.cluster.workers import Replica, WorkerPool, check_ray
from streamkernel.connectors import Event, PartitionedFiles, PartitionedSource, PartitionedTopics, Position, Source
from streamkernel.engine import Engine
from streamkernel.engine.assemble import engine_parts
from streamkernel.engine.checkpoint.state_directory import StateDirectory
from streamkernel.engine.config.config import Config
from streamkernel.engine.config.messages import ConfigError, problem_at
from streamkernel.engine.config.models import candidates_of, first_model
from streamkernel.engine.config.schema import STREAM
from streamkernel.engine.config.streams import decoder_of, kafka_options
from streamkernel.engine.shared_model import merge_problems


class CheckpointOnlySource(Source):
    """The positions of a divided source; the workers do the reading.

    A run that writes to Kafka in transactions with its checkpoints needs the connection's `options` and the `topics`.
    """

    group = None
    """Positions are in the checkpoint alone, so no group has offsets to commit."""

    def __init__(self, divided: PartitionedSource, options: Any = None, topics: tuple[str, ...] = ()) -> None:
        self.divided = divided
        self.options, self.topics = options, topics
        self._positions: Mapping[str, Position] = {}

    def seek(self, positions: Mapping[str, Position]) -> None:
        """Set the positions of the streams."""
        self._positions = positions

    def resume(self, positions: Mapping[str, Position], *, is_older: bool = False) -> None:
        """Set the positions of the streams."""
        self.seek(positions)

    def prepare(self, deadline: float = math.inf) -> Mapping[str, Any]:
        """Return the values of the divided source, and that workers read it without a consumer group."""
        return {**self.divided.prepare(deadline), "is_divided": True}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Pass on what a checkpoint stores."""
        self.divided.restore(saved)

    def poll(self, timeout: float) -> list[Event] | None:
        """Return no events, because the workers read them."""
        return []

    def lag(self) -> Mapping[tuple[str, str], int]:
        """Return the lag after the last round."""
        return self.divided.lag(self._positions)

    def close(self) -> None:
        """Close the source."""
        self.divided.close()


def cluster_engine_of(config: Config, address: str, workers: Callable[[], int | None]) -> Engine:
    """Return the engine that `config` describes, with workers on a Ray cluster.

    Raise `ConfigError` if a part cannot be built, divided among workers or merged. Raise `ImportError` if Ray is not
    installed. Raise `ConnectionError` if there is no cluster at the address. Raise `StateDirectoryError` if another
    process uses the state directory. `address` is ``"local"``, or a Ray address. `workers` returns the number of
    workers for the next round.
    """
    check_cluster(config)
    state = None if config.state.directory is None else StateDirectory(config.state.directory)
    options = None if config.kafka is None else kafka_options(config)
    source = CheckpointOnlySource(partitioned_source(config), options, config.source.topics or ())
    for_workers = config.without_http()
    pool, events = WorkerPool(address, lambda: replica_of(for_workers)), config.cluster.events_per_round
    runner = partial(ClusterRunner, divided=source.divided, pool=pool, workers=workers, events_per_round=events)
    parts = {"candidates": candidates_of(config), **engine_parts(config, source, state)}  # a champion may be promoted
    return Engine(first_model(config), source, runner=runner, **parts)


def check_cluster(config: Config) -> None:
    """Check that Ray is installed, and that a configuration can be divided among workers and merged."""
    problems = list(_problems(config))
    if problems:
        raise ConfigError(*problems)
    check_ray()


def replica_of(config: Config) -> Replica:
    """Return a new worker for a configuration."""
    return Replica(
        lambda: partitioned_source(config),
        metric=config.build_metric(),
        writes=config.sink.has_predictions,
        label=config.label,
        ignore=config.ignore,
        weight=config.weight,
        fields=config.build_fields(),
        coverage=config.coverage,
        explain=config.sink.explain,
    )


def partitioned_source(config: Config) -> PartitionedSource:
    """Return the source that the workers share. Raise `ConfigError` if it cannot be opened."""
    source = config.source
    if source.path is None:
        options, decoder = kafka_options(config), decoder_of(config)
    with problem_at("source", ImportError, OSError, ValueError):
        if source.path is not None:
            return PartitionedFiles(
                source.path, source.format, csv=config.csv, max_list_length=source.max_list_length, zones=config.zones
            )
        return PartitionedTopics(
            options,
            source.topics or (),
            partitions=source.partitions,
            start=source.start,
            until=source.until,
            decoder=decoder,
            key=source.key_as_field,
            key_format=source.key_format,
        )


def _problems(config: Config) -> Iterator[str]:
    """Yield the reasons why the source cannot be divided among workers, or the model cannot be merged."""
    yield from merge_problems(config.build_pipeline(), "on a cluster")
    if config.state.shared_model is not None:
        yield "state.shared_model: expected none on a cluster, which has one model, got a directory"
    if config.state.mirror is not None:
        yield "state.mirror: expected none on a cluster, where workers have the positions, got one"
    if config.source.dataset is not None:
        yield f"source.dataset: expected files or topics on a cluster, got {config.source.dataset}"
    if config.source.choice is not None:
        yield f"source.{config.source.key}: expected files or topics on a cluster, got another source"
    if config.source.path == Path(STREAM):
        yield "source.path: expected files on a cluster, got standard input"
    if config.source.follow:
        yield "source.follow: expected false on a cluster, got true"
    if config.delayed_labels is not None:
        yield "delayed_labels: expected none on a cluster, where each record needs its label, got a table"
    if config.challengers:
        yield f"challengers: expected none on a cluster, which merges one model, got {len(config.challengers)}"
    for name in ("quality", "segments", "monitoring", "drift", "novelty"):
        if getattr(config, name) is not None:
            yield f"{name}: expected none on a cluster, where workers predict apart, got a table"
    if config.baseline is not None:
        yield "baseline: expected none on a cluster, where it would have to be merged, got one"
