"""Labels that stop, never match or come too late are in the log, in the metrics, and in the data of the page."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from streamkernel.engine import Engine
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config.config import load_config
from streamkernel.engine.telemetry.status import EngineCollector, status_of

CONFIG = """
label = "y"
[source]
path = "events.jsonl"
[model]
type = "KernelClassifier"
learner = "dsg"
max_features = 64
[delayed_labels]
key = "id"
time = "t"
{limit}
[state]
directory = "state"
"""

MANY_PENDING = "max_pending = 300"


def features(i: int, key: Any = None, hours: float = 0.0) -> dict[str, Any]:
    return {"id": i if key is None else key, "t": 1.7e9 + i + 3600.0 * hours, "a": i % 7}


def label(i: int, key: Any = None, hours: float = 0.0) -> dict[str, Any]:
    return {"id": i if key is None else key, "t": 1.7e9 + i + 3600.0 * hours, "y": i % 7 > 3}


def joined(n: int, first: int = 0) -> list[dict[str, Any]]:
    return [record for i in range(first, first + n) for record in (features(i), label(i))]


STREAMS: dict[str, tuple[str, list[dict[str, Any]], str, dict[str, int]]] = {
    "labels stop": (
        MANY_PENDING,
        [*joined(500), *(features(i) for i in range(500, 1500))],
        "no label has come for the last 1,000 features, and 700 were dropped unlearned: look for the source of labels",
        {"joined": 500, "evicted": 700},
    ),
    "other keys": (
        "",
        [record for i in range(150) for record in (features(i), label(i, f"order-{i}"))],
        "none of the last 150 labels has the key of one of the last 150 features: compare their keys, unless the run "
        "has not seen the features of these labels",
        {"joined": 0},
    ),
    "labels too late": (
        "timeout_seconds = 60",
        [*(features(i) for i in range(200)), *(label(i, hours=1.0) for i in range(200))],
        "the last 200 labels came after their features were dropped: raise delayed_labels.timeout_seconds or "
        "max_pending, or send labels sooner",
        {"joined": 0, "expired": 200, "late": 200},
    ),
    "some are missing": (
        "timeout_seconds = 60",
        [record for i in range(1000) for record in ([features(i), label(i)] if i % 5 else [features(i)])],
        "labels are missing, have other keys, or come later than delayed_labels.timeout_seconds allows",
        {"joined": 800, "expired": 188},
    ),
}


def ran(folder: Path, limit: str, records: Sequence[dict[str, Any]]) -> Engine:
    (folder / "events.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "run.toml").write_text(CONFIG.format(limit=limit))
    engine = engine_of(load_config(folder / "run.toml"))
    engine.run()
    engine.parts.monitor.take_snapshot()
    return engine


def metric(engine: Engine, name: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(EngineCollector(engine))
    return registry.get_sample_value(name)


@pytest.mark.parametrize(("limit", "records", "reason", "counts"), STREAMS.values(), ids=STREAMS.keys())
def test_losses_are_loud(
    tmp_path: Path, limit: str, records: list[dict[str, Any]], reason: str, counts: dict[str, int]
) -> None:
    with capture_logs() as logs:
        engine = ran(tmp_path, limit, records)
    (warning,) = (one for one in logs if one["event"] == "labels and features do not join")
    assert warning["log_level"] == "warning"
    if limit != "timeout_seconds = 60":  # else the first hundred may have another cause than all
        assert re.sub(r"[\d,]+", "n", warning["reason"]) == re.sub(r"[\d,]+", "n", reason)
    assert warning["key_of_features"] in {str(record["id"]) for record in records if "a" in record}
    assert {name: engine.labels[name] for name in counts} == counts
    labels = status_of(engine)["labels"]
    assert labels["is_losing"] == any(counts.get(name, 0) for name in labels["lost"])
    assert labels["why_none_joins"] == ("" if counts["joined"] == 800 else reason)
    assert metric(engine, "streamkernel_features_since_joined") == {500: 1000, 800: 0}.get(
        counts["joined"], sum("a" in record for record in records)
    )


def test_shares_of_losses(tmp_path: Path) -> None:
    limit, records, *_ = STREAMS["some are missing"]
    lost = status_of(ran(tmp_path, limit, records))["labels"]["lost"]
    assert lost["expired"] == {"count": 188, "share": 188 / 988}
    assert lost["late"] == {"count": 0, "share": 0.0}


@pytest.mark.parametrize("records", [joined(500), [*joined(100), *(features(i) for i in range(100, 400))]])
def test_labels_that_join_or_may_still_come_are_no_news(tmp_path: Path, records: list[dict[str, Any]]) -> None:
    with capture_logs() as logs:
        engine = ran(tmp_path, MANY_PENDING, records)
    assert not [one for one in logs if one["log_level"] == "warning"]
    labels = status_of(engine)["labels"]
    assert (labels["is_losing"], labels["why_none_joins"]) == (False, "")


def test_a_restart_remembers_what_came_since_a_label_was_joined(tmp_path: Path) -> None:
    limit, records, reason, _ = STREAMS["labels stop"]
    ran(tmp_path, limit, records[:1200])
    engine = ran(tmp_path, limit, records)
    assert status_of(engine)["labels"]["why_none_joins"] == reason
    whole = tmp_path / "whole"
    whole.mkdir()
    assert ran(whole, limit, records).parts.processor.labels.since_joined == engine.parts.processor.labels.since_joined  # type: ignore[union-attr]


ENDS: dict[str, tuple[str, list[dict[str, Any]], str, dict[str, Any]]] = {
    "keys in another form": (
        "",
        [record for i in range(5) for record in (features(i), label(i, f"{i:04}"))],
        "compare their keys, unless the run has not seen the features of these labels",
        {"joined": 0, "unmatched": 5, "pending": 5, "key_of_features": "4", "key_of_label": "0004"},
    ),
    "one label without features": (
        "",
        [*joined(5), label(7)],
        "compare their keys, unless the run has not seen the features of these labels",
        {"joined": 5, "unmatched": 1, "pending": 0, "key_of_label": "7"},
    ),
    "features that expired": (
        "timeout_seconds = 60",
        [features(0), features(1), *joined(1, 40), *joined(1, 80)],
        "labels are missing, have other keys, or come later than delayed_labels.timeout_seconds allows",
        {"joined": 2, "expired": 2, "pending": 0, "key_of_features": "1"},
    ),
    "no label": (
        "",
        [features(i) for i in range(5)],
        "no label has come for pending features",
        {"joined": 0, "pending": 5, "key_of_features": "4"},
    ),
}


@pytest.mark.parametrize(("limit", "records", "reason", "figures"), ENDS.values(), ids=ENDS.keys())
def test_the_end_tells_what_is_left(
    tmp_path: Path, limit: str, records: list[dict[str, Any]], reason: str, figures: dict[str, Any]
) -> None:
    with capture_logs() as logs:
        ran(tmp_path, limit, records)
    (warning,) = (one for one in logs if one["log_level"] == "warning")
    assert warning.pop("event") == "the stream has ended without some labels or features"
    assert warning == {"log_level": "warning", "reason": reason, **figures}


def test_an_end_on_request_tells_nothing(tmp_path: Path) -> None:
    ran(tmp_path, "", [])
    (tmp_path / "events.jsonl").write_text(json.dumps(features(1)) + "\n")
    engine = engine_of(load_config(tmp_path / "run.toml"))
    with capture_logs() as logs:
        engine.run(lambda: engine.outcomes["predicted"] > 0)
    assert engine.pending_labels == 1
    assert not [one for one in logs if "has ended" in one["event"]]
