"""An engine from a configuration, and a description of what it left behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from river import compose

from connectors import DeadLetters, FileSink, KafkaDeadLetters, KafkaSink, Sink
from streamkernel.engine.checkpoint import StateDirectory
from streamkernel.engine.config import Config
from streamkernel.engine.delayed_labels import DelayedLabels
from streamkernel.engine.kafka import outlet
from streamkernel.engine.runner import Engine
from streamkernel.estimator import KernelModel


def engine_of(config: Config) -> Engine:
    """Return the engine that `config` describes.

    Raises
    ------
    ConfigError
        If a part cannot be built.
    StateDirectoryError
        If another process uses the state directory.
    """
    state = None if config.state.directory is None else StateDirectory(config.state.directory)
    source, sink = config.build_source(state.identity if state else None), config.sink
    writes = outlet(config, source, state.identity if state else "")
    predictions: Sink | None = None
    dead_letters: DeadLetters | KafkaDeadLetters
    if sink.predictions is not None:
        predictions = FileSink(sink.predictions)
    elif writes and sink.predictions_topic is not None:
        predictions = KafkaSink(writes.writer, sink.predictions_topic)
    if writes and sink.dead_letters_topic is not None:
        dead_letters = KafkaDeadLetters(writes.writer, sink.dead_letters_topic)
    else:
        dead_letters = DeadLetters(FileSink(config.dead_letters_path))
    return Engine(
        config.build_pipeline(),
        source,
        label=config.label,
        ignore=config.ignore,
        metric=config.build_metric(),
        sink=predictions,
        dead_letters=dead_letters,
        labels=None if config.labels is None else DelayedLabels(**config.labels.model_dump()),
        state=state,
        transactions=writes.transactions if writes else None,
        checkpoint_seconds=config.state.checkpoint_seconds,
        setup=config.setup(),
    )


def described(state: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a checkpoint's content as names and texts."""
    model = state["model"]
    steps = list(model.steps.values()) if isinstance(model, compose.Pipeline) else [model]
    rows = [("pipeline", " | ".join(str(step) for step in steps))]
    last = steps[-1]
    if isinstance(last, KernelModel):
        rows += [("parameters", "\n".join(f"{name} = {value!r}" for name, value in last._get_params().items()))]
        rows += [
            ("kernel", repr(last.kernel_)),
            ("labels", ", ".join(map(repr, getattr(last, "labels", {}))) or "numbers"),
            ("features", f"{last.n_features:,} in {last.n_seeds:,} seeds"),
            ("steps", f"{last.n_steps:,}, of which {last.n_reused:,} reused a seed"),
            ("objective", f"{last.objective:.6g}"),
        ]
    rows += [(type(state["metric"]).__name__, f"{state['metric'].get():.6g}")]
    rows += [(f"events {outcome.replace('_', ' ')}", f"{count:,}") for outcome, count in state["outcomes"].items()]
    if state.get("labels") is not None:
        rows += [(f"labels {outcome}", f"{count:,}") for outcome, count in state["labels"]["counts"].items()]
    rows += [(f"position in {stream}", str(position)) for stream, position in state["positions"].items()]
    return rows
