"use strict";
// Every worker, slot, key, node, chamber and alarm has a page with its own address, as #/workers/defender-7: list, detail, history.
// A page is drawn from the state that the console streams and from what was asked for about this one thing.

const VIEW = { name: "", args: [], query: new URLSearchParams(), data: {}, faults: {}, hash: "", title: "" };
const at = (...parts) => "#/" + parts.map(encodeURIComponent).join("/");
const ref = (kind, id, text) => el("a", { href: at(kind, ...[id].flat()) }, text || String([id].flat().join(":")));
const stamp = (t) => { const d = new Date(t), p = (n) => String(n).padStart(2, "0"); return `${d.getFullYear()}-${p(d.getMonth() + 1)}-${p(d.getDate())} ${p(d.getHours())}:${p(d.getMinutes())}:${p(d.getSeconds())}`; };
const facts = (rows) => el("dl", { class: "about" }, ...rows.filter((r) => r && r[1] !== "" && r[1] !== null && r[1] !== undefined).map(([k, ...v]) => el("div", k[0] === "*" ? { class: "all" } : {}, el("dt", {}, k.replace("*", "")), el("dd", {}, ...v))));
const part = (title, ...body) => el("section", { class: "panel wide" }, el("h2", {}, title), ...body);
const note = (text) => el("p", { class: "meta" }, text);
const join = (items, none) => items.length ? items.flatMap((x, i) => (i ? [", ", x] : [x])) : [none || "none"];
const paras = (n) => n === undefined || n === null ? "–" : n.toLocaleString("en", { maximumFractionDigits: n < 10 ? 2 : n < 100 ? 1 : 0 });
// sheet makes a table: a heading that begins with # is of a column of numbers.
function sheet(head, rows, none, id) {
  if (!rows.length) return note(none);
  const num = head.map((h) => h.startsWith("#"));
  return el("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": id }, el("table", { "data-table": id }, el("thead", {}, el("tr", {}, ...head.map((h, i) => el("th", num[i] ? { class: "num" } : {}, h.replace("#", ""))))),
    el("tbody", {}, ...rows.map((r) => el("tr", {}, ...r.map((c, i) => el("td", { ...(num[i] ? { class: "num" } : {}), ...(head[i] ? { "data-label": head[i].replace("#", "") } : {}) }, ...[c].flat().filter((x) => x !== null && x !== undefined).map((x) => (x instanceof Node ? x : String(x))))))))));
}

const workersNow = () => [...((S.workers && S.workers.workers) || [])];
const nameOf = (i) => { const w = S.workers && S.workers.workers && S.workers.workers[i]; return i >= 0 && w ? w.id : ""; };
const nodeOfWorker = (x) => ((S.nodes && S.nodes.nodes) || []).find((n) => x.node && (n.name === x.node || n.instance === x.node));
const nodeRef = (x) => { const n = nodeOfWorker(x); return n ? ref("nodes", n.instance, x.node) : x.node || ""; };
const workerRef = (id) => (id ? ref("workers", id) : "no owner");

// ---- what is asked for, by page

const asks = {
  workers: ([id]) => (id ? { moves: "moves?limit=500&worker=" + q(id), events: "events?limit=200&about=" + q(id) } : {}),
  slots: ([n]) => (n ? { slot: "slots/" + q(n), moves: "moves?slot=" + q(n), events: "events?limit=100&about=" + q("slot " + n) } : {}),
  keys: ([key]) => (key ? { key: "keys/" + q(key) } : {}),
  nodes: ([id]) => (id ? { events: "events?limit=200&about=" + q(id) } : {}),
  chambers: () => ({}),
  alarms: ([tool, chamber, run], p) => (run ? { alarms: "alarms?all=1", run: `runs/${q(tool)}/${q(chamber)}/${q(run)}`, events: "events?limit=100&about=" + q(tool + ":" + chamber) } : { alarms: "alarms" + (p.get("all") ? "?all=1" : "") }),
  load: (_, p) => ({ load: "load?" + during(p, 3600) }),
  events: (_, p) => ({ events: "events?limit=1000&" + during(p) + words(p), moves: "moves?limit=1000&" + during(p), load: S.load ? "load?" + during(p) : "" }),
  "dead-letters": () => ({ letters: "dead-letters" }),
  plan: (_, p) => ({ plan: "preview?" + new URLSearchParams([...p].filter(([k]) => ["without", "drain", "add", "balance"].includes(k))) }),
  decision: () => ({}),
};
const q = encodeURIComponent;
const words = (p) => ["about", "contains"].filter((k) => p.get(k)).map((k) => `&${k}=${q(p.get(k))}`).join("");
// during is the time of a page: from and to, or the last seconds.
function during(p, seconds) {
  const out = new URLSearchParams(), from = p.get("from"), to = p.get("to");
  if (from) out.set("from", from); else if (seconds && !to) out.set("from", new Date(now() - seconds * 1000).toISOString());
  if (to) out.set("to", to);
  return out;
}

