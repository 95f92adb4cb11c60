"""Every benchmark is a command that says what it does, and stands in the list of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
COMMANDS = [path.stem for path in sorted(FOLDER.glob("*.py")) if "__main__" in path.read_text()]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_benchmark_tells_its_options(name: str) -> None:
    command = [sys.executable, "-m", f"benchmarks.{name}", "--help"]
    done = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout
    assert f"-m benchmarks.{name}" in (FOLDER / "README.md").read_text()
