"""What the live page shows of a run: its numbers now, how they went, and what was refused last."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from streamkernel.engine.description import model_rows

if TYPE_CHECKING:
    from streamkernel.engine.runner import Engine


def numbers_of(engine: Engine) -> dict[str, float]:
    """Return the numbers of a run now, by the names under which its history keeps them."""
    outcomes, model = engine.outcomes, engine.kernel_model
    numbers = {"learned": float(outcomes["learned"]), "dead_letters": float(outcomes["dead_letter"])}
    numbers |= {f"quality: {name}": value for name, value in engine.quality().items()}
    if model is not None:
        numbers |= {"objective": model.objective, "features": float(model.n_features), "seeds": float(model.n_seeds)}
    return {name: value for name, value in numbers.items() if np.isfinite(value)}


def status_of(engine: Engine) -> dict[str, Any]:
    """Return all that the live page shows, as JSON values."""
    newest = engine.publisher.newest
    return {
        "clock": time.time(),
        "ill": engine.ill(),
        "now": numbers_of(engine) | {"events": engine.history.events, "lag": sum(engine.source.lag().values())},
        "outcomes": dict(engine.outcomes),
        "incidents": dict(engine.incidents),
        "checkpoint_age": engine.checkpoint_age,
        "history": engine.history.columns(),
        "dead_letters": list(engine.last_dead_letters),
        "about": {} if newest is None else dict(model_rows(newest.model)),
        "version": 0 if newest is None else newest.version,
    }
