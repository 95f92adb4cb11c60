"""Pruning and refitting a saved model on the events of a file, and merging saved models."""

from __future__ import annotations

import filecmp
from collections import deque
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from river import compose

from streamkernel import tensor_file, upkeep
from streamkernel.connectors import FileSource
from streamkernel.engine.examples import Examples
from streamkernel.engine.pipelines import last_step
from streamkernel.errors import InputError
from streamkernel.estimators import model_merging
from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.internals import check_example, check_task
from streamkernel.estimators.regressor import KernelRegressor
from streamkernel.persistence import load, save
from streamkernel.solvers.progress import progress
from streamkernel.upkeep.tasks import Task


def maintain(model: Path, events: Path, label: str, output: Path, task: Task) -> str:
    """Apply a task to the model in a file, write the changed model to another file, and return a description of the
    result.

    Records of `events` that cannot be used are skipped and counted. Raise `ModelFileError` or `FileNotFoundError` if
    there is no usable model or no file of events; `ValueError` if the task cannot be applied to this model;
    `InputError` if there are not enough events that can be used.
    """
    whole = load(model)
    kernel_model = _kernel_model(whole, model)
    check_task(kernel_model, task)
    read, refused = _events(events, label, whole, task.window)
    before = kernel_model.n_features
    what = type(task).__name__
    with progress(what, show=True) as tell:
        gap = upkeep.apply(task, kernel_model, read, tell)
    save(whole, output)
    summary = f"{output}: {kernel_model.n_features:,} features of {before:,}"
    if gap is not None:
        summary += f", primal-dual gap {gap:.2e}"
    return f"{summary}; {len(read):,} events" + (f", {refused:,} could not be used" if refused else "")


def merge_files(models: Sequence[Path], output: Path, base: Path | None) -> str:
    """Merge saved models, write the merged model, and return a description of it.

    Raise `ModelFileError` or `FileNotFoundError` if a file is no usable model, or there is none; `ValueError` if there
    are not two models or more, or they cannot be merged.
    """
    if len(models) < 2:
        raise ValueError(f"Expected two models or more to merge, got {len(models)}")
    for one, other in combinations(models, 2):
        if one.is_file() and other.is_file() and filecmp.cmp(one, other, shallow=False):
            raise ValueError(f"Expected models that learned separate events, got one twice - at {one} and {other}")
    parts, root = [_single(path) for path in models], None if base is None else _single(base)
    events = [model_merging.n_examples(model) for model in parts]
    first = parts[0].merge(*parts[1:], base=root)
    first.save(output)
    of_each = ", ".join(f"{n:,} - in {path}" for n, path in zip(events, models, strict=True))
    labels = getattr(first, "labels", None)
    summary = f"{output}: {model_merging.n_examples(first):,} events ({of_each}), {first.n_features:,} features"
    return summary + (f", labels {', '.join(map(repr, labels))}" if labels else "")


def export(model: Path, to: str, output: Path, features: Sequence[str] | None) -> str:
    """Write the model of a run or of a file in another format, and return a description of the result.

    Raise `ModelFileError` or `FileNotFoundError` if there is no model; `ValueError` if it cannot be written in this
    format.
    """
    if not model.exists():
        raise FileNotFoundError(f"Expected a state directory or the file of a model, found none - at {model}")
    loaded = load(model)
    if to == "safetensors":
        if features:
            raise ValueError("Expected --feature with --to numpy or --to onnx, got it with safetensors")
        save(loaded, output)
    elif to == "numpy":
        from streamkernel.interop import to_numpy

        to_numpy(loaded, output, features)
    else:
        from streamkernel.interop import to_onnx

        tensor_file.put(output, to_onnx(loaded, features).SerializeToString())
    steps = loaded.steps.values() if isinstance(loaded, compose.Pipeline) else [loaded]
    return f"{output}: {' | '.join(type(step).__name__ for step in steps)}"


def _single(path: Path) -> KernelModel:
    """Return the classifier or regressor in a file, which has no preprocessing."""
    loaded = load(path)
    if isinstance(loaded, compose.Pipeline):
        raise ValueError(
            "Expected models without preprocessing, which differs between models that learned separately, "
            f"got a pipeline - in {path}"
        )
    return _kernel_model(loaded, path)


def _kernel_model(pipeline: Any, path: Path) -> KernelModel:
    """Return a classifier or regressor, or the one at the end of a pipeline."""
    last = last_step(pipeline)
    if not isinstance(last, KernelModel):
        raise ValueError(f"Expected a classifier or a regressor, got a {type(last).__name__} - in {path}")
    return last


def _events(path: Path, label: str, model: Any, window: int) -> tuple[deque[tuple[dict[str, Any], Any]], int]:
    """Return the last usable events of a file, and the number of unusable ones."""
    source, usable, refused = FileSource(path), deque[tuple[dict[str, Any], Any]](maxlen=window), 0
    *steps, last = model.steps.values() if isinstance(model, compose.Pipeline) else [model]
    examples = Examples(label, numeric_label=isinstance(last, KernelRegressor))
    try:
        while (events := source.poll(1.0)) is not None:
            for event in events:
                try:
                    if event.record is None:
                        raise InputError(event.error or "")
                    raw, y = examples.take(event.record, is_labelled=True)
                    x = raw
                    for step in steps:
                        x = step.transform_one(x)
                    check_example(last, x, y)
                except InputError:
                    refused += 1
                    continue
                usable.append((x, y))
    finally:
        source.close()
    if len(usable) < 2:
        raise InputError(f'Expected two events or more with the label "{label}", got {len(usable)} - in {path}')
    return usable, refused
