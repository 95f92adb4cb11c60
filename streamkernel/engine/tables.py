"""The tables of the configuration file, each with the sentence that says what every key is for."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from connectors.globs import is_pattern, matches
from streamkernel.engine.problems import ConfigError

STREAM = "-"
"""The path that stands for standard input, or standard output."""


def _resolved(value: Any, info: ValidationInfo) -> Path:
    """Return a path, relative to the folder of the configuration file."""
    if not isinstance(value, (str, Path)) or not str(value):
        raise ValueError("no path")
    return Path(value) if str(value) == STREAM else Path((info.context or {}).get("folder", "."), value)


def _resolved_pattern(value: Any, info: ValidationInfo) -> Path:
    """Return a path or a pattern, relative to the folder of the configuration file, which means itself."""
    path = _resolved(value, info)
    return Path(glob.escape(str((info.context or {}).get("folder", "."))), value) if is_pattern(path) else path


LocalPath = Annotated[Path, BeforeValidator(_resolved)]
LocalPattern = Annotated[Path, BeforeValidator(_resolved_pattern)]
Name = Annotated[str, Field(min_length=1)]


class ConfigTable(BaseModel):
    """A table that takes no key it does not know, and no value of another type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class SourceTable(ConfigTable):
    """Where records come from: a file, all that match a pattern, or a data set."""

    path: LocalPattern | None = Field(default=None, description='the path of a file, or "-" for standard input')
    dataset: Name | None = Field(default=None, description="the name of one of River's data sets")
    format: Literal["csv", "jsonl", "parquet", "svmlight"] | None = Field(
        default=None, description='"csv", "jsonl", "parquet" or "svmlight"'
    )
    follow: bool = Field(default=False, description="true or false")
    params: dict[str, Any] = Field(default={}, description="a table of what to make the data set with")
    limit: int | None = Field(default=None, ge=1, description="an integer of at least 1")

    @model_validator(mode="after")
    def _one_of_two(self) -> SourceTable:
        if (self.path is None) == (self.dataset is None):
            got = "neither" if self.path is None else "both"
            raise ConfigError(f"source: expected either a path or a dataset, got {got}")
        wrong = ("params", "limit") if self.dataset is None else ("format", "follow")
        other = "dataset" if self.dataset is None else "path"
        lines = [f"source.{key}: only goes with a {other}" for key in wrong if key in self.model_fields_set]
        if self.path == Path(STREAM) and self.format is None:
            lines.append('source.format: standard input needs it; expected "csv", "jsonl" or "svmlight", got nothing')
        if lines:
            raise ConfigError(*lines)
        return self

    def reads(self, path: Path) -> bool:
        """Tell whether a file is, or would be, one of those that match the pattern."""
        return self.path is not None and is_pattern(self.path) and matches(path, self.path)


class SinkTable(ConfigTable):
    """Where results go."""

    predictions: LocalPath | None = Field(default=None, description='the path of a file, or "-" for standard output')
    dead_letters: LocalPath | None = Field(default=None, description='the path of a file, or "-" for standard output')


class StateTable(ConfigTable):
    """Where the state is kept."""

    directory: LocalPath | None = Field(default=None, description="the path of a directory")
    checkpoint_seconds: float = Field(default=30.0, gt=0, description="a number of seconds above 0")


class MetricsTable(ConfigTable):
    """Where metrics are served."""

    port: int | None = Field(default=None, ge=0, le=65535, description="a port from 0 to 65535")
    host: Name = Field(default="127.0.0.1", description="the name or address of a host")
