"""What never moves in the live panel: real positions after every message, and layout shift."""

from __future__ import annotations

import pytest

from tests.browser.frozen import long_words
from tests.browser.harness import feed, greet, messages, mount
from tests.notebook.recorded import FULL, THOUGHT, opened, recorded, to_model, words

RUNS = {**recorded(), "long words": long_words()}

# What is watched -> what it may do (docs/panel.md, "What never moves").
STILL = {
    ".na-head": "nothing", ".na-status": "nothing", ".na-fsm li": "nothing",
    ".na-head .na-ctx": "nothing", ".na-clock": "nothing", ".na-stop": "nothing",
    ".na-model": "beside", ".na-reply > *": "nothing",
    ".na-tail": "down or up", ".na-error": "down", ".na-ask": "down",
    ".na-more": "down", ".na-foot": "down",
}  # fmt: skip
RAIL = {".na-mach": "nothing", ".na-mach section": "nothing", ".na-speed": "nothing"}
# positions are of the layout: x, and y of the middle where a shape grows about its own middle
WATCH = """(rules) => { const was = new Map(), found = [];
  window.look = (what) => { for (const [selector, may] of Object.entries(rules))
    for (const e of document.querySelectorAll(selector)) {
      const b = e.getBoundingClientRect(); if (!b.width || !b.height) continue;
      const y = selector.endsWith('li') ? b.y + b.height / 2 : b.y, old = was.get(e); was.set(e, [b.x, y]);
      if (!old) continue;
      const dx = b.x - old[0], dy = y - old[1];
      if ((Math.abs(dx) > 0.5 && may !== 'beside') || (Math.abs(dy) > 0.5 && !(may.startsWith('down') && (dy > 0 || may.endsWith('up')))))
        found.push([what, selector, e.className, dx, dy]); }
    return found; };
  window.look('start'); }"""
FRAME = "() => new Promise((r) => requestAnimationFrame(() => r()))"


@pytest.mark.parametrize(
    ("width", "drawer"), [(600, False), (600, True), (900, True), (1200, False)]
)
def test_nothing_moves_but_what_is_below_the_text(page, width, drawer) -> None:
    """Every state of the design, message by message: text, tools, retry, reset, trip, row, error."""
    moved = {}
    for name, events in RUNS.items():
        page.set_viewport_size({"width": width + 40, "height": 900})
        mount(page, width=width)
        made, state = messages(events)
        feed(page, made[:1])
        greet(page)
        if drawer:  # under the reply, so it may be pushed down; nothing in it jumps up
            page.locator(".na-more").click()
        rules = {**STILL, **{part: "down" if drawer else may for part, may in RAIL.items()}}
        if width < 720:  # no room for the longest status word
            rules[".na-status"] = "beside"
        page.evaluate(WATCH, rules)
        for message in made[1:]:
            feed(page, [message])
            page.evaluate(FRAME)
            page.evaluate("(what) => { window.look(what); }", " ".join(op["t"] for op in message["ops"]))  # fmt: skip
        moved[name] = page.evaluate("window.look('end')")
        assert page.inner_text(".na-status") == state.status
    assert moved == {name: [] for name in RUNS}


def test_the_watch_sees_a_row_that_jumps(page) -> None:
    """The check above can fail."""
    mount(page)
    made, _ = messages(RUNS["streaming"])
    feed(page, made)
    page.evaluate(WATCH, STILL)
    page.evaluate("document.querySelector('.na-flow').style.paddingTop = '3px'")
    assert {selector for _, selector, *_ in page.evaluate("window.look('jump')")} == {".na-reply > *"}  # fmt: skip


SHIFTS = """() => { window.shifts = []; window.cls = 0; window.all = [];
  new PerformanceObserver((list) => { for (const e of list.getEntries()) {
    window.cls += e.value;
    for (const s of e.sources) { const n = s.node && (s.node.nodeType === 1 ? s.node : s.node.parentElement);
      window.all.push([n && n.className, s.previousRect.toJSON(), s.currentRect.toJSON()]);
      if (!n || n.closest('.na-foot, .na-more, .na-tail') && (!s.currentRect.height || s.currentRect.y >= s.previousRect.y)) continue;
      window.shifts.push([e.value, n.className, s.previousRect.y, s.currentRect.y]); } }
  }).observe({type: 'layout-shift', buffered: false}); }"""


@pytest.mark.parametrize(("width", "text", "still"), [
    (1200, FULL[:420], True), (1200, FULL * 2, False), (900, FULL * 2, False), (600, FULL * 2, False),
])  # fmt: skip
def test_layout_shift_while_text_streams(page, width, text, still) -> None:
    """CLS is exactly 0 while the text has room, foot included; a longer reply moves only what is
    below it, and only down."""
    page.set_viewport_size({"width": width + 40, "height": 760})
    mount(page, width=width)
    made, _ = messages(
        [opened(), *to_model(0.0), *words(0.5, THOUGHT, lane="thinking"), *words(1.0, text, step=9)]
    )
    first = next(i for i, m in enumerate(made) if any(op["t"] == "d" for op in m["ops"]))
    feed(page, made[:first])
    greet(page)
    page.wait_for_timeout(200)
    page.evaluate(SHIFTS)
    for message in made[first:]:
        feed(page, [message])
        page.evaluate(FRAME)
    page.wait_for_timeout(200)
    assert page.evaluate("window.shifts") == []
    if still:
        assert page.evaluate("window.all") == []
    assert page.inner_text(".na-reply").count("Two stretches") == text.count("Two stretches")
    page.evaluate("document.querySelector('.na-reply').style.marginTop = '40px'")
    page.wait_for_timeout(100)
    assert page.evaluate("window.shifts.length") > 0  # the observer does see a jump


def test_the_reply_area_keeps_its_height_on_a_reset(page) -> None:
    mount(page)
    made, _ = messages(RUNS["attempt reset"])
    reset = next(i for i, m in enumerate(made) if any(op["t"] == "reset" for op in m["ops"]))
    feed(page, made[:reset])
    before = page.evaluate("document.querySelector('.na-flow').offsetHeight")
    feed(page, made[reset:])
    assert page.evaluate("document.querySelector('.na-flow').offsetHeight") >= before
