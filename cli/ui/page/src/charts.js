// SPDX-License-Identifier: Apache-2.0

// The curves over steps. The server summarizes long runs in buckets (cli/ui/step_buckets.h); a zoomed range is
// requested in detail.
import uPlot from "uplot";

const COLUMNS = ["step", "loss", "low", "high", "lr", "rate", "goodput"];

export class Steps {
  constructor() { this.clear(); }
  clear() { for (const column of COLUMNS) this[column] = []; this.stride = 0; }
  // Replaces the buckets from message.from on.
  apply(message) {
    if (message.stride !== this.stride) this.clear();
    this.stride = message.stride;
    for (const column of COLUMNS) {
      this[column].length = Math.min(this[column].length, message.from);
      // A column that is not recorded has no values.
      for (let i = 0; i < message.step.length; ++i) this[column].push(message[column]?.[i] ?? null);
    }
  }
}

export function short(value) {
  if (value == null || !isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 3 : 4);
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const group = uPlot.sync("steps");
const SAY_MS = 300;  // a screen reader gets the step at which the cursor rests, not each one that it passes

const element = (name, className, text) => {
  const node = document.createElement(name);
  node.className = className;
  if (text != null) node.textContent = text;
  return node;
};
const hasValue = (column) => column.some((value) => value != null);
function newest(column) {
  let i = column.length - 1;
  while (i >= 0 && column[i] == null) --i;
  return column[i];
}

// A chart in its card, which is hidden while no series has a value. The arrow keys move the cursor over the steps, and the
// legend shows the values there; without a cursor, the newest ones. Its buttons show and hide the series.
export class Chart {
  // spec: {series: [{label, color, of, points}], band, percent, zero, log}. A series without a label belongs to the one
  // that `of` names. onZoom: gets a range of steps, or null for all.
  constructor(host, spec, onZoom) {
    this.host = host;
    this.card = host.closest(".card");
    this.spec = spec;
    this.onZoom = onZoom;
    this.data = null;
    this.at = null;  // the step that the keyboard selected
    this.hidden = new Set();  // labels of series
    host.setAttribute("role", "group");
    this.area = element("div", "chart-area");
    const title = this.card.getAttribute("aria-labelledby");
    for (const [name, value] of [["tabindex", 0], ["role", "application"], ["aria-roledescription", "chart"], ["aria-labelledby", title], ["aria-describedby", "chart-help"]])
      this.area.setAttribute(name, value);
    this.said = element("p", "visually-hidden");
    this.said.setAttribute("aria-live", "polite");
    host.append(this.area, this.makeLegend(), this.said);
    this.area.addEventListener("keydown", (event) => this.key(event));
    this.area.addEventListener("pointermove", () => (this.at = null));
    this.area.addEventListener("blur", () => {
      if (this.at == null) return;
      this.at = null;
      this.plot?.setCursor({left: -10, top: -10}, true, true);
    });
    new ResizeObserver(() => {
      if (this.plot && this.area.clientWidth) this.plot.setSize({width: this.area.clientWidth, height: this.height()});
    }).observe(this.area);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.rebuild());
  }

  height() { return 190; }

  makeLegend() {
    const legend = element("div", "chart-legend"), where = element("span", "entry", "step ");
    this.step = element("b", "num");
    where.append(this.step);
    legend.append(where);
    this.entries = this.spec.series.map((series) => {
      if (!series.label) return null;
      const entry = element("span", "entry"), button = element("button", "series", series.label), value = element("b", "num");
      const swatch = element("i", series.points ? "dot" : "");
      swatch.style.background = `var(${series.color})`;
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      button.prepend(swatch);
      button.addEventListener("click", () => this.toggle(series.label, button));
      entry.append(button, value);
      legend.append(entry);
      return {entry, value};
    });
    return legend;
  }

  toggle(label, button) {
    if (!this.hidden.delete(label)) this.hidden.add(label);
    button.setAttribute("aria-pressed", !this.hidden.has(label));
    this.spec.series.forEach((series, i) => {
      if ((series.label || series.of) === label) this.plot?.setSeries(i + 1, {show: !this.hidden.has(label)});
    });
  }

  rebuild() {
    this.plot?.destroy();
    this.plot = null;
    if (this.data) this.set(this.data);
  }

  set(data) {
    this.data = data;
    this.card.hidden = !this.spec.series.some((series, i) => series.label && hasValue(data[i + 1]));
    if (this.card.hidden) return;
    this.host.setAttribute("aria-label", this.summary());
    if (this.plot) this.plot.setData(data);
    else if (this.area.clientWidth) this.build();
    if (this.at != null) this.placeCursor();
    this.drawLegend();
  }

  format(value) {
    if (!this.spec.percent) return short(value);
    return value == null ? "–" : (value * 100).toFixed(1) + " %";
  }

  summary() {
    const parts = this.spec.series.map((series, i) => {
      const values = series.label ? this.data[i + 1].filter((value) => value != null) : [];
      if (!values.length) return null;
      const numbers = [values[values.length - 1], Math.min(...values), Math.max(...values)].map((value) => this.format(value));
      return `${series.label}: now ${numbers[0]}, least ${numbers[1]}, most ${numbers[2]}`;
    });
    return `Chart over steps. ${parts.filter(Boolean).join("; ")}.`;
  }

  drawLegend() {
    const [steps, ...columns] = this.data, index = this.plot?.cursor.idx ?? null;
    const change = (node, text) => { if (node.textContent !== text) node.textContent = text; };
    change(this.step, (steps[index ?? steps.length - 1] ?? 0).toLocaleString("en"));
    this.entries.forEach((parts, i) => {
      if (!parts) return;
      parts.entry.hidden = !hasValue(columns[i]);
      change(parts.value, this.format(index == null ? newest(columns[i]) : columns[i][index]));
    });
  }

  // ---- keyboard ----

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || !this.plot) return;
    const steps = this.data[0], last = steps.length - 1, page = Math.max(1, Math.round(last / 10)), index = this.index();
    if (event.key === "ArrowRight") this.pick(index == null ? 0 : index + 1);
    else if (event.key === "ArrowLeft") this.pick(index == null ? last : index - 1);
    else if (event.key === "PageDown") this.pick((index ?? 0) + page);
    else if (event.key === "PageUp") this.pick((index ?? last) - page);
    else if (event.key === "Home") this.pick(0);
    else if (event.key === "End") this.pick(last);
    else if (event.key === "+" || event.key === "=") this.zoom(0.6);
    else if (event.key === "-") this.zoom(1 / 0.6);
    else if (event.key === "0") this.onZoom(null);
    else return;
    event.preventDefault();
  }

  // Returns the index of the selected step, or of the next one when a zoom or new steps left it out.
  index() {
    if (this.at == null) return this.plot.cursor.idx ?? null;
    const steps = this.data[0], found = steps.findIndex((step) => step >= this.at);
    return found < 0 ? steps.length - 1 : found;
  }

  pick(index) {
    const steps = this.data[0];
    this.at = steps[Math.min(Math.max(0, index), steps.length - 1)];
    this.placeCursor();
    clearTimeout(this.sayTimer);
    this.sayTimer = setTimeout(() => (this.said.textContent = this.valuesAtCursor()), SAY_MS);
  }

  placeCursor() {
    const index = this.index(), value = this.data[1][index];
    const top = value == null ? this.plot.over.clientHeight / 2 : this.plot.valToPos(value, "y");
    this.plot.setCursor({left: this.plot.valToPos(this.data[0][index], "x"), top}, true, true);
  }

  valuesAtCursor() {
    const values = this.entries.map((parts, i) => parts && !parts.entry.hidden && !this.hidden.has(this.spec.series[i].label) && `${this.spec.series[i].label} ${parts.value.textContent}`);
    return `step ${this.step.textContent}: ${values.filter(Boolean).join(", ")}`;
  }

  zoom(factor) {
    const steps = this.data[0], first = steps[0], last = steps[steps.length - 1];
    if (factor < 1 && steps.length < 4) return;
    const center = this.at ?? (first + last) / 2;
    this.onZoom(Math.floor(center - (center - first) * factor), Math.ceil(center + (last - center) * factor));
  }

  build() {
    const spec = this.spec, soft = css("--soft"), grid = css("--grid");
    const axis = {stroke: soft, grid: {stroke: grid, width: 1}, ticks: {stroke: grid, width: 1}, font: "11px system-ui, sans-serif"};
    const narrow = this.area.clientWidth < 420;
    const options = {
      width: this.area.clientWidth,
      height: this.height(),
      cursor: {sync: {key: group.key}, drag: {x: true, y: false}, points: {size: 6}},
      legend: {show: false},
      padding: [10, 18, 0, 0],
      scales: {
        x: {time: false},
        y: spec.log ? {distr: 3} : {range: (_, low, high) => {
          if (low == null) return [0, 1];
          if (spec.percent) return [Math.max(0, Math.min(low - 0.02, 0.9)), 1.005];
          if (spec.zero) return [0, high * 1.08 || 1];
          const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
          return [low - room, high + room];
        }},
      },
      axes: [
        {...axis, space: narrow ? 70 : 60, size: 26, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? compact(tick) : ""))},
        {...axis, size: 58, space: 34, values: (_, ticks) => ticks.map((tick) => (tick == null ? "" : spec.percent ? Math.round(tick * 100) + " %" : axisNumber(tick)))},
      ],
      series: [
        {},
        ...spec.series.map((series) => ({
          show: !this.hidden.has(series.label || series.of),
          stroke: series.color ? css(series.color) : "transparent",
          width: series.points ? 2 : series.color ? 1.6 : 0,
          ...(series.points ? {paths: () => null} : {}),
          points: series.points ? {show: true, size: 7, fill: css(series.color), stroke: css("--card"), width: 1} : {show: false},
          spanGaps: !!series.points,
        })),
      ],
      bands: spec.band ? [{series: spec.band, fill: css("--band")}] : [],
      hooks: {
        setSelect: [(plot) => {
          if (plot.select.width < 3) return;
          const from = plot.posToVal(plot.select.left, "x"), to = plot.posToVal(plot.select.left + plot.select.width, "x");
          this.onZoom(Math.floor(from), Math.ceil(to));
        }],
        setCursor: [(plot) => { if (plot === this.plot) this.drawLegend(); }],
        ready: [(plot) => plot.over.addEventListener("dblclick", () => this.onZoom(null))],
      },
    };
    this.area.replaceChildren();
    this.plot = new uPlot(options, this.data, this.area);
  }
}

function compact(value) {
  if (value >= 1e6) return +(value / 1e6).toFixed(2) + " M";
  return value >= 10000 ? +(value / 1e3).toFixed(1) + " k" : String(value);
}

function axisNumber(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) return value.toExponential(0).replace("e+", "e");
  return String(+value.toPrecision(4));
}
