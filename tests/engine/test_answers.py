"""Additions to the prediction in a response of `/predict`: intervals, sets of labels, and contributions of inputs."""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.request
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from river import metrics, preprocessing
from waiting import LIMIT

from streamkernel import GaussianProcessRegressor, KernelClassifier, KernelRegressor
from streamkernel.connectors import Event
from streamkernel.engine import Engine
from streamkernel.engine.coverage import region
from streamkernel.engine.http import serve
from streamkernel.engine.http.openapi import ANSWER
from streamkernel.engine.telemetry.status import status_of

X = {"a": 0.3, "b": -0.4}
SMALL: Any = {"learner": "dsg", "max_features": 64}


class Stream:
    """Events whose last one arrives alone, so that the model published with it has learned all others."""

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
    """An engine after its run, and its server."""

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
    """With few labels the interval is infinite, which JSON represents as null."""
    served = Served(KernelRegressor(**SMALL), records(lambda z: z, n), metrics.MAE(), coverage=0.9)
    status, answer = served.ask({"x": X})
    coverage, predicted = served.engine.parts.processor.coverage, served.engine.model.predict_one(X)
    assert coverage is not None
    expected = region((predicted, None), coverage.threshold(X))
    assert (status, answer["prediction"]) == (200, predicted)
    assert (answer["lower"], answer["upper"]) == ((None, None) if n == 5 else (expected["lower"], expected["upper"]))
    Draft202012Validator(ANSWER).validate(answer)


def test_a_set_has_the_likely_labels() -> None:
    served = Served(KernelClassifier(**SMALL), records(lambda z: z > 0.0), metrics.Accuracy(), coverage=0.7)
    _, answer = served.ask({"x": [X, {"a": 0.0, "b": 0.0}]})
    assert served.engine.parts.processor.coverage is not None
    threshold = served.engine.parts.processor.coverage.threshold(X)
    for found in answer["predictions"]:
        Draft202012Validator(ANSWER).validate(found)
        likely = [label for label, p in found["probabilities"].items() if 1.0 - p <= threshold]
        assert sorted(json.dumps(label) for label in found["set"]) == sorted(likely)


def test_without_coverage_there_is_neither() -> None:
    served = Served(KernelRegressor(**SMALL), records(lambda z: z), metrics.MAE())
    assert list(served.ask({"x": X})[1]) == ["prediction"]


def test_contributions_add_up_and_the_importances_are_shown() -> None:
    served = Served(KernelRegressor(max_features=64), records(lambda z: 5.0 * z + 2.0, 600), metrics.MAE())
    status, answer = served.ask({"x": [X, {"a": -1.0, "b": 0.5}]}, "?explain=true")
    assert status == 200
    at_mean = []
    for found in answer["predictions"]:
        Draft202012Validator(ANSWER).validate(found)
        at_mean.append(found["prediction"] - sum(found["explanation"].values()))
    assert at_mean[0] == pytest.approx(at_mean[1], rel=1e-4)
    assert list(answer["predictions"][0]["explanation"]) == ["a", "b"]
    shares = status_of(served.engine)["importances"]
    assert shares == pytest.approx(served.engine.model.feature_importances_)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert list(served.ask({"x": X}, "?explain=false")[1]) == ["prediction"]


def test_the_prediction_of_a_pipeline_is_explained_by_the_inputs_of_its_model() -> None:
    model = preprocessing.StandardScaler() | KernelClassifier(**SMALL)
    served = Served(model, records(lambda z: z > 0.0), metrics.Accuracy())
    scaled = model["StandardScaler"].transform_one(X)
    expected = model["KernelClassifier"].explain_one(scaled, label=model.predict_one(X), method="sampling", n_orders=32)
    assert served.ask({"x": X}, "?explain=true")[1]["explanation"] == pytest.approx(expected)
    assert status_of(served.engine)["importances"] == {}  # it keeps no gradients


@pytest.mark.parametrize(
    ("body", "query", "text"),
    [
        ({"x": X}, "?explain=maybe", 'Expected explain=true or explain=false, got "maybe"'),
        ({"x": [X] * 33}, "?explain=true", "Expected at most 32 records to explain, got 33 - at x"),
        ({"x": {f"x{i}": 1.0 for i in range(201)}}, "?explain=true", "at most 200 inputs to explain, got 201 - in x"),
    ],
)
def test_slow_and_invalid_explanations_are_refused(body: Any, query: str, text: str) -> None:
    status, answer = Served(KernelRegressor(**SMALL), records(lambda z: z, 50), metrics.MAE()).ask(body, query)
    assert (status, list(answer)) == (422, ["error"])
    assert text in answer["error"]


def test_a_model_without_explanations_is_reported() -> None:
    served = Served(GaussianProcessRegressor(n_features=16), records(lambda z: z, 50), metrics.MAE())
    expected = {"error": "Expected a model with explain_one to explain, got GaussianProcessRegressor"}
    assert served.ask({"x": X}, "?explain=true") == (422, expected)
    assert served.ask({"x": X})[0] == 200
    assert status_of(served.engine)["importances"] == {}


def test_nested_fields_are_read_as_in_a_run() -> None:
    told = [{"in.a": one["a"], "in.b": one["b"], "y": one["y"]} for one in records(lambda z: z)]
    served = Served(KernelRegressor(**SMALL), told, metrics.MAE())
    expected = served.engine.model.predict_one({"in.a": 0.3, "in.b": -0.4})
    assert served.ask({"x": {"in": X}}) == (200, {"prediction": expected})
    refused = {"error": 'Expected one value for each field, got two - at field "in.a" - in x[1]'}
    status, answer = served.ask({"x": [X, {"in": X, "in.a": 1.0}]})
    assert (status, answer["predictions"][1]) == (200, refused)
