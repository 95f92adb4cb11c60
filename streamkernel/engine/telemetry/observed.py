"""A run seen from another process, through its server or in its newest checkpoint, and a report as one file."""

from __future__ import annotations

import base64
import os
import re
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPSHandler, OpenerDirector, ProxyHandler, Request, build_opener

import orjson
import structlog

from streamkernel.connectors.http.webhook import NoRedirects
from streamkernel.connectors.json_text import to_json
from streamkernel.engine.checkpoint.state_directory import PRIVATE, existing_checkpoints, plain_file, read_newest
from streamkernel.engine.http.applications import FILES, is_loopback, page_text
from streamkernel.engine.pipelines import importances
from streamkernel.engine.telemetry.dead_letters import DeadLetterGroups
from streamkernel.engine.telemetry.figures import Reading, figures_of_page
from streamkernel.engine.telemetry.history import marks_of
from streamkernel.engine.telemetry.quality import stored_scores
from streamkernel.engine.telemetry.status import checkpoint_rows, checkpoint_table, finite, is_mean
from streamkernel.tensor_file import put

ANSWER_SECONDS = 5.0

log = structlog.get_logger("streamkernel")

_TAGS = re.compile(r'<link rel="stylesheet" href="(?P<css>[^"]+)">|<script src="(?P<js>[^"]+)"></script>')

_IMPORTED = re.compile(r'from "\./([^"]+)"')

ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
"""Addresses to listen on that are none to connect to."""


class Observation(NamedTuple):
    """The data of a page, and where it is from."""

    origin: str
    status: dict[str, Any]


