// The view of shards: a strip of blocks per worker, and a table.

import { span } from "./time.js";

const MOVES = 3;

export const shards = {
  title: "Shards",
  columns: [
    { title: "Shard", kind: "main", fill: (cell, row) => (cell.textContent = row.id) },
    { title: "Worker", kind: "quiet", fill: (cell, row) => (cell.textContent = row.fields.worker ?? "–") },
    { title: "Checkpoint", kind: "wide", fill: (cell, row) => (cell.textContent = row.fields.checkpoint ?? "–") },
    { title: "Parents", kind: "wide", fill: (cell, row) => (cell.textContent = row.fields.parents || "–") },
    { title: "Lag", kind: "side number", fill: (cell, row) => (cell.textContent = lag(row.fields)) },
  ],
  text: (row) => `${row.id} ${row.fields.worker ?? ""}`,
  details: ({ id, fields }) => [
    ["Shard", id],
    ["Worker", fields.worker ?? "–"],
    ["Checkpoint", fields.checkpoint ?? "–"],
    ["Lag", lag(fields)],
    ["Parents", fields.parents || "–"],
    ["Children", fields.children || "–"],
  ],
  actions: () => [],
  above: Strips,
};

function Strips(element) {
  const strips = new Map();
  const blocks = new Map();
  const moves = document.createElement("ol");
  moves.id = "moves";
  element.append(moves);

  const stripOf = (worker) => {
    let strip = strips.get(worker);
    if (strip) return strip;
    const [whole, name, list] = ["div", "span", "div"].map((kind) => document.createElement(kind));
    whole.className = "strip";
    name.className = "cell";
    list.className = "blocks";
    list.setAttribute("role", "img");
    whole.append(name, list);
    strip = { worker, whole, name, list };
    strips.set(worker, strip);
    const next = [...strips.values()].filter((other) => other.worker > worker).sort((one, other) => (one.worker < other.worker ? -1 : 1))[0];
    element.insertBefore(whole, next?.whole ?? null);
    return strip;
  };
  // Takes a block out of its strip. A strip without blocks is a worker without shards.
  const take = ({ element: block, strip }) => {
    block.remove();
    if (strip.list.childElementCount > 0) return;
    strip.whole.remove();
    strips.delete(strip.worker);
  };

  // `changed` are rows, `gone` their ids. The first rows after the connection are no moves.
  return ({ changed, gone, whole }) => {
    for (const id of gone) {
      if (blocks.has(id)) take(blocks.get(id));
      blocks.delete(id);
    }
    for (const { id, fields } of changed) {
      const worker = fields.worker ?? "no worker";
      const block = blocks.get(id) ?? { element: document.createElement("span"), strip: null, word: "" };
      const from = block.strip?.worker;
      blocks.set(id, block);
      if (from !== worker) {
        if (block.strip) take(block);
        block.strip = stripOf(worker);
        block.strip.list.append(block.element);
      }
      const isMove = from !== undefined && from !== worker && !whole;
      const { kind, symbol, word } = grade(fields);
      block.word = word;
      block.element.className = `block ${kind}${isMove ? " moved" : ""}`;
      block.element.textContent = symbol;
      block.element.title = `${id}: ${word}, lag ${lag(fields)}`;
      if (isMove) {
        const move = document.createElement("li");
        move.textContent = `${id}: ${from} → ${worker}`;
        moves.prepend(move);
        while (moves.childElementCount > MOVES) moves.lastChild.remove();
        setTimeout(() => block.element.classList.remove("moved"), 5000);
      }
    }
    const words = new Map();
    for (const { strip, word } of blocks.values()) {
      const counts = words.get(strip) ?? new Map();
      counts.set(word, (counts.get(word) ?? 0) + 1);
      words.set(strip, counts);
    }
    for (const strip of strips.values()) {
      const { worker, name, list } = strip;
      const counts = [...words.get(strip)].sort().map(([word, count]) => `${count} ${word}`).join(", ");
      const text = `${list.childElementCount} shards of ${worker}: ${counts}`;
      if (list.getAttribute("aria-label") === text) continue;
      list.setAttribute("aria-label", text);
      name.textContent = `${worker} (${list.childElementCount})`;
      name.title = text;
    }
  };
}

// The class of a block, and what says the same without a colour.
function grade({ checkpoint, lag }) {
  if (checkpoint === "SHARD_END") return { kind: "ended", symbol: "✓", word: "ended" };
  if (lag === null) return { kind: "unknown", symbol: "?", word: "of unknown lag" };
  if (lag < 10_000) return { kind: "", symbol: "", word: "up to date" };
  return lag < 300_000 ? { kind: "behind", symbol: "!", word: "behind" } : { kind: "far", symbol: "✕", word: "far behind" };
}

function lag({ checkpoint, lag }) {
  if (checkpoint === "SHARD_END") return "ended";
  return lag === null ? "–" : span(Math.ceil(lag / 1000));
}
