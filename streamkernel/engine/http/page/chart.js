// One chart: lines of a group's axis, a legend with the values, reading by keyboard, and a table.

import { make, write } from "./dom.js";
import { drawMarks, nearMarks } from "./marks.js";
import { clock, shown, ticks } from "./figures.js";
import { ink } from "./theme.js";

const uPlot = window.uPlot;
const LINES = [["one", []], ["two", [6, 3]], ["three", [2, 3]], ["one", [2, 3]], ["two", []], ["three", [9, 3, 2, 3]]];
const HEIGHTS = { small: 110, "": 160, tall: 260 };
const ROWS = 16, FONT = "12px system-ui, sans-serif";

export class Chart {
  constructor(parent, group, title, { fromZero = false, size = "" } = {}) {
    Object.assign(this, { group, title, fromZero, height: HEIGHTS[size], isMain: size === "tall", names: [], values: [] });
    this.box = make("div", { class: "plot", tabindex: "0", role: "img", "aria-describedby": "help" });
    this.legend = make("ul", { class: "legend" });
    this.spoken = make("p", { class: "unseen read", "aria-live": "polite" });
    this.body = make("tbody");
    this.head = make("tr");
    const table = make("table", {}, make("thead", {}, this.head), this.body);
    this.details = make("details", { class: "values" }, make("summary", {}, "Values"), make("div", { class: "table", tabindex: "0", role: "region", "aria-label": `${title}, values` }, table));
    this.details.addEventListener("toggle", () => this.fillTable());
    this.figure = make("figure", { class: size }, make("h3", {}, title), this.box, this.legend, this.spoken, this.details);
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("mousemove", () => this.plot && group.read(group.x[this.plot.cursor.idx] ?? null));
    this.box.addEventListener("mouseleave", () => group.read(null));
    this.box.addEventListener("blur", () => group.read(null));
    this.resizing = new ResizeObserver(() => this.resize());
    this.resizing.observe(this.box);
    parent.append(this.figure);
  }

  update(named) {
    const names = Object.keys(named), isNew = names.join("\n") !== this.names.join("\n");
    this.names = names;
    this.raw = Object.values(named);
    this.values = this.raw.map((values) => this.group.pick(values));
    if (isNew || !this.plot) this.rebuild();
    else {
      const { x } = this.group;
      this.scale(this.group.range(x[0], x[x.length - 1]), [x, ...this.values]);
    }
    const ends = names.map((name, i) => `${name} ${shown(this.values[i].at(-1))}`).join(", ");
    const label = `${this.title} up to ${this.group.label(this.group.x.at(-1) ?? 0)}; last: ${ends}`;
    if (this.box.getAttribute("aria-label") !== label) this.box.setAttribute("aria-label", label);
    if (this.group.reading === null) this.readAt(null);
  }

  // All at once, so that the event that is read is found where the new scale has it.
  scale([min, max], data = null) {
    this.plot?.batch(() => {
      if (data) this.plot.setData(data, false);
      this.plot.setScale("x", { min, max });
    });
    if (this.group.reading !== null) this.pointAt(this.group.reading);
  }

  rebuild() {
    this.plot?.destroy();
    this.plot = null;
    this.values = (this.raw ?? []).map((values) => this.group.pick(values));
    this.items = this.names.map((name, i) => {
      const sample = make("i", { class: `sample s${i % LINES.length}` }), value = make("b");
      return { item: make("li", {}, sample, `${name} `, value), value };
    });
    this.note = make("li", { class: "note" });
    this.legend.replaceChildren(...this.items.map(({ item }) => item), this.note);
    if (this.group.x.length < 2) return;
    this.plot = new uPlot(this.options(), [this.group.x, ...this.values], this.box);
    this.readAt(null);
  }