async function askFor() {
  const mine = VIEW.hash, list = Object.entries((asks[VIEW.name] || (() => ({})))(VIEW.args, VIEW.query)).filter(([, url]) => url);
  await Promise.all(list.map(async ([name, url]) => {
    let data = null, fault = "";
    try {
      const r = await fetch("api/" + url);
      data = await r.json();
      if (!r.ok) { fault = data.error; data = null; }
    } catch (err) {
      if (VIEW.hash === mine && VIEW.data[name]) return; // the last answer stands; the lost connection is shown
      fault = String(err.message || err);
    }
    if (VIEW.hash !== mine) return;
    VIEW.data[name] = data;
    VIEW.faults[name] = fault;
  }));
  if (VIEW.hash === mine) { VIEW.asked = true; draw("view"); }
}
let again = 0; // what happened since is shown a moment later, however much happens
function refreshView() {
  if (!VIEW.name || VIEW.query.get("to")) return; // what is over doesn't change
  again = again || setTimeout(() => { again = 0; askFor(); }, 1000);
}

// ---- pieces that several pages have

const eventTable = (list) => sheet(["time", "plane", "kind", ""], (list || []).map((m) => [el("time", { datetime: m.at }, stamp(m.at)), m.plane, el("b", { class: m.level || "" }, m.kind), m.text]), "No event.", "events");
const moveTable = (list) => sheet(["slot", "from", "to", "", "#pause", "time"], (list || []).map((m) => [ref("slots", m.slot), m.from ? workerRef(m.from) : "unknown", workerRef(m.to),
  el("span", { class: m.takeover ? "warn" : "meta" }, m.takeover ? "takeover" : "handoff"), pause(m.pauseNs / 1e6), el("time", { datetime: m.at }, stamp(m.at))]), "No handoff or takeover.", "moves");
