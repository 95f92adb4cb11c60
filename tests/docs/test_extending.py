"""The changes in docs/how_to/extending.md, applied unchanged to a copy of the project, pass their tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from streamkernel.jit import cache

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how_to" / "extending.md").read_text()
BLOCK = re.compile(r'```(python|diff) title="([\w./]+)"\n(.*?)```', re.DOTALL)
CHANGES = {
    "loss": "LogCosh",
    "kernel": "hyperbolic",
    "function of the mixture": "small",
    "source": "test_sqlite",
    "sink": "test_sqlite_sink",
    "figure": "match_the_run",
}


def blocks(change: str) -> list[tuple[str, str, str]]:
    """Return the blocks of a section: what each is, of which file, and its text."""
    return BLOCK.findall(PAGE.split(f"\n## A {change}\n")[1].split("\n## ")[0])


def apply(lines: list[str], diff: str) -> tuple[list[str], int]:
    """Return lines with those of a diff that begin with "+", each after the line before it, and how many these are."""
    at, added = 0, 0
    for line in diff.splitlines():
        if line.startswith("+"):
            lines, added = [*lines[:at], line[1:], *lines[at:]], added + 1
        else:
            at = lines.index(line[1:], at)
        at += 1
    return lines, added


@pytest.mark.parametrize("change", CHANGES)
def test_changes_have_the_stated_number_of_lines(change: str) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| a {change} |"))
    counts = [
        len([one for one in text.splitlines() if kind == "python" or one[0] == "+"]) for kind, _, text in blocks(change)
    ]
    assert [int(number) for number in re.findall(r"(\d+) lines?", row)] == counts


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_changes_pass_their_tests(change: str, tmp_path: Path) -> None:
    for folder in ("streamkernel", "connectors", "tests", "docs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for kind, name, text in blocks(change):
        path = tmp_path / name
        assert path.exists() == (kind == "diff")
        if kind == "diff":
            lines, _ = apply(path.read_text().splitlines(), text)
            text = "\n".join(lines) + "\n"
        path.write_text(text)
    tests = next(name for _, name, _ in reversed(blocks(change)))
    (tmp_path / "compiled").mkdir()
    (tmp_path / "compiled" / "streamkernel").symlink_to(cache.folder() or tmp_path)  # only what has changed is compiled
    told = {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "compiled")}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", tests, "-k", CHANGES[change]],
        cwd=tmp_path, env=os.environ | told, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
    assert re.search(r"\d+ passed", run.stdout), run.stdout
