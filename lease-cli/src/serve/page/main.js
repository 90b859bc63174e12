// The page: receives the rows of a view and shows them.

import * as change from "./change.js";
import { jobs } from "./jobs.js";
import { leases } from "./leases.js";
import { shards } from "./shards.js";
import { switches } from "./switches.js";
import { Table } from "./table.js";
import { synchronise } from "./time.js";

const VIEWS = { leases, jobs, shards, switches };

const state = document.getElementById("state");
const filter = document.getElementById("filter");
const count = document.getElementById("count");
const above = document.getElementById("above");
const tabs = document.getElementById("views");

let view = leases;
let rows = new Map();
// The ids in order.
let ids = [];
let path = "";
let source = null;
let showAbove = null;
// The times of the latest news and of the latest connection, and the time between the last two news.
let heard = 0;
let tried = 0;
let gap = 0;
// When the rows that the page shows were read, by the clock of the server.
let readAt = null;
// Milliseconds between two reads of the store.
let interval = 500;
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
  interval = settings.interval;
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
  path = `events/${name}`;
  begin();
}

function begin() {
  if (document.hidden) return;
  heard = performance.now();
  gap = 0;
  readAt = null;
  say("connecting");
  listen();
}

// A page that nobody sees must not occupy the program and the store.
function end() {
  source?.close();
  source = null;
  say("paused");
}

function listen() {
  source?.close();
  tried = performance.now();
  const own = new EventSource(path);
  source = own;
  own.addEventListener("rows", ({ data }) => {
    const event = JSON.parse(data);
    apply(event);
    note(event.at);
  });
  own.addEventListener("same", ({ data }) => note(Number(data)));
  own.addEventListener("fault", ({ data }) => {
    heard = performance.now();
    say(`rows are old: ${data}`, "fault");
  });
  own.addEventListener("error", () => {
    say("rows are old: no connection", "fault");
    // After an error of the connection, the browser connects again. After another one, it does not.
    if (own.readyState === EventSource.CLOSED) setTimeout(() => own === source && listen(), 2000);
  });
}

// After a new connection, the first rows may be those that are shown already.
function note(at) {
  if (at === readAt) return;
  readAt = at;
  gap = performance.now() - heard;
  heard = performance.now();
  say("live");
}

// A connection may end without an error, such as when a computer sleeps.
function check() {
  if (!source) return;
  const silent = performance.now() - heard;
  const patience = Math.max(5000, 3 * interval, 3 * gap);
  if (silent < patience) return;
  const why = source.readyState === EventSource.OPEN ? "nothing" : "no connection";
  say(`rows are old: ${why} for ${Math.floor(silent / 1000)} s`, "fault");
  if (performance.now() - tried >= patience) listen();
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
document.addEventListener("visibilitychange", () => {
  if (document.hidden) end();
  else if (path) begin();
});
setInterval(() => {
  table.tick();
  check();
}, 1000);
start().catch((error) => say(`the page does not start: ${error}`, "fault"));
