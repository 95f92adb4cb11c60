"""The alerts of Prometheus on the metrics of engines in simulated time: a poll of the source a minute.

promtool evaluates the rules on what each engine has said at each minute.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from river import linear_model, metrics
from test_checkpointer import Cluster, Commits, Reader
from test_metrics import families

from streamkernel.connectors import Event
from streamkernel.engine import Engine, checkpointer
from streamkernel.engine.checkpoint.state_directory import StateDirectory
from streamkernel.engine.delayed_labels import DelayedLabels

pytestmark = pytest.mark.prometheus

RULES = Path(__file__).parents[2] / "dashboards" / "prometheus"
MINUTES = 150
ABOUT = ("streamkernel_checkpoint_", "streamkernel_labels", "streamkernel_features_since", "streamkernel_incidents")
"""Beginnings of the names of metrics that are noted."""

Said = dict[str, list[float | None]]
"""The value of each series at each minute, with a place for the name of the instance."""


class Clock:
    """Minutes that pass when a source is polled, and what an engine's metrics were at each."""

    def __init__(self) -> None:
        self.minute, self.said = 0, {}

    def seconds(self) -> float:
        """Return the time in seconds."""
        return 60.0 * self.minute

    def is_over(self) -> bool:
        """Return whether enough minutes have passed."""
        return self.minute > MINUTES

    def run(self, engine: Engine, poll: Callable[[int], list[Event]]) -> Said:
        """Run an engine that gets the events of a minute at each poll, and return its metrics by series."""

        def polled(timeout: float) -> list[Event]:
            engine.parts.monitor.take_snapshot()
            for family in families(engine).values():
                for sample in family.samples if family.name.startswith(ABOUT) else ():
                    labels = "".join(f', {name}="{value}"' for name, value in sample.labels.items())
                    series = self.said.setdefault(f'{sample.name}{{job="s", instance="%s"{labels}}}', [])
                    series += [None] * (self.minute - len(series)) + [sample.value]
            self.minute += 1
            return poll(self.minute)

        engine.source.poll = polled  # type: ignore[method-assign]
        engine.run(stopping=self.is_over)
        return self.said


def check_alerts(folder: Path, said: Mapping[str, Said], firing: Mapping[int, set[str]]) -> None:
    """Check which alerts fire on the metrics of instances at some minutes, named ``"instance: alert"``."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is missing: apt-get install prometheus")
    series = [
        {"series": name % instance, "values": " ".join("_" if v is None else f"{v:g}" for v in values)}
        for instance, of in said.items()
        for name, values in of.items()
    ]
    questions = []
    for minute, names in firing.items():
        pairs = [name.split(": ") for name in sorted(names)]
        samples = [f'{{alertname="Streamkernel{alert}", instance="{instance}"}}' for instance, alert in pairs]
        questions.append(
            {
                "expr": 'max by (alertname, instance) (ALERTS{alertstate="firing"})',
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": labels, "value": 1} for labels in samples],
            }
        )
    test = {"interval": "1m", "input_series": series, "promql_expr_test": questions}
    rules = {"rule_files": [str(RULES / name) for name in ("recording.yml", "alerts.yml")], "evaluation_interval": "1m"}
    (folder / "test.json").write_text(json.dumps(rules | {"tests": [test]}))
    words = ["promtool", "test", "rules", "test.json"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def run_with_commits(folder: Path, faults: list[str], monkeypatch: pytest.MonkeyPatch) -> Said:
    """Return the metrics of an engine whose commits meet faults, one a minute."""
    clock, source = Clock(), Reader(Cluster(), 1)
    commits, poll = Commits(source.cluster, faults), source.poll
    monkeypatch.setattr("streamkernel.engine.health.FIRST_PAUSE", 0.0)
    timing = SimpleNamespace(monotonic=clock.seconds, perf_counter=time.perf_counter)
    monkeypatch.setattr(checkpointer, "time", timing)
    engine = Engine(
        linear_model.LinearRegression(), source, label="y", metric=metrics.MAE(), sink=commits,
        state=StateDirectory(folder), transactions=commits, checkpoint_seconds=30.0,
    )  # fmt: skip
    return clock.run(engine, lambda minute: poll(0.0) or [])


def test_commits_that_are_refused_again_and_again_make_the_checkpoint_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine returns to its last checkpoint each minute, which makes that no younger."""
    faults = {"healthy": [], "once": ["none", "refused"] * 3, "refused": ["none", "none"] + ["refused"] * 60}
    said = {name: run_with_commits(tmp_path / name, some, monkeypatch) for name, some in faults.items()}
    (refusals,) = (values for series, values in said["refused"].items() if 'kind="commit_refused"' in series)
    assert refusals[50] - refusals[20] == 30
    trouble = {"refused: KafkaTrouble"}
    late = {40: {"refused: CheckpointOld"} | trouble, 60: {"refused: CheckpointOld"} | trouble}
    check_alerts(tmp_path, said, {4: set(), 7: trouble, 10: {"refused: CheckpointOld"} | trouble, **late, 120: set()})


