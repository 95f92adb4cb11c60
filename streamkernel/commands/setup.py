"""Commands before a run: a demonstration, compiled code, dashboards."""

from __future__ import annotations

import shutil
import time
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from streamkernel.commands.process import configure_logs, expected_errors, fail


def demo(
    directory: Annotated[
        Path, typer.Option(help="The folder for plot, model and predictions; files of an earlier demo are replaced.")
    ] = Path("streamkernel-demo"),
    events: Annotated[int, typer.Option(help="Events of the drifting stream.", min=1000)] = 50_000,
    port: Annotated[int, typer.Option(help="Port of /metrics on loopback; 0 chooses a free one.", min=0)] = 0,
) -> None:
    """Run the main job on data that ships with River, beside River's LogisticRegression."""
    from streamkernel import demo as demonstration

    configure_logs("warning")
    with expected_errors():
        demonstration.run(directory, events, port, Console(stderr=True))


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


def dashboards(
    directory: Annotated[Path, typer.Argument(help="A new or empty folder.", show_default=False)],
) -> None:
    """Write dashboards for Grafana, rules for Prometheus and their provisioning to DIRECTORY."""
    with expected_errors():
        if directory.exists() and any(directory.iterdir()):
            raise FileExistsError(f"expected a new or empty folder, got one with files - at {directory}")
        with as_file(files("streamkernel.dashboards")) as folder:
            for name in ("grafana", "prometheus", "provisioning"):
                shutil.copytree(folder / name, directory / name)
    typer.echo(f"{directory / 'grafana'}, {directory / 'prometheus'} and {directory / 'provisioning'}")
