"""The committed checkpoint, according to Kafka."""

from __future__ import annotations

from typing import Any

import structlog

from streamkernel.engine.checkpoint.state_directory import StateDirectory, StateDirectoryError

log = structlog.get_logger("streamkernel")


def recover_newest(state: StateDirectory, newest: int, session: str) -> dict[str, Any] | None:
    """Return the newest checkpoint that is committed and intact, or ``None`` if there has never been one.

    Parameters
    ----------
    state
        The directory. What was prepared there counts now, or is gone.
    newest
        The number that Kafka has, 0 for none.
    session
        The session that committed it. A process with a copy of the directory prepares checkpoints of the same numbers.

    Raises
    ------
    StateDirectoryError
        If Kafka has a checkpoint that was never in this directory, or has forgotten whether a prepared one counts.
    ModelFileError
        If there are checkpoints and none is whole.
    """
    prepared, own = state.prepared(), state.newest()
    if prepared is not None and not newest and own:
        number = f"{prepared[0]:012d}"
        raise StateDirectoryError(
            f"Expected a record in Kafka of whether checkpoint {prepared[0]} is committed, got none: Kafka deletes it "
            f"after offsets.retention.minutes - at {state.path}; if the last predictions are visible with "
            f"read_committed, rename prepared-{number}-... to checkpoint-{number}.safetensors, else delete it"
        )
    if prepared == (newest, session):
        state.promote(newest)
        log.info("promoting a prepared checkpoint", number=newest)
    elif prepared is not None:
        log.info("discarding a prepared checkpoint", number=prepared[0])
    state.discard()
    state.least = newest
    if newest > state.newest() and state.is_restored():
        log.warning(
            "events since the restored checkpoint are learned again; what topics have of them is not written again",
            number=state.newest(),
            newest=newest,
        )
        return state.read_newest()
    if newest > state.newest():
        raise StateDirectoryError(
            f"Expected checkpoint {newest}, the last one committed in Kafka, got {state.newest()} - at {state.path}; "
            "it is an older copy of a state directory"
        )
    saved = state.read_newest()
    if newest < state.newest() and (saved is None or saved.get("exchanged_after") != newest):
        log.warning("Kafka has no record of the newest checkpoint; resuming from it", has=newest, number=state.newest())
    if saved is not None and saved["checkpoint"] < newest:
        log.error(
            "events since an older checkpoint are learned again; without a group their predictions are written twice",
            number=saved["checkpoint"],
            newest=newest,
        )
    return saved
