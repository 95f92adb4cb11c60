"""State directories with a given name, so that the predictions and dead letters of two runs can be compared."""

from __future__ import annotations

from pathlib import Path

from streamkernel.engine.checkpoint.state_directory import StateDirectory


def named(path: Path, name: str = "member") -> Path:
    """Return the path of a state directory that exists and has this name, unless it had one before."""
    path.mkdir(parents=True, exist_ok=True)
    if not (path / "identity").exists():
        (path / "identity").write_text(name)
    return path


def state_in(path: Path) -> StateDirectory:
    """Return a state directory that has the name of all others."""
    return StateDirectory(named(path))
