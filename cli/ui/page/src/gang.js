// SPDX-License-Identifier: Apache-2.0

// The gang over time: one lane per worker, drawn as SVG. A bar is the time in which the worker was a member;
// a thin line through all lanes is a new generation; the strip on top has the milliseconds of each recovery.

const NS = "http://www.w3.org/2000/svg";
const LANE = 26, TOP = 40, BOTTOM = 26;

export function svg(name, attributes, parent) {
  const node = document.createElementNS(NS, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (parent) parent.append(node);
  return node;
}

// Paths around (0, 0), by the name of the mark.
export const SHAPES = {
  killed: "M-4-4L4 4M4-4L-4 4",
  failed: "M-4-4L4 4M4-4L-4 4",
  stopped: "M-4-4H4V4H-4Z",
  hung: "M-4-5H4L-4 5H4Z",
  silent: "M-2.5-4V4M2.5-4V4",
  leaving: "M4-4L-2 0L4 4M-5-4V4",
  joined: "M-2.5-4L4 0L-2.5 4Z",
  operation: "M0-5L5 0L0 5L-5 0Z",
  device: "M0-5L5 4H-5Z",
  slow: "M-4-3L0 4L4-3",
};

export function duration(seconds) {
  if (seconds < 0.001) return (seconds * 1e6).toFixed(0) + " µs";
  if (seconds < 0.0995) return (seconds * 1e3).toFixed(seconds < 0.00995 ? 1 : 0) + " ms";
  if (seconds < 1) return (seconds * 1e3).toFixed(0) + " ms";
  if (seconds < 60) return seconds.toFixed(1) + " s";
  return clock(seconds);
}

export function clock(seconds, digits = 0) {
  const whole = Math.floor(seconds), h = Math.floor(whole / 3600), m = Math.floor(whole / 60) % 60;
  const s = (seconds - h * 3600 - m * 60).toFixed(digits).padStart(digits ? 3 + digits : 2, "0");
  return h ? `${h}:${String(m).padStart(2, "0")}:${s}` : `${m}:${s}`;
}

function tickStep(range, count) {
  const steps = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];
  return steps.find((step) => range / step <= count) || 86400 * Math.ceil(range / 86400 / count);
}

// Spans of neighbouring generations are one bar.
function bars(spans) {
  const merged = [];
  for (const [begin, end, generation] of spans) {
    const last = merged[merged.length - 1];
    if (last && begin - last.end < 1e-5) (last.end = end), (last.last = generation);
    else merged.push({begin, end, first: generation, last: generation});
  }
  return merged;
}

