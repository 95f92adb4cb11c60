"""Events, their rate, the lag, and dead letters."""

from __future__ import annotations

from dashboards.panels.panel import Panel

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
        (
            ("streamkernel_pending_labels{$at}", "{{instance}}"),
            ("streamkernel_features_since_joined{$at}", "since a label was joined {{instance}}"),
        ),
    ),
    Panel(
        "Labels",
        "Labels from separate records per second, by outcome.",
        "eps",
        (("clamp_min(deriv(streamkernel_labels_total{$at}[$__rate_interval]), 0)", "{{outcome}} {{instance}}"),),
    ),
)
