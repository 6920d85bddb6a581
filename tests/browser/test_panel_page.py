"""The panel's front end in a page: every state, both themes, widths, no leak, no jump, no damage."""

from __future__ import annotations

import importlib.util

import pytest

from notebook_agent.notebook.output import frozen_html
from notebook_agent.notebook.panel_state import Ask, Asked
from notebook_agent.notebook.wire import PanelWire
from tests.browser.frozen import frozen_states, long_words
from tests.browser.harness import axe_found, feed, greet, messages, mount
from tests.notebook.recorded import opened, recorded, to_model, words

RUNS = {**recorded(), "long words": long_words()}


def show(page, events, *, theme="light", width=1200, open_all=False):
    page.set_viewport_size({"width": width + 40, "height": 760})
    mount(page, theme=theme, width=width)
    made, state = messages(events)
    feed(page, made)
    greet(page)
    if open_all:
        page.evaluate(
            "() => { document.querySelectorAll('.na details').forEach((d) => { d.open = true; });"
            " const m = document.querySelector('.na-more'); if (m.offsetParent) m.click(); }"
        )
    return state


@pytest.mark.parametrize("width", [560, 600, 800, 1200])
def test_no_sideways_scroll(page, width) -> None:
    for name, events in RUNS.items():
        show(page, events, width=width, open_all=True)
        wide = page.evaluate(
            """() => [document.documentElement.scrollWidth - innerWidth,
            ...[...document.querySelectorAll('.na-p, .na-head, .na-main, .na-mach')]
              .map((e) => e.scrollWidth - e.clientWidth)]"""
        )
        assert max(wide) <= 1, (name, width, wide)


@pytest.mark.parametrize("theme", ["light", "dark", "none"])
def test_N12_contrast_and_accessibility(page, theme) -> None:
    """axe-core: contrast at least 4.5 in every state, roles and names in order."""
    # all rules in one theme; colours, and only they, differ in the others
    only = {} if theme == "light" else {"runOnly": ["color-contrast"]}
    some = (
        RUNS if theme == "light" else ("fallback", "compacting", "cancelled", "failed", "completed")
    )
    for name in some:
        show(page, RUNS[name], theme=theme, open_all=True)
        page.wait_for_timeout(130)  # a colour changes in 120 ms
        assert axe_found(page, ".na", **only) == [], (name, theme)


def test_without_axe_a_person_skips_and_ci_fails(monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="axe-core is missing"):
        axe_found(None, "main")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="axe-core is missing"):
        axe_found(None, "main")


def test_saved_outputs_as_exported(page) -> None:
    """All rules, where nothing is taken away and no style sheet of Jupyter's is there."""
    body = "\n".join(frozen_html(state) for state in frozen_states().values())
    for width in (560, 600, 1200):
        page.set_viewport_size({"width": width, "height": 900})
        page.set_content(f"<!doctype html><html lang=en><title>saved</title><main>{body}</main>")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert axe_found(page, "main", off=["heading-order"]) == []
    assert (
        page.evaluate(
            "[...document.querySelectorAll('*')].filter((e) => e.scrollWidth > e.clientWidth + 1"
            " && getComputedStyle(e).overflowX === 'auto' && e.tabIndex !== 0).length"
        )
        == 0
    )


def test_the_words_of_the_gauge_stand_apart(page) -> None:
    """Trigger above the bar, emergency below it, neither on the other."""
    show(page, RUNS["streaming"])
    trigger, bar, emergency = page.evaluate(
        """() => ['.na-lim.t b', '.na-gauge .na-bar', '.na-lim.e b'].map((s) => {
          const b = document.querySelector(s).getBoundingClientRect(); return [b.top, b.bottom]; })"""
    )
    assert trigger[1] <= bar[0] < bar[1] <= emergency[0]


def test_the_first_frame_is_never_empty(page) -> None:
    """Before the first message has come the head says "connecting", at its final height."""
    mount(page)
    assert page.inner_text(".na-status") == "connecting"
    height = page.evaluate("document.querySelector('.na-head').offsetHeight")
    made, _ = messages(RUNS["connecting"])
    feed(page, made)
    assert page.evaluate("document.querySelector('.na-head').offsetHeight") == height
    assert page.inner_text(".na-status") == "connecting"


