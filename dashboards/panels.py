"""The panels of the dashboards, for people on call and for the owners of a model.

In an expression, ``$at`` stands for the labels that the variables of a dashboard choose.
"""

from __future__ import annotations

from dataclasses import dataclass

AT = 'job=~"$job", instance=~"$instance"'


@dataclass(frozen=True)
class Panel:
    """A panel of a dashboard.

    Parameters
    ----------
    title, description
        Its title, and an explanation for the reader who is on call.
    unit
        Grafana's name of the unit.
    queries
        Expressions with their legends.
    above, below
        The threshold above which, or below which, it is red.
    kind
        ``"timeseries"``, or ``"stat"`` for the last number only.
    """

    title: str
    description: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    above: float | None = None
    below: float | None = None
    kind: str = "timeseries"

    @property
    def expressions(self) -> list[tuple[str, str]]:
        """The expressions as Grafana reads them, with their legends."""
        return [(query.replace("$at", AT), legend) for query, legend in self.queries]


LEARNING = (
    Panel(
        "Recent quality",
        "The metric over the last 1,000 events, each predicted before it was learned, and that of the baseline: the "
        "most frequent class, or the last value. A model that is no better than the baseline is useless.",
        "short",
        (
            ("streamkernel_metric_recent{$at}", "{{name}} {{instance}}"),
            ("streamkernel_baseline_metric_recent{$at}", "{{name}} of {{baseline}} {{instance}}"),
        ),
    ),
    Panel(
        "Quality since the start",
        "The metric over all events so far, and the same of the baseline. It changes slowly: look at the recent "
        "quality first.",
        "short",
        (
            ("streamkernel_metric{$at}", "{{name}} {{instance}}"),
            ("streamkernel_baseline_metric{$at}", "{{name}} of {{baseline}} {{instance}}"),
        ),
    ),
    Panel(
        "Quality by target",
        "With several targets: the metric of each since the start, whose mean is the quality of the model; with one "
        "target, that of the model.",
        "short",
        (("streamkernel_metric_by_target{$at} or streamkernel_metric{$at}", "{{name}} {{target}} {{instance}}"),),
    ),
    Panel(
        "Better than the baseline",
        "Recent quality of the model minus that of the baseline, in units of the metric, with the sign such that more "
        "is better. Below 0 the baseline is better.",
        "short",
        (("instance:streamkernel_advantage:recent{$at}", "{{name}} {{instance}}"),),
        below=0.0,
    ),
    Panel(
        "Better than the champion",
        "With challengers: their recent quality minus that of the champion, in units of the metric, with the sign such "
        "that more is better. One that stays above 0 can be promoted.",
        "short",
        (("instance:streamkernel_challenger_advantage:recent{$at}", "{{model}} {{name}} {{instance}}"),),
    ),
    Panel(
        "Coverage",
        "With coverage in the configuration: the share of the last 1,000 labels inside their interval or set, and the "
        "share that is configured. It stays lower where labels come late and the stream has changed since.",
        "percentunit",
        (
            (
                "streamkernel_coverage_recent_by_target{$at} or streamkernel_coverage_recent{$at}",
                "inside {{target}} {{instance}}",
            ),
            ("streamkernel_coverage_target{$at}", "configured {{instance}}"),
        ),
    ),
    Panel(
        "Size of intervals and sets",
        "The median width of the last 1,000 intervals, in units of the label, or the mean number of labels in the last "
        "1,000 sets. Wider intervals are less certain predictions.",
        "short",
        (
            (
                "streamkernel_interval_width_by_target{$at} or streamkernel_interval_width{$at}",
                "width {{target}} {{instance}}",
            ),
            (
                "streamkernel_set_labels_by_target{$at} or streamkernel_set_labels{$at}",
                "labels {{target}} {{instance}}",
            ),
        ),
    ),
    Panel(
        "Further metrics",
        "With [quality] in the configuration: its metrics over the last 1,000 labels.",
        "short",
        (("streamkernel_further_metric_recent{$at}", "{{name}} {{instance}}"),),
    ),
    Panel(
        "Classes",
        "With [quality]: of the last 1,000 labels, the share of each class that was predicted (recall), and the share "
        "of its predictions that were right (precision).",
        "percentunit",
        (
            ("streamkernel_class_recall{$at}", "recall {{class}} {{instance}}"),
            ("streamkernel_class_precision{$at}", "precision {{class}} {{instance}}"),
        ),
    ),
    Panel(
        "Segments",
        "With [segments]: each metric over those of the last 1,000 labels that are in a segment. A segment that falls "
        "behind the others has changed, or has few labels.",
        "short",
        (("streamkernel_segment_metric_recent{$at}", "{{segment}} {{name}} {{instance}}"),),
    ),
    Panel(
        "Change of inputs",
        "With [monitoring]: the population stability index of each input, its distribution in the last window against "
        "that in the first. Below 0.1 nothing has changed; above 0.25 the input has moved.",
        "short",
        (("streamkernel_input_change{$at}", "{{field}} {{instance}}"),),
        above=0.25,
    ),
    Panel(
        "Missing and unusual inputs",
        "With [monitoring], in the last window: the share of events without a field, of texts that are new since the "
        "first window, and of numbers far outside the usual range.",
        "percentunit",
        (
            ('streamkernel_input_missing{window="last", $at}', "missing {{field}} {{instance}}"),
            ("streamkernel_input_new{$at}", "new {{field}} {{instance}}"),
            ("streamkernel_input_outside{$at}", "outside {{field}} {{instance}}"),
        ),
    ),
    Panel(
        "Median of inputs",
        "With [monitoring]: the median of each numeric input in the last window.",
        "short",
        (('streamkernel_input_quantile{level="0.5", window="last", $at}', "{{field}} {{instance}}"),),
    ),
    Panel(
        "Alarms of drift",
        "With [drift]: changes of inputs or scores in the last hour, by detector. The log and the live page name the "
        "fields that moved.",
        "short",
        (("clamp_min(delta(streamkernel_drifts_total{$at}[1h]), 0)", "{{detector}} {{instance}}"),),
    ),
    Panel(
        "Evidence of drift",
        "With [drift]: the evidence of the kernel detector. It raises an alarm at half of its average_run_length.",
        "short",
        (("streamkernel_drift_evidence{$at}", "{{instance}}"),),
    ),
    Panel(
        "Novel events",
        "With [novelty]: the share of the last 1,000 events of the sample that are unlike those before, and its bound "
        "where the stream does not change. More is a sensor that fails, or events of a new kind.",
        "percentunit",
        (
            ("streamkernel_novelty_share{$at}", "novel {{instance}}"),
            ("streamkernel_novelty_share_target{$at}", "bound {{instance}}"),
        ),
    ),
    Panel(
        "Predictions",
        "With [monitoring], in the last window: the share of each predicted class, or the quantiles of predicted "
        "numbers. They need no labels.",
        "short",
        (
            ('streamkernel_prediction_share{window="last", $at}', "{{class}} {{instance}}"),
            (
                'streamkernel_prediction_quantile{value="prediction", window="last", $at}',
                "quantile {{level}} {{instance}}",
            ),
        ),
    ),
    Panel(
        "Confidence and calibration",
        "With [monitoring], of a classifier: the mean probability of the predicted class, and the expected calibration "
        "error, the distance between such probabilities and how often they were right. Where the error is large, do "
        "not use the probabilities as such.",
        "percentunit",
        (
            ('streamkernel_prediction_mean{value="confidence", window="last", $at}', "confidence {{instance}}"),
            ("streamkernel_calibration_error{$at}", "calibration error {{instance}}"),
        ),
    ),
    Panel(
        "Objective",
        "Regularised loss over about the last thousand events. It falls while the model learns; a jump is a "
        "change of the stream.",
        "short",
        (("streamkernel_objective{$at}", "{{instance}}"),),
    ),
    Panel(
        "Features",
        "Random features in the model. They grow up to the cap; from then on time and memory per event are constant.",
        "short",
        (("streamkernel_features{$at}", "features {{instance}}"), ("streamkernel_seeds{$at}", "blocks {{instance}}")),
    ),
    Panel(
        "Share of steps that grew",
        "Share of steps that added a block of features. It is 0 once the cap is reached.",
        "percentunit",
        (("instance:streamkernel_grown:ratio5m{$at}", "{{instance}}"),),
    ),
    Panel(
        "Decisions of the rule",
        "First order: steps per second in which the rule reused an old block, added a new one, or had to reuse an old "
        "one because the cap was reached. If most are forced, a larger cap may be worth its time.",
        "ops",
        (("clamp_min(deriv(streamkernel_checks_total{$at}[$__rate_interval]), 0)", "{{outcome}} {{instance}}"),),
    ),
    Panel(
        "Steps",
        "Size of the next step (γ), and in first order that of the last one (η).",
        "short",
        (
            ("streamkernel_step_size{$at}", "γ {{instance}}"),
            ("streamkernel_checked_step_size{$at}", "η {{instance}}"),
        ),
    ),
    Panel(
        "Weights of the mixture",
        "Second order: the weight in the prediction of functions with Newton steps, which suit a stationary stream, "
        "and with constant steps, which suit drift. If constant steps gain weight, the stream is drifting.",
        "short",
        (("streamkernel_function_weight{$at}", "{{steps}} {{instance}}"),),
    ),
    Panel(
        "Refitted coefficients",
        "The certified primal-dual gap of the last refit: an upper bound on how much worse the model is than the best "
        "one on the events of that window.",
        "short",
        (("streamkernel_refit_gap{$at}", "{{instance}}"),),
    ),
    Panel(
        "New groups of features",
        "Second order: how many larger groups of features were added per hour. A group is added when more features "
        "reduce the loss, or after the stream has changed.",
        "short",
        (("changes(streamkernel_youngest_group_examples{$at}[1h])", "{{instance}}"),),
    ),
    Panel(
        "Spread of replicas",
        "On a cluster: the distance of the workers' functions from their mean at the last merge, in units of its size. "
        "If it is large, the workers learn different things in a round; shorter rounds merge them more often.",
        "short",
        (("streamkernel_replica_spread{$at}", "{{instance}}"),),
    ),
)

