"""Names of parameters and of their classes that files of version 0.1 hold, with today's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PARAMETERS = {"compaction": "pruning", "polish": "refit"}
CLASSES = {"Compaction": "Pruning", "Polish": "Refit"}


def translate_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an estimator, as a file holds them, under today's names.

    Examples
    --------
    >>> translate_parameters({"seed": 1, "polish": {"type": "Polish", "every": 100}})
    {'seed': 1, 'refit': {'type': 'Refit', 'every': 100}}
    """
    return {PARAMETERS.get(name, name): _translate_class(value) for name, value in parameters.items()}


def _translate_class(value: Any) -> Any:
    if isinstance(value, str):
        return CLASSES.get(value, value)
    if isinstance(value, dict) and value.get("type") in CLASSES:
        return value | {"type": CLASSES[value["type"]]}
    return value
