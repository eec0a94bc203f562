/* Charts: every `.chart[data-chart-url]` of the page, drawn by Plotly from JSON of the server.

   Colours come from the page's CSS variables: a trace says `meta.tone`, a shape or annotation is named
   `tone:…` (line, words) or `fill:…`. Buttons with `data-range` switch all charts and the address.
   Only SVG traces: others would need a weaker Content-Security-Policy. */

const RANGES = ["15m", "3h", "24h", "7d", "30d"];
const charts = new Map();
const format = {
  percent: new Intl.NumberFormat(document.documentElement.lang, { style: "percent", maximumFractionDigits: 1 }),
  number: new Intl.NumberFormat(document.documentElement.lang, { maximumFractionDigits: 2 }),
  rate: new Intl.NumberFormat(document.documentElement.lang, { maximumFractionDigits: 1 }),
  seconds: new Intl.NumberFormat(document.documentElement.lang, { maximumSignificantDigits: 4 }),
};

let plotly;
function loadPlotly() {
  plotly ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL("../vendor/plotly.min.js", import.meta.url);
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      plotly = undefined;
      reject(new Error("plotly"));
    };
    document.head.append(script);
  });
  return plotly;
}

/* A custom property may hold light-dark(): only an element's computed colour is a colour. */
const probe = document.createElement("span");
probe.hidden = true;
document.body.append(probe);
const colours = new Map();
function colour(name) {
  if (!colours.has(name)) {
    probe.style.color = `var(--${name})`;
    colours.set(name, rgba(getComputedStyle(probe).color));
  }
  return colours.get(name);
}

/* Browsers may answer color(srgb r g b / a), which Plotly does not read. */
function rgba(text) {
  const match = text.match(/^color\(srgb ([\d.e-]+) ([\d.e-]+) ([\d.e-]+)(?: \/ ([\d.e-]+))?\)$/);
  if (!match) return text;
  const [red, green, blue] = match.slice(1, 4).map((part) => Math.round(Number(part) * 255));
  return `rgba(${red}, ${green}, ${blue}, ${match[4] ?? 1})`;
}

/* Plotly shows times as they are written: write the reader's. */
function local(ms) {
  const at = new Date(ms);
  const two = (number) => String(number).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

function themed(payload, zoom) {
  const style = getComputedStyle(document.body);
  const data = payload.data.map((trace) => {
    const tone = colour(trace.meta?.tone ?? "accent");
    const result = { ...trace, x: trace.x.map(local), line: { ...trace.line, color: tone } };
    if (trace.marker) result.marker = { ...trace.marker, color: tone };
    if (trace.meta?.fill) result.fillcolor = colour(trace.meta.fill);
    return result;
  });
  const painted = (item) => {
    const [what, tone] = (item.name ?? "").split(":");
    const result = { ...item };
    if (what === "fill") result.fillcolor = colour(tone);
    else if (item.font) result.font = { ...item.font, color: colour(tone ?? "muted") };
    else result.line = { ...item.line, color: colour(tone ?? "faint") };
    for (const key of ["x0", "x1", "x"]) {
      if (typeof result[key] === "number" && item.xref !== "paper") result[key] = local(result[key]);
    }
    return result;
  };
  const axis = { gridcolor: colour("line"), linecolor: colour("line"), zerolinecolor: colour("line") };
  const layout = {
    ...payload.layout,
    autosize: true,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: style.fontFamily, size: 12, color: colour("muted") },
    hoverlabel: {
      bgcolor: colour("raised"),
      bordercolor: colour("line-strong"),
      font: { family: style.fontFamily, color: colour("text") },
    },
    shapes: (payload.layout.shapes ?? []).map(painted),
    annotations: (payload.layout.annotations ?? []).map(painted),
  };
  for (const key of Object.keys(payload.layout)) {
    if (/^[xy]axis\d*$/.test(key)) layout[key] = { ...axis, ...payload.layout[key] };
  }
  if (layout.xaxis?.range) layout.xaxis = { ...layout.xaxis, range: layout.xaxis.range.map(local) };
  if (zoom) layout.xaxis = { ...layout.xaxis, range: zoom };
  return [data, layout];
}

// a legend that needs more than one row gets the room below the axis for it
function withLegend(layout, data, width) {
  const room = width - layout.margin.l - layout.margin.r;
  const named = data.filter((trace) => trace.showlegend !== false && trace.name);
  const long = named.reduce((sum, trace) => sum + trace.name.length * 7 + 48, 0);
  if (long <= room || named.length < 2) return layout;
  return { ...layout, margin: { ...layout.margin, b: layout.margin.b + (named.length - 1) * 19 } };
}

// words of marks that would lie over those of a newer one are left out; their lines stay
function uncrowded(layout, width) {
  const [start, end] = layout.xaxis.range.map((moment) => new Date(moment).getTime());
  const room = width - layout.margin.l - layout.margin.r;
  const taken = [];
  const kept = [...layout.annotations].reverse().filter((words) => {
    const at = ((new Date(words.x).getTime() - start) / (end - start)) * room;
    const long = words.text.length * words.font.size * 0.6 + 8;
    const [left, right] = words.xanchor === "right" ? [at - long, at] : [at, at + long];
    if (taken.some(([from, to]) => left < to && right > from)) return false;
    taken.push([left, right]);
    return true;
  });
  return kept.reverse();
}

function parts(element) {
  const card = element.closest(".chart-card") ?? element.parentElement;
  return { note: card.querySelector(".chart-note"), details: card.querySelector(".chart-table") };
}

function say(element, text) {
  const { note } = parts(element);
  if (note && note.textContent !== text) note.textContent = text;
}

