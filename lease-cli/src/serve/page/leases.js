// The view of leases.

import { ago, left } from "./time.js";

export const leases = {
  title: "Leases",
  columns: [
    { title: "Key", kind: "main", fill: (cell, row) => (cell.textContent = row.id) },
    { title: "Holder", kind: "quiet", fill: (cell, row) => (cell.textContent = row.fields[0]) },
    { title: "Token", kind: "wide number", fill: (cell, row) => (cell.textContent = row.fields[2] ?? "–") },
    { title: "Time left", kind: "side number", live: true, fill: (cell, row) => (cell.textContent = left(row.deadline)) },
  ],
  text: (row) => `${row.id} ${row.fields[0]}`,
  details: ({ id, deadline, fields: [holder, grant, token, started] }) => [
    ["Key", id],
    ["Holder", holder],
    ["Started", started ? `${started} (${ago(started)})` : "–"],
    ["Grant", grant ?? "–"],
    ["Token", token ?? "–"],
    ["Time left", left(deadline)],
  ],
  actions: ({ id, fields: [holder, grant] }) =>
    // A key that is only reserved has no grant.
    grant === null ? [] : [{
      label: "Evict",
      question: `Evict ${holder} from ${id}? Its work stops at its next heartbeat.`,
      path: "changes/evict",
      body: { key: id, grant },
    }],
};
