"""All challengers of a run: what the loop, a checkpoint and other threads need of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import structlog
from river.metrics.base import Metric

from streamkernel.engine.challengers.challenger import Challenger, ChallengerSnapshot
from streamkernel.engine.challengers.roles import MODEL, Candidate, roles_in
from streamkernel.engine.delayed_labels import DelayedLabels, Key
from streamkernel.engine.telemetry.quality import Quality

SPARE = 1024
"""Predictions that a challenger may keep beyond twice the number of pending features, before it forgets some."""

FOLD_AT = 1000
"""Predictions of a challenger that are evaluated together, or a few more."""

log = structlog.get_logger("streamkernel")


class ChallengersSnapshot(NamedTuple):
    """The models of a run at one moment.

    Parameters
    ----------
    champion
        The name of the champion.
    models
        The challengers.
    """

    champion: str
    models: tuple[ChallengerSnapshot, ...]


class Challengers:
    """Models that predict and learn the events of a run after the champion has.

    The champion's results, their order and their bits are the same with and without them.

    Parameters
    ----------
    candidates
        The models of the configuration, that of ``[model]`` first.
    metric
        A metric of the same kind that is empty.
    with_probabilities
        Whether the champion's predictions have probabilities.
    labels
        The pending features, if labels arrive in separate records.

    Attributes
    ----------
    champion : str
        The name of the champion.
    promotions : list of dict
        The promotions: the time, the number of events before it, and the former champion.
    models : list of Challenger
        The challengers.
    """

    def __init__(
        self, candidates: Sequence[Candidate], metric: Metric, *, with_probabilities: bool, labels: DelayedLabels | None
    ) -> None:
        self._candidates, self._metric, self._labels = list(candidates), metric.clone(), labels
        self._with_probabilities = with_probabilities
        self.champion = MODEL
        self.promotions: list[dict[str, Any]] = []
        self._reported: set[tuple[str, str]] = set()
        self._models: list[Challenger] | None = None  # built at last, where no checkpoint has them

    @property
    def models(self) -> list[Challenger]:
        """The challengers."""
        if self._models is None:
            self._models = [self._begin(one) for one in self._candidates[1:]]
        return self._models

    def wait(self, key: Key, x: Mapping[str, Any]) -> None:
        """Predict features whose label has not arrived."""
        for one in self.models:
            if not one.is_suspended:
                one.wait(key, x)
                if self._labels is not None and len(one.pending) > 2 * len(self._labels) + SPARE:
                    one.forget(self._labels)

    def learn(self, x: Mapping[str, Any], y: Any, w: float = 1.0, key: Key | None = None) -> None:
        """Judge and learn an example that the champion has learned; the features of `key` were predicted earlier."""
        for one in self.models:
            if not one.is_suspended:
                one.learn(x, y, w, key)
                one.fold(FOLD_AT)

    def learn_many(self, xs: Sequence[dict[str, Any]], ys: Sequence[Any]) -> None:
        """Predict, judge and learn examples that the champion has learned."""
        for one in self.models:
            if not one.is_suspended:
                one.learn_many(xs, ys)
                one.fold(FOLD_AT)

    def snapshot(self) -> ChallengersSnapshot:
        """Return the current figures."""
        return ChallengersSnapshot(self.champion, tuple(one.snapshot() for one in self.models))

    def setup(self, saved: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the preprocessing and the model that the champion of a checkpoint has in the configuration.

        Raises
        ------
        StateDirectoryError
            If it was promoted and the configuration does not have it.
        """
        return roles_in(saved, self._candidates).setup

    def state(self) -> dict[str, Any]:
        """Return the part of a checkpoint beside the champion: nothing if there never was a challenger."""
        if not self.models and not self.promotions:
            return {}
        if self._labels is not None:
            for one in self.models:
                one.forget(self._labels)
        models = [one.state() for one in self.models]
        return {"challengers": {"champion": self.champion, "promotions": self.promotions, "models": models}}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint; challengers that are new in the configuration begin."""
        roles, found = roles_in(saved, self._candidates), saved.get("challengers") or {}
        self.champion = roles.champion
        names = {part["name"] for part in found.get("models", ())} | {found.get("champion", MODEL)}
        self.promotions = [
            {**one, **{key: roles.names.get(one[key]) for key in ("champion", "former")}}
            for one in found.get("promotions", ())
        ]
        for name in sorted(names - roles.names.keys()):
            self._report("a challenger is dropped, because the configuration has no model like it", name)
        self._models = []
        for candidate, part in roles.challengers:
            one = self._begin(candidate, part)
            self._models.append(one)
            if part is None:
                self._report("a challenger begins", one.name)
            elif part["name"] != one.name:
                self._report(f'a challenger was called "{part["name"]}" before', one.name)

    def _report(self, event: str, name: str) -> None:
        """Report a change once: a checkpoint may be restored several times."""
        if (event, name) not in self._reported:
            self._reported.add((event, name))
            log.info(event, model=name)

    def _begin(self, candidate: Candidate, part: Mapping[str, Any] | None = None) -> Challenger:
        """Return a new challenger, or the one that continues from its part of a checkpoint."""
        model = candidate.build() if part is None else part["model"]
        quality = Quality(self._metric.clone())
        one = Challenger(candidate.name, candidate.setup, model, quality, with_probabilities=self._with_probabilities)
        if part is not None:
            one.restore(part)
        return one
