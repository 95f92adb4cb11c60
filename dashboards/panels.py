"""The panels of the dashboards, for people on call and for the owners of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

AT = 'job=~"$job", instance=~"$instance"'
"""The labels that the variables of a dashboard choose."""


@dataclass(frozen=True)
class Panel:
    """A panel of a dashboard.

    Parameters
    ----------
    title, description
        Its title, and an explanation for the reader who is on call.
    queries
        Expressions by their legends, to which the instance is added; ``$at`` stands for `AT`.
    unit
        Grafana's name of the unit.
    above, below
        The threshold above which, or below which, it is red.
    kind
        ``"timeseries"``, or ``"stat"`` for the last number only.
    """

    title: str
    description: str
    queries: Mapping[str, str]
    unit: str = "short"
    above: float | None = None
    below: float | None = None
    kind: str = "timeseries"

    @property
    def expressions(self) -> list[tuple[str, str]]:
        """The expressions as Grafana reads them, with their legends."""
        return [(query.replace("$at", AT), f"{by} {{{{instance}}}}".lstrip()) for by, query in self.queries.items()]


def per_second(counter: str) -> str:
    """Return the expression of a counter's increase per second."""
    return f"clamp_min(deriv({counter}{{$at}}[$__rate_interval]), 0)"


def in_an_hour(counter: str) -> str:
    """Return the expression of a counter's increase in the last hour."""
    return f"clamp_min(delta({counter}{{$at}}[1h]), 0)"


def mean_of(histogram: str) -> str:
    """Return the expression of the mean duration in a histogram, over five minutes."""
    return f"increase({histogram}_sum{{$at}}[5m]) / (increase({histogram}_count{{$at}}[5m]) > 0)"


