"""What the dashboards show: a table of panels for each, for people on call and for those who look after a model.

In an expression, ``$at`` stands for the labels that the variables of a dashboard choose.
"""

from __future__ import annotations

from dataclasses import dataclass

AT = 'job=~"$job", instance=~"$instance"'


@dataclass(frozen=True)
class Panel:
    """One panel.

    Parameters
    ----------
    title, description
        What it is called, and what it says to whoever is on call.
    unit
        Grafana's name of the unit.
    queries
        Expressions with their legends.
    above, below
        From where on, or below what, it is red.
    kind
        ``"timeseries"``, or ``"stat"`` for the last number alone.
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
        "Quality of late",
        "The metric over the last 1,000 events, each predicted before it was learned, and that of the baseline: the "
        "most frequent class, or the last value. A model that is no better than the baseline is of no use.",
        "short",
        (
            ("streamkernel_metric_recent{$at}", "{{name}} {{instance}}"),
            ("streamkernel_baseline_metric_recent{$at}", "{{name}} of {{baseline}} {{instance}}"),
        ),
    ),
    Panel(
        "Quality since the start",
        "The metric over all events so far, and the same of the baseline. It moves slowly: look at the other first.",
        "short",
        (
            ("streamkernel_metric{$at}", "{{name}} {{instance}}"),
            ("streamkernel_baseline_metric{$at}", "{{name}} of {{baseline}} {{instance}}"),
        ),
    ),
    Panel(
        "Better than the baseline",
        "By how much the model is better than the baseline of late, in units of the metric, whether more or less of "
        "it is better. Below 0 the baseline is better.",
        "short",
        (("instance:streamkernel_advantage:recent{$at}", "{{name}} {{instance}}"),),
        below=0.0,
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
        "Random features in the model. They grow up to the cap; then time and memory of an event stay.",
        "short",
        (("streamkernel_features{$at}", "features {{instance}}"), ("streamkernel_seeds{$at}", "blocks {{instance}}")),
    ),
    Panel(
        "Share of steps that grew",
        "Steps that added a block of features, of all steps. 0 from the cap on.",
        "percentunit",
        (("instance:streamkernel_grown:ratio5m{$at}", "{{instance}}"),),
    ),
    Panel(
        "What the rule decided",
        "First order: steps a second in which the rule reused an old block, grew by a new one, or was forced to take "
        "an old one because there was no room. Where most are forced, a larger cap may be worth its time.",
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
        "What f is made of",
        "Second order: the weight of functions that take Newton steps, for what stands still, and constant steps, for "
        "what moves. Constant steps that gain are a sign of drift.",
        "short",
        (("streamkernel_function_weight{$at}", "{{steps}} {{instance}}"),),
    ),
    Panel(
        "Refitted coefficients",
        "The certified primal-dual gap of the coefficients when they were refitted last: how far the model can be from "
        "the best one on the events of that window.",
        "short",
        (("streamkernel_refit_gap{$at}", "{{instance}}"),),
    ),
    Panel(
        "Beginnings of larger groups",
        "Second order: how often a larger group of features began in an hour. It does when more features are worth it, "
        "or the stream has moved.",
        "short",
        (("changes(streamkernel_youngest_group_examples{$at}[1h])", "{{instance}}"),),
    ),
    Panel(
        "Spread of replicas",
        "On a cluster: how far the workers' functions were from their mean when they were merged last, in units of its "
        "size. Where it is large they learn different things in a round; shorter rounds let them agree more often.",
        "short",
        (("streamkernel_replica_spread{$at}", "{{instance}}"),),
    ),
)

CONSUMER = (
    Panel(
        "Events",
        "Events a second by what became of them.",
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
        "What is still to be read: records of a topic, bytes of a file. It should come back to about 0.",
        "short",
        (("streamkernel_consumer_lag{$at}", "{{topic}} {{partition}} {{instance}}"),),
    ),
    Panel(
        "Position",
        "How fast each stream is read: offsets or bytes a second.",
        "short",
        (("clamp_min(deriv(streamkernel_source_position{$at}[$__rate_interval]), 0)", "{{stream}} {{instance}}"),),
    ),
    Panel(
        "Time an event",
        "Time to predict and learn one event: half of them are below p50, 99 % below p99.",
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
        "Records that could not be used, a second, by why. They are in the dead letters with the reason in words.",
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
        "Of all records that came.",
        "percentunit",
        (("instance:streamkernel_dead_letters:ratio5m{$at}", "{{instance}}"),),
        above=0.01,
    ),
    Panel(
        "Labels that are waited for",
        "Predictions whose label has not come yet; at the cap the oldest are given up.",
        "short",
        (("streamkernel_pending_labels{$at}", "{{instance}}"),),
    ),
    Panel(
        "Labels",
        "What became of labels that came in records of their own, a second.",
        "eps",
        (("clamp_min(deriv(streamkernel_labels_total{$at}[$__rate_interval]), 0)", "{{outcome}} {{instance}}"),),
    ),
)

HEALTH = (
    Panel(
        "Up",
        "1 while the process answers.",
        "short",
        (("up{$at}", "{{instance}}"),),
        below=1.0,
        kind="stat",
    ),
    Panel(
        "Version",
        "Of streamkernel, of each process.",
        "short",
        (("streamkernel_build_info{$at}", "{{version}} {{instance}}"),),
        kind="stat",
    ),
    Panel(
        "Since the last event",
        "Time since an event was done. It grows when none come, too: look at the lag.",
        "s",
        (("time() - (streamkernel_last_event_timestamp_seconds{$at} > 0)", "{{instance}}"),),
    ),
    Panel(
        "Age of the checkpoint",
        "What is learned since is read and learned again after a crash. It should stay near the configured interval.",
        "s",
        (
            ("streamkernel_checkpoint_age_seconds{$at}", "age {{instance}}"),
            ("streamkernel_checkpoint_interval_seconds{$at}", "interval {{instance}}"),
        ),
    ),
    Panel(
        "Time of a checkpoint",
        "The mean; learning waits for it.",
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
        "On disk; three are kept.",
        "bytes",
        (("streamkernel_checkpoint_size_bytes{$at}", "{{instance}}"),),
    ),
    Panel(
        "Incidents",
        "What happened to a run that went on, in five minutes: partitions that went to others, commits that were "
        "refused, brokers that did not answer, checkpoints that failed, a source that gave nothing, workers that were "
        "lost.",
        "short",
        (("increase(streamkernel_incidents_total{$at}[5m])", "{{kind}} {{instance}}"),),
        above=1.0,
    ),
    Panel(
        "Memory",
        "Of the process, of the model's arrays, and of cached directions.",
        "bytes",
        (
            ("process_resident_memory_bytes{$at}", "process {{instance}}"),
            ("streamkernel_model_bytes{$at}", "model {{instance}}"),
            ("streamkernel_cache_bytes{$at}", "directions {{instance}}"),
        ),
    ),
    Panel(
        "Processors",
        "How many the process keeps busy. One is the most that learning uses.",
        "short",
        (("rate(process_cpu_seconds_total{$at}[$__rate_interval])", "{{instance}}"),),
    ),
    Panel(
        "Workers",
        "On a cluster: how many there were in the last round, and the mean of how many were busy. Where far fewer "
        "are, they wait for the slowest, for merging, or for checkpoints.",
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
        "On a cluster: events that each worker reads in a second. One far below the others has less to read, or a "
        "slower machine.",
        "eps",
        (("rate(streamkernel_worker_events_total{$at}[5m])", "worker {{worker}} {{instance}}"),),
    ),
    Panel(
        "Time of a round",
        "On a cluster: the mean, and the part of it that merges the replicas, which all workers wait for. If that is "
        "large, rounds of more events waste less.",
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
    "learning": ("streamkernel: learning", "How good the model is, and how it learns.", LEARNING),
    "consumer": ("streamkernel: consumer", "What comes in, how fast, and what cannot be used.", CONSUMER),
    "health": ("streamkernel: health", "Whether the process is well, and what it would lose.", HEALTH),
}
"""Title, description and panels of each dashboard, by the name of its file."""
