"""A browser without a window, shared by the tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from selenium import webdriver


@pytest.fixture(scope="session")
def driver() -> Iterator[webdriver.Chrome]:
    program, browser = shutil.which("chromedriver"), shutil.which("chromium")
    if program is None or browser is None:
        pytest.skip("the live page needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(program))
    yield found
    found.quit()
