"use strict";
// The console keeps one picture of the state, changed by what the server streams, and draws each panel from it at most once a frame.
// Nothing is drawn by putting text together as HTML: names come from outside.

const $ = (id) => document.getElementById(id);

function el(tag, props, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props || {})) {
    if (k === "class") e.className = v;
    else if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else e.setAttribute(k, v);
  }
  for (const c of children.flat()) if (c !== null && c !== undefined && c !== false) e.append(c);
  return e;
}

function svg(tag, props, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [k, v] of Object.entries(props || {})) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

const label = (x, y, anchor, text) => svg("text", { x, y, "text-anchor": anchor }, text);

const S = { lost: 0, nodes: null, workers: null, alarms: null, health: null, load: null, sources: [], peers: [], user: null, lookups: [], found: [], moves: [], events: [], next: 0, actions: false, charts: false, skew: 0, chamber: null, allGates: false };
const now = () => Date.now() + S.skew;

function age(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return s + "s";
  if (s < 3600) return Math.floor(s / 60) + "m" + String(s % 60).padStart(2, "0") + "s";
  if (s < 86400) return Math.floor(s / 3600) + "h" + String(Math.floor(s / 60) % 60).padStart(2, "0") + "m";
  return Math.floor(s / 86400) + "d" + String(Math.floor(s / 3600) % 24).padStart(2, "0") + "h";
}
const minutes = (ms) => (ms > 120000 ? Math.ceil(ms / 60000) + "m" : age(ms));
const since = (t) => age(now() - Date.parse(t));
const clock = (t) => new Date(t).toLocaleTimeString([], { hour12: false }) + "." + String(new Date(t).getMilliseconds()).padStart(3, "0");
// when is a time for people: with its date unless that is today's.
const when = (t) => (new Date(t).toDateString() === new Date(now()).toDateString() ? clock(t) : stamp(t));
const money = (v) => "$" + v.toFixed(v >= 1 || v < 0.00005 ? 2 : v >= 0.01 ? 3 : 4);
// pause is a time in milliseconds. What is best about a handoff is often below one: it keeps its digits.
const pause = (ms) => (ms < 0 ? "unknown" : ms < 0.01 ? "< 0.01 ms" : ms < 1 ? ms.toFixed(2) + " ms" : ms < 10 ? ms.toFixed(1) + " ms" : ms < 1000 ? ms.toFixed(0) + " ms" : (ms / 1000).toFixed(1) + " s");
const plural = (n, one, many) => n + " " + (n === 1 ? one : many || one + "s");

// ---- drawing, once a frame, only what changed

const dirty = new Set();
function draw(...panels) {
  if (!dirty.size) requestAnimationFrame(flush);
  panels.forEach((p) => dirty.add(p));
}
const panels = {
  head: drawHead, nodes: drawNodes, action: drawAction, decision: drawDecision, workers: drawWorkers, slots: drawSlots,
  moves: drawMoves, found: drawFound, owner: drawOwner, charts: drawCharts, events: drawEvents, load: drawLoad, sources: drawSources, view: () => drawView(),
};
// A redrawn element is another element: a press of a button must not lose it before the release, nor the keyboard its place.
let pressed = false;
addEventListener("pointerdown", () => { pressed = true; }, true);
const released = () => setTimeout(() => { pressed = false; if (dirty.size) requestAnimationFrame(flush); });
addEventListener("pointermove", (ev) => { if (pressed && !ev.buttons) released(); }, true); // it was released elsewhere
for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, released, true);
// fill puts elements into a parent: those that say the same as before stay where they are, the others are made.
const filled = new WeakMap();
function fill(parent, items) {
  const old = filled.get(parent) || new Map(), made = new Map(), list = [];
  for (const [what, make] of items) { const e = old.get(what) || make(); made.set(what, e); list.push(e); }
  filled.set(parent, made);
  const stay = new Set(list);
  for (const e of [...parent.childNodes]) if (!stay.has(e)) e.remove();
  let at = parent.firstChild;
  for (const e of list) if (e === at) at = at.nextSibling; else parent.insertBefore(e, at);
}
const keyed = (key) => document.querySelector(`[data-key="${CSS.escape(key)}"]`);
function refocus(key) {
  const again = key && keyed(key);
  if (again && (!document.activeElement || document.activeElement === document.body)) again.focus({ preventScroll: true });
}
function flush() {
  if (pressed) return;
  const todo = [...dirty], key = document.activeElement && document.activeElement.dataset.key;
  dirty.clear();
  for (const p of todo) try { panels[p](); } catch (err) { // the other panels must not stand still with it
    showError("page-error", `The console can't show ${p}: ${err.message}`);
    reportError(err);
  }
  refocus(key);
  document.body.dataset.drawn = String(Number(document.body.dataset.drawn || 0) + 1);
}
// ages stand still while nothing comes: they would be of what may no longer be
setInterval(() => S.lost ? drawLost() : draw("head", "load", "sources", "nodes", "action", "moves", "view", ...(S.workers && (S.workers.workers || []).some((x) => x.drained || x.failed) ? ["workers"] : [])), 1000); // ages

// empty says in a panel that there is nothing to show, and why.
const empty = (text) => el("p", { class: "meta empty" }, text);

// ---- the header: how urgently a person is needed, and the numbers that are looked for first

const SEVERITY = { ok: "OK", warning: "Warning", critical: "Critical", starting: "Starting", unknown: "Unknown" };
const ICON = { ok: "#1f6feb", starting: "#1f6feb", warning: "#b36b00", critical: "#c0262d", unknown: "#6b7280" };
const SIGN = { warning: "⚠ ", critical: "✖ ", unknown: "? " };
const FINDINGS = 4; // that the header shows; the rest is counted
const starting = (n, w) => (n && n.at.startsWith("0001")) || (w && !w.version); // not seen yet, no assignment map yet

