"""No single vector decides how long the vectors of a field are, and no refused record does."""

from pathlib import Path
from typing import Any

import pytest
from engine.test_types_of_fields import DSG, NEWTON, run

from streamkernel import Fields, InputError

VECTOR = '[fields]\nv = "vector"'


def vectors(n: int, rare: dict[int, list[float]] | None = None) -> list[dict[str, Any]]:
    """Return records with vectors of two numbers, and of other lengths in some places."""
    return [{"a": i % 7, "v": (rare or {}).get(i, [i % 2, i % 3]), "y": i % 2} for i in range(n)]


@pytest.mark.parametrize("n_unlabelled", [1, 100])
def test_a_refused_record_fixes_no_length(tmp_path: Path, n_unlabelled: int) -> None:
    records = [{"a": 0, "v": [1, 2, 3], "y": None} for _ in range(n_unlabelled)]
    predictions, dead = run(tmp_path, [*records, *vectors(199)], tables=VECTOR)
    assert (len(predictions), len(dead)) == (199, n_unlabelled)


@pytest.mark.parametrize("model", [DSG, NEWTON], ids=["dsg", "newton"])
def test_a_first_vector_of_another_length_costs_one_record(tmp_path: Path, model: str) -> None:
    predictions, dead = run(tmp_path, vectors(200, {0: [1, 2, 3]}), model=model, tables=VECTOR)
    assert (len(predictions), len(dead)) == (199, 1)
    predictions, dead = run(tmp_path, vectors(50), model=model, tables=VECTOR)
    assert (len(predictions), len(dead)) == (249, 1)


def test_a_later_vector_of_another_length_is_the_only_dead_letter(tmp_path: Path) -> None:
    predictions, dead = run(tmp_path, vectors(600, {150: [1], 500: [1, 2, 3], 501: [1, 2, 3]}), tables=VECTOR)
    assert len(predictions) == 597
    assert {letter["reason"].rpartition(",")[0] for letter in dead} == {"Expected a vector of 2 numbers"}


def test_a_length_that_changes_for_good_is_followed(tmp_path: Path) -> None:
    predictions, dead = run(tmp_path, [*vectors(400), *[{"a": 1, "v": [1, 2, 3], "y": 1}] * 200], tables=VECTOR)
    assert len(predictions) + len(dead) == 600
    assert len(dead) <= 32


def test_most_vectors_say_the_length_in_python() -> None:
    fields = Fields({"v": "vector"})
    for length in (3, 2, 2, 2):
        fields.learn_one({"v": [1.0] * length})
    assert fields.transform_one({"v": [1, 2]}) == {"v.0": 1.0, "v.1": 2.0}
    with pytest.raises(InputError, match="Expected a vector of 2 numbers, got 3"):
        fields.transform_one({"v": [1, 2, 3]})
    assert Fields.of_state(fields.state()).numbers == {"v.0", "v.1"}
