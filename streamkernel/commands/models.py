"""Commands on saved models: export, prune, refit, merge."""

from __future__ import annotations

import filecmp
from collections import deque
from contextlib import closing
from enum import StrEnum
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import typer
from river import compose

from streamkernel import tensor_file, upkeep
from streamkernel.commands.process import expected_errors
from streamkernel.connectors import FileSource
from streamkernel.errors import InputError
from streamkernel.estimators import model_merging
from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.internals import check_example, check_task, last_step
from streamkernel.estimators.regressor import KernelRegressor
from streamkernel.persistence import load, save
from streamkernel.solvers.progress import progress
from streamkernel.upkeep.tasks import Task


class Format(StrEnum):
    """The formats of exported models."""

    SAFETENSORS = "safetensors"
    NUMPY = "numpy"
    ONNX = "onnx"


SUFFIXES = {Format.SAFETENSORS: "safetensors", Format.NUMPY: "npz", Format.ONNX: "onnx"}

ModelFile = Annotated[Path, typer.Argument(help="A file that save() or export wrote.", show_default=False)]
EventsFile = Annotated[Path, typer.Argument(help="Events: CSV, JSON lines or Parquet.", show_default=False)]
Label = Annotated[str, typer.Option(help="The field to predict.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="The file to write.")]
PrunedFile = Annotated[
    Path | None, typer.Option("--output", "-o", help="The file to write; by default MODEL with .pruned in its name.")
]
RefittedFile = Annotated[
    Path | None, typer.Option("--output", "-o", help="The file to write; by default MODEL with .refitted in its name.")
]
Window = Annotated[int, typer.Option(help="The number of last events to use.", min=2)]


def prune(
    model: ModelFile,
    events: EventsFile,
    label: Label,
    output: PrunedFile = None,
    keep: Annotated[float, typer.Option(help="The new limit of features, as a fraction of max_features.")] = 0.25,
    window: Window = 4096,
) -> None:
    """Prune a saved model to the features that matter on the events of a file."""
    with expected_errors():
        task = upkeep.Pruning(window=window, keep=keep)
        typer.echo(_maintained(model, events, label, output or _beside(model, "pruned"), task))


def refit(
    model: ModelFile,
    events: EventsFile,
    label: Label,
    output: RefittedFile = None,
    tol: Annotated[float, typer.Option(help="The primal-dual gap to reach.")] = 1e-6,
    l2: Annotated[float, typer.Option(help="The weight of the penalty (l2/2)|a|^2.")] = 1e-4,
    window: Window = 16_384,
) -> None:
    """Solve the coefficients of a saved model on the events of a file, to a certified gap."""
    with expected_errors():
        task = upkeep.Refit(window=window, tol=tol, l2=l2)
        typer.echo(_maintained(model, events, label, output or _beside(model, "refitted"), task))


def export(
    model: Annotated[
        Path, typer.Argument(help="The state directory of a run, or a file that save() wrote.", show_default=False)
    ],
    to: Annotated[Format, typer.Option(help="The format: for load(), or for other programs.")] = Format.SAFETENSORS,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write; by default model with the suffix of the format."),
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            help="For numpy and onnx: an input, one option for each in their order; by default the learned ones."
        ),
    ] = None,
) -> None:
    """Write a model with its preprocessing to a file: the model of a run's newest checkpoint for load() and other
    commands; or frozen, for ONNX, or for NumPy alone with the predictor beside it.
    """
    output = output or Path(f"model.{SUFFIXES[to]}")
    with expected_errors():
        if not model.exists():
            raise FileNotFoundError(f"Expected a state directory or the file of a model, found none - at {model}")
        loaded = load(model)
        if to is Format.SAFETENSORS:
            if feature:
                raise ValueError("Expected --feature with --to numpy or --to onnx, got it with safetensors")
            save(loaded, output)
        elif to is Format.NUMPY:
            from streamkernel.interop import to_numpy

            to_numpy(loaded, output, feature)
        else:
            from streamkernel.interop import to_onnx

            tensor_file.put(output, to_onnx(loaded, feature).SerializeToString())
        steps = loaded.steps.values() if isinstance(loaded, compose.Pipeline) else [loaded]
        typer.echo(f"{output}: {' | '.join(type(step).__name__ for step in steps)}")


def merge(
    models: Annotated[list[Path], typer.Argument(help="Files that save() or export wrote.", show_default=False)],
    output: Output = Path("merged.safetensors"),
    base: Annotated[
        Path | None, typer.Option(help="The model from which all of them continued.", show_default=False)
    ] = None,
) -> None:
    """Merge saved models that learned separately into one model of all their events."""
    with expected_errors():
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
        typer.echo(summary + (f", labels {', '.join(map(repr, labels))}" if labels else ""))


def _beside(model: Path, what: str) -> Path:
    """Return the path of a model's file with a word inserted before the suffix."""
    return model.with_name(f"{model.stem}.{what}{model.suffix}")


def _maintained(model: Path, events: Path, label: str, output: Path, task: Task) -> str:
    """Write the model in a file to another one after a task, and return a description of the result."""
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
    from streamkernel.engine.examples import Examples  # which takes long to import

    usable, refused = deque[tuple[dict[str, Any], Any]](maxlen=window), 0
    *steps, last = model.steps.values() if isinstance(model, compose.Pipeline) else [model]
    examples = Examples(label, numeric_label=isinstance(last, KernelRegressor))
    with closing(FileSource(path)) as source:
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
    if len(usable) < 2:
        raise InputError(f'Expected two events or more with the label "{label}", got {len(usable)} - in {path}')
    return usable, refused
