// SPDX-License-Identifier: Apache-2.0

// The live page: applies the messages of the server (cli/ui/page_feed.h) and draws at most once per frame.
// All text of a run goes through textContent, so markup in a log or a name stays text.
import {Chart, Steps, short} from "./charts.js";
import {drawBusy} from "./busy.js";
import {Gang, SHAPES, clock, duration, svg} from "./gang.js";
import {JobList, drawWorkers} from "./jobs.js";

// NAMESPACE/NAME of a job on a cluster; null: the run of a folder, or the list of jobs.
const JOB = new URLSearchParams(location.search).get("job");
const address = (path, parameters = {}) => {
  const query = new URLSearchParams(JOB ? {...parameters, job: JOB} : parameters).toString();
  return query ? `${path}?${query}` : path;
};

const $ = (id) => document.getElementById(id);
const element = (name, text, attributes = {}) => {
  const node = document.createElement(name);
  if (text != null) node.textContent = text;
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  return node;
};

// A live region that gets the same text again could be read out again.
const setText = (id, text) => { if ($(id).textContent !== text) $(id).textContent = text; };

const state = {run: null, steps: new Steps(), detail: null, gang: null, gangAt: 0, events: [], workers: []};
// What a live run changes all the time is drawn in calm intervals: a browser on the machine of the run competes with the workers. They
// grow with the run, whose curves then change less from one to the next, and are so long that drawing takes at most 1 % of the time of
// this thread. What happens to the gang is drawn at once, and what is not on screen is drawn when it comes into view.
const stale = new Set(), CALM_MS = 2000, CALMEST_MS = 5000;
const calmMs = () => Math.min(CALMEST_MS, Math.max(CALM_MS, 1000 * (state.gang ? gangView.nowOfRun() : 0) / 50));
let calmAt = 0, drawAt = Infinity, drawTimer = 0;
function changed(what) {
  stale.add(what);
  const now = performance.now(), calm = state.run?.live && ["run", "steps", "busy", "clock"].includes(what);
  const at = calm ? Math.max(now, calmAt) : now;
  if (at >= drawAt) return;
  clearTimeout(drawTimer);
  drawAt = at;
  drawTimer = setTimeout(() => requestAnimationFrame(draw), at - now);
}
function draw() {
  const began = performance.now();
  drawAt = Infinity;
  calmAt = began + calmMs();
  // The run shows numbers of the gang, and the curves show the validation of the run.
  if (stale.has("gang") && state.run) stale.add("run");
  if (stale.has("run")) stale.delete("steps"), stale.add("steps");
  const parts = [...stale];
  stale.clear();
  for (const part of parts) views[part]();
  // The message arrives after the layout and the paint of this frame.
  const after = new MessageChannel();
  after.port1.onmessage = () => (calmAt = began + Math.max(calmMs(), 100 * (performance.now() - began)));
  after.port2.postMessage(null);
}

// Calls `appears` when the element comes into view. Returns a function that returns whether it is in view.
function watchView(node, appears) {
  let inView = true;
  new IntersectionObserver(([entry]) => {
    const before = inView;
    inView = entry.isIntersecting;
    if (inView && !before) appears();
  }, {rootMargin: "100px"}).observe(node);
  return () => inView && !document.hidden;
}
document.addEventListener("visibilitychange", () => { if (!document.hidden && state.run) changed("steps"), changed("busy"), changed("clock"); });

// ---- the list of jobs ----

const list = new JobList($("jobs-list"), $("jobs-count"), $("jobs-filter"));
function drawJobs() {
  const where = list.head.scope ? `Jobs in ${list.head.scope}` : "Jobs";
  $("jobs").hidden = false;
  $("name").textContent = where;
  document.title = where + " · Ringmaster";
  $("phase").hidden = true;
  drawProblem(list.head.problem);
  list.draw();
}

function drawProblem(problem) {
  setText("problem", problem || "");
  $("problem").hidden = !problem;
}

// ---- the run ----

const KINDS = {Succeeded: "good", Failed: "bad", Interrupted: "warn", Unfinished: "warn", Suspended: "warn", Running: "running", Pending: "warn", Restarting: "warn", Deleted: "warn", Unknown: "warn"};
function drawPhase(phase) {
  setText("phase", phase);
  $("phase").className = "pill " + (KINDS[phase] || "");
}