function drawHead() {
  const n = S.nodes, w = S.workers, h = S.health || { severity: "ok", findings: [] }, parts = [];
  if (n && n.nodes) {
    const ready = n.nodes.filter((x) => x.state === "ready").length;
    parts.push(n.nodes.length ? `${ready} of ${plural(n.nodes.length, "node")} ready` : "no nodes");
    const pending = (n.pending || []).reduce((a, p) => a + p.count, 0);
    if (pending) parts.push(plural(pending, "pod") + " pending");
    if ((n.interruptions || []).length) parts.push(plural(n.interruptions.length, "interruption"));
    if (n.paused) parts.push("scaling paused for " + since(n.paused.since));
  }
  if (w && w.queued) parts.push(plural(w.queued, "message") + " queued for retry");
  if (w && w.workers) {
    // A worker whose slots move serves them. It is stable again when they have moved.
    const serving = h.serving || 0, all = h.expected || 0, word = serving > (h.stable || 0) ? "serving" : "stable";
    parts.push(!all && !serving ? "no workers" : serving > all ? `${plural(serving, "worker")} ${word}, ${all} expected` : `${serving} of ${plural(all, "worker")} ${word}`);
    const moving = (w.next || []).filter((x) => x >= 0).length;
    if (moving) parts.push(plural(moving, "slot") + " moving");
    const drained = w.workers.filter((x) => x.drained && !x.failed), empty = drained.filter((x) => !x.slots).length;
    if (drained.length > empty) parts.push(`${drained.length - empty} draining`);
    if (empty) parts.push(`${empty} of them drained`); // counted above: a person or the node plane wants it
    const waited = w.oldest ? now() - Date.parse(w.oldest) : 0;
    if (S.load) { /* its line says it */ }
    else if (w.waiting) parts.push(plural(w.waiting, "message") + " waiting" + (waited > 2000 ? `, the oldest for ${age(waited)}` : ""));
    else if (w.version) parts.push("no message waits");
  }
  if (S.alarms && S.alarms.open && !S.load) parts.push(plural(S.alarms.open, "open alarm"));
  $("health").textContent = parts.join(" · ");
  drawSeverity(S.lost ? "unknown" : h.severity === "ok" && starting(n, w) ? "starting" : h.severity, h.findings || []);
}

// drawLoad shows the numbers that are looked for first: how much waits, since when, what comes and goes, and alarms.
function drawLoad() {
  const l = S.load, a = S.alarms, unknown = !l || l.error;
  $("load").hidden = !l;
  if (!l) return;
  S.latency = S.latency || typeof l.p99Ms === "number"; // not every console measures it
  const rate = (v) => (typeof v === "number" ? paras(v) + "/s" : "–"), waits = !l.waiting || !l.oldest ? 0 : l.since ? now() - Date.parse(l.oldest) : waited(l) * 1000; // else it is processed long since
  const cell = (name, what, value, style, href, title) => [[name, value, style].join(), () => el("div", { "data-number": name, title }, el("dt", {}, what), el("dd", { class: style }, el("a", { href }, value)))];
  fill($("load"), [
    cell("waiting", "waiting", unknown ? "–" : paras(l.waiting), l.state === "not enough" ? "bad" : l.state === "behind" ? "warn" : "", "#/load", "Messages that are stored and not processed"),
    cell("oldest", "oldest", unknown || !l.waiting ? "–" : waits < 1000 ? "< 1s" : age(waits), waits > 300000 ? "bad" : waits > 60000 ? "warn" : "", "#/load", "For how long the oldest message waits"),
    cell("in", "arriving", unknown ? "–" : rate(l.in), "", "#/load", "Messages stored per second"),
    cell("out", "processed", unknown ? "–" : rate(l.out), "", "#/load", "Messages processed per second"),
    ...(S.latency ? [cell("latency", "p99", unknown || typeof l.p99Ms !== "number" ? "–" : pause(l.p99Ms), "", "#/load", "99th percentile of the time to process one message")] : []),
    ...(a ? [cell("alarms", "alarms", a.error ? "–" : String(a.open), a.open ? "bad" : "", "#/alarms", "Open alarms of all chambers")] : []),
  ]);
}

const PAGE_OF = { chamber: "#/alarms", "dead-letters": "#/dead-letters", decision: "#/decision" }; // of a finding's panel, where a page shows more
function drawSeverity(severity, findings) {
  document.documentElement.dataset.severity = severity;
  if ($("severity").textContent !== SEVERITY[severity]) $("severity").textContent = SEVERITY[severity];
  const shown = findings.slice(0, FINDINGS), items = shown.map((f) => [JSON.stringify(f), () => el("li", { class: f.severity }, el("a", { href: PAGE_OF[f.panel] || "#" + f.panel }, f.text))]);
  if (findings.length > shown.length) items.push([`more ${findings.length}`, () => el("li", {}, `and ${findings.length - shown.length} more`)]);
  fill($("findings"), items);
  $("findings").hidden = !items.length;
  const first = severity === "unknown" ? "Connection lost" : findings.length ? findings[0].text : "";
  const title = (SIGN[severity] || "") + (first ? first + " · " : "") + (VIEW.title ? VIEW.title + " · " : "") + (S.title || "Muster");
  if (document.title !== title) document.title = title;
  const icon = $("icon").href.replace(/fill='%23[0-9a-f]{6}'/, `fill='%23${(ICON[severity] || ICON.ok).slice(1)}'`);
  if ($("icon").href !== icon) $("icon").href = icon;
}

const NODE_STYLE = { ready: "s-good", launching: "s-busy", "not ready": "s-warn", cordoned: "s-warn", draining: "s-warn", interrupted: "s-bad", terminating: "s-bad", lost: "s-bad" };

function drawNodes() {
  const n = S.nodes;
  $("nodes").hidden = !n;
  if (!n) return;
  showError("nodes-error", n.error);
  for (const id of ["nodes", "action", "decision"]) $(id).classList.toggle("old", !!n.error);
  const meta = [n.max ? `${n.nodes.length} (min ${n.min}, max ${n.max})` : String(n.nodes.length)];
  if (n.cpu !== undefined && n.cpu !== null) meta.push(`CPU ${(n.cpu * 100).toFixed(0)} %`);
  if (n.costPerHour !== undefined) meta.push(money(n.costPerHour) + " per hour");
  if (n.costSoFar !== undefined) meta.push(money(n.costSoFar) + " so far");
  if (n.nodes.length && now() - Date.parse(n.at) > 5000) meta.push(`seen ${since(n.at)} ago`);
  $("nodes-meta").textContent = meta.join(" · ");
  const zones = new Map();
  for (const x of n.nodes) zones.set(x.zone, [...(zones.get(x.zone) || []), x]);
  const head = (z, list) => el("b", {}, `${z || "no zone"} · ${list.length}`);
  $("zones").replaceChildren(...[...zones].sort((a, b) => (a[0] < b[0] ? -1 : 1)).map(([z, list]) =>
    el("div", { class: "zone" }, head(z, list), ...list.map(drawNode))));
  if (!n.nodes.length) $("zones").replaceChildren(empty(n.error ? "No node is known." : "No nodes: the node plane has not seen any yet."));
  const pending = n.pending || [];
  $("pending").replaceChildren(...(pending.length ? [el("h3", {}, "Pending pods"), el("table", {}, el("tbody", {}, ...pending.map((p) => el("tr", {},
    el("td", {}, p.name), el("td", { class: "num" }, "× " + p.count),
    el("td", {}, [p.milliCpu ? p.milliCpu + "m CPU" : "", p.memory ? Math.round(p.memory / 1048576) + " MiB" : ""].filter(Boolean).join(", ")),
    el("td", { class: "warn" }, p.neverFit ? "fits no node: " + p.neverFit : "")))))] : []));
}

