/* What every page does: dialogs, copying, the theme, relative times, the palette, table labels. */
import { announce, words } from "./words.js";
import { openPalette } from "./palette.js";

const root = document.documentElement;

async function copy(button) {
  const source = button.dataset.copyFrom ? document.querySelector(button.dataset.copyFrom) : null;
  const text = source ? source.value ?? source.textContent : button.dataset.copy;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    if (!copyBySelection(text)) {
      announce(words.copy_failed);
      return;
    }
  }
  announce(words.copied);
  if (button.dataset.busy) return;
  const before = button.textContent;
  button.dataset.busy = "1";
  button.textContent = words.copied;
  setTimeout(() => {
    button.textContent = before;
    delete button.dataset.busy;
  }, 1500);
}

/* Pages over plain HTTP have no clipboard API. */
function copyBySelection(text) {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "visually-hidden";
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

document.addEventListener("click", (event) => {
  const target = event.target.closest?.(
    "[data-dialog], [data-close], [data-copy], [data-copy-from], [data-palette]",
  );
  if (target) {
    if (target.dataset.dialog) document.getElementById(target.dataset.dialog)?.showModal();
    else if ("close" in target.dataset) target.closest("dialog")?.close();
    else if ("palette" in target.dataset) {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      openPalette();
    } else copy(target);
    return;
  }
  if (event.target instanceof HTMLDialogElement) event.target.close(); // the backdrop
  for (const menu of document.querySelectorAll("details.who[open], details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    for (const menu of document.querySelectorAll("details.who[open], details.menu[open]")) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  }
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  const slash = event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey;
  const chord = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey);
  if ((slash || chord) && openPalette()) event.preventDefault();
});

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("[data-theme-form]") || !event.submitter) return;
  event.preventDefault();
  const body = new FormData(form, event.submitter);
  const headers = { "X-Requested-With": "fetch" };
  const answer = await fetch(form.action, { method: "POST", body, headers });
  if (!answer.ok) return;
  root.dataset.theme = event.submitter.value;
  for (const button of form.querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button === event.submitter));
  }
  document.dispatchEvent(new CustomEvent("kv:theme"));
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  if (root.dataset.theme === "system") document.dispatchEvent(new CustomEvent("kv:theme"));
});

function showAges() {
  for (const element of document.querySelectorAll("time[data-relative]")) {
    const seconds = Math.floor((Date.now() - Date.parse(element.dateTime)) / 1000);
    if (!(seconds >= 0)) continue;
    const [size, unit] =
      seconds < 60 ? [1, "s"] : seconds < 3600 ? [60, "min"] : seconds < 86400 ? [3600, "h"] : [86400, "d"];
    const text = words[unit].replace("#", Math.floor(seconds / size));
    if (element.textContent !== text) element.textContent = text;
  }
}
setInterval(() => document.hidden || showAges(), 5000);

/* Narrow tables show each cell behind its column's name. */
function labelCells(scope) {
  for (const table of scope.querySelectorAll("table.list")) {
    const names = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    for (const row of table.tBodies[0]?.rows ?? []) {
      [...row.cells].forEach((cell, index) => {
        if (cell.tagName === "TD" && names[index] && !cell.dataset.label) cell.dataset.label = names[index];
      });
    }
  }
}
labelCells(document);
document.addEventListener("htmx:afterSettle", (event) => {
  labelCells(event.target.parentElement ?? document);
  showAges();
});
/* A form takes the reader to another page: a renewal that reloads this one meanwhile would fetch that page
   twice, and its message would be gone with the first. */
let leaving = false;
document.addEventListener("submit", (event) => {
  setTimeout(() => {
    if (event.defaultPrevented) return;
    leaving = true;
    setTimeout(() => (leaving = false), 30_000);
  });
});
for (const name of ["htmx:beforeRequest", "htmx:beforeOnLoad"]) {
  document.addEventListener(name, (event) => leaving && event.preventDefault());
}
document.addEventListener("htmx:sendError", () => announce(words.offline));
