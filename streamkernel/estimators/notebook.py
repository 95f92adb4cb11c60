"""The view of a model in a notebook: learner, learned state and parameters as a small HTML table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from html import escape
from inspect import signature
from typing import Any

from streamkernel.estimators.parameters import parameters_of

_SHOWN = {
    "learner_": "learner",
    "kernel_": "kernel",
    "_events": "events learned",
    "n_features": "random features",
    "n_seeds": "blocks",
    "labels": "labels",
    "mixture_weights": "weights in the mixture",
    "objective": "regularised loss, recent",
    "gap": "gap of the last refit",
    "threshold": "threshold τ",
    "divergence": "divergence",
    "noise_variance": "variance of the noise",
    "statistic": "evidence of drift",
    "drift_detected": "drift detected",
}
"""Attributes of models that a notebook shows, with their descriptions."""

_MOST = 20
"""Largest number of labels that are shown."""

_TABLE = "border-collapse:collapse;margin:2px 0;font-size:inherit;color:inherit"
_CELL = "text-align:left;vertical-align:top;padding:1px 10px 1px 0;border:0;background:none;color:inherit"


def html_table(model: Any) -> str:
    """Return the view of an estimator, without scripts and colours, so that it is readable on any page."""
    title, facts = escape(type(model).__name__), "".join(_row(word, text) for word, text in _facts_at_once(model))
    parameters = "".join(_row(name, value, is_given) for name, value, is_given in _parameters(model))
    return (
        f'<div style="font-size:90%;line-height:1.4"><b>{title}</b><table style="{_TABLE}">{facts}</table>'
        f'<details><summary>parameters</summary><table style="{_TABLE}">{parameters}</table></details></div>'
    )


def _facts_at_once(model: Any) -> list[tuple[str, str]]:
    """Return the facts of one moment, which another thread that learns may end: they are read until they stay."""
    facts, again = None, [*_facts(model)]
    while facts != again:
        facts, again = again, [*_facts(model)]
    return again


def _facts(model: Any) -> Iterator[tuple[str, str]]:
    """Yield a description and a value for each attribute that the model has."""
    has_learned = bool(getattr(model, "_events", 1))
    for name, word in _SHOWN.items():
        value = getattr(model, name, None)
        if isinstance(value, float) and not has_learned:
            continue
        text = "" if value is None else _text(name, value)
        if name == "kernel_" and getattr(model, "_is_provisional", False):
            text += " (provisional)"
        if text:
            yield word, text
    if "seed" in signature(type(model)).parameters:
        yield "seed", str(model.seed)


def _text(name: str, value: Any) -> str:
    if name == "labels":
        rest = len(value) - _MOST
        return ", ".join(map(repr, list(value)[:_MOST])) + (f" and {rest} more" if rest > 0 else "")
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {share:.2f}" for key, share in value.items())
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else ""
    return f"{value:,}" if type(value) is int else repr(value)


def _parameters(model: Any) -> Iterator[tuple[str, str, bool]]:
    """Yield the parameters of a model, and whether they differ from the defaults."""
    given = parameters_of(model)
    for name, parameter in signature(type(model)).parameters.items():
        value = repr(given[name])
        yield name, value, value != repr(parameter.default)


def _row(word: str, text: str, bold: bool = False) -> str:
    shown = f"<b>{escape(text)}</b>" if bold else escape(text)
    cells = f'<td style="{_CELL};white-space:nowrap;opacity:.7">{escape(word)}</td><td style="{_CELL}">{shown}</td>'
    return f'<tr style="background:none">{cells}</tr>'
