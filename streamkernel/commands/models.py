"""Commands on saved models: export, prune, refit, merge."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from streamkernel.commands.errors import EXPECTED, fail


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
    from streamkernel import upkeep

    output = output or _beside(model, "pruned")
    _maintain(model, events, label, output, lambda: upkeep.Pruning(window=window, keep=keep))


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
    from streamkernel import upkeep

    output = output or _beside(model, "refitted")
    _maintain(model, events, label, output, lambda: upkeep.Refit(window=window, tol=tol, l2=l2))


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
    from streamkernel.commands import maintenance

    try:
        typer.echo(maintenance.export(model, to, output or Path(f"model.{SUFFIXES[to]}"), feature))
    except EXPECTED as error:
        fail(error)


def merge(
    models: Annotated[list[Path], typer.Argument(help="Files that save() or export wrote.", show_default=False)],
    output: Output = Path("merged.safetensors"),
    base: Annotated[
        Path | None, typer.Option(help="The model from which all of them continued.", show_default=False)
    ] = None,
) -> None:
    """Merge saved models that learned separately into one model of all their events."""
    from streamkernel.commands.maintenance import merge_files

    try:
        typer.echo(merge_files(models, output, base))
    except EXPECTED as error:
        fail(error)


def _beside(model: Path, what: str) -> Path:
    """Return the path of a model's file with a word inserted before the suffix."""
    return model.with_name(f"{model.stem}.{what}{model.suffix}")


def _maintain(model: Path, events: Path, label: str, output: Path, task: Callable[[], Any]) -> None:
    from streamkernel.commands.maintenance import maintain

    try:
        typer.echo(maintain(model, events, label, output, task()))
    except EXPECTED as error:
        fail(error)
