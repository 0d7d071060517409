// What the pages do beyond HTML: times in the reader's zone, dialogs, filters without empty parts, charts.
"use strict";

(() => {
  const pad = (n) => String(n).padStart(2, "0");

  // zoneOf is the short name of the reader's zone at that time, such as GMT+1.
  const zoneOf = (at) => new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" }).formatToParts(at).find((p) => p.type === "timeZoneName").value;

  const local = (at) =>
    `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())} ${zoneOf(at)}`;

  const relative = (at) => {
    const ms = at - Date.now();
    const s = Math.abs(ms) / 1000;
    const [n, unit] = s < 60 ? [s, "s"] : s < 3600 ? [s / 60, "min"] : s < 48 * 3600 ? [s / 3600, "h"] : [s / 86400, "days"];
    const text = `${Math.floor(n)} ${unit}`;
    if (s < 1) return "now";
    return ms > 0 ? `in ${text}` : `${text} ago`;
  };

  const showTimes = (root) => {
    for (const element of root.querySelectorAll("time[datetime]")) {
      const at = new Date(element.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      element.textContent = "relative" in element.dataset ? relative(at) : local(at);
      element.title = "relative" in element.dataset ? local(at) : at.toISOString();
    }
  };
  const tick = () => {
    for (const element of document.querySelectorAll("time[data-relative]")) {
      const text = relative(new Date(element.dateTime));
      if (element.textContent !== text) element.textContent = text;
    }
  };

  document.addEventListener("click", (event) => {
    const opener = event.target.closest("[data-open]");
    if (opener) document.getElementById(opener.dataset.open)?.showModal();
    const closer = event.target.closest("[data-close]");
    if (closer) closer.closest("dialog").close();
  });

  // A filter that is not set is not part of the address, so that it can be read and shared.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if ("filters" in form.dataset) {
      for (const field of form.elements) if (field.name && field.value.trim() === "") field.disabled = true;
    } else if (form.method === "post") {
      // One click is one request.
      for (const button of form.querySelectorAll("button")) setTimeout(() => { button.disabled = true; });
    }
  });
  // A page that the browser kept is shown as it was left, disabled fields and all: undo that.
  addEventListener("pageshow", () => {
    for (const field of document.querySelectorAll("form :disabled")) field.disabled = false;
  });

  // What is polled is replaced only when something changed: selections and the reader's place stay.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const current = document.getElementById("live");
    if (!current || event.detail.target !== current || event.detail.xhr.status !== 200) return;
    const fresh = new DOMParser().parseFromString(event.detail.serverResponse, "text/html").getElementById("live");
    if (fresh && fresh.dataset.version === current.dataset.version) {
      event.detail.shouldSwap = false;
    } else if (fresh && !fresh.hasAttribute("hx-get")) {
      // It has come to its end: the dialogs beside it have changed too.
      event.detail.shouldSwap = false;
      if (!document.querySelector("dialog[open]")) location.reload();
    }
  });
  document.addEventListener("htmx:afterSettle", (event) => showTimes(event.target.parentElement ?? document));

  const colors = () => {
    const style = getComputedStyle(document.documentElement);
    const get = (name) => style.getPropertyValue(name).trim();
    return { text: get("--muted"), grid: get("--line"), lines: [get("--accent"), get("--wait"), get("--bad"), get("--dns"), get("--tls"), get("--read")] };
  };

  const dayOrHour = (at, step) =>
    step >= 86400 ? at.toLocaleDateString("en-GB", { day: "numeric", month: "short" }) : `${pad(at.getHours())}:${pad(at.getMinutes())}`;

  const draw = (figure) => {
    const { labels, times, lines } = JSON.parse(figure.dataset.series);
    const kind = figure.dataset.chart;
    const unit = figure.dataset.unit;
    const plot = figure.querySelector(".plot");
    const { text, grid, lines: palette } = colors();
    plot.replaceChildren();
    if (lines.length === 0) {
      plot.textContent = "None in this time.";
      return;
    }
    const stacked = kind === "failures";
    // Each bar stands on those after it, so that the height of all is the number of all failures.
    const drawn = stacked ? lines.map((_, i) => times.map((_, x) => lines.slice(i).reduce((sum, line) => sum + (line[x] ?? 0), 0))) : lines;
    const series = labels.map((label, i) => ({
      label: label.replaceAll("_", " "),
      stroke: palette[i % palette.length],
      width: stacked ? 0 : 2,
      fill: stacked ? palette[i % palette.length] : undefined,
      paths: stacked ? uPlot.paths.bars({ size: [0.8, 40] }) : undefined,
      // Without its neighbors a value has no line, so it needs a point.
      points: { show: !stacked && lines[i].filter((v) => v != null).length <= 48, size: 5 },
      spanGaps: false,
      value: (_u, _v, _s, x) => (x == null || lines[i][x] == null ? "–" : `${Math.round(lines[i][x] * 10) / 10}${unit ? " " + unit : ""}`),
    }));
    const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "12px system-ui" };
    const top = Math.max(1, ...drawn.flat().filter((v) => v != null));
    new uPlot({
      width: plot.clientWidth,
      height: 220,
      cursor: { y: false },
      scales: { x: { range: [times[0] - 3600, times.at(-1) + 3600] }, y: { range: kind === "rate" ? [0, 100] : [0, top * 1.1] } },
      axes: [{ ...axis, space: 70, values: (_, ats, _i, _s, step) => ats.map((at) => dayOrHour(new Date(at * 1000), step)) }, { ...axis, size: 56, incrs: kind === "failures" ? [1, 2, 5, 10, 20, 50, 100, 500, 1000, 10000, 100000] : undefined }],
      series: [{ label: "hour", value: (_, at) => (at == null ? "–" : local(new Date(at * 1000))) }, ...series],
    }, [times, ...drawn], plot);
  };
  const drawAll = () => { for (const figure of document.querySelectorAll("[data-chart]")) draw(figure); };

  showTimes(document);
  setInterval(tick, 1000);
  if (document.querySelector("[data-chart]")) {
    drawAll();
    let pending;
    addEventListener("resize", () => { clearTimeout(pending); pending = setTimeout(drawAll, 150); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  }
  const menu = document.querySelector("[data-menu]");
  // On wide screens the menu is always there, also for those who read by its semantics.
  const wide = matchMedia("(min-width: 861px)");
  const folded = [...document.querySelectorAll("details[data-narrow]:not([open])")];
  const settle = () => {
    if (menu) menu.open = wide.matches;
    for (const details of folded) details.open = wide.matches;
  };
  settle();
  wide.addEventListener("change", settle);
})();
