"""The newest checkpoint of a state directory, loaded while another process writes it or another program copies it."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import structlog
from river import base

from streamkernel.engine.checkpoint import state_file
from streamkernel.engine.checkpoint.state_directory import checkpoints, number_of
from streamkernel.engine.coverage import coverage_of
from streamkernel.engine.examples import Examples
from streamkernel.engine.serving_copy import PublishedModel
from streamkernel.errors import ModelFileError
from streamkernel.estimators.prediction_copy import prediction_copy
from streamkernel.field_types.fields import Fields

MOST_NAMES = 4096
"""Inputs of the record that is predicted before a model answers."""

log = structlog.get_logger("streamkernel")


def load(path: Path) -> PublishedModel:
    """Return the model of a checkpoint, ready to answer; its version is the number of the checkpoint.

    The file is copied first: one that another program truncates while it is read would end the process. Raise
    `ModelFileError` if the file is incomplete or damaged, or is not a checkpoint of ``streamkernel run``; `OSError` if
    it cannot be read; a symbolic link is not followed.
    """
    with tempfile.NamedTemporaryFile(suffix=path.suffix) as copy:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            shutil.copyfileobj(file, copy, 1 << 20)
        copy.flush()
        try:
            saved = state_file.read(Path(copy.name), "checkpoint")
        except ModelFileError as error:
            raise ModelFileError(str(error).replace(copy.name, str(path))) from error
    published = model_of(saved, number_of(path))
    with suppress(Exception):  # compile; a model that cannot answer this may answer others
        published.answer(dict.fromkeys(sorted(published.examples.numbers)[:MOST_NAMES] or ["a"], 0.5))
    return published


def model_of(saved: Mapping[str, Any], version: int) -> PublishedModel:
    """Return the model in the state of a checkpoint.

    Raise `ModelFileError` if the state has no fields of a run, such as the label.
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


class ServedModel(NamedTuple):
    """A model and the file that it is from.

    `model` is the model; its version is the number of the checkpoint. `written` is when the file was last changed, in
    seconds since 1970.
    """

    model: PublishedModel
    written: float

    @property
    def age(self) -> float:
        """Seconds since the checkpoint was written."""
        return max(0.0, time.time() - self.written)


class CheckpointFollower:
    """Loads each new checkpoint of a state directory beside the current one, and then replaces that by one assignment.

    The directory is only read, so it may be mounted read-only or be a copy. Whatever is wrong with it, the last good
    model stays. `path` is the state directory; it may appear later. `newest` is the last model that was loaded; any
    thread may read it. `problem` says why the newest checkpoint has another model, or an empty string.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name, self._path = name, path
        self.newest: ServedModel | None = None
        self.problem = ""
        self._loaded: tuple[int, int, int, int] | None = None

    def load_newest(self) -> bool:
        """Load the newest checkpoint if there is a new one, and return whether there was."""
        problem, is_new = "", False
        try:
            files = list(reversed(checkpoints(self._path)))
            if not files:
                problem = "no checkpoint" if self._path.is_dir() else "no state directory"
            for file in files:
                status = file.lstat()
                stamp = (number_of(file), status.st_ino, status.st_size, status.st_mtime_ns)
                if stamp == self._loaded or not self._is_newer(stamp):
                    break
                try:
                    model = load(file)
                except Exception as error:  # whatever a damaged file leads to
                    problem = problem or self._problem_text(error)
                    continue
                self.newest, self._loaded, is_new = ServedModel(model, status.st_mtime), stamp, True
                break
        except (OSError, ValueError) as error:  # as from a file system that is gone
            problem = self._problem_text(error)
        self._report_problem(problem, is_new)
        return is_new

    def _is_newer(self, stamp: tuple[int, int, int, int]) -> bool:
        """Return whether a checkpoint is newer than the loaded one: by its number, or of a run that began again."""
        return self._loaded is None or stamp[0] >= self._loaded[0] or stamp[3] > self._loaded[3]

    def _problem_text(self, error: Exception) -> str:
        return str(error).replace(f"{self._path}/", "")

    def _report_problem(self, problem: str, is_new: bool) -> None:
        """Log a new model, and a problem when it begins and ends."""
        if problem and problem != self.problem:
            keeps = "no model yet" if self.newest is None else f"keeping checkpoint {self.newest.model.version}"
            log.error(f"the newest checkpoint cannot be used; {keeps}", model=self.name, reason=problem)
        elif self.problem and not problem:
            log.info("checkpoints can be used again", model=self.name)
        self.problem = problem
        if is_new and self.newest is not None:
            version, events = self.newest.model.version, self.newest.model.events
            log.debug("model replaced", model=self.name, checkpoint=version, learned=events)
