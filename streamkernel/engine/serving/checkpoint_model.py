"""The model of a checkpoint, as requests for predictions need it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from river import base

from streamkernel.engine.checkpoint import state_file
from streamkernel.engine.checkpoint.state_directory import number_of
from streamkernel.engine.coverage import coverage_of
from streamkernel.engine.examples import Examples
from streamkernel.engine.serving_copy import PublishedModel
from streamkernel.errors import ModelFileError
from streamkernel.estimators.prediction_copy import prediction_copy
from streamkernel.field_types.fields import Fields

MOST_NAMES = 4096
"""Inputs of the record that is predicted before a model answers."""


def load(path: Path) -> PublishedModel:
    """Return the model of a checkpoint, ready to answer; its version is the number of the checkpoint.

    The file is copied first: one that another program truncates while it is read would end the process.

    Raises
    ------
    ModelFileError
        If the file is incomplete or damaged, or is not a checkpoint of ``streamkernel run``.
    OSError
        If it cannot be read; a symbolic link is not followed.
    """
    with tempfile.NamedTemporaryFile(suffix=path.suffix) as copy:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            shutil.copyfileobj(file, copy, 1 << 20)
        copy.flush()
        try:
            saved = state_file.read(Path(copy.name), "checkpoint")
        except ModelFileError as error:
            raise ModelFileError(str(error).replace(copy.name, str(path))) from error
    found = model_of(saved, number_of(path))
    with suppress(Exception):  # compile; a model that cannot answer this may answer others
        found.answer(dict.fromkeys(sorted(found.examples.numbers)[:MOST_NAMES] or ["a"], 0.5))
    return found


def model_of(saved: Mapping[str, Any], version: int) -> PublishedModel:
    """Return the model in the state of a checkpoint.

    Raises
    ------
    ModelFileError
        If the state has no fields of a run, such as the label.
    """
    try:
        setup, model, coverage = saved["setup"], saved["model"], saved.get("coverage")
        label = setup["label"] if isinstance(setup["label"], str) else tuple(setup["label"])
        types = saved["fields"]
        keys = (setup["delayed_labels.key"], setup["delayed_labels.time"])
        examples = Examples(
            label,
            setup["ignore"] or (),
            numeric_label=isinstance(model, (base.Regressor, base.MultiTargetRegressor)),
            weight=setup.get("weight"),
            fields=None if types["fields"] is None else Fields.of_state(types["fields"]),
            keys=[name for name in keys if name is not None],
        )
        examples.restore(types)
        learned = int(saved["outcomes"]["learned"])
    except KeyError as error:
        raise ModelFileError(f"Expected a checkpoint of streamkernel run, got one without {error}") from error
    restored = None if coverage is None else coverage_of(coverage["target"], label).restored(coverage)
    threshold = None if restored is None else restored.threshold()
    return PublishedModel(version, learned, prediction_copy(model), examples, threshold=threshold)
