"use strict";
// The numbers of a run: asked for every second, or those that a report has in itself.

const WIDTH = 480, HEIGHT = 200, LEFT = 52, RIGHT = 8, TOP = 8, BOTTOM = 22, STYLES = 6;
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);
const charts = new Map();
let earlier = null;

function make(tag, attributes = {}, text) {
  const made = ["svg", "path", "line", "text"].includes(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function shown(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 0.001 || size >= 1e9) return value.toExponential(2);
  return value.toLocaleString("en", { maximumFractionDigits: size >= 100 ? 0 : size >= 10 ? 1 : 4 });
}

function ticks(low, high, least = 0) {
  const rough = Math.max((high - low) / 4, least), unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * unit).find((n) => n >= rough * 0.999);
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step) found.push(value);
  return found;
}

class Chart {
  constructor(title, unit) {
    this.title = title;
    this.unit = unit;
    this.at = null;
    this.figure = make("figure");
    this.svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", tabindex: "0" });
    this.legend = make("ul", { class: "legend" });
    this.read = make("p", { class: "read", "aria-live": "polite" });
    this.figure.append(make("h3", {}, title), this.svg, this.legend, this.read);
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.move(null));
    $(`${unit}s`).append(this.figure);
  }

  draw(x, series, fromZero) {
    this.x = x;
    this.series = series;
    const values = series.flatMap((one) => one.values).filter((value) => value !== null);
    let low = Math.min(...values), high = Math.max(...values);
    if (fromZero) low = Math.min(0, low);
    if (high - low < 1e-9 * Math.max(1, Math.abs(high))) { low -= fromZero ? 0 : 0.5; high += 0.5; }
    const last = x[x.length - 1], first = this.unit === "event" ? 0 : x[0];
    this.px = (value) => LEFT + (WIDTH - LEFT - RIGHT) * (value - first) / (last - first || 1);
    this.py = (value) => HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low);
    const parts = [];
    for (const tick of ticks(low, high)) {
      parts.push(make("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: this.py(tick), y2: this.py(tick) }));
      parts.push(make("text", { x: LEFT - 6, y: this.py(tick) + 4, "text-anchor": "end" }, shown(tick)));
    }
    for (const tick of ticks(first, last, 1).filter((tick) => tick > first)) {
      const anchor = this.px(tick) > WIDTH - 30 ? "end" : "middle";
      parts.push(make("text", { x: this.px(tick), y: HEIGHT - 6, "text-anchor": anchor }, shown(tick)));
    }
    series.forEach((one, i) => {
      let path = "", pen = "M";
      one.values.forEach((value, j) => {
        if (value === null) { pen = "M"; return; }
        path += `${pen}${this.px(x[j]).toFixed(1)} ${this.py(value).toFixed(1)}`;
        pen = "L";
      });
      parts.push(make("path", { class: `s${i % STYLES}`, d: path }));
    });
    this.cursor = make("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    this.svg.replaceChildren(...parts, this.cursor);
    const ends = series.map((one) => `${one.name} ${shown(one.values[one.values.length - 1])}`).join(", ");
    const over = this.unit === "event" ? `over ${shown(last)} events` : `in rounds ${shown(first)} to ${shown(last)}`;
    this.svg.setAttribute("aria-label", `${this.title} ${over}; last: ${ends}`);
    this.legend.replaceChildren(...(series.length < 2 ? [] : series.map((one, i) => {
      const item = make("li"), sample = make("svg", { viewBox: "0 0 28 10", "aria-hidden": "true" });
      sample.append(make("path", { class: `s${i % STYLES}`, d: "M0 5L28 5" }));
      item.append(sample, one.name);
      return item;
    })));
    this.move(this.at);
  }

  key(event) {
    const n = this.x.length, at = this.at ?? n - 1;
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: n - 1, Escape: null }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.move(to === null ? null : Math.max(0, Math.min(n - 1, to)));
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const place = (event.clientX - box.left) / box.width * WIDTH;
    let near = 0;
    this.x.forEach((value, i) => { if (Math.abs(this.px(value) - place) < Math.abs(this.px(this.x[near]) - place)) near = i; });
    this.move(near);
  }

  move(at) {
    this.at = at;
    this.cursor.setAttribute("visibility", at === null ? "hidden" : "visible");
    if (at === null || at >= this.x.length) { this.read.textContent = ""; return; }
    const place = this.px(this.x[at]);
    this.cursor.setAttribute("x1", place);
    this.cursor.setAttribute("x2", place);
    const values = this.series.map((one) => `${one.name} ${shown(one.values[at])}`).join(", ");
    this.read.textContent = `${this.unit} ${shown(this.x[at])}: ${values}`;
  }
}