LEARNING = (
    Panel(
        "Recent quality",
        "The metric over the last 1,000 events, each predicted before it was learned, and that of the baseline: the "
        "most frequent class, or the last value. A model that is no better than the baseline is useless.",
        {
            "{{name}}": "streamkernel_metric_recent{$at}",
            "{{name}} of {{baseline}}": "streamkernel_baseline_metric_recent{$at}",
        },
    ),
    Panel(
        "Quality since the start",
        "The metric over all events so far, and the same of the baseline. It changes slowly: look at the recent "
        "quality first.",
        {"{{name}}": "streamkernel_metric{$at}", "{{name}} of {{baseline}}": "streamkernel_baseline_metric{$at}"},
    ),
    Panel(
        "Quality by target",
        "With several targets: the metric of each since the start, whose mean is the quality of the model; with one "
        "target, that of the model.",
        {"{{name}} {{target}}": "streamkernel_metric_by_target{$at} or streamkernel_metric{$at}"},
    ),
    Panel(
        "Better than the baseline",
        "Recent quality of the model minus that of the baseline, in units of the metric, with the sign such that "
        "more is better. Below 0 the baseline is better.",
        {"{{name}}": "instance:streamkernel_advantage:recent{$at}"},
        below=0.0,
    ),
    Panel(
        "Better than the champion",
        "With challengers: their recent quality minus that of the champion, in units of the metric, with the sign "
        "such that more is better. One that stays above 0 can be promoted.",
        {"{{model}} {{name}}": "instance:streamkernel_challenger_advantage:recent{$at}"},
    ),
    Panel(
        "Coverage",
        "With coverage in the configuration: the share of the last 1,000 labels inside their interval or set, and "
        "the share that is configured. It stays lower where labels come late and the stream has changed since.",
        {
            "inside {{target}}": "streamkernel_coverage_recent_by_target{$at} or streamkernel_coverage_recent{$at}",
            "configured": "streamkernel_coverage_target{$at}",
        },
        unit="percentunit",
    ),
    Panel(
        "Size of intervals and sets",
        "The median width of the last 1,000 intervals, in units of the label, or the mean number of labels in the "
        "last 1,000 sets. Wider intervals are less certain predictions.",
        {
            "width {{target}}": "streamkernel_interval_width_by_target{$at} or streamkernel_interval_width{$at}",
            "labels {{target}}": "streamkernel_set_labels_by_target{$at} or streamkernel_set_labels{$at}",
        },
    ),
    Panel(
        "Further metrics",
        "With [quality] in the configuration: its metrics over the last 1,000 labels.",
        {"{{name}}": "streamkernel_further_metric_recent{$at}"},
    ),
    Panel(
        "Classes",
        "With [quality]: of the last 1,000 labels, the share of each class that was predicted (recall), and the "
        "share of its predictions that were right (precision).",
        {
            "recall {{class}}": "streamkernel_class_recall{$at}",
            "precision {{class}}": "streamkernel_class_precision{$at}",
        },
        unit="percentunit",
    ),
    Panel(
        "Segments",
        "With [segments]: each metric over those of the last 1,000 labels that are in a segment. A segment that "
        "falls behind the others has changed, or has few labels.",
        {"{{segment}} {{name}}": "streamkernel_segment_metric_recent{$at}"},
    ),
    Panel(
        "Change of inputs",
        "With [monitoring]: the population stability index of each input, its distribution in the last window "
        "against that in the first. Below 0.1 nothing has changed; above 0.25 the input has moved.",
        {"{{field}}": "streamkernel_input_change{$at}"},
        above=0.25,
    ),
    Panel(
        "Missing and unusual inputs",
        "With [monitoring], in the last window: the share of events without a field, of texts that are new since the "
        "first window, and of numbers far outside the usual range.",
        {
            "missing {{field}}": 'streamkernel_input_missing{window="last", $at}',
            "new {{field}}": "streamkernel_input_new{$at}",
            "outside {{field}}": "streamkernel_input_outside{$at}",
        },
        unit="percentunit",
    ),
    Panel(
        "Median of inputs",
        "With [monitoring]: the median of each numeric input in the last window.",
        {"{{field}}": 'streamkernel_input_quantile{level="0.5", window="last", $at}'},
    ),
    Panel(
        "Alarms of drift",
        "With [drift]: changes of inputs or scores in the last hour, by detector. The log and the live page name the "
        "fields that moved.",
        {"{{detector}}": in_an_hour("streamkernel_drifts_total")},
    ),
    Panel(
        "Evidence of drift",
        "With [drift]: the evidence of the kernel detector. It raises an alarm at half of its average_run_length.",
        {"": "streamkernel_drift_evidence{$at}"},
    ),
    Panel(
        "Novel events",
        "With [novelty]: the share of the last 1,000 events of the sample that are unlike those before, and its "
        "bound where the stream does not change. More is a sensor that fails, or events of a new kind.",
        {"novel": "streamkernel_novelty_share{$at}", "bound": "streamkernel_novelty_share_target{$at}"},
        unit="percentunit",
    ),
    Panel(
        "Predictions",
        "With [monitoring], in the last window: the share of each predicted class, or the quantiles of predicted "
        "numbers. They need no labels.",
        {
            "{{class}}": 'streamkernel_prediction_share{window="last", $at}',
            "quantile {{level}}": 'streamkernel_prediction_quantile{value="prediction", window="last", $at}',
        },
    ),
    Panel(
        "Predictions and targets out of range",
        "Of a model of numbers, in the last hour: predictions that were limited to the range of the targets seen, "
        "and targets that did not count in full because they were outliers. Many limited predictions are inputs "
        "unlike those before, such as a code for missing values; many outliers are corrupt labels.",
        {
            "limited predictions": in_an_hour("streamkernel_bounded_predictions_total"),
            "outlying targets": in_an_hour("streamkernel_outlying_targets_total"),
        },
    ),
    Panel(
        "Confidence and calibration",
        "With [monitoring], of a classifier: the mean probability of the predicted class, and the expected "
        "calibration error, the distance between such probabilities and how often they were right. Where the error "
        "is large, do not use the probabilities as such.",
        {
            "confidence": 'streamkernel_prediction_mean{value="confidence", window="last", $at}',
            "calibration error": "streamkernel_calibration_error{$at}",
        },
        unit="percentunit",
    ),
    Panel(
        "Objective",
        "Regularised loss over about the last thousand events. It falls while the model learns; a jump is a change "
        "of the stream.",
        {"": "streamkernel_objective{$at}"},
    ),
    Panel(
        "Features",
        "Random features in the model. They grow up to the cap; from then on time and memory per event are constant.",
        {"features": "streamkernel_features{$at}", "blocks": "streamkernel_seeds{$at}"},
    ),
    Panel(
        "Expected gain of features",
        "The shares of the loss that new features, and old ones with more examples, were expected to gain at the last "
        "check. New features are added where they gain clearly more than they cost; if they would gain much and the "
        "cap is reached, a larger max_features may be worth its time.",
        {"{{coordinate}}": "streamkernel_expected_descent{$at}"},
        unit="percentunit",
    ),
    Panel(
        "Share of steps that grew",
        "Share of steps that added a block of features. It is 0 once the cap is reached.",
        {"": "instance:streamkernel_grown:ratio5m{$at}"},
        unit="percentunit",
    ),
    Panel(
        "Decisions of the rule",
        "First order: steps per second in which the rule reused an old block, added a new one, or had to reuse an "
        "old one because the cap was reached. If most are forced, a larger cap may be worth its time.",
        {"{{outcome}}": per_second("streamkernel_checks_total")},
        unit="ops",
    ),
    Panel(
        "Steps",
        "Size of the next step (γ), and in first order that of the last one (η).",
        {"γ": "streamkernel_step_size{$at}", "η": "streamkernel_checked_step_size{$at}"},
    ),
    Panel(
        "Weights of the mixture",
        "Second order: the weight in the prediction of functions with Newton steps, which suit a stationary stream, "
        "and with constant steps, which suit drift. If constant steps gain weight, the stream is drifting.",
        {"{{steps}}": "streamkernel_function_weight{$at}"},
    ),
    Panel(
        "Refitted coefficients",
        "The certified primal-dual gap of the last refit: an upper bound on how much worse the model is than the "
        "best one on the events of that window.",
        {"": "streamkernel_refit_gap{$at}"},
    ),
    Panel(
        "New groups of features",
        "Second order: how many larger groups of features were added per hour. A group is added when more features "
        "reduce the loss, or after the stream has changed.",
        {"": "changes(streamkernel_youngest_group_examples{$at}[1h])"},
    ),
    Panel(
        "Spread of replicas",
        "On a cluster: the distance of the workers' functions from their mean at the last merge, in units of its "
        "size. If it is large, the workers learn different things in a round; shorter rounds merge them more often.",
        {"": "streamkernel_replica_spread{$at}"},
    ),
)

