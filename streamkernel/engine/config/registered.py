"""Sources and sinks in the registry of connectors, whose tables have the parameters of their classes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from streamkernel.connectors.registry import class_at, installed
from streamkernel.engine.config import build
from streamkernel.engine.config.coercion import parameters_of, takes_paths
from streamkernel.engine.config.messages import ConfigError, did_you_mean, of_error


class RegisteredClass(NamedTuple):
    """A registered class that a table selects.

    Parameters
    ----------
    name
        Its key or name.
    place
        Its module and class.
    parameters
        Its parameters, as in the file.
    where
        The path of the table with these parameters.
    is_table
        Whether the table has the name, as ``[source.nats]``; otherwise a key of the table selects the class.
    """

    name: str
    place: str
    parameters: dict[str, Any]
    where: str
    is_table: bool

    @property
    def path(self) -> str:
        """The path of the key or the table that selects the class."""
        return self.where if self.is_table else f"{self.where}.{self.name}"

    @property
    def table(self) -> dict[str, Any]:
        """The content of the table ``[source]`` or ``[sink.predictions]``."""
        return {self.name: self.parameters} if self.is_table else self.parameters


def choose(
    table: Any, keys: Mapping[str, str], group: str, where: str, fields: Collection[str] = ()
) -> RegisteredClass | None:
    """Return the registered class that a table selects, or ``None``.

    Parameters
    ----------
    table
        The table ``[source]`` or ``[sink.predictions]``.
    keys
        The places of classes by the keys that select them.
    group
        The group of entry points for tables with a name.
    where
        The path of the table.
    fields
        Keys of the table that select nothing here.

    Raises
    ------
    ConfigError
        If no class of that name is installed, or there are other keys beside the name.
    """
    if not isinstance(table, dict):
        return None
    for key in keys:
        if key in table and key not in fields:
            return RegisteredClass(key, keys[key], dict(table), where, is_table=False)
    names = [name for name, value in table.items() if isinstance(value, dict) and name not in fields]
    known = installed(group) if names else {}
    name = next((name for name in names if name in known), names[0] if len(table) == len(names) == 1 else None)
    if name is None:
        return None
    if name not in known:
        what, others = group.rpartition(".")[2].removesuffix("s"), ", ".join(f'"{one}"' for one in sorted(known))
        raise ConfigError(
            f"{where}.{name}: expected the name of an installed {what}, one of {others}, got "
            f'"{name}"{did_you_mean(name, known)}'
        )
    if len(table) > 1:
        others = ", ".join(key for key in table if key != name)
        raise ConfigError(f"{where}: expected no keys beside the table {name}, got {others}")
    return RegisteredClass(name, known[name], dict(table[name]), f"{where}.{name}", is_table=True)


def build_registered(choice: RegisteredClass, folder: Path) -> Any:
    """Return the object that a table describes.

    Parameters
    ----------
    choice
        The class and its parameters.
    folder
        The folder that relative paths are relative to.

    Raises
    ------
    ConfigError
        If a parameter is wrong or unknown, or the object cannot be opened.
    """
    try:
        return build.build(*_spec(choice, folder), choice.where)
    except OSError as error:
        raise ConfigError(of_error(choice.path, error)) from error


def check_registered(choice: RegisteredClass, folder: Path) -> None:
    """Raise the ConfigError of :func:`build_registered` for wrong and unknown parameters, without opening anything."""
    build.check(*_spec(choice, folder), choice.where)


def identity_of(choice: RegisteredClass) -> dict[str, Any]:
    """Return the table without the parameters that may change while a state directory is used."""
    names = getattr(_class_of(choice), "identity", choice.parameters)
    return choice._replace(parameters={key: choice.parameters[key] for key in names if key in choice.parameters}).table


def weaker_guarantees(source: RegisteredClass | None, sink: RegisteredClass | None) -> Iterator[str]:
    """Yield a note for the source and the sink of predictions, each if it does not give exactly-once results."""
    again = "events", "are learned again"
    for choice in (source, sink):
        if choice is not None and getattr(_class_of(choice), "guarantee", "exactly_once") == "at_least_once":
            yield f"{choice.path} is at least once: after a crash, {again[0]} since the last checkpoint {again[1]}"
        again = "predictions", "are written again"


def _class_of(choice: RegisteredClass) -> type:
    try:
        return class_at(choice.place)
    except (ImportError, AttributeError) as error:
        raise ConfigError(of_error(choice.path, error)) from error


def _spec(choice: RegisteredClass, folder: Path) -> tuple[dict[str, Any], build.Catalogue]:
    kind = _class_of(choice)
    paths = {name for name, parameter in parameters_of(kind).items() if takes_paths(parameter.annotation)}
    spec = {name: str(folder / value) if name in paths else value for name, value in choice.parameters.items()}
    return {**spec, "type": kind.__name__}, build.Catalogue(choice.name, {kind.__name__: kind})
