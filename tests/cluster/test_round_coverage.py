"""Coverage on a cluster: a round's sets follow from all labels before it, whichever workers compute them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import rounds

from streamkernel.engine.coverage import Coverage

SIZES = 900, 600, 700
TARGET = 0.8


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = [rounds.records(n, seed) for seed, n in enumerate(SIZES)]
    return rounds.write(tmp_path_factory.mktemp("data"), *files)


def judged(folder: Path) -> Any:
    """Return the files and the state of a run, and its coverage."""
    state = rounds.read_newest(folder / "state")
    assert state is not None
    coverage = Coverage(TARGET).restored(state["coverage"])
    return rounds.told(folder), coverage.snapshot(), coverage.judged, coverage.threshold(None)


def test_sets_of_a_round_have_the_threshold_that_follows_from_the_lines_before_it(data: Path, tmp_path: Path) -> None:
    engine = rounds.engine(data, tmp_path, coverage=TARGET)
    engine.run()
    begins = [tasks[0].learned for tasks in engine.runner.pool.asked]  # type: ignore[attr-defined]
    lines, coverage, hits = rounds.lines(tmp_path), Coverage(TARGET), 0
    for begin, end in zip(begins, [*begins[1:], len(lines)], strict=True):
        threshold = coverage.threshold(None)
        for line in lines[begin:end]:
            probabilities = {json.loads(label): p for label, p in line["probabilities"].items()}
            likely = {label for label, p in probabilities.items() if 1.0 - p <= threshold}
            assert set(line["set"]) == likely
            hits += line["label"] in likely
            coverage.judge({}, line["label"], (line["prediction"], probabilities, threshold))
    found = engine.parts.processor.coverage
    assert found is not None
    assert found.judged == len(lines)
    assert found.inside == hits
    assert (found.snapshot(), found.threshold(None)) == (coverage.snapshot(), coverage.threshold(None))
    assert abs(hits / len(lines) - TARGET) < 0.05


def test_workers_that_die_and_drivers_that_restart_change_no_bit(data: Path, tmp_path: Path) -> None:
    rounds.engine(data, tmp_path / "calm", coverage=TARGET).run()
    rounds.engine(data, tmp_path / "again", coverage=TARGET, is_fresh=True).run()
    for _ in range(50):
        one = rounds.engine(data, tmp_path / "often", coverage=TARGET)
        one.run(stopping=lambda one=one: one.cluster is not None)
        if one.cluster is None:
            break
    assert judged(tmp_path / "again") == judged(tmp_path / "calm")
    left, right = judged(tmp_path / "often"), judged(tmp_path / "calm")
    assert left[1:] == right[1:]
    assert left[0] == right[0]


def test_workers_explain_their_lines(data: Path, tmp_path: Path) -> None:
    rounds.engine(data, tmp_path, explain=1).run()
    found = [line["explanation"] for line in rounds.lines(tmp_path)]
    assert all(len(one) == 1 for one in found)
    assert {name for one in found for name in one} == {"a", "b"}
