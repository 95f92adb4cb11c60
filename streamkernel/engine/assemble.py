"""An engine from a configuration."""

from __future__ import annotations

from typing import Any

from streamkernel.connectors import DeadLetters, FileSink, KafkaDeadLetters, KafkaSink, Sink, Source
from streamkernel.engine import Engine
from streamkernel.engine.checkpoint.mirror import open_state
from streamkernel.engine.checkpoint.state_directory import StateDirectory
from streamkernel.engine.config.config import Config
from streamkernel.engine.config.models import candidates_of, first_model
from streamkernel.engine.config.monitoring import build_monitoring, traced_runner
from streamkernel.engine.config.source_and_sink import build_registered
from streamkernel.engine.config.streams import outlet, predictions_writer
from streamkernel.engine.delayed_labels import DelayedLabels


def engine_of(config: Config, source: Source | None = None) -> Engine:
    """Return the engine that `config` describes; `source` replaces its source."""
    state = open_state(config.state.directory, config.state.mirror)
    try:
        source = source or config.build_source(state.identity if state else None)
        labels = None if config.delayed_labels is None else DelayedLabels(**config.delayed_labels.model_dump())
        candidates = candidates_of(config)
        parts = engine_parts(config, source, state)
        if config.telemetry is not None:
            parts["runner"] = traced_runner(config.telemetry)
        return Engine(first_model(config), source, labels=labels, candidates=candidates, **parts)
    except BaseException:
        if state is not None:
            state.close()
        raise


def engine_parts(config: Config, source: Any, state: StateDirectory | None) -> dict[str, Any]:
    """Return the components of an engine other than the model, the source and the store of delayed labels."""
    sink, writes = config.sink, outlet(config, source, state.identity if state else "")
    predictions: Sink | None = None
    dead_letters: DeadLetters | KafkaDeadLetters
    if sink.predictions is not None:
        predictions = FileSink(sink.predictions)
    elif writes and sink.predictions_topic is not None:
        predictions = KafkaSink(writes.writer, sink.predictions_topic, predictions_writer(config))
    elif sink.choice is not None:
        predictions = build_registered(sink.choice, config.folder)
    if writes and sink.dead_letters_topic is not None:
        dead_letters = KafkaDeadLetters(writes.writer, sink.dead_letters_topic)
    else:
        in_state = sink.dead_letters is None and config.state.directory is not None
        dead_letters = DeadLetters(FileSink(config.dead_letters_path, private=in_state))
    return {
        "label": config.label,
        "ignore": config.ignore,
        "weight": config.weight,
        "fields": config.build_fields(),
        "coverage": config.coverage,
        "explain": config.sink.explain,
        "monitoring": build_monitoring(config),
        "metric": config.build_metric(),
        "baseline": config.build_baseline(),
        "sink": predictions,
        "dead_letters": dead_letters,
        "state": state,
        "transactions": writes.transactions if writes else None,
        "checkpoint_seconds": config.state.checkpoint_seconds,
        "give_up_after": None if config.kafka is None else config.kafka.give_up_after,
        "setup": config.setup(),
        "shared_model": config.state.shared_model,
    }
