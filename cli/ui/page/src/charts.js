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
      for (const value of message[column]) this[column].push(value);
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

export class Chart {
  // spec: {series: [{label, column, color, ...}], band, percent, log}
  constructor(host, spec, onZoom) {
    this.host = host;
    this.spec = spec;
    this.onZoom = onZoom;
    this.data = null;
    new ResizeObserver(() => {
      if (this.plot && host.clientWidth) this.plot.setSize({width: host.clientWidth, height: this.height()});
    }).observe(host);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.rebuild());
  }

  height() { return 190; }

  rebuild() {
    this.plot?.destroy();
    this.plot = null;
    if (this.data) this.set(this.data);
  }

  set(data) {
    this.data = data;
    if (this.plot) {
      const zoomed = this.zoomed;
      this.plot.setData(data, !zoomed);
      if (zoomed) this.plot.redraw();
    } else if (data[0].length && this.host.clientWidth) this.build();
    this.host.setAttribute("aria-label", this.summary());
  }

  summary() {
    const parts = this.spec.series.filter((series) => series.label).map((series) => {
      const values = this.data[this.spec.series.indexOf(series) + 1].filter((value) => value != null);
      return values.length ? `${series.label}: now ${short(values[values.length - 1])}, least ${short(Math.min(...values))}, most ${short(Math.max(...values))}` : `${series.label}: no values`;
    });
    return `Chart over steps. ${parts.join("; ")}.`;
  }

  build() {
    const spec = this.spec, soft = css("--soft"), grid = css("--grid");
    const axis = {stroke: soft, grid: {stroke: grid, width: 1}, ticks: {stroke: grid, width: 1}, font: "11px system-ui, sans-serif"};
    const format = spec.percent ? (value) => (value == null ? "–" : (value * 100).toFixed(1) + " %") : short;
    const narrow = this.host.clientWidth < 420;
    const options = {
      width: this.host.clientWidth,
      height: this.height(),
      cursor: {sync: {key: group.key}, drag: {x: true, y: false}, points: {size: 6}},
      legend: {live: true},
      padding: [10, 10, 0, 0],
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
        {...axis, size: 52, space: 34, values: (_, ticks) => ticks.map((tick) => (tick == null ? "" : spec.percent ? Math.round(tick * 100) + " %" : axisNumber(tick)))},
      ],
      series: [
        {label: "step", value: (_, value) => (value == null ? "–" : value.toLocaleString("en"))},
        ...spec.series.map((series) => ({
          label: series.label || "",
          stroke: series.color ? css(series.color) : "transparent",
          width: series.points ? 2 : series.color ? 1.6 : 0,
          ...(series.points ? {paths: () => null} : {}),
          points: series.points ? {show: true, size: 7, fill: css(series.color), stroke: css("--card"), width: 1} : {show: false},
          spanGaps: !!series.points,
          value: (_, value) => format(value),
        })),
      ],
      bands: spec.band ? [{series: spec.band, fill: css("--band")}] : [],
      hooks: {
        setSelect: [(plot) => {
          if (plot.select.width < 3) return;
          const from = plot.posToVal(plot.select.left, "x"), to = plot.posToVal(plot.select.left + plot.select.width, "x");
          this.onZoom(Math.floor(from), Math.ceil(to));
        }],
        ready: [(plot) => plot.over.addEventListener("dblclick", () => this.onZoom(null))],
      },
    };
    this.host.replaceChildren();
    this.plot = new uPlot(options, this.data, this.host);
    // The lines of the band have no name.
    this.plot.root.querySelectorAll(".u-series").forEach((row, i) => {
      if (i && !spec.series[i - 1].label) row.hidden = true;
    });
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
