"""Drift detection: the bets of the paper, their mean of 1, the resulting run length, and detected changes."""

from __future__ import annotations

import copy
import pickle
from contextlib import suppress

import numpy as np
import pytest
from reference import algorithms as plain
from river import base
from streams import content, examples

from streamkernel import InputError, KernelDriftDetector, ModelFileError, load, tensor_file
from streamkernel.estimators import model_file
from streamkernel.kernels import ArcCosine, Gaussian

FIXED = Gaussian(1.0)
STREAMS = {
    "normal": lambda g, n: g.normal(size=(n, 2)),
    "heavy tails": lambda g, n: g.standard_t(1.0, size=(n, 2)),
    "skewed": lambda g, n: g.lognormal(0.0, 1.5, size=(n, 3)),
    "a few values": lambda g, n: g.integers(0, 3, size=(n, 2)).astype(float),
}


def events(X):
    return [dict(enumerate(row)) for row in X.tolist()]


def updated(detector, xs):
    for x in xs:
        detector.update(x)
    return detector


def small(**options):
    return KernelDriftDetector(**{"window": 20, "max_features": 32, "kernel": FIXED, **options})


def test_the_bets_match_the_reference():
    """L = 2σ(f(x) - f(x°)), M = (M + 1)L, on a new event and the oldest buffered one; then f learns both."""
    X = np.random.default_rng(0).normal(size=(400, 2))
    X[200:, 1] += 1.0
    detector = small(average_run_length=1e12, seed=3)
    reference = plain.Reference(
        plain.gaussian([0, 1], 1.0, 8, seed=3),
        plain.Logistic(),
        plain.dsg,
        lambda t: 1.0,
        block_size=8,
        most_blocks=4,
        l2=1 / 20,
        seed=3,
    )
    statistic, largest = 0.0, 0.0
    for t, x in enumerate(events(X)):
        detector.update(x)
        if t >= 19 and t % 2 == 1:
            old, new = reference.scores(X[[t - 19, t]])[:, 0]
            statistic = (statistic + 1.0) * 2.0 / (1.0 + np.exp(old - new))
            reference.learn(X[[t - 19]], [0.0])
            reference.learn(X[[t]], [1.0])
        assert detector.statistic == pytest.approx(statistic, rel=1e-3)
        largest = max(largest, statistic)
    assert largest > 10.0


def test_each_event_is_in_at_most_one_pair(monkeypatch):
    """Bets are fair only if the pairs are disjoint."""
    seen, compare = [], KernelDriftDetector._compare

    def counted(detector, found, rows):
        seen.append([float(row.values[0]) for row in (found.waiting[0], rows[0])])
        return compare(detector, found, rows)

    monkeypatch.setattr(KernelDriftDetector, "_compare", counted)
    for window in (2, 20, 21):
        seen.clear()
        updated(small(window=window), events(np.arange(100.0)[:, None]))
        assert len({value for pair in seen for value in pair}) == 2 * len(seen) > 0
        assert {abs(new - old - window) <= 1 for old, new in seen} == {True}


@pytest.mark.parametrize("stream", STREAMS)
def test_a_bet_on_a_stream_that_does_not_change_is_fair(stream):
    """The mean of all L is 1 within four standard errors, for the first pairs too, with the bandwidth of the median."""
    generator, bets = np.random.default_rng(1), []
    for seed in range(12):
        detector = small(average_run_length=1e300, kernel=None, seed=seed)
        for x in events(STREAMS[stream](generator, 600)):
            before = detector.statistic
            detector.update(x)
            if detector.statistic != before:
                bets.append(detector.statistic / (before + 1.0))
    assert len(bets) > 2500
    assert abs(np.mean(bets) - 1.0) < 4.0 * np.std(bets) / len(bets) ** 0.5
    assert np.std(bets) > 0.1


@pytest.mark.parametrize("stream", STREAMS)
def test_false_alarms_are_as_rare_as_the_bound(stream):
    """The mean run length and the share of short runs keep the bound: P(alarm among n pairs) ≤ n/bound."""
    generator, lengths = np.random.default_rng(2), []
    asked = 300
    for seed in range(60):
        detector = small(average_run_length=asked, seed=seed)
        length = 0
        for x in events(STREAMS[stream](generator, 3000)):
            detector.update(x)
            length += 1
            if detector.drift_detected:
                break
        lengths.append(length)
    assert np.mean(lengths) + 2.0 * np.std(lengths) / 60**0.5 > asked + 20
    for pairs in (10, 30, 75):
        share = pairs / (asked / 2.0)
        early = np.mean((np.array(lengths) - 20) / 2 <= pairs)
        assert early < share + 3.0 * (share * (1.0 - share) / 60) ** 0.5


