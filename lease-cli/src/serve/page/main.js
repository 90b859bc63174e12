// The page: receives the rows of a view and shows them.

import * as change from "./change.js";
import { jobs } from "./jobs.js";
import { leases } from "./leases.js";
import { shards } from "./shards.js";
import { Table } from "./table.js";
import { synchronise } from "./time.js";

const VIEWS = { leases, jobs, shards };

const state = document.getElementById("state");
const filter = document.getElementById("filter");
const count = document.getElementById("count");
const above = document.getElementById("above");
const tabs = document.getElementById("views");

let view = leases;
let rows = new Map();
// The ids in order.
let ids = [];
let source = null;
let showAbove = null;
let isPlanned = false;
let isMarked = false;

const table = new Table(document.getElementById("table"), (row) => change.open(view, row));

async function start() {
  const address = new URLSearchParams(location.hash.slice(1));
  const token = address.get("token");
  if (token) change.keepToken(token);
  // A copied address must not have the token. After a reload, it is in the storage only.
  history.replaceState(null, "", location.pathname + location.search);
  const settings = await (await fetch("settings")).json();
  change.setUp(settings.changes);
  document.body.dataset.changes = settings.changes;
  tabs.replaceChildren(...settings.views.map((name) => tab(name)));
  const wanted = address.get("view");
  show(settings.views.includes(wanted) ? wanted : "leases");
}

function tab(name) {
  const button = document.createElement("button");
  button.type = "button";
  button.id = `tab-${name}`;
  button.dataset.view = name;
  button.setAttribute("role", "tab");
  button.setAttribute("aria-controls", "table");
  button.textContent = VIEWS[name].title;
  button.addEventListener("click", () => show(name));
  return button;
}

function show(name) {
  view = VIEWS[name];
  for (const button of tabs.children) button.setAttribute("aria-selected", String(button.dataset.view === name));
  rows = new Map();
  ids = [];
  filter.value = "";
  above.replaceChildren();
  above.hidden = !view.above;
  showAbove = view.above?.(above) ?? null;
  table.setColumns(name, view.columns);
  table.setRows([]);
  count.textContent = "";
  listen(`events/${name}`);
}

function listen(path) {
  source?.close();
  say("connecting");
  const own = new EventSource(path);
  source = own;
  own.addEventListener("rows", ({ data }) => {
    apply(JSON.parse(data));
    say("live");
  });
  own.addEventListener("same", () => say("live"));
  own.addEventListener("fault", ({ data }) => say(`rows are old: ${data}`, "fault"));
  own.addEventListener("error", () => {
    say("rows are old: no connection", "fault");
    // After an error of the connection, the browser connects again. After another one, it does not.
    if (own.readyState === EventSource.CLOSED) setTimeout(() => own === source && listen(path), 2000);
  });
}

function say(text, kind = "") {
  if (state.textContent === text) return;
  state.textContent = text;
  state.className = kind;
}

function apply({ at, whole, rows: changed, gone }) {
  synchronise(at);
  if (whole) {
    const sent = new Set(changed.map(([id]) => id));
    gone = ids.filter((id) => !sent.has(id));
  }
  let isReordered = gone.length > 0;
  for (const id of gone) rows.delete(id);
  const news = changed.map(([id, deadline, fields]) => {
    isReordered ||= !rows.has(id);
    const row = { id, deadline, fields };
    rows.set(id, row);
    return row;
  });
  if (isReordered) ids = [...rows.keys()].sort();
  showAbove?.({ changed: news, gone, whole });
  plan();
}

// Shows all changes of a frame at once.
function plan() {
  if (isPlanned) return;
  isPlanned = true;
  requestAnimationFrame(() => {
    isPlanned = false;
    refresh();
  });
}

function refresh() {
  const wanted = filter.value.trim().toLowerCase();
  let shown = ids.map((id) => rows.get(id));
  if (wanted) shown = shown.filter((row) => (row.text ??= view.text(row).toLowerCase()).includes(wanted));
  table.setRows(shown);
  if (ids.length > 0 && !isMarked) {
    isMarked = true;
    performance.mark("rows");
  }
  const text = wanted ? `${shown.length} of ${ids.length}` : `${ids.length}`;
  if (count.textContent !== text) count.textContent = text;
}

filter.addEventListener("input", plan);
tabs.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const buttons = [...tabs.children];
  buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length].focus();
});
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, dialog");
  if (event.key !== "/" || isTyping) return;
  event.preventDefault();
  filter.focus();
});
setInterval(() => table.tick(), 1000);
start().catch((error) => say(`the page does not start: ${error}`, "fault"));
