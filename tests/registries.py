"""Schema registries for tests: a stand-in of a few REST calls, and Apicurio's where Java and Maven are."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tarfile
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import urlopen

from brokers import Broker, free_port
from waiting import wait_for

VERSION = "3.0.9"
"""The newest release of Apicurio's registry that runs on Java 17."""


class SmallRegistry:
    """A stand-in for a registry: it registers schemas and returns them by id or version, and checks nothing of them.

    It has the calls of the documented REST interface that reading and writing need, and can be made to fail.

    Attributes
    ----------
    fails : int
        The HTTP status of answers, 0 while it works.
    where : str
        How the paths begin for which it fails.
    login : str
        ``"user:password"`` of whoever may ask; everybody may without one.
    asked : list of str
        The paths that were asked for.
    """

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.fails, self.where, self.login, self.asked = 0, "/", "", list[str]()
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer()

            do_POST = do_GET  # noqa: N815 - http.server's name

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                given = self.headers.get("Authorization", "").removeprefix("Basic ")
                status, answer = registry.answer(
                    self.path, json.loads(body or b"null"), base64.b64decode(given).decode()
                )
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *words: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, path: str, body: Any, login: str) -> tuple[int, Any]:
        self.asked.append(path)
        if self.fails and path.startswith(self.where):
            return self.fails, {"error_code": self.fails, "message": "out of order"}
        if self.login and login != self.login:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match [urllib.parse.unquote(part) for part in path.partition("?")[0].split("/")[1:]]:
            case ["subjects"]:
                return 200, list(self.subjects)
            case ["subjects", subject, "versions"] if body is None:
                return 200, list(range(1, len(self.subjects[subject]) + 1))
            case ["subjects", subject, "versions"]:
                if body not in self.schemas:
                    self.schemas.append(body)
                number = self.schemas.index(body) + 1
                if number not in self.subjects.setdefault(subject, []):
                    self.subjects[subject].append(number)
                return 200, {"id": number}
            case ["subjects", subject] if body is not None and body in self.schemas:
                number = self.schemas.index(body) + 1
                version = self.subjects[subject].index(number) + 1
                return 200, {"id": number, "subject": subject, "version": version, **body}
            case ["subjects", subject, "versions", version]:
                at = len(self.subjects[subject]) if version == "latest" else int(version)
                number = self.subjects[subject][at - 1]
                return 200, {"id": number, "subject": subject, "version": at, **self.schemas[number - 1]}
            case ["schemas", "ids", number] if 0 < int(number) <= len(self.schemas):
                return 200, self.schemas[int(number) - 1]
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def small() -> Iterator[SmallRegistry]:
    """Run the stand-in."""
    registry = SmallRegistry()
    try:
        yield registry
    finally:
        registry.close()


@contextmanager
def apicurio(folder: Path) -> Iterator[str]:
    """Run Apicurio's registry, which keeps its schemas in memory, and yield the address of its compatible interface."""
    folder.mkdir(parents=True, exist_ok=True)
    port, program = free_port(), _program()
    words = ["java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1"]
    words += [f"-Dquarkus.http.port={port}", "-jar", str(program)]
    broker, url = Broker(words, port, folder), f"http://127.0.0.1:{port}/apis/ccompat/v7"
    try:
        broker.wait()

        def answers() -> bool:
            try:
                with urlopen(f"{url}/subjects") as answer:
                    return bool(answer.status == 200)
            except OSError:
                return False

        wait_for(answers, what=broker.log)
        yield url
    finally:
        broker.kill()


def _program() -> Path:
    """Return the registry's program, fetched once on a machine."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), f"streamkernel-tests/apicurio-{VERSION}")
    if not folder.exists():
        draft = folder.with_name(f"{folder.name}.{os.getpid()}")
        draft.mkdir(parents=True)
        artifact = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
        words = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={draft}"]
        subprocess.run(words, cwd=draft, check=True, timeout=600, capture_output=True)
        (archive,) = draft.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(draft, filter="data")
        archive.unlink()
        try:
            draft.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(draft)
    return folder / f"apicurio-registry-app-{VERSION}-runner.jar"
