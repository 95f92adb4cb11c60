"""On a real Prometheus that scrapes real engines, every panel has data, and every fault has its alert."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import shutil
from collections.abc import Iterator
from typing import Any, NamedTuple

import brokers
import pytest
import yaml
from made_up_cluster import cluster_snapshot
from monitored import PROMETHEUS, Prometheus, Run, Served, Stream, scraping, until
from river import metrics

from dashboards.panels import DASHBOARDS
from streamkernel import KernelClassifier
from streamkernel.connectors import FileSource
from streamkernel.engine import Engine
from streamkernel.engine.http import serve
from streamkernel.warm_up import default_models, warm_up

pytestmark = pytest.mark.prometheus

RNG = random.Random(0)
VARIABLES = {"$job": ".+", "$instance": ".+", "$__rate_interval": "10s"}
SMALL = "max_features = 64\n"
TWO_CLASSES = """
[[challengers]]
name = "two"
model = { type = "KernelClassifier", learner = { type = "DSG", step_size = 1e-9 }, max_classes = 2 }
"""
LAST_TARGET = """
[[challengers]]
name = "last"
preprocessing = [{ type = "LastTarget" }, { type = "Binarizer", on = ["a"] }]
model = { type = "KernelRegressor", learner = "dsg", max_features = 64 }
"""
DETAILS = """
[delayed_labels]
key = "id"
max_pending = 2000
[quality]
metrics = ["F1"]
[segments]
field = "a"
most = 1
[monitoring]
window = 500
every = 1
"""
WINDOWS = "[monitoring]\nwindow = 500\n[drift]\nevery = 1\nscores = false\n[novelty]\nevery = 1\n"
MEMBER = """
[kafka]
servers = "{servers}"
group = "members"
"""


class House(NamedTuple):
    """Engines, the broker of the last process, one that says it is on a cluster, and what looks at them."""

    prometheus: Prometheus
    joined: Stream
    regressor: Stream
    slow: Stream
    steep: Stream
    member: Run
    served: Served
    broker: brokers.Broker
    cluster: Engine


def joined(i: int) -> dict[str, Any]:
    """Features, and their label in the next record; the last of five has to wait."""
    a, b = math.sin(7.0 * (i // 2)), math.cos(3.0 * (i // 2))
    if i % 2 == 0 or i % 10 == 9:
        return {"id": i // 2 if i % 2 == 0 else -i, "a": a, "b": b, "c": "text"}
    return {"id": i // 2, "y": a > 0.2}


def curve(i: int) -> dict[str, Any]:
    a = RNG.gauss(0, 1)
    return {"a": a, "y": 10.0 * math.sin(2.0 * a)}


def classes(i: int) -> dict[str, Any]:
    a, b = RNG.gauss(0, 1), RNG.gauss(0, 1)
    return {"a": a, "b": b, "y": a * b > 0}


def walk(i: int, at: list[float] = [1000.0]) -> dict[str, Any]:  # noqa: B006
    """Return an input that changes again and again, so that a drift also comes after a scrape that was too late."""
    at[0] += RNG.gauss(0, 1) * (30.0 if RNG.random() < 0.02 else 0.01)
    return {"a": 5.0 + 5.0 * (i // 1000 % 2) + RNG.gauss(0, 1), "y": at[0]}


def flat(i: int) -> dict[str, Any]:
    return {"a": RNG.gauss(0, 1), "y": 0.0}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is missing: apt-get install prometheus")
    for model in default_models().values():  # once for all of them, on a machine where nobody has
        warm_up(model)
    folder = tmp_path_factory.mktemp("house")
    (folder / "prometheus").mkdir()
    runs: list[Any] = []
    with brokers.noida(folder / "broker") as broker:
        try:
            refit = 'refit = { type = "Refit", every = 40, window = 40 }'
            first_order = f'type = "KernelClassifier"\n{SMALL}learner = "dsg"\n{refit}'
            steep = f'type = "KernelRegressor"\n{SMALL}learner = {{ type = "DSG", step_size = 1e200 }}'
            servers = f"127.0.0.1:{broker.port}"
            brokers.make_topics(servers, names=["events"])
            brokers.produce(servers, "events", [classes(i) for i in range(1500)])
            runs += [
                Stream(folder / "joined", first_order, joined, DETAILS + TWO_CLASSES),
                Stream(folder / "regressor", f'type = "KernelRegressor"\n{SMALL}', curve, LAST_TARGET + WINDOWS),
                Stream(folder / "slow", 'type = "KernelClassifier"\nmax_features = 4096', classes, first=300),
                Stream(folder / "steep", steep, flat),
                Run(folder / "member", 'topics = ["events"]', first_order, MEMBER.format(servers=servers)),
            ]
            until(lambda: all(run.is_ready() for run in runs), lambda: "an engine does not answer")
            (folder / "nothing.jsonl").touch()
            nothing = FileSource(folder / "nothing.jsonl")
            cluster = Engine(KernelClassifier(), nothing, label="y", metric=metrics.Accuracy())
            runs.append(Served(folder / "steep" / "state"))
            ports = [*(run.port for run in runs), serve(cluster, "127.0.0.1", 0)]
            with scraping(folder / "prometheus", ports) as prometheus:
                yield House(prometheus, *runs, broker, cluster)
        finally:
            for run in runs:
                run.stop()


def panel_expressions() -> list[str]:
    found = [query for _, _, panels in DASHBOARDS.values() for panel in panels for query, _ in panel.expressions]
    for name, value in VARIABLES.items():
        found = [query.replace(name, value) for query in found]
    return found


def rules(name: str) -> list[dict[str, Any]]:
    groups = yaml.safe_load((PROMETHEUS / name).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_every_expression_has_data_and_no_alert_fires_without_faults(house: House) -> None:
    selectors = [
        s for rule in rules("alerts.yml") for s in re.findall(r"[\w:]*streamkernel_[\w:]+(?:\{[^}]*\})?", rule["expr"])
    ]
    rounds = itertools.count(1)
    missing = {*panel_expressions(), *(rule["record"] for rule in rules("recording.yml")), *selectors}

    def all_there() -> bool:
        house.cluster.parts.monitor.cluster = cluster_snapshot(next(rounds))
        missing.difference_update([query for query in sorted(missing) if house.prometheus.query(query)])
        return not missing

    until(all_there, lambda: f"no data: {sorted(missing)}")
    until(lambda: not house.prometheus.firing(), lambda: f"firing: {house.prometheus.firing()}")


def test_every_fault_has_its_alert(house: House) -> None:
    """Minutes in the rules are seconds here."""
    seen: set[str] = set()

    def fire(*names: str) -> None:
        wanted = {f"Streamkernel{name}" for name in names}

        def fired() -> bool:
            seen.update(house.prometheus.firing())
            return wanted <= seen

        until(fired, lambda: f"silent: {sorted(wanted - seen)}")

    brokers.produce(f"127.0.0.1:{house.broker.port}", "events", [classes(i) for i in range(3000)])
    house.broker.kill()  # before what was learned just now is committed
    house.slow.each = 2000  # more than it can learn
    house.regressor.record = walk  # the inputs say nothing any more, and the last value says all
    house.regressor.each = 50
    (house.regressor.folder / "mirror").rename(house.regressor.folder / "away")
    (house.regressor.folder / "mirror").touch()  # where a folder belongs
    house.joined.pause()
    (house.joined.folder / "state").rename(house.joined.folder / "gone")
    unforeseen = [{"id": 10**6 + i, "a": 0.0} for i in range(1100)]
    unforeseen += [{"id": one["id"], "y": "never seen"} for one in unforeseen]
    house.joined.append("".join(json.dumps(one) + "\n" for one in unforeseen))
    never_labelled = [{"id": 2 * 10**6 + i, "a": 0.0} for i in range(4000)]
    house.joined.append("".join(json.dumps(one) + "\n" for one in never_labelled))
    house.joined.append("this is no record\n" * 50)
    house.steep.record = curve  # the first error is the last step
    fire("LagRising", "QualityFalling", "WorseThanBaseline", "CoverageLow", "InputsMoved", "Drift")
    fire("LabelsStopped", "LabelsLost")
    fire("DeadLetters", "Diverged", "CheckpointFailing", "ChallengerBetter", "ChallengerFailing")
    house.joined.append('{"id": 1, "half of')
    house.steep.process.kill()
    house.cluster.incidents["worker_lost"] += 1
    house.cluster.incidents["write_forbidden"] += 1
    fire("Stalled", "Down", "CheckpointOld", "MirrorBehind", "ServedModelOld", "KafkaTrouble", "WorkerLost")
    fire("WriteForbidden")
    assert seen == {rule["alert"] for rule in rules("alerts.yml")}