function drawNode(x) {
  const style = NODE_STYLE[x.state] || "";
  const facts = [x.type, x.market, x.launched ? since(x.launched) : ""].filter(Boolean);
  facts.push(x.room ? `${x.pods}/${x.room} pods` : plural(x.pods, "pod"));
  if ((x.workers || []).length) facts.push(plural(x.workers.length, "worker"));
  if (x.costHour) facts.push(money(x.costHour) + "/h");
  return el("div", { class: "node " + style, "data-instance": x.instance, "data-state": x.state },
    el("div", { class: "top" }, el("a", { class: "id", title: x.instance, href: at("nodes", x.instance) }, x.name || x.instance), el("span", { class: "badge " + style }, x.state)),
    el("div", { class: "facts" }, ...facts.map((f) => el("span", {}, f)),
      x.deadline ? el("span", { class: "bad" }, Date.parse(x.deadline) > now() ? "reclaimed in " + age(Date.parse(x.deadline) - now()) : "deadline passed") : null,
      x.protected ? el("span", {}, "protected") : null,
      x.note ? el("span", { class: "warn" }, x.note) : null),
    x.room ? bar(x.pods / x.room) : null);
}

function bar(share) {
  const i = el("i");
  i.style.width = Math.min(100, Math.max(0, share * 100)) + "%";
  return el("div", { class: "bar" }, i);
}

function showError(id, text) {
  $(id).hidden = !text;
  $(id).textContent = text || "";
}

function phaseList(phases) {
  return el("ol", { class: "phases" }, ...(phases || []).map((p) => el("li", { class: p.state, "data-phase": p.name }, p.name, p.detail ? el("small", {}, p.detail) : null)));
}

const INTERRUPTION = { warning: "Spot warning", rebalance: "Rebalance recommendation", health: "Scheduled change" };
function drawAction() {
  const n = S.nodes;
  $("action").hidden = !n;
  if (!n) return;
  const all = n.actions || (n.action ? [n.action] : []), a = all[0], open = n.interruptions || [], body = [];
  $("action-meta").textContent = all.length > 1 ? `${all.length} at the same time, the oldest for ${since(a.started)}` : a ? `${a.kind} ${a.id}, for ${since(a.started)}` + (a.until ? `, times out in ${age(Date.parse(a.until) - now())}` : "") : "";
  const add = (what, make) => body.push([JSON.stringify(what), make]);
  if (n.paused) add([n.paused, since(n.paused.since)], () => pauseNote(n.paused));
  for (const x of all) {
    if (all.length > 1) add([x.id, x.kind, since(x.started)], () => el("h3", {}, `${x.kind} ${x.id} `, el("span", { class: "meta" }, `for ${since(x.started)}`)));
    add([x.id, x.phases], () => phaseList(x.phases));
  }
  for (const i of open) {
    const ms = i.deadline ? Date.parse(i.deadline) - now() : 0;
    const left = !i.deadline ? "for " + since(i.opened) : ms > 0 ? age(ms) + " left" : "deadline passed";
    add([i.instance, i.kind, left], () => el("h3", {}, `${INTERRUPTION[i.kind] || i.kind} of ${i.instance} `, el("span", { class: i.deadline ? "bad left" : "meta" }, left)));
    add([i.instance, i.phases], () => phaseList(i.phases));
  }
  if (!body.length) add("none", () => el("p", { class: "meta" }, "No action in progress."));
  const last = a ? null : S.events.findLast((m) => /^scale(Up|Down)\.(completed|failed|cancelled)$/.test(m.kind));
  if (last) add([last.seq, since(last.at)], () => el("p", {}, "Last: ", el("b", { class: last.level || "" }, last.kind), el("span", { class: "meta" }, ` ${since(last.at)} ago: ${last.text}`)));
  if (S.actions) add(["button", n.paused], () => scalingButton(n.paused));
  fill($("action-body"), body);
}

function pauseNote(p) {
  return el("p", { class: "paused" }, el("b", {}, "Scaling is paused"), ` for ${since(p.since)}` + (p.by ? ` by ${p.by}` : "") + (p.reason ? `: ${p.reason}` : ""),
    el("small", {}, "No new action begins. One in progress, interruptions and repair up to the minimum continue."));
}

function scalingButton(p) {
  return p ? button("resume-scaling", "", "Resume scaling", "It was paused" + (p.by ? " by " + p.by : "") + (p.reason ? ": " + p.reason : "") + ". Waiting times kept running meanwhile, so an action may begin at once.", "Resume scaling")
    : button("pause-scaling", "", "Pause scaling", "No scale-up by load and no scale-down begins until scaling is resumed, also after a restart. An action in progress continues to its end, as do interruptions and repair up to the minimum.", "Pause scaling");
}

// Reasons of a decision to do nothing that say all by themselves: no gate is of interest.
const QUIET = {
  STEADY: () => ["good", "Nothing needed", ""],
  IN_PROGRESS: (n) => ["good", `A ${n.action ? n.action.kind : "scaling action"} is in progress`, "The next decision follows when it has ended."],
  CANCELS_SCALE_DOWN: (n, d) => ["warn", "Scale-down cancelled", d.means],
  METRICS_UNAVAILABLE: (n, d) => ["", "Waiting for metrics", d.detail],
  PAUSED: () => ["warn", "Scaling is paused", ""],
};
const DOWN = ["IDLE_TOO_SHORT", "PODS_PENDING", "COOLDOWN_DOWN", "INTERRUPTION_OPEN", "MIN_WORKERS", "NO_TARGET", "PODS_DONT_FIT"]; // reasons against a scale-down

// verdict says what a decision is: style, text and reason.
function verdict(d) {
  const noop = d.action === "NOOP", quiet = noop && QUIET[d.reason];
  return quiet ? quiet(S.nodes, d) : noop ? ["warn", "Not yet", [d.means || d.reason, d.detail].filter(Boolean).join(" ")]
    : ["good", d.action === "SCALE_UP" ? "Scale up" : "Scale down", [d.means, d.detail].filter(Boolean).join(" ")];
}

