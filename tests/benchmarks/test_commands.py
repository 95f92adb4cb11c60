"""Every benchmark is a command that describes its options, and is in the list of benchmarks."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
COMMANDS = [path.stem for path in sorted(FOLDER.glob("*.py")) if "__main__" in path.read_text()]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")  # another test has imported it
def test_a_benchmark_describes_its_options(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)
    assert ended.value.code == 0
    assert "usage:" in capsys.readouterr().out
    assert f"-m benchmarks.{name}" in (FOLDER / "README.md").read_text()
