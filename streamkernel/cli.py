"""The command line: ``streamkernel --help`` lists the commands."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import structlog
import typer
from rich.console import Console
from rich.table import Table

from connectors import OutputClosedError
from streamkernel import __version__

if TYPE_CHECKING:
    from streamkernel.engine.config.config import Config
    from streamkernel.engine.engine import Engine

app = typer.Typer(
    help="Kernel machines that learn from a stream, in bounded memory.",
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

EXPECTED = (OSError, ValueError, RuntimeError, ImportError, MemoryError)
"""Errors whose message is all a user needs; anything else is a bug, and shows where."""


@app.callback()
def common(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Print the version if it is asked for."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="The TOML file that says what to run.", show_default=False)],
    check: Annotated[bool, typer.Option("--check", help="Say what would be refused at the start, and stop.")] = False,
    connect: Annotated[bool, typer.Option("--connect", help="With --check: also ask brokers for all topics.")] = False,
    cluster: Annotated[
        str | None,
        typer.Option(help='Learn with many workers on Ray: "local", or an address, as ray://host:10001.'),
    ] = None,
) -> None:
    """Predict and learn from a stream as CONFIG says, and go on where the last run stopped."""
    from streamkernel.engine.telemetry import logs

    found = _loaded(config, is_run=not check)
    title, make = str(config), None
    if cluster is not None:
        from streamkernel.cluster.assemble import check_cluster, cluster_engine_of

        workers = Workers(config, found)
        title, make = f"{config} on {cluster}", lambda: cluster_engine_of(found, cluster, workers.wanted)
        try:
            check_cluster(found)
        except EXPECTED as error:
            _fail(error, as_json=not check and logs.is_json(found.log.format))
    if check:
        from streamkernel.engine.config.start_checks import check_connections, check_state

        try:
            found.check_records()
            busy = check_state(found)
            if connect:
                check_connections(found)
        except EXPECTED as error:
            _fail(error)
        typer.echo(f"{config} is valid" + (f", but {busy}" if busy else ""))
    elif connect:
        _fail(ValueError("--connect only goes with --check"))
    else:
        _run(found, title, make)


@app.command()
def replay(
    config: Annotated[Path, typer.Argument(help="The TOML file of a run, or of another model.", show_default=False)],
    directory: Annotated[Path, typer.Argument(help="Where the new state and all results go.", show_default=False)],
    start: Annotated[
        str | None, typer.Option(help="Where to begin in topics: an offset, or a time with its zone.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Where to end; by default where topics end now.")] = None,
) -> None:
    """Run a stream, or a range of its topics, again into another state directory, and touch nothing else."""
    from streamkernel.engine.config.replay import replayed

    found = _loaded(config, lambda found: replayed(found, directory, start, until), is_run=True)
    directory.mkdir(parents=True, exist_ok=True)
    _run(found, f"{config} again, in {directory}")
    inspect(directory)


def _loaded(path: Path, change: Callable[[Config], Config] = lambda found: found, *, is_run: bool) -> Config:
    """Return a configuration that can be run; `is_run` says whether that is next, so that errors go to its log."""
    from streamkernel.engine.config.config import load_config
    from streamkernel.engine.telemetry import logs

    logs.configure()
    form = "auto"
    try:
        found = change(load_config(path))
        form = found.log.format
        logs.configure(found.log.level, form)
        found.check()
    except EXPECTED as error:
        _fail(error, as_json=is_run and logs.is_json(form))
    return found


def _run(found: Config, title: str, make: Callable[[], Engine] | None = None) -> None:
    from streamkernel.engine.assemble import engine_of
    from streamkernel.engine.telemetry import logs
    from streamkernel.engine.telemetry.terminal import ProgressLog, compile_for, showing

    log, as_json = structlog.get_logger("streamkernel"), logs.is_json(found.log.format)
    stop = StopSignal()
    log.info("starting", version=__version__, run=title, configuration=found.without_secrets())
    compile_for(found.build_model(), Console(stderr=True))
    try:
        engine = make() if make else engine_of(found)
        if found.http.port is not None:
            from streamkernel.engine.http import serve

            token = found.http.token.get_secret_value() if found.http.token else None
            port = serve(engine, found.http.host, found.http.port, token)
            address = f"http://{found.http.host}:{port}"
            log.info(f"live page at {address}/, metrics at {address}/metrics")
        with showing(engine, title, as_json=as_json) as view:
            engine.run(stopping=stop.requested, watch=ProgressLog(view))
    except EXPECTED as error:
        _fail(error, as_json=as_json)
    except Exception:
        if not as_json:
            raise
        log.critical("the run has ended with an error that was not expected", exc_info=True)
        raise typer.Exit(1) from None
    if reason := engine.refused_all():
        _fail(ValueError(reason), as_json=as_json, code=1)


@app.command()
def topics(
    config: Annotated[Path, typer.Argument(help="The TOML file of a run.", show_default=False)],
    create: Annotated[bool, typer.Option("--create", help="Create the topics that are missing.")] = False,
) -> None:
    """List the topics that CONFIG needs, and how to create those that are missing; exit code 1 if some are."""
    from streamkernel.engine.config.topics import report_topics

    found = _loaded(config, is_run=False)
    try:
        lines, is_complete = report_topics(found, create=create)
    except EXPECTED as error:
        _fail(error)
    typer.echo("\n".join(lines))
    if not is_complete:
        raise typer.Exit(1)


@app.command()
def inspect(
    state: Annotated[Path, typer.Argument(help="The state directory of a run.", show_default=False)],
) -> None:
    """Print what the newest checkpoint holds: the model, its quality, and where the stream stands."""
    from streamkernel.engine.telemetry.description import checkpoint_rows

    table = Table(show_header=False)
    for row in checkpoint_rows(_newest(state)):
        table.add_row(*row)
    Console().print(table)


@app.command()
def report(
    state: Annotated[Path, typer.Argument(help="The state directory of a run.", show_default=False)],
    output: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
) -> None:
    """Write a page with the plots of a run, one file that needs nothing else."""
    from streamkernel.engine.telemetry.report import report

    text = report(_newest(state), state)
    try:
        output.write_text(text)
    except OSError as error:
        _fail(error)
    typer.echo(f"{output}, {len(text):,} bytes")


def _newest(state: Path) -> dict[str, Any]:
    """Return the newest checkpoint in a directory."""
    from streamkernel.engine.checkpoint.state_directory import read_newest

    try:
        if not state.is_dir():
            raise FileNotFoundError(f"Expected a state directory, found none - at {state}")
        found = read_newest(state)
        if found is None:
            raise FileNotFoundError(f"Expected a checkpoint, found none - in {state}")
    except EXPECTED as error:
        _fail(error)
    return found


@app.command()
def demo(
    directory: Annotated[
        Path, typer.Option(help="Where plot, model and predictions go; an earlier demo's are replaced.")
    ] = Path("streamkernel-demo"),
    events: Annotated[int, typer.Option(help="Events of the drifting stream.", min=1000)] = 50_000,
    port: Annotated[int, typer.Option(help="Port of /metrics on loopback; 0 takes a free one.", min=0)] = 0,
) -> None:
    """Run the main job on data that ships with River, beside River's LogisticRegression."""
    from streamkernel import demo as demonstration

    try:
        demonstration.run(directory, events, port, Console(stderr=True))
    except EXPECTED as error:
        _fail(error)


