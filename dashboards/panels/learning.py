"""Quality of the model, what it reads and predicts, and how it learns."""

from __future__ import annotations

from dashboards.panels.panel import Panel

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
        "Predictions and targets out of range",
        "Of a model of numbers, in the last hour: predictions that were limited to the range of the targets seen, and "
        "targets that did not count in full because they were outliers. Many limited predictions are inputs unlike "
        "those before, such as a code for missing values; many outliers are corrupt labels.",
        "short",
        (
            (
                "clamp_min(delta(streamkernel_bounded_predictions_total{$at}[1h]), 0)",
                "limited predictions {{instance}}",
            ),
            ("clamp_min(delta(streamkernel_outlying_targets_total{$at}[1h]), 0)", "outlying targets {{instance}}"),
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
