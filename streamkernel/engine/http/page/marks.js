// Marks of drift, promotions, rebalances, restarts and checkpoints: lines in charts, and a list.

import { $, keyed, make, write } from "./dom.js";
import { shown } from "./figures.js";
import { ink } from "./theme.js";

const COLOURS = { drift: "bad", promotion: "three", rebalance: "two", resumed: "soft" };
const LISTED = 8;

export function drawMarks(plot, group, withLabels) {
  const { ctx, bbox } = plot, dense = devicePixelRatio;
  let free = -Infinity;
  ctx.save();
  ctx.lineWidth = dense;
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  ctx.font = `${11 * dense}px system-ui, sans-serif`;
  for (const mark of group.marks) {
    const value = group.placeOf(mark);
    if (value === null || value < plot.scales.x.min || value > plot.scales.x.max) continue;
    const x = Math.round(plot.valToPos(value, "x", true)), isSmall = mark.kind === "checkpoint";
    ctx.strokeStyle = ctx.fillStyle = ink(COLOURS[mark.kind] ?? "soft");
    ctx.setLineDash(mark.kind === "drift" || isSmall ? [] : [4 * dense, 3 * dense]);
    ctx.beginPath();
    ctx.moveTo(x, isSmall ? bbox.top + bbox.height - 5 * dense : bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const width = ctx.measureText(mark.kind).width, left = Math.min(x + 4 * dense, bbox.left + bbox.width - width);
    if (!withLabels || isSmall || left < free) continue;
    ctx.fillText(mark.kind, left, bbox.top + 10 * dense);
    free = left + width + 4 * dense;
  }
  ctx.restore();
}

export function nearMarks(plot, group, left) {
  const near = (mark) => Math.abs(plot.valToPos(group.placeOf(mark) ?? NaN, "x") - left) <= 5;
  return group.marks.filter((mark) => mark.kind !== "checkpoint" && near(mark)).map((mark) => mark.text);
}

export function listMarks(marks, isWatched) {
  const rows = marks.filter((mark) => mark.kind !== "checkpoint").slice(-LISTED).reverse();
  const build = () => make("li", {}, make("span", { class: "kind" }), make("span"), make("span", { class: "hint" }));
  keyed($("marks"), rows, (mark) => `${mark.kind} ${mark.event} ${mark.text}`, build, (item, mark) => {
    item.dataset.kind = mark.kind;
    write(item.children[0], mark.kind);
    write(item.children[1], mark.text.replace(new RegExp(`^${mark.kind}:? `), ""));
    write(item.children[2], `event ${shown(mark.event)}`);
  });
  return rows.length ? "" : isWatched ? "Neither the inputs nor the members of the group have changed." : "Changes of the inputs are not detected in this run.";
}

// What happened before the lowest point of recent quality, if that is much worse than usual.
export function explainDip(x, values, isBetter, marks, isWatched) {
  const found = x.map((event, i) => [event, values[i]]).filter(([, value]) => value !== null);
  const settled = found.slice(Math.ceil(found.length / 5));
  if (settled.length < 8) return "";
  const usual = settled.map(([, value]) => value).sort((a, b) => a - b)[settled.length >> 1];
  const [event, worst] = settled.reduce((one, other) => (isBetter(one[1], other[1]) ? other : one));
  if (Math.abs(worst - usual) < 0.1 * Math.abs(usual) || !isBetter(usual, worst)) return "";
  const space = 8 * (x[x.length - 1] - x[x.length - 2]);
  const before = marks.filter((mark) => mark.kind !== "checkpoint" && mark.event <= event + space / 4 && mark.event >= event - space);
  const cause = before.map((mark) => `${mark.text} at event ${shown(mark.event)}`).join("; ");
  const text = `Recent quality was ${shown(worst)} near event ${shown(event)}; usual is ${shown(usual)}.`;
  if (cause) return `${text} Shortly before: ${cause}.`;
  return `${text} ${isWatched ? "The inputs had not changed: perhaps the labels had." : "Nothing explains it, because the inputs are not watched."}`;
}
