"""A task done to a saved model on the events of a file, and several saved models as one."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from connectors import FileSource
from streamkernel import merging, model_file, upkeep
from streamkernel.engine.examples import Examples
from streamkernel.errors import InputError
from streamkernel.estimator import KernelModel
from streamkernel.regression import KernelRegressor
from streamkernel.solvers.progress import progress
from streamkernel.upkeep.tasks import Task


def maintain(model: Path, events: Path, label: str, output: Path, task: Task) -> str:
    """Do a task to the model in a file, write it to another one, and return what came of it in words.

    Records of `events` that cannot be used are left out, and counted.

    Raises
    ------
    ModelFileError, FileNotFoundError
        If there is no usable model or no file of events.
    ValueError
        If the task cannot be done to this model.
    InputError
        If there are not enough events that can be used.
    """
    found = _loaded(model)
    read, refused = _events(events, label, found, task.window)
    before = found.n_features
    what = type(task).__name__
    with progress(what, show=True) as tell:
        gap = upkeep.apply(task, found, read, tell)
    found.save(output)
    told = f"{output}: {found.n_features:,} features of {before:,}"
    if gap is not None:
        told += f", primal-dual gap {gap:.2e}"
    return f"{told}; {len(read):,} events" + (f", {refused:,} could not be used" if refused else "")


def merge_files(models: Sequence[Path], output: Path, base: Path | None) -> str:
    """Merge saved models, write the one that they are together, and return in words what it is.

    Raises
    ------
    ModelFileError, FileNotFoundError
        If a file is no usable model, or there is none.
    ValueError
        If there are not two models or more, or they cannot be merged.
    """
    if len(models) < 2:
        raise ValueError(f"Expected two models or more to merge, got {len(models)}")
    found, root = [_loaded(path) for path in models], None if base is None else _loaded(base)
    events = [merging.n_examples(model) for model in found]
    first = found[0].merge(*found[1:], base=root)
    first.save(output)
    of_each = ", ".join(f"{n:,} - in {path}" for n, path in zip(events, models, strict=True))
    labels = getattr(first, "labels", None)
    told = f"{output}: {merging.n_examples(first):,} events ({of_each}), {first.n_features:,} features"
    return told + (f", labels {', '.join(map(repr, labels))}" if labels else "")


def _loaded(path: Path) -> KernelModel:
    """Return the classifier or regressor in a file."""
    found = model_file.load(path)
    if not isinstance(found, KernelModel):
        raise ValueError(f"Expected a classifier or a regressor, got a {type(found).__name__} - in {path}")
    return found


def _events(path: Path, label: str, model: Any, window: int) -> tuple[deque[tuple[dict[str, Any], Any]], int]:
    """Return the last usable events of a file, and how many of all could not be used."""
    source, found, refused = FileSource(path), deque[tuple[dict[str, Any], Any]](maxlen=window), 0
    examples = Examples(label, numeric_label=isinstance(model, KernelRegressor))
    try:
        while (events := source.poll(1.0)) is not None:
            for event in events:
                try:
                    if event.record is None:
                        raise InputError(event.error or "")
                    x, y = examples.split(event.record)
                    model._target(y)
                    model._scores(x)
                except InputError:
                    refused += 1
                    continue
                examples.learnt(x)
                found.append((x, y))
    finally:
        source.close()
    if len(found) < 2:
        raise InputError(f'Expected two events or more with the label "{label}", got {len(found)} - in {path}')
    return found, refused