function chart(title, x, named, fromZero = false, unit = "event") {
  const series = Object.entries(named).map(([name, values]) => ({ name, values })).filter((one) => one.values?.some((value) => value !== null));
  if (x.length < 2 || !series.length) return;
  if (!charts.has(title)) charts.set(title, new Chart(title, unit));
  charts.get(title).draw(x, series, fromZero);
}

function rates(history) {
  const { events, time } = history, over = Math.max(1, Math.round(events.length / 32));
  return events.map((n, i) => {
    const from = Math.max(0, i - over), seconds = time[from] === null ? 0 : time[i] - time[from];
    return seconds > 0 ? (n - events[from]) / seconds : null;
  });
}

function late(history, values) {
  const n = history.learned, over = Math.max(1, Math.round(n.length / 32));
  return values.map((value, i) => {
    const from = i - over, before = from < 0 ? 0 : n[from], sum = from < 0 ? 0 : values[from] * n[from];
    return value === null || (from >= 0 && values[from] === null) || n[i] <= before ? null : (value * n[i] - sum) / (n[i] - before);
  });
}

function drawAll(history, isMean) {
  const x = history.events ?? [], quality = {}, weights = {};
  for (const [name, values] of Object.entries(history)) {
    if (name.startsWith("weight: ")) weights[name.slice(8)] = values;
    if (!name.startsWith("quality: ")) continue;
    quality[name.slice(9)] = isMean ? late(history, values) : values;
  }
  chart(isMean ? "Recent quality" : "Quality since the start", x, quality);
  chart("Coverage of the last 1,000", x, { coverage: history.coverage, target: history["coverage target"] });
  chart("Width of intervals", x, { "median width": history["median width"] }, true);
  chart("Labels in a set", x, { "mean labels": history["mean labels"] }, true);
  chart("Objective", x, { objective: history.objective });
  chart("Features", x, { features: history.features }, true);
  chart("Step size", x, { "step size": history["step size"] }, true);
  chart("Weights of functions", x, weights, true);
  if (history.time) chart("Events per second", x, { "events/s": rates(history) }, true);
  chart("Lag", x, { lag: history.lag }, true);
  chart("Dead letters", x, { "dead letters": history.dead_letters }, true);
}

function drawRounds({ round, rates, seconds, merging, spread }) {
  chart("Events per second, by worker", round, rates, true, "round");
  chart("Seconds per round", round, { "whole round": seconds, "of which merging": merging }, true, "round");
  chart("Spread of replicas", round, { spread }, true, "round");
}

function pairs(list, rows) {
  const present = [...list.querySelectorAll("dt")].map((one) => one.textContent);
  if (present.join("\n") !== rows.map(([name]) => name).join("\n")) {
    list.replaceChildren(...rows.map(([name]) => {
      const row = make("div");
      row.append(make("dt", {}, name), make("dd"));
      return row;
    }));
    if (list.id === "model") list.replaceChildren(...[...list.children].flatMap((row) => [...row.children]));
  }
  list.querySelectorAll("dd").forEach((cell, i) => { if (cell.textContent !== rows[i][1]) cell.textContent = rows[i][1]; });
}

function drawImportances(shares) {
  $("inputs").hidden = shares.length === 0;
  $("importances").replaceChildren(...shares.map(([name, share]) => {
    const item = make("li"), bar = make("meter", { value: share, "aria-hidden": "true" });
    item.append(make("span", {}, name), bar, make("span", {}, `${(100 * share).toFixed(1)} %`));
    return item;
  }));
}

function table(caption, columns, rows) {
  if (!rows.length) return [];
  const made = make("table"), head = make("tr"), body = make("tbody"), box = make("div", { class: "table", tabindex: "0", role: "region", "aria-label": caption });
  head.append(...columns.map((name) => make("th", { scope: "col" }, name)));
  for (const [name, ...values] of rows) {
    const row = make("tr");
    row.append(make("th", { scope: "row" }, name), ...values.map((value) => make("td", {}, typeof value === "string" ? value : shown(value))));
    body.append(row);
  }
  const top = make("thead");
  top.append(head);
  made.append(make("caption", {}, caption), top, body);
  box.append(made);
  return [box];
}

