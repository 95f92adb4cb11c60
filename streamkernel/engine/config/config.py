"""The configuration file: its settings, which fit together, and the source that they describe; and a replay of it."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError, model_validator

from streamkernel.engine.config import streams
from streamkernel.engine.config.checks import check_config, check_label, conflicts
from streamkernel.engine.config.environment import Resolved, read_whole
from streamkernel.engine.config.messages import ConfigError, problems_of, syntax_problem
from streamkernel.engine.config.models import challenger_problems
from streamkernel.engine.config.settings import Settings

if TYPE_CHECKING:
    from streamkernel.connectors import Source


__all__ = ["Config", "ConfigError", "load_config"]


class Config(Settings):
    """A complete configuration.

    Examples
    --------
    >>> config = Config.model_validate({
    ...     "label": "phishing",
    ...     "source": {"dataset": "Phishing"},
    ...     "preprocessing": [{"type": "StandardScaler"}],
    ...     "model": {"type": "KernelClassifier", "kernel": {"type": "Gaussian", "sigma": 2.0}},
    ... })
    >>> config.check()
    >>> list(config.build_pipeline().steps)
    ['StandardScaler', 'KernelClassifier']
    >>> config.build_metric()
    Accuracy: 0.00%
    """

    @model_validator(mode="after")
    def _fits_together(self) -> Config:
        checks = conflicts, streams.kafka_problems, streams.value_problems, challenger_problems
        if problems := [problem for check in checks for problem in check(self)]:
            raise ConfigError(*problems)
        return self

    def build_source(self, member: str | None = None) -> Source:
        """Return the source of records, as :func:`~streamkernel.engine.config.streams.build_source`."""
        return streams.build_source(self, member)

    def check(self) -> None:
        """Build all components once, as :func:`~streamkernel.engine.config.checks.check_config`."""
        check_config(self)

    def check_records(self) -> None:
        """Check the first records of files, as :func:`~streamkernel.engine.config.checks.check_label`."""
        check_label(self)


def load_config(path: str | Path) -> Config:
    """Return the configuration in a TOML file; relative paths in it are relative to its folder.

    Texts may refer to variables of the environment and to files, and variables may set keys, as in
    :class:`~streamkernel.engine.config.environment.Resolved`.

    Raises
    ------
    ConfigError
        If the file cannot be read; all problems of its content are reported together.

    Examples
    --------
    >>> load_config("missing.toml")
    Traceback (most recent call last):
    streamkernel.engine.config.messages.ConfigError: missing.toml: no such file or directory
    """
    path = Path(path)
    try:
        content = read_whole(path)
        text = content.decode("utf-8-sig")
        resolved = Resolved(tomllib.loads(text), os.environ, path.absolute().parent)
        return Config.model_validate(resolved.data, context={"folder": path.absolute().parent, "resolved": resolved})
    except OSError as error:
        raise ConfigError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}, line {line}: expected UTF-8 text, got {content[error.start]:#04x}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(syntax_problem(path, text, str(error))) from error
    except ValidationError as error:
        problems = dict.fromkeys(problems_of(error, resolved.data, Config))
        raise ConfigError(*map(resolved.explain, problems)) from error


def replay_config(config: Config, directory: Path, start: str | None, until: str | None) -> Config:
    """Return the configuration that runs a stream again and writes everything to a directory.

    Topics are read to their present end without a consumer group, and files are not followed, so a run in progress is
    not disturbed; no metrics are served. Raise `ConfigError` if the directory is the run's own, or a range is given for
    a source without offsets. `start` and `until` are for topics: an offset, a time with its zone, ``"earliest"`` or
    ``"latest"``.

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
    present = config.state.directory
    if present is not None and present.resolve() == directory.resolve():
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
