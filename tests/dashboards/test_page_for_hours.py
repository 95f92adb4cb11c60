"""The live page over hours and with numbers of any size, given statuses that a run might send."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from river import metrics
from seen import SIZES, awaited, errors, fits, look, violations
from selenium import webdriver
from selenium.webdriver.common.by import By
from test_live_page import Slow

from streamkernel import KernelClassifier
from streamkernel.engine import Engine
from streamkernel.engine.http import serve
from streamkernel.engine.telemetry.status import status_of

pytestmark = pytest.mark.browser

POINTS = 128
UPDATES, PIECE = 1200, 100
MARKS = {
    "drift": "drift (kernel): mean of a +2.0 standard deviations",
    "promotion": "promoted: newton in place of model",
    "rebalance": "rebalance: partitions of other members now: 2",
    "resumed": "resumed from checkpoint 7",
}
COUNTERS = ("Nodes", "JSEventListeners", "JSHeapUsedSize")


def made_up(engine: Engine) -> dict[str, Any]:
    """Return the status of a run of 128,000 events whose quality falls after a change of its inputs."""
    at = range(POINTS)
    quality = [0.9 if not 80 <= i < 90 else 0.4 for i in at]
    since_start = [sum(quality[: i + 1]) / (i + 1) for i in at]
    history = {
        "events": [1000 * (i + 1) for i in at],
        "learned": [1000 * (i + 1) for i in at],
        "time": [1.7e9 + 10 * i for i in at],
        "lag": [1e9 - 7e6 * i for i in at],
        "dead_letters": list(at),
        "quality: Accuracy": since_start,
        "objective": [2e-7 + 1e-9 * i for i in at],
        "features": [123_456_789 for _ in at],
        "step size": [-12_345.678 + i for i in at],
    }
    marks = [{"kind": kind, "event": 80_000, "time": 1.7e9 + 800, "text": text} for kind, text in MARKS.items()]
    marks += [{"kind": "checkpoint", "event": 99_000, "time": 1.7e9 + 990, "text": "checkpoint 8"}]
    samples = [{"stream": "events:0", "reason": "Expected a number, got 'x'", "raw": "{}"}]
    groups = [{"reason": f"Expected {i}", "count": i, "time": 0.0, "samples": samples} for i in range(8)]
    details = {"history": history, "marks": marks, "dead_letter_groups": groups, "is_mean": True}
    return status_of(engine) | details | {"events": 128_000, "importances": {f"field {i}": 0.1 for i in range(10)}}


@pytest.fixture(scope="module", params=list(SIZES))
def page(request: pytest.FixtureRequest, driver: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    engine = Engine(KernelClassifier(), Slow(), label="y", metric=metrics.Accuracy())
    look(driver, request.param)
    driver.get(f"http://127.0.0.1:{serve(engine, '127.0.0.1', 0)}/")
    awaited(driver, "page.stop(); window.made = values[0]; page.show(window.made)", made_up(engine))
    yield driver
    assert errors(driver) == []


def test_no_number_of_an_axis_is_cut_off(page: webdriver.Chrome) -> None:
    script = """
        await new Promise((next) => setTimeout(next, 100));
        const edges = ({ plot: { ctx, bbox } }) => {
            const { width, height } = ctx.canvas;
            const alpha = (value, i) => i % 4 === 3 && value > 0;
            const drawn = (...box) => ctx.getImageData(...box).data.filter(alpha).length;
            const [left, right] = [0, width - 1].map((x) => drawn(x, 0, 1, height));
            const [top, bottom] = [0, height - 1].map((y) => drawn(0, y, width, 1));
            return [left, right, top, bottom, drawn(0, 0, bbox.left - 1, height)];
        };
        return [...draw.run.charts.values()].map(edges);
    """
    found = awaited(page, script)
    assert len(found) == 7
    assert [edges[:4] for edges in found] == [[0, 0, 0, 0]] * 7, "something is drawn at the border of a chart"
    assert all(edges[4] > 30 for edges in found), "a chart has no numbers at its left"


def test_marks_are_listed_and_explain_a_fall_of_quality(page: webdriver.Chrome) -> None:
    found = page.find_elements(By.CSS_SELECTOR, "#marks li")
    assert {mark.get_attribute("data-kind") for mark in found} == set(MARKS)
    assert "mean of a +2.0 standard deviations" in page.find_element(By.ID, "marks").text
    text = page.find_element(By.ID, "dip").text
    assert text.startswith("Recent quality was 0.4 near event 8")
    assert f"Shortly before: {MARKS['drift']} at event 80,000; " in text


def test_marks_are_drawn_in_every_chart(page: webdriver.Chrome) -> None:
    script = """
        const drift = (chart) => {
            const { ctx, bbox } = chart.plot, x = Math.round(chart.plot.valToPos(values[0], "x", true));
            const { data } = ctx.getImageData(x - 1, bbox.top, 2, bbox.height);
            return data.filter((value, i) => i % 4 === 3 && value > 0).length / bbox.height;
        };
        return [...draw.run.charts.values()].map(drift);
    """
    assert min(awaited(page, script, 80_000)) > 0.9
    assert max(awaited(page, script, 70_000)) < 0.2


def test_long_values_fit_and_are_accessible(page: webdriver.Chrome) -> None:
    assert fits(page)
    assert violations(page) == []


@pytest.mark.parametrize("page", ["desk"], indirect=True)
def test_the_page_does_not_grow_with_its_updates(page: webdriver.Chrome) -> None:
    """Each update has new points, marks, dead letters and figures, as one each second has."""
    script = """
        const counts = Array.from({ length: values[1] }, (_, i) => values[0] + i), { made } = window;
        for (const n of counts) {
            const shifted = ([name, all]) => [name, all.map((value) => value === null ? null : value + n / 7)];
            const history = Object.fromEntries(Object.entries(made.history).map(shifted));
            const marks = made.marks.map((mark) => ({ ...mark, event: mark.event + n, text: `${mark.text} ${n}` }));
            const samples = [{ stream: "events:0", reason: `got ${n}`, raw: `record ${n}` }];
            const changed = (group, i) => ({ ...group, reason: `Expected ${n + i}`, samples });
            const groups = made.dead_letter_groups.map(changed);
            const now = { ...made.now, learned: n, lag: n % 3, "dead letters": n };
            page.show({ ...made, clock: made.clock + n, now, history, marks, dead_letter_groups: groups });
            await null;
            if (n % 100 === 0) await new Promise((next) => setTimeout(next));
        }
    """
    page.execute_cdp_cmd("Performance.enable", {})
    measured = []
    for first in range(0, UPDATES, PIECE):
        awaited(page, script, first, PIECE)
        if first + PIECE not in (2 * PIECE, UPDATES):
            continue
        page.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        named = {one["name"]: one["value"] for one in page.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]}
        measured.append([named[name] for name in COUNTERS])
    (nodes, listeners, heap), (nodes_later, listeners_later, heap_later) = measured
    assert nodes_later <= nodes + 20
    assert listeners_later <= listeners + 20
    assert heap_later < 1.1 * heap