function drawRun() {
  const run = state.run;
  $("run").hidden = false;
  $("name").textContent = run.name;
  document.title = `${run.phase} · ${run.name} · Ringmaster`;
  drawPhase(run.phase);
  const bad = run.phase === "Failed" || run.phase === "Unfinished", cluster = run.kind === "job";
  $("back").hidden = !cluster;
  $("curve-note").hidden = run.curves !== "status";
  drawProblem(run.problem);
  setText("message", run.message || "");
  $("message").hidden = !run.message;
  $("message").classList.toggle("plain", !bad);
  const summary = run.summary || {}, step = run.step || 0, total = run.totalSteps || summary.totalSteps || 0;
  const percent = total ? Math.min(100, (100 * step) / total) : 0;
  $("bar").style.width = percent + "%";
  $("bar").setAttribute("aria-valuenow", percent.toFixed(0));
  $("steps").textContent = `step ${step.toLocaleString("en")}` + (total ? ` of ${total.toLocaleString("en")}` : "") + (run.eta ? `, ${run.eta} left` : "");
  const validation = summary.validation?.loss ?? run.validation?.loss?.at(-1);
  const goodput = summary.goodput ?? run.goodput;
  const tiles = [
    ["Loss", short(run.loss)],
    ...(validation == null ? [] : [["Validation", short(validation)]]),
    ["Samples / s", short(run.live ? run.samplesPerSecond : summary.samplesPerSecond ?? run.samplesPerSecond)],
    ["Goodput", step && goodput != null ? (goodput * 100).toFixed(1) : "–", step && goodput != null ? "%" : ""],
    ["Workers", run.workers ?? "–"],
  ];
  if (run.restarts != null) tiles.push(["Restarts", run.restarts]);
  if (run.checkpoint != null) tiles.push(["Checkpoint", run.checkpoint >= 0 ? run.checkpoint.toLocaleString("en") : "–"]);
  if (run.fabric) tiles.push(["Fabric", run.fabric]);
  const gang = state.gang;
  if (gang) {
    tiles.push(["Generations", gang.generations.at(-1)?.[1] ?? 0]);
    if (gang.medianRecovery != null) {
      const [value, unit] = duration(gang.medianRecovery).split(" ");
      tiles.push(["Median recovery", value, unit]);
    }
  }
  drawTiles(tiles);
  const failure = run.failure;
  $("failure").hidden = !failure;
  if (failure) setText("failure", `Last failure, ${timeOf(failure.time)}: ${failure.message}`);
  drawLogChoice();
}

// Changes only the text that is new: new nodes cost a layout of the whole page.
function drawTiles(tiles) {
  const labels = tiles.map(([label]) => label).join();
  if ($("tiles").dataset.labels !== labels) {
    $("tiles").dataset.labels = labels;
    $("tiles").replaceChildren(...tiles.map(([label]) => {
      const tile = element("div"), number = element("dd");
      number.append(document.createTextNode(""), element("small"));
      tile.append(element("dt", label), number);
      return tile;
    }));
  }
  tiles.forEach(([, value, unit], i) => {
    const [text, small] = $("tiles").children[i].lastChild.childNodes;
    if (text.data !== String(value)) text.data = value;
    if (small.textContent !== (unit || "")) small.textContent = unit || "";
  });
}

// ---- curves ----

const charts = {};
function makeCharts() {
  const zoom = async (from, to) => {
    const all = state.steps.step;
    if (from == null || (from <= all[0] && to >= all[all.length - 1])) state.detail = null;
    else {
      const answer = await fetch(address("/api/steps", {from, to}));
      if (!answer.ok) return;
      state.detail = new Steps();
      state.detail.apply({...(await answer.json()), from: 0});
    }
    drawSteps();
  };
  charts.loss = new Chart($("loss"), {series: [{label: "loss", color: "--accent"}, {of: "loss"}, {of: "loss"}, {label: "validation", color: "--bad", points: true}], band: [3, 2]}, zoom);
  charts.rate = new Chart($("rate"), {series: [{label: "samples/s", color: "--accent"}], zero: true}, zoom);
  charts.goodput = new Chart($("goodput"), {series: [{label: "goodput", color: "--good"}], percent: true}, zoom);
  charts.lr = new Chart($("lr"), {series: [{label: "learning rate", color: "--warn"}], zero: true}, zoom);
  for (const name in charts) charts[name].inView = watchView(charts[name].host, drawSteps);
}

// Places the validation losses on the steps of the curve.
function validationColumn(steps) {
  const column = new Array(steps.length).fill(null), validation = state.run?.validation;
  if (validation)
    validation.step.forEach((step, i) => {
      let low = 0, high = steps.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (steps[middle] < step) low = middle + 1;
        else high = middle;
      }
      if (low < steps.length) column[low] = validation.loss[i];
    });
  return column;
}

