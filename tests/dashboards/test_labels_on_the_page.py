"""The live page of a run whose labels have stopped says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config.config import load_config
from streamkernel.engine.http import serve

pytestmark = pytest.mark.browser

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
max_pending = 300
"""


@pytest.mark.parametrize(
    ("last", "answer", "why", "row"),
    [
        (200, "Yes", "It has learned all events so far.", "200"),
        (
            1200,
            "Check",
            "no label has come for the last 1,000 features, and 700 were dropped unlearned",
            "evicted 700 (77",
        ),
    ],
)
def test_labels_that_stop_need_a_check(
    driver: webdriver.Chrome, tmp_path: Path, last: int, answer: str, why: str, row: str
) -> None:
    records = [record for i in range(200) for record in ({"id": i, "a": i % 7}, {"id": i, "y": i % 7 > 3})]
    records += [{"id": i, "a": i % 7} for i in range(200, last)]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "run.toml").write_text(CONFIG)
    engine = engine_of(load_config(tmp_path / "run.toml"))
    engine.run()
    engine.parts.monitor.take_snapshot()
    driver.get(f"http://127.0.0.1:{serve(engine, '127.0.0.1', 0)}")
    WebDriverWait(driver, 30).until(lambda _: driver.find_element(By.ID, "well").text == answer)
    assert why in driver.find_element(By.ID, "why").text
    assert row in driver.find_element(By.ID, "now").text