const past = () => part("History", eventTable(VIEW.data.events), el("p", {}, el("a", { href: "#/events?about=" + q(VIEW.name === "slots" ? "slot " + VIEW.args[0] : VIEW.name === "alarms" ? VIEW.args.slice(0, 2).join(":") : VIEW.args[0]) }, "Search this history by time")));
const pageWidth = () => Math.max(280, Math.min(1400, ($("detail").clientWidth || 800) - 30));
// strokes draws a line through numbers, with gaps where there is none. A lone one is a dot: a line of no length with round ends.
function strokes(style, values, x, y) {
  const at = values.map((v, i) => typeof v === "number" && `${x(i).toFixed(1)} ${y(v).toFixed(1)}`);
  let line = "", dots = "";
  at.forEach((p, i) => {
    if (p && !at[i - 1] && !at[i + 1]) dots += `M${p}h0`;
    else if (p) line += (at[i - 1] ? "L" : "M") + p;
  });
  return [[style, line], [style + " lone", dots]].filter(([, d]) => d).map(([c, d]) => svg("path", { class: c, d }));
}
// curve draws values over time. Each line is [name, class, value of a sample].
function curve(title, list, unit, lines) {
  const W = pageWidth(), H = 130, left = 52, right = 8, top = 8, bottom = 20;
  if (list.length < 2) return note(title + ": there are too few samples yet.");
  const t0 = Date.parse(list[0].at), t1 = Date.parse(list[list.length - 1].at), hi = Math.max(1e-9, ...list.flatMap((l) => lines.map((x) => x[2](l) || 0))) * 1.06;
  const x = (t) => left + ((Date.parse(t) - t0) / Math.max(1, t1 - t0)) * (W - left - right), y = (v) => top + (1 - v / hi) * (H - top - bottom);
  return el("div", { class: "chart" }, el("h4", {}, title + " ", ...lines.map(([name, cls]) => el("span", { class: "key " + cls }, name))),
    svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${title}: at most ${paras(hi / 1.06)} ${unit}` },
      ...lines.flatMap(([, cls, f]) => strokes("line " + cls, list.map(f), (i) => x(list[i].at), y)),
      label(left - 5, y(hi / 1.06) + 4, "end", paras(hi / 1.06)), label(left - 5, y(0) + 1, "end", "0"), label(left, H - 4, "start", stamp(list[0].at)), label(W - right, H - 4, "end", stamp(list[list.length - 1].at).slice(11))));
}
const waited = (l) => (l.oldest ? Math.max(0, (Date.parse(l.at) - Date.parse(l.oldest)) / 1000) : 0);
const curves = (list) => [curve("Waiting messages", list, "messages", [["", "", (l) => l.waiting]]),
  curve("Messages per second", list, "per second", [["arriving", "a", (l) => l.in], ["processed", "b", (l) => l.out]]),
  curve("Oldest message waits (s)", list, "seconds", [["", "", waited]]), curve("Time to process one message, p99 (ms)", list, "ms", [["", "", (l) => l.p99Ms]])];
const fault = (name) => (VIEW.faults[name] ? el("p", { class: "error" }, VIEW.faults[name]) : null);
const field = (label, props) => el("label", {}, label + " ", el("input", { autocomplete: "off", ...props }));
const localTime = (t) => (t ? stamp(t).replace(" ", "T") : "");
// form puts what a person writes into the page's address, from where it is read again.
function form(name, fields, go) {
  return el("form", { class: "filters", onsubmit: (ev) => {
    ev.preventDefault();
    const p = new URLSearchParams();
    for (const [k, v] of new FormData(ev.target)) if (v) p.set(k, k === "from" || k === "to" ? new Date(v).toISOString() : v);
    location.hash = `#/${name}?${p}`;
  } }, ...fields, el("button", { type: "submit" }, go));
}

// ---- the pages: title, path and parts

