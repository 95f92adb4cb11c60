"""The metrics for Prometheus: complete, by its conventions, and safe to read while the model learns."""

from __future__ import annotations

import itertools
import json
import random
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made_up_cluster import cluster_snapshot
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from river import linear_model, metrics, preprocessing
from streams import nested

from streamkernel import GaussianProcessRegressor, KernelClassifier, KernelRegressor, kernels, learners, step_sizes
from streamkernel.connectors import Event, FileSource
from streamkernel.engine import Engine, checkpointer
from streamkernel.engine.checkpoint.mirror import open_state
from streamkernel.engine.checkpoint.state_directory import StateDirectory
from streamkernel.engine.delayed_labels import DelayedLabels
from streamkernel.engine.health import INCIDENTS
from streamkernel.engine.monitoring.drift_watch import DriftWatch
from streamkernel.engine.monitoring.kappa_t import KappaT
from streamkernel.engine.monitoring.monitoring import Monitoring
from streamkernel.engine.monitoring.novelty_watch import NoveltyWatch
from streamkernel.engine.monitoring.several_metrics import SeveralMetrics
from streamkernel.engine.monitoring.stream_statistics import StreamStatistics
from streamkernel.engine.pipelines import NO_ANSWER
from streamkernel.engine.roles import Candidate
from streamkernel.engine.telemetry.figures import FIGURES
from streamkernel.engine.telemetry.snapshot import MOST
from streamkernel.engine.telemetry.status import EngineCollector, status_of
from streamkernel.upkeep import Refit

FIRST: dict[str, Any] = {"learner": "dsg", "max_features": 64, "features_per_seed": 16}
MONITORING = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


class Records:
    """Records, a few at each poll."""

    def __init__(self, records: list[dict[str, Any] | None], lag: Mapping[tuple[str, str], int] | None = None) -> None:
        unreadable = "Expected a record"
        self._events = iter(
            Event("t:0", i, b"", record, None if record else unreadable) for i, record in enumerate(records, start=1)
        )
        self._lag = lag or {}

    def poll(self, timeout: float) -> list[Event] | None:
        return [event for _, event in zip(range(7), self._events, strict=False)] or None

    def lag(self) -> Mapping[tuple[str, str], int]:
        return self._lag

    def seek(self, positions: Mapping[str, Any]) -> None:
        pass

    def close(self) -> None:
        pass


def records(n: int, labels: int = 2) -> list[Any]:
    rng = random.Random(2)
    return [{"a": rng.gauss(0, 1), "b": rng.random(), "y": rng.randrange(labels)} for _ in range(n)]


def families(engine: Engine) -> dict[str, Metric]:
    return {family.name: family for family in EngineCollector(engine).collect()}


def values(engine: Engine) -> dict[str, float]:
    return {
        sample.name + "".join(f"/{label}" for label in sample.labels.values()): sample.value
        for family in EngineCollector(engine).collect()
        for sample in family.samples
    }


def engines(folder: Path) -> Iterator[Engine]:
    """Yield engines after a run, which together have every metric."""
    with_labels: list[Any] = [{"id": i, "a": 1.0 + i % 3} for i in range(40)]
    with_labels += [{"id": i, "y": i % 2} for i in range(20)]
    for i, (model, made, labels) in enumerate(
        [
            (KernelClassifier(**nested(**FIRST)), records(50), None),
            (KernelClassifier(), with_labels, DelayedLabels("id")),
            (
                KernelClassifier(kernels.Gaussian(1.0), learner="dsg", max_features=64, refit=Refit(20, 20)),
                records(50),
                None,
            ),
            (KernelRegressor(), records(50), None),
        ]
    ):
        mirror = (folder / "mirror").as_uri() if i == 0 else None
        state = open_state(folder / str(i), mirror)
        source = Records(made, {("t", "0"): 3})
        metric = metrics.MAE() if isinstance(model, KernelRegressor) else metrics.Accuracy()
        several = SeveralMetrics({"metric": metric, "KappaT": KappaT()}, main="metric", most_segments=2)
        statistics, drift = StreamStatistics(classes=True, window=10), DriftWatch(every=1)
        drift.add_all([{"a": float(j % 7)} for j in range(300)], [NO_ANSWER] * 300)
        parts: dict[str, Any] = {"quality": several, "statistics": statistics, "drift": drift}
        watched = Monitoring(segment_field="b", novelty=NoveltyWatch(), **parts) if i == 0 else None
        options: dict[str, Any] = {"labels": labels, "state": state, "coverage": 0.9, "monitoring": watched}
        both = [Candidate("model", {}, lambda model=model: model), Candidate("other", {}, KernelClassifier)]
        options["candidates"] = both if i == 0 else ()
        engine = Engine(model, source, label="y", metric=metric, **options)
        engine.run()
        engine.parts.monitor.cluster = cluster_snapshot(5)
        yield engine


