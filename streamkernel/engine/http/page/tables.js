// Tables whose cells are changed in place.

import { keyed, make, write } from "./dom.js";
import { shown } from "./numbers.js";

function build({ key }) {
  const table = make("table", {}, make("caption"), make("thead", {}, make("tr")), make("tbody"));
  return make("div", { class: "table", tabindex: "0", role: "region", "aria-label": key }, table);
}

function fill(box, { key, caption, columns, rows }) {
  const [title, head, body] = box.firstElementChild.children;
  write(title, caption ?? key);
  keyed(head.firstElementChild, columns, (name) => name, () => make("th", { scope: "col" }), write);
  keyed(body, rows, ([name]) => name, () => make("tr"), (row, cells) => {
    const all = cells.map((value, i) => [i, typeof value === "string" ? value : shown(value)]);
    keyed(row, all, ([i]) => i, ([i]) => (i ? make("td") : make("th", { scope: "row" })), (cell, [, text]) => write(cell, text));
  });
}

export function showTables(parent, tables) {
  keyed(parent, tables.filter((one) => one.rows.length), (one) => one.key, build, fill);
}

export function judgedTables({ metrics = {}, confusion = { classes: [] }, classes = {}, segments = {} }) {
  const names = Object.keys(Object.values(segments)[0]?.["since start"] ?? {});
  return [
    { key: "Further metrics", columns: ["metric", "since the start", "last 1,000"], rows: Object.entries(metrics).map(([name, of]) => [name, of["since start"], of.recent]) },
    { key: "Segments, last 1,000", columns: ["segment", "labels", ...names], rows: Object.entries(segments).map(([name, of]) => [name, of.labels, ...names.map((metric) => of.recent?.[metric])]) },
    { key: "Classes, last 1,000", columns: ["class", "labels", "precision", "recall", "F1"], rows: Object.entries(classes).map(([name, of]) => [name, of.labels, of.precision, of.recall, of.f1]) },
    { key: "Predictions by label, since the start", columns: ["label", ...confusion.classes], rows: confusion.classes.map((name, i) => [name, ...confusion.counts[i]]) },
  ];
}

export function targetsTable(targets, metric) {
  const rows = Object.entries(targets).map(([name, of]) => [name, of["since start"], of.coverage ?? null, of.width ?? null]);
  return { key: "Targets", columns: ["target", `${metric} since the start`, "coverage, last 1,000", "median width"], rows };
}

export function calibrationTable({ calibration }) {
  const rows = calibration.bins.map(([n, ...of]) => [shown(n), ...of]).map((row, i) => [`${i + 1}`, ...row]);
  return { key: "Calibration", caption: `Calibration: error ${shown(calibration.error)}`, columns: ["bin", "labels", "confidence", "share right"], rows };
}

export function fieldTables({ events, inputs, predictions }) {
  const numbers = ["change", "missing", "new", "outside"];
  const rowsOf = (fields) => Object.entries(fields).sort(([, a], [, b]) => (b.last.change ?? 0) - (a.last.change ?? 0))
    .map(([field, { reference, last }]) => [field, ...numbers.map((of) => last[of]), last.mean, reference.mean, last.quantiles?.[2], reference.quantiles?.[2]]);
  const columns = ["field", ...numbers, "mean", "mean at first", "median", "median at first"];
  const shares = predictions.prediction?.last.shares ?? {};
  return [
    { key: "Inputs, last window", caption: `Inputs, last window, up to event ${shown(events)}. Change is the population stability index: above 0.25 is large`, columns, rows: rowsOf(inputs) },
    { key: "Predictions, last window", columns, rows: rowsOf(predictions) },
    { key: "Predicted classes, last window", columns: ["class", "share", "share at first"], rows: Object.entries(shares).map(([name, share]) => [name, share, predictions.prediction.reference.shares[name]]) },
  ];
}

export function modelsTable(models) {
  const columns = ["model", "role", `${models[0]?.name_of_metric} since it began`, "last 1,000", "better than the champion", "events", "errors", "last error"];
  const [champion] = models, better = (one) => (one === champion || one.recent === null || champion.recent === null ? "–" : shown(one.recent - champion.recent));
  return { key: "Champion and challengers", columns, rows: models.map((one) => [one.model, one.role, one.metric, one.recent, better(one), one.judged, one.errors, one.reason]) };
}