function drawDecision() {
  const d = S.nodes && S.nodes.decision;
  $("decision").hidden = !d;
  if (!d) return;
  $("decision-meta").textContent = `at ${clock(d.at)} · ${d.reason}`;
  const noop = d.action === "NOOP", quiet = noop && QUIET[d.reason], [style, what, why] = verdict(d);
  $("verdict").replaceChildren(el("b", { class: style }, what), why || "");
  // What keeps an action from beginning is of interest only where one is wanted, and only what is against that one.
  const other = DOWN.includes(d.reason) ? /^(up|repair)\./ : /^down\./;
  const gates = d.gates || [], shown = S.allGates ? gates : !noop || quiet ? [] : gates.filter((g) => !g.passed && !other.test(g.name));
  $("gates").tBodies[0].replaceChildren(...shown.map((g) => el("tr", { class: g.passed ? "" : "no" },
    el("td", { "aria-label": g.passed ? "passed" : "not passed" }, g.passed ? "✓" : "✗"), el("td", {}, g.name), el("td", {}, g.value), el("td", {}, g.threshold))));
  $("gates").hidden = shown.length === 0;
  const passed = gates.length - gates.filter((g) => !g.passed).length;
  $("gates-more").textContent = S.allGates ? "Show only what keeps an action from beginning" : `Show all gates (${passed} of ${gates.length} passed)`;
}

const WORKER_STYLE = { STABLE: "s-good", REBALANCING: "s-busy", SCALING: "s-busy", EMERGENCY: "s-bad", DEGRADED: "s-bad", FAILED: "s-bad failed", SHUTDOWN: "s-warn" };
// numberOf is that of an ID such as defender-7; for any other ID one that is made of its letters.
function numberOf(id) {
  const digits = /\d+$/.exec(id);
  if (digits) return Number(digits[0]);
  let h = 2166136261;
  for (const c of id) h = Math.imul(h ^ c.codePointAt(0), 16777619) >>> 0;
  return h;
}
// colour is the worker's own: it depends on nothing but its ID, so that it stays whatever happens to others. The golden angle keeps
// neighbours apart; three shades keep those apart whose hues are near.
function colour(id) {
  const n = numberOf(id), shade = (Math.floor(n / 8) % 3) * 9 - 9;
  return `hsl(${((n * 137.508) % 360).toFixed(1)} 62% ${(isDark() ? 58 : 47) + shade}%)`;
}
const byNumber = (a, b) => numberOf(a.id) - numberOf(b.id) || (a.id < b.id ? -1 : 1);

function drawWorkers() {
  const w = S.workers;
  $("workers").hidden = !w;
  $("moves").hidden = !w;
  if (!w) return;
  showError("workers-error", w.error);
  for (const id of ["workers", "moves"]) $(id).classList.toggle("old", !!w.error); // what is shown is of before
  const list = [...(w.workers || [])].sort(byNumber), live = list.filter((x) => !x.failed).length; // each keeps its place, failed and drained ones too
  $("workers-meta").textContent = [w.expected ? `${live} of ${w.expected} live` : `${live} live`, list.length > live ? `${list.length - live} failed` : "", w.leader ? `leader ${w.leader}` : "no leader",
    w.version ? `map version ${w.version}` : "no map", w.epoch ? `epoch ${w.epoch}` : "", w.keys ? `${w.keys} keys` : ""].filter(Boolean).join(" · ");
  const most = Math.max(1, ...list.map((x) => x.keys || x.slots));
  if (!list.length) return fill($("worker-tiles"), [["none", () => empty("No workers: none has claimed its ID yet.")]]);
  const dark = isDark();
  fill($("worker-tiles"), list.map((x) => {
    // In whole percent: a move changes the shares of all others by less, and their tiles stay as they are.
    const does = doing(x), share = Math.round(((x.keys || x.slots) / most) * 100) / 100;
    return [JSON.stringify([x, share, does, S.actions, dark]), () => workerTile(x, share, does)];
  }));
}

// doing says what a worker does: text and style.
function doing(x) {
  if (x.failed) return [`failed ${since(x.failed.at)} ago: ${x.failed.reason}${x.failed.replaced ? "; replaced" : ""}`, "bad"];
  if (x.drained) return [x.slots ? `draining, ${plural(x.slots, "slot")} left` : `drained, for ${minutes(Date.parse(x.drained) - now())} more`, "warn"];
  return [x.state.toLowerCase().replace("_", " ") + (x.node ? " on " + x.node : ""), ""];
}

function workerTile(x, share, [text, style]) {
  const swatch = el("i");
  swatch.style.background = colour(x.id);
  return el("div", { class: "tile " + (x.drained ? "s-warn" : x.failed && x.failed.replaced ? "s-bad" : WORKER_STYLE[x.state] || ""), "data-worker": x.id, "data-state": x.state, title: [x.pod, x.node, x.pid ? "process " + x.pid : ""].filter(Boolean).join(" · ") },
    el("b", {}, swatch, el("span", {}, el("a", { href: at("workers", x.id), "data-key": "worker " + x.id }, x.id)), x.leading ? el("em", { title: "leader", "aria-label": "leader" }, "★") : null, S.actions ? workerButton(x) : null),
    el("span", { class: style, title: text }, text),
    x.pid ? el("span", {}, "process " + x.pid) : null,
    x.failed && !x.slots ? null : el("span", {}, plural(x.slots, "slot") + (x.keys ? `, ${x.keys} keys` : ""), x.gaining || x.losing ? el("span", { class: "delta" }, ` +${x.gaining || 0} −${x.losing || 0}`) : null),
    x.failed ? null : bar(share));
}

function workerButton(x) {
  if (x.failed) return button("acknowledge-failure", x.id, `Acknowledge the failure of ${x.id}`, `${x.id} failed ${since(x.failed.at)} ago (${x.failed.reason}). Its tile disappears. Acknowledging starts no replacement, and the number of expected workers stays.`, "Acknowledge", "small");
  return x.drained ? button("undrain-worker", x.id, `Undrain ${x.id}`, `${x.id} takes slots again, with the next plan.`, "Undrain", "small")
    : button("drain-worker", x.id, "Drain " + x.id, `${x.id} hands off its ${plural(x.slots, "slot")} to the others, one planned handoff each, and takes none for an hour or until it is undrained. It keeps running.`, "Drain", "small");
}

const isDark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

