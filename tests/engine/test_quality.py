"""The quality of a run equals that of River's metrics, for any grouping of events, and survives a restart."""

from __future__ import annotations

import itertools
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from river import metrics, utils
from sklearn.dummy import DummyClassifier

from streamkernel import KernelRegressor, learners, tensor_file
from streamkernel.connectors import FileSource
from streamkernel.engine import Engine
from streamkernel.engine.checkpoint import river_state
from streamkernel.engine.checkpoint.state_directory import StateDirectory, checkpoints, read_newest
from streamkernel.engine.telemetry.observed import run_of
from streamkernel.engine.telemetry.quality import SAMPLED, WINDOW, Quality, update_roc_auc
from streamkernel.engine.telemetry.status import checkpoint_rows

LABELS = [metrics.Accuracy, metrics.F1, metrics.MacroF1, metrics.CohenKappa, metrics.MCC, metrics.BalancedAccuracy]
NUMBERS = [metrics.MAE, metrics.RMSE, metrics.R2]
SHARES = [metrics.LogLoss, metrics.ROCAUC, metrics.CrossEntropy]


def label_pairs(n: int, seed: int = 0) -> list[Any]:
    rng = random.Random(seed)
    return [(rng.random() < 0.3, None if i == 0 else rng.random() < 0.4) for i in range(n)]


def number_pairs(n: int, seed: int = 0) -> list[Any]:
    rng = random.Random(seed)
    return [(rng.gauss(0, 1), rng.gauss(0, 1)) for _ in range(n)]


def share_pairs(n: int, seed: int = 0) -> list[Any]:
    rng = random.Random(seed)
    shares = ({} if i == 0 else {True: (p := rng.random()), False: 1.0 - p} for i in range(n))
    return [(rng.random() < 0.3, share) for share in shares]


CASES = [
    *((m, label_pairs) for m in LABELS),
    *((m, number_pairs) for m in NUMBERS),
    *((m, share_pairs) for m in SHARES),
]


def in_pieces(quality: Quality, pairs: list[Any], cuts: list[int]) -> Quality:
    for first, last in zip([0, *cuts], [*cuts, len(pairs)], strict=True):
        quality.pairs += pairs[first:last]
        quality.fold()
    return quality


@pytest.mark.parametrize(("metric", "pairs"), CASES)
@given(st.lists(st.integers(0, 120), max_size=5).map(sorted))
def test_the_grouping_of_pairs_changes_no_bit(metric: Any, pairs: Any, cuts: list[int]) -> None:
    """A restart between groups, with the encoding of checkpoints, changes no bit either."""
    whole, stream = in_pieces(Quality(metric()), pairs(120), []), pairs(120)
    parts = Quality(metric())
    for first, last in zip([0, *cuts], [*cuts, 120], strict=True):
        in_pieces(parts, stream[first:last], [])
        saved = (parts.metric, parts.baseline_metric, parts.state())
        parts = Quality(metric())
        parts.restore(*river_state.decode(json.loads(json.dumps(river_state.encode(saved)))))
    for ours, theirs in ((whole.metric, parts.metric), (whole.baseline_metric, parts.baseline_metric)):
        assert river_state.encode(ours) == river_state.encode(theirs)
    assert whole.state() == parts.state()
    assert repr(whole.scores().recent) == repr(parts.scores().recent)


@pytest.mark.parametrize(("metric", "pairs"), CASES)
def test_overall_and_recent_metrics_match_river(metric: Any, pairs: Any) -> None:
    stream = pairs(WINDOW + 700)
    scores = in_pieces(Quality(metric()), stream, [3, 900, 1100]).scores()
    plain, rolling = metric(), utils.Rolling(metric, window_size=WINDOW) if hasattr(metric, "revert") else None
    for y, answer in stream:
        if answer is not None and answer != {}:
            plain.update(y, answer)
            if rolling is not None:
                rolling.update(y, answer)
    assert scores.ours == plain.get()
    if rolling is not None and metric is not metrics.ROCAUC:
        assert scores.recent[0] == pytest.approx(rolling.get(), abs=1e-9)


