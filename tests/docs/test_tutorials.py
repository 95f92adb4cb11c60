"""The files and commands of the tutorials work when they are typed one after the other in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import brokers
import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "tutorials"
BLOCK = re.compile(r'```(\w+)(?: title="([\w.]+)")?\n(.*?)```', re.DOTALL)
PAGES = [page for page in sorted(FOLDER.glob("*.md")) if "```console" in page.read_text()]
PREPARED = ("pip install", "noida-db start")
"""Commands that the test has run already, in its own way."""


@pytest.fixture
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with brokers.noida(tmp_path_factory.mktemp("noida")) as broker:
        yield f"127.0.0.1:{broker.port}"


def typed(block: str) -> Iterator[tuple[str, str]]:
    """Return the commands of a block, each with the output that the page shows, "" if it shows none."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output.strip()


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tutorials_run_as_written(page: Path, tmp_path: Path, servers: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    text = page.read_text().replace("localhost:9092", servers).replace("port = 9464", "port = 0")
    for kind, name, content in BLOCK.findall(text):
        if name:
            (tmp_path / name).write_text(content)
        if kind != "console":
            continue
        for command, output in typed(content):
            if command.startswith(PREPARED):
                continue
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0 or "kill" in command, f"{command}\n{done.stdout}\n{done.stderr}"
            assert output in done.stdout, f"{command}\n{done.stdout}"
