"""The tables of the accuracy benchmark: ranks, ties, and where ours is behind."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks import accuracy_tables, store


def of(score: float | None) -> store.Result:
    return store.Result(score, 100, 100, 100, 1.0, "library 1", "machine")


def test_ranks_are_over_the_scenarios_with_a_score() -> None:
    scores = pd.DataFrame(
        {"p": [0.9, 0.8, 0.7], "q": [0.5, 0.6, np.nan], "r": [0.2, -np.inf, 0.3]}, index=["a", "b", "c"]
    )
    found = accuracy_tables.ranks(scores)
    assert found["rank"].tolist() == [(1 + 2 + 2) / 3, (2 + 1 + 3) / 3, (3 + 1) / 2]
    assert found["furthest"].tolist() == pytest.approx([10.0, np.inf, 20.0])
    assert [accuracy_tables.told(2.0, scores.loc[name].notna()) for name in "ac"] == ["2.0", "2.0\nin 2 of 3"]


def test_models_with_one_score_share_the_mean_of_their_ranks() -> None:
    scores = pd.DataFrame({"p": [0.9, 0.9, 0.7, 0.8], "q": [0.5, 0.5, 0.5, 0.1]}, index=list("abcd"))
    assert accuracy_tables.ranks(scores)["rank"].tolist() == [(1.5 + 2) / 2, (1.5 + 2) / 2, (4 + 2) / 2, (3 + 4) / 2]


def test_streams_on_which_ours_is_far_behind_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    ours, rival, low = "KernelClassifier()", "MOA SRP(30)", "GaussianNB"
    results = {
        "wine": {ours: of(0.9), rival: of(0.904), low: of(0.1), "majority": of(1.0)},
        "digits": {ours: of(0.9), rival: of(0.91), low: of(None)},
        "phishing": {rival: of(0.9)},
        "diabetes": {"KernelRegressor()": of(0.5), "MOA SOKNL(30)": of(0.4)},
    }
    wanted = ["wine", "digits", "phishing", "diabetes", "bananas"]
    assert accuracy_tables.behind(results, wanted) == [["digits", "0.9000", rival, "0.9100", "1.00"]]
    accuracy_tables.tables(results, wanted)
    printed = capsys.readouterr().out
    assert "all, regression: points are behind the best" in printed
    assert "Ours more than 0.5 points behind" in printed
    line = next(line for line in printed[printed.index("all, classification") :].splitlines() if rival in line)
    assert [cell.strip() for cell in line.split("│")[1:-1]] == [rival, "1.00", "3 of 3", "3", "0.00", "0.00"]