const pages = {
  "dead-letters"() {
    return ["Dead letters", [], [fault("letters") || part("Dead letters", el("p", { class: "meta" }, "Messages that failed too often. ", el("code", {}, "muster partitions dead-letters requeue NUMBER"), " publishes one again."),
      sheet(["#number", "key", "time", "#attempts", "worker", "error"], (VIEW.data.letters || []).map((d) => [d.number, ref("keys", d.key), el("time", { datetime: d.at }, stamp(d.at)), d.attempts, d.worker ? workerRef(d.worker) : "", el("span", { class: "bad" }, d.error)]), "No dead letter.", "dead letters"))]];
  },
  workers([id]) {
    const list = workersNow().sort((a, b) => !!b.failed - !!a.failed || byNumber(a, b));
    if (!id) return ["Workers", [], [part("Workers", sheet(["worker", "state", "node", "#slots", "#keys"], list.map((x) => [workerRef(x.id), el("span", { class: doing(x)[1] }, doing(x)[0]), nodeRef(x), x.slots, x.keys || 0]), "No workers.", "workers"))]];
    const x = list.find((w) => w.id === id), lost = (VIEW.data.moves || []).filter((m) => m.from === id), w = S.workers || {};
    const mine = ((w.owners) || []).flatMap((o, s) => (nameOf(o) === id ? [s] : []));
    const node = x && nodeOfWorker(x), by = x && x.drainedBy;
    const why = by ? `${by.by || "somebody"} on this console, ${since(by.at)} ago: ${by.reason}`
      : node && ["draining", "interrupted", "terminating"].includes(node.state) ? `the node plane, because its node is ${node.state}` : "not on this console: by a command, or before the console started";
    return [id, [["workers", "Workers"]], [
      part(id, x ? facts([["state", el("span", { class: doing(x)[1] }, doing(x)[0])], ["role", x.leading ? "leader" : "worker"], ["node", nodeRef(x)], ["pod", x.pod], ["process", x.pid],
        x.failed && ["failed", stamp(x.failed.at) + ", " + x.failed.reason], x.failed && ["replaced", x.failed.replaced ? "yes: as many workers as expected are there" : "no"],
        x.drained && ["drained by", why], x.drained && ["takes slots again", stamp(x.drained)],
        ["*slots", ...join(mine.map((s) => ref("slots", s)))], x.keys && ["keys", x.keys],
        (x.gaining || x.losing) && ["moving", `${x.gaining || 0} to it, ${x.losing || 0} away`]]) : note(`No worker ${id} is there now.`),
      el("p", { class: "acts" }, x && S.actions ? workerButton(x) : null, S.lookups.includes("preview") && x && !x.failed ? [el("a", { href: "#/plan?without=" + q(id) }, "Preview its failure"), " ", el("a", { href: "#/plan?drain=" + q(id) }, "Preview its drain")] : null)),
      part("What happened to its slots", lost.length ? note(`${plural(lost.filter((m) => m.takeover).length, "takeover")} and ${plural(lost.filter((m) => !m.takeover).length, "handoff")} from ${id}` +
        (mine.length ? "." : `; it has no slot now.`)) : null, moveTable(VIEW.data.moves)), past()]];
  },
  slots([n]) {
    const w = S.workers || {}, owners = w.owners || [];
    if (!n) return ["Slots", [], [part("Slots by worker", sheet(["worker", "#owns", "slots"], workersNow().sort(byNumber).map((x) => { const mine = owners.flatMap((o, s) => (nameOf(o) === x.id ? [s] : [])); return [workerRef(x.id), mine.length, join(mine.map((s) => ref("slots", s)))]; }), "No workers.", "slots"))]];
    const o = nameOf(owners[n]), next = nameOf((w.next || [])[n]), keys = (VIEW.data.slot || {}).keys || [];
    return ["Slot " + n, [["slots", "Slots"]], [fault("slot") || part("Slot " + n, facts([["owner", workerRef(o)], next && ["moving to", workerRef(next)], ["*keys", ...join(keys.map((k) => ref("keys", k)))]])),
      part("Moves", moveTable(VIEW.data.moves)), past()]];
  },
  keys([key]) {
    const k = VIEW.data.key, w = S.workers || {};
    if (!key) return ["Keys", [], [part("Keys", note("Write a key into the search field above."))]];
    if (!k) return [key, [["keys", "Keys"]], [fault("key") || note("Looking it up…")]];
    const next = nameOf((w.next || [])[k.slot]), owner = nameOf((w.owners || [])[k.slot]), x = workersNow().find((v) => v.id === owner);
    return [key, [["keys", "Keys"]], [part(k.key, facts([["slot", ref("slots", k.slot)], ["owner", workerRef(owner)], x && ["its state", el("span", { class: doing(x)[1] }, doing(x)[0])], x && ["its node", nodeRef(x)], next && ["moving to", workerRef(next)],
      k.chamber && S.charts && ["charts", ref("chambers", [k.tool, k.chamber])]]), k.known ? null : note("No message of this key is known: it would be in this slot."))]];
  },
  nodes([id]) {
    const n = S.nodes || {}, list = n.nodes || [], on = (x) => workersNow().filter((w) => x && nodeOfWorker(w) === x).sort(byNumber), fate = (x) => (x.goes ? el("b", { class: "warn" }, "goes next") : x.stays || "");
    const limit = n.decision && (n.decision.gates || []).find((g) => g.name === "down.min-workers" && !g.passed);
    const says = limit ? `A scale-down takes no node: ${limit.value} would be left, and the minimum is ${limit.threshold}.` : list.some((x) => x.goes) ? "" : "The last decision names no node that could go.";
    const pools = n.pools ? [part("Pools", sheet(["pool", "#weight", "#nodes", "#Spot", "limits", "nothing is launched because", "its nodes"], n.pools.map((p) => [p.name, p.weight || 0, p.nodes, p.spot, p.limits, p.held ? el("span", { class: "warn" }, p.held) : "", p.lacks ? el("span", { class: "bad" }, p.lacks) : ""]), "No pool.", "pools"))] : [];
    if (!id) return ["Nodes", [], [...pools, part("Nodes", note(says), sheet(["node", "zone", ...(n.pools ? ["pool"] : []), "state", "type", "#age", "#pods", "#workers", "next scale-down", "a drain is blocked by"], list.map((x) => [ref("nodes", x.instance, x.name || x.instance), x.zone, ...(n.pools ? [x.pool || "none"] : []), [el("span", { class: "badge " + (NODE_STYLE[x.state] || "") }, x.state), x.fault ? el("span", { class: "bad" }, " " + x.fault) : null], [x.type, x.market].filter(Boolean).join(" "), x.launched ? since(x.launched) : "",
      x.room ? `${x.pods} of ${x.room}` : x.pods, on(x).length, fate(x) || "stays", x.note ? el("span", { class: "warn" }, x.note) : "nothing"]), "No nodes.", "nodes"), el("p", {}, el("a", { href: "#/decision" }, "The last decision")))]];
    const x = list.find((v) => v.instance === id || v.name === id);
    const here = on(x);
    return [(x && x.name) || id, [["nodes", "Nodes"]], [part((x && x.name) || id, x ? facts([["instance", x.instance], ["state", el("span", { class: "badge " + (NODE_STYLE[x.state] || "") }, x.state)], x.fault && ["fault", el("span", { class: "bad" }, x.fault)], x.fault && ["seen", x.faultSeen], x.fault && ["what to do", x.faultFix], ["zone", x.zone], x.pool && ["pool", x.pool], ["type", [x.type, x.market].filter(Boolean).join(" ")], x.launched && ["launched", `${stamp(x.launched)}, ${since(x.launched)} ago`],
      ["pods", x.room ? `${x.pods} of ${x.room}` : x.pods], x.costHour && ["cost", money(x.costHour) + " per hour"], x.deadline && ["reclaimed by the cloud", stamp(x.deadline)], x.protected && ["protected", "annotated against a scale-down"],
      ["next scale-down", fate(x) || says], ["a drain is blocked by", x.note ? el("span", { class: "warn" }, x.note) : "nothing"], ["*workers", ...join(here.map((w) => workerRef(w.id)))]]) : note(`No node ${id} is there now.`)), past()]];
  },
  decision() {
    const d = S.nodes && S.nodes.decision;
    if (!d) return ["Decision", [], [part("Decision", note("No decision yet."))]];
    const [style, what, why] = verdict(d), NAMES = { repair: "A scale-up to the minimum", up: "A scale-up", down: "A scale-down" };
    const pending = (S.nodes.pending || []).reduce((a, p) => a + p.count, 0);
    return ["Decision", [], [part("Why " + (d.action === "NOOP" ? "nothing is launched or removed" : "this is done"), el("p", { class: "verdict" }, el("b", { class: style }, what), why || ""),
      facts([["at", stamp(d.at)], ["reason", d.reason], ["pending pods", pending ? String(pending) : "none"], ["if nothing changes", d.then || "nothing is done"]]),
      ...(d.next || []).filter((p) => p.needs.length).map((p) => el("div", { "data-path": p.name }, el("h3", {}, `${NAMES[p.name] || p.name}: `, el("span", { class: "meta" }, p.earliest ? `at the earliest at ${stamp(p.earliest)}. It needs:` : "no waiting suffices. It needs:")), el("ul", {}, ...p.needs.map((n) => el("li", {}, n)))))),
      part("Gates", sheet(["", "gate", "value", "threshold"], (d.gates || []).map((g) => [el("span", { class: g.passed ? "good" : "warn", "aria-label": g.passed ? "passed" : "not passed" }, g.passed ? "✓" : "✗"), g.name, g.value, g.threshold]), "No gates.", "gates"))]];
  },
  chambers([tool, chamber]) { return [tool ? tool + ":" + chamber : "Chambers", tool ? [["chambers", "Chambers"]] : [], []]; }, // the panel shows it
  alarms([tool, chamber, run]) {
    const list = VIEW.data.alarms || [], all = VIEW.query.get("all"), path = (a) => [a.tool, a.chamber, a.run];
    const ack = (a) => (S.actions && a.state === "open" ? button("acknowledge", a.id, `Acknowledge the alarm of ${a.tool}:${a.chamber}`, `${a.text}. Acknowledging tells others that you are working on it. It does not end the alarm.`, "Acknowledge", "small") : null);
    const by = (a) => (a.by ? a.by + (a.note ? ": " + a.note : "") : "");
    if (!run) return ["Alarms", [], [fault("alarms"), part(all ? "All alarms" : "Alarms that are not cleared", sheet(["since", "state", "chamber", "run", "why", "acknowledged by"], list.map((a) => [el("time", { datetime: a.at }, stamp(a.at)), el("span", { class: a.state === "open" ? "bad" : "meta" }, a.state), ref("chambers", [a.tool, a.chamber]), ref("alarms", path(a), a.run), a.text, [by(a), ack(a)]]), "No alarms.", "alarms"),
      el("p", {}, el("a", { href: all ? "#/alarms" : "#/alarms?all=1" }, all ? "Only those that are not cleared" : "Also cleared ones")))]];
    const a = list.find((v) => path(v).join() === [tool, chamber, run].join()), r = VIEW.data.run;
    return [`Alarm ${tool}:${chamber} ${run}`, [["alarms", "Alarms"]], [part(`${tool}:${chamber}, run ${run}`, a ? facts([["state", el("span", { class: a.state === "open" ? "bad" : "meta" }, a.state)], ["since", `${stamp(a.at)}, ${since(a.at)} ago`], ["why", a.text], ["acknowledged by", by(a)], ["charts", ref("chambers", [tool, chamber])]]) : note("The alarm is not listed any more."), a ? ack(a) : null),
      r ? runPart(r) : fault("run"), past()]];
  },
  load(_, p) {
    const l = S.load || {}, n = S.nodes, w = S.workers || {}, h = S.health || {}, list = VIEW.data.load || [], drained = workersNow().filter((x) => x.drained && !x.failed && !x.slots).length;
    return ["Backlog and capacity", [], [fault("load"), part("Is capacity enough?", el("p", { class: "verdict " + (l.state === "not enough" ? "bad" : l.state === "behind" ? "warn" : "") }, l.text || "The load isn't measured here."),
      facts([["waiting", `${paras(l.waiting || 0)} messages`], ["oldest", !l.waiting || !l.oldest ? "none waits" : l.since ? `stored at ${stamp(l.oldest)}, ${since(l.oldest)} ago` : `waited for ${age(waited(l) * 1000)} when it was measured`], ["waiting for more than 2 s since", l.since ? `${stamp(l.since)}, for ${since(l.since)}` : "no message does"], ["arriving", paras(l.in) + " per second"], ["processed", paras(l.out) + " per second"],
        ["time to process one", typeof l.p50Ms === "number" ? `p50 ${pause(l.p50Ms)}, p99 ${pause(l.p99Ms)}` : "no message was processed"], ["workers", `${(h.serving || 0) - drained} of ${h.expected || 0} serve` + (drained ? `, ${drained} drained` : "")], n && ["nodes", `${(n.nodes || []).filter((x) => x.state === "ready").length} ready, at most ${n.max}`],
        n && ["room", (() => { const free = (n.nodes || []).reduce((s, x) => s + (x.state === "ready" && x.room ? Math.max(0, x.room - x.pods) : 0), 0); return `${plural(free, "pod")} more on the ready nodes`; })()]]),
      el("p", {}, el("a", { href: "#/plan?add=1" }, "Preview one more worker"))), part("The last hour", period("load", p), ...curves(list))]];
  },
  events(_, p) {
    const list = VIEW.data.events || [], load = VIEW.data.load || [];
    return ["Events", [], [part("What happened", period("events", p, field("about", { name: "about", value: p.get("about") || "", placeholder: "defender-7" }), field("contains", { name: "contains", value: p.get("contains") || "" })), note(`Times are local: ${new Date().toLocaleTimeString("en", { timeZoneName: "short" }).split(" ").pop()}.`), fault("events")),
      part(`${list.length}${list.length >= 1000 ? " newest" : ""} events`, eventTable(list)), p.get("about") ? null : part("Handoffs and takeovers", moveTable(VIEW.data.moves)), load.length > 1 ? part("Load", ...curves(load).slice(0, 2)) : null].filter(Boolean)];
  },
  plan(_, p) {
    const f = VIEW.data.plan, ratio = (v) => (v ? v.toFixed(2) : "–");
    const choice = (label, name) => el("label", {}, label + " ", el("select", { name }, el("option", { value: "" }, "none"), ...workersNow().filter((x) => !x.failed).sort(byNumber).map((x) => el("option", { value: x.id, ...(p.get(name) === x.id ? { selected: "" } : {}) }, x.id))));
    const head = part("What the next rebalance moves", form("plan", [choice("as if failed", "without"), choice("as if drained", "drain"), field("workers that join", { name: "add", type: "number", min: "0", max: "100", value: p.get("add") || "" })], "Preview"), fault("plan"),
      f ? [el("p", { class: "verdict" }, f.reasons.length ? `The leader would plan map version ${f.version}: ${f.reasons.join(", ")}.` : f.moves.length ? "The leader would not plan now." : "The leader would change nothing."),
        facts([["moves", `${f.moves.length} of ${plural(f.slots, "slot")}`], ["no balanced plan has fewer than", String(f.lower_bound)], ["load skew (max/mean)", `${ratio(f.worst_over_mean_before)}, after ${ratio(f.worst_over_mean)}`], f.in_motion && ["moving already", String(f.in_motion)]]), ...(f.notes || []).map(note)] : null);
    return ["Next rebalance", [], f ? [head, part("Moves", sheet(["slot", "from", "to", "#load", "why"], f.moves.slice(0, 500).map((m) => [ref("slots", m.slot), m.from ? workerRef(m.from) : "a failed worker", m.to, m.load, m.why || m.reason]), "No slot moves.", "plan")),
      part("Workers", sheet(["worker", "", "#slots", "#after", "#load", "#after"], f.workers.map((x) => [workerRef(x.id), x.what || "", x.slots_before, x.slots, x.load_before, x.load]), "No workers.", "planned"))] : [head]];
  },
};
const period = (name, p, ...more) => form(name, [field("from", { name: "from", type: "datetime-local", step: "1", value: localTime(p.get("from")) }), field("to", { name: "to", type: "datetime-local", step: "1", value: localTime(p.get("to")) }), ...more], "Show");

