"""The timing of the figures: which time is measured, when, and how long a method runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks import race

PARTS = [slice(0, 4), slice(4, 8), slice(8, 10)]


class Counts:
    """Counts the rows that it learns."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    @property
    def size(self) -> str:
        return f"{len(self.rows)} rows"

    def learn(self, part: slice) -> None:
        self.rows += range(part.start, part.stop)


@pytest.fixture(autouse=True)
def a_second_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def second(job: Callable[[], None]) -> float:
        job()
        return 1.0

    monkeypatch.setattr(race, "seconds", second)


def test_one_pass_without_a_budget() -> None:
    method = Counts()
    marks, last = race.run(method, PARTS, [2], lambda m: -len(m.rows))
    assert marks == [race.Mark(2.0, 8, -8, "8 rows"), race.Mark(3.0, 10, -10, "10 rows")]
    assert method.rows == list(range(10))
    assert last == 1


@pytest.mark.parametrize(("budget", "rows", "place"), [(1.5, [4, 8, 10], 1), (4.5, [4, 10, 14, 18], 3)])
def test_the_budget_ends_within_the_pass_or_after_it(budget: float, rows: list[int], place: int) -> None:
    marks, at_budget = race.run(Counts(), PARTS, [1, 4], lambda m: 0.0, budget)
    assert [mark.rows for mark in marks] == rows
    assert at_budget == place
    assert marks[at_budget].seconds >= budget > marks[at_budget].seconds - 1.0


def test_later_passes_learn_the_same_rows_again() -> None:
    method = Counts()
    race.run(method, PARTS, [], lambda m: 0.0, 5.0)
    assert method.rows == [*range(10), *range(8)]


def test_marks_are_in_even_ratios() -> None:
    assert race.geometric(1, 16, 5) == [1, 2, 4, 8, 16]
