"""The live page of a running engine in a real browser: it answers its questions, and everyone can read it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from river import linear_model, metrics
from seen import SIZES, awaited, errors, fits, look, titles, violations
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from typer.testing import CliRunner
from waiting import wait_for

from streamkernel import KernelClassifier
from streamkernel.cli import app
from streamkernel.connectors import DeadLetters, Event, FileSink
from streamkernel.engine import Engine
from streamkernel.engine.checkpoint.state_directory import StateDirectory
from streamkernel.engine.http import serve
from streamkernel.engine.roles import Candidate

pytestmark = pytest.mark.browser

QUESTIONS = ["Is it healthy?", "How good is it?", "What changed?", "How does it learn?"]
TITLES = [
    "Events per second", "Lag", "Dead letters", "Recent quality", "Coverage of the last 1,000", "Labels in a set",
    "Objective", "Features", "Step size", "Weights of functions", "Expected gain of features",
]  # fmt: skip
RECENT = "#scores .plot"


class Slow:
    """Events for as long as somebody looks, a few at a time: the first ones soon, so that there is something to see."""

    def __init__(self) -> None:
        self.n = 0
        self.over = threading.Event()

    def poll(self, timeout: float) -> list[Event] | None:
        if self.over.wait(0.005 if self.n < 4000 else 0.05):
            return None
        first, self.n = self.n, self.n + 16
        return [self._event(i) for i in range(first, self.n)]

    def _event(self, i: int) -> Event:
        if i % 500 == 499:
            return Event("numbers", i + 1, b"<script>alert(1)</script>", None, f"Expected <b>JSON</b>, got {i}")
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


@pytest.fixture(scope="module", params=list(SIZES))
def page(request: pytest.FixtureRequest, driver: webdriver.Chrome, address: str) -> webdriver.Chrome:
    look(driver, request.param)
    driver.get(address)
    wait_for(lambda: len(driver.find_elements(By.CSS_SELECTOR, ".plot canvas")) == len(TITLES))
    wait_for(lambda: driver.find_elements(By.CSS_SELECTOR, "#dead li"))
    wait_for(lambda: learned(driver) > 1000)  # a snapshot is a second old, and may be that of the start
    return driver


def learned(page: webdriver.Chrome) -> int:
    path = "//dl[@id='now']/div[dt[text()='learned']]/dd"
    return int(page.find_element(By.XPATH, path).text.replace(",", ""))


def ranges(page: webdriver.Chrome) -> list[list[float]]:
    """Return the least and the largest value of the horizontal axis of each chart."""
    script = "return [...draw.run.charts.values()].map(({ plot }) => [plot.scales.x.min, plot.scales.x.max])"
    found: list[list[float]] = awaited(page, script)
    return found


def legends(page: webdriver.Chrome, part: str) -> list[str]:
    """Return a part of each legend."""
    script = "return [...document.querySelectorAll(arguments[0])].map((part) => part.textContent)"
    found: list[str] = page.execute_script(script, f".legend {part}")
    return found


def test_four_questions_are_answered_in_order(page: webdriver.Chrome) -> None:
    assert [found.text for found in page.find_elements(By.CSS_SELECTOR, "h2")][:4] == QUESTIONS
    assert titles(page) == TITLES
    assert page.find_element(By.ID, "state").text == "running"
    assert page.find_element(By.ID, "well").text == "Yes"
    assert re.fullmatch(r"[01](\.\d+)? Accuracy, last 1,000", page.find_element(By.CSS_SELECTOR, "#quality p").text)
    assert re.search(r"(better|worse) than the baseline", page.find_element(By.ID, "verdict").text)
    assert "lag\n7" in page.find_element(By.ID, "now").text
    rows = [row.text.split() for row in page.find_elements(By.CSS_SELECTOR, "#compared tbody tr")]
    assert [row[:2] for row in rows] == [["model", "champion"], ["other", "challenger"]]
    assert {"Accuracy", "Accuracy (baseline)"} <= {item.rpartition(" ")[0] for item in legends(page, "li")}


def test_numbers_and_charts_update(page: webdriver.Chrome) -> None:
    before, last = learned(page), ranges(page)[0][1]
    wait_for(lambda: learned(page) > before + 100)
    wait_for(lambda: ranges(page)[0][1] > last)
    assert len({tuple(found) for found in ranges(page)}) == 1


def test_importances_are_bars(page: webdriver.Chrome) -> None:
    def shown() -> list[str]:
        return [item.text for item in page.find_elements(By.CSS_SELECTOR, "#importances li")]

    wait_for(lambda: len(shown()) == 2)
    script = "return [...document.querySelectorAll('#importances meter')].map(bar => bar.value)"
    assert sum(page.execute_script(script)) == pytest.approx(1.0)
    assert sorted(text[0] for text in shown()) == ["a", "b"]
    assert all(text.endswith(" %") for text in shown())


def test_dead_letters_are_grouped_by_reason_and_shown_as_text(page: webdriver.Chrome) -> None:
    wait_for(lambda: not page.find_element(By.CSS_SELECTOR, "#dead b").text.startswith("1 "))
    (group,) = page.find_elements(By.CSS_SELECTOR, "#dead li")
    assert re.fullmatch(r"[\d,]+ × Expected <b>JSON</b>", group.text.partition("\n")[0])
    group.find_element(By.TAG_NAME, "summary").click()
    samples = group.text.split("\n")[2:]
    assert "numbers: <script>alert(1)</script>" in samples
    assert re.fullmatch(r"Expected <b>JSON</b>, got \d+99", samples[0])


def test_the_page_fits_narrow_screens(page: webdriver.Chrome) -> None:
    assert fits(page)


def test_the_pointer_reads_all_charts_at_once(page: webdriver.Chrome) -> None:
    over = page.find_element(By.CSS_SELECTOR, f"{RECENT} .u-over")
    page.execute_script("arguments[0].scrollIntoView({ block: 'center' })", over)
    width = over.size["width"]
    for right in range(-width // 4, width // 4, width // 20):
        ActionChains(page).move_to_element_with_offset(over, right, 0).perform()
        wait_for(lambda: re.match(r"event [\d,]+", legends(page, ".note")[0]))
        assert len({note.partition(";")[0] for note in legends(page, ".note")}) == 1, right
    ActionChains(page).move_to_element(page.find_element(By.ID, "quality-title")).perform()
    wait_for(lambda: not any(legends(page, ".note")))


def test_a_reading_stays_at_a_point_of_a_history_that_is_thinned(page: webdriver.Chrome) -> None:
    script = """
        const { run } = draw, { x, kept } = run, thinned = x.filter((_, i) => i % 2 === 0);
        run.read(x[5]);
        run.points(thinned);
        const { reading } = run;
        Object.assign(run, { x, kept });
        run.read(null);
        return [reading, thinned];
    """
    read, thinned = awaited(page, script)
    assert read in thinned


def test_a_drag_zooms_all_charts(page: webdriver.Chrome) -> None:
    over = page.find_element(By.CSS_SELECTOR, f"{RECENT} .u-over")
    width = over.size["width"]
    drag = ActionChains(page).move_to_element_with_offset(over, -width // 4, 0).click_and_hold()
    drag.move_by_offset(width // 4, 0).release().perform()
    wait_for(lambda: ranges(page)[0][0] > 0)
    (found,) = {tuple(found) for found in ranges(page)}
    before = learned(page)
    wait_for(lambda: learned(page) > before + 100)
    assert {tuple(found) for found in ranges(page)} == {found}
    page.find_element(By.ID, "whole").click()
    wait_for(lambda: ranges(page)[0][0] == 0)
    assert not page.find_element(By.ID, "whole").is_enabled()


def test_a_zoom_that_reaches_the_newest_event_follows_the_run(page: webdriver.Chrome) -> None:
    page.find_element(By.ID, "closer").click()
    low, high = ranges(page)[0]
    assert low == pytest.approx(high / 2)
    wait_for(lambda: ranges(page)[0][1] > high)
    now = ranges(page)[0]
    assert now[1] - now[0] == pytest.approx(high - low)
    while (button := page.find_element(By.ID, "farther")).is_enabled():
        button.click()
    assert ranges(page)[0][0] == 0


def test_a_chart_is_read_and_zoomed_with_the_keyboard(page: webdriver.Chrome) -> None:
    chart = page.find_element(By.CSS_SELECTOR, RECENT)
    assert re.match(r"Recent quality up to event [\d,]+; last: Accuracy ", chart.get_attribute("aria-label") or "")
    read = page.find_element(By.CSS_SELECTOR, "#scores .read")
    page.execute_script("arguments[0].focus()", chart)
    chart.send_keys(Keys.HOME)
    first = read.get_property("textContent")
    assert re.match(r"event [\d,]+: Accuracy [01](\.\d+)?, ", first)
    assert len({note.partition(";")[0] for note in legends(page, ".note")}) == 1
    chart.send_keys(Keys.ARROW_RIGHT)
    assert read.get_property("textContent").partition(":")[0] != first.partition(":")[0]
    chart.send_keys("+")
    low, high = ranges(page)[0]
    assert high < learned(page)
    chart.send_keys("0", Keys.ESCAPE)
    assert ranges(page)[0][1] > high > low
    assert read.get_property("textContent") == ""


def test_the_axis_may_be_time(page: webdriver.Chrome) -> None:
    page.find_element(By.CSS_SELECTOR, "#axis [value=time]").click()
    chart = page.find_element(By.CSS_SELECTOR, RECENT)
    wait_for(lambda: re.match(r"Recent quality up to \d\d:\d\d:\d\d; ", chart.get_attribute("aria-label") or ""))
    assert min(low for low, _ in ranges(page)) > 1e9
    page.find_element(By.CSS_SELECTOR, "#axis [value=events]").click()
    wait_for(lambda: ranges(page)[0][0] == 0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible(page: webdriver.Chrome, scheme: str) -> None:
    size = "desk" if page.execute_script("return innerWidth") > 500 else "phone"
    look(page, size, scheme)
    page.execute_script("for (const part of document.querySelectorAll('details')) part.open = true")
    assert violations(page) == []
    look(page, size)


def test_nothing_is_loaded_from_another_host_and_the_console_has_no_error(page: webdriver.Chrome, address: str) -> None:
    names = page.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [name for name in names if not name.startswith((address, "data:"))] == []
    assert f"{address}vendor/uPlot.iife.min.js" in names
    assert errors(page) == []
    inline = "const made = document.createElement('script'); made.textContent = 'window.ran = true';"
    assert not page.execute_script(f"{inline} document.body.append(made); return window.ran")
    assert "Content Security Policy" in errors(page)[0]["message"]


def test_a_lost_connection_is_reported_and_found_again(page: webdriver.Chrome) -> None:
    def offline(lost: bool) -> None:
        speed = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        page.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": lost, **speed})

    page.execute_cdp_cmd("Network.enable", {})
    offline(True)
    wait_for(lambda: page.find_element(By.ID, "well").text == "Unknown")
    assert page.find_element(By.ID, "state").text.startswith("no connection")
    offline(False)
    wait_for(lambda: page.find_element(By.ID, "well").text == "Yes")
    assert page.find_element(By.ID, "state").text == "running"
    errors(page)


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
    wait_for(lambda: len(driver.find_elements(By.CSS_SELECTOR, ".plot canvas")) == 2)
    assert titles(driver) == ["Dead letters", "Recent quality"]
    assert "checkpoint 2" in driver.find_element(By.ID, "state").text
    assert driver.find_element(By.ID, "well").text == "Unknown"
    driver.execute_script("for (const part of document.querySelectorAll('details')) part.open = true")
    assert "<script>alert(1)</script>" in driver.find_element(By.ID, "dead").text
    assert "LogisticRegression" in driver.find_element(By.ID, "model").text
    assert errors(driver) == []
    assert violations(driver) == []
    names = driver.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [name for name in names if not name.startswith("data:")] == []
