/* The palette: a dialog with a combobox over everything that the reader may open. */
import { announce, words } from "./words.js";

const dialog = document.getElementById("palette");
const input = dialog?.querySelector("input");
const found = dialog?.querySelector(".found");
let turn = 0;
let timer = 0;
let chosen = -1;

const options = () => [...found.querySelectorAll("[role=option]")];

function choose(index) {
  const all = options();
  chosen = all.length ? (index + all.length) % all.length : -1;
  all.forEach((option, at) => option.setAttribute("aria-selected", String(at === chosen)));
  if (chosen < 0) {
    input.removeAttribute("aria-activedescendant");
    return;
  }
  input.setAttribute("aria-activedescendant", all[chosen].id);
  all[chosen].scrollIntoView({ block: "nearest" });
}

async function search() {
  const mine = ++turn;
  const url = new URL(dialog.dataset.url, location.href);
  url.searchParams.set("q", input.value.trim());
  let html = "";
  try {
    const answer = await fetch(url, { headers: { "X-Requested-With": "fetch" } });
    if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
    html = await answer.text();
  } catch {
    if (mine === turn) announce(words.offline);
    return;
  }
  if (mine !== turn) return;
  found.innerHTML = html;
  input.setAttribute("aria-expanded", String(options().length > 0));
  choose(0);
  if (!options().length) announce(words.no_results);
}

export function openPalette() {
  if (!dialog) return false;
  if (!dialog.open) {
    document.querySelector(".side:popover-open")?.hidePopover();
    dialog.showModal();
    input.select();
    search();
  }
  return true;
}

input?.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(search, 120);
});

input?.addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  if (event.key === "ArrowDown") choose(chosen + 1);
  else if (event.key === "ArrowUp") choose(chosen - 1);
  else if (event.key === "Enter") options()[chosen]?.click();
  else return;
  event.preventDefault();
});