function qualityTables({ metrics, confusion, classes, segments }) {
  const names = Object.keys(Object.values(segments)[0]?.["since start"] ?? {});
  return [
    ...table("Further metrics", ["metric", "since the start", "last 1,000"], Object.entries(metrics).map(([name, of]) => [name, of["since start"], of.recent])),
    ...table("Classes, last 1,000", ["class", "labels", "precision", "recall", "F1"], Object.entries(classes).map(([name, of]) => [name, of.labels, of.precision, of.recall, of.f1])),
    ...table("Predictions by label, since the start", ["label", ...confusion.classes], confusion.classes.map((name, i) => [name, ...confusion.counts[i]])),
    ...table("Segments, last 1,000", ["segment", "labels", ...names], Object.entries(segments).map(([name, of]) => [name, of.labels, ...names.map((metric) => of.recent?.[metric])])),
  ];
}

function fieldTable(caption, name, fields) {
  const numbers = ["change", "missing", "new", "outside", "mean", "deviation"];
  const rows = Object.entries(fields).map(([field, { reference, last }]) => [field, ...numbers.map((of) => last[of]), last.quantiles?.[2], reference.mean, reference.quantiles?.[2]]);
  return table(caption, [name, ...numbers, "median", "mean at first", "median at first"], rows);
}

function statisticsTables({ events, inputs, predictions, calibration }) {
  const shares = predictions.prediction ? Object.entries(predictions.prediction.last.shares) : [];
  return [
    ...fieldTable(`Inputs, last window, up to event ${shown(events)}`, "field", inputs),
    ...fieldTable("Predictions, last window", "value", predictions),
    ...table("Predicted classes, last window", ["class", "share", "share at first"], shares.map(([name, share]) => [name, share, predictions.prediction.reference.shares[name]])),
    ...table(`Calibration: error ${shown(calibration.error)}`, ["labels", "confidence", "share right"], calibration.bins.map(([n, ...of]) => [shown(n), ...of])),
  ];
}

function driftTables({ alarms }) {
  const rows = alarms.slice().reverse().map(({ event, detector, moved }) => [shown(event), detector, moved.map((one) => one.field).join(", ")]);
  return table("Changes of the stream", ["event", "detector", "fields that moved most"], rows);
}

function drawWatched(monitoring) {
  const found = [...(monitoring.drift ? driftTables(monitoring.drift) : []), ...(monitoring.statistics ? statisticsTables(monitoring.statistics) : []), ...(monitoring.quality ? qualityTables(monitoring.quality) : [])];
  $("watched").hidden = !found.length;
  $("tables").replaceChildren(...found);
}

function drawModels(rows) {
  $("models").hidden = rows.length === 0;
  const columns = ["model", "role", `${rows[0]?.name_of_metric} since it began`, "last 1,000", "events", "errors", "last error"];
  const cells = rows.map((one) => [one.model, one.role, one.metric, one.recent, one.judged, one.errors, one.reason]);
  $("compared").replaceChildren(...table("Quality of each model", columns, cells));
}

function show(run) {
  const rows = Object.entries(run.now).map(([name, value]) => [name, shown(value)]);
  if (earlier && run.clock > earlier.clock) rows.splice(2, 0, ["events/s", shown((run.events - earlier.events) / (run.clock - earlier.clock))]);
  pairs($("now"), rows);
  pairs($("model"), Object.entries(run.about));
  drawAll(run.history, run.is_mean);
  drawModels(run.models ?? []);
  drawImportances(Object.entries(run.importances));
  drawWatched(run.monitoring ?? {});
  $("cluster").hidden = !run.cluster || run.cluster.round.length < 2;
  if (run.cluster) drawRounds(run.cluster);
  $("no-dead").hidden = run.dead_letters.length > 0;
  $("dead").replaceChildren(...run.dead_letters.slice().reverse().map((letter) => {
    const item = make("li");
    item.append(make("span", {}, letter.reason), make("code", {}, `${letter.stream}: ${letter.raw}`));
    return item;
  }));
  if (!earlier || run.clock - earlier.clock > 3) earlier = { clock: run.clock, events: run.events };
}

function say(state, text) {
  if ($("state").textContent === text) return;
  $("state").dataset.state = state;
  $("state").textContent = text;
}

async function ask() {
  const token = sessionStorage.getItem("token");
  try {
    const answer = await fetch("status", { headers: token ? { authorization: `Bearer ${token}` } : {} });
    $("ask").hidden = answer.status !== 401;
    if (answer.ok) {
      const run = await answer.json();
      show(run);
      say(run.ill ? "ill" : "live", run.ill || "running");
    } else {
      say("ill", (await answer.json()).error);
    }
  } catch {
    say("ill", "no answer: the run has ended, or cannot be reached");
  }
  setTimeout(ask, 1000);
}

const own = $("run").textContent.trim();
if (own) {
  show(JSON.parse(own));
  say("live", $("run").dataset.title);
} else {
  $("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem("token", $("token").value);
  });
  ask();
}