@app.command("warm-up")
def compile_ahead(
    config: Annotated[
        Path | None, typer.Argument(help="The TOML file of a run; without it, the default models.", show_default=False)
    ] = None,
) -> None:
    """Compile what the default models need, or the model of CONFIG, and store it for later processes."""
    from streamkernel.engine.config.config import load_config
    from streamkernel.jit.cache import folder
    from streamkernel.warm_up import default_models, warm_up

    try:
        models = default_models() if config is None else {str(config): load_config(config).build_model()}
    except EXPECTED as error:
        _fail(error)
    if folder() is None:
        _fail(OSError("there is no folder to store compiled code in; set NUMBA_CACHE_DIR to one that can be written"))
    for name, model in models.items():
        began = time.perf_counter()
        with Console(stderr=True).status(f"compiling for {name}"):
            warm_up(model)
        typer.echo(f"{name}: {time.perf_counter() - began:.1f} s", err=True)
    typer.echo(f"compiled code is stored in {folder()}", err=True)


@app.command()
def dashboards(
    directory: Annotated[Path, typer.Argument(help="A new or empty folder.", show_default=False)],
) -> None:
    """Write dashboards for Grafana, rules for Prometheus and their provisioning to DIRECTORY."""
    try:
        if directory.exists() and any(directory.iterdir()):
            raise FileExistsError(f"expected a new or empty folder, got one with files - at {directory}")
        with as_file(files("streamkernel.dashboards")) as folder:
            for name in ("grafana", "prometheus", "provisioning"):
                shutil.copytree(folder / name, directory / name)
    except EXPECTED as error:
        _fail(error)
    typer.echo(f"{directory / 'grafana'}, {directory / 'prometheus'} and {directory / 'provisioning'}")


