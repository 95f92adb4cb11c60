"""The state of the process and its checkpoints."""

from __future__ import annotations

from dashboards.panels.panel import Panel

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