def drifting(kind, generator, n, changed):
    """Return events whose joint distribution changes; only "shift" also changes the distribution of a feature."""
    X = generator.normal(size=(n, 2))
    if kind == "correlation":
        X[:, 1] = 0.6 * X[:, 1] + (-0.8 if changed else 0.8) * X[:, 0]
    elif kind == "signs":
        X[:, 1] = np.abs(X[:, 1]) * np.where(changed, np.sign(X[:, 0]), generator.choice([-1, 1], n))
    elif kind == "ring":
        angles = generator.uniform(0.0, 2.0 * np.pi, (2, n))
        X = np.stack([np.cos(angles[0]), np.sin(angles[1 if changed else 0])], axis=1)
    elif changed:
        X[:, 0] += 1.0
    return X


@pytest.mark.parametrize("kind", ["correlation", "signs", "ring", "shift"])
def test_a_drift_is_detected_after_it_occurs_and_in_time(kind):
    for seed in range(3):
        generator = np.random.default_rng(seed)
        X = np.concatenate([drifting(kind, generator, 2500, False), drifting(kind, generator, 1000, True)])
        detector, alarms = KernelDriftDetector(average_run_length=1000000.0, seed=seed), []
        for t, x in enumerate(events(X)):
            detector.update(x)
            if detector.drift_detected:
                alarms.append(t)
        assert len(alarms) == 1
        assert 2500 < alarms[0] < 3000


