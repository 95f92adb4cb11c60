"""Another champion in a checkpoint: a challenger takes its place, and the champion that of the challenger."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from streamkernel.engine.challengers.challenger import pack_pending
from streamkernel.engine.challengers.roles import KEYS, MODEL
from streamkernel.engine.checkpoint.packing import pack, unpack
from streamkernel.engine.checkpoint.state_directory import StateDirectory
from streamkernel.engine.delayed_labels import PendingExample
from streamkernel.time_series.history import history_names

OF_BASELINE = "baseline", "baseline_recent"
"""The parts of a quality that belong to the run's baseline, not to a model."""


class PromotionError(ValueError):
    """A model cannot become the champion."""


def promote(path: Path, name: str) -> str:
    """Make a challenger the champion of a state directory, and return a description of the result.

    Raises
    ------
    PromotionError
        If there is no such challenger, or it cannot be the champion.
    StateDirectoryError
        If a run uses the directory.
    """

    def choose(state: Mapping[str, Any]) -> str:
        challengers = _challengers(state)
        if name == _champion(state):
            raise PromotionError(f'"{name}" is the champion already')
        if name not in challengers:
            known = ", ".join(f'"{one}"' for one in challengers) or "none"
            raise PromotionError(f'Expected the name of a challenger, which here are {known}, got "{name}"')
        found = challengers[name]
        if found["is_suspended"]:
            raise PromotionError(
                f'"{name}" was suspended after {found["errors"]:,} errors, the last one {found["reason"]}; '
                "another name in the configuration lets it begin again"
            )
        if not found["quality"]["count"]:
            raise PromotionError(f'"{name}" has not been judged on any event yet')
        return name

    return _exchange(path, choose, "promote")


def rollback(path: Path) -> str:
    """Undo the last promotion in a state directory that was not undone, and return a description of the result.

    Raises
    ------
    PromotionError
        If there is none, or the former champion is no longer there.
    StateDirectoryError
        If a run uses the directory.
    """

    def choose(state: Mapping[str, Any]) -> str:
        former: list[str | None] = []
        for one in _found(state).get("promotions", ()):
            if one["action"] == "promote":
                former.append(one["former"])
            else:
                former.pop()
        if not former:
            raise PromotionError("no promotion to roll back")
        if former[-1] not in _challengers(state):
            raise PromotionError(
                "the former champion is no longer in the state: the configuration of a later start did not have it"
            )
        return former[-1]

    return _exchange(path, choose, "rollback")


def exchanged(state: Mapping[str, Any], name: str, action: str) -> dict[str, Any]:
    """Return a checkpoint in which a challenger and the champion have exchanged their places.

    Each takes with it its model and configuration, its quality, and its predictions that wait for a label. A prediction
    is judged as that of the model that made it. What belongs to the run stays: counters, positions, and the baseline.
    """
    champion, new = _champion(state), _challengers(state)[name]
    former = {
        "name": champion,
        "setup": {key: state["setup"][key] for key in KEYS if key in state["setup"]},
        **{key: state[key] for key in ("model", "metric")},
        "baseline_metric": new["baseline_metric"],
        "quality": state["quality"] | {key: new["quality"][key] for key in OF_BASELINE},
        "errors": 0,
        "reason": "",
        "is_suspended": False,
        "level": 0,
        "pending": pack_pending(()),
    }
    labels = state["labels"]
    if labels is not None:
        waiting, former["pending"] = _exchange_pending(labels["waiting"], state["model"], new)
        labels = labels | {"waiting": waiting}
    models = [former if one is new else one for one in _found(state)["models"]]
    event = {
        "action": action,
        "time": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "learned": state["outcomes"]["learned"],
        "champion": name,
        "former": champion,
    }
    return {
        **state,
        "setup": state["setup"] | new["setup"],
        **{key: new[key] for key in ("model", "metric")},
        "quality": new["quality"] | {key: state["quality"][key] for key in OF_BASELINE},
        "classes": set(),  # they are checked again, because models may have different limits
        "labels": labels,
        "exchanged_after": state["checkpoint"],
        "challengers": {
            "champion": name,
            "promotions": [*_found(state).get("promotions", ()), event],
            "models": models,
        },
    }


def _exchange(path: Path, choose: Callable[[Mapping[str, Any]], str], action: str) -> str:
    if not path.is_dir():
        raise FileNotFoundError(f"Expected a state directory, found none - at {path}")
    with StateDirectory(path) as directory:
        state = directory.read_newest()
        if state is None:
            raise FileNotFoundError(f"Expected a checkpoint, found none - in {path}")
        if directory.prepared() is not None and state["setup"].get("source.topics"):
            raise PromotionError(
                "the last run ended before the brokers had answered whether its last checkpoint counts; start it once, "
                "and stop it"
            )
        if state["checkpoint"] < directory.newest():
            raise PromotionError(
                "the newest checkpoint is damaged; start the run once, which continues from the one before, and stop it"
            )
        directory.discard()
        before, name = _champion(state), choose(state)
        changed = exchanged(state, name, action)
        directory.write({key: value for key, value in changed.items() if key != "checkpoint"})
    return (
        f'"{name}" is the champion after {state["outcomes"]["learned"]:,} learned events, in checkpoint '
        f'{state["checkpoint"] + 1}; "{before}" is a challenger'
    )


def _exchange_pending(waiting: Mapping[str, Any], model: Any, new: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the pending features with the predictions of a challenger, and those of the champion by key."""
    theirs = {key: found for key, *found in unpack(new["pending"])}
    own_names, names = set(history_names(model)), history_names(new["model"])
    rows, ours = [], []
    for one in map(PendingExample._make, unpack(waiting)):
        own = {key: value for key, value in one.x.items() if key in own_names}
        ours.append((one.key, one.prediction, one.probabilities, own))
        prediction, probabilities, more = theirs.get(one.key, (None, None, dict.fromkeys(names)))
        x = {key: value for key, value in one.x.items() if key not in own_names} | more
        rows.append(one._replace(x=x, prediction=prediction, probabilities=probabilities, threshold=None))
    return pack(rows, width=len(PendingExample._fields)), pack_pending(ours)


def _found(state: Mapping[str, Any]) -> Mapping[str, Any]:
    return state.get("challengers") or {}


def _champion(state: Mapping[str, Any]) -> str:
    return str(_found(state).get("champion", MODEL))


def _challengers(state: Mapping[str, Any]) -> dict[str, Any]:
    return {one["name"]: one for one in _found(state).get("models", ())}
