"""The roles of a configuration's models according to a checkpoint: the champion, and the challengers that continue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from streamkernel.engine.checkpoint.state_directory import StateDirectoryError

MODEL = "model"
"""The name of the model in the table ``[model]``, which is the champion of a new state."""

KEYS = "preprocessing", "model"
"""The keys in which the setups of a champion and its challengers differ."""


class Candidate(NamedTuple):
    """A model of a configuration.

    Parameters
    ----------
    name
        Its name, `MODEL` for that of the table ``[model]``.
    setup
        Its preprocessing and model as plain values.
    build
        Returns a new one.
    """

    name: str
    setup: Mapping[str, Any]
    build: Callable[[], Any]


class Roles(NamedTuple):
    """The roles of candidates.

    Parameters
    ----------
    champion
        The name of the champion.
    setup
        The preprocessing and the model of the champion, nothing without candidates.
    challengers
        The others, each with its part of the checkpoint, or ``None`` if it begins.
    names
        The present names of the models in the checkpoint that continue, by the names there.
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
    configuration no longer has.

    Raises
    ------
    StateDirectoryError
        If the checkpoint has a promoted champion and no candidate has its configuration.
    """
    if saved is None:
        return Roles(MODEL, candidates[0].setup if candidates else {}, [(one, None) for one in candidates[1:]], {})
    own, found = own_setup(saved["setup"]), saved.get("challengers") or {}
    name = found.get("champion", MODEL)
    fitting = [one for one in candidates if own_setup(one.setup) == own]
    champion = next((one for one in fitting if one.name == name), None)
    champion = champion or next((one for one in fitting if one.name == MODEL), None)
    if champion is None:
        if name != MODEL:
            raise StateDirectoryError(
                f'Expected the configuration of the champion of this state, "{name}", in [model] or under its name in '
                "[[challengers]], got neither; restore its table, or roll the state back"
            )
        champion = candidates[0] if candidates else Candidate(MODEL, {}, dict)  # check_setup names the difference
    left = {one["name"]: one for one in found.get("models", ())}
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
