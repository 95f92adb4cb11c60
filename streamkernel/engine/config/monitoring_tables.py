"""The tables of a configuration about what is watched besides the metric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from streamkernel.engine.config import build
from streamkernel.engine.config.messages import ConfigError, collect_problems, to_toml
from streamkernel.engine.config.schema import ConfigTable, Name

if TYPE_CHECKING:
    from river.metrics.base import Metric

MOST_METRICS, MOST_SEGMENTS = 20, 100


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
    """The parts of the stream whose quality is evaluated apart."""

    field: Name = Field(description="the name of a field among the inputs")
    most: int = Field(default=10, ge=1, le=MOST_SEGMENTS, description=f"an integer from 1 to {MOST_SEGMENTS}")


def metric_at(i: int, spec: build.Spec) -> Metric:
    """Return the further metric that a table describes."""
    metric: Metric = build.build(spec, build.metrics(), f"quality.metrics[{i}]")
    return metric