ModelFile = Annotated[Path, typer.Argument(help="A file that save() or export wrote.", show_default=False)]
EventsFile = Annotated[Path, typer.Argument(help="Events: CSV, JSON lines or Parquet.", show_default=False)]
Label = Annotated[str, typer.Option(help="The field that is to be predicted.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="The file to write.")]
Window = Annotated[int, typer.Option(help="The last events that are used.", min=2)]


@app.command()
def compact(
    model: ModelFile,
    events: EventsFile,
    label: Label,
    output: Output,
    keep: Annotated[float, typer.Option(help="Features that it may have then, as a part of max_features.")] = 0.25,
    window: Window = 4096,
) -> None:
    """Prune a saved model to the features that matter on the events of a file."""
    from streamkernel import upkeep

    _maintain(model, events, label, output, lambda: upkeep.Compaction(window=window, keep=keep))


@app.command()
def polish(
    model: ModelFile,
    events: EventsFile,
    label: Label,
    output: Output,
    tol: Annotated[float, typer.Option(help="The primal-dual gap to reach.")] = 1e-6,
    l2: Annotated[float, typer.Option(help="The weight of the penalty (l2/2)|a|^2.")] = 1e-4,
    window: Window = 16_384,
) -> None:
    """Solve the coefficients of a saved model on the events of a file, to a certified gap."""
    from streamkernel import upkeep

    _maintain(model, events, label, output, lambda: upkeep.Polish(window=window, tol=tol, l2=l2))


@app.command()
def export(
    state: Annotated[Path, typer.Argument(help="The state directory of a run.", show_default=False)],
    output: Output,
) -> None:
    """Write the model of a run's newest checkpoint, with its preprocessing, to a file for load() and other commands."""
    from streamkernel.engine import maintenance

    try:
        typer.echo(maintenance.export(state, output))
    except EXPECTED as error:
        _fail(error)


@app.command()
def merge(
    models: Annotated[list[Path], typer.Argument(help="Files that save() or export wrote.", show_default=False)],
    output: Output,
    base: Annotated[
        Path | None, typer.Option(help="The model that all of them went on from.", show_default=False)
    ] = None,
) -> None:
    """Make one model of saved models that learnt apart, as if it had learnt the events of all."""
    from streamkernel.engine.maintenance import merge_files

    try:
        typer.echo(merge_files(models, output, base))
    except EXPECTED as error:
        _fail(error)


def _maintain(model: Path, events: Path, label: str, output: Path, task: Callable[[], Any]) -> None:
    from streamkernel.engine.maintenance import maintain

    try:
        typer.echo(maintain(model, events, label, output, task()))
    except EXPECTED as error:
        _fail(error)


class StopSignal:
    """Becomes true at SIGINT, SIGTERM or SIGHUP; a second SIGINT interrupts as usual.

    SIGHUP, which a process gets when its terminal is closed, is left alone where it has a meaning already, as on a
    cluster and under nohup.
    """

    def __init__(self) -> None:
        self._requested = False
        signal.signal(signal.SIGINT, self._request)
        signal.signal(signal.SIGTERM, self._request)
        if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
            signal.signal(signal.SIGHUP, self._request)

    def requested(self) -> bool:
        """Say whether a signal has come."""
        return self._requested

    def _request(self, number: int, frame: FrameType | None) -> None:
        self._requested = True
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Workers:
    """How many workers a run is to have: as many as its file says, which is read again at SIGHUP.

    Parameters
    ----------
    path
        The file.
    config
        What it says now.
    """

    def __init__(self, path: Path, config: Config) -> None:
        self._path, self._count, self._is_due = path, config.cluster.workers, False
        signal.signal(signal.SIGHUP, self._request)

    def wanted(self) -> int | None:
        """Return the number, ``None`` for as many as there is room for."""
        if self._is_due:
            from streamkernel.engine.config.config import load_config

            self._is_due = False
            try:
                self._count = load_config(self._path).cluster.workers
            except EXPECTED as error:
                log = structlog.get_logger("streamkernel")
                log.error(f"{error}; the number of workers stays as it is", workers=self._count or "all")
        return self._count

    def _request(self, number: int, frame: FrameType | None) -> None:
        self._is_due = True


def _fail(error: Exception, *, as_json: bool = False, code: int = 2) -> NoReturn:
    text = str(error) or type(error).__name__
    if as_json:
        structlog.get_logger("streamkernel").error(text)
    else:
        typer.echo(f"streamkernel: {text}", err=True)
    if isinstance(error, OutputClosedError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python fails again when it flushes what is left
        raise typer.Exit(128 + signal.SIGPIPE) from None
    raise typer.Exit(code) from None


def main() -> None:
    """Run the command line."""
    app()