def test_after_an_alarm_it_starts_again():
    generator = np.random.default_rng(0)
    X = np.concatenate([drifting("correlation", generator, 500, i % 2 == 1) for i in range(6)])
    detector, alarms = KernelDriftDetector(FIXED, average_run_length=100000.0, window=200), []
    for t, x in enumerate(events(X)):
        detector.update(x)
        if detector.drift_detected:
            alarms.append(t // 500)
            fresh = updated(
                KernelDriftDetector(FIXED, average_run_length=100000.0, window=200), events(X[t + 1 : t + 300])
            )
            twin = updated(copy.deepcopy(detector), events(X[t + 1 : t + 300]))
            assert content(twin) == content(fresh)
    assert alarms == [1, 2, 3, 4, 5]


def test_memory_is_bounded():
    xs, _ = examples(600)
    detector = updated(small(), xs)
    assert len(detector._seen.waiting) == 9  # and the next one
    assert detector._seen.model.learner.n_blocks * detector._seen.model.learner.block_size == 32


def saved_and_loaded(detector, tmp_path):
    detector.save(tmp_path / "model")
    return load(tmp_path / "model")


WAYS = {
    "file": saved_and_loaded,
    "pickle": lambda detector, _: pickle.loads(pickle.dumps(detector)),
    "deepcopy": lambda detector, _: copy.deepcopy(detector),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kernel", [None, FIXED], ids=repr)
@pytest.mark.parametrize("n", [0, 1, 20, 131, 300])
def test_a_copy_continues_with_the_same_bits(n, kernel, way, tmp_path):
    xs, _ = examples(400)
    detector = updated(small(kernel=kernel, average_run_length=200), xs[:n])
    twin = WAYS[way](detector, tmp_path)
    assert content(twin) == content(detector)
    for x in xs[n:]:
        detector.update(x)
        twin.update(x)
        assert (twin.drift_detected, twin.statistic) == (detector.drift_detected, detector.statistic)
    assert content(twin) == content(detector)


@pytest.mark.parametrize("sizes", [[1, 2, 3], [7, 50], [400]], ids=repr)
@pytest.mark.parametrize("options", [{}, {"average_run_length": 60}, {"window": 21, "kernel": None}], ids=repr)
def test_any_grouping_of_events_has_the_same_bits(options, sizes):
    xs, _ = examples(400)
    single, many, alarms, done, step = small(**options), small(**options), 0, 0, 0
    while done < len(xs):
        group = xs[done : done + sizes[step % len(sizes)]]
        n = many.update_many(group)
        assert n == len(group) or many.drift_detected
        for i, x in enumerate(group[:n]):
            single.update(x)
            assert single.drift_detected == (many.drift_detected and i == n - 1)
        assert content(single) == content(many)
        alarms, done, step = alarms + many.drift_detected, done + n, step + 1
    assert (alarms > 2) == ("average_run_length" in options)


def test_events_before_a_bad_one_are_processed():
    xs, _ = examples(60)
    for bad in ({"x0": float("inf")}, {"x0": [1.0]}, 3):
        detector = small()
        with pytest.raises((InputError, TypeError), match="Expected"):
            detector.update_many([*xs, bad, *xs])
        assert content(detector) == content(updated(small(), xs))
        assert detector.update_many([]) == 0


@pytest.mark.parametrize(
    ("scale", "value", "at"), [(1e10, 1e35, 500), (1e-10, 1e25, 300), (1e-10, 1e25, 460)], ids=repr
)
def test_events_are_checked_by_the_bandwidth_known_before_them(scale, value, at):
    """A bandwidth that becomes known in a call of several events decides which of the later ones can be used."""
    xs = [{"a": scale * a} for a in np.random.default_rng(0).normal(size=700)]
    xs[at] = {"a": value}
    single, many = (small(window=200, kernel=None) for _ in range(2))
    refused = []
    for i, x in enumerate(xs):
        try:
            single.update(x)
        except InputError:
            refused.append(i)
    done = 0
    while done < len(xs):
        try:
            done += many.update_many(xs[done : done + 700])
        except InputError:
            done = refused[0] + 1
    assert content(single) == content(many)
    assert len(refused) == (scale < 1.0)


@pytest.mark.parametrize("together", [False, True])
def test_a_pair_whose_new_event_is_refused_is_dropped(together):
    """Its features are too large for the step, after the old event has been learned."""
    xs = events(np.random.default_rng(0).normal(size=(61, 1)))
    detector = updated(KernelDriftDetector(ArcCosine(2), window=20, max_features=2048), xs[:21])
    halves = 0
    for value in np.geomspace(4e6, 9e6, 40):
        one = copy.deepcopy(detector)
        learned = one._seen.model.learner.n_offered
        try:
            one.update_many([{0: value}, xs[21]]) if together else one.update({0: value})
        except InputError:
            halves += one._seen.model.learner.n_offered == learned + 1
            updated(one, xs[22:])
        assert one._seen.journal is None
    assert halves > 0


@pytest.mark.parametrize("statistic", [-1.0, float("nan"), float("inf"), None, "x"], ids=repr)
def test_a_file_with_invalid_evidence_is_rejected(statistic, tmp_path):
    description, tensors = model_file.describe(updated(small(), examples(50)[0]))
    description["state"]["statistic"] = statistic
    tensor_file.write(tmp_path / "model", "model", description, tensors)
    with pytest.raises(ModelFileError, match=r"expected a statistic|float"):
        load(tmp_path / "model")


def test_a_file_with_more_events_than_the_window_is_rejected(tmp_path):
    description, tensors = model_file.describe(updated(small(window=40), examples(50)[0]))
    description["parameters"]["window"] = 20
    tensor_file.write(tmp_path / "model", "model", description, tensors)
    with pytest.raises(ModelFileError, match="half of the window of 20"):
        load(tmp_path / "model")


def test_it_is_a_drift_detector_of_river():
    detector = updated(small(), examples(50)[0])
    assert isinstance(detector, base.DriftDetector)
    twin = detector.clone()
    assert content(twin) == content(small())
    assert twin.statistic == 0.0


@pytest.mark.parametrize("value", [float("inf"), 1e39, [1.0]], ids=repr)
@pytest.mark.parametrize("n", [0, 1, 41, 42])
def test_a_bad_value_is_named_and_changes_nothing(n, value):
    detector = updated(small(), examples(n)[0])
    before = content(detector)
    with pytest.raises(InputError, match=r"at x\['x1'\]"):
        detector.update({"x0": 1.0, "x1": value})
    assert content(detector) == before


@pytest.mark.parametrize(
    "options",
    [{"average_run_length": 1}, {"average_run_length": "9"}, {"window": 1}, {"window": 2.5}, {"max_features": 0}],
    ids=repr,
)
def test_parameters_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match="Expected"):
        KernelDriftDetector(**options)


@pytest.mark.parametrize("seed", range(6))
def test_values_of_all_sizes_are_used_or_refused(seed):
    """A bandwidth of small values leaves out large ones that had been counted, which was an IndexError."""
    generator = np.random.default_rng(seed)
    detector = KernelDriftDetector(window=20, max_features=16)
    for value in 10.0 ** generator.uniform(-300.0, 30.0, 150):
        with suppress(InputError):
            detector.update({"a": float(value)})
    assert detector.update_many([{"a": 0.0}]) == 1
