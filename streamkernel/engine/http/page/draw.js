// Which charts there are, and what each shows.

import { Chart } from "./chart.js";
import { $ } from "./dom.js";
import { Group } from "./group.js";
import { qualityOf, rates, weightsOf } from "./figures.js";

export const run = new Group("events"), cluster = new Group("rounds");

function chart(group, place, title, named, options) {
  const kept = Object.fromEntries(Object.entries(named).filter(([, values]) => values?.some((value) => value !== null)));
  const present = group.charts.get(title);
  if (group.x.length < 2 || !Object.keys(kept).length) {
    if (present && !Object.keys(kept).length) { present.remove(); group.charts.delete(title); }
    return;
  }
  if (!present) group.charts.set(title, new Chart($(place), group, title, options));
  group.charts.get(title).update(kept);
}

let latest = null;

export function drawRun(status) {
  latest = status;
  const { history, marks, is_mean: isMean } = status;
  run.marks = marks;
  run.points((run.axis === "time" ? history.time : history.events) ?? []);
  const zero = { fromZero: true }, small = { ...zero, size: "small" };
  if (history.time) chart(run, "traffic", "Events per second", { "events/s": rates(history) }, small);
  chart(run, "traffic", "Lag", { lag: history.lag }, small);
  chart(run, "traffic", "Dead letters", { "dead letters": history.dead_letters?.some((n) => n > 0) ? history.dead_letters : null }, small);
  chart(run, "scores", isMean ? "Recent quality" : "Quality since the start", qualityOf(history, isMean), { size: "tall" });
  chart(run, "scores", "Coverage of the last 1,000", { coverage: history.coverage, target: history["coverage target"] });
  chart(run, "scores", "Width of intervals", { "median width": history["median width"] }, zero);
  chart(run, "scores", "Labels in a set", { "mean labels": history["mean labels"] }, zero);
  chart(run, "course", "Objective", { objective: history.objective });
  chart(run, "course", "Features", { features: history.features }, zero);
  chart(run, "course", "Step size", { "step size": history["step size"] }, zero);
  chart(run, "course", "Weights of functions", weightsOf(history), zero);
  chart(run, "course", "Expected gain of features", { new: history["gain of new features"], old: history["gain of old features"] }, zero);
}

export function drawRounds({ round, rates: byWorker, seconds, merging, spread }) {
  cluster.points(round);
  const zero = { fromZero: true };
  chart(cluster, "rounds", "Events per second, by worker", byWorker, zero);
  chart(cluster, "rounds", "Seconds per round", { "whole round": seconds, "of which merging": merging }, zero);
  chart(cluster, "rounds", "Spread of replicas", { spread }, zero);
}

export function switchAxis(axis) {
  run.axis = axis;
  if (!latest) return;
  run.points((axis === "time" ? latest.history.time : latest.history.events) ?? []);
  run.show(axis);
}

export function redraw() {
  for (const group of [run, cluster]) for (const one of group.charts.values()) one.plot?.redraw(false);
}
