"""The part of the live page on a cluster: what the workers did in the last rounds."""

from __future__ import annotations

import pytest
from made_up_cluster import cluster_snapshot
from river import metrics
from seen import errors, fits, look, titles, violations
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from test_live_page import Slow
from waiting import wait_for

from streamkernel import KernelClassifier
from streamkernel.engine import Engine
from streamkernel.engine.http import serve
from streamkernel.engine.telemetry.status import status_of
from streamkernel.engine.telemetry.terminal import View


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Engine:
    engine = Engine(KernelClassifier(max_features=64), Slow(), label="y", metric=metrics.Accuracy())
    engine.parts.monitor.cluster = cluster_snapshot(90, workers=getattr(request, "param", 3))
    return engine


@pytest.mark.browser
@pytest.mark.parametrize(("cluster", "size"), [(3, "desk"), (8, "phone")], indirect=["cluster"])
def test_a_cluster_is_shown_where_there_is_one(driver: webdriver.Chrome, size: str, cluster: Engine) -> None:
    look(driver, size)
    driver.get(f"http://127.0.0.1:{serve(cluster, '127.0.0.1', 0)}/")
    wait_for(lambda: len(driver.find_elements(By.CSS_SELECTOR, "#rounds canvas")) == 3)
    assert titles(driver) == ["Events per second, by worker", "Seconds per round", "Spread of replicas"]
    assert cluster.cluster is not None
    last = cluster.cluster.last
    figures = driver.find_element(By.ID, "workers").text.split("\n")
    assert figures[::2] == ["workers", "round, s", "merging, s", "spread of replicas"]
    shown = [float(text) for text in figures[1::2]]
    assert shown == pytest.approx([len(last.events), last.round_seconds, last.merge_seconds, last.spread], abs=1e-4)
    names = [
        text.rpartition(" ")[0] for text in driver.find_element(By.CSS_SELECTOR, "#rounds .legend").text.split("\n")
    ]
    three = len(last.events) == 3
    assert names == (["worker 0", "worker 1", "worker 2"] if three else ["fastest", "median", "slowest"])
    chart = driver.find_element(By.CSS_SELECTOR, "#rounds .plot")
    label = chart.get_attribute("aria-label") or ""
    assert label.startswith("Events per second, by worker up to round 90; last: ")
    driver.execute_script("arguments[0].focus()", chart)
    chart.send_keys(Keys.HOME)
    spoken = driver.find_element(By.CSS_SELECTOR, "#rounds .read").get_property("textContent")
    assert str(spoken).startswith("round 27: ")
    assert violations(driver) == []
    assert fits(driver)
    assert errors(driver) == []
    cluster.parts.monitor.cluster = None
    wait_for(lambda: not driver.find_element(By.ID, "cluster").is_displayed())


def test_rounds_with_idle_and_missing_workers(cluster: Engine) -> None:
    two, three = cluster_snapshot(2).recent, cluster_snapshot(4, workers=3, spread=0.5).recent[2:]
    idle = three[1]._replace(events=(0, 1000, 1000), seconds=(0.001, 1.0, 2.0))
    cluster.parts.monitor.cluster = cluster_snapshot(9)._replace(recent=(*two, three[0], idle), last=idle)
    found = status_of(cluster)
    assert found["cluster"]["round"] == [6, 7, 8, 9]
    rates = {"worker 0": [2000, 2002, 2004, None], "worker 1": [1000, 1001, 1002, 1000]}
    assert found["cluster"]["rates"] == rates | {"worker 2": [None, None, 1002 / 1.5, 500]}
    assert found["cluster"]["spread"] == [0.25, 0.25, 0.5, 0.5]
    assert found["now"]["spread of replicas"] == 0.5
    rows = dict(View(cluster, "").rows())
    shown = [rows[name] for name in ("workers", "round, s", "merging, s", "spread of replicas")]
    assert shown == ["3", "1.57", "0.05", "0.5000"]
    cluster.parts.monitor.cluster = None
    assert status_of(cluster)["cluster"] is None
    assert not {"workers", "spread of replicas"} & {*status_of(cluster)["now"], *dict(View(cluster, "").rows())}
