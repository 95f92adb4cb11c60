"""The plan of a round in the state directory, by which a lost round is repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import structlog

from streamkernel import tensor_file
from streamkernel.connectors import WorkAssignment
from streamkernel.connectors.json_text import to_json
from streamkernel.engine.checkpoint.state_directory import PRIVATE, StateDirectory, no_link
from streamkernel.engine.health import Health

PLAN = "round.json"
"""Name of the plan's file in the state directory."""

log = structlog.get_logger("streamkernel")


class RoundPlan:
    """The file with the plan of the current round.

    Parameters
    ----------
    state
        The directory; without one, no plan is written or read.
    health
        Counts plans that could not be written.
    """

    def __init__(self, state: StateDirectory | None, health: Health) -> None:
        self._state, self._health = state, health

    def read(self, positions: Mapping[str, Any]) -> list[WorkAssignment] | None:
        """Return the plan of the round that begins at these positions, or ``None`` if there is none."""
        if self._state is not None and (path := no_link(self._state.path / PLAN)).exists():
            found = orjson.loads(path.read_bytes())
            if found.get("positions") == positions:
                return [WorkAssignment(*assignment) for assignment in found["shares"]]
        return None

    def write(self, positions: Mapping[str, Any], assignments: Sequence[WorkAssignment]) -> bool:
        """Write a plan durably, and return whether that succeeded."""
        if self._state is None:
            return True
        plan = {"positions": positions, "shares": [[*assignment] for assignment in assignments]}
        try:
            tensor_file.put(self._state.path / PLAN, to_json(plan, 0), PRIVATE)
        except OSError as error:
            self._health.count("checkpoint_failed")
            log.error("the plan of a round could not be written; retrying later", reason=str(error))
            return False
        return True
