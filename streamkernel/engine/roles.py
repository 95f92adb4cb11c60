"""The roles of models in a checkpoint: champion and challengers, and their exchange (a promotion)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from streamkernel.engine.checkpoint.state_directory import StateDirectory, StateDirectoryError
from streamkernel.engine.checkpoint.state_file import pack, unpack
from streamkernel.engine.delayed_labels import PendingExample
from streamkernel.time_series.history import history_names

MODEL = "model"
"""The name of the model in the table ``[model]``, which is the champion of a new state."""

PENDING = 4
"""Values in a pending prediction: key, prediction, probabilities, and inputs from earlier events."""

KEYS = "preprocessing", "model"
"""The keys in which the setups of a champion and its challengers differ."""

OF_BASELINE = "baseline", "baseline_recent"
"""The parts of a quality that belong to the run's baseline, not to a model."""


class Candidate(NamedTuple):
    """A model of a configuration.

    `name` is its name, `MODEL` for the table ``[model]``. `setup` is its preprocessing and model as plain values.
    `build` returns a new one.
    """

    name: str
    setup: Mapping[str, Any]
    build: Callable[[], Any]


class Roles(NamedTuple):
    """The roles of candidates.

    `setup` is the preprocessing and the model of the champion, nothing without candidates. `challengers` are the
    others, each with its part of the checkpoint, or ``None`` if it begins. `names` are the present names of the models
    in the checkpoint that continue, by the names there.
    """

    champion: str
    setup: Mapping[str, Any]
    challengers: list[tuple[Candidate, Mapping[str, Any] | None]]
    names: dict[str, str]


def own_setup(setup: Mapping[str, Any]) -> dict[str, Any]:
    """Return the preprocessing and the model in a setup."""
    return {key: setup[key] for key in KEYS if key in setup}


def roles_in(saved: Mapping[str, Any] | None, candidates: Sequence[Candidate]) -> Roles:
    """Return the roles of candidates after a checkpoint, or at the beginning.

    A model continues where the checkpoint has one of the same configuration: under its name, else under a name that the
    configuration no longer has. Raise `StateDirectoryError` if the checkpoint has a promoted champion and no candidate
    has its configuration.
    """
    if saved is None:
        return Roles(MODEL, candidates[0].setup if candidates else {}, [(one, None) for one in candidates[1:]], {})
    champion_setup, stored = own_setup(saved["setup"]), saved.get("challengers") or {}
    name = stored.get("champion", MODEL)
    fitting = [one for one in candidates if own_setup(one.setup) == champion_setup]
    champion = next((one for one in fitting if one.name == name), None)
    champion = champion or next((one for one in fitting if one.name == MODEL), None)
    if champion is None:
        if name != MODEL:
            raise StateDirectoryError(
                f'Expected the configuration of the champion of this state, "{name}", in [model] or under its name in '
                "[[challengers]], got neither; restore its table, or roll the state back"
            )
        champion = candidates[0] if candidates else Candidate(MODEL, {}, dict)  # check_setup names the difference
    left = {one["name"]: one for one in stored.get("models", ())}
    others = [one for one in candidates if one is not champion]
    names = {name: champion.name}
    parts: dict[str, Mapping[str, Any]] = {}
    for one in others:
        if one.name in left and own_setup(left[one.name]["setup"]) == own_setup(one.setup):
            parts[one.name] = left.pop(one.name)
    for one in others:
        old = next((part for part in left.values() if own_setup(part["setup"]) == own_setup(one.setup)), None)
        if one.name not in parts and old is not None:
            parts[one.name] = left.pop(old["name"])
    names |= {part["name"]: present for present, part in parts.items()}
    return Roles(champion.name, champion.setup, [(one, parts.get(one.name)) for one in others], names)


class PromotionError(ValueError):
    """A model cannot become the champion."""


def promote(path: Path, name: str) -> str:
    """Make a challenger the champion of a state directory, and return a description of the result.

    Raise `PromotionError` if there is no such challenger, or it cannot be the champion; `StateDirectoryError` if a run
    uses the directory.
    """

    def choose(state: Mapping[str, Any]) -> str:
        challengers = _challengers(state)
        if name == _champion(state):
            raise PromotionError(f'"{name}" is the champion already')
        if name not in challengers:
            names = ", ".join(f'"{one}"' for one in challengers) or "none"
            raise PromotionError(f'Expected the name of a challenger, which here are {names}, got "{name}"')
        challenger = challengers[name]
        if challenger["is_suspended"]:
            raise PromotionError(
                f'"{name}" was suspended after {challenger["errors"]:,} errors, the last one {challenger["reason"]}; '
                "another name in the configuration lets it begin again"
            )
        if not challenger["quality"]["count"]:
            raise PromotionError(f'"{name}" has not been judged on any event yet')
        return name

    return _exchange(path, choose, "promote")


def rollback(path: Path) -> str:
    """Undo the last promotion in a state directory that was not undone, and return a description of the result.

    Raise `PromotionError` if there is none, or the former champion is no longer there; `StateDirectoryError` if a run
    uses the directory.
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
    is judged for the model that made it. What belongs to the run stays: counters, positions, and the baseline.
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
        "pending": pack((), width=PENDING),
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
    """Return the pending features with the predictions of a challenger, and the champion's predictions by key."""
    theirs = {key: prediction for key, *prediction in unpack(new["pending"])}
    own_names, names = set(history_names(model)), history_names(new["model"])
    rows, ours = [], []
    for one in map(PendingExample._make, unpack(waiting)):
        inputs = {key: value for key, value in one.x.items() if key in own_names}
        ours.append((one.key, one.prediction, one.probabilities, inputs))
        prediction, probabilities, more = theirs.get(one.key, (None, None, dict.fromkeys(names)))
        x = {key: value for key, value in one.x.items() if key not in own_names} | more
        rows.append(one._replace(x=x, prediction=prediction, probabilities=probabilities, threshold=None))
    return pack(rows, width=len(PendingExample._fields)), pack(ours, width=PENDING)


def _found(state: Mapping[str, Any]) -> Mapping[str, Any]:
    return state.get("challengers") or {}


def _champion(state: Mapping[str, Any]) -> str:
    return str(_found(state).get("champion", MODEL))


def _challengers(state: Mapping[str, Any]) -> dict[str, Any]:
    return {one["name"]: one for one in _found(state).get("models", ())}
