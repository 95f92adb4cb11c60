// Columns that follow from the history of a run.

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