// runPart shows what a run was judged by: statistics with limits, contributions, charts outside limits, traces over earlier runs.
function runPart(r) {
  const m = r.multivariate, over = (v, limit) => el("span", { class: limit && v > limit ? "bad" : "" }, `${brief(v)}` + (limit ? ` (limit ${brief(limit)})` : ""));
  return part("The run", facts([["ended", stamp(r.end)], ["recipe", r.recipe], ["verdict", r.state + (r.reason ? ": " + r.reason : "")], ["score", over(r.score, r.scoreLimit)], m && ["T²", over(m.t2, m.t2Limit)], m && ["Q", over(m.q, m.qLimit)], ["charts outside their limits", String(r.violated)]]),
    m && m.by.length ? [el("h3", {}, "Contributions"), sheet(["sensor", "step", "statistic", "#share", ""], m.by.map((b) => [b.svid, b.step, b.stat, (b.share * 100).toFixed(1) + " %", bar(Math.abs(b.share))]), "", "contributions")] : null,
    r.violations.length ? [el("h3", {}, "Outside their limits"), sheet(["sensor", "step", "statistic", "#value", "#lower", "#upper", "#sigmas"], r.violations.map((v) => [v.svid, v.step, v.stat, brief(v.value), brief(v.lower), brief(v.upper), v.sigmas.toFixed(1)]), "", "violations")] : null,
    ...r.overlays.map(overlay));
}
function overlay(o) {
  const W = pageWidth(), H = 180, left = 58, right = 8, top = 8, bottom = 20, all = o.traces.flatMap((t) => t.values.filter((v) => v !== null)), ends = o.traces.map((t) => t.seconds[t.seconds.length - 1] || 0);
  if (!all.length) return note(`No trace of ${o.svid} is stored.`);
  let lo = Math.min(...all), hi = Math.max(...all); if (hi === lo) { hi += 1; lo -= 1; }
  const end = Math.max(1e-9, ...ends), x = (s) => left + (s / end) * (W - left - right), y = (v) => top + (1 - (v - lo) / (hi - lo)) * (H - top - bottom);
  const mine = o.traces[o.traces.length - 1];
  return el("div", { class: "chart overlay", "data-overlay": o.svid }, el("h4", {}, `${o.svid} `, el("span", { class: "key b" }, "run " + mine.run), el("span", { class: "key other" }, `${plural(o.traces.length - 1, "earlier run")}, not flagged`)),
    svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${o.svid} in run ${mine.run} over ${o.traces.length - 1} earlier runs` }, ...o.traces.flatMap((t) => strokes(t === mine ? "line b" : "line other", t.values, (i) => x(t.seconds[i]), y)),
      label(left - 5, y(hi) + 8, "end", brief(hi)), label(left - 5, y(lo), "end", brief(lo)), label(left, H - 4, "start", "0 s"), label(W - right, H - 4, "end", brief(end) + " s")));
}

// ---- drawing and addresses

function drawView() {
  if (!VIEW.name) return;
  const [title, path, parts] = pages[VIEW.name](VIEW.args, VIEW.query);
  VIEW.title = title;
  const crumbs = [el("a", { href: "#/" }, "Overview"), ...path.map(([name, text]) => el("a", { href: "#/" + name }, text)), el("span", { "aria-current": "page" }, title)];
  fill($("crumbs"), [[JSON.stringify([VIEW.hash, title]), () => el("span", {}, ...crumbs.flatMap((c, i) => (i ? [" › ", c] : [c])))]]);
  show(parts.filter(Boolean));
  draw("head");
}
let shown = { hash: "", parts: [] };
// show puts the parts of a page into the document. A part that says the same stays the element that it is, and so does one that a
// person writes into. What is replaced keeps its place of scrolling and the keyboard's.
function show(made) {
  const active = document.activeElement, inside = $("detail").contains(active), old = shown.hash === VIEW.hash ? shown.parts : [];
  const writing = (e) => inside && e.contains(active) && active.matches("input, select");
  const parts = made.map((e, i) => (old[i] && (writing(old[i]) || old[i].outerHTML === e.outerHTML) ? old[i] : e));
  const scrolled = old.map((e) => [...e.querySelectorAll(".scroll")].map((x) => x.scrollTop));
  const href = inside && active.getAttribute("href");
  shown = { hash: VIEW.hash, parts };
  fill($("detail"), parts.map((e) => [e, () => e]));
  parts.forEach((e, i) => e !== old[i] && e.querySelectorAll(".scroll").forEach((x, n) => { x.scrollTop = (scrolled[i] || [])[n] || 0; }));
  const link = href && !active.isConnected && $("detail").querySelector(`a[href="${CSS.escape(href)}"]`);
  if (link) link.focus({ preventScroll: true });
}

// route shows the page of the address. An address without a page, such as #workers, is a panel of the overview.
function route() {
  const hash = location.hash, [path, query] = hash.startsWith("#/") ? hash.slice(2).split("?") : ["", ""];
  const [name, ...args] = path.split("/").map(decode);
  VIEW.name = Object.hasOwn(pages, name) ? name : "";
  Object.assign(VIEW, { args, query: new URLSearchParams(query || ""), data: {}, faults: {}, asked: false, hash, title: "" });
  document.body.dataset.view = VIEW.name;
  document.body.dataset.one = args.length ? "1" : "";
  $("detail").hidden = $("crumbs").hidden = !VIEW.name;
  for (const a of document.querySelectorAll("#views a")) { if (a.getAttribute("href") === "#/" + VIEW.name) a.setAttribute("aria-current", "page"); else a.removeAttribute("aria-current"); }
  draw(...Object.keys(panels));
  if (VIEW.name === "chambers" && args[1]) { if (!S.chart || S.chart.tool !== args[0] || S.chart.chamber !== args[1]) S.chart = null; openChamber(args[0], args[1]); }
  if (VIEW.name) { scrollTo(0, 0); askFor(); return; }
  const panel = hash.length > 1 && !hash.startsWith("#/") && document.getElementById(hash.slice(1));
  if (panel) requestAnimationFrame(() => panel.scrollIntoView({ block: "start" }));
}
function decode(text) { try { return decodeURIComponent(text); } catch { return text; } }
addEventListener("hashchange", route);

// found turns what a person searches for into an address.
function foundAt(text) {
  const has = (list, f) => (list || []).find(f), slot = /^(?:slot\s*)?(\d+)$/i.exec(text);
  const node = has(S.nodes && S.nodes.nodes, (n) => n.instance === text || n.name === text);
  if (has(workersNow(), (w) => w.id === text)) return at("workers", text);
  if (node) return at("nodes", node.instance);
  if (slot) return at("slots", slot[1]);
  if (S.lookups.includes("key") && /[:.]/.test(text)) return at("keys", text);
  return "#/events?about=" + q(text);
}
$("goto").addEventListener("submit", (ev) => { ev.preventDefault(); const text = $("goto-text").value.trim(); if (text) { location.hash = foundAt(text); $("goto-text").value = ""; } });

$("slots").addEventListener("click", (ev) => { const s = slotAt(ev); if (s >= 0) location.hash = at("slots", s); });
route();
feed.join();
