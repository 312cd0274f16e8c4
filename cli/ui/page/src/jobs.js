// SPDX-License-Identifier: Apache-2.0

// The list of jobs of a cluster, and the workers of one job. All text of the cluster goes through textContent.
import {short} from "./charts.js";

const MAX_ROWS = 1000;
const ORDER = {failed: 0, waits: 1, runs: 2, done: 3};
const PILLS = {failed: "bad", waits: "warn", runs: "running", done: "good"};

// A narrow screen shows a row as a block; the roles keep the table for screen readers.
function tableRow() {
  const row = document.createElement("tr");
  row.setAttribute("role", "row");
  return row;
}

function cell(row, label, text) {
  const node = document.createElement("td");
  node.setAttribute("role", "cell");
  node.dataset.label = label;
  node.textContent = text;
  row.append(node);
  return node;
}

export function age(time, now = Date.now()) {
  const seconds = Math.max(0, Math.floor((now - Date.parse(time)) / 1000));
  if (isNaN(seconds)) return "–";
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => seconds >= size);
  if (first < 0) return "0s";
  const [unit, size] = units[first], next = units[first + 1];
  const rest = next ? Math.floor((seconds % size) / next[1]) : 0;
  return Math.floor(seconds / size) + unit + (rest && first < 3 ? rest + next[0] : "");
}

export class JobList {
  constructor(body, count, filter) {
    this.body = body;
    this.count = count;
    this.filter = filter;
    this.jobs = new Map();
    this.rows = new Map();
    this.shown = new Map();  // key -> the job that its row shows
    this.head = {};
    filter.addEventListener("input", () => this.draw());
    setInterval(() => this.drawAges(), 1000);
  }

  apply(message) {
    if (message.reset) this.jobs.clear();
    for (const job of message.items) this.jobs.set(job.key, job);
    for (const key of message.removed) this.jobs.delete(key);
    this.head = message;
  }

  draw() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matching = [...this.jobs.values()].filter((job) => {
      const text = `${job.key} ${job.phase} ${job.why}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    // What needs attention comes first, then the newest.
    matching.sort((a, b) => ORDER[a.state] - ORDER[b.state] || b.created.localeCompare(a.created) || a.key.localeCompare(b.key));
    const visible = matching.slice(0, MAX_ROWS), focused = document.activeElement;
    const rows = visible.map((job) => this.row(job));
    const keep = new Set(visible.map((job) => job.key));
    for (const [key, row] of this.rows) if (!keep.has(key)) row.remove(), this.rows.delete(key), this.shown.delete(key);
    rows.forEach((row, i) => { if (this.body.children[i] !== row) this.body.insertBefore(row, this.body.children[i] || null); });
    if (focused && focused !== document.activeElement && focused.isConnected) focused.focus();
    const states = {};
    for (const job of this.jobs.values()) states[job.state] = (states[job.state] || 0) + 1;
    const parts = [["waits", "waiting"], ["runs", "running"], ["failed", "failed"], ["done", "succeeded"]].filter(([state]) => states[state]).map(([state, word]) => `${states[state]} ${word}`);
    const total = this.jobs.size;
    let text = `${total} ${total === 1 ? "job" : "jobs"}` + (parts.length ? `: ${parts.join(", ")}` : "");
    if (!this.head.synced) text = "reading the list of jobs";
    else if (words.length) text += `; ${matching.length} match`;
    if (matching.length > MAX_ROWS) text += `; the first ${MAX_ROWS} are shown`;
    if (this.count.textContent !== text) this.count.textContent = text;
  }

  row(job) {
    let row = this.rows.get(job.key);
    if (!row) this.rows.set(job.key, (row = tableRow()));
    if (this.shown.get(job.key) === job) return row;
    this.shown.set(job.key, job);
    let link = row.querySelector("a");
    const name = document.createElement("th");
    name.scope = "row";
    name.setAttribute("role", "rowheader");
    // The link stays the same node, so that it keeps the focus.
    if (!link) {
      link = document.createElement("a");
      link.href = "/?job=" + encodeURIComponent(job.key);
      link.textContent = this.head.scope ? job.name : job.key;
      name.append(link);
      row.append(name);
    }
    while (row.children.length > 1) row.lastChild.remove();
    const pill = document.createElement("span");
    pill.className = "pill " + (PILLS[job.state] || "");
    pill.textContent = job.phase;
    cell(row, "Phase", "").append(pill);
    const percent = job.totalSteps ? Math.min(100, (100 * job.step) / job.totalSteps) : 0;
    const steps = job.totalSteps ? `${job.step.toLocaleString("en")} of ${job.totalSteps.toLocaleString("en")}` : job.step ? job.step.toLocaleString("en") : "–";
    const progress = cell(row, "Steps", steps);
    if (job.totalSteps) {
      const bar = document.createElement("div"), done = document.createElement("div");
      bar.className = "bar";
      bar.setAttribute("aria-hidden", "true");
      done.style.width = percent + "%";
      bar.append(done);
      progress.append(bar);
    }
    cell(row, "Loss", short(job.loss));
    cell(row, "Workers", job.workers);
    cell(row, "Age", age(job.created)).dataset.created = job.created;
    cell(row, "Why", job.why).className = "why";
    return row;
  }

  drawAges() {
    if (document.hidden) return;
    for (const node of this.body.querySelectorAll("[data-created]")) {
      const text = age(node.dataset.created);
      if (node.textContent !== text) node.textContent = text;
    }
  }
}

export function drawWorkers(body, items) {
  body.replaceChildren(...items.map((worker) => {
    const row = tableRow();
    cell(row, "Rank", worker.rank >= 0 ? worker.rank : "–");
    cell(row, "Pod", worker.pod);
    cell(row, "Node", worker.node || "–");
    cell(row, "State", worker.state);
    return row;
  }));
}
