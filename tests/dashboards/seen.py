"""Helpers for a page in a browser: its size and colours, and the content of its charts and console."""

from __future__ import annotations

from typing import Any

from axe_core_python.selenium import Axe
from selenium import webdriver
from selenium.webdriver.common.by import By

SIZES = {"desk": (1440, 900), "phone": (390, 844)}


def look(driver: webdriver.Chrome, size: str, scheme: str = "light", height: int | None = None) -> None:
    """Give the page the size of a screen, and the colours that the system asks for."""
    width, usual = SIZES[size]
    metrics = {"width": width, "height": height or usual, "deviceScaleFactor": 1, "mobile": size == "phone"}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    assert driver.execute_script("return matchMedia('(prefers-color-scheme: dark)').matches") == (scheme == "dark")


def awaited(driver: webdriver.Chrome, script: str, *values: Any) -> Any:
    """Return what an asynchronous script returns, with the modules `page` and `draw` at hand."""
    text = f"""
        const done = arguments[arguments.length - 1], values = arguments;
        (async () => {{
            const [page, draw] = await Promise.all([import("/page.js"), import("/draw.js")]);
            {script}
        }})().then(done, (error) => done("failed: " + error.stack));
    """
    found = driver.execute_async_script(text, *values)
    assert not (isinstance(found, str) and found.startswith("failed: ")), found
    return found


def titles(driver: webdriver.Chrome, place: str = "main") -> list[str]:
    """Return the titles of charts from top to bottom."""
    return [title.text for title in driver.find_elements(By.CSS_SELECTOR, f"{place} figure h3")]


def violations(driver: webdriver.Chrome) -> list[Any]:
    """Return the faults of accessibility, each with the first element that has it."""
    found = Axe().run(driver)
    assert len(found["passes"]) > 15
    return [(problem["id"], problem["nodes"][0]["html"]) for problem in found["violations"]]


def errors(driver: webdriver.Chrome) -> list[Any]:
    """Return the errors of the console since the last call, such as refusals by the content security policy."""
    return [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]


def fits(driver: webdriver.Chrome) -> bool:
    """Return whether the page is not wider than the screen."""
    script = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    return bool(driver.execute_script(script))
