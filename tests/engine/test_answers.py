"""What `/predict` answers besides a prediction: intervals and sets of labels."""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.request
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from river import metrics
from waiting import LIMIT

from connectors import Event
from streamkernel import KernelClassifier, KernelRegressor
from streamkernel.engine import Engine
from streamkernel.engine.coverage import region
from streamkernel.engine.http import serve
from streamkernel.engine.http.openapi import ANSWER

X = {"a": 0.3, "b": -0.4}
SMALL: Any = {"learner": "dsg", "max_features": 64}


class Stream:
    """Events of which the last one comes alone, so that the model that is published then has learned the others."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        events = [Event("numbers", i + 1, b"", record) for i, record in enumerate(records)]
        self._slices = iter([events[:-1], events[-1:]])

    def poll(self, timeout: float) -> list[Event] | None:
        return next(self._slices, None)

    def lag(self) -> dict[tuple[str, str], int]:
        return {}

    def seek(self, positions: Any) -> None:
        pass

    def close(self) -> None:
        pass


def records(label: Any, n: int = 300) -> list[dict[str, Any]]:
    return [{"a": math.sin(i), "b": math.cos(3.0 * i), "y": label(math.sin(i) * math.cos(3.0 * i))} for i in range(n)]


class Served:
    """An engine that has run, and its server."""

    def __init__(self, model: Any, records: list[dict[str, Any]], metric: Any, **options: Any) -> None:
        self.engine = Engine(model, Stream(records), label="y", metric=metric, **options)
        self.port = serve(self.engine, "127.0.0.1", 0)
        self.engine.run()
        self.engine.parts.monitor.publish_model()

    def ask(self, body: Any, query: str = "") -> tuple[int, Any]:
        address = f"http://127.0.0.1:{self.port}/predict{query}"
        request = urllib.request.Request(address, json.dumps(body).encode(), {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=LIMIT) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())


@pytest.mark.parametrize("n", [5, 300])
def test_an_interval_is_as_wide_as_those_of_the_run(n: int) -> None:
    """With few labels it is infinite, which JSON says as null."""
    served = Served(KernelRegressor(**SMALL), records(lambda z: z, n), metrics.MAE(), coverage=0.9)
    status, answer = served.ask({"x": X})
    coverage, predicted = served.engine.parts.processor.coverage, served.engine.model.predict_one(X)
    assert coverage is not None
    expected = region((predicted, None), coverage.threshold())
    assert (status, answer["prediction"]) == (200, predicted)
    assert (answer["lower"], answer["upper"]) == ((None, None) if n == 5 else (expected["lower"], expected["upper"]))
    Draft202012Validator(ANSWER).validate(answer)


def test_a_set_has_the_likely_labels() -> None:
    served = Served(KernelClassifier(**SMALL), records(lambda z: z > 0.0), metrics.Accuracy(), coverage=0.7)
    _, answer = served.ask({"x": [X, {"a": 0.0, "b": 0.0}]})
    assert served.engine.parts.processor.coverage is not None
    threshold = served.engine.parts.processor.coverage.threshold()
    for found in answer["predictions"]:
        Draft202012Validator(ANSWER).validate(found)
        likely = [label for label, p in found["probabilities"].items() if 1.0 - p <= threshold]
        assert sorted(json.dumps(label) for label in found["set"]) == sorted(likely)


def test_without_coverage_there_is_neither() -> None:
    served = Served(KernelRegressor(**SMALL), records(lambda z: z), metrics.MAE())
    assert list(served.ask({"x": X})[1]) == ["prediction"]