export class Gang {
  constructor(host, line, onZoom) {
    this.host = host;
    this.line = line;
    this.data = null;
    this.window = null;  // [begin, end] in seconds; null: everything
    this.picked = -1;
    this.marks = [];
    this.pointers = new Map();  // that are down: their id and where they are
    this.drag = null;  // the grip of these pointers when the newest of them came
    new ResizeObserver(() => this.draw()).observe(host);
    host.addEventListener("keydown", (event) => this.key(event));
    host.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      this.zoom(event.deltaY < 0 || event.deltaX < 0 ? 0.7 : 1 / 0.7, this.timeAt(event));
    }, {passive: false});
    host.addEventListener("pointermove", (event) => (this.pointers.has(event.pointerId) ? this.dragTo(event) : this.hover(event)));
    // A mouse or a finger moves the view, two fingers zoom. The style allows the browser to take a vertical movement of a finger for
    // scrolling; then it cancels the pointer.
    host.addEventListener("pointerdown", (event) => {
      if (!this.data) return;
      if (event.pointerType === "touch") this.hover(event);
      this.pointers.set(event.pointerId, event.clientX);
      this.drag = this.grip();
      host.setPointerCapture(event.pointerId);
    });
    for (const end of ["pointerup", "pointercancel"])
      host.addEventListener(end, (event) => {
        this.pointers.delete(event.pointerId);
        this.drag = this.grip();
      });
  }

  set(data, now) {
    this.data = data;
    this.now = now;
    this.marks = [];
    for (const lane of data.lanes) for (const [at, kind, text] of lane.marks) this.marks.push({at, kind, text, worker: lane.worker});
    for (const [begin, end, generation] of data.recoveries)
      this.marks.push({at: end, kind: "recovery", text: `recovered in ${duration(end - begin)}: generation ${generation} trains`, worker: ""});
    for (const [at, step] of data.checkpoints) this.marks.push({at, kind: "checkpoint", text: `checkpoint of step ${step}`, worker: ""});
    this.marks.sort((a, b) => a.at - b.at);
    this.draw();
  }

  full() { return [this.data.begin, Math.max(this.data.ended ? this.data.end : this.now(), this.data.begin + 1)]; }
  view() { return this.window || this.full(); }

  zoom(factor, at) {
    if (!this.data) return;
    const [begin, end] = this.view(), [first, last] = this.full();
    const center = at ?? (begin + end) / 2;
    const width = Math.max(0.05, (end - begin) * factor);
    if (width >= last - first) this.window = null;
    else {
      const left = Math.min(Math.max(first, center - ((center - begin) / (end - begin)) * width), last - width);
      this.window = [left, left + width];
    }
    this.draw();
  }

  all() { this.window = null; this.draw(); }

  grip() {
    const at = [...this.pointers.values()];
    if (!at.length || !this.data) return null;
    return {view: this.view(), x: (Math.min(...at) + Math.max(...at)) / 2, spread: Math.max(...at) - Math.min(...at)};
  }

  // The time that was under the pointers stays there.
  dragTo(event) {
    this.pointers.set(event.pointerId, event.clientX);
    // One pointer cannot move what is shown as a whole.
    if (!this.drag || (this.pointers.size === 1 && !this.window)) return;
    const [begin, end] = this.drag.view, [first, last] = this.full(), {x, spread} = this.grip();
    const scale = this.drag.spread > 10 ? this.drag.spread / Math.max(10, spread) : 1;
    const width = Math.max(0.05, (end - begin) * scale);
    if (width >= last - first) {
      if (this.window) this.all();
      return;
    }
    const edge = this.host.getBoundingClientRect().left + this.left;
    const held = begin + ((this.drag.x - edge) / this.plot) * (end - begin);
    const left = Math.min(Math.max(first, held - ((x - edge) / this.plot) * width), last - width);
    this.window = [left, left + width];
    this.draw();
  }

  timeAt(event) {
    const [begin, end] = this.view();
    return begin + ((event.clientX - this.host.getBoundingClientRect().left - this.left) / this.plot) * (end - begin);
  }

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || !this.data) return;
    if (event.key === "+" || event.key === "=") this.zoom(0.6, this.marks[this.picked]?.at);
    else if (event.key === "-") this.zoom(1 / 0.6);
    else if (event.key === "0") this.all();
    else if (event.key === "ArrowRight") this.pick(Math.min(this.marks.length - 1, this.picked + 1));
    else if (event.key === "ArrowLeft") this.pick(this.picked < 0 ? this.marks.length - 1 : Math.max(0, this.picked - 1));
    else if (event.key === "Home") this.pick(0);
    else if (event.key === "End") this.pick(this.marks.length - 1);
    else return;
    event.preventDefault();
  }

  pick(index) {
    const mark = this.marks[index];
    if (!mark) return;
    this.picked = index;
    const [begin, end] = this.view();
    if (this.window && (mark.at < begin || mark.at > end)) {
      const width = end - begin, [first, last] = this.full();
      const left = Math.min(Math.max(first, mark.at - width / 2), last - width);
      this.window = [left, left + width];
    }
    this.line.textContent = `${clock(mark.at, 2)}  ${mark.text}`;
    this.draw();
  }

  hover(event) {
    if (!this.data) return;
    const box = this.host.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const lane = Math.floor((y - TOP) / LANE), worker = this.data.lanes[lane]?.worker;
    let best = null, distance = 9;
    for (const mark of this.marks) {
      if (mark.worker && mark.worker !== worker) continue;
      if (mark.kind === "recovery" && y > TOP) continue;
      const away = Math.abs(this.x(mark.at) - x);
      if (away < distance) (best = mark), (distance = away);
    }
    const at = this.timeAt(event);
    if (best) this.line.textContent = `${clock(best.at, 2)}  ${best.text}`;
    else if (worker && x > this.left) {
      const span = this.data.lanes[lane].spans.find(([begin, end]) => begin <= at && at <= this.until(end));
      this.line.textContent = `${clock(Math.max(0, at), 2)}  ${worker}: ${span ? `member of generation ${span[2]}` : "not a member"}`;
    }
  }

  // The bar of a member grows until now.
  until(end) { return !this.data.ended && this.data.end - end < 1e-5 ? Math.max(end, this.now()) : end; }
  x(at) { const [begin, end] = this.view(); return this.left + ((at - begin) / (end - begin)) * this.plot; }

  // Returns whether drawing again would move nothing by a pixel.
  isDrawn() {
    if (!this.data || this.drawnEnd == null) return false;
    const [begin, end] = this.view();
    return this.window ? this.drawnEnd >= end : end - this.drawnEnd < (end - begin) / this.plot;
  }

  draw() {
    const data = this.data, width = this.host.clientWidth;
    if (!data || !width) return;
    const [begin, end] = this.view();
    this.drawnEnd = this.window ? this.now() : end;
    const longest = Math.max(4, ...data.lanes.map((lane) => lane.worker.length));
    this.left = Math.min(longest * 7.2 + 12, width * 0.3);
    this.plot = width - this.left - 10;
    const height = TOP + data.lanes.length * LANE + BOTTOM, floor = TOP + data.lanes.length * LANE;
    const root = svg("svg", {viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true"});
    const clip = svg("clipPath", {id: "plot"}, svg("defs", {}, root));
    svg("rect", {x: this.left - 6, y: 0, width: this.plot + 12, height}, clip);
    const shown = (at) => at >= begin - (end - begin) * 0.01 && at <= end + (end - begin) * 0.01;
    const inside = svg("g", {"clip-path": "url(#plot)"}, root);

    const step = tickStep(end - begin, Math.max(2, this.plot / 90)), digits = step < 0.01 ? 3 : step < 0.1 ? 2 : step < 1 ? 1 : 0;
    for (let at = Math.ceil(begin / step) * step; at <= end; at += step) {
      svg("line", {class: "tick", x1: this.x(at), x2: this.x(at), y1: TOP, y2: floor + 5}, inside);
      svg("text", {x: this.x(at), y: floor + 18, "text-anchor": this.x(at) < this.left + 14 ? "start" : "middle"}, inside).textContent = clock(at, digits);
    }
    data.lanes.forEach((lane, i) => {
      const y = TOP + i * LANE;
      const name = lane.worker.length * 7.2 > this.left - 12 ? "…" + lane.worker.slice(-Math.floor((this.left - 24) / 7.2)) : lane.worker;
      svg("text", {class: "worker", x: 0, y: y + LANE / 2 + 4}, root).textContent = name;
      svg("rect", {class: "absent", x: this.left, y: y + 5, width: this.plot, height: LANE - 10, rx: 3}, inside);
      for (const bar of bars(lane.spans)) {
        const to = this.until(bar.end);
        if (to < begin || bar.begin > end) continue;
        const x1 = Math.max(this.x(bar.begin), this.left - 4), x2 = Math.min(this.x(to), this.left + this.plot + 4);
        svg("rect", {class: "span", x: x1, y: y + 5, width: Math.max(1, x2 - x1), height: LANE - 10, rx: 3}, inside);
      }
    });
    let free = -Infinity;
    for (const [at, number] of data.generations) {
      if (!shown(at)) continue;
      const x = this.x(at);
      svg("line", {class: "gen", x1: x, x2: x, y1: TOP - 4, y2: floor}, inside);
      if (x < free) continue;
      svg("text", {x: x + 2, y: TOP - 8}, inside).textContent = number;
      free = x + 12 + 7 * String(number).length;
    }
    for (const [at, step_] of data.checkpoints) {
      if (!shown(at)) continue;
      const group = svg("g", {class: "checkpoint"}, inside), x = this.x(at);
      svg("line", {x1: x, x2: x, y1: TOP, y2: floor}, group);
      svg("path", {d: `M${x} ${floor}l-4 7h8z`}, group);
      svg("title", {}, group).textContent = `checkpoint of step ${step_}`;
    }
    // A kill and the failure that follows it are one mark.
    const rank = ([, kind]) => (kind === "joined" ? 0 : 1);  // what went wrong is on top
    data.lanes.forEach((lane, i) => {
      const y = TOP + i * LANE + LANE / 2;
      // A longer window for a stop: its worker counts as lost when it was silent for long enough.
      const causes = lane.marks.filter(([, kind]) => kind === "killed" || kind === "stopped");
      const caused = (at, kind) => causes.some(([cause, what]) => at >= cause && at - cause < (what === "killed" ? 1 : 20) && (kind === "failed" || what === "stopped"));
      for (const [at, kind, text] of [...lane.marks].sort((a, b) => rank(a) - rank(b))) {
        if (!shown(at) || ((kind === "failed" || kind === "hung") && caused(at, kind))) continue;
        const mark = svg("g", {transform: `translate(${this.x(at).toFixed(1)} ${y})`, "data-mark": kind}, inside);
        svg("circle", {class: "halo", r: 7}, mark);
        svg("path", {class: "mark " + kind, d: SHAPES[kind] || SHAPES.device}, mark);
        svg("title", {}, mark).textContent = text;
      }
    });
    free = -Infinity;
    for (const [from, to] of data.recoveries) {
      if (!shown(to)) continue;
      const x = this.x(to), text = duration(to - from);
      svg("rect", {class: "recovery", x: this.x(from), y: 17, width: Math.max(2, x - this.x(from)), height: 5, rx: 1}, inside);
      if (x - 16 < free) continue;
      const label = svg("text", {class: "recovery-text", x, y: 12, "text-anchor": "middle"}, inside);
      label.textContent = text;
      free = x + text.length * 3.6 + 8;
    }
    svg("text", {x: 0, y: 12}, root).textContent = "recovery";
    svg("text", {x: 0, y: TOP - 8}, root).textContent = "generation";
    const picked = this.marks[this.picked];
    if (picked && shown(picked.at)) {
      const i = data.lanes.findIndex((lane) => lane.worker === picked.worker);
      if (i < 0) svg("rect", {class: "picked", x: this.x(picked.at) - 5, y: 2, width: 10, height: floor}, inside);
      else svg("circle", {class: "picked", cx: this.x(picked.at), cy: TOP + i * LANE + LANE / 2, r: 10}, inside);
    }
    this.host.replaceChildren(root);
  }
}
