"""Commands on the configuration of a run: run it, replay it, size it, list its topics, redrive its dead letters."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from streamkernel import __version__
from streamkernel.commands.process import (
    EXPECTED,
    StopSignal,
    WorkerCount,
    configure_logs,
    expected_errors,
    fail,
    is_json,
    write_lines_once,
)
from streamkernel.commands.state import inspect

if TYPE_CHECKING:
    from streamkernel.engine.config.config import Config
    from streamkernel.engine.engine import Engine


def run(
    config: Annotated[
        Path, typer.Argument(help="The TOML file with the configuration of the run.", show_default=False)
    ],
    check: Annotated[bool, typer.Option("--check", help="Validate the configuration, and exit.")] = False,
    connect: Annotated[
        bool,
        typer.Option("--connect", help="With --check: also connect to the brokers, and check that all topics exist."),
    ] = False,
    cluster: Annotated[
        str | None, typer.Option(help='Learn with many workers on Ray: "local", or an address, as ray://host:10001.')
    ] = None,
) -> None:
    """Predict and learn from the stream of CONFIG, and continue where the last run stopped."""
    loaded = load_or_fail(config, is_run=not check)
    title, make = str(config), None
    if cluster is not None:
        from streamkernel.cluster.assemble import check_cluster, cluster_engine_of

        workers = WorkerCount(config, loaded)
        title, make = f"{config} on {cluster}", lambda: cluster_engine_of(loaded, cluster, workers.target)
        with expected_errors(as_json=not check and is_json(loaded.log.format)):
            check_cluster(loaded)
    if check:
        from streamkernel.engine.config.source_and_sink import weaker_guarantees
        from streamkernel.engine.config.start_checks import (
            check_connections,
            check_state,
            mirror_promise,
            sample_of,
            sampled_types,
            separate_models,
            why_not_sampled,
        )

        write_lines_once()
        with expected_errors():
            loaded.check_records()
            busy = check_state(loaded)
            unsampled = why_not_sampled(loaded)
            sample = None if unsampled else sample_of(loaded)
            if connect:
                check_connections(loaded)
        for line in sample.dead_letters if sample else ():
            typer.echo(line)
        typer.echo(f"{config} is valid" + (f", but {busy}" if busy else ""))
        for line in (
            sampled_types(loaded, sample) if sample else [f"note: records are not sampled, because {unsampled}"]
        ):
            typer.echo(line)
        notes = [cluster is None and separate_models(loaded), mirror_promise(loaded)]
        for note in (*filter(None, notes), *weaker_guarantees(loaded.source.choice, loaded.sink.choice)):
            typer.echo(f"note: {note}")
    elif connect:
        fail(ValueError("--connect needs --check"))
    else:
        run_engine(loaded, title, make)


def replay(
    config: Annotated[Path, typer.Argument(help="The TOML file of a run, or of another model.", show_default=False)],
    directory: Annotated[
        Path, typer.Argument(help="The folder for the new state and all results.", show_default=False)
    ],
    start: Annotated[
        str | None, typer.Option(help="The start in topics: an offset, or a time with a time zone.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="The end; by default the present end of the topics.")] = None,
) -> None:
    """Read a stream, or a range of its topics, again into another state directory, and change nothing else."""
    from streamkernel.engine.config.config import replay_config

    loaded = load_or_fail(config, lambda loaded: replay_config(loaded, directory, start, until), is_run=True)
    directory.mkdir(parents=True, exist_ok=True)
    run_engine(loaded, f"{config} again, in {directory}")
    inspect(directory)


def topics(
    config: Annotated[Path, typer.Argument(help="The TOML file of a run.", show_default=False)],
    create: Annotated[bool, typer.Option("--create", help="Create the topics that are missing.")] = False,
) -> None:
    """List the topics that CONFIG needs, and how to create the missing ones; exit code 1 if some are."""
    from streamkernel.engine.config.streams import report_topics

    loaded = load_or_fail(config, is_run=False)
    with expected_errors():
        lines, is_complete = report_topics(loaded, create=create)
    typer.echo("\n".join(lines))
    if not is_complete:
        raise typer.Exit(1)


def size(
    config: Annotated[Path, typer.Argument(help="The TOML file of a run.", show_default=False)],
    events_per_second: Annotated[
        float | None,
        typer.Option(help="The rate to plan for; by default the recommended rate of one process.", min=0.001),
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="The time of each of the two measurements; a model that grows needs longer.", min=1.0)
    ] = 20.0,
) -> None:
    """Measure on this machine the events per second of one process, its memory, its checkpoints and its lag."""
    from streamkernel.engine.sizing import measure
    from streamkernel.engine.telemetry.terminal import compile_for

    loaded = load_or_fail(config, is_run=False)
    configure_logs("warning", "auto")
    console, stop = Console(stderr=True), StopSignal()
    for model in loaded.build_models():
        compile_for(model, console)
    with expected_errors(), tempfile.TemporaryDirectory() as folder, console.status("") as status:
        sizing = measure(loaded, Path(folder), events_per_second, seconds, status.update, stop.is_requested)
    table = Table(show_header=False)
    for row in sizing.rows():
        table.add_row(*row)
    Console().print(table)


def redrive(
    config: Annotated[
        Path, typer.Argument(help="The TOML file of the run that wrote the dead letters.", show_default=False)
    ],
    kind: Annotated[list[str] | None, typer.Option(help="Only letters of this kind, one option for each.")] = None,
    reason: Annotated[str, typer.Option(help="Only letters whose reason contains this text.", show_default=False)] = "",
    limit: Annotated[int | None, typer.Option(help="Maximum number of letters.", min=1)] = None,
    rate: Annotated[float | None, typer.Option(help="Maximum number of letters per second.", min=0.001)] = None,
    to_topic: Annotated[str | None, typer.Option(help="A topic for the records instead of their source.")] = None,
    to_file: Annotated[Path | None, typer.Option(help="A file for the records instead of their source.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the letters by kind and reason, and exit.")] = False,
) -> None:
    """Send the records of dead letters back to their source, each once, for the run to read again."""
    from streamkernel.connectors import CommitRefusedError
    from streamkernel.connectors.redrive import OUTPUT
    from streamkernel.engine.redrive import Choice, Redrive, lines_of
    from streamkernel.engine.telemetry.dead_letters import KINDS

    kinds = [name for name in KINDS if name != OUTPUT]
    for name in kind or ():
        if name not in kinds:
            why = ", whose records were learned: only their predictions are missing" if name == OUTPUT else ""
            fail(ValueError(f'--kind: expected one of {", ".join(kinds)}, got "{name}"{why}'))
    if to_topic is not None and to_file is not None:
        fail(ValueError("expected --to-topic or --to-file, got both"))
    loaded = load_or_fail(config, is_run=False)
    try:
        with closing(Redrive(loaded, Choice(tuple(kind or ()), reason, limit), to_topic, to_file)) as work:
            total = work.count()
            typer.echo("\n".join(lines_of(work.chosen, work.left)) or "no dead letters are left")
            if not dry_run and total:
                with Progress(console=Console(stderr=True), transient=True) as bar:
                    task = bar.add_task("sending", total=total)
                    done = work.drive(total, rate, lambda sent: bar.update(task, completed=sent))
                typer.echo(f"{done:,} sent back")
    except CommitRefusedError as error:
        fail(OSError(f"brokers refused the last letters: {error}; start the command again; no record is sent twice"))
    except EXPECTED as error:
        fail(error)


def load_or_fail(path: Path, change: Callable[[Config], Config] = lambda loaded: loaded, *, is_run: bool) -> Config:
    """Return a valid configuration, or exit; with `is_run` its log settings apply to the error as well."""
    from streamkernel.engine.config.config import load_config

    configure_logs()
    form = "auto"
    try:
        loaded = change(load_config(path))
        form = loaded.log.format
        configure_logs(loaded.log.level, form)
        loaded.check()
    except EXPECTED as error:
        fail(error, as_json=is_run and is_json(form))
    return loaded


def run_engine(config: Config, title: str, make: Callable[[], Engine] | None = None) -> None:
    from streamkernel.engine.assemble import engine_of
    from streamkernel.engine.config.monitoring import exported_metrics
    from streamkernel.engine.runner import collect_rarely
    from streamkernel.engine.telemetry.terminal import ProgressLog, compile_for, showing

    log, as_json = structlog.get_logger("streamkernel"), is_json(config.log.format)
    stop = StopSignal()
    log.info("starting", version=__version__, run=title, configuration=config.without_secrets())
    for model in config.build_models():
        compile_for(model, Console(stderr=True))
    try:
        engine = make() if make else engine_of(config)
        if config.http.port is not None:
            from streamkernel.engine.http import serve
            from streamkernel.engine.telemetry.observed import store_address

            certificate = config.http.read_certificate()
            token = config.http.token.get_secret_value() if config.http.token else None
            port = serve(engine, config.http.host, config.http.port, token, certificate)
            address = f"{'http' if certificate is None else 'https'}://{config.http.host}:{port}"
            if config.state.directory is not None:
                store_address(config.state.directory, address)
            log.info(f"live page at {address}/, metrics at {address}/metrics")
        collect_rarely()
        with exported_metrics(engine, config.telemetry), showing(engine, title, as_json=as_json) as view:
            engine.run(stopping=stop.is_requested, watch=ProgressLog(view))
    except EXPECTED as error:
        fail(error, as_json=as_json)
    except Exception:
        if not as_json:
            raise
        log.critical("the run ended with an unexpected error", exc_info=True)
        raise typer.Exit(1) from None
    if reason := engine.reason_all_refused(is_stopped=stop.is_requested()):
        fail(ValueError(reason), as_json=as_json, code=1)
