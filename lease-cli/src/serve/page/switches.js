// The view of switches.

export const switches = {
  title: "Switches",
  columns: [
    { title: "Switch", kind: "main", fill: (cell, row) => (cell.textContent = row.id) },
    { title: "State", kind: "side", fill: (cell, row) => (cell.textContent = state(row.fields)) },
  ],
  text: (row) => `${row.id} ${state(row.fields)}`,
  details: ({ id, fields }) => [
    ["Switch", id],
    ["State", state(fields)],
  ],
  actions: ({ id, fields }) => [
    ...(fields.on === true ? [] : [
      { label: "Turn on", question: `Turn ${id} on? Its work may run on all machines.`, path: "changes/turn-on", body: { key: id } },
    ]),
    ...(fields.on === false ? [] : [
      { label: "Turn off", question: `Turn ${id} off? No work of it starts on any machine. Work that runs continues.`, path: "changes/turn-off", body: { key: id } },
    ]),
  ],
};

function state({ on, error }) {
  if (error) return `error: ${error}`;
  if (on === null) return "? not set";
  return on ? "✓ on" : "✕ off";
}
