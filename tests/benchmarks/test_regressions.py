"""The comparison of the small set with the last release."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

from benchmarks import regressions
from benchmarks.regressions import BASELINE, LEARNERS, STREAMS, Figures, compared
from benchmarks.scenarios import SCENARIOS

OLD: Figures = {"accuracy": {"a": 0.9}, "speed": {"b": 0.5}}


@pytest.mark.parametrize(
    ("kind", "name", "now", "good"),
    [("accuracy", "a", 0.95, True), ("accuracy", "a", 0.8951, True), ("accuracy", "a", 0.8949, False),
     ("accuracy", "a", math.nan, False), ("speed", "b", 0.1, True), ("speed", "b", 0.74, True),
     ("speed", "b", 0.76, False), ("speed", "b", math.nan, False)],
)  # fmt: skip
def test_a_figure_fails_beyond_its_limit_alone(kind: str, name: str, now: float, good: bool) -> None:
    new = {other: dict(figures) for other, figures in OLD.items()}
    new[kind][name] = now
    assert {row[0]: row[-1] for row in compared(OLD, new)} == {"a": True, "b": True} | {name: good}


def test_a_missing_figure_fails_and_a_new_one_does_not() -> None:
    rows = list(compared(OLD, {"accuracy": {"a": 0.9, "c": 0.1}}))
    assert [(name, now, good) for name, _, now, _, good in rows] == [("a", 0.9, True), ("b", None, False)]


@pytest.mark.parametrize(("now", "code"), [(0.9, 0), (0.8, 1)])
def test_the_command_fails_if_a_figure_is_worse(
    now: float, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    baseline = tmp_path / "baseline.json"
    monkeypatch.setattr(sys, "argv", ["regressions", "--baseline", str(baseline), "--write"])
    monkeypatch.setattr(regressions, "speed", lambda runs: {"b": 0.5})
    monkeypatch.setattr(regressions, "accuracy", lambda: {"a": 0.9})
    regressions.main()
    monkeypatch.setattr(sys, "argv", ["regressions", "--baseline", str(baseline)])
    monkeypatch.setattr(regressions, "accuracy", lambda: {"a": now})
    if code:
        with pytest.raises(SystemExit, match="1"):
            regressions.main()
    else:
        regressions.main()
    assert ("worse" in capsys.readouterr().out) == bool(code)


def test_the_baseline_has_all_streams_and_they_need_no_file() -> None:
    stored = json.loads(BASELINE.read_text())
    assert set(stored["accuracy"]) == {f"{name}, {kind}" for name in STREAMS for kind in LEARNERS}
    assert len(stored["speed"]) == 3
    for name in STREAMS:
        assert SCENARIOS[name].events(Path("nowhere"))