CONSUMER = (
    Panel(
        "Events",
        "Events per second, by outcome.",
        "eps",
        (
            (
                "clamp_min(deriv(streamkernel_events_total{$at}[$__rate_interval]), 0)",
                "{{outcome}} {{instance}}",
            ),
        ),
    ),
    Panel(
        "Lag",
        "Backlog of the source: records of a topic, bytes of a file. It should return to about 0.",
        "short",
        (("streamkernel_consumer_lag{$at}", "{{topic}} {{partition}} {{instance}}"),),
    ),
    Panel(
        "Position",
        "Reading speed of each stream: offsets or bytes per second.",
        "short",
        (("clamp_min(deriv(streamkernel_source_position{$at}[$__rate_interval]), 0)", "{{stream}} {{instance}}"),),
    ),
    Panel(
        "Time per event",
        "Time to predict and learn one event: median (p50) and 99th percentile (p99).",
        "s",
        (
            (
                "histogram_quantile(0.5, sum by (instance, le) "
                "(rate(streamkernel_event_seconds_bucket{$at}[$__rate_interval])))",
                "p50 {{instance}}",
            ),
            ("instance:streamkernel_event_seconds:p99_rate5m{$at}", "p99 {{instance}}"),
        ),
    ),
    Panel(
        "Dead letters",
        "Records per second that could not be used, by reason. Each is a dead letter with its error.",
        "eps",
        (
            (
                "clamp_min(deriv(streamkernel_dead_letters_total{$at}[$__rate_interval]), 0)",
                "{{reason}} {{instance}}",
            ),
        ),
    ),
    Panel(
        "Share of dead letters",
        "Dead letters, as a share of all records read.",
        "percentunit",
        (("instance:streamkernel_dead_letters:ratio5m{$at}", "{{instance}}"),),
        above=0.01,
    ),
    Panel(
        "Pending labels",
        "Predictions whose label has not arrived; at the cap the oldest are dropped.",
        "short",
        (("streamkernel_pending_labels{$at}", "{{instance}}"),),
    ),
    Panel(
        "Labels",
        "Labels from separate records per second, by outcome.",
        "eps",
        (("clamp_min(deriv(streamkernel_labels_total{$at}[$__rate_interval]), 0)", "{{outcome}} {{instance}}"),),
    ),
)

