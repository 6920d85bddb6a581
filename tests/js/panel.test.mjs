// node --test tests/js : the panel's pure parts, and its drawing over a tiny stand-in for the DOM.
import assert from "node:assert/strict";
import test from "node:test";

import panel, { COLUMNS, OPS, SAYS, clockOf, fold, fresh, inline, percent, secondsOf, shape, shapeOf, wordsOf } from "../../notebook_agent/notebook/static/panel.js";

const state = (over = {}) => ({ status: "streaming", model: "a:b", done: false, clock: 1, ...over });
const full = (over = {}) => ({ t: "full", full: { run: 1, schema: 1, items: [], tail: "", rows: [], state: state(), ...over } });
const started = () => { const store = fresh(); fold(store, { seq: 1, ops: [full()] }); return store; };
const d = (offset, text) => ({ t: "d", lane: "text", offset, text });

test("deltas append, blocks land, rows and state follow", () => {
  const store = started();
  const dirty = fold(store, { seq: 2, ops: [d(0, "ab"), { t: "row", row: ["0"] }, { t: "state", state: state({ status: "waiting" }) }] });
  assert.deepEqual([store.tail, store.rows.length, store.s.status], ["ab", 1, "waiting"]);
  assert.ok(dirty.tail && dirty.rows && dirty.state);
  fold(store, { seq: 3, ops: [{ t: "block", index: 0, item: { k: "text", html: "<p>ab</p>" } }, { t: "tail", text: "c" }] });
  assert.equal(store.items[0].html, "<p>ab</p>");
  assert.equal(store.tail, "c");
});

test("thinking grows in place", () => {
  const store = fresh();
  fold(store, { seq: 1, ops: [full({ items: [{ k: "thinking", text: "hm", line: "x" }] })] });
  fold(store, { seq: 2, ops: [{ t: "d", lane: "thinking", index: 0, offset: 2, text: " ok", line: "y" }] });
  assert.deepEqual(store.items[0], { k: "thinking", text: "hm ok", line: "y" });
});

test("a reset voids items and tail", () => {
  const store = started();
  fold(store, { seq: 2, ops: [{ t: "block", index: 0, item: { k: "text" } }, { t: "block", index: 1, item: { k: "text" } }, d(0, "zz")] });
  const dirty = fold(store, { seq: 3, ops: [{ t: "reset", keep: 1 }] });
  assert.deepEqual([store.items.length, store.tail, dirty.cut], [1, "", true]);
});

test("a doubled or late message changes nothing", () => {
  const store = started();
  const msg = { seq: 2, ops: [d(0, "ab")] };
  fold(store, msg);
  assert.equal(fold(store, msg), "");
  assert.equal(fold(store, { seq: 1, ops: [full({ tail: "old" })] }), "");
  assert.equal(store.tail, "ab");
});

test("a gap asks for a resync and waits for the whole", () => {
  const store = started();
  assert.equal(fold(store, { seq: 3, ops: [d(0, "ab")] }), "resync");
  assert.equal(fold(store, { seq: 4, ops: [d(2, "cd")] }), "resync");
  assert.equal(store.tail, "");
  fold(store, { seq: 5, ops: [full({ tail: "abcd" })] });
  assert.equal(store.tail, "abcd");
  fold(store, { seq: 6, ops: [d(4, "e")] });
  assert.equal(store.tail, "abcde");
});

test("the first message missing is a gap too", () => {
  assert.equal(fold(fresh(), { seq: 1, ops: [d(0, "x")] }), "resync");
});

test("a wrong offset or index is a gap", () => {
  for (const op of [d(5, "x"), { t: "block", index: 3, item: {} }, { t: "d", lane: "thinking", index: 0, offset: 0, text: "x" }])
    assert.equal(fold(started(), { seq: 2, ops: [op] }), "resync");
});

test("F2: the first ten messages lost, the end tells all", () => {
  const store = fresh();
  for (let seq = 11; seq < 20; seq++) assert.equal(fold(store, { seq, ops: [d(seq, "x")] }), "resync");
  const dirty = fold(store, { seq: 20, ops: [{ t: "end", full: full({ items: [{ k: "text", html: "<p>reply</p>" }] }).full }] });
  assert.ok(dirty.all && store.over);
  assert.equal(store.items[0].html, "<p>reply</p>");
});

