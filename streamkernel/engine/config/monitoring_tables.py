"""The tables of a configuration for further metrics, segments, statistics, drift and novelty detection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from streamkernel.engine.config import build
from streamkernel.engine.config.messages import ConfigError, collect_problems, to_toml
from streamkernel.engine.config.schema import ConfigTable, Name, Names

if TYPE_CHECKING:
    from river.metrics.base import Metric

MOST_METRICS, MOST_SEGMENTS, MOST_FIELDS, MOST_ROWS = 20, 100, 100, 10_000


class QualityTable(ConfigTable):
    """Further metrics of the predictions."""

    metrics: tuple[build.Spec, ...] = Field(
        default=(), strict=False, max_length=MOST_METRICS, description=f"a list of at most {MOST_METRICS} River metrics"
    )

    @field_validator("metrics", mode="before")
    @classmethod
    def _can_be_built(cls, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            collect_problems(*(lambda i=i, spec=spec: metric_at(i, spec) for i, spec in enumerate(value)))
            names = [build.type_of(spec) for spec in value]
            if twice := [name for name in names if names.count(name) > 1]:
                raise ConfigError(f"quality.metrics: expected different metrics, got {to_toml(twice[0])} twice")
        return value


class SegmentsTable(ConfigTable):
    """The segments of the stream whose quality is evaluated separately."""

    field: Name = Field(description="the name of a field among the inputs")
    most: int = Field(default=10, ge=1, le=MOST_SEGMENTS, description=f"an integer from 1 to {MOST_SEGMENTS}")


class MonitoringTable(ConfigTable):
    """The statistics of inputs and predictions."""

    fields: Names | None = Field(default=None, description="a list of field names, at most 100")
    most: int = Field(default=20, ge=1, le=MOST_FIELDS, description=f"an integer from 1 to {MOST_FIELDS}")
    window: int = Field(default=1000, ge=100, le=MOST_ROWS, description=f"an integer from 100 to {MOST_ROWS:,}")
    every: int | None = Field(default=None, ge=1, le=MOST_ROWS, description=f"an integer from 1 to {MOST_ROWS:,}")


class DriftTable(ConfigTable):
    """The detection of changes without labels."""

    detectors: tuple[Literal["kernel", "adwin"], ...] = Field(
        default=("kernel", "adwin"), strict=False, min_length=1, description='a list of "kernel" and "adwin"'
    )
    fields: Names | None = Field(default=None, description="a list of field names, at most 100")
    most: int = Field(default=20, ge=1, le=MOST_FIELDS, description=f"an integer from 1 to {MOST_FIELDS}")
    scores: bool = Field(default=True, description="true or false")
    every: int | None = Field(default=None, ge=1, le=MOST_ROWS, description=f"an integer from 1 to {MOST_ROWS:,}")
    average_run_length: float = Field(default=1_000_000.0, ge=2.0, description="a number of at least 2")
    delta: float = Field(default=0.002, gt=0.0, lt=1.0, description="a number between 0 and 1")
    action: Literal["alert", "forget"] = Field(default="alert", description='"alert" or "forget"')


class NoveltyTable(ConfigTable):
    """The detection of events unlike those before."""

    fields: Names | None = Field(default=None, description="a list of field names, at most 100")
    most: int = Field(default=20, ge=1, le=MOST_FIELDS, description=f"an integer from 1 to {MOST_FIELDS}")
    every: int | None = Field(default=None, ge=1, le=MOST_ROWS, description=f"an integer from 1 to {MOST_ROWS:,}")
    rate: float = Field(default=0.01, ge=0.002, le=0.5, description="a number from 0.002 to 0.5")
    average_run_length: float = Field(default=1_000_000.0, ge=2000.0, description="a number of at least 2,000")


def metric_at(i: int, spec: build.Spec) -> Metric:
    """Return the further metric that a table describes."""
    metric: Metric = build.build(spec, build.metrics(), f"quality.metrics[{i}]")
    return metric
