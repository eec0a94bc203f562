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

/* A refusal comes as sentences only; the fields keep what was typed into them. */
document.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr, target } = event.detail;
  if (target.id !== "preview" || ![400, 409].includes(xhr.status)) return;
  event.detail.shouldSwap = true;
  event.detail.isError = false;
  dirty = true;
});

function mark() {
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
  const link = event.target.closest('#wrong a[href^="#in-"]');
  if (!link) return;
  const input = document.querySelector(link.getAttribute("href"));
  input?.closest("details")?.setAttribute("open", "");
  input?.focus();
});