CONSUMER = (
    Panel(
        "Events", "Events per second, by outcome.", {"{{outcome}}": per_second("streamkernel_events_total")}, unit="eps"
    ),
    Panel(
        "Lag",
        "Backlog of the source: records of a topic, bytes of a file. It should return to about 0.",
        {"{{topic}} {{partition}}": "streamkernel_consumer_lag{$at}"},
    ),
    Panel(
        "Position",
        "Reading speed of each stream: offsets or bytes per second.",
        {"{{stream}}": per_second("streamkernel_source_position")},
    ),
    Panel(
        "Time per event",
        "Time to predict and learn one event: median (p50) and 99th percentile (p99).",
        {
            "p50": "histogram_quantile(0.5, sum by (instance, le) "
            "(rate(streamkernel_event_seconds_bucket{$at}[$__rate_interval])))",
            "p99": "instance:streamkernel_event_seconds:p99_rate5m{$at}",
        },
        unit="s",
    ),
    Panel(
        "Dead letters",
        "Records per second that could not be used, by reason. Each is a dead letter with its error.",
        {"{{reason}}": per_second("streamkernel_dead_letters_total")},
        unit="eps",
    ),
    Panel(
        "Share of dead letters",
        "Dead letters, as a share of all records read.",
        {"": "instance:streamkernel_dead_letters:ratio5m{$at}"},
        unit="percentunit",
        above=0.01,
    ),
    Panel(
        "Pending labels",
        "Predictions whose label has not arrived; at the cap the oldest are dropped.",
        {"": "streamkernel_pending_labels{$at}", "since a label was joined": "streamkernel_features_since_joined{$at}"},
    ),
    Panel(
        "Labels",
        "Labels from separate records per second, by outcome.",
        {"{{outcome}}": per_second("streamkernel_labels_total")},
        unit="eps",
    ),
)

