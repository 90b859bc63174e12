// The dialog of a row: its details, and what an operator may do with it. Each change is asked once more.

// Milliseconds. The program gives up sooner.
const LONGEST = 30_000;

const part = (name) => document.getElementById(name);
const dialog = part("dialog");
const form = part("change");
let view = null;
let row = null;
let action = null;
let allowed = false;

export function keepToken(token) {
  sessionStorage.setItem("token", token);
}

export function setUp(changesAllowed) {
  allowed = changesAllowed;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  part("change-cancel").addEventListener("click", () => showActions());
  part("dialog-close").addEventListener("click", () => dialog.close());
}

export function open(ofView, ofRow) {
  [view, row] = [ofView, ofRow];
  part("dialog-title").textContent = row.id;
  part("dialog-result").textContent = "";
  part("dialog-runs").replaceChildren(...(view.lines?.(row) ?? []).map((line) => {
    const text = document.createElement("p");
    text.textContent = line;
    return text;
  }));
  showActions();
  dialog.showModal();
}

function showActions() {
  action = null;
  form.hidden = true;
  part("dialog-details").replaceChildren(...view.details(row).flatMap(([name, value]) => {
    const [term, text] = ["dt", "dd"].map((kind) => document.createElement(kind));
    [term.textContent, text.textContent] = [name, value];
    return [term, text];
  }));
  const actions = allowed ? view.actions(row) : [];
  part("dialog-actions").hidden = false;
  part("dialog-actions").replaceChildren(...actions.map((one) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "danger";
    button.textContent = `${one.label}…`;
    button.addEventListener("click", () => ask(one));
    return button;
  }));
}

function ask(one) {
  // The same id for each attempt of this question, so that a second one triggers nothing more.
  action = { ...one, id: crypto.getRandomValues(new Uint32Array(4)).join("-") };
  form.hidden = false;
  part("dialog-actions").hidden = true;
  part("dialog-result").textContent = "";
  part("change-question").textContent = one.question;
  part("change-confirm").disabled = false;
  part("change-confirm").textContent = `Yes, ${one.label.toLowerCase()}`;
  part("change-arguments-label").hidden = !one.takesArguments;
  part("change-arguments").value = "";
  part("change-why").value = "";
  part("change-who").value = sessionStorage.getItem("who") ?? "";
  askForToken();
  [...form.querySelectorAll("input")].find((input) => !input.closest("[hidden]") && !input.value)?.focus();
}

function askForToken() {
  const isKnown = sessionStorage.getItem("token") !== null;
  part("change-token-label").hidden = isKnown;
  part("change-token").required = !isKnown;
  part("change-token").value = "";
}

async function send() {
  const own = action;
  const [who, why] = [part("change-who").value, part("change-why").value];
  const token = sessionStorage.getItem("token") ?? part("change-token").value.trim();
  sessionStorage.setItem("who", who);
  // A header has no other characters.
  if (!/^[\x21-\x7e]+$/.test(token)) return refuseToken("the token needs visible ASCII characters, without spaces");
  const body = { ...own.body, who, why };
  if (own.takesArguments) {
    body.id = own.id;
    const words = part("change-arguments").value.split(/\s+/).filter((word) => word);
    body.arguments = Object.fromEntries(words.map((word) => {
      const [name, ...value] = word.split("=");
      return [name, value.join("=")];
    }));
  }
  part("change-confirm").disabled = true;
  const { status, text } = await post(own.path, token, body);
  if (status === 200) keepToken(token);
  // The dialog shows another question by now.
  if (own !== action) return;
  part("change-confirm").disabled = false;
  if (status === 401) return refuseToken(text);
  part("dialog-result").textContent = text;
  if (status !== 200) return;
  form.hidden = true;
  part("dialog-close").focus();
}

function refuseToken(text) {
  sessionStorage.removeItem("token");
  askForToken();
  part("dialog-result").textContent = text;
  part("change-token").focus();
}

async function post(path, token, body) {
  try {
    const headers = { "content-type": "application/json", "lease-token": token };
    const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal: AbortSignal.timeout(LONGEST) });
    return { status: answer.status, text: await answer.text() };
  } catch {
    return { status: 0, text: "no answer: it is not known whether this was done" };
  }
}
