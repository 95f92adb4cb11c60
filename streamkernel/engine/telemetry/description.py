"""Descriptions of models and checkpoints, as names and texts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from river import compose

from streamkernel.engine.pipelines import counts_of_targets
from streamkernel.engine.telemetry.challengers import checkpoint_table, promotion_rows, texts
from streamkernel.engine.telemetry.figures import OUTCOMES
from streamkernel.engine.telemetry.quality import stored_scores
from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.parameters import parameters_of
from streamkernel.estimators.several_targets import SeveralTargetsModel


def model_rows(model: Any) -> list[tuple[str, str]]:
    """Return the description of a pipeline, as pairs of a name and a text."""
    steps = list(model.steps.values()) if isinstance(model, compose.Pipeline) else [model]
    rows = [("pipeline", " | ".join(str(step) for step in steps))]
    last = steps[-1]
    if isinstance(last, KernelModel):
        rows += [("parameters", "\n".join(f"{name} = {value!r}" for name, value in parameters_of(last).items()))]
        rows += [
            ("kernel", repr(last.kernel_)),
            ("labels", ", ".join(map(repr, getattr(last, "labels", {}))) or "numbers"),
            *([("targets", ", ".join(map(str, last.targets)))] if isinstance(last, SeveralTargetsModel) else []),
            ("features", f"{last.n_features:,} in {last.n_seeds:,} blocks"),
            ("steps", f"{last.n_steps:,}, of which {last.n_reused:,} reused a block"),
            ("objective", f"{last.objective:.6g}"),
        ]
    bounded, outlying = counts_of_targets(model) or (0, 0)
    if bounded or outlying:
        rows += [("range of targets", f"{bounded:,} predictions bounded, {outlying:,} outlying targets")]
    return rows


def checkpoint_rows(state: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the description of a checkpoint, as pairs of a name and a text."""
    rows, scores = model_rows(state["model"]), stored_scores(state)
    rows += [(scores.name, "–" if math.isnan(scores.ours) else f"{scores.ours:.6g}")]
    rows += [(f"of {target}", f"{score:.6g}") for target, score in scores.by_target.items()]
    rows += [*texts(checkpoint_table(state)), *promotion_rows(state)]
    rows += [(OUTCOMES.get(outcome, outcome), f"{count:,}") for outcome, count in state["outcomes"].items()]
    if state.get("labels") is not None:
        rows += [(f"labels {outcome}", f"{count:,}") for outcome, count in state["labels"]["counts"].items()]
    rows += [(f"position in {stream}", str(position)) for stream, position in state["positions"].items()]
    return rows