HEALTH = (
    Panel("Up", "1 while the process responds to scrapes.", {"": "up{$at}"}, below=1.0, kind="stat"),
    Panel(
        "Version",
        "The version of streamkernel of each process.",
        {"{{version}}": "streamkernel_build_info{$at}"},
        kind="stat",
    ),
    Panel(
        "Since the last event",
        "Time since an event was processed. It also grows if no events arrive: look at the lag.",
        {"": "time() - (streamkernel_last_event_timestamp_seconds{$at} > 0)"},
        unit="s",
    ),
    Panel(
        "Age of the checkpoint",
        "After a crash, this much work is repeated. It should stay near the configured interval.",
        {
            "age": "streamkernel_checkpoint_age_seconds{$at}",
            "interval": "streamkernel_checkpoint_interval_seconds{$at}",
        },
        unit="s",
    ),
    Panel(
        "Time of a checkpoint",
        "Mean time to write a checkpoint, while learning is paused.",
        {"": mean_of("streamkernel_checkpoint_seconds")},
        unit="s",
    ),
    Panel(
        "Size of a checkpoint",
        "Size on disk; three are kept.",
        {"": "streamkernel_checkpoint_size_bytes{$at}"},
        unit="bytes",
    ),
    Panel(
        "Incidents",
        "Problems that the run survived, in five minutes: rebalanced partitions, refused commits, unavailable "
        "brokers, failed checkpoints, a source that returned nothing, lost workers.",
        {"{{kind}}": "increase(streamkernel_incidents_total{$at}[5m])"},
        above=1.0,
    ),
    Panel(
        "Memory",
        "Memory of the process, of the model's arrays, and of cached directions.",
        {
            "process": "process_resident_memory_bytes{$at}",
            "model": "streamkernel_model_bytes{$at}",
            "directions": "streamkernel_cache_bytes{$at}",
        },
        unit="bytes",
    ),
    Panel(
        "Processors",
        "Processors used by the process. Learning uses one at most.",
        {"": "rate(process_cpu_seconds_total{$at}[$__rate_interval])"},
    ),
    Panel(
        "Workers",
        "On a cluster: workers in the last round, and the mean number of busy ones. If far fewer are busy, they wait "
        "for the slowest, for merging, or for checkpoints.",
        {
            "workers": "streamkernel_workers{$at}",
            "busy": "sum by (instance) (rate(streamkernel_worker_seconds_total{$at}[5m]))",
        },
    ),
    Panel(
        "Events by worker",
        "On a cluster: events per second of each worker. A worker far below the others has less to read, or a slower "
        "machine.",
        {"worker {{worker}}": "rate(streamkernel_worker_events_total{$at}[5m])"},
        unit="eps",
    ),
    Panel(
        "Time of a round",
        "On a cluster: mean time of a round, and the part that merges the replicas while all workers wait. If that "
        "part is large, use more events per round.",
        {"round": mean_of("streamkernel_round_seconds"), "merging": mean_of("streamkernel_merge_seconds")},
        unit="s",
    ),
)

DASHBOARDS = {
    "learning": ("streamkernel: learning", "Quality of the model, and how it learns.", LEARNING),
    "consumer": ("streamkernel: consumer", "Events, their rate, the lag, and dead letters.", CONSUMER),
    "health": ("streamkernel: health", "State of the process and its checkpoints.", HEALTH),
}
"""Title, description and panels of each dashboard, by the name of its file."""
