"""The table ``[telemetry]``: a collector of OpenTelemetry, and the share of records that begin a trace."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pydantic import Field, field_validator

from streamkernel.engine.config.messages import ConfigError
from streamkernel.engine.config.schema import ConfigTable
from streamkernel.engine.otel.environment import check_address, problems_of, ratio_of

if TYPE_CHECKING:
    from streamkernel.engine.engine import Engine
    from streamkernel.engine.parts import EngineParts
    from streamkernel.engine.runner import Runner


class TelemetryTable(ConfigTable):
    """The collector that gets metrics and traces."""

    endpoint: str | None = Field(default=None, description='an address as "http://localhost:4318"')
    sampling_ratio: float | None = Field(default=None, ge=0, le=1, description="a share from 0 to 1")

    @field_validator("endpoint")
    @classmethod
    def _is_address(cls, endpoint: str | None) -> str | None:
        try:
            return endpoint and check_address(endpoint)
        except ValueError as error:
            raise ConfigError(f"telemetry.endpoint: {error}") from None


def check_telemetry(table: TelemetryTable | None) -> None:
    """Check OpenTelemetry's variables of the environment, and that its packages are installed.

    Raises
    ------
    ConfigError
        If a run could not follow them.
    """
    if table is None:
        return
    problems = list(problems_of(os.environ))
    try:
        import streamkernel.engine.otel.exporting  # noqa: F401
    except ImportError as error:
        problems.append(f"telemetry: it needs pip install 'streamkernel[otel]', got no module \"{error.name}\"")
    if problems:
        raise ConfigError(*problems)


def traced_runner(table: TelemetryTable) -> Callable[[EngineParts], Runner]:
    """Return a function that makes the loop of a run that follows traces."""
    from streamkernel.engine.otel.exporting import resource_of, span_exporter
    from streamkernel.engine.otel.traced_runner import TracedRunner
    from streamkernel.engine.otel.tracing import Tracing

    ratio = ratio_of(os.environ) if table.sampling_ratio is None else table.sampling_ratio

    def make(parts: EngineParts) -> Runner:
        return TracedRunner(parts, Tracing(span_exporter(table.endpoint), resource_of(parts.outputs.member), ratio))

    return make


@contextmanager
def exported_metrics(engine: Engine, table: TelemetryTable | None) -> Iterator[None]:
    """Send the metrics of an engine to the collector meanwhile, if there is one."""
    if table is None:
        yield
        return
    from streamkernel.engine.otel.exporting import MetricsExport, resource_of
    from streamkernel.engine.telemetry.prometheus import registry_of

    export = MetricsExport(registry_of(engine), table.endpoint, resource_of(engine.parts.outputs.member))
    try:
        yield
    finally:
        export.close()