let grid = null; // of the canvas: columns, cell size, and the slot of each cell
// slotsByOwner orders the slots: those without an owner first, then each worker's, as the tiles are.
function slotsByOwner({ workers, owners }) {
  const places = [];
  [...workers.keys()].sort((a, b) => byNumber(workers[a], workers[b])).forEach((worker, place) => { places[worker] = place; });
  const of = (s) => places[owners[s]] ?? -1;
  return [...owners.keys()].sort((a, b) => of(a) - of(b));
}
function drawSlots() {
  const w = S.workers, c = $("slots");
  $("slots-part").hidden = !w || !w.owners || !w.owners.length;
  if (!w || !w.owners || !c.clientWidth) return;
  const n = w.owners.length, ratio = devicePixelRatio || 1;
  const cell = Math.max(5, Math.min(14, Math.floor(Math.sqrt((c.clientWidth * 96) / Math.max(1, n)))));
  const cols = Math.max(1, Math.floor(c.clientWidth / cell)), rows = Math.ceil(n / cols);
  const order = slotsByOwner(w);
  grid = { cell, cols, order };
  c.style.height = rows * cell + "px";
  c.width = c.clientWidth * ratio;
  c.height = rows * cell * ratio;
  const g = c.getContext("2d");
  g.scale(ratio, ratio);
  // Looked up once: with a thousand slots, a look-up for each would take longer than all the rest.
  const css = getComputedStyle(document.documentElement), [bad, panel, ink] = ["--bad", "--panel", "--ink"].map((name) => css.getPropertyValue(name));
  const colours = w.workers.map((x) => (x.failed ? null : colour(x.id)));
  let moving = 0, orphans = 0, failed = 0;
  for (const [i, s] of order.entries()) {
    const x = (i % cols) * cell, y = Math.floor(i / cols) * cell, o = w.owners[s], next = (w.next || [])[s];
    const owner = o >= 0 && w.workers[o], served = owner && !owner.failed;
    g.fillStyle = served ? colours[o] : bad;
    g.fillRect(x, y, cell - 1, cell - 1);
    if (!owner) orphans++;
    else if (!served) failed++;
    if (!served) { // a cross, as there are red workers
      g.strokeStyle = panel;
      g.lineWidth = 1.5;
      g.beginPath();
      for (const [from, to] of [[0.2, 0.8], [0.8, 0.2]]) { g.moveTo(x + from * (cell - 1), y + 0.2 * (cell - 1)); g.lineTo(x + to * (cell - 1), y + 0.8 * (cell - 1)); }
      g.stroke();
    }
    if (next >= 0) {
      moving++;
      g.fillStyle = panel;
      g.fillRect(x + cell / 4, y + cell / 4, cell / 2 - 1, cell / 2 - 1);
    }
    if (i && w.owners[order[i - 1]] !== o) { // the next owner's, without colours
      g.fillStyle = ink;
      g.fillRect(x - 1, y, 2, cell - 1);
    }
  }
  $("slots-meta").textContent = [plural(n, "slot"), moving ? moving + " moving" : "none moving", w.takingOver ? w.takingOver + " being taken over" : "", failed ? failed + " of failed workers" : "",
    orphans ? orphans + " without an owner" : ""].filter(Boolean).join(" · ");
  c.setAttribute("aria-label", `${n} slots by owner, ${moving} moving, ${orphans + failed} without a live owner`);
}
// slotAt is the slot that the mouse is over, -1 for none.
function slotAt(ev) {
  if (!grid) return -1;
  const [col, row] = [ev.offsetX, ev.offsetY].map((v) => Math.floor(v / grid.cell));
  return col < grid.cols ? grid.order[row * grid.cols + col] ?? -1 : -1;
}
$("slots").addEventListener("mousemove", (ev) => {
  const w = S.workers, s = slotAt(ev);
  if (!w || s < 0) return;
  const name = (i) => (i >= 0 && w.workers[i] ? w.workers[i].id + (w.workers[i].failed ? " (failed)" : "") : "no owner");
  $("slot-tip").textContent = `slot ${s}: ${name(w.owners[s])}` + ((w.next || [])[s] >= 0 ? ` → ${name(w.next[s])}` : "");
});

const UNDERWAY = 8; // rows of handoffs that are not finished; the rest is counted
function drawMoves() {
  const w = S.workers || {}, name = (i) => (i >= 0 && w.workers && w.workers[i] ? w.workers[i].id : "no owner");
  const moving = (w.next || []).flatMap((to, slot) => (to >= 0 ? [{ slot, from: name(w.owners[slot]), to: name(to) }] : []));
  const rows = S.moves.slice(-40).reverse();
  const pauses = (takeover) => S.moves.filter((m) => !!m.takeover === takeover && m.pauseNs >= 0).map((m) => m.pauseNs / 1e6).sort((a, b) => a - b);
  const sum = (p, what) => (p.length ? `last ${plural(p.length, what)}: pause p50 ${pause(p[Math.floor(p.length / 2)])}, max ${pause(p[p.length - 1])}` : "");
  $("moves-meta").textContent = [moving.length ? moving.length + " under way" : "", sum(pauses(false), "handoff"), sum(pauses(true), "takeover")].filter(Boolean).join(" · ");
  const row = (m, kind, cls, took, ago) => el("tr", { class: cls, "data-move": kind }, el("td", {}, ref("slots", m.slot)), el("td", {}, m.from || "unknown"), el("td", {}, m.to),
    el("td", { class: kind === "takeover" ? "warn" : "meta" }, kind), el("td", { class: "num" }, took), el("td", { class: "num" }, ago));
  const all = [...moving.slice(0, UNDERWAY).map((m) => row(m, "handoff", "underway", "under way", "")), ...rows.map((m) => row(m, m.takeover ? "takeover" : "handoff", "", pause(m.pauseNs / 1e6), since(m.at)))];
  $("move-rows").replaceChildren(...(all.length ? all : [el("tr", {}, el("td", { colspan: "6", class: "meta" }, "No handoff or takeover is known."))]));
}

// ---- timeline

const PAGE = 200; // how many rows more "Show older" shows
const MOST = 1000; // rows in the document, and moments that are kept beyond them
const shownPlanes = () => [...document.querySelectorAll("[data-plane]")].filter((b) => b.checked).map((b) => b.dataset.plane);
const wanted = () => ({ text: $("event-find").value.trim().toLowerCase(), planes: shownPlanes() });
const narrowed = (f) => f.text !== "" || f.planes.length < document.querySelectorAll("[data-plane]").length;
const matches = (m, f) => f.planes.includes(m.plane) && (!f.text || (m.text + " " + m.kind + " " + (m.subject || "")).toLowerCase().includes(f.text));
// What is older than S.events, newest last, by the filter that it was asked for with.
let older = { key: "", events: [], end: false };
S.rows = 120;
let lastDrawn = 0;
function drawEvents() {
  const f = wanted(), key = JSON.stringify(f);
  if (older.key !== key) { older = { key, events: [], end: false }; S.rows = 120; }
  const first = S.events.length ? S.events[0].seq : S.next;
  const list = [...older.events.filter((m) => m.seq < first), ...S.events.filter((m) => matches(m, f))], newest = list.slice(-Math.min(S.rows, MOST)).reverse();
  fill($("events"), newest.length ? newest.map((m) => [m.seq + m.at, () => eventRow(m)])
    : [[key, () => el("li", { class: "none" }, narrowed(f) ? "No event matches." : "Nothing has happened yet.")]]);
  lastDrawn = S.next;
  $("timeline-meta").textContent = plural(S.next, "event") + (narrowed(f) ? `, ${newest.length} shown` : "");
  const more = !older.end && first > 0; // on the server
  $("older").hidden = newest.length >= MOST || S.rows >= list.length && !more;
  // After a gap the page has only the newest ones again, and what is sought may lie further back.
  if (list.length < S.rows && more) searchTimer = searchTimer || setTimeout(() => { searchTimer = 0; loadOlder(); }, narrowed(f) ? 250 : 0);
}
function eventRow(m) {
  return el("li", { class: m.seq >= lastDrawn && lastDrawn ? "fresh" : "", "data-seq": m.seq },
    el("time", { datetime: m.at, title: m.at }, when(m.at)), el("span", { class: "plane" }, m.plane), el("span", { class: "kind " + (m.level || "") }, m.kind), el("span", {}, m.text));
}
function addEvents(list) {
  for (const m of list) if (m.seq >= S.next) { S.events.push(m); S.next = m.seq + 1; }
  if (S.events.length > 2 * MOST) S.events.splice(0, S.events.length - MOST);
  draw("events");
}
let searchTimer = 0, loading = null; // loading: the value of older that a request is under way for
async function loadOlder() {
  if (loading === older) return; // a second request would return the same events
  const f = wanted(), first = (older.events[0] || S.events[0] || { seq: S.next }).seq;
  if (!f.planes.length) return;
  const q = new URLSearchParams({ before: first, limit: PAGE, contains: f.text });
  if (narrowed(f)) q.set("plane", f.planes.join(","));
  const asked = loading = older;
  const list = await get("api/events?" + q);
  if (loading === asked) loading = null;
  if (!list || older !== asked) return;
  older.events = [...list.reverse(), ...older.events].slice(-MOST);
  older.end = list.length < PAGE;
  draw("events");
}
$("older").addEventListener("click", () => { S.rows = Math.min(S.rows + PAGE, MOST); loadOlder(); draw("events"); });
document.querySelectorAll("[data-plane]").forEach((b) => b.addEventListener("change", () => draw("events")));
$("event-find").addEventListener("input", () => draw("events"));

