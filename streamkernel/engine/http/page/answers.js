// The answers to the four questions, as figures, sentences, lists and tables.

import { $, keyed, make, pairs, write } from "./dom.js";
import { duration, percent, qualityOf, shown } from "./figures.js";
import { explainDip, listMarks } from "./marks.js";

const SHOWN = new Set(["learned", "lag", "dead letters", "age of the checkpoint, s", "workers", "round, s", "merging, s", "spread of replicas"]);
let earlier = null;

function speed(run) {
  if (!earlier || run.clock < earlier.clock || run.clock - earlier.clock > 8) earlier = { clock: run.clock, events: run.events, rate: null };
  else if (run.clock - earlier.clock > 1.5) earlier = { clock: run.clock, events: run.events, rate: (run.events - earlier.events) / (run.clock - earlier.clock) };
  return earlier.rate;
}

const VERDICTS = { ok: "Yes", look: "Check", ill: "No", unknown: "Unknown" };

export function judge(state, why) {
  $("health").dataset.state = state;
  write($("well"), VERDICTS[state]);
  write($("why"), why);
}

function labelRows({ joined, lost = {}, why_none_joins: why, is_losing: isLosing } = {}) {
  if (joined === undefined) return [];
  const gone = Object.entries(lost).filter(([, { count }]) => count).map(([name, { count, share }]) => `${name} ${shown(count)} (${percent(share)})`);
  return [["labels joined", [shown(joined), ...gone].join(", "), why || isLosing ? "look" : "ok"]];
}

export function showHealth(run) {
  const { now, incidents } = run, rate = speed(run), dead = now["dead letters"] ?? 0, share = dead / Math.max(1, dead + (now.learned ?? 0));
  const idle = run.last_event ? run.clock - run.last_event : 0, age = now["age of the checkpoint, s"];
  const rows = [["learned", shown(now.learned)]];
  if (rate !== null) rows.push(["events/s", shown(rate)]);
  if (idle > 60) rows.push(["without an event for", duration(idle), now.lag ? "look" : "ok"]);
  if ("lag" in now) rows.push(["lag", shown(now.lag)]);
  rows.push(["dead letters", dead ? `${shown(dead)} (${percent(share)})` : "0", share > 0.05 ? "look" : "ok"]);
  rows.push(...labelRows(run.labels));
  if (age !== undefined) rows.push(["last checkpoint", `${duration(age)} ago`, age > 300 ? "look" : "ok"]);
  const met = Object.entries(incidents);
  if (met.length) rows.push(["incidents", met.map(([kind, n]) => `${kind.replaceAll("_", " ")} ${n}`).join(", "), "look"]);
  const faults = rows.filter(([, , state]) => state === "look").map(([name]) => name).join(", ");
  if (run.ill) judge("ill", run.ill);
  else if (run.labels?.why_none_joins) judge("look", run.labels.why_none_joins);
  else if (faults) judge("look", faults);
  else if (run.clock) judge("ok", now.lag === 0 ? "It has learned all events so far." : "It learns, and nothing needs attention.");
  else judge("unknown", "This is a checkpoint, not a running process.");
  pairs($("now"), rows.map(([name, text, state]) => [name, text, state ?? "ok"]));
}

export function showQuality(run) {
  const { metric, quality } = run, value = quality.recent ?? quality["since start"], sign = metric.bigger_is_better ? 1 : -1;
  write($("score"), shown(value));
  write($("score-name"), `${metric.name}, ${quality.recent === undefined || quality.recent === null ? "since the start" : "last 1,000"}`);
  const gap = (other, name) => {
    const by = sign * (value - other);
    return Math.abs(by) <= 0.0005 * Math.abs(other) ? `the same as ${name}, ${shown(other)}` : `${shown(Math.abs(by))} ${by > 0 ? "better" : "worse"} than ${name}, ${shown(other)}`;
  };
  const parts = [];
  const isKnown = (one) => one !== null && one !== undefined && value !== null;
  if (isKnown(quality.baseline)) parts.push(gap(quality.baseline, `the baseline (${metric.baseline})`));
  if (isKnown(quality.recent) && isKnown(quality["since start"])) parts.push(gap(quality["since start"], "since the start"));
  write($("verdict"), parts.length ? `${parts.join("; ")}.` : "");
  $("quality").dataset.state = isKnown(quality.baseline) && sign * (value - quality.baseline) <= 0 ? "look" : "ok";
  const { monitoring = {} } = run, judged = monitoring.quality ? judgedTables(monitoring.quality) : [];
  const targets = targetsTable(run.targets ?? {}, metric.name);
  showTables($("compared"), [...(run.models?.length ? [modelsTable(run.models)] : []), targets]);
  showTables($("judged"), [...judged, ...(monitoring.statistics ? [calibrationTable(monitoring.statistics)] : [])]);
}

export function showChanges(run) {
  const { monitoring = {}, metric, marks, history } = run, isWatched = Boolean(monitoring.drift ?? monitoring.novelty);
  const values = Object.values(qualityOf(history, run.is_mean))[0];
  const isBetter = (one, other) => (metric.bigger_is_better ? one > other : one < other);
  const dip = run.is_mean && values ? explainDip(history.events, values, isBetter, marks, isWatched) : "";
  const hint = isWatched || run.cluster || !run.clock ? "" : "The table [drift] of the configuration turns their detection on.";
  const nothing = listMarks(marks, isWatched);
  const { recent = null, rate } = monitoring.novelty ?? {};
  const novel = recent === null ? "" : `${percent(recent)} of the last 1,000 examined events are novel; ${percent(rate)} are expected.`;
  write($("dip"), [dip, nothing, nothing && hint, novel].filter(Boolean).join(" "));
  showTables($("fields"), monitoring.statistics ? fieldTables(monitoring.statistics) : []);
  showDeadLetters(run.dead_letter_groups);
}

