"""``streamkernel demo``: two streams that ship with River, shown live, with a plot at the end."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from river import linear_model, metrics, preprocessing

from streamkernel.connectors import DatasetSource, FileSink
from streamkernel.engine import Engine
from streamkernel.engine.checkpoint.state_directory import StateDirectory
from streamkernel.engine.http import serve
from streamkernel.engine.telemetry.terminal import compile_for, showing
from streamkernel.estimators.classifier import KernelClassifier
from streamkernel.plot import learning_curve

if TYPE_CHECKING:
    from rich.console import Console

WINDOW = 5
"""Number of progress reports per point of the rolling accuracy."""


@dataclass
class PlottedRun:
    """The course of a run for the plot: one point per progress report."""

    title: str
    events: list[int] = field(default_factory=list)
    kernel: list[float] = field(default_factory=list)
    linear: list[float] = field(default_factory=list)
    features: list[int] = field(default_factory=list)

    def __call__(self, engine: Engine) -> None:
        """Add a point with the current figures."""
        model, accuracy = engine.kernel_model, list(engine.quality().values())
        if self.events and self.events[-1] == engine.outcomes["learned"]:
            return
        self.events.append(engine.outcomes["learned"])
        self.kernel.append(accuracy[0])
        self.linear.append(accuracy[1])
        self.features.append(model.n_features if model else 0)


def run(directory: Path, events: int, port: int, console: Console) -> None:
    """Run both streams through the engine, and write a plot, a model and predictions to `directory`.

    Without matplotlib there is no plot. Raise an OSError if the port is in use.
    """
    drift: dict[str, Any] = {"seed_model": 7, "seed_sample": 42, "n_classes": 2, "n_features": 4}
    drift |= {"n_centroids": 20, "n_drift_centroids": 20, "change_speed": 0.001}
    streams = [
        ("Bananas: classes that no line separates", DatasetSource("Bananas")),
        ("RandomRBFDrift: classes that move", DatasetSource("synth.RandomRBFDrift", params=drift, limit=events)),
    ]
    compile_for(KernelClassifier(), console)
    directory.mkdir(parents=True, exist_ok=True)
    histories = []
    for i, (title, source) in enumerate(streams, start=1):
        model = KernelClassifier()
        predictions, state = directory / f"predictions-{i}.jsonl", directory / f"state-{i}"
        predictions.unlink(missing_ok=True)
        shutil.rmtree(state, ignore_errors=True)
        engine = Engine(
            model,
            source,
            label="y",
            metric=metrics.Accuracy(),
            baseline=preprocessing.StandardScaler() | linear_model.LogisticRegression(),
            sink=FileSink(predictions),
            state=StateDirectory(state),
        )
        address = f"http://127.0.0.1:{serve(engine, '127.0.0.1', port)}/"
        history = PlottedRun(title)
        with showing(
            engine, f"{title}\nlive page at {address}, metrics at {address}metrics; baseline is LogisticRegression"
        ):
            engine.run(watch=history)
        histories.append(history)
        if engine.kernel_model is not None:
            engine.kernel_model.save(directory / f"model-{i}.safetensors")
    if find_spec("matplotlib"):
        plot(histories, directory / "demo.png")
        console.print(f"\nplot         {directory / 'demo.png'}")
    else:
        console.print("\nplot         none without matplotlib; pip install 'streamkernel[plot]'", markup=False)
    console.print(f"model        {directory / 'model-2.safetensors'}    (streamkernel.load)")
    console.print(f"predictions  {directory / 'predictions-2.jsonl'}")
    console.print(f"checkpoints  {directory / 'state-2'}    (streamkernel inspect)")


def plot(histories: Sequence[PlottedRun], path: Path) -> None:
    """Plot accuracy and number of features against events, one column per stream."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5.5), layout="constrained")
    axes = figure.subplots(2, len(histories), sharex="col", height_ratios=[2.2, 1], squeeze=False)
    for column, history in enumerate(histories):
        top, bottom = axes[0][column], axes[1][column]
        top.set_title(history.title, fontsize=11)
        top.set_prop_cycle(color=["#0b6e99", "#b4532a"])
        accuracies = {"KernelClassifier": history.kernel, "LogisticRegression": history.linear}
        curves = {name: zip(history.events, accuracy, strict=True) for name, accuracy in accuracies.items()}
        learning_curve(curves, recent=WINDOW, ax=top)
        top.set(ylim=(0.4, 1.0), xlabel="")
        bottom.plot(history.events, history.features, color="#0b6e99", drawstyle="steps-post")
        bottom.set_ylim(0, max(history.features) * 1.15)
        bottom.set_xlabel("events")
        bottom.grid(alpha=0.3)
        bottom.spines[["top", "right"]].set_visible(False)
        top.legend(loc="lower right", fontsize=9, frameon=False)
    axes[0][0].set_ylabel("accuracy")
    axes[1][0].set_ylabel("features")
    figure.savefig(path, dpi=150)
