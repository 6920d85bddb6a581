// Front end of panel.py. No imports: it works offline. Python writes, this draws.
// Text goes in as text nodes; `nodesOf` is the one place where HTML becomes nodes (D14).

export const TRAITS = ["schema", "status", "final", "channel"];
export const OPS = ["d", "tail", "block", "reset", "row", "state", "full", "end", "hi"];
export const SAYS = ["hello", "stop", "resync", "answer"];
export const SCHEMA = 1;
// r = right-aligned; w2, then w1 go where there is no room
export const COLUMNS = [["turn", "r"], ["model", ""], ["outcome", ""], ["stop reason", "w1"], ["in", "r"], ["out", "r"],
	["context est.", "r w1"], ["attempts", "r w2"], ["tool calls", "r w2"], ["first text s", "r w2"], ["s", "r"]];
const STATES = [["policy", "CheckingPolicy", "may this turn run?"], ["context", "BuildingContext", "the request is put together"],
	["model", "CallingModel", "the model answers"], ["response", "ProcessingResponse", "its answer is read"],
	["tools", "ExecutingTools", "the tools it asked for run"], ["persist", "Persisting", "the turn is written down"]];
const ROWS = 200, HELLO_MS = 1000;

// ---- a pure reducer over messages

export const fresh = () => ({seq: 0, run: "", items: [], tail: "", rows: [], s: null, lost: false, over: false});

/** Folds one message into the store. Returns what a view must draw anew, or "resync" / "". */
export function fold(store, msg) {
	const whole = msg.ops.find((op) => op.t === "full" || op.t === "end");
	if (msg.seq <= store.seq) return ""; // doubled or late
	if (!whole && (msg.seq !== store.seq + 1 || store.lost || !store.s)) {
		if (msg.ops.every((op) => op.t === "hi")) return note(store, msg, []);
		store.lost = true; // ask for all of it
		return "resync";
	}
	return note(store, msg, msg.ops);
}

function note(store, msg, ops) {
	const dirty = {items: [], hi: msg.ops.filter((op) => op.t === "hi")};
	if (ops.length) store.seq = msg.seq;
	for (const op of ops) {
		const step = STEPS[op.t];
		if (step && step(store, op, dirty) === false) { store.lost = true; return "resync"; }
	}
	return dirty;
}

function whole(store, op, dirty) {
	const f = op.full;
	Object.assign(store, {run: f.run, items: f.items.slice(), tail: f.tail, rows: f.rows.slice(), s: f.state, lost: false, over: op.t === "end"});
	dirty.all = true;
}

const STEPS = {
	full: whole, end: whole,
	d(store, op, dirty) {
		if (op.lane === "thinking") {
			const one = store.items[op.index];
			if (!one || one.text.length !== op.offset) return false;
			one.text += op.text; one.line = op.line; dirty.items.push(op.index);
		} else {
			if (store.tail.length !== op.offset) return false;
			store.tail += op.text; dirty.tail = true;
		}
	},
	tail(store, op, dirty) { store.tail = op.text; dirty.tail = true; },
	block(store, op, dirty) {
		if (op.index > store.items.length) return false;
		store.items[op.index] = op.item; dirty.items.push(op.index);
	},
	reset(store, op, dirty) { store.items.length = Math.min(store.items.length, op.keep); store.tail = ""; dirty.tail = true; dirty.cut = true; },
	row(store, op, dirty) { store.rows.push(op.row); if (store.rows.length > ROWS) store.rows.shift(); dirty.rows = true; },
	state(store, op, dirty) { store.s = op.state; dirty.state = true; },
};

// ---- pure parts

export const secondsOf = (left) => (left < 1 ? Math.max(0, left).toFixed(1) : String(Math.ceil(left))) + " s";
export const clockOf = (s, done) => (done ? s.toFixed(1) : String(Math.floor(s))) + " s";
export const total = (g) => g.system + g.tools + g.transients + g.history;
export const percent = (g) => (g.window ? Math.round(100 * total(g) / g.window) : null);
const now = () => performance.now(), num = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ",");
export const wordsOf = (text) => (text.match(/\S+/g) || []).length;

