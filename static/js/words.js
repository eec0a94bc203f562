/* Sentences that modules say, in the reader's language; and how they say them. */
export const words = JSON.parse(document.getElementById("words")?.textContent ?? "{}");

export function announce(text) {
  const place = document.getElementById("announce");
  if (!place) return;
  place.textContent = "";
  requestAnimationFrame(() => (place.textContent = text));
}