test("random losses and orders end in the final state", () => {
  let seed = 7;
  const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
  for (let round = 0; round < 200; round++) {
    const store = fresh(), sent = [{ seq: 1, ops: [full()] }];
    let text = "";
    for (let seq = 2; seq < 30; seq++) {
      if (random() < 0.2) sent.push({ seq, ops: [full({ tail: text })] });
      else { const piece = "p" + seq; sent.push({ seq, ops: [d(text.length, piece)] }); text += piece; }
    }
    sent.push({ seq: 30, ops: [{ t: "end", full: full({ tail: text }).full }] });
    const seen = sent.filter((m) => m.seq === 30 || random() > 0.3);
    for (let i = seen.length - 2; i > 0; i--) if (random() < 0.2) [seen[i], seen[i - 1]] = [seen[i - 1], seen[i]];
    if (random() < 0.5) seen.splice(1, 0, seen[0]);
    seen.forEach((m) => { fold(store, m); if (!store.lost && store.s) assert.ok(text.startsWith(store.tail)); });
    assert.equal(store.tail, text);
  }
});

test("hi passes even when something is lost, and keeps no place", () => {
  const store = started();
  fold(store, { seq: 5, ops: [d(9, "x")] });
  const dirty = fold(store, { seq: 6, ops: [{ t: "hi", nonce: "n", stop: true }] });
  assert.equal(dirty.hi[0].nonce, "n");
  assert.ok(store.lost);
});

test("shapes of the tail", () => {
  assert.deepEqual(shape("```py\nx = 1"), { tag: "pre", text: "x = 1" });
  assert.deepEqual(shape("```"), { tag: "pre", text: "" });
  assert.deepEqual(shape("```py\nx = 1\n``"), { tag: "pre", text: "x = 1" });
  assert.deepEqual(shape("- **a** b"), { tag: "ul", start: undefined, text: "**a** b" });
  assert.deepEqual(shape("3. c"), { tag: "ol", start: "3", text: "c" });
  assert.equal(shape("## h").tag, "h4");
  assert.equal(shape("-").tag, "p");
  assert.equal(shape("- - -").tag, "ul");
});

test("inline marks, the last one may be open, the text is whole", () => {
  assert.deepEqual(inline("a **b** `c` **d"), [["", "a "], ["b", "b"], ["", " "], ["code", "c"], ["", " "], ["b", "d"]]);
  assert.deepEqual(inline("- **11 March*"), [["", "- "], ["b", "11 March"]]);
  assert.deepEqual(inline("run `x"), [["", "run "], ["code", "x"]]);
  assert.deepEqual(inline("2 ** 3 and a*b"), [["", "2 ** 3 and a*b"]]);
  for (const text of ["<b>x</b>", "**", "`a", "*a* ** b **", ""]) assert.ok(inline(text).map((p) => p[1]).join("").length <= text.length);
});

test("numbers for people", () => {
  assert.equal(secondsOf(0.24), "0.2 s");
  assert.equal(secondsOf(37.2), "38 s");
  assert.equal(clockOf(5.6, false), "5 s");
  assert.equal(clockOf(5.64, true), "5.6 s");
  assert.equal(percent({ system: 1, tools: 1, transients: 1, history: 1, window: 8 }), 50);
  assert.equal(percent({ system: 1, tools: 1, transients: 1, history: 1, window: null }), null);
  assert.equal(wordsOf(" a  b\nc "), 3);
});

test("every status word has a shape", () => {
  assert.equal(shapeOf("completed"), "completed");
  assert.equal(shapeOf("limit reached"), "failed");
  assert.equal(shapeOf("token budget exhausted"), "failed");
  assert.equal(shapeOf("refusal"), "half");
  assert.equal(shapeOf("max tokens"), "half");
});

test("initialize listens before render, and clean-up lets go", () => {
  const on = [], off = [];
  const model = { get: () => ({}), on: (n) => on.push(n), off: (n) => off.push(n), send() {} };
  const done = panel.initialize({ model });
  assert.deepEqual(on, ["msg:custom", "comm_live_update"]);
  done();
  assert.deepEqual(off, ["msg:custom"]);
});

test("lists that panel.py is compared with", () => {
  assert.deepEqual(SAYS, ["hello", "stop", "resync", "answer"]);
  assert.equal(OPS.length, 9);
  assert.equal(COLUMNS.length, 11);
});
