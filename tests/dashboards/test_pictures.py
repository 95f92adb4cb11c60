"""The pictures of the live page in the documentation, of a real run whose stream changes: `make pictures`."""

from __future__ import annotations

import os
import random
import urllib.parse
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from monitored import Prometheus, Stream, scraping, until
from PIL import Image
from seen import look
from selenium import webdriver
from selenium.webdriver.common.by import By
from waiting import wait_for

CHANGE, BROKEN = 3000, 500

MODEL = 'type = "KernelClassifier"\nmax_features = 256'
MORE = """
[[challengers]]
name = "dsg"
model = { type = "KernelClassifier", learner = "dsg", max_features = 256 }
[[challengers]]
name = "small"
model = { type = "KernelClassifier", learner = "dsg", max_features = 64 }
[quality]
metrics = ["F1", "ROCAUC"]
[segments]
field = "country"
[monitoring]
window = 500
every = 4
[drift]
every = 4
"""


def record(i: int) -> Any:
    """Return record `i`: after the change, one input has another mean, and the label another rule."""
    generator = random.Random(i)
    a, b, c = (generator.gauss(0.0, 1.0) for _ in range(3))
    country, changed = generator.choice(("at", "de", "fr")), i >= CHANGE
    if i % BROKEN == BROKEN - 1:
        return {"a": a, "b": "none", "c": c, "country": country, "y": True}
    return {"a": a + 1.5 * changed, "b": b, "c": c, "country": country, "y": (a * b > 0) != changed}


def take(driver: webdriver.Chrome, path: Path, size: str, scheme: str, height: int | None = None) -> None:
    """Write a picture of the page; all of the page if there is no height."""
    look(driver, size, scheme)
    look(driver, size, scheme, height or int(driver.execute_script("return document.documentElement.scrollHeight")))
    driver.execute_async_script("const done = arguments[0]; setTimeout(() => requestAnimationFrame(done), 300)")
    driver.save_screenshot(str(path))
    few = Image.open(path).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stream]:
    found = Stream(tmp_path_factory.mktemp("pictures") / "run", MODEL, record, MORE, first=2 * CHANGE)
    yield found
    found.stop()


def take_peer(driver: webdriver.Chrome, prometheus: Prometheus, path: Path) -> None:
    """Write a picture of Prometheus's page with the recent quality of the same run."""
    until(lambda: prometheus.query("streamkernel_metric_recent"), lambda: "no data")
    graph = {"g0.expr": "streamkernel_metric_recent", "g0.tab": "0", "g0.range_input": "1m"}
    driver.get(f"{prometheus.page}/graph?{urllib.parse.urlencode(graph)}")
    wait_for(lambda: driver.find_elements(By.CSS_SELECTOR, "svg path"))
    take(driver, path, "desk", "light", height=900)


@pytest.mark.browser
def test_pictures_are_of_a_real_run(driver: webdriver.Chrome, stream: Stream, tmp_path: Path) -> None:
    """Those for the documentation include a peer's page."""
    folder = Path(os.environ.get("STREAMKERNEL_PICTURES", tmp_path))
    with nullcontext() if folder == tmp_path else scraping(tmp_path, [stream.port]) as prometheus:
        until(stream.is_ready, lambda: (stream.folder / "log").read_text())
        driver.get(f"http://127.0.0.1:{stream.port}/")
        learned = "return Number(document.querySelector('#now dd')?.textContent.replace(',', '') ?? 0)"
        wait_for(lambda: driver.execute_script(learned) > 2 * CHANGE)
        marks = "return [...document.querySelectorAll('#marks li')].map(mark => mark.dataset.kind)"
        wait_for(lambda: "drift" in driver.execute_script(marks))
        take(driver, folder / "live.png", "desk", "light")
        take(driver, folder / "live_dark.png", "desk", "dark", height=900)
        take(driver, folder / "live_phone.png", "phone", "light", height=1688)
        if prometheus is not None:
            take_peer(driver, prometheus, folder / "live_peer.png")
    assert all((folder / f"{name}.png").stat().st_size > 10_000 for name in ("live", "live_dark", "live_phone"))
