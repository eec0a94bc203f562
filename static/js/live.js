// A part of a page that renews itself: <div data-live="URL" data-live-mark="…">. The server answers 204 while
// nothing changed, otherwise the part anew. data-live-every is in milliseconds.

/* Somebody answers a question or types in it: it stays as it is. */
function inUse(part) {
  return Boolean(part.querySelector("dialog[open], :focus-within:is(input, select, textarea)"));
}

/* A selector of the focused element that also finds its successor; null if focus is elsewhere. */
function focusedIn(part) {
  const element = part.contains(document.activeElement) ? document.activeElement : null;
  if (!element) return null;
  if (element.dataset.dialog) return `[data-dialog="${CSS.escape(element.dataset.dialog)}"]`;
  if (element.hasAttribute("href")) return `a[href="${CSS.escape(element.getAttribute("href"))}"]`;
  if (element.form?.hasAttribute("action")) return `form[action="${CSS.escape(element.form.getAttribute("action"))}"] button`;
  return element.tagName === "PRE" ? "pre" : null;
}

import { showOffline } from "./words.js";

async function renew(part) {
  const url = new URL(part.dataset.live, window.location.href);
  if (part.dataset.liveMark) url.searchParams.set("mark", part.dataset.liveMark);
  const answer = await fetch(url);
  if (answer.redirected) window.location.reload();
  showOffline(!answer.ok);
  if (answer.status !== 200) return part;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").body.firstElementChild;
  if (!fresh || inUse(part)) return part;
  const open = new Set([...part.querySelectorAll("details[open][id]")].map((one) => one.id));
  for (const one of fresh.querySelectorAll("details[id]")) if (open.has(one.id)) one.open = true;
  const log = part.querySelector("[data-keep-scroll]");
  const stuck = !log || log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
  const top = log?.scrollTop ?? 0;
  const focused = focusedIn(part);
  part.replaceWith(fresh);
  if (focused) fresh.querySelector(focused)?.focus({ preventScroll: true });
  const freshLog = fresh.querySelector("[data-keep-scroll]");
  if (freshLog) freshLog.scrollTop = stuck ? freshLog.scrollHeight : top;
  fresh.dispatchEvent(new CustomEvent("live:renewed", { bubbles: true }));
  return fresh;
}

for (const log of document.querySelectorAll("[data-keep-scroll]")) log.scrollTop = log.scrollHeight;

for (const start of document.querySelectorAll("[data-live]")) {
  let part = start;
  let busy = false;
  setInterval(async () => {
    if (document.hidden || busy || !part.isConnected || inUse(part)) return;
    busy = true;
    try {
      part = await renew(part);
    } catch {
      showOffline(true);
    } finally {
      busy = false;
    }
  }, Number(start.dataset.liveEvery || 2000));
}
