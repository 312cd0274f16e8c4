// SPDX-License-Identifier: Apache-2.0

// The table of workers with their busy time per step (cli/history/busy_history.h). All names go through
// textContent.
import {duration, svg} from "./gang.js";

const WIDTH = 160, HEIGHT = 22, ROWS = 64;

function median(values) {
  const sorted = values.filter((value) => value != null).sort((one, other) => one - other);
  return sorted[(sorted.length - 1) >> 1];
}

function cell(row, text, name = "td") {
  const node = document.createElement(name);
  if (text != null) node.textContent = text;
  if (name === "th") node.scope = "row";
  row.append(node);
  return node;
}

// Draws the recent values of a worker as a line. `top` is the same for all workers, so that lines compare.
function sparkline(values, top, slow) {
  const image = svg("svg", {width: WIDTH, height: HEIGHT, "aria-hidden": "true"});
  const step = WIDTH / Math.max(1, values.length - 1);
  let path = "", pen = "M";
  values.forEach((value, i) => {
    if (value == null) return void (pen = "M");
    path += `${pen}${(i * step).toFixed(1)} ${(HEIGHT - 2 - (value / top) * (HEIGHT - 4)).toFixed(1)}`;
    pen = "L";
  });
  svg("path", {d: path, fill: "none", stroke: slow ? "var(--warn)" : "var(--accent)", "stroke-width": 1.5}, image);
  return image;
}

export function drawBusy(busy) {
  const card = document.getElementById("busy-card");
  card.hidden = !busy?.windows.length;
  if (card.hidden) return;
  const windows = busy.windows, [step, seconds, longest] = windows.at(-1);
  const middle = median(seconds), top = Math.max(...windows.flatMap((window) => window[1]), 1e-9);
  const slow = new Set(busy.stragglers);
  document.getElementById("busy-note").textContent = slow.size
    ? `${slow.size} slow: the others wait for ${slow.size === 1 ? "it" : "them"} in each step`
    : `the gang is even; step ${step.toLocaleString("en")}`;
  const ratioTop = Math.max(2, ...seconds.map((value) => value / middle || 0));
  // Of a large gang, the slow workers and then those with the longest busy times.
  const shown = busy.workers.map((_, rank) => rank);
  if (shown.length > ROWS) shown.sort((one, other) => slow.has(other) - slow.has(one) || (seconds[other] ?? 0) - (seconds[one] ?? 0));
  const rows = shown.slice(0, ROWS).map((rank) => {
    const row = document.createElement("tr"), value = seconds[rank], worker = busy.workers[rank];
    if (slow.has(rank)) row.className = "slow";
    cell(row, worker + (slow.has(rank) ? " – slow" : ""), "th");
    cell(row, value == null ? "–" : duration(value));
    cell(row, longest[rank] == null ? "–" : duration(longest[rank]));
    const ratio = cell(row), meter = document.createElement("span"), bar = document.createElement("i");
    if (value != null && middle > 0) {
      meter.className = "meter";
      bar.style.width = `${Math.min(100, (100 * value) / middle / ratioTop)}%`;
      meter.append(bar);
      ratio.append(meter, document.createTextNode(`${(value / middle).toFixed(2)} ×`));
    }
    cell(row).append(sparkline(windows.map((window) => window[1][rank]), top, slow.has(rank)));
    return row;
  });
  document.querySelector("#busy tbody").replaceChildren(...rows);
}