function drawSteps() {
  if (!charts.loss || $("run").hidden) return;
  const steps = state.detail || state.steps, x = steps.step;
  const columns = {
    loss: () => [x, steps.loss, steps.low, steps.high, validationColumn(x)],
    rate: () => [x, steps.rate],
    goodput: () => [x, steps.goodput],
    lr: () => [x, steps.lr],
  };
  for (const name in columns) if (!charts[name].plot || charts[name].card.hidden || charts[name].inView()) charts[name].set(columns[name]());
}

// ---- the gang ----

let gangView = null, gangInView = () => true;
// The bars of the members grow; a growth of less than a pixel is not drawn.
function drawClock() {
  if (gangInView() && !gangView.isDrawn()) gangView.draw();
}
const LEGEND = [["killed", "killed or failed"], ["stopped", "stopped"], ["hung", "hung"], ["silent", "silent"], ["leaving", "leaves by plan"], ["joined", "joined"], ["operation", "operation failed"], ["device", "device fault"], ["slow", "straggler"]];
function makeGang() {
  // Since the newest message, the clock of this page continues the clock of the run. The clock of a node may be ahead.
  const now = () => Math.max(state.gang.now ?? 0, state.gang.end) + (state.run?.live ? (performance.now() - state.gangAt) / 1000 : 0);
  gangView = new Gang($("gang"), $("gang-focus"));
  gangView.nowOfRun = now;
  $("zoom-in").onclick = () => gangView.zoom(0.5);
  $("zoom-out").onclick = () => gangView.zoom(2);
  $("zoom-all").onclick = () => gangView.all();
  const item = (text, paint) => {
    const line = element("li"), image = svg("svg", {width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true"});
    paint(image);
    line.append(image, document.createTextNode(text));
    return line;
  };
  $("legend").replaceChildren(
    item("member", (image) => svg("rect", {x: -7, y: -4, width: 14, height: 8, rx: 2, fill: "var(--lane)", stroke: "var(--lane-edge)"}, image)),
    item("new generation", (image) => svg("line", {x1: 0, x2: 0, y1: -7, y2: 7, stroke: "var(--soft)"}, image)),
    ...LEGEND.map(([kind, text]) => item(text, (image) => svg("path", {class: "mark " + kind, d: SHAPES[kind]}, image))),
    item("checkpoint", (image) => svg("path", {d: "M0-4l-4 7h8z", fill: "var(--good)"}, image)),
    item("recovery: training paused", (image) => svg("rect", {x: -6, y: -3, width: 12, height: 5, fill: "var(--accent)"}, image)));
  gangInView = watchView($("gang"), () => gangView.draw());
  setInterval(() => { if (state.run?.live && state.gang) changed("clock"); }, CALM_MS);
}

function drawGang() {
  const gang = state.gang;
  $("gang-card").hidden = !gang.lanes.length;
  gangView.set(gang, gangView.nowOfRun);
  const count = gang.recoveries.length;
  $("gang-note").textContent = count
    ? `${count} ${count === 1 ? "recovery" : "recoveries"}, median ${duration(gang.medianRecovery)}` : "no recovery was needed";
  $("gang").setAttribute("aria-label", `The gang over time: ${gang.lanes.length} workers, ${gang.generations.length} generations, ${count} recoveries`);
  const rows = gangView.marks.slice(-300).reverse().map((mark) => {
    const row = element("tr");
    row.append(element("td", clock(mark.at, 2)), element("td", mark.worker || "all"), element("td", mark.text));
    return row;
  });
  $("gang-list").replaceChildren(...rows);
  drawLogWorkers();
}

function drawWorkerTable() {
  $("workers-card").hidden = !state.workers.length;
  drawWorkers($("workers-list"), state.workers);
  drawLogWorkers();
}

function drawLogWorkers() {
  const select = $("log-worker");
  const names = [...new Set([...state.workers.map((worker) => worker.pod), ...(state.gang?.lanes ?? []).map((lane) => lane.worker)])];
  if (names.join() !== [...select.options].map((option) => option.value).join()) {
    const chosen = select.value;
    select.replaceChildren(...names.map((name) => element("option", name, {value: name})));
    if (names.includes(chosen)) select.value = chosen;
    else if (names.includes(state.run?.failure?.worker)) select.value = state.run.failure.worker;
    drawLogChoice();
    loadLog();
  }
}

// ---- events and log ----

function timeOf(text) {
  const date = new Date(text);
  if (isNaN(date)) return text || "";
  const two = (number, width = 2) => String(number).padStart(width, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${two(date.getMilliseconds(), 3)}`;
}

let shownEvents = 0;
function drawEvents() {
  const list = $("events");
  if (state.eventsReset) list.replaceChildren(), (shownEvents = 0), (state.eventsReset = false);
  const lines = state.events.slice(shownEvents).map((event) => {
    const line = element("li", null, {class: event.warning ? "warning" : "normal"}), text = element("span");
    line.append(element("time", timeOf(event.time), {datetime: event.time}), text);
    text.append(element("b", event.reason), document.createTextNode(" " + event.message));
    return line;
  });
  shownEvents = state.events.length;
  list.prepend(...lines.reverse());  // the newest first
  while (list.children.length > 2000) list.lastChild.remove();
}

// The log of the worker that failed last ends at its failure, unless a user wants the newest lines.
let logTimer = 0, newestLines = false;
const failedHere = () => !!state.run?.failure && state.run.failure.worker === $("log-worker").value;
const logUntil = () => (failedHere() && !newestLines && state.run.failure.time) || "";
function drawLogChoice() {
  $("log-newest").hidden = !failedHere();
  setText("log-note", logUntil() ? `until the failure at ${timeOf(logUntil())}` : "the newest lines");
}

async function loadLog() {
  const worker = $("log-worker").value, until = logUntil(), log = $("log");
  if (!worker) return;
  const answer = await fetch(address("/api/log", until ? {worker, until} : {worker})).catch(() => null);
  if (worker !== $("log-worker").value || until !== logUntil() || !answer) return;
  const text = answer.ok ? await answer.text() : "No log: " + (await answer.text());
  if (log.textContent === text) return;
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40 || !log.textContent;
  log.textContent = text;
  if (atEnd) log.scrollTop = log.scrollHeight;
}

// The card is hidden until there are busy times.
const busyShown = watchView($("busy-card"), () => drawBusy(state.busy));
const busyInView = () => $("busy-card").hidden || busyShown();
const views = {run: drawRun, steps: drawSteps, gang: drawGang, events: drawEvents, workers: drawWorkerTable, jobs: drawJobs, clock: drawClock, busy: () => { if (busyInView()) drawBusy(state.busy); }};

// ---- messages ----

// A browser opens about six connections to one server, for all its tabs, and each stream holds one. So a hidden page has none.
let stream = null;

function connect() {
  const source = new EventSource(address("/api/stream"));
  stream = source;
  const on = (name, apply) => source.addEventListener(name, (message) => {
    apply(JSON.parse(message.data));
    changed(name);
  });
  source.onopen = () => ($("link").textContent = "");
  source.onerror = () => {
    const live = !state.run || state.run.live;
    $("link").textContent = live ? "disconnected; trying again" : "";
    if (!live) disconnect();
  };
  on("run", (run) => {
    const failure = state.run?.failure?.time;
    state.run = run;
    if (run.failure && run.failure.time !== failure) {
      if ([...$("log-worker").options].some((option) => option.value === run.failure.worker)) $("log-worker").value = run.failure.worker;
      drawLogChoice();
      clearTimeout(logTimer);
      logTimer = setTimeout(loadLog, 300);
    }
  });
  on("busy", (busy) => {
    if (!busy.reset) busy.windows = [...(state.busy?.windows ?? []), ...busy.windows].slice(-120);
    state.busy = busy;
  });
  on("jobs", (jobs) => list.apply(jobs));
  on("workers", (workers) => (state.workers = workers.items));
  on("steps", (steps) => state.steps.apply(steps));
  on("gang", (gang) => { state.gang = gang; state.gangAt = performance.now(); });
  on("events", (events) => {
    if (events.reset) (state.events = []), (state.eventsReset = true);
    state.events.push(...events.items);
  });
}

function disconnect() {
  stream?.close();
  stream = null;
}

// The first messages of a stream have everything that happened while the page was hidden.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) disconnect();
  else if (!stream && (!state.run || state.run.live)) connect();
});

const toggle = (id, apply) => $(id).addEventListener("click", () => {
  const on = $(id).getAttribute("aria-pressed") !== "true";
  $(id).setAttribute("aria-pressed", on);
  apply(on);
});
toggle("warnings", (on) => $("events").classList.toggle("only", on));
toggle("log-loss", (on) => { charts.loss.spec.log = on; charts.loss.rebuild(); });
const otherLog = () => { $("log").textContent = ""; drawLogChoice(); loadLog(); };
$("log-worker").addEventListener("change", otherLog);
toggle("log-newest", (on) => { newestLines = on; otherLog(); });
const logInView = watchView($("log"), () => loadLog());
let logAt = 0;
setInterval(() => {
  // A log without a line is asked for again wherever the page is: its first lines may come later than the worker.
  const calm = $("log").textContent && (logUntil() || !logInView());
  if (!state.run?.live || calm || performance.now() < logAt) return;
  logAt = performance.now() + calmMs();
  loadLog();
}, CALM_MS);
makeGang();
makeCharts();
if (!document.hidden) connect();
