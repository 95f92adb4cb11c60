"""A stand-in for a collector of OpenTelemetry: an HTTP server that reads requests with the official messages."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS = {"/v1/metrics": ExportMetricsServiceRequest, "/v1/traces": ExportTraceServiceRequest}

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""Values by the names and labels that a scrape has."""


class Collector:
    """What a collector has received.

    Attributes
    ----------
    address
        Where it listens.
    requests
        The requests, each with its path and headers.
    answers
        Whether it answers; a request waits until it does.
    """

    def __init__(self) -> None:
        self.address = ""
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.answers = threading.Event()
        self.answers.set()

    @property
    def spans(self) -> list[Any]:
        """All spans."""
        found = [message for path, _, message in list(self.requests) if path == "/v1/traces"]
        return [span for one in found for of in one.resource_spans for part in of.scope_spans for span in part.spans]

    def resources(self) -> list[dict[str, str]]:
        """Return the attributes of the resource of each request."""
        return [
            {attribute.key: attribute.value.string_value for attribute in part.resource.attributes}
            for _, _, message in self.requests
            for _, parts in message.ListFields()
            for part in parts
        ]

    def newest_metrics(self) -> tuple[Samples, dict[str, str]]:
        """Return the values of the last request with metrics, and the kind of each metric."""
        message = [message for path, _, message in self.requests if path == "/v1/metrics"][-1]
        values: Samples = {}
        kinds = {}
        for metric in (one for of in message.resource_metrics for part in of.scope_metrics for one in part.metrics):
            kinds[metric.name] = metric.WhichOneof("data")
            for point in getattr(metric, kinds[metric.name]).data_points:
                labels = {attribute.key: attribute.value.string_value for attribute in point.attributes}
                for name, more, value in _values(metric.name, kinds[metric.name], point):
                    values[name, tuple(sorted({**labels, **more}.items()))] = value
        return values, kinds


def _values(name: str, kind: str, point: Any) -> Iterator[tuple[str, dict[str, str], float]]:
    if kind != "histogram":
        yield name, {}, point.as_double
        return
    bounds, total = [*map(float, point.explicit_bounds), float("inf")], 0
    for bound, count in zip(bounds, point.bucket_counts, strict=True):
        total += count
        yield f"{name}_bucket", {"le": str(bound).replace("inf", "+Inf")}, total
    yield f"{name}_count", {}, point.count
    yield f"{name}_sum", {}, point.sum


@contextmanager
def collector() -> Iterator[Collector]:
    """Run a collector."""
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            body = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
            found.answers.wait()
            found.requests.append((self.path, dict(self.headers), KINDS[self.path].FromString(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    found.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield found
    finally:
        found.answers.set()
        server.shutdown()
        server.server_close()
        thread.join()