// ---- chambers

async function get(url) {
  try {
    const r = await fetch(url);
    const body = await r.json();
    if (!r.ok) throw new Error(body.error || r.statusText);
    showError("page-error", "");
    return body;
  } catch (err) {
    if (!(err instanceof TypeError)) showError("page-error", String(err.message || err)); // no answer is the link's matter
    return null;
  }
}

let findTimer = 0;
$("chamber-find").addEventListener("input", () => { clearTimeout(findTimer); findTimer = setTimeout(findChambers, 150); });
async function findChambers() {
  S.searched = true;
  S.found = (await get("api/chambers?contains=" + encodeURIComponent($("chamber-find").value.trim()))) || [];
  draw("found");
}
function drawFound() {
  const button = (c) => el("button", {
    type: "button", "data-key": `chamber ${c.tool}:${c.chamber}`, class: c.alarms ? "small danger" : "small",
    onclick: () => openChamber(c.tool, c.chamber),
  }, `${c.tool}:${c.chamber}` + (c.alarms ? ` (${plural(c.alarms, "alarm")})` : ""));
  const none = [["none", () => el("li", { class: "meta" }, "No chamber has this in its name.")]];
  const rows = S.found.slice(0, 16).map((c) => [JSON.stringify(c), () => el("li", {}, button(c))]);
  fill($("chamber-list"), rows.length ? rows : none);
}
async function openChamber(tool, chamber) {
  S.chamber = { tool, chamber };
  const c = await get(`api/chambers/${encodeURIComponent(tool)}/${encodeURIComponent(chamber)}`);
  if (c) { S.chart = c; draw("charts"); }
}
function drawCharts() {
  const c = S.chart;
  $("chamber").hidden = !S.charts;
  if (!c) { $("charts").replaceChildren(...(VIEW.name === "chambers" && VIEW.args[1] ? [el("p", { class: "meta" }, "Reading the charts…")] : [])); fill($("chamber-meta"), []); return; }
  drawOwner();
  const alarms = c.alarms || [];
  $("charts").replaceChildren(
    alarms.length ? el("ul", { class: "alarms" }, ...alarms.slice(0, 8).map((a) => el("li", {}, el("time", { datetime: a.at }, when(a.at)), el("span", { class: a.state === "open" ? "bad" : "meta" }, a.state),
      el("span", { class: "text" }, a.run && S.lookups.includes("run") ? ref("alarms", [a.tool, a.chamber, a.run], a.text) : a.text, a.by ? el("small", { class: "meta" }, ` — ${a.by}${a.note ? ": " + a.note : ""}`) : null),
      S.actions && a.state === "open" ? button("acknowledge", a.id, `Acknowledge the alarm of ${c.tool}:${c.chamber}`, `${a.text}. Acknowledging tells others that you are working on it. It does not end the alarm.`, "Acknowledge", "small") : null))) : el("p", { class: "meta" }, "No alarms."),
    ...(c.series || []).map(controlChart));
}

