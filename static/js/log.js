// The log page: follows the tail by server-sent events (ids are byte offsets, so a reconnect resumes), pages
// back in ranges, searches on the host. At most CAP lines are kept in the page.
const CAP = 2000;

const box = document.querySelector("[data-log]");

function append(text) {
  const view = box.querySelector("[data-log-text]");
  const stuck = view.scrollTop + view.clientHeight >= view.scrollHeight - 16;
  view.textContent += text;
  const lines = view.textContent.split("\n");
  if (lines.length > CAP) {
    const cut = lines.slice(0, lines.length - CAP).join("\n") + "\n";
    box.dataset.first = String(Number(box.dataset.first) + new TextEncoder().encode(cut).length);
    view.textContent = lines.slice(-CAP).join("\n");
  }
  if (stuck && follow.checked) view.scrollTop = view.scrollHeight;
}

function say(text) {
  const note = box.querySelector("[data-log-note]");
  if (note.textContent !== text) note.textContent = text;
}

const follow = box?.querySelector("[data-log-follow]");
let source = null;
let trouble = "";

function open() {
  source?.close();
  source = new EventSource(`${box.dataset.stream}&from=${box.dataset.last}`);
  source.addEventListener("lines", (event) => {
    box.dataset.last = event.lastEventId;
    if (trouble) say((trouble = ""));
    append(event.data);
  });
  source.addEventListener("anew", (event) => {
    say(event.data);
    box.querySelector("[data-log-text]").textContent = "";
    box.dataset.first = box.dataset.last = "0";
    box.querySelector("[data-log-older]").disabled = true;
  });
  source.addEventListener("trouble", (event) => say((trouble = event.data)));
  source.addEventListener("end", () => source.close());
}

async function json(url) {
  const answer = await fetch(url);
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error([body.error, body.remedy].filter(Boolean).join(" ") || answer.statusText);
  return body;
}

async function older() {
  const view = box.querySelector("[data-log-text]");
  if (Number(box.dataset.first) === 0) return;
  const chunk = await json(`${box.dataset.chunk}&before=${box.dataset.first}`);
  const height = view.scrollHeight;
  follow.checked = false;
  pause();
  view.textContent = chunk.text + view.textContent;
  box.dataset.first = String(chunk.start);
  view.scrollTop += view.scrollHeight - height;
  box.querySelector("[data-log-older]").disabled = chunk.start === 0;
}

function pause() {
  source?.close();
  source = null;
}

async function jump(offset) {
  follow.checked = false;
  pause();
  const chunk = await json(`${box.dataset.chunk}&before=${offset + 4096}`);
  const view = box.querySelector("[data-log-text]");
  view.textContent = chunk.text;
  box.dataset.first = String(chunk.start);
  box.dataset.last = String(chunk.end);
  box.querySelector("[data-log-older]").disabled = chunk.start === 0;
  const before = new TextEncoder().encode(chunk.text).slice(0, Math.max(0, offset - chunk.start));
  const line = new TextDecoder().decode(before).split("\n").length - 1;
  view.scrollTop = Math.max(0, line - 4) * Number.parseFloat(getComputedStyle(view).lineHeight);
  view.focus();
}

async function search(form) {
  const found = await json(`${form.action}${box.dataset.chunk.slice(box.dataset.chunk.indexOf("?"))}&q=${encodeURIComponent(form.q.value)}`);
  const list = box.querySelector("[data-log-hits]");
  list.replaceChildren(
    ...found.hits.map((hit) => {
      const item = document.createElement("li");
      const button = document.createElement("button");
      button.type = "button";
      button.className = "link mono";
      button.textContent = hit.line;
      button.addEventListener("click", () => jump(hit.offset).catch((error) => say(error.message)));
      item.append(button);
      return item;
    }),
  );
  say(form.dataset[found.hits.length === 0 ? "none" : found.more ? "more" : "found"].replace("%", found.hits.length));
}

if (box && box.dataset.stream) {
  const view = box.querySelector("[data-log-text]");
  view.scrollTop = view.scrollHeight;
  open();
  follow.addEventListener("change", () => {
    if (!follow.checked) return pause();
    view.scrollTop = view.scrollHeight;
    return open();
  });
  box.querySelector("[data-log-older]").addEventListener("click", () => older().catch((error) => say(error.message)));
  box.querySelector("[data-log-end]").addEventListener("click", async () => {
    try {
      const chunk = await json(box.dataset.chunk);
      view.textContent = chunk.text;
      box.dataset.first = String(chunk.start);
      box.dataset.last = String(chunk.end);
      follow.checked = true;
      view.scrollTop = view.scrollHeight;
      open();
    } catch (error) {
      say(error.message);
    }
  });
  const form = box.querySelector("form[data-log-search]");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    search(form).catch((error) => say(error.message));
  });
  box.querySelector("[data-log-start]")?.addEventListener("change", (event) => {
    window.location.search = `?start=${event.target.value}`;
  });
}
