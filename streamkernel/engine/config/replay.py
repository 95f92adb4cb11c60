"""A replay of a stream into another state directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamkernel.engine.config.config import Config
from streamkernel.engine.config.messages import ConfigError


def replay_config(config: Config, directory: Path, start: str | None, until: str | None) -> Config:
    """Return the configuration that runs a stream again and writes everything to a directory.

    Topics are read to their present end without a consumer group, and files are not followed, so a run in progress is
    not disturbed; no metrics are served.

    Parameters
    ----------
    config
        The configuration of that run, or of another model for the same stream.
    directory
        The directory for the new state, and for predictions and dead letters as files.
    start, until
        For topics: an offset, a time with its zone, ``"earliest"`` or ``"latest"``.

    Raises
    ------
    ConfigError
        If the directory is that of the run, or a range is given for a source without offsets.

    Examples
    --------
    >>> found = Config.model_validate({
    ...     "label": "y", "source": {"topics": ["clicks"]}, "model": "KernelClassifier",
    ...     "kafka": {"servers": "localhost:9092", "group": "clicks"}, "state": {"directory": "state"},
    ... })
    >>> again = replay_config(found, Path("before"), "100", "2026-05-01T00:00:00+00:00")
    >>> again.source.start, again.source.until, again.kafka.group, again.state.directory
    (100, '2026-05-01T00:00:00+00:00', None, PosixPath('before'))
    """
    source, has_topics = config.source, config.source.topics is not None
    own = config.state.directory
    if own is not None and own.resolve() == directory.resolve():
        raise ConfigError(f"state.directory: expected another directory to replay into, got {directory}")
    if source.key == "http":
        raise ConfigError("source: expected files, a data set or topics to read again, got requests over HTTP")
    if not has_topics and (start or until):
        raise ConfigError("source: expected topics, of which a range can be replayed, got none")
    changes: dict[str, Any] = {"follow": False}
    if has_topics:
        changes |= {"start": _place(start) or source.start, "until": _place(until) or source.until or "latest"}
    files = {"predictions": directory / "predictions.jsonl", "dead_letters": directory / "dead_letters.jsonl"}
    no_topics = {"predictions_topic": None, "dead_letters_topic": None}
    kafka = config.kafka and config.kafka.model_copy(update={"group": None, "processing_guarantee": "at_least_once"})
    return config.model_copy(
        update={
            "source": source.model_copy(update=changes),
            "sink": config.sink.model_copy(update=files | no_topics),
            "state": config.state.model_copy(update={"directory": directory, "mirror": None, "shared_model": None}),
            "telemetry": None,
            "http": config.http.model_copy(update={"port": None}),
            "kafka": kafka if has_topics else None,
        }
    )


def _place(text: str | None) -> str | int | None:
    """Return an offset as a number."""
    return int(text) if text is not None and text.isdecimal() else text