function showDeadLetters(groups) {
  $("no-dead").hidden = groups.length > 0;
  const build = () => make("li", {}, make("p", {}, make("b"), " ", make("span")), make("details", {}, make("summary", {}, "Last samples"), make("div")));
  keyed($("dead"), groups, (group) => group.reason, build, (item, { reason, count, samples }) => {
    write(item.querySelector("b"), `${shown(count)} ×`);
    write(item.querySelector("span"), reason);
    const cells = samples.map((sample, i) => ({ i, text: `${sample.stream}: ${sample.raw}`, why: sample.reason }));
    keyed(item.querySelector("div"), cells, ({ i }) => i, () => make("p", {}, make("span"), make("code")), (cell, { text, why }) => {
      write(cell.firstChild, why === reason ? "" : why);
      write(cell.lastChild, text);
    });
  });
}

export function showLearning(run) {
  const shares = Object.entries(run.importances), more = Object.entries(run.now).filter(([name]) => !SHOWN.has(name));
  $("inputs").hidden = shares.length === 0;
  const build = () => make("li", {}, make("span"), make("meter", { "aria-hidden": "true" }), make("span"));
  keyed($("importances"), shares, ([name]) => name, build, (item, [name, share]) => {
    write(item.firstElementChild, name);
    item.children[1].value = share;
    write(item.lastElementChild, percent(share));
  });
  pairs($("more"), more.map(([name, value]) => [name, shown(value)]));
  pairs($("model"), Object.entries(run.about));
}

export function showWorkers(now) {
  pairs($("workers"), ["workers", "round, s", "merging, s", "spread of replicas"].filter((name) => name in now).map((name) => [name, shown(now[name])]));
}

// Tables whose cells are changed in place.

function buildTable({ key }) {
  const table = make("table", {}, make("caption"), make("thead", {}, make("tr")), make("tbody"));
  return make("div", { class: "table", tabindex: "0", role: "region", "aria-label": key }, table);
}

function fillTable(box, { key, caption, columns, rows }) {
  const [title, head, body] = box.firstElementChild.children;
  write(title, caption ?? key);
  keyed(head.firstElementChild, columns, (name) => name, () => make("th", { scope: "col" }), write);
  keyed(body, rows, ([name]) => name, () => make("tr"), (row, cells) => {
    const all = cells.map((value, i) => [i, typeof value === "string" ? value : shown(value)]);
    keyed(row, all, ([i]) => i, ([i]) => (i ? make("td") : make("th", { scope: "row" })), (cell, [, text]) => write(cell, text));
  });
}

function showTables(parent, tables) {
  keyed(parent, tables.filter((one) => one.rows.length), (one) => one.key, buildTable, fillTable);
}

function judgedTables({ metrics = {}, confusion = { classes: [] }, classes = {}, segments = {} }) {
  const names = Object.keys(Object.values(segments)[0]?.["since start"] ?? {});
  return [
    { key: "Further metrics", columns: ["metric", "since the start", "last 1,000"], rows: Object.entries(metrics).map(([name, of]) => [name, of["since start"], of.recent]) },
    { key: "Segments, last 1,000", columns: ["segment", "labels", ...names], rows: Object.entries(segments).map(([name, of]) => [name, of.labels, ...names.map((metric) => of.recent?.[metric])]) },
    { key: "Classes, last 1,000", columns: ["class", "labels", "precision", "recall", "F1"], rows: Object.entries(classes).map(([name, of]) => [name, of.labels, of.precision, of.recall, of.f1]) },
    { key: "Predictions by label, since the start", columns: ["label", ...confusion.classes], rows: confusion.classes.map((name, i) => [name, ...confusion.counts[i]]) },
  ];
}

function targetsTable(targets, metric) {
  const rows = Object.entries(targets).map(([name, of]) => [name, of["since start"], of.coverage ?? null, of.width ?? null]);
  return { key: "Targets", columns: ["target", `${metric} since the start`, "coverage, last 1,000", "median width"], rows };
}

function calibrationTable({ calibration }) {
  const rows = calibration.bins.map(([n, ...of]) => [shown(n), ...of]).map((row, i) => [`${i + 1}`, ...row]);
  return { key: "Calibration", caption: `Calibration: error ${shown(calibration.error)}`, columns: ["bin", "labels", "confidence", "share right"], rows };
}

function fieldTables({ events, inputs, predictions }) {
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

function modelsTable(models) {
  const columns = ["model", "role", `${models[0]?.name_of_metric} since it began`, "last 1,000", "better than the champion", "events", "errors", "last error"];
  const [champion] = models, better = (one) => (one === champion || one.recent === null || champion.recent === null ? "–" : shown(one.recent - champion.recent));
  return { key: "Champion and challengers", columns, rows: models.map((one) => [one.model, one.role, one.metric, one.recent, better(one), one.judged, one.errors, one.reason]) };
}
