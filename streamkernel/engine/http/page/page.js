// The live page: the status of a run every second, or the one that a report has in itself.

import { judge, showChanges, showHealth, showLearning, showQuality, showWorkers } from "./answers.js";
import { $, write } from "./dom.js";
import { cluster, drawRounds, drawRun, redraw, run, switchAxis } from "./draw.js";
import { onThemeChange } from "./theme.js";

export function show(status) {
  showHealth(status);
  showQuality(status);
  showChanges(status);
  showLearning(status);
  drawRun(status);
  $("cluster").hidden = !status.cluster || status.cluster.round.length < 2;
  if ($("cluster").hidden) return;
  showWorkers(status.now);
  drawRounds(status.cluster);
}

function say(state, text) {
  $("state").dataset.state = state;
  write($("state"), text);
}

let isStopped = false;

// For tests, which feed the page with statuses of their own.
export function stop() {
  isStopped = true;
}

async function ask() {
  if (isStopped) return;
  const token = sessionStorage.getItem("token");
  try {
    const answer = await fetch("status", { headers: token ? { authorization: `Bearer ${token}` } : {} });
    $("ask").hidden = answer.status !== 401;
    if (answer.ok) {
      const status = await answer.json();
      if (isStopped) return;
      show(status);
      say(status.ill ? "ill" : "live", status.ill || "running");
    } else {
      say("ill", (await answer.json()).error);
    }
  } catch (error) {
    if (!(error instanceof TypeError && /fetch/i.test(error.message))) console.error(error);
    const lost = "no connection: the run has ended, or cannot be reached";
    say("ill", lost);
    judge("unknown", `The figures are the last ones that were received: ${lost}.`);
  }
  setTimeout(ask, 1000);
}

run.onZoom = cluster.onZoom = () => { $("whole").disabled = $("farther").disabled = !run.window && !cluster.window; };
$("closer").addEventListener("click", () => run.zoomAtEnd(0.5));
$("farther").addEventListener("click", () => run.zoomAtEnd(2));
$("whole").addEventListener("click", () => [run, cluster].forEach((group) => group.zoom(null)));
$("axis").addEventListener("change", () => switchAxis($("axis").value));
onThemeChange(redraw);

const own = $("run").textContent.trim();
if (own) {
  const status = JSON.parse(own);
  $("axis").closest("label").hidden = !status.history.time;
  show(status);
  say("live", $("run").dataset.title);
} else {
  $("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem("token", $("token").value);
  });
  ask();
}
