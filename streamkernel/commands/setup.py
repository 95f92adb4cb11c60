"""Commands before a run: a demonstration on two streams that ship with River, compiled code, dashboards."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from streamkernel.commands.process import configure_logs, expected_errors, fail

if TYPE_CHECKING:
    from streamkernel.engine.engine import Engine

WINDOW = 5
"""Number of progress reports per point of the rolling accuracy."""


def demo(
    directory: Annotated[
        Path, typer.Option(help="The folder for plot, model and predictions; files of an earlier demo are replaced.")
    ] = Path("streamkernel-demo"),
    events: Annotated[int, typer.Option(help="Events of the drifting stream.", min=1000)] = 50_000,
    port: Annotated[int, typer.Option(help="Port of /metrics on loopback; 0 chooses a free one.", min=0)] = 0,
) -> None:
    """Run the main job on data that ships with River, beside River's LogisticRegression."""
    configure_logs("warning")
    with expected_errors():
        _run_demo(directory, events, port, Console(stderr=True))


def warm_up(
    config: Annotated[
        Path | None, typer.Argument(help="The TOML file of a run; without it, the default models.", show_default=False)
    ] = None,
) -> None:
    """Compile what the default models need, or the model of CONFIG, and store it for later processes."""
    from streamkernel.engine.config.config import load_config
    from streamkernel.jit.cache import folder
    from streamkernel.warm_up import default_models, warm_up_detectors
    from streamkernel.warm_up import warm_up as compile_for

    with expected_errors():
        models = default_models() if config is None else {str(config): load_config(config).build_model()}
    if folder() is None:
        fail(OSError("no folder for compiled code is writable; set NUMBA_CACHE_DIR to a writable folder"))
    for name, model in models.items():
        began = time.perf_counter()
        with Console(stderr=True).status(f"compiling for {name}"):
            compile_for(model, explains=True)
        typer.echo(f"{name}: {time.perf_counter() - began:.1f} s", err=True)
    with Console(stderr=True).status("compiling for drift detection"):
        warm_up_detectors()
    typer.echo(f"compiled code is stored in {folder()}", err=True)


def dashboards(directory: Annotated[Path, typer.Argument(help="A new or empty folder.", show_default=False)]) -> None:
    """Write dashboards for Grafana, rules for Prometheus and their provisioning to DIRECTORY."""
    with expected_errors():
        if directory.exists() and any(directory.iterdir()):
            raise FileExistsError(f"expected a new or empty folder, got one with files - at {directory}")
        with as_file(files("streamkernel.dashboards")) as folder:
            for name in ("grafana", "prometheus", "provisioning"):
                shutil.copytree(folder / name, directory / name)
    typer.echo(f"{directory / 'grafana'}, {directory / 'prometheus'} and {directory / 'provisioning'}")


@dataclass
class _PlottedRun:
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


def _run_demo(directory: Path, events: int, port: int, console: Console) -> None:
    """Run both streams through the engine, and write a plot, a model and predictions to `directory`.

    Without matplotlib there is no plot. Raise an OSError if the port is in use.
    """
    from river import linear_model, metrics, preprocessing

    from streamkernel import KernelClassifier
    from streamkernel.connectors import DatasetSource, FileSink
    from streamkernel.engine import Engine
    from streamkernel.engine.checkpoint.state_directory import StateDirectory
    from streamkernel.engine.http import serve
    from streamkernel.engine.telemetry.terminal import compile_for, showing

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
        history = _PlottedRun(title)
        with showing(
            engine, f"{title}\nlive page at {address}, metrics at {address}metrics; baseline is LogisticRegression"
        ):
            engine.run(watch=history)
        histories.append(history)
        if engine.kernel_model is not None:
            engine.kernel_model.save(directory / f"model-{i}.safetensors")
    if find_spec("matplotlib"):
        _plot(histories, directory / "demo.png")
        console.print(f"\nplot         {directory / 'demo.png'}")
    else:
        console.print("\nplot         none without matplotlib; pip install 'streamkernel[plot]'", markup=False)
    console.print(f"model        {directory / 'model-2.safetensors'}    (streamkernel.load)")
    console.print(f"predictions  {directory / 'predictions-2.jsonl'}")
    console.print(f"checkpoints  {directory / 'state-2'}    (streamkernel inspect)")


def _plot(histories: Sequence[_PlottedRun], path: Path) -> None:
    """Plot accuracy and number of features against events, one column per stream."""
    from matplotlib.figure import Figure

    from streamkernel.plot import learning_curve

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