class ObservedRun:
    """A run at an address, or with a state directory.

    `target` is the address of the live page, ``http://...`` or ``https://...``, or the path of a state directory.
    `token` is the token of the run's server, if it has one. `certificate` is the certificate to trust, as a PEM file;
    ``None`` for the system's certificates. `ValueError` is raised if the address contains a login, or the certificate
    cannot be read.
    """

    def __init__(self, target: str, token: str | None = None, certificate: Path | None = None) -> None:
        self._target, self._token = target, token
        self._is_address = urlsplit(target).scheme in ("http", "https")
        if self._is_address and (not urlsplit(target).hostname or "@" in urlsplit(target).netloc):
            raise ValueError("Expected an address, as http://host:port, without a login, got another text")
        try:
            self._context = ssl.create_default_context(cafile=certificate)
        except (OSError, ssl.SSLError) as error:
            raise ValueError(
                f"Expected a certificate as a PEM file, got an error: {error} - at {certificate}"
            ) from None

    def read(self) -> Observation:
        """Return the present figures.

        Raise `ConnectionError` if an address is unavailable; `ValueError` if the answer is a refusal, or not from a
        run; `FileNotFoundError` if there is no such state directory, or no checkpoint in it and no process answers.
        """
        if self._is_address:
            return Observation(self._target, self._ask_run(self._target))
        directory, problem = Path(self._target), "no process has stored its address there"
        if not directory.is_dir():
            raise FileNotFoundError(f"Expected an address, or a state directory, found none - at {directory}")
        if (address := address_in(directory)) is not None:
            try:
                status = self._ask_run(address)
            except ConnectionError as error:
                problem = str(error)
            else:
                identity = plain_file(directory / "identity")
                if identity.exists() and status.get("member") == identity.read_text():
                    return Observation(f"{directory}, a process at {address}", status)
                problem = f"the process at {address} has another state directory"
        existing_checkpoints(directory)
        state = read_newest(directory)
        assert state is not None
        newest = max(path.stat().st_mtime for path in existing_checkpoints(directory))
        written = datetime.fromtimestamp(newest, UTC).isoformat(" ", "seconds")
        origin = f"{directory}, checkpoint {state['checkpoint']:,} of {written}; {problem}"
        return Observation(origin, run_of(state, directory))

    def _ask_run(self, address: str) -> dict[str, Any]:
        request = Request(f"{address.rstrip('/')}/status")
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with self._opener(address).open(request, timeout=ANSWER_SECONDS) as answer:
                status = orjson.loads(answer.read())
        except HTTPError as error:
            expected, got = "the figures of a run", f"status {error.code}"
            if error.code == HTTPStatus.UNAUTHORIZED:
                expected = "the token of the run in STREAMKERNEL_HTTP_TOKEN"
                got = "none" if self._token is None else "another"
            raise ValueError(f"Expected {expected}, got {got} - at {address}") from None
        except (URLError, OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise ConnectionError(f"{address} is unavailable: {reason}") from None
        except orjson.JSONDecodeError:
            status = None
        if not isinstance(status, dict) or not {"now", "clock", "history"} <= status.keys():
            raise ValueError(f"Expected the figures of a run, got another answer - at {address}")
        return status

    def _opener(self, address: str) -> OpenerDirector:
        """Return an opener for an address; it follows no redirect, which would get the token, too."""
        handlers = [HTTPSHandler(context=self._context), NoRedirects()]
        return build_opener(*handlers, *([ProxyHandler({})] if is_loopback(urlsplit(address).hostname or "") else []))


def store_address(directory: Path, address: str) -> None:
    """Store the address of a run's server in its state directory, where `address_in` finds it.

    A full disk does not stop the run: a warning says that the address is missing.
    """
    try:
        put(plain_file(directory / "address"), address.encode(), PRIVATE)
    except OSError as error:
        log.warning("streamkernel top cannot find this run: its address could not be stored", error=str(error))


def address_in(directory: Path) -> str | None:
    """Return the address that the last run stored, for this machine; it need not be running any more."""
    path = plain_file(directory / "address")
    if not path.exists():
        return None
    address = path.read_text()
    host = urlsplit(address).hostname or ""
    return address.replace(f"//{host}", f"//{ANY_ADDRESS[host]}") if host in ANY_ADDRESS else address


def report(state: Mapping[str, Any], directory: Path) -> str:
    """Return a self-contained HTML page."""
    title = f"{directory.resolve().name}, checkpoint {state['checkpoint']}"
    run = to_json(run_of(state, directory), orjson.OPT_SERIALIZE_NUMPY).decode()
    modules = [name for name in FILES.values() if name.endswith(".js") and "/" not in name]
    imports = orjson.dumps({"imports": {name: _module(name) for name in modules}}).decode()
    parts = {
        '<script id="run" type="application/json"></script>': '<script id="run" type="application/json" '
        f'data-title="{_escape(title)}">{run.replace("<", chr(92) + "u003c")}</script>',
        "<title>streamkernel</title>": f"<title>{_escape(title)}</title>",
        '<script type="module" src="page.js"></script>': f'<script type="importmap">{imports}</script>\n'
        '<script type="module">import "page.js";</script>',
    }
    html = _TAGS.sub(_inline, page_text("index.html"))
    for old, new in parts.items():
        html = html.replace(old, new)
    return html


def _inline(tag: re.Match[str]) -> str:
    style, script = tag["css"], tag["js"]
    return f"<style>\n{page_text(style)}</style>" if style else f"<script>\n{page_text(script)}</script>"


def _module(name: str) -> str:
    """Return a module as an address; other modules are imported by the names of an import map."""
    text = _IMPORTED.sub(r'from "\1"', page_text(name))
    return "data:text/javascript;base64," + base64.b64encode(text.encode()).decode()


def run_of(state: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """Return the data of the live page that a checkpoint has."""
    history = state.get("history") or {"events": 0, "columns": {}}
    scores, monitoring = stored_scores(state), state.get("monitoring") or {}
    alarms = [one for name in ("drift", "novelty") for one in (monitoring.get(name) or {}).get("alarms", ())]
    promotions = list((state.get("challengers") or {}).get("promotions", ()))
    return {
        "clock": 0.0,
        "events": history["events"],
        "metric": {"name": scores.name, "bigger_is_better": scores.bigger_is_better},
        "quality": {"since start": finite(scores.ours)},
        "now": figures_of_page(Reading(outcomes=state["outcomes"], scores=scores)),
        "history": history["columns"],
        "marks": marks_of([], alarms, promotions, history["columns"]),
        "is_mean": is_mean(scores.metric),
        "targets": {name: {"since start": finite(of)} for name, of in scores.by_target.items()},
        "models": checkpoint_table(state),
        "dead_letter_groups": _dead_letters(directory / "dead_letters.jsonl"),
        "refused": {kind: count for kind, count in (state.get("refused") or {}).items() if count},
        "incidents": {},
        "monitoring": {"drift": {"alarms": alarms}} if monitoring.get("drift") or monitoring.get("novelty") else {},
        "about": dict(checkpoint_rows(state)),
        "importances": importances(state["model"]),
    }


def _dead_letters(path: Path) -> list[dict[str, Any]]:
    """Return the dead letters in the last part of a file by reason, if it exists."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - (1 << 20)))
            lines = file.read().splitlines()
    except OSError:
        return []
    groups = DeadLetterGroups()
    for line in lines:
        try:
            letter = orjson.loads(line)
            stream = letter["stream"] if "stream" in letter else f"{letter['topic']}:{letter['partition']}"
            groups.add(str(letter["reason"]), str(stream), str(letter["raw"]), 0.0)
        except (orjson.JSONDecodeError, KeyError, TypeError):  # half a line, cut at the beginning of what was read
            continue
    return groups.rows()


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
