"""Records that are predicted and learned together, with the results of one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from streamkernel.connectors import Event
from streamkernel.connectors.kafka.clients import Headers
from streamkernel.engine.outputs import Outputs
from streamkernel.engine.record_processor import RecordProcessor
from streamkernel.engine.telemetry.input_ranges import LARGEST
from streamkernel.estimators.classifier import KernelClassifier
from streamkernel.estimators.deferred import deferred_answers
from streamkernel.estimators.together import answers_of, predict_and_learn

FEWEST, MOST = 8, 512
"""Records in a batch, at first and at most."""

QUICK_SECONDS = 0.25
"""Batches become larger while they take less: a request to stop waits for the end of one."""


class RecordBatches:
    """Predicts, learns, writes and evaluates the next records together, up to one that needs more.

    Such are dead letters, records with a new label or a new field, and all records of a model that is not learned from
    in compiled calls of several; they are processed one by one. Where a batch ends early the next ones are shorter, and
    where none is possible many records pass before the next attempt, so that attempts cost next to nothing.

    Parameters
    ----------
    processor, outputs
        The model with its quality, and the sinks.
    headers_of
        Returns the headers of the prediction of an event; ``None`` if it has none.
    """

    def __init__(
        self, processor: RecordProcessor, outputs: Outputs, headers_of: Callable[[Event], Headers] | None = None
    ) -> None:
        self._processor, self._outputs, self._headers_of = processor, outputs, headers_of
        self._size, self._pause, self._to_pass = FEWEST, 1, 0

    def process(self, events: Sequence[Event], first: int, most: int) -> int:
        """Process events from `first` on, `most` at most; return how many, which may be none."""
        if self._to_pass > 0:
            self._to_pass -= 1
            return 0
        batch, began = events[first : first + min(self._size, most)], time.perf_counter()
        done = self._process(batch)
        if time.perf_counter() - began >= QUICK_SECONDS:
            self._size = FEWEST
        elif done == len(batch):
            self._size = min(max(self._size, 2 * done), MOST)
        else:
            self._size = max(FEWEST, done)
        if done < len(batch):  # the next one needs more
            self._pause = 1 if done >= FEWEST else min(2 * self._pause, MOST)
            self._to_pass = self._pause
        return done

    def _process(self, events: Sequence[Event]) -> int:
        processor = self._processor
        model, examples = processor.learned_alone, processor.examples
        if model is None:
            return 0
        xs, ys = examples.split_plain(event.record for event in events)
        if not xs or not xs[0] or not xs[0].keys() <= examples.numbers:
            return 0
        labels = processor.known(ys)
        scores, values = predict_and_learn(model, xs[: len(labels)], labels, LARGEST)
        done = len(scores)
        if done:
            if processor.defers_probabilities and isinstance(model, KernelClassifier):
                answers = deferred_answers(model, scores)
            else:
                answers = answers_of(model, scores, with_probabilities=processor.with_probabilities)
            labels = labels[:done]
            if self._outputs.predictions is not None:
                more = processor.observe_all(xs[:done])
                keys = [event.key for event in events[:done]]
                headers = None if self._headers_of is None else list(map(self._headers_of, events[:done]))
                self._outputs.write_all(processor.lines(events, labels, answers, more), keys, headers)
            processor.judge_all(xs[:done], values, labels, answers)
        return done