  options() {
    const { group } = this, axis = { stroke: () => ink("soft"), font: FONT, ticks: { show: false } };
    const grid = { stroke: () => ink("line"), width: 1 };
    const long = (plot) => plot.scales.x.max - plot.scales.x.min > 1800;
    const xValues = (plot, splits) => {
      if (group.axis === "time") return splits.map((value) => clock(value, !long(plot)));
      const numbers = ticks(splits);
      return splits.map((value, i) => (Number.isInteger(value) ? numbers[i] : ""));
    };
    return {
      ...this.size(),
      padding: [10, 14, 0, 4],
      legend: { show: false },
      cursor: {
        y: false,
        drag: { x: true, y: false, setScale: false },
        bind: { dblclick: () => () => group.zoom(null) },
        points: { size: 6 },
      },
      scales: { x: { time: false, range: (plot, low, high) => group.range(low, high) }, y: { range: (plot, low, high) => this.heights(low, high) } },
      axes: [
        { ...axis, grid: { show: false }, size: 28, space: 70, values: xValues },
        { ...axis, grid, space: 36, size: widest, values: (plot, splits) => ticks(splits) },
      ],
      series: [{}, ...this.names.map((name, i) => {
        const [colour, dash] = LINES[i % LINES.length];
        return { label: name, stroke: () => ink(colour), width: 2, dash, points: { show: false }, spanGaps: false };
      })],
      hooks: {
        setCursor: [(plot) => this.readAt(plot.cursor.left < 0 ? null : plot.cursor.idx)],
        setSelect: [(plot) => this.select(plot)],
        draw: [(plot) => drawMarks(plot, group, this.isMain)],
      },
    };
  }

  heights(low, high) {
    if (low === null || low === undefined) return [0, 1];
    const from = this.fromZero ? Math.min(0, low) : low, space = (high - from) * 0.06;
    if (high - from < 1e-9 * Math.max(1, Math.abs(high))) return this.fromZero ? [0, high + 1] : [low - 0.5, high + 0.5];
    return [from === 0 ? 0 : from - space, high + space];
  }

  size() {
    return { width: Math.max(120, this.box.clientWidth), height: this.height };
  }

  resize() {
    if (!this.plot) return;
    if (this.plot.width !== this.box.clientWidth) this.plot.setSize(this.size());
  }

  select(plot) {
    const { left, width } = plot.select;
    if (width < 5) return;
    this.group.zoom([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
  }

  pointAt(value) {
    if (!this.plot) return;
    this.plot.setCursor(value === null ? { left: -10, top: -10 } : { left: this.plot.valToPos(value, "x"), top: 10 });
  }

  readAt(at) {
    const last = this.group.x.length - 1, i = at ?? last;
    this.items.forEach(({ value }, j) => write(value, shown(this.values[j]?.[i])));
    const near = at === null || !this.plot ? [] : nearMarks(this.plot, this.group, this.plot.valToPos(this.group.x[i], "x"));
    write(this.note, at === null ? "" : [this.group.label(this.group.x[i]), ...near].join("; "));
  }

  key(event) {
    const { group } = this, n = group.x.length;
    if (!this.plot || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = group.reading === null ? n - 1 : group.nearest(group.reading);
    const factor = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: n - 1 }[event.key];
    if (factor) group.zoomBy(factor, group.x[at]);
    else if (event.key === "0") group.zoom(null);
    else if (event.key === "Escape") group.read(null);
    else if (to === undefined) return;
    event.preventDefault();
    if (to !== undefined) group.read(group.x[Math.max(0, Math.min(n - 1, to))]);
    write(this.spoken, group.reading === null ? "" : this.sentence(group.nearest(group.reading)));
  }

  sentence(i) {
    const values = this.names.map((name, j) => `${name} ${shown(this.values[j][i])}`).join(", ");
    const near = nearMarks(this.plot, this.group, this.plot.valToPos(this.group.x[i], "x"));
    return [`${this.group.label(this.group.x[i])}: ${values}`, ...near].join("; ");
  }

  // A few of the points, when the table is opened: one that changed each second could not be read.
  fillTable() {
    if (!this.details.open) return;
    const { x } = this.group, n = Math.min(ROWS, x.length);
    const places = [...new Set(Array.from({ length: n }, (_, i) => Math.round(i * (x.length - 1) / Math.max(1, n - 1))))];
    const names = [this.group.axis === "time" ? "time" : this.group.axis === "events" ? "event" : "round", ...this.names];
    this.head.replaceChildren(...names.map((name) => make("th", { scope: "col" }, name)));
    this.body.replaceChildren(...places.map((i) => make("tr", {}, make("th", { scope: "row" }, this.group.axis === "time" ? clock(x[i]) : shown(x[i])), ...this.values.map((values) => make("td", {}, shown(values[i]))))));
  }

  remove() {
    this.resizing.disconnect();
    this.plot?.destroy();
    this.figure.remove();
  }
}

// As wide as the longest number of an axis, so that none is cut off.
function widest(plot, values, axis, cycle) {
  if (cycle > 1) return plot.axes[axis]._size;
  plot.ctx.save();
  plot.ctx.font = plot.axes[axis].font[0];
  const width = Math.max(0, ...(values ?? []).map((value) => plot.ctx.measureText(value).width)) / devicePixelRatio;
  plot.ctx.restore();
  return Math.ceil(width) + 14;
}
