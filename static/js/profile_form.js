/* The profile form: rows of the environment, refusals shown beside what was typed, nothing lost on leaving. */
const form = document.getElementById("profile");
const rows = document.getElementById("variables");
const blank = document.getElementById("variable-row");
const preview = form.querySelector("[data-previews]");
let dirty = false;
/* Saved as it stands: what a preview asked for before would say is in the answer to the save. */
let answered = false;

function prepare(scope) {
  for (const button of scope.querySelectorAll("[data-remove-variable]")) button.hidden = false;
}

function typed() {
  form.dispatchEvent(new Event("input", { bubbles: true }));
}

form.querySelector("[data-add-variable]").hidden = false;
prepare(rows);

form.addEventListener("click", (event) => {
  if (event.target.closest("[data-add-variable]")) {
    const row = blank.content.firstElementChild.cloneNode(true);
    prepare(row);
    rows.append(row);
    row.querySelector("input").focus();
    return;
  }
  const row = event.target.closest("[data-remove-variable]")?.closest("[data-variable]");
  if (!row) return;
  const next = row.nextElementSibling ?? row.previousElementSibling;
  row.remove();
  (next?.querySelector("input") ?? form.querySelector("[data-add-variable]")).focus();
  typed();
});

form.addEventListener("change", (event) => {
  if (event.target.name !== "variable_kind") return;
  const value = event.target.closest("[data-variable]").querySelector("[name=variable_value]");
  value.type = event.target.value === "secret" ? "password" : "text";
});

form.addEventListener("input", () => {
  dirty = true;
  answered = false;
});
form.addEventListener("submit", () => {
  dirty = false;
  answered = true;
  preview.dispatchEvent(new Event("htmx:abort"));
});
preview.addEventListener("htmx:beforeRequest", (event) => {
  if (answered) event.preventDefault();
});
addEventListener("beforeunload", (event) => {
  if (dirty) event.preventDefault();
});

/* A mend changes inputs as if somebody had typed; what stood there before comes back with one more click. */
const status = document.getElementById("mended");
const undone = [];

function write(values) {
  const before = {};
  for (const [name, text] of Object.entries(values)) {
    const input = form.elements.namedItem(name);
    if (!input || input instanceof RadioNodeList) continue;
    before[name] = [input.value, text];
    if (input.matches("select") && ![...input.options].some((option) => option.value === text)) {
      input.add(new Option(text, text));
    }
    input.value = text;
    input.closest("details")?.setAttribute("open", "");
  }
  typed();
  return before;
}

document.addEventListener("click", (event) => {
  const mend = event.target.closest("[data-mend]");
  if (mend) {
    undone.push([mend.textContent, write(JSON.parse(mend.dataset.mend))]);
  } else if (event.target.closest("[data-undo]") && undone.length) {
    const kept = Object.entries(undone.pop()[1]).filter(
      ([name, [, text]]) => form.elements.namedItem(name)?.value === text,
    );
    write(Object.fromEntries(kept.map(([name, [text]]) => [name, text])));
  } else {
    return;
  }
  status.hidden = undone.length === 0;
  status.querySelector("span").textContent = undone.at(-1)?.[0] ?? "";
  if (status.hidden) form.querySelector("#save").focus();
  else status.querySelector("button").focus();
});

/* What was folded open stays open when sentences are renewed. */
let opened = [];
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target.id !== "preview") return;
  opened = [...event.detail.target.querySelectorAll("details[open][id]")].map((details) => details.id);
});

/* A refusal comes as sentences only; the fields keep what was typed into them. */
document.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr, target } = event.detail;
  if (target.id !== "preview" || ![400, 409].includes(xhr.status)) return;
  event.detail.shouldSwap = true;
  event.detail.isError = false;
  dirty = true;
});

function mark() {
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  for (const button of document.querySelectorAll("[data-mend]")) button.hidden = false;
  for (const slot of form.querySelectorAll(".notes")) {
    const input = document.getElementById(`in-${slot.id.slice("note-".length)}`);
    const wrong = slot.querySelector(".text-bad") !== null;
    if (input?.matches("input, select, textarea")) {
      if (wrong) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
    }
    if (wrong) slot.closest("details")?.setAttribute("open", "");
  }
}

document.addEventListener("htmx:afterSettle", (event) => {
  if (event.target.id !== "preview") return;
  mark();
  const wrong = document.getElementById("wrong");
  if (wrong?.getAttribute("role") === "alert") wrong.focus();
});

document.addEventListener("click", (event) => {
  const link = event.target.closest('#preview a[href^="#in-"]');
  if (!link) return;
  const input = document.querySelector(link.getAttribute("href"));
  input?.closest("details")?.setAttribute("open", "");
  input?.focus();
});

mark();
