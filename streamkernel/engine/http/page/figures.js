// Figures: numbers and times as text, and columns that follow from the history of a run.

export function shown(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 0.001 || size >= 1e9) return value.toExponential(2);
  return value.toLocaleString("en", { maximumFractionDigits: size >= 100 ? 0 : size >= 10 ? 1 : 4 });
}

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });

// The numbers of an axis, all in the same manner.
export function ticks(values) {
  const most = Math.max(...values.map(Math.abs));
  if (most < 0.001) return values.map((value) => (value ? value.toExponential(1) : "0"));
  return values.map((value) => (most >= 10_000 ? compact.format(value) : value.toLocaleString("en", { maximumFractionDigits: 4 })));
}

export function clock(seconds, withSeconds = true) {
  const how = { hour: "2-digit", minute: "2-digit", ...(withSeconds ? { second: "2-digit" } : {}) };
  return new Date(1000 * seconds).toLocaleTimeString("en-GB", how);
}

export function duration(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

export const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.0995 ? 2 : 1)} %`;

const over = (n) => Math.max(1, Math.round(n / 32));

export function rates({ events, time }) {
  return events.map((n, i) => {
    const from = Math.max(0, i - over(events.length)), seconds = time[from] === null ? 0 : time[i] - time[from];
    return seconds > 0 ? (n - events[from]) / seconds : null;
  });
}

// The mean over a part of the stream, from means since its start.
export function recent({ learned }, values) {
  return values.map((value, i) => {
    const from = i - over(learned.length), before = from < 0 ? 0 : learned[from], sum = from < 0 ? 0 : values[from] * learned[from];
    return value === null || (from >= 0 && values[from] === null) || learned[i] <= before ? null : (value * learned[i] - sum) / (learned[i] - before);
  });
}

export function qualityOf(history, isMean) {
  const named = Object.entries(history).filter(([name]) => name.startsWith("quality: "));
  return Object.fromEntries(named.map(([name, values]) => [name.slice(9), isMean ? recent(history, values) : values]));
}

export function weightsOf(history) {
  const named = Object.entries(history).filter(([name]) => name.startsWith("weight: "));
  return Object.fromEntries(named.map(([name, values]) => [name.slice(8), values]));
}
