"""The address of a collector, and OpenTelemetry's variables of the environment that its SDK is not asked about."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

ENDPOINTS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
)
PROTOCOLS = (
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
)
PROTOCOL = "http/protobuf"

SAMPLER, ARGUMENT, INTERVAL = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG", "OTEL_METRIC_EXPORT_INTERVAL"

FIXED = {"parentbased_always_on": 1.0, "parentbased_always_off": 0.0}
BY_RATIO = "parentbased_traceidratio"


def check_address(address: str) -> str:
    """Return the address of a collector.

    Raise `ValueError` if it is none, or has a login or a query in it, which could be secrets.

    Examples
    --------
    >>> check_address("http://localhost:4318/")
    'http://localhost:4318'
    """
    parts = urlsplit(address)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            "expected an address without login and query; OTEL_EXPORTER_OTLP_HEADERS is for credentials, got another"
        )
    try:
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port
        is_address = False
    if not is_address:
        raise ValueError(f'expected an address as "http://localhost:4318", got "{address}"')
    return address.rstrip("/")


def ratio_of(environ: Mapping[str, str]) -> float:
    """Return the share of records without a trace that begin one, by the sampler that the environment names.

    Raise `ValueError` if it is not one of the samplers that follow the decision of a trace.

    Examples
    --------
    >>> ratio_of({}), ratio_of({"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"})
    (0.0, 0.01)
    """
    sampler = environ.get(SAMPLER) or "parentbased_always_off"
    if sampler in FIXED:
        return FIXED[sampler]
    if sampler != BY_RATIO:
        raise ValueError(f'{SAMPLER}: expected {", ".join(FIXED)} or {BY_RATIO}, got "{sampler}"')
    ratio = _number(environ.get(ARGUMENT) or "1")
    if not 0.0 <= ratio <= 1.0:
        raise ValueError(f'{ARGUMENT}: expected a share from 0 to 1, got "{environ[ARGUMENT]}"')
    return ratio


def interval_of(environ: Mapping[str, str]) -> float:
    """Return the seconds between two exports of the metrics.

    Raise `ValueError` if the environment has another value than milliseconds.

    Examples
    --------
    >>> interval_of({}), interval_of({"OTEL_METRIC_EXPORT_INTERVAL": "5000"})
    (60.0, 5.0)
    """
    milliseconds = _number(environ.get(INTERVAL) or "60000")
    if not 0.0 < milliseconds < math.inf:
        raise ValueError(f'{INTERVAL}: expected milliseconds above 0, got "{environ[INTERVAL]}"')
    return milliseconds / 1000.0


def problems_of(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each variable that has another value than a run can follow; logins are not in it."""
    for name in PROTOCOLS:
        if (protocol := environ.get(name)) and protocol != PROTOCOL:
            yield f'{name}: expected {PROTOCOL}, got "{protocol}"'
    for name in ENDPOINTS:
        if address := environ.get(name):
            try:
                check_address(address)
            except ValueError as error:
                yield f"{name}: {error}"
    for read in (ratio_of, interval_of):
        try:
            read(environ)
        except ValueError as error:
            yield str(error)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
