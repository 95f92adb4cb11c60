"""Runs on svmlight files: rows in which all features are zero, and groups of queries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from streams import examples
from test_tables_in_files import command, config_of, lines_of

from streamkernel import KernelClassifier

XS, LABELS = examples(40)


def test_rows_without_features_are_predicted_and_learned_as_by_the_library(tmp_path: Path) -> None:
    xs = [{} if i % 5 == 2 else {"1": x["x0"], "2": i / 40} for i, x in enumerate(XS)]
    ys = [2 * (label == LABELS[0]) - 1 for label in LABELS]
    lines = [" ".join([str(y), *(f"{k}:{v!r}" for k, v in x.items())]) for x, y in zip(xs, ys, strict=True)]
    (tmp_path / "e.svm").write_text("\n".join(lines))
    assert command("run", config_of(tmp_path, "e.svm", label="label")).exit_code == 0
    assert lines_of(tmp_path / "dead.jsonl") == []
    model = KernelClassifier(max_features=32)
    expected = []
    for x, y in zip(xs, ys, strict=True):
        expected.append({str(k): v for k, v in model.predict_proba_one(x).items()})
        model.learn_one(x, y)
    found = [line["probabilities"] for line in lines_of(tmp_path / "predictions.jsonl")]
    assert len(found) == len(expected)
    assert found[1:] == expected[1:]


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({}, "there is no other field"),
        ({"id": 7, "a": None}, 'no value in "a"'),
        ({f"f{i}": None for i in range(9)}, 'no value in "f0", "f1", "f2", "f3", "f4" and 4 more'),
        ({"id": 7}, 'the other fields are no inputs: "id"'),
    ],
)
def test_other_formats_still_need_a_feature(tmp_path: Path, record: dict[str, Any], why: str) -> None:
    records = {"a": 1, "y": 1}, record | {"y": 2}
    (tmp_path / "e.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    command("run", config_of(tmp_path, "e.jsonl", more='ignore = ["id"]'))
    (dead,) = lines_of(tmp_path / "dead.jsonl")
    assert dead["reason"] == f"Expected at least one feature besides the label, got none: {why}"


def test_the_group_of_a_query_is_a_field(tmp_path: Path) -> None:
    (tmp_path / "e.svm").write_text("".join(f"{i % 2} qid:{i // 4}{f' 1:{i}' if i % 3 else ''}\n" for i in range(20)))
    assert command("run", config_of(tmp_path, "e.svm", label="label", more='ignore = ["qid"]')).exit_code == 0
    assert len(lines_of(tmp_path / "predictions.jsonl")) == 20
