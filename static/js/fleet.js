// Keeps the fleet page fresh: one request for the whole page, only while the tab is seen.
import { showOffline } from "./words.js";

const PERIOD_MS = 2000;
const WHOLE_EVERY = 30; // a full answer now and then heals whatever a race has hidden

const fleet = document.querySelector("[data-fleet]");
const empty = document.querySelector("[data-fleet-empty]");

function states() {
  const found = new Map();
  for (const card of document.querySelectorAll("article.engine")) {
    const badge = card.querySelector(".badge");
    const name = card.querySelector("h3");
    if (!badge || !name) continue;
    const state = badge.textContent.trim().replace(/\s+\d+%$/, "");
    found.set(card.id, `${name.textContent.trim()}: ${state}`);
  }
  return found;
}

function swap(html) {
  const parsed = new DOMParser().parseFromString(html, "text/html");
  for (const fresh of parsed.querySelectorAll("[hx-swap-oob]")) {
    const old = document.getElementById(fresh.id);
    if (!old) continue;
    fresh.removeAttribute("hx-swap-oob");
    const link = old.contains(document.activeElement) && document.activeElement.getAttribute("href");
    old.replaceWith(fresh);
    if (link) fresh.querySelector(`a[href="${CSS.escape(link)}"]`)?.focus();
  }
  const mark = parsed.querySelector("[data-fleet-mark]");
  const groups = document.getElementById("fleet-groups");
  if (mark && groups) {
    for (const name of ["since", "shape", "count"]) groups.dataset[name] = mark.dataset[name];
  }
}

async function refresh(whole) {
  const groups = document.getElementById("fleet-groups");
  const query = new URLSearchParams(window.location.search);
  query.set("since", whole ? "0" : groups.dataset.since);
  query.set("shape", groups.dataset.shape);
  query.set("count", groups.dataset.count);
  const answer = await fetch(`${fleet.dataset.url}?${query}`);
  if (answer.redirected) window.location.reload();
  showOffline(!answer.ok);
  if (answer.status !== 200) return;
  const before = states();
  swap(await answer.text());
  // without any engine the page is another one
  if (document.getElementById("fleet-groups")?.dataset.count === "0") window.location.reload();
  const news = [];
  for (const [id, text] of states()) if (before.get(id) !== text) news.push(text);
  const live = document.getElementById("fleet-news");
  if (live && news.length) live.textContent = news.join(". ");
}

async function first() {
  const answer = await fetch(`${empty.dataset.fleetEmpty}?since=0&count=0`);
  showOffline(!answer.ok);
  if (answer.status === 200 || answer.redirected) window.location.reload();
}

if (fleet || empty) {
  let round = 0;
  let busy = false;
  setInterval(async () => {
    if (document.hidden || busy) return;
    busy = true;
    round += 1;
    try {
      await (fleet ? refresh(round % WHOLE_EVERY === 0) : first());
    } catch {
      showOffline(true);
    } finally {
      busy = false;
    }
  }, PERIOD_MS);
}
