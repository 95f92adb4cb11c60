"""Names in the state directories of version 0.1, with today's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamkernel.estimators.names_of_0_1 import translate_parameters

SETUP = {"labels.key": "delayed_labels.key", "labels.time": "delayed_labels.time"}


def translate_setup(setup: Mapping[str, Any]) -> dict[str, Any]:
    """Return the setup that a checkpoint holds under today's names.

    Examples
    --------
    >>> translate_setup({"labels.key": "id", "model": {"type": "KernelClassifier", "polish": "Polish"}})
    {'delayed_labels.key': 'id', 'model': {'type': 'KernelClassifier', 'refit': 'Refit'}}
    """
    found = {SETUP.get(key, key): value for key, value in setup.items()}
    if isinstance(found.get("model"), dict):
        found["model"] = translate_parameters(found["model"])
    return found