/** What the unfinished text seems to become, and the text without its mark. */
export function shape(tail) {
	let m = tail.match(/^\s{0,3}(`{3,}|~{3,})[^\n]*(\n|$)/);
	if (m) return {tag: "pre", text: tail.slice(m[0].length).replace(/\n[`~]*$/, "")};
	if ((m = tail.match(/^\s{0,3}(?:[-*+]|(\d{1,9})[.)])[ \t]+(?=\S)/))) return {tag: m[1] ? "ol" : "ul", start: m[1], text: tail.slice(m[0].length)};
	if ((m = tail.match(/^\s{0,3}(#{1,6})[ \t]+(?=\S)/))) return {tag: "h" + Math.min(6, m[1].length + 2), text: tail.slice(m[0].length)};
	return {tag: "p", text: tail};
}

/** Bold and code, as [kind, text]; the last one may still be open. */
export function inline(text) {
	const out = [], re = /`([^`\n]+)(?:`|$)|\*\*(?!\s)([^*\n]+)(?:\*\*|\*?$)/g;
	let at = 0;
	for (const m of text.matchAll(re)) {
		out.push(["", text.slice(at, m.index)], m[1] ? ["code", m[1]] : ["b", m[2]]);
		at = m.index + m[0].length;
	}
	return [...out, ["", text.slice(at)]].filter((p) => p[1]);
}

// ---- nodes

const TAGS = {code: "code", b: "strong"};
/** "tag.classes" (span by default), then children, and objects of attributes and listeners. */
export function h(spec, ...parts) {
	const [tag, cls] = spec.split(/\.(.*)/), el = document.createElement(tag || "span");
	if (cls) el.className = cls;
	return add(el, parts);
}
function add(el, parts) {
	for (const part of parts.flat(3)) {
		if (part == null || part === false || part === "") continue;
		if (typeof part !== "object" || part.nodeType) { el.append(part); continue; }
		for (const k in part) {
			if (k.startsWith("on")) el.addEventListener(k.slice(2), part[k]);
			else if (part[k] != null) el.setAttribute(k, part[k]);
		}
	}
	return el;
}
const fill = (el, ...parts) => { el.replaceChildren(); return add(el, parts); };

const C = (r) => `M${6 - r} 6a${r} ${r} 0 1 1 ${2 * r} 0a${r} ${r} 0 1 1-${2 * r} 0z`;
const HALF = "M1.2 1.2h9.6v9.6H1.2z";
// name -> paths [d, stroke width or 0 = filled, dash]
const SHAPES = {
	connecting: [[C(4.6), 1.7, "3.6 2.2"]], streaming: [[C(5.2), 0]], "running tools": [["M6 .2 11.8 6 6 11.8 .2 6z", 0]],
	waiting: [[C(5.1), 1.6], ["M6 3v3.2l2 1.3", 1.6]], "attempt reset": [["M10.7 7.4A5 5 0 1 1 9.9 3M10.4 .4v3H7.4", 1.7]],
	compacting: [["M1 .8 6 4.6 11 .8M1 11.2 6 7.4l5 3.8", 1.8]], completed: [["M1 6.6 4.5 10 11 2.4", 2.1]],
	rescued: [[C(5.1), 1.6], [C(2), 1.6]], cancelled: [[HALF, 0]], failed: [["M1.6 1.6l8.8 8.8M10.4 1.6 1.6 10.4", 2.1]],
	half: [[HALF, 1.5], ["M1.2 1.2H6v9.6H1.2z", 0]],
	primary: [[C(5.1), 0]], fallback: [[C(5.1), 1.4], ["M6 .9a5.1 5.1 0 0 1 0 10.2z", 0]],
	recovering: [[C(5.1), 1.4], ["M6 6V.9A5.1 5.1 0 1 1 .9 6z", 0]], serves: [["M2.5 1.2 10 6l-7.5 4.8z", 0]],
};
export const shapeOf = (word) => (SHAPES[word] ? word : /^(rejected|limit|token b|not run|time)/.test(word) ? "failed" : word === "stopped" ? "cancelled" : "half");
const SVG = "http://www.w3.org/2000/svg";
function icon(name, cls) {
	const el = document.createElementNS(SVG, "svg");
	add(el, [{viewBox: "0 0 12 12", "aria-hidden": "true", class: cls}]);
	for (const [d, w, dash] of SHAPES[shapeOf(name)]) {
		const p = document.createElementNS(SVG, "path");
		add(p, [{d, fill: w ? "none" : "currentColor"}]);
		el.append(w ? add(p, [{stroke: "currentColor", "stroke-width": w, "stroke-dasharray": dash}]) : p);
	}
	return el;
}

const ALLOWED = /^(p|br|strong|em|s|code|pre|ul|ol|li|blockquote|h[3-6]|table|thead|tbody|tr|th|td|hr|a)$/;
/** The kernel's cleaned HTML as nodes, checked once more. */
export function nodesOf(html) {
	const doc = new DOMParser().parseFromString(html, "text/html"), out = document.createDocumentFragment();
	for (const el of doc.body.querySelectorAll("*")) {
		if (!ALLOWED.test(el.localName)) { el.replaceWith(el.textContent); continue; }
		for (const {name, value} of [...el.attributes])
			if (!(name === "start" || name === "align" || (name === "href" && /^(https?:|mailto:)/i.test(value)))) el.removeAttribute(name);
		if (el.localName === "a") { el.rel = "noopener noreferrer nofollow"; el.target = "_blank"; }
		if (/^(table|pre)$/.test(el.localName)) el.tabIndex = 0;
	}
	out.append(...document.importNode(doc.body, true).childNodes);
	return out;
}
const rich = (words) => words.map(([kind, text]) => (kind === "wait" ? h(".na-wait num", text) : kind ? h(TAGS[kind], {}, text) : text));
const name = (model) => h(/^scripted(:|$)/.test(model) ? ".na-tag" : "code", {title: model}, model || "no model");
const pips = (n, of, cls) => h(".na-pips", {"aria-hidden": "true"}, Array.from({length: Math.min(of, 8)}, (_, i) => h("i", {class: i < n ? "x " + cls : ""})));

const TONE = {finished: "t-ok", running: "t-live", failed: "t-bad"};
const MARK = {finished: "completed", running: "running tools", queued: "connecting", writing: "connecting"};
/** One item of the flow; `old` is its node. */
function item(one, old) {
	if (one.k === "text") return h("div.na-block" + (one.li ? " na-li" : ""), {tabindex: -1, dir: "auto"}, nodesOf(one.html));
	if (one.k === "note") return h("div.na-line", h("div.row", icon(one.mark, "t-" + one.tone), h(".grow wrap", rich(one.words))));
	if (one.k === "thinking") {
		const el = old || h("details.na-line", h("summary", h(".num")), h("div.in think"));
		el.querySelector(".num").textContent = "thinking · " + one.line;
		grow(el.querySelector(".in"), one.text);
		return el;
	}
	if (one.k === "void")
		return h("details.na-line na-void", h("summary", icon("attempt reset", "t-wait"), h(".grow", one.line)), h("div.in", one.text));
	const el = old || h("details.na-line na-tool", h("summary"), h("div.in na-kv",
		"arguments", h("pre", {tabindex: 0}), "result", h("pre", {tabindex: 0})));
	const mark = MARK[one.status] || one.status;
	el.since = one.status === "running" ? el.since || now() : 0;
	fill(el.firstChild, icon(mark, TONE[one.status] || "t-wait"), h("code.grow", {title: one.call}, one.call), h(".num end", one.word));
	const [args, result] = el.querySelectorAll("pre");
	args.textContent = one.args; result.textContent = one.result || (one.word.includes(" s") ? "nothing" : "not yet");
	return el;
}
/** Text that grows at its end: one text node. */
function grow(el, text) {
	const had = el.firstChild ? el.firstChild.data : "";
	if (el.childNodes.length === 1 && text.startsWith(had)) el.firstChild.appendData(text.slice(had.length));
	else fill(el, document.createTextNode(text));
}

function breakerView(s) {
	const b = s.breaker, row = (m, on, p, n) => h("li", {class: on ? "on" : ""}, on ? icon("serves", "who") : h(""), h(".m", name(m)), p, h(".n num", n));
	const primary = b.state === "primary", back = b.state === "fallback" && b.serves !== b.primary;
	return [h("h4", icon(b.state), "breaker: " + b.state, h("", primary ? (b.chain.length ? "primary serves" : "no chain") : back ? "a backup serves" : b.state === "fallback" ? "primary keeps serving" : "probing the primary")),
		h("ul.na-chain",
			b.state === "recovering" ? row(b.primary, true, pips(b.probes, b.needed, "g"), `probes ${b.probes}/${b.needed}`) : row(b.primary, !back, pips(b.failures, b.trip_at, "w"), `failures ${b.failures}/${b.trip_at}`),
			b.chain.map(([m, n, of, ok]) => row(m, back && b.serves === m, pips(n, of, "w"), ok ? `strikes ${n}/${of}` : "off"))),
		s.cooldown != null ? h("div.na-cool", h("", "cooldown: next probe of ", h("code", b.primary)), h(".num na-cd"), h("i")) : null];
}
const SEGMENTS = [["sys", "system"], ["tools", "tools"], ["trans", "transients"], ["hist", "history"]];
function gaugeView(s) {
	const g = s.gauge, t = total(g), p = percent(g), of = g.window || Math.max(t, 1), over = p != null && p >= g.trigger;
	const line = (at, cls, word) => h("i", {class: "na-lim " + cls, style: `left:${at}%`}, h("b", `${word} ${at} %`));
	return [h("h4", "context ", g.exact ? null : h("abbr", {title: "estimated, never under-counted"}, "est."),
		h(".num", h("b", {class: over ? "t-wait" : "ink"}, num(t)), g.window ? ` of ${num(g.window)} · ${p} %` : " · window unknown", over ? " · past trigger" : "")),
	h("div.na-gauge", { role: "img", "aria-label": `context ${g.exact ? "" : "estimate "}${num(t)}${g.window ? ` of ${num(g.window)} tokens, ${p} percent; trigger at ${g.trigger}, emergency at ${g.emergency} percent` : " tokens, window unknown"}` },
		h("div.na-bar", SEGMENTS.map(([k, n]) => h("i", {class: "c-" + k, style: `width:${100 * g[n] / of}%`}))),
		g.window ? [line(g.trigger, "t", "trigger"), line(g.emergency, "e", "emergency")] : null),
	h("ul.na-key", [0, 3, 1, 2].map((i) => h("li", h("i.c-" + SEGMENTS[i][0]), SEGMENTS[i][1], h(".num", num(g[SEGMENTS[i][1]])))))];
}
const cell = (v, i) => h("td", {class: COLUMNS[i][1]}, i === 1 ? name(v) : v === "?" ? h(".u", {title: "not reported by the provider"}, "?") : i === 6 && v !== "—" ? [h("abbr", {title: "estimated by our counter"}, "est."), " " + v] : v);

// ---- one view

export function makeView(store, el, say) {
	const d = {}, P = (key, ...spec) => (d[key] = h(...spec));
	const nonce = Math.random().toString(36).slice(2);
	let items = [], base = 0, road = "", spoken = 0, timer = 0, last = {}, helloTimer = 0;
	const hide = {"aria-hidden": "true"};
	const root = h("section.na", {"aria-label": "agent panel"}, P("p", "div.na-p",
		h("header.na-head", P("status", ".na-status", hide), P("say", ".sr", {role: "status"}), P("model", ".na-model"), P("mark", ".na-mark"),
			P("brk", ".na-mini na-brk"), P("word", ".na-word", hide), P("fsm", "ol.na-fsm"), P("ctx", ".na-mini na-ctx", {title: "context"}),
			P("clock", ".na-clock num"), P("stop", ".na-stop")),
		h("div.na-main", P("flow", "div.na-flow",
			P("reply", "div.na-reply", {role: "log", "aria-live": "off", "aria-label": "reply", tabindex: -1, dir: "auto"}),
			P("ask", "div.na-ask", {role: "group", "aria-label": "approval"}), P("error", "p.na-error"), P("line", "p.na-tail"))),
		P("more", "button.na-more", { type: "button", "aria-expanded": false, onclick() {
			const open = d.p.dataset.open !== "yes";
			d.p.dataset.open = open ? "yes" : "no"; d.more.setAttribute("aria-expanded", open);
		} }, "machinery: states, context, breaker"),
		h("aside.na-mach", {"aria-label": "machinery"}, h("section.na-sec na-states", P("path", "ol.na-path")),
			P("gauge", "section.na-sec", { title: "Tokens of the next request in the model's window; past the trigger history is compacted" }),
			P("speed", "p.na-speed num"),
			P("breaker", "section.na-sec brk", { title: "After so many failed turns in a row a backup answers; after a pause the primary is probed" })),
		h("details.na-foot", P("foot", "summary"), h("div.na-scroll", {tabindex: 0, role: "region", "aria-label": "audit table"},
			h("table", h("thead", h("tr", COLUMNS.map(([n, c]) => h("th", {scope: "col", class: c}, n)))), P("rows", "tbody"))))));
	root.addEventListener("keydown", (e) => { // the panel's keys; all others are the notebook's
		const own = e.target.closest("button, summary, a") ? ["Enter", " "] : e.target.closest("[tabindex='0']") ? ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"] : [];
		if (own.includes(e.key)) e.stopPropagation();
	});
	let tail = h("div.na-live");
	const caret = h(".na-caret", hide);
	fill(d.status, icon("connecting"), "connecting"); // never an empty box
	el.append(root);

	// only what changed is drawn
	const once = (key, value, draw) => { const v = JSON.stringify(value); if (last[key] !== v) { last[key] = v; draw(); } };

	function drawItems(from) {
		for (const i of from) {
			const one = store.items[i], was = items[i], json = JSON.stringify(one);
			if (was && was.json === json) continue;
			const made = item(one, was && was.k === one.k && (one.k === "thinking" || one.k === "tool") ? was.el : null);
			if (was) { if (was.el !== made) was.el.replaceWith(made); } else d.reply.insertBefore(made, tail.parentNode === d.reply ? tail : null);
			items[i] = {k: one.k, el: made, json};
		}
	}
	function drawTail() {
		if (!store.tail.trim() || store.over) { tail.remove(); last.tail = ""; return; }
		const {tag, text, start} = shape(store.tail), long = text.length > 4000, inner = /^(pre|[uo]l)$/;
		const key = tag + long;
		let box = last.tail === key && tail.firstChild;
		if (!box) {
			box = h(tag, {start, dir: "auto"}, inner.test(tag) && h(tag === "pre" ? "code" : "li")); last.tail = key; fill(tail, box);
			tail.className = "na-live" + (/l$/.test(tag) ? " na-li" : "");
		}
		const into = inner.test(tag) ? box.firstChild : box;
		caret.style.opacity = +!store.s.done;
		if (tag === "pre" || long) { caret.remove(); grow(into, text); into.append(caret); } else fill(into, rich(inline(text)), caret);
		into.classList.toggle("raw", /\n\s*(?:[-*+|>]|\d+[.)])/.test(text));
		if (tail.parentNode !== d.reply || tail.nextSibling) d.reply.append(tail);
	}
	function drawRows() { fill(d.rows, store.rows.length ? store.rows.map((r) => h("tr", r.map(cell))) : h("tr", h("td", {colspan: COLUMNS.length}, "no turn yet"))); }

	function drawState() {
		const s = store.s; if (!s) return;
		base = now() - s.clock * 1000;
		const b = s.breaker, g = s.gauge, p = percent(g), live = STATES[s.at], mark = s.marks[s.at];
		Object.assign(d.p.dataset, {status: s.status, breaker: b.state, shape: shapeOf(s.status), pulse: !s.done && !store.tail ? "yes" : "no"});
		for (const [key, word] of [["status", s.status], ["brk", b.state]]) once(key, word, () => fill(d[key], icon(word), h("", word)));
		once("model", s.model, () => fill(d.model, name(s.model)));
		once("fsm", [s.at, s.seen, s.bad, s.marks], () => {
			const cls = (i) => (i === s.bad ? "bad" : i === s.at ? "now" : s.seen.includes(i) ? "seen" : "");
			const at = (i) => ({class: cls(i), title: STATES[i][1] + ": " + STATES[i][2], "aria-current": i === s.at ? "step" : null});
			d.fsm.setAttribute("aria-label", live ? "state: " + live[1] : "states visited");
			fill(d.fsm, STATES.map(([k], i) => h("li", at(i), h("i.na-dot"), h("b", {"data-w": k}, k))));
			fill(d.path, STATES.map(([k, long], i) => h("li", at(i), h(".at", h("i.na-dot")), h("b", h(".long", long), h(".short", k)))));
			const bad = STATES[s.bad];
			d.word.className = "na-word" + (live ? "" : " off");
			fill(d.word, (live || bad || "")[0]);
			fill(d.mark, mark);
		});
		once("gauge", g, () => {
			const over = p != null && p >= g.trigger;
			fill(d.gauge, gaugeView(s));
			fill(d.ctx, p != null && [h(".na-bar", h("i", {class: over ? "c-over" : "c-one", style: `width:${Math.min(p, 100)}%`}), h("i.na-tick", {style: `left:${g.trigger}%`})), h(".num", p + " %")]);
		});
		once("breaker", [b, s.cooldown != null], () => fill(d.breaker, breakerView(s)));
		once("foot", [s.model, s.foot], () => fill(d.foot, h("", name(s.model), h(".num wrap", " · " + s.foot.join(" · "))), h(".hint", "audit: a row per turn")));
		d.speed.textContent = s.speed;
		once("line", [s.line, s.mark, s.clipped, s.notices], () => {
			const note = s.clipped && ["The view holds no more text; the whole is in ", h("code", "result.text"), ". "];
			fill(d.line, !!(note || s.line.length || s.notices.length) && [!!s.line.length && s.mark && icon(s.mark === "connecting" ? s.status : s.mark), h("", note, rich(s.line), s.notices.map((n) => [h("br"), n]))]);
		});
		once("ask", s.ask, () => { // may this call run? The kernel asks here only if clicks arrive (D20)
			const ask = s.ask;
			fill(d.ask, ask && [h("", "Allow ", h("code", ask.call), "?"), [true, false].map((allow) => h("button", { type: "button", onclick() {
				say({t: "answer", run: store.run, n: ask.n, allow});
				fill(d.ask, h("", allow ? "allowed" : "denied")); d.reply.focus();
			} }, allow ? "Allow" : "Deny"))]);
		});
		once("error", s.error, () => { fill(d.error, s.error.map((t, i) => (i ? [h("br"), t] : h("strong", t)))); });
		d.waitEnd = s.wait == null ? null : now() + s.wait * 1000;
		d.coolEnd = s.cooldown == null ? null : now() + s.cooldown * 1000;
		speak(s); drawStop(); tick();
	}
	function speak(s) { // every two seconds
		clearTimeout(d.speak);
		const words = s.done ? `${s.status}, ${wordsOf(d.reply.textContent)} words` : s.ask ? `allow ${s.ask.call}?` : s.status;
		if (d.say.textContent === words) return;
		d.speak = setTimeout(() => { spoken = Date.now(); d.say.textContent = words; }, Math.max(0, spoken + 2000 - Date.now()));
	}
	function tick() {
		const s = store.s; if (!s) return;
		const put = (node, text) => { if (node && node.textContent !== text) node.textContent = text; };
		put(d.clock, clockOf(s.done ? s.clock : (now() - base) / 1000, s.done));
		if (d.waitEnd) { const left = (d.waitEnd - now()) / 1000; if (s.wait >= 1) put(d.line.querySelector(".na-wait"), " in " + secondsOf(Math.max(left, 0))); }
		for (const it of items) if (it.el.since) put(it.el.querySelector(".end"), "running " + clockOf((now() - it.el.since) / 1000));
		const cd = d.breaker.querySelector(".na-cd");
		if (cd && d.coolEnd) { const left = Math.max(0, (d.coolEnd - now()) / 1000); put(cd, "in " + secondsOf(left)); cd.nextSibling.style.setProperty("--v", 100 - 100 * left / (s.breaker.pause || 60) + "%"); }
	}
	function drawStop() {
		const s = store.s, mode = !s || s.done ? "none" : road;
		if (last.stop === mode) return;
		const focus = d.stop.contains(document.activeElement);
		last.stop = mode; d.p.dataset.stop = mode || "wait";
		if (mode === "button") fill(d.stop, h("button", { type: "button", onclick: () => { if (road !== "button") return; road = "stopping"; drawStop(); say({t: "stop", run: store.run}); } }, icon("cancelled"), "Stop"));
		else if (mode === "stopping") { const btn = d.stop.querySelector("button"); if (btn) { btn.setAttribute("aria-disabled", "true"); fill(btn, "stopping"); } }
		else fill(d.stop, mode === "line" && h("", "stop with ", h("kbd", "Kernel > Interrupt")));
		if (focus && mode === "none") d.reply.focus();
	}
	function greet() { // can a click get there in time?
		road = ""; last.stop = null; clearTimeout(helloTimer);
		d.stop.style.display = store.s && store.s.done ? "none" : "";
		const page = document.getElementById("jupyter-config-data");
		say({t: "hello", nonce, schema: SCHEMA, versions: page ? {jupyter: JSON.parse(page.textContent).appVersion} : {}});
		helloTimer = setTimeout(() => { if (!road) { road = "line"; drawStop(); } }, HELLO_MS);
	}
	let run = null;
	const view = {
		draw(dirty) {
			for (const hi of dirty.hi) if (hi.nonce === nonce && hi.stop && !road) { road = "button"; clearTimeout(helloTimer); drawStop(); }
			if (store.run !== run && store.s) { if (run !== null) greet(); run = store.run; d.flow.style.minHeight = ""; }
			if (dirty.cut || dirty.all) {
				if (d.flow.isConnected && items.length) d.flow.style.minHeight = d.flow.offsetHeight + "px";
				for (const one of items.splice(store.items.length)) one.el.remove();
			}
			drawItems(dirty.all ? store.items.keys() : dirty.items);
			if (dirty.items.length || dirty.all) { tail.remove(); tail = h("div.na-live"); last.tail = ""; }
			if (dirty.tail || dirty.all || dirty.items.length) drawTail();
			if (dirty.rows || dirty.all) drawRows();
			if (dirty.state || dirty.all) drawState();
		},
		close() { clearInterval(timer); clearTimeout(helloTimer); clearTimeout(d.speak); root.remove(); },
	};
	timer = setInterval(tick, 250);
	greet();
	run = store.s ? store.run : null;
	view.draw({items: [], hi: [], all: true});
	return view;
}

// ---- anywidget

const STORES = new WeakMap();
/** One per model, listening from `initialize` on (F2). */
function storeOf(model) {
	let it = STORES.get(model);
	if (it) return it;
	it = {store: fresh(), views: new Set(), asked: 0};
	STORES.set(model, it);
	const final = model.get("final");
	if (final && final.state && final.schema <= SCHEMA) fold(it.store, {seq: 0.5, ops: [{t: "end", full: final}]});
	const name = model.get("channel"); // JupyterLite (F6)
	it.channel = name ? new BroadcastChannel(name) : null;
	it.say = (what) => {
		it.channel?.postMessage(what);
		try { model.send(what); } catch { /* no kernel */ }
	};
	it.heard = (msg) => {
		if (!msg || !Array.isArray(msg.ops)) return;
		const dirty = fold(it.store, msg);
		if (dirty === "resync") { if (Date.now() - it.asked > 500) { it.asked = Date.now(); it.say({t: "resync", seq: it.store.seq}); } }
		else if (dirty) for (const view of it.views) view.draw(dirty);
	};
	model.on("msg:custom", it.heard);
	model.on("comm_live_update", () => { // the kernel is gone
		const {store} = it, line = [["", "the kernel was restarted"]];
		if (store.s && !store.s.done) it.heard({seq: store.seq + 1, ops: [{t: "full", full: {...store, state: {...store.s, status: "cancelled", done: true, line}}}]});
	});
	return it;
}
function initialize({model}) {
	const it = storeOf(model);
	return () => { model.off("msg:custom", it.heard); it.channel?.close(); STORES.delete(model); };
}
function render({model, el}) {
	const it = storeOf(model), view = makeView(it.store, el, it.say);
	it.views.add(view);
	return () => { it.views.delete(view); view.close(); };
}
export default {initialize, render};