HEALTH = (
    Panel(
        "Up",
        "1 while the process responds to scrapes.",
        "short",
        (("up{$at}", "{{instance}}"),),
        below=1.0,
        kind="stat",
    ),
    Panel(
        "Version",
        "The version of streamkernel of each process.",
        "short",
        (("streamkernel_build_info{$at}", "{{version}} {{instance}}"),),
        kind="stat",
    ),
    Panel(
        "Since the last event",
        "Time since an event was processed. It also grows if no events arrive: look at the lag.",
        "s",
        (("time() - (streamkernel_last_event_timestamp_seconds{$at} > 0)", "{{instance}}"),),
    ),
    Panel(
        "Age of the checkpoint",
        "After a crash, this much work is repeated. It should stay near the configured interval.",
        "s",
        (
            ("streamkernel_checkpoint_age_seconds{$at}", "age {{instance}}"),
            ("streamkernel_checkpoint_interval_seconds{$at}", "interval {{instance}}"),
        ),
    ),
    Panel(
        "Time of a checkpoint",
        "Mean time to write a checkpoint, while learning is paused.",
        "s",
        (
            (
                "increase(streamkernel_checkpoint_seconds_sum{$at}[5m]) / "
                "(increase(streamkernel_checkpoint_seconds_count{$at}[5m]) > 0)",
                "{{instance}}",
            ),
        ),
    ),
    Panel(
        "Size of a checkpoint",
        "Size on disk; three are kept.",
        "bytes",
        (("streamkernel_checkpoint_size_bytes{$at}", "{{instance}}"),),
    ),
    Panel(
        "Incidents",
        "Problems that the run survived, in five minutes: rebalanced partitions, refused commits, unavailable brokers, "
        "failed checkpoints, a source that returned nothing, lost workers.",
        "short",
        (("increase(streamkernel_incidents_total{$at}[5m])", "{{kind}} {{instance}}"),),
        above=1.0,
    ),
    Panel(
        "Memory",
        "Memory of the process, of the model's arrays, and of cached directions.",
        "bytes",
        (
            ("process_resident_memory_bytes{$at}", "process {{instance}}"),
            ("streamkernel_model_bytes{$at}", "model {{instance}}"),
            ("streamkernel_cache_bytes{$at}", "directions {{instance}}"),
        ),
    ),
    Panel(
        "Processors",
        "Processors used by the process. Learning uses one at most.",
        "short",
        (("rate(process_cpu_seconds_total{$at}[$__rate_interval])", "{{instance}}"),),
    ),
    Panel(
        "Workers",
        "On a cluster: workers in the last round, and the mean number of busy ones. If far fewer are busy, they wait "
        "for the slowest, for merging, or for checkpoints.",
        "short",
        (
            ("streamkernel_workers{$at}", "workers {{instance}}"),
            (
                "sum by (instance) (rate(streamkernel_worker_seconds_total{$at}[5m]))",
                "busy {{instance}}",
            ),
        ),
    ),
    Panel(
        "Events by worker",
        "On a cluster: events per second of each worker. A worker far below the others has less to read, or a slower "
        "machine.",
        "eps",
        (("rate(streamkernel_worker_events_total{$at}[5m])", "worker {{worker}} {{instance}}"),),
    ),
    Panel(
        "Time of a round",
        "On a cluster: mean time of a round, and the part that merges the replicas while all workers wait. If that "
        "part is large, use more events per round.",
        "s",
        (
            (
                "increase(streamkernel_round_seconds_sum{$at}[5m]) / "
                "(increase(streamkernel_round_seconds_count{$at}[5m]) > 0)",
                "round {{instance}}",
            ),
            (
                "increase(streamkernel_merge_seconds_sum{$at}[5m]) / "
                "(increase(streamkernel_merge_seconds_count{$at}[5m]) > 0)",
                "merging {{instance}}",
            ),
        ),
    ),
)

DASHBOARDS = {
    "learning": ("streamkernel: learning", "Quality of the model, and how it learns.", LEARNING),
    "consumer": ("streamkernel: consumer", "Events, their rate, the lag, and dead letters.", CONSUMER),
    "health": ("streamkernel: health", "State of the process and its checkpoints.", HEALTH),
}
"""Title, description and panels of each dashboard, by the name of its file."""
