// Times, as texts for people.

// The difference between the clock of the server and that of this page, in milliseconds.
let ahead = 0;

// `at` is the time of the server when it has sent an event.
export function synchronise(at) {
  ahead = at - performance.now();
}

// The time until a deadline of the server.
export function left(deadline) {
  if (deadline === null) return "–";
  const seconds = Math.max(0, Math.ceil((deadline - performance.now() - ahead) / 1000));
  return seconds >= 120 ? `${Math.floor(seconds / 60)} min` : `${seconds} s`;
}

// How long ago a time was, or in how long it is.
export function ago(text) {
  const seconds = Math.round((Date.now() - Date.parse(text)) / 1000);
  const length = span(Math.abs(seconds));
  return seconds >= 0 ? `${length} ago` : `in ${length}`;
}

export function span(seconds) {
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} days`;
}