TABLE = [figure for figures in FIGURES.values() for figure in figures]


def test_a_scrape_has_every_figure_that_has_a_value(tmp_path: Path) -> None:
    found = {family.name: family for engine in engines(tmp_path) for family in EngineCollector(engine).collect()}
    named = {f"streamkernel_{figure.name}": figure for figure in TABLE if figure.name}
    assert found.keys() - named.keys() == {"streamkernel_build"}
    few = {"streamkernel_novelty_share", "streamkernel_expected_descent"}
    assert named.keys() - found.keys() == few  # which have no value after few events
    for name, figure in named.items():
        for sample in found[name].samples if name in found else ():
            assert set(figure.labels) == sample.labels.keys() - {"le"}
            assert found[name].type == figure.kind


def test_the_page_and_the_history_have_the_figures_of_the_table(tmp_path: Path) -> None:
    """The page reads these by name; a figure without a value has none on the page, rather than another one."""
    for engine in engines(tmp_path):
        engine.parts.monitor.add_point()
        now, point, scrape = status_of(engine)["now"], engine.history.columns(), values(engine)
        for page, metric in (("learned", "events_total/learned"), ("objective", "objective"), ("blocks", "seeds")):
            assert now[page] == scrape[f"streamkernel_{metric}"]
        for name, metric in (("dead_letters", "events_total/dead_letter"), ("step size", "step_size")):
            assert point[name][-1] == scrape[f"streamkernel_{metric}"]
        for kind in ("newton", "level"):
            assert (f"weight: {kind}" in point) == (f"streamkernel_function_weight/{kind}" in scrape)
        assert now["lag"] == scrape["streamkernel_consumer_lag/t/0"] == 3


def test_the_handbook_names_every_incident() -> None:
    (row,) = re.findall(r"^\| `streamkernel_incidents_total\{kind\}` .*$", MONITORING.read_text(), re.MULTILINE)
    assert re.findall(r"`(\w+)`", row) == list(INCIDENTS)


