"""Names that stand for the fields inside them."""

import copy
import pickle
from typing import Any

import pytest

from streamkernel.field_types import declared
from streamkernel.field_types.declared import ByPath

TABLE = {"a": True, "a.b": False, "a.b.c": True, "b": False}
ANSWERS: dict[Any, bool] = {
    "a": True, "a.x": True, "a.x.y": True, "a.b": False, "a.b.x": False, "a.b.c": True, "a.b.c.d": True, "b.x": False,
    "ab": False, "": False, ".a": False, "a.": True, "single": True, "single.x": False, 3: False, None: False,
}  # fmt: skip


@pytest.mark.parametrize("most", [0, 3, 1000])
def test_the_nearest_name_decides_however_many_are_kept(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(declared, "MOST_NAMES", most)
    table = ByPath(TABLE, ["single"])
    for _ in range(2):
        assert {name: table[name] for name in ANSWERS} == ANSWERS
    assert len(table) <= max(most, len(TABLE) + 1)


def test_long_names_and_other_processes_cost_nothing() -> None:
    table = ByPath(TABLE, ["single"])
    assert all(table[f"a.{'x' * 1000}{i}"] for i in range(10))
    assert len(table) == len(TABLE) + 1
    assert [table[f"a.{i}"] for i in range(100)] == [True] * 100
    assert len(pickle.dumps(table)) < 200
    again = pickle.loads(pickle.dumps(table))
    assert {name: again[name] for name in ANSWERS} == ANSWERS
    assert copy.deepcopy(table) is table