@pytest.mark.parametrize(("thresholds", "positive"), [(2, True), (10, True), (10, False), (50, "spam")])
def test_many_pairs_leave_river_s_roc_auc_as_one_by_one_does(thresholds: int, positive: Any) -> None:
    """Also for probabilities that are thresholds, impossible or missing, as numbers and in dictionaries."""
    rng = random.Random(thresholds)
    shares = [rng.choice([rng.random(), i % 10 / 9, 0.0, 1.0, -1.0, math.nan]) for i in range(500)]
    answers = [rng.choice([p, {True: p, False: 1.0 - p}, {False: p}]) for p in shares]
    pairs = [(rng.choice([True, False, "spam"]), answer) for answer in answers]
    many, alone = (metrics.ROCAUC(thresholds, pos_val=positive) for _ in range(2))
    for first in range(0, 500, 90):
        update_roc_auc(many, pairs[first : first + 90])
    for y, answer in pairs:
        alone.update(y, answer)
    assert river_state.encode(many) == river_state.encode(alone)
    assert repr(many.get()) == repr(alone.get())


def test_the_majority_baseline_matches_scikit_learn() -> None:
    pairs = label_pairs(WINDOW + 500, seed=3)
    scores = in_pieces(Quality(metrics.Accuracy()), pairs, [10]).scores()
    for found, labels in (
        (scores.theirs, [y for y, _ in pairs]),
        (scores.recent[1], [y for y, _ in pairs[-WINDOW:]]),
    ):
        dummy = DummyClassifier(strategy="most_frequent").fit([[0]] * len(labels), labels)
        assert found == pytest.approx(dummy.score([[0]] * len(labels), labels))
    assert scores.baseline == "majority class"


def test_class_frequencies_match_scikit_learn() -> None:
    labels = [y for y, _ in share_pairs(400, seed=4)]
    scores = in_pieces(Quality(metrics.LogLoss()), [(y, {True: 0.5, False: 0.5}) for y in labels], []).scores()
    share = sum(labels) / len(labels)
    entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
    assert scores.theirs == pytest.approx(entropy)
    assert scores.ours == pytest.approx(math.log(2))


@pytest.mark.parametrize("n", [1, 2, 9, 100, WINDOW + 100])
def test_the_last_value_baseline_is_sampled_since_the_start_and_complete_recently(n: int) -> None:
    labels = [y for y, _ in number_pairs(n, seed=5)]
    scores = in_pieces(Quality(metrics.MAE()), [(y, 0.0) for y in labels], [1] if n > 1 else []).scores()
    errors = [abs(b - a) for a, b in itertools.pairwise(labels)]
    late = errors[-WINDOW:]
    assert scores.recent[1] == pytest.approx(sum(late) / max(1, len(late)))
    some = [errors[i - 1] for i in range(SAMPLED, n, SAMPLED)]
    assert scores.theirs == pytest.approx(sum(some) / max(1, len(some)))


def test_a_regressor_continues_with_the_same_bits(tmp_path: Path) -> None:
    rng = random.Random(1)
    records = ({"a": rng.gauss(0, 1), "y": rng.gauss(0, 1)} for _ in range(500))
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))

    def run(folder: str, stop: int = 10**6) -> Any:
        asked = iter(range(10**7))
        engine = Engine(
            KernelRegressor(learner=learners.Newton(features_per_seed=16), max_features=64),
            FileSource(tmp_path / "events.jsonl"),
            label="y",
            metric=metrics.RMSE(),
            state=StateDirectory(tmp_path / folder),
        )
        engine.run(stopping=lambda: next(asked) >= stop)
        return engine.snapshot.scores

    whole = run("whole")
    for stop in (1, 77, 3):
        run("parts", stop)
    parts = run("parts")
    assert (whole.ours, whole.theirs, whole.recent) == (parts.ours, parts.theirs, parts.recent)
    ours, theirs = (tensor_file.read(checkpoints(tmp_path / f)[-1], "checkpoint")[0] for f in ("whole", "parts"))
    assert ours == theirs


@pytest.mark.parametrize("baseline", [None, "LogisticRegression"])
def test_quality_is_unknown_before_the_first_event(baseline: str | None) -> None:
    quality = Quality(metrics.Accuracy(), baseline)
    scores = quality.scores()
    assert all(math.isnan(number) for number in (scores.ours, scores.theirs, *scores.recent))
    quality.pairs.append((True, None))  # a model that has learned nothing predicts nothing, which is wrong
    quality.baseline_pairs.append((True, False))
    scores = quality.scores()
    assert (scores.ours, scores.recent[0]) == (0.0, 0.0)


def test_a_checkpoint_without_events_has_no_quality(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").touch()
    state = StateDirectory(tmp_path / "state")
    source = FileSource(tmp_path / "events.jsonl")
    Engine(KernelRegressor(), source, label="y", metric=metrics.MAE(), state=state).run()
    saved = read_newest(tmp_path / "state")
    assert saved is not None
    assert dict(checkpoint_rows(saved))["MAE"] == "–"
    assert run_of(saved, tmp_path / "state")["quality"] == {"since start": None}