@pytest.mark.prometheus
def test_promtool_accepts_the_metrics(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is missing: apt-get install prometheus")
    for engine in engines(tmp_path):
        registry = CollectorRegistry()
        registry.register(EngineCollector(engine))
        done = subprocess.run(
            ["promtool", "check", "metrics"], input=generate_latest(registry), capture_output=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_metrics_match_the_run(tmp_path: Path) -> None:
    began = time.time()
    first, second, third, _ = (values(engine) for engine in engines(tmp_path))
    assert third["streamkernel_refit_gap"] <= Refit().tol
    assert "streamkernel_refit_gap" not in first
    assert first["streamkernel_events_total/learned"] == first["streamkernel_steps_total"] == 50
    assert first["streamkernel_grown_total"] == first["streamkernel_seeds"] == 4
    assert first["streamkernel_reused_total"] == 46
    checks = {outcome: first[f"streamkernel_checks_total/{outcome}"] for outcome in ("reused", "grew", "forced")}
    assert checks["grew"] == 4
    assert checks["reused"] + checks["forced"] == 46
    assert checks["forced"] > 0
    assert "streamkernel_checks_total/grew" not in second  # second-order learners make no such checks
    assert first["streamkernel_checked_step_size"] > 0.0
    assert first["streamkernel_source_position/t:0"] == 50
    assert first["streamkernel_consumer_lag/t/0"] == 3
    assert first["streamkernel_event_seconds_count"] == 50
    assert first["streamkernel_checkpoint_seconds_count"] == 2
    assert first["streamkernel_checkpoint_size_bytes"] == next((tmp_path / "0").glob("*2.safetensors")).stat().st_size
    assert began <= first["streamkernel_last_event_timestamp_seconds"] <= time.time()
    assert first["streamkernel_model_bytes"] > 64 * 2 * 8  # the coefficients alone
    assert first["streamkernel_cache_bytes"] > 0
    assert second["streamkernel_pending_labels"] == second["streamkernel_events_total/pending"] - 20 == 20
    assert second["streamkernel_groups"] == 5  # four blocks, and one group that forgets
    shares = [second[f"streamkernel_function_weight/{kind}"] for kind in ("newton", "constant", "level")]
    assert sum(shares) != 0.0


@pytest.mark.parametrize(
    "model",
    [
        KernelRegressor(kernels.Polynomial(2), learner="dsg", max_features=64),
        GaussianProcessRegressor(kernels.Polynomial(2), n_features=16),
        KernelRegressor(max_features=64),
    ],
    ids=["first order", "process", "second order"],
)
def test_bounded_predictions_and_outliers_are_on_the_page_and_in_the_metrics(model: Any) -> None:
    made = [record | {"y": 0.3 + record["a"] + record["b"]} for record in records(600)]
    for i in range(520, 600, 10):
        made[i] |= {"a": -200.0, "b": -200.0}
    made[400]["y"] = 1000.0
    engine = Engine(model, Records(made), label="y", metric=metrics.MAE())
    engine.run()
    engine.parts.monitor.take_snapshot()
    engine.parts.monitor.publish_model()
    bounded = model.n_bounded_predictions
    assert bounded > 0
    assert values(engine)["streamkernel_bounded_predictions_total"] == bounded
    assert values(engine)["streamkernel_outlying_targets_total"] == model.n_outlying_targets == 1
    assert status_of(engine)["about"]["range of targets"] == f"{bounded} predictions bounded, 1 outlying targets"


def test_a_model_without_a_range_of_targets_has_no_such_metrics() -> None:
    engine = Engine(linear_model.LinearRegression(), Records(records(3)), label="y", metric=metrics.MAE())
    assert not {"streamkernel_bounded_predictions", "streamkernel_outlying_targets"} & families(engine).keys()


def test_a_cluster_is_reported_where_there_is_one() -> None:
    engine = Engine(KernelClassifier(**nested(**FIRST)), Records(records(3)), label="y", metric=metrics.Accuracy())
    alone = values(engine)
    engine.parts.monitor.cluster = numbers = cluster_snapshot(3, workers=3)
    found = {name: value for name, value in values(engine).items() if name not in alone}
    assert found["streamkernel_workers"] == 3
    for worker in range(3):
        assert found[f"streamkernel_worker_events_total/{worker}"] == sum(one.events[worker] for one in numbers.recent)
        assert found[f"streamkernel_worker_seconds_total/{worker}"] == pytest.approx(
            sum(one.seconds[worker] for one in numbers.recent)
        )
    assert found["streamkernel_round_seconds_count"] == found["streamkernel_merge_seconds_count"] == 3
    assert found["streamkernel_round_seconds_sum"] == pytest.approx(sum(one.round_seconds for one in numbers.recent))
    assert found["streamkernel_merge_seconds_sum"] == pytest.approx(sum(one.merge_seconds for one in numbers.recent))
    assert found["streamkernel_replica_spread"] == numbers.last.spread
    engine.parts.monitor.cluster = cluster_snapshot(3)
    assert found.keys() - values(engine).keys() == {
        "streamkernel_worker_events_total/2", "streamkernel_worker_seconds_total/2",
    }  # fmt: skip


def test_scrapes_during_learning_are_consistent() -> None:
    """New labels arrive continually; each adds a column, and a row of a metric that iterates over all rows."""
    made = [record | {"y": i // 40} for i, record in enumerate(records(3000))]
    engine = Engine(KernelClassifier(**nested(**FIRST)), Records(made), label="y", metric=metrics.MacroF1())
    engine.parts.monitor.interval = 0.01
    seen: list[dict[str, float]] = []
    errors: list[Exception] = []

    def scrape() -> None:
        while learner.is_alive():
            try:
                seen.append(values(engine))
            except Exception as error:
                errors.append(error)
            learner.join(0.002)  # without a pause the readers would hold the interpreter's lock nearly always

    learner = threading.Thread(target=engine.run)
    readers = [threading.Thread(target=scrape) for _ in range(3)]
    for thread in (learner, *readers):
        thread.start()
    for thread in (learner, *readers):
        thread.join()
    seen.append(values(engine))
    assert not errors
    for found in seen:
        assert found["streamkernel_events_total/learned"] == found["streamkernel_steps_total"]
        assert (
            found["streamkernel_steps_total"] == found["streamkernel_grown_total"] + found["streamkernel_reused_total"]
        )
        assert found["streamkernel_event_seconds_count"] == found["streamkernel_steps_total"]
    assert seen[-1]["streamkernel_events_total/learned"] == 3000
    assert len({found["streamkernel_events_total/learned"] for found in seen}) > 2


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (None, "unreadable"),
        ({"a": 1.0}, "label"),
        ({"a": 1.0, "y": "text"}, "label"),
        ({"a": float("nan"), "y": 1.0}, "value"),
        ({"a": 1e90, "y": 1.0}, "value"),
        ({"y": 1.0}, "value"),
    ],
)
def test_dead_letters_by_reason(record: Any, reason: str) -> None:
    good = {"a": 1.0, "y": 1.0}
    engine = Engine(KernelRegressor(), Records([good, record, good]), label="y", metric=metrics.MAE())
    engine.run()
    found = values(engine)
    assert found[f"streamkernel_dead_letters_total/{reason}"] == found["streamkernel_events_total/dead_letter"] == 1


def test_errors_of_steps_and_failed_joins_are_counted(tmp_path: Path) -> None:
    class Broken(preprocessing.StandardScaler):
        def learn_one(self, x: Any) -> None:
            raise ZeroDivisionError

    model = Broken() | linear_model.LinearRegression()
    engine = Engine(model, Records([{"a": 1.0, "y": 1.0}]), label="y", metric=metrics.MAE())
    engine.run()
    assert engine.refused["error"] == 1
    twice: list[Any] = [{"id": 1, "a": 1.0}, {"id": 1, "a": 2.0}, {"a": 3.0}]
    engine = Engine(KernelRegressor(), Records(twice), label="y", metric=metrics.MAE(), labels=DelayedLabels("id"))
    engine.run()
    assert engine.refused["join"] == 2
    steep = KernelRegressor(learner=learners.DSG(step_size=step_sizes.Constant(1e200)))
    engine = Engine(steep, Records(records(9)), label="y", metric=metrics.MAE())
    engine.run()
    assert engine.refused["diverged"] > 0


def test_reasons_and_counters_survive_a_restart(tmp_path: Path) -> None:
    lines = [json.dumps(record) for record in records(30)]
    lines[5] = "no json"
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n")
    found = []
    for stop in (9, 10**6):
        asked = iter(range(10**7))
        engine = Engine(
            KernelClassifier(**nested(**FIRST)),
            FileSource(tmp_path / "events.jsonl"),
            label="y",
            metric=metrics.Accuracy(),
            state=StateDirectory(tmp_path / "state"),
        )
        engine.run(stopping=lambda asked=asked, stop=stop: next(asked) >= stop)  # type: ignore[misc]
        found.append(values(engine))
    assert found[0]["streamkernel_dead_letters_total/unreadable"] == 1
    assert found[1]["streamkernel_dead_letters_total/unreadable"] == 1
    assert found[1]["streamkernel_steps_total"] == found[1]["streamkernel_events_total/learned"] == 29


def test_a_failed_checkpoint_does_not_reset_the_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateDirectory(tmp_path)
    source = Records(records(30))
    engine = Engine(
        KernelClassifier(**nested(**FIRST)),
        source,
        label="y",
        metric=metrics.Accuracy(),
        state=state,
        checkpoint_seconds=0.0,
    )
    poll, ages, seconds = source.poll, [], itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(seconds), perf_counter=time.perf_counter)
    monkeypatch.setattr(checkpointer, "time", clock)

    prepare = StateDirectory.prepare

    def full(self: StateDirectory, state: Any) -> int:
        raise OSError(28, "No space left on device")

    def polled(timeout: float) -> Any:
        ages.append(values(engine)["streamkernel_checkpoint_age_seconds"])
        if len(ages) == 2:
            monkeypatch.setattr(StateDirectory, "prepare", full)
        if len(ages) == 5:
            monkeypatch.setattr(StateDirectory, "prepare", prepare)
        return poll(timeout)

    source.poll = polled  # type: ignore[method-assign]
    engine.run()
    assert ages[2] < ages[3] < ages[4]
    assert values(engine)["streamkernel_incidents_total/checkpoint_failed"] > 0
    assert ages[5] < ages[4]


def test_many_streams_are_reported_together() -> None:
    lags = {(f"file-{i}", "0"): 2 for i in range(3 * MOST)}
    engine = Engine(
        KernelClassifier(**nested(**FIRST)), Records(records(3), lags), label="y", metric=metrics.Accuracy()
    )
    engine.parts.checkpointer.positions = {f"file-{i}": i for i in range(3 * MOST)}
    engine.parts.monitor.take_snapshot()
    found = families(engine)
    assert len(found["streamkernel_consumer_lag"].samples) == MOST + 1
    assert sum(sample.value for sample in found["streamkernel_consumer_lag"].samples) == 6 * MOST
    assert len(found["streamkernel_source_position"].samples) == MOST


def test_a_source_that_changes_during_a_scrape_omits_one_metric() -> None:
    source = Records(records(3))

    def gone() -> Any:
        raise FileNotFoundError

    source.lag = gone  # type: ignore[method-assign]
    engine = Engine(KernelClassifier(**nested(**FIRST)), source, label="y", metric=metrics.Accuracy())
    found = families(engine)
    assert found["streamkernel_consumer_lag"].samples == []
    assert found["streamkernel_events"].samples
