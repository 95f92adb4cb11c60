"""Stored models load, predict the same bits as when they were written, and continue learning as they would have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stored_files import FOLDER, MODELS, answers, has_the_bits_of_the_files, learn

from streamkernel import load, save

EXPECTED = json.loads((FOLDER / "expected.json").read_text())


def compare(found: list[list[float]], expected: list[list[float]]) -> None:
    """Compare outputs with those of a file: bit by bit where this machine rounds the same way."""
    if has_the_bits_of_the_files():
        assert found == expected
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("name", MODELS)
def test_a_stored_model_predicts_and_continues_learning(name: str, tmp_path: Path) -> None:
    model = load(FOLDER / f"{name}.safetensors")
    compare(answers(name, model), EXPECTED[name]["predictions"])
    save(model, tmp_path / "again")
    assert answers(name, load(tmp_path / "again")) == answers(name, model)
    learn(name, model, 100, 3)
    compare(answers(name, model), EXPECTED[name]["after_100_more"])