class Records:
    """A source of what `Clock` gives to the engine."""

    def poll(self, timeout: float) -> list[Event]:
        raise NotImplementedError

    def lag(self) -> Mapping[tuple[str, str], int]:
        return {}

    def seek(self, positions: Mapping[str, Any]) -> None:
        pass

    def close(self) -> None:
        pass


def run_with_labels(label_at: Callable[[int], tuple[int, str] | None], **options: Any) -> Said:
    """Return the metrics of an engine that gets the features of two keys a minute.

    `label_at` returns the minute of a key's label, and its key; or ``None`` if it never comes.
    """
    clock, labels, n = Clock(), {}, itertools.count(1)
    for i in range(2 * MINUTES):
        if (label := label_at(i)) is not None:
            labels.setdefault(label[0], []).append({"id": label[1], "y": float(i % 5)})

    def poll(minute: int) -> list[Event]:
        features = [{"id": f"{i}", "a": i % 7 / 7.0} for i in range(2 * minute, 2 * minute + 2)]
        return [Event("t:0", next(n), b"", record) for record in [*features, *labels.get(minute, ())]]

    joined = DelayedLabels("id", clock=clock.seconds, **options)
    engine = Engine(linear_model.LinearRegression(), Records(), label="y", metric=metrics.MAE(), labels=joined)
    return clock.run(engine, poll)


def test_labels_that_are_lost_or_stop_raise_alerts_and_labels_that_are_late_do_not(tmp_path: Path) -> None:
    said = {
        "soon": run_with_labels(lambda i: (i // 2 + 1, f"{i}")),
        "late": run_with_labels(lambda i: (i // 2 + 40, f"{i}")),
        "in batches": run_with_labels(lambda i: (i // 2 // 30 * 30 + 30, f"{i}")),
        "few": run_with_labels(lambda i: (i // 2 + 2, f"{i}") if i % 50 else None, timeout_seconds=600.0),
        "stop": run_with_labels(lambda i: (i // 2 + 1, f"{i}") if i < 60 else None),
        "expire": run_with_labels(lambda i: (i // 2 + 2, f"{i}") if i % 2 else None, timeout_seconds=600.0),
        "too late": run_with_labels(lambda i: (i // 2 + 40, f"{i}"), timeout_seconds=600.0),
        "other keys": run_with_labels(lambda i: (i // 2 + 1, f"key {i}"), max_pending=20),
    }
    for name in ("expire", "too late", "other keys"):
        assert any(
            values[-1] > 50 for series, values in said[name].items() if "expired" in series or "evicted" in series
        )
    lost = {f"{name}: LabelsLost" for name in ("expire", "too late", "other keys")}
    stopped = {f"{name}: LabelsStopped" for name in ("too late", "other keys")}
    check_alerts(
        tmp_path,
        said,
        {5: set(), 30: lost, 70: lost, 80: lost | stopped, 140: lost | stopped | {"stop: LabelsStopped"}},
    )