// drawOwner says whose the chamber is now: its slot may have moved since the charts were read.
function drawOwner() {
  const c = S.chart, owner = c && ((S.workers && nameOf((S.workers.owners || [])[c.slot])) || c.owner);
  if (c) fill($("chamber-meta"), [[[c.tool, c.chamber, c.slot, owner].join(), () => el("span", {}, ref("chambers", [c.tool, c.chamber]), ...(owner ? [" · slot ", ref("slots", c.slot), " at ", ref("workers", owner)] : []))]]);
}
// brief is a number in at most eight characters.
const brief = (v) => (v !== 0 && (Math.abs(v) >= 1e6 || Math.abs(v) < 1e-3) ? v.toExponential(2) : String(Number(v.toPrecision(5))));
// chartWidth is that of a chart in pixels, as the style lays charts out, so that its text keeps its size.
function chartWidth() {
  const w = $("charts").clientWidth || 600, gap = 18, columns = Math.max(1, Math.floor((w + gap) / (Math.min(380, w) + gap)));
  return Math.floor((w - (columns - 1) * gap) / columns);
}
function controlChart(s) {
  const W = chartWidth(), H = 140, left = 58, right = 8, top = 8, bottom = 20, pts = s.points || [];
  const vals = pts.flatMap((p) => [p.value, p.lower, p.upper]).filter((v) => typeof v === "number");
  let lo = Math.min(...vals), hi = Math.max(...vals);
  if (!vals.length) { lo = 0; hi = 1; }
  if (hi === lo) { hi += Math.abs(hi) * 0.01 || 1; lo -= Math.abs(lo) * 0.01 || 1; }
  const pad = (hi - lo) * 0.06; lo -= pad; hi += pad;
  const x = (i) => left + (pts.length < 2 ? 0.5 : i / (pts.length - 1)) * (W - left - right), y = (v) => top + (1 - (v - lo) / (hi - lo)) * (H - top - bottom);
  const path = (style, f) => strokes(style, pts.map(f), x, y);
  const flagged = pts.filter((p) => (p.flags || []).length).length;
  const value = (v) => label(left - 5, y(v) + 4, "end", brief(v));
  const tick = (i, anchor) => label(x(i), H - 4, anchor, when(pts[i].at).replace(/\.\d+$/, ""));
  const g = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${s.svid} ${s.stat}: ${pts.length} points, ${flagged} flagged` },
    ...path("limit", (p) => p.upper), ...path("limit", (p) => p.lower), ...path("centre", (p) => p.centre), ...path("line", (p) => p.value),
    ...pts.map((p, i) => typeof p.value === "number" ? svg("circle", { cx: x(i), cy: y(p.value), r: (p.flags || []).length ? 4 : 2, class: (p.flags || []).length ? "flag" : "dot" }, svg("title", {}, `${p.context} ${p.at}\n${p.value}${(p.flags || []).length ? "\n" + p.flags.join(", ") : ""}`)) : ""),
    value(lo + pad), value(hi - pad), ...(pts.length > 1 ? [tick(0, "start"), tick(pts.length - 1, "end")] : []));
  return el("div", { class: "chart" }, el("h4", {}, `${s.svid}${s.step ? " · step " + s.step : ""} · ${s.stat}${s.unit ? " (" + s.unit + ")" : ""} `, el("span", { class: flagged ? "bad" : "meta" }, flagged ? `${flagged} of ${plural(pts.length, "point")} flagged` : plural(pts.length, "point") + ", none flagged")), g);
}

// ---- actions

let asked = null;
// button asks for a command. Its key is what it does to what, by which it is found again when it is redrawn.
function button(name, target, title, text, label, cls) {
  return el("button", { type: "button", class: cls || "", "data-key": name + " " + target, title, "aria-label": title, "aria-haspopup": "dialog", onclick: () => ask(name, target, title, text) }, label);
}
function ask(name, target, title, text) {
  asked = { name, target };
  $("ask-title").textContent = title + "?";
  $("ask-text").textContent = text;
  $("ask-go").textContent = title;
  $("ask-reason").value = "";
  $("ask-by").value = localStorage.getItem("by") || "";
  $("ask-token").value = sessionStorage.getItem("token") || "";
  for (const id of ["ask-by", "ask-token"]) { $(id).parentElement.hidden = !!S.user; $(id).disabled = !!S.user; } // the console knows who asks
  answered("");
  $("ask").showModal();
  $("ask-reason").focus();
}
function answered(fault) {
  $("ask-error").hidden = !fault;
  $("ask-error").textContent = fault;
  $("ask-go").disabled = false;
}
$("ask-cancel").addEventListener("click", () => $("ask").close());
// The button that asked may be another element by now, or say something else.
const opposite = { "pause-scaling": "resume-scaling", "resume-scaling": "pause-scaling", "drain-worker": "undrain-worker", "undrain-worker": "drain-worker" };
$("ask").addEventListener("close", () => setTimeout(() => {
  const again = asked && (keyed(opposite[asked.name] + " " + asked.target) || keyed(asked.name + " " + asked.target) || $("chamber"));
  if (again && (document.activeElement === document.body || !document.activeElement)) again.focus({ preventScroll: true });
}, 300));
$("ask-form").addEventListener("submit", async (ev) => {
  ev.preventDefault();
  const token = $("ask-token").value, by = $("ask-by").value.trim(), command = asked;
  answered("");
  $("ask-go").disabled = true;
  try {
    const r = await fetch("api/commands", { method: "POST", headers: { ...(S.user ? {} : { Authorization: "Bearer " + token }), "Content-Type": "application/json" }, body: JSON.stringify({ name: command.name, target: command.target, reason: $("ask-reason").value, by }) });
    const body = await r.json();
    if (r.status === 401) { sessionStorage.removeItem("token"); $("ask-token").select(); }
    if (!r.ok) throw new Error(body.error);
    if (!S.user) { sessionStorage.setItem("token", token); localStorage.setItem("by", by); }
    if (command.name === "acknowledge" && S.chamber) { openChamber(S.chamber.tool, S.chamber.chamber); findChambers(); }
    refreshView();
    $("ask").close();
  } catch (err) {
    answered(err instanceof TypeError ? "No answer from the server: it may or may not have been done. The timeline shows which." : err.message);
  }
});

// ---- keyboard, theme

$("gates-more").addEventListener("click", () => { S.allGates = !S.allGates; draw("decision"); });
function setTheme(t) { document.documentElement.dataset.theme = t; localStorage.setItem("theme", t); draw("workers", "slots"); }
if (localStorage.getItem("theme")) document.documentElement.dataset.theme = localStorage.getItem("theme");
$("theme").addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
$("help").addEventListener("click", () => $("keys").showModal());
document.addEventListener("keydown", (ev) => {
  if (ev.target.matches("input, textarea") || ev.ctrlKey || ev.metaKey || ev.altKey || document.querySelector("dialog[open]")) return;
  const shown = [...document.querySelectorAll("main > section:not([hidden])")];
  if (/^[1-9]$/.test(ev.key) && VIEW.name && shown[ev.key - 1]) location.hash = "#" + shown[ev.key - 1].id;
  else if (/^[1-9]$/.test(ev.key) && shown[ev.key - 1]) { shown[ev.key - 1].focus(); shown[ev.key - 1].scrollIntoView({ block: "start" }); ev.preventDefault(); }
  else if (ev.key === "/" && S.charts) { $("chamber-find").focus(); ev.preventDefault(); }
  else if (ev.key === "e") { $("event-find").focus(); ev.preventDefault(); }
  else if (ev.key === "g") { $("goto-text").focus(); ev.preventDefault(); }
  else if (ev.key === "t") setTheme(isDark() ? "light" : "dark");
  else if (ev.key === "?") $("keys").showModal();
});
addEventListener("resize", () => draw("slots", "charts", "view"));

// ---- the stream

function link(text, cls) { $("link").textContent = text; $("link").className = "link " + cls; }
// What sticks to the window's top must not cover the panel that is jumped to.
new ResizeObserver(() => document.documentElement.style.setProperty("--head", document.querySelector("header").offsetHeight + "px")).observe(document.querySelector("header"));
// lose says that what the console shows may no longer be so, and since when.
function lose() {
  S.lost = S.lost || Date.now();
  draw("head");
  document.body.classList.add("stale");
  link("not connected", "lost");
  drawLost();
}
function drawLost() {
  $("lost").hidden = false;
  $("lost").textContent = S.nodes || S.workers || S.next ? `Connection lost ${age(Date.now() - S.lost)} ago. What is below is as of ${clock(S.lost + S.skew).slice(0, 8)} and may have changed. Reconnecting.` : "No answer from the server yet. Reconnecting.";
}

const frames = {
  nodes: (v) => { S.nodes = v; draw("head", "nodes", "action", "decision", "view"); },
  workers: (v) => { S.workers = v; draw("head", "workers", "slots", "moves", "owner", "view"); },
  alarms: (v) => { S.alarms = v; draw("head", "load"); refreshView(); },
  load: (v) => { S.load = v; draw("load", "view"); if (VIEW.name === "load") refreshView(); },
  health: (v) => { S.health = v; draw("head"); },
  sources: (v) => { S.sources = v; draw("sources"); },
  moves: (v) => { addMoves(v); draw("moves"); refreshView(); },
  events: (v) => { addEvents(v); draw("action"); refreshView(); if (v.some((m) => m.plane === "alarms")) { clearTimeout(findTimer); findTimer = setTimeout(findChambers, 400); } },
  gap: () => load(),
};
function addMoves(list) {
  const next = S.moves.length ? S.moves[S.moves.length - 1].seq + 1 : 0;
  S.moves = [...S.moves, ...list.filter((m) => m.seq >= next)].slice(-200);
}
// Frames that come while the state is asked for wait for it. Those that it includes already are dropped; moments and gaps have numbers of their own.
let waiting = null, version = 0, asking = 0;
function take(f) {
  if (waiting) waiting.push(f);
  else if (f.name === "events" || f.name === "gap" || f.id > version) frames[f.name](JSON.parse(f.data));
}
async function load() {
  const mine = ++asking;
  waiting = [];
  const s = await getState();
  if (mine !== asking) return; // asked again since
  if (!s && $("signin").open) return;
  if (!s) { lose(); setTimeout(() => { if (mine === asking) load(); }, 2000); return; }
  S.skew = Date.parse(s.now) - Date.now();
  S.title = s.title === "Muster" ? "Muster" : s.title + " · Muster";
  $("title").textContent = s.title;
  older = { key: older.key, events: [], end: false }; // the filter is the same, and so are the rows asked for
  Object.assign(S, { nodes: s.nodes || null, workers: s.workers || null, alarms: s.alarms || null, health: s.health || null, load: s.load || null, sources: s.sources || [], lookups: s.lookups || [], moves: s.moves || [], events: s.events || [], next: s.next,
    actions: s.actions, charts: s.charts, user: s.user || null, peers: s.peers || [], lost: 0 });
  version = s.version;
  document.body.classList.remove("stale");
  $("lost").hidden = true;
  link("live", "live");
  drawUser();
  draw(...Object.keys(panels));
  refreshView();
  if (S.charts && !S.searched) findChambers();
  const list = waiting;
  waiting = null;
  list.forEach(take);
}
// getState asks for all at once. On a console that doesn't know the person it has them sign in.
async function getState() {
  try {
    const r = await fetch("api/state"), body = await r.json();
    if (r.status === 401 && r.headers.has("WWW-Authenticate")) { signIn(body.error); return null; }
    if (!r.ok) throw new Error(body.error || r.statusText);
    showError("page-error", "");
    return body;
  } catch (err) {
    if (!(err instanceof TypeError)) showError("page-error", String(err.message || err));
    return null;
  }
}
// feed has all tabs share one stream, by a worker of the browser: it opens six connections to a host, and a stream holds one for
// as long as the tab is open. A browser without such workers has a stream for each tab, and none for a hidden one.
const said = (m) => (m.open ? load() : m.lost ? lost() : take(m));
async function lost() {
  if (!$("signin").open) lose();
  await getState(); // which has the person sign in where that is why
}
const feed = window.SharedWorker ? {
  join() {
    this.port = new SharedWorker("feed.js").port;
    this.port.onmessage = (ev) => said(ev.data);
  },
  leave() { this.port.postMessage("bye"); this.port.close(); },
} : {
  join() {
    if (document.hidden || this.stream) return;
    this.stream = new EventSource("api/stream");
    this.stream.onopen = () => said({ open: true });
    this.stream.onerror = () => { this.leave(); said({ lost: true }); setTimeout(() => this.join(), 1500); };
    for (const name of Object.keys(frames)) this.stream.addEventListener(name, (ev) => said({ name, id: Number(ev.lastEventId), data: ev.data }));
  },
  leave() { if (this.stream) this.stream.close(); this.stream = null; },
};
if (!window.SharedWorker) document.addEventListener("visibilitychange", () => (document.hidden ? feed.leave() : feed.join()));
// A page that the browser keeps for "back" must not keep its connection.
addEventListener("pagehide", () => feed.leave());
addEventListener("pageshow", (ev) => { if (ev.persisted) feed.join(); });

// ---- who looks

function drawUser() {
  const u = S.user, peers = S.peers;
  $("who").hidden = !u;
  $("who").textContent = u ? `${u.name}, ${u.role}` : "";
  $("signout").hidden = !u;
  const has = { "#/workers": S.workers, "#/slots": S.workers, "#/nodes": S.nodes, "#/decision": S.nodes, "#/alarms": S.lookups.includes("alarms"), "#/load": S.load, "#/plan": S.lookups.includes("preview"), "#/dead-letters": S.lookups.includes("dead-letters") };
  for (const a of document.querySelectorAll("#views a")) a.hidden = a.hash in has && !has[a.hash];
  $("peers").hidden = peers.length < 2;
  fill($("peers"), peers.map((p) => [JSON.stringify(p), () => el("a", p.here ? { href: p.address, "aria-current": "true" } : { href: p.address }, p.title)]));
}
function drawSources() {
  const away = S.sources.filter((x) => x.away);
  $("sources").hidden = !away.length;
  fill($("sources"), away.map((x) => [[x.name, x.away, x.error, since(x.away)].join(), () => el("p", { "data-source": x.name }, el("b", {}, x.name), ` is away since ${clock(x.away).slice(0, 8)} (${since(x.away)}): ${x.error}. `,
    x.seen ? `What it said is as of ${clock(x.seen).slice(0, 8)}.` : "It has not answered yet.")]));
}
function signIn(why) {
  $("signin-why").textContent = why;
  if (!$("signin").open) { $("signin").showModal(); $("signin-token").focus(); }
}
$("signin-form").addEventListener("submit", async (ev) => {
  ev.preventDefault();
  showError("signin-error", "");
  try {
    const r = await fetch("api/session", { method: "POST", headers: { Authorization: "Bearer " + $("signin-token").value } }), body = await r.json();
    if (!r.ok) throw new Error(body.error);
    $("signin-token").value = "";
    $("signin").close();
    load();
  } catch (err) {
    showError("signin-error", err instanceof TypeError ? "No answer from the server." : err.message);
  }
});
$("signin").addEventListener("cancel", (ev) => ev.preventDefault()); // there is nothing behind it
$("signout").addEventListener("click", async () => {
  try { await fetch("api/session", { method: "DELETE" }); } catch { return; }
  location.reload();
});