function fillTable(element, payload) {
  const { details } = parts(element);
  if (!details?.open) return;
  const { columns, rows } = payload.table;
  const head = details.querySelector("thead tr");
  while (head.children.length > 1) head.lastChild.remove();
  for (const column of columns) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = column.label;
    head.append(cell);
  }
  const lines = rows.map(([at, ...values]) => {
    const line = document.createElement("tr");
    const time = document.createElement("td");
    time.textContent = new Date(at).toLocaleString(document.documentElement.lang);
    line.append(time);
    values.forEach((value, place) => {
      const cell = document.createElement("td");
      const kind = columns[place].format;
      const suffix = { seconds: " s", rate: "/s" }[kind] ?? "";
      cell.textContent = value === null ? "–" : (format[kind] ?? format.number).format(value) + suffix;
      line.append(cell);
    });
    return line;
  });
  details.querySelector("tbody").replaceChildren(...lines.reverse()); // newest first
}

/* One after the other: two drawings at once can leave a line where another axis was. One that waits draws
   what is newest by then. */
function draw(element) {
  const chart = charts.get(element);
  const begin = () => {
    chart.waiting = undefined;
    chart.drawing = drawNow(element, chart);
    return chart.drawing;
  };
  chart.waiting ??= Promise.resolve(chart.drawing).then(begin, begin);
  return chart.waiting;
}

async function drawNow(element, chart) {
  const { payload } = chart;
  if (!payload) return;
  const library = await loadPlotly();
  const [data, themedLayout] = themed(payload, chart.zoom);
  const layout = withLegend(themedLayout, data, element.clientWidth);
  if (layout.xaxis?.range) layout.annotations = uncrowded(layout, element.clientWidth);
  await library.react(element, data, layout, { displaylogo: false, displayModeBar: false, responsive: true });
  if (!chart.listens) {
    chart.listens = true;
    /* The span moves on with time, so Plotly would take each update for a new one: the zoom is kept here. */
    element.on("plotly_relayout", (change) => {
      if (change["xaxis.range[0]"] !== undefined) chart.zoom = [...element.layout.xaxis.range];
    });
    element.on("plotly_doubleclick", () => {
      chart.zoom = undefined;
      draw(element);
    });
  }
  const { note } = parts(element);
  say(element, payload.empty ? note?.dataset.empty ?? "" : payload.summary ?? "");
  element.setAttribute("aria-label", `${element.dataset.chartTitle ?? ""}. ${payload.summary ?? ""}`);
  element.dataset.drawn = String(Number(element.dataset.drawn ?? 0) + 1);
  fillTable(element, payload);
}

let range = currentRange();
function currentRange() {
  const asked = new URLSearchParams(location.search).get("range");
  if (RANGES.includes(asked)) return asked;
  return document.querySelector('[data-range][aria-pressed="true"]')?.dataset.range ?? "3h";
}

async function load(element) {
  const chart = charts.get(element);
  const url = new URL(element.dataset.chartUrl, location.href);
  if (!url.searchParams.has("from")) url.searchParams.set("range", range);
  chart.next = Date.now() + (chart.refresh ?? 5000);
  chart.abort?.abort();
  const abort = (chart.abort = new AbortController());
  const headers = { Accept: "application/json", "X-Requested-With": "fetch" };
  if (chart.etag && chart.asked === url.href) headers["If-None-Match"] = chart.etag;
  const { note } = parts(element);
  try {
    const answer = await fetch(url, { headers, cache: "no-store", signal: abort.signal });
    if (answer.status === 304) return;
    if (answer.redirected || !answer.headers.get("content-type")?.startsWith("application/json")) {
      say(element, answer.ok ? note?.dataset.signedOut ?? "" : note?.dataset.failed ?? "");
      return;
    }
    const payload = await answer.json();
    if (!answer.ok) {
      say(element, payload.detail ?? note?.dataset.failed ?? "");
      return;
    }
    Object.assign(chart, {
      payload,
      etag: answer.headers.get("etag"),
      asked: url.href,
      refresh: (payload.refresh_s ?? 5) * 1000,
    });
    chart.next = Date.now() + chart.refresh;
    await draw(element);
  } catch (error) {
    if (error.name !== "AbortError") say(element, note?.dataset.failed ?? "");
  }
}

function redrawAll() {
  colours.clear();
  for (const element of charts.keys()) draw(element);
}

function tick() {
  if (document.hidden) return;
  for (const [element, chart] of charts) {
    if (!element.isConnected) charts.delete(element);
    else if (chart.visible && Date.now() >= chart.next) load(element);
  }
}

const sight = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      const chart = charts.get(entry.target);
      if (chart) chart.visible = entry.isIntersecting;
    }
    tick();
  },
  { rootMargin: "200px" },
);

/* Also for fragments that arrive later. */
function find() {
  for (const element of document.querySelectorAll(".chart[data-chart-url]")) {
    if (charts.has(element)) continue;
    charts.set(element, { next: 0, visible: false });
    sight.observe(element);
    parts(element).details?.addEventListener("toggle", () => {
      const { payload } = charts.get(element) ?? {};
      if (payload) fillTable(element, payload);
    });
  }
}

function showRange() {
  for (const button of document.querySelectorAll("button[data-range]")) {
    button.setAttribute("aria-pressed", String(button.dataset.range === range));
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("button[data-range]");
  if (!button) return;
  range = button.dataset.range;
  const url = new URL(location.href);
  url.searchParams.set("range", range);
  history.replaceState(history.state, "", url);
  showRange();
  for (const chart of charts.values()) Object.assign(chart, { next: 0, zoom: undefined });
  tick();
});

document.addEventListener("visibilitychange", tick);
document.body.addEventListener("htmx:afterSettle", find);
new MutationObserver(redrawAll).observe(document.documentElement, { attributeFilter: ["data-theme"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
setInterval(tick, 1000);
showRange();
find();