def test_states_differ_by_word_and_shape(page) -> None:
    """N12: no state is told by colour alone."""
    seen = {}
    for name, events in RUNS.items():
        state = show(page, events)
        word = page.inner_text(".na-status")
        paths = page.evaluate(
            "[...document.querySelectorAll('.na-status path')].map((p) => p.getAttribute('d')).join()"
        )
        assert word == state.status
        seen.setdefault(paths, set()).add(word)
        assert name
    for words_of_shape in seen.values():
        assert len(words_of_shape) == 1 or words_of_shape <= {
            "failed", "limit reached", "token budget exhausted", "rejected", "max tokens",
        }  # fmt: skip


def test_stop_button_needs_an_answer_within_a_second(page) -> None:
    """D5: hello answered = button; nothing within 1 s = the line; a late answer changes nothing."""
    mount(page)
    made, _ = messages(RUNS["streaming"])
    feed(page, made)
    assert page.locator(".na-stop button").count() == 0
    greet(page)
    page.locator(".na-stop button").click()
    assert page.evaluate("window.said.filter((m) => m.t === 'stop')") == [{"t": "stop", "run": 1}]
    assert page.inner_text(".na-stop") == "stopping"
    page.locator(".na-stop button").click(force=True)
    assert page.evaluate("window.said.filter((m) => m.t === 'stop').length") == 1

    mount(page)
    feed(page, made)
    page.wait_for_timeout(1100)
    assert page.inner_text(".na-stop") == "stop with Kernel > Interrupt"
    greet(page)
    assert page.locator(".na-stop button").count() == 0

    mount(page)
    feed(page, made)
    greet(page, stop=False)
    page.wait_for_timeout(1100)
    assert "Interrupt" in page.inner_text(".na-stop")


def test_D20_allow_and_deny(page) -> None:
    """The question with its call, by mouse and by keyboard; announced once; nothing above moves."""
    asked = [Asked(at=4.2, ask=Ask(1, 'delete(path="<b>a.txt")'))]
    for key, allow in (("Allow", True), ("Deny", False)):
        mount(page, width=600)
        made, _ = messages([*RUNS["streaming"], *asked])
        feed(page, made[:-1])
        greet(page)
        top = page.evaluate("document.querySelector('.na-reply').getBoundingClientRect().height")
        feed(page, made[-1:])
        row = page.locator(".na-ask")
        assert row.get_attribute("role") == "group"
        assert row.inner_text().split("\n")[0] == 'Allow delete(path="<b>a.txt")?'
        assert page.evaluate("document.querySelector('.na-reply').getBoundingClientRect().height") == top  # fmt: skip
        wide = page.evaluate("(() => { const e = document.querySelector('.na-ask'); return e.scrollWidth - e.clientWidth; })()")  # fmt: skip
        assert wide <= 0
        page.wait_for_function("document.querySelector('[role=status]').textContent.includes('allow delete')", timeout=3000)  # fmt: skip
        button = row.get_by_role("button", name=key)
        if allow:
            button.click()
        else:
            button.focus()
            page.keyboard.press("Enter")
        said = page.evaluate("window.said.filter((m) => m.t === 'answer')")
        assert said == [{"t": "answer", "run": 1, "n": 1, "allow": allow}]
        assert row.locator("button").count() == 0  # one click is one answer
        assert row.inner_text() == ("allowed" if allow else "denied")
        assert page.evaluate("document.activeElement.className") == "na-reply"
        made, _ = messages([*RUNS["streaming"], *asked, Asked(at=5.0)])
        feed(page, made[-1:])
        assert not row.is_visible()
    # a page that is loaded while the question stands asks it too
    mount(page)
    _, state = messages([*RUNS["streaming"], *asked])
    feed(page, [{"seq": 40, "run": 1, "ops": [{"t": "full", "full": PanelWire(1).full(state)}]}])
    assert page.locator(".na-ask button").count() == 2


def test_F6_messages_take_the_channel_too(page) -> None:
    """Where the kernel names a channel, each word goes by the comm and by the channel."""
    mount(page, channel="na-test")
    page.evaluate("() => { window.heard = []; window.other = new BroadcastChannel('na-test'); window.other.onmessage = (e) => window.heard.push(e.data); }")  # fmt: skip
    made, _ = messages(RUNS["streaming"])
    feed(page, made)
    greet(page)
    page.locator(".na-stop button").click()
    page.wait_for_function("window.heard.some((m) => m.t === 'stop')", timeout=3000)
    assert page.evaluate("window.said.filter((m) => m.t === 'stop').length") == 1


