/* Sentences that modules say, in the reader's language; and how they say them. */
export const words = JSON.parse(document.getElementById("words")?.textContent ?? "{}");

export function announce(text) {
  const place = document.getElementById("announce");
  if (!place) return;
  place.textContent = "";
  requestAnimationFrame(() => (place.textContent = text));
}

/* Says on the page, and to screen readers once, that it is not being renewed; false takes it back. */
export function showOffline(offline) {
  const main = document.getElementById("content");
  if (!main || offline === "offline" in main.dataset) return;
  if (offline) {
    main.dataset.offline = words.offline;
    announce(words.offline);
  } else delete main.dataset.offline;
}
