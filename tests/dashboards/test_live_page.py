"""The live page in a real browser: its charts draw, its numbers update, and it is accessible to everyone."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_core_python.selenium import Axe
from made_up_cluster import cluster_snapshot
from river import linear_model, metrics
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from typer.testing import CliRunner
from waiting import wait_for

from connectors import DeadLetters, Event, FileSink
from streamkernel import KernelClassifier
from streamkernel.cli import app
from streamkernel.engine import Engine
from streamkernel.engine.challengers.roles import Candidate
from streamkernel.engine.checkpoint.state_directory import StateDirectory
from streamkernel.engine.http import serve
from streamkernel.engine.telemetry.status import status_of
from streamkernel.engine.telemetry.terminal import View

TITLES = [
    "Recent quality", "Coverage of the last 1,000", "Labels in a set", "Objective", "Features", "Step size",
    "Weights of functions", "Events per second", "Lag", "Dead letters",
]  # fmt: skip
SIZES = {"desk": (1200, 900), "phone": (390, 800)}


class Slow:
    """Events for as long as somebody looks, a few at a time."""

    def __init__(self) -> None:
        self.n = 0
        self.over = threading.Event()

    def poll(self, timeout: float) -> list[Event] | None:
        if self.over.wait(0.005):
            return None
        first, self.n = self.n, self.n + 16
        return [self._event(i) for i in range(first, self.n)]

    def _event(self, i: int) -> Event:
        if i % 500 == 499:
            return Event("numbers", i + 1, b"<script>alert(1)</script>", None, "Expected <b>JSON</b>, got other bytes")
        a, b = (i * 37 % 101) / 50.5 - 1.0, (i * 53 % 103) / 51.5 - 1.0
        return Event("numbers", i + 1, b"", {"a": a, "b": b, "y": a * b > 0})

    def seek(self, positions: Any) -> None:
        pass

    def lag(self) -> dict[tuple[str, str], int]:
        return {("numbers", "0"): 7}

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    source, model = Slow(), KernelClassifier(max_features=64)
    baseline = linear_model.LogisticRegression()
    other = Candidate("other", {}, lambda: KernelClassifier(max_features=64, learner="dsg"))
    both: dict[str, Any] = {"candidates": [Candidate("model", {}, lambda: model), other], "baseline": baseline}
    engine = Engine(model, source, label="y", metric=metrics.Accuracy(), coverage=0.9, **both)
    port = serve(engine, "127.0.0.1", 0)
    thread = threading.Thread(target=engine.run)
    thread.start()
    yield f"http://127.0.0.1:{port}/"
    source.over.set()
    thread.join()


@pytest.fixture(scope="module")
def driver() -> Iterator[webdriver.Chrome]:
    program, browser = shutil.which("chromedriver"), shutil.which("chromium")
    if program is None or browser is None:
        pytest.skip("the live page needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(program))
    yield found
    found.quit()


@pytest.fixture(params=list(SIZES))
def page(request: pytest.FixtureRequest, driver: webdriver.Chrome, address: str) -> webdriver.Chrome:
    driver.set_window_size(*SIZES[request.param])
    driver.get(address)
    wait_for(lambda: len(driver.find_elements(By.CSS_SELECTOR, "#events svg path")) >= 5)
    return driver


def number(page: webdriver.Chrome, name: str) -> float:
    path = f"//dl[@id='now']/div[dt[text()='{name}']]/dd"
    script = "return document.evaluate(arguments[0], document, null, XPathResult.STRING_TYPE).stringValue"
    return float(page.execute_script(script, path).replace(",", ""))


@pytest.mark.browser
def test_charts_and_numbers_update(page: webdriver.Chrome) -> None:
    titles = [title.text for title in page.find_elements(By.CSS_SELECTOR, "figure h3")]
    assert titles == TITLES
    lines = "return [...document.querySelectorAll('figure > svg path')].map(path => path.getAttribute('d'))"
    wait_for(lambda: all(line.count("L") > 5 for line in page.execute_script(lines)))
    legend = page.find_element(By.CSS_SELECTOR, ".legend").text
    assert "Accuracy" in legend
    assert "baseline" in legend
    before, line = number(page, "learned"), page.execute_script(lines)[0]
    wait_for(lambda: number(page, "learned") > before + 100)
    wait_for(lambda: page.execute_script(lines)[0] != line)
    assert page.find_element(By.ID, "state").text == "running"
    assert number(page, "lag") == 7
    assert "KernelClassifier" in page.find_element(By.ID, "model").text
    rows = [row.text.split() for row in page.find_elements(By.CSS_SELECTOR, "#compared tbody tr")]
    assert [row[:2] for row in rows] == [["model", "champion"], ["other", "challenger"]]


@pytest.mark.browser
def test_importances_are_bars(page: webdriver.Chrome) -> None:
    def shown() -> list[str]:
        return [item.text for item in page.find_elements(By.CSS_SELECTOR, "#importances li")]

    wait_for(lambda: len(shown()) == 2)
    script = "return [...document.querySelectorAll('#importances meter')].map(bar => bar.value)"
    assert sum(page.execute_script(script)) == pytest.approx(1.0)
    assert sorted(text[0] for text in shown()) == ["a", "b"]
    assert all(text.endswith(" %") for text in shown())


@pytest.mark.browser
def test_refused_records_are_shown_as_text(page: webdriver.Chrome) -> None:
    wait_for(lambda: page.find_elements(By.CSS_SELECTOR, "#dead li"))
    text = page.find_element(By.CSS_SELECTOR, "#dead li").text
    assert "Expected <b>JSON</b>, got other bytes" in text
    assert "<script>alert(1)</script>" in text


@pytest.mark.browser
def test_the_page_fits_narrow_screens(page: webdriver.Chrome) -> None:
    assert page.execute_script("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.browser
def test_a_chart_can_be_read_with_the_keyboard(page: webdriver.Chrome) -> None:
    chart = page.find_element(By.CSS_SELECTOR, "figure > svg")
    assert chart.get_attribute("aria-label").startswith("Recent quality over ")
    read = page.find_element(By.CSS_SELECTOR, ".read")
    page.execute_script("arguments[0].focus()", chart)
    chart.send_keys(Keys.HOME)
    first = read.text
    assert re.match(r"event \d+: Accuracy 0\.\d+, ", first)
    chart.send_keys(Keys.ARROW_RIGHT)
    assert read.text.partition(":")[0] != first.partition(":")[0]
    chart.send_keys(Keys.ESCAPE)
    assert read.text == ""


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible(page: webdriver.Chrome, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    assert page.execute_script("return matchMedia('(prefers-color-scheme: dark)').matches") == (scheme == "dark")
    found = Axe().run(page)
    assert [(problem["id"], problem["nodes"][0]["html"]) for problem in found["violations"]] == []
    assert len(found["passes"]) > 15


@pytest.mark.browser
def test_the_console_has_no_error(page: webdriver.Chrome) -> None:
    before = number(page, "learned")
    wait_for(lambda: number(page, "learned") > before + 100)
    assert [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.browser
def test_a_report_is_the_page_in_one_file(driver: webdriver.Chrome, tmp_path: Path) -> None:
    source = Slow()
    letters = DeadLetters(FileSink(tmp_path / "dead_letters.jsonl"))
    model = linear_model.LogisticRegression()
    engine = Engine(
        model, source, label="y", metric=metrics.Accuracy(), dead_letters=letters, state=StateDirectory(tmp_path)
    )
    engine.run(stopping=lambda: source.n > 2000)
    assert CliRunner().invoke(app, ["report", str(tmp_path), "--output", str(tmp_path / "report.html")]).exit_code == 0
    driver.get((tmp_path / "report.html").as_uri())
    titles = [title.text for title in driver.find_elements(By.CSS_SELECTOR, "figure h3")]
    assert titles == ["Recent quality", "Dead letters"]
    assert "checkpoint 2" in driver.find_element(By.ID, "state").text
    assert "<script>alert(1)</script>" in driver.find_element(By.ID, "dead").text
    assert "LogisticRegression" in driver.find_element(By.ID, "model").text
    assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert [problem["id"] for problem in Axe().run(driver)["violations"]] == []
    assert driver.execute_script("return performance.getEntriesByType('resource').length") == 0


@pytest.fixture(params=[3, 8])
def cluster(request: pytest.FixtureRequest) -> Engine:
    engine = Engine(KernelClassifier(max_features=64), Slow(), label="y", metric=metrics.Accuracy())
    engine.parts.monitor.cluster = cluster_snapshot(90, workers=request.param)
    return engine


@pytest.mark.browser
@pytest.mark.parametrize("size", SIZES)
def test_a_cluster_is_shown_where_there_is_one(driver: webdriver.Chrome, size: str, cluster: Engine) -> None:
    driver.set_window_size(*SIZES[size])
    driver.get(f"http://127.0.0.1:{serve(cluster, '127.0.0.1', 0)}/")
    wait_for(lambda: len(driver.find_elements(By.CSS_SELECTOR, "#rounds figure")) == 3)
    titles = [title.text for title in driver.find_elements(By.CSS_SELECTOR, "figure h3")]
    assert titles == ["Events per second, by worker", "Seconds per round", "Spread of replicas"]
    assert cluster.cluster is not None
    workers = len(cluster.cluster.last.events)
    assert number(driver, "workers") == workers
    assert number(driver, "round, s") == pytest.approx(cluster.cluster.last.round_seconds)
    assert number(driver, "merging, s") == pytest.approx(cluster.cluster.last.merge_seconds)
    assert number(driver, "spread of replicas") == cluster.cluster.last.spread
    legend = driver.find_element(By.CSS_SELECTOR, "#rounds .legend").text.split("\n")
    assert legend == (["worker 0", "worker 1", "worker 2"] if workers == 3 else ["fastest", "median", "slowest"])
    lines = driver.find_elements(By.CSS_SELECTOR, "#rounds figure:first-child > svg path")
    assert [line.get_attribute("class") for line in lines] == ["s0", "s1", "s2"]
    chart = driver.find_element(By.CSS_SELECTOR, "#rounds svg")
    assert chart.get_attribute("aria-label").startswith("Events per second, by worker in rounds 27 to 90; last: ")
    driver.execute_script("arguments[0].focus()", chart)
    chart.send_keys(Keys.HOME)
    assert driver.find_element(By.CSS_SELECTOR, "#rounds .read").text.startswith("round 27: ")
    assert [problem["id"] for problem in Axe().run(driver)["violations"]] == []
    assert driver.execute_script("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []
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


@pytest.mark.browser
def test_nothing_is_loaded_from_another_host(page: webdriver.Chrome, address: str) -> None:
    names = page.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert names
    assert all(name.startswith(address) or name.startswith("data:") for name in names)