def test_keyboard(page) -> None:
    """Stop is reached first; Enter and Space stay in the panel; other keys pass."""
    show(page, RUNS["streaming"], width=800)
    page.evaluate(
        "() => { window.keys = []; document.body.addEventListener('keydown', (e) => window.keys.push(e.key)); }"
    )
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Stop"
    page.keyboard.press("Enter")
    assert page.evaluate("window.said.some((m) => m.t === 'stop')")
    order = []
    for _ in range(6):
        page.keyboard.press("Tab")
        order.append(
            page.evaluate("document.activeElement.className || document.activeElement.tagName")
        )
    assert order[-2:] != order[:2]
    page.locator(".na-more").focus()
    page.keyboard.press("Space")
    assert page.get_attribute(".na-more", "aria-expanded") == "true"
    page.keyboard.press("j")
    assert page.evaluate("window.keys.filter((k) => k !== 'Tab')") == ["j"]


def test_screen_reader_hears_changes_of_state_only(page) -> None:
    mount(page)
    made, _ = messages(RUNS["completed"])
    page.evaluate(
        """() => { window.heard = []; new MutationObserver(() => window.heard.push(
        document.querySelector('[role=status]').textContent)).observe(document.querySelector('[role=status]'),
        {childList: true, characterData: true, subtree: true}); }"""
    )
    feed(page, made)
    page.wait_for_timeout(2300)
    heard = page.evaluate("window.heard")
    assert heard[-1].startswith("completed, ")
    assert heard[-1].endswith(" words")
    assert len(heard) <= 2
    assert page.get_attribute("[role=log]", "aria-live") == "off"


def test_reduced_motion(page) -> None:
    page.emulate_media(reduced_motion="reduce")
    show(page, RUNS["connecting"])
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.na-status svg')).animationName")
        == "none"
    )
    page.emulate_media(reduced_motion="no-preference")
    show(page, RUNS["connecting"])
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.na-status svg')).animationName")
        == "na-pulse"
    )


def test_F2_first_ten_messages_lost_and_no_word_back(page) -> None:
    """Every browser message dropped, the first ten kernel messages lost: the end tells all."""
    mount(page)
    made, state = messages(RUNS["completed"])
    end = {
        "seq": made[-1]["seq"] + 1,
        "run": 1,
        "ops": [{"t": "end", "full": PanelWire(1).full(state)}],
    }
    feed(page, [*made[10:], end])
    shown = "".join(page.inner_text(".na-reply").split())
    assert "Twostretcheslooklikeastucksensor" in shown
    assert 'tides.loc[still,"level_m"]=pd.NA' in shown
    assert page.inner_text(".na-status") == "completed"


def test_bounds_five_megabytes(page) -> None:
    """D18: at most 200 kB of text in the DOM, then the note; frames stay short."""
    made, _ = messages([opened(), *to_model(0.0), *words(0.5, "word " * 1_000_000, step=100_000)])
    longest = []
    for _ in range(3):  # a machine that is busy with something else makes long frames too
        mount(page)
        page.evaluate(
            "() => { window.long = []; new PerformanceObserver((l) => l.getEntries().forEach((e) => window.long.push(e.duration))).observe({type: 'longtask'}); }"
        )
        for message in made:
            feed(page, [message])
            page.evaluate("() => new Promise((r) => requestAnimationFrame(() => r()))")
        assert page.evaluate("document.querySelector('.na').textContent.length") <= 200_000
        assert "the whole is in result.text" in page.inner_text(".na-tail")
        longest.append(max(page.evaluate("window.long") or [0]))
        if longest[-1] <= 100:
            break
    assert min(longest) <= 100


def test_ten_thousand_deltas_are_on_the_page_within_a_second(page) -> None:
    mount(page)
    events = [opened(), *to_model(0.0), *words(0.5, "tokens " * 10_000, step=7)]
    made, _ = messages(events, flush_every=100)
    took = page.evaluate(
        "(ms) => { const t = performance.now(); ms.forEach((m) => window.feed(m));"
        " document.querySelector('.na').offsetHeight; return performance.now() - t; }",
        made,
    )
    assert took <= 1000
    assert page.inner_text(".na-reply").count("tokens") >= 9_990
