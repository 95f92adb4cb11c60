// Charts with one horizontal axis: they are zoomed, read and marked together.

import { clock, shown } from "./figures.js";

export class Group {
  constructor(axis) {
    this.axis = axis; // events, time or rounds
    this.charts = new Map();
    this.window = null;
    this.reading = null; // the value of the axis that the pointer or the keyboard is at
    this.marks = [];
    this.x = [];
    this.onZoom = () => {};
  }

  // The points of the axis; those without a value of it, as times of an earlier process, are left out.
  points(values) {
    this.kept = values.flatMap((value, i) => (value === null || value === undefined ? [] : [i]));
    const before = this.x[this.x.length - 1];
    this.x = this.kept.map((i) => values[i]);
    if (this.reading !== null) this.reading = this.x[this.nearest(this.reading)] ?? null; // a thinned history has fewer points
    const by = this.x[this.x.length - 1] - before;
    if (this.window && this.window[1] >= before && by > 0) this.window = this.window.map((edge) => edge + by);
  }

  pick(values) {
    return this.kept.map((i) => values[i] ?? null);
  }

  show(axis) {
    this.axis = axis;
    this.zoom(null);
    for (const chart of this.charts.values()) chart.rebuild();
  }

  range(low, high) {
    if (this.window) return this.window;
    return [this.axis === "events" ? 0 : low, high > low ? high : low + 1];
  }

  zoom(window) {
    this.window = window;
    const first = this.x[0] ?? 0, last = this.x[this.x.length - 1] ?? 1;
    for (const chart of this.charts.values()) chart.scale(this.range(first, last));
    this.onZoom(window !== null);
  }

  zoomBy(factor, about) {
    const first = this.axis === "events" ? 0 : this.x[0], last = this.x[this.x.length - 1];
    const [low, high] = this.range(this.x[0], last);
    const min = Math.max(first, about - (about - low) * factor), max = Math.min(last, about + (high - about) * factor);
    this.zoom(min <= first && max >= last ? null : [min, max]);
  }

  zoomAtEnd(factor) {
    if (this.x.length) this.zoomBy(factor, this.range(this.x[0], this.x[this.x.length - 1])[1]);
  }

  read(value) {
    this.reading = value;
    for (const chart of this.charts.values()) chart.pointAt(value);
  }

  nearest(value) {
    let near = 0;
    this.x.forEach((x, i) => { if (Math.abs(x - value) < Math.abs(this.x[near] - value)) near = i; });
    return near;
  }

  placeOf(mark) {
    return this.axis === "time" ? mark.time : mark.event;
  }

  label(value) {
    if (this.axis === "time") return clock(value);
    return `${this.axis === "events" ? "event" : "round"} ${shown(Math.round(value))}`;
  }
}
