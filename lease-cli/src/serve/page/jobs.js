// The view of jobs.

import { ago } from "./time.js";

// Not everybody distinguishes the colours.
const SYMBOLS = { running: "…", finished: "✓", failed: "✕", died: "†", "timed-out": "t", missed: "–" };

export const jobs = {
  title: "Jobs",
  columns: [
    { title: "Job", kind: "main", fill: (cell, row) => (cell.textContent = row.id) },
    { title: "Schedule", kind: "wide quiet", fill: (cell, row) => (cell.textContent = row.fields.schedule ?? "–") },
    { title: "Next tick", kind: "wide", fill: (cell, row) => (cell.textContent = row.fields.next ?? "–") },
    { title: "State", kind: "quiet", live: true, fill: (cell, row) => (cell.textContent = state(row.fields)) },
    { title: "Last runs", kind: "side", fill: (cell, row) => cell.replaceChildren(bar(row.fields.runs)) },
  ],
  text: (row) => `${row.id} ${state(row.fields)}`,
  details: ({ id, fields }) => [
    ["Job", id],
    ["Schedule", fields.schedule ?? "–"],
    ["Next tick", fields.next ? `${fields.next} (${ago(fields.next)})` : "–"],
    ["State", state(fields)],
    ["Paused", fields.paused ? `since ${fields.paused}: ${fields.why}` : "no"],
    ["Missed", `${fields.runs.filter((run) => run.ending === "missed").length} of the last ${fields.runs.length}`],
    ...(fields.markAhead ? [["Mark ahead", `${fields.markAhead}: lease jobs repair`]] : []),
    ...(fields.error ? [["Error", fields.error]] : []),
  ],
  lines: ({ fields }) => fields.runs.map((run) => line(run)),
  actions: ({ id, fields }) => [
    fields.paused || fields.error
      ? { label: "Resume", question: `Resume ${id}? Its ticks start again on all machines.`, path: "changes/resume", body: { job: id } }
      : { label: "Pause", question: `Pause ${id}? No tick starts on any machine.`, path: "changes/pause", body: { job: id } },
    { label: "Run now", question: `Run ${id} once, on a machine that has it?`, path: "changes/trigger", body: { job: id }, takesArguments: true },
  ],
};

function state({ error, paused, why, waiting, runs }) {
  const last = runs[0];
  const states = [];
  if (error) states.push(`error: ${error}`);
  if (paused) states.push(`paused ${ago(paused)}${why ? `: ${why}` : ""}`);
  if (last?.ending === "running") states.push(`runs, began ${ago(last.began)}`);
  else if (last) states.push(`${last.ending} ${ago(last.ended ?? last.began)}`);
  if (waiting) states.push("a trigger waits");
  return states.join("; ") || "has not run";
}

// The latest run is at the right.
function bar(runs) {
  const element = document.createElement("span");
  element.className = "bar";
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", runs.map((run) => run.ending).join(", ") || "no runs");
  element.append(...[...runs].reverse().map((run) => {
    const part = document.createElement("span");
    part.className = `run ${run.ending}`;
    part.textContent = SYMBOLS[run.ending] ?? "?";
    part.title = line(run);
    return part;
  }));
  return element;
}

function line({ ending, scheduled, began, ended, attempt, by, note }) {
  const taken = ended && ending !== "missed" ? `, took ${((Date.parse(ended) - Date.parse(began)) / 1000).toFixed(1)} s` : "";
  const tries = attempt > 1 ? `, attempt ${attempt}` : "";
  return `${scheduled} ${ending}${taken}${tries}, by ${by}${note ? `: ${note}` : ""}`;
}
