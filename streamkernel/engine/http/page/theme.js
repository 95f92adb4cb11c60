// Colours of the system or those chosen, and what a canvas draws with.

import { $, make } from "./dom.js";

const probe = make("i", { hidden: "" }), known = new Map(), listening = [];
document.body.append(probe);

export function ink(name) {
  if (!known.has(name)) {
    probe.style.color = `var(--${name})`;
    known.set(name, getComputedStyle(probe).color);
  }
  return known.get(name);
}

export const onThemeChange = (listener) => listening.push(listener);

function changed() {
  known.clear();
  for (const listener of listening) listener();
}

function stored(value) {
  try {
    if (value !== undefined) localStorage.setItem("theme", value);
    return localStorage.getItem("theme") ?? "";
  } catch {
    return value ?? ""; // a page of a file may have no storage
  }
}

function apply(value) {
  document.documentElement.dataset.theme = value;
  changed();
}

$("theme").value = stored();
apply($("theme").value);
$("theme").addEventListener("change", () => apply(stored($("theme").value)));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
