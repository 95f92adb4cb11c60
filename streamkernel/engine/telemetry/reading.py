"""The parts of a running engine that have figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamkernel.engine.telemetry.figures import Reading
from streamkernel.engine.telemetry.snapshot import lag_of

if TYPE_CHECKING:
    from streamkernel.engine.engine import Engine


def reading_of(engine: Engine) -> Reading:
    """Return all parts of an engine at this moment, for any thread."""
    run, checkpointer = engine.snapshot, engine.parts.checkpointer
    return Reading(
        outcomes=run.outcomes,
        scores=run.scores,
        challengers=run.challengers,
        monitoring=run.monitoring,
        coverage=run.coverage,
        run=run,
        lags=lag_of(engine.source),
        model=run.model,
        checkpointer=checkpointer,
        checkpoints=None if checkpointer.state is None else run.checkpoints,
        mirror=getattr(checkpointer.state, "mirror", None),
        cluster=engine.cluster,
        incidents=dict(engine.incidents),
    )
