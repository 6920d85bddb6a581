"""X01 to X03 in a page: every attack string in every field, live and saved; and that the checks
see a hole where one is planted."""

from __future__ import annotations

import contextlib

import pytest

from notebook_agent.notebook import output, wire
from notebook_agent.notebook.sinks import update
from tests.attacks import OWN, attack_strings, chunks, public_strings
from tests.browser import harness
from tests.browser.conftest import Watch
from tests.browser.harness import feed, messages, mount
from tests.browser.hostile import FORMS, ODD, all_strings, check_live, check_saved
from tests.notebook.recorded import opened, to_model, words


def test_the_public_set_is_large() -> None:
    assert len(public_strings()) >= 500
    assert len(set(attack_strings())) >= 4_000


def test_X02_live_page(page, canary) -> None:
    """Every sixth of the public strings and all of ours, each in every field; the next test and the
    saved output have all of them."""
    watch = Watch(page)
    strings = all_strings(canary)
    some = strings[: len(OWN)] + strings[len(OWN) :: 6]
    assert len(some) >= 600
    assert check_live(page, watch, some) == []
    assert canary.hits == []


def test_X02_live_page_many_strings_in_one_reply(page, canary) -> None:
    """What is harmless alone may not be in company: long replies, cut at odd places."""
    watch = Watch(page)
    for text in chunks(canary.address):
        mount(page)
        page.evaluate(ODD)
        made, _ = messages([opened(), *to_model(0.0), *words(0.3, text, step=997)], flush_every=3)
        feed(page, made)
        assert page.evaluate("window.odd") == []
        assert page.locator("#el > *").count() == 1
    page.wait_for_timeout(300)
    assert watch.trouble() == []
    assert canary.hits == []


@pytest.mark.parametrize("form", FORMS)
def test_X02_html_outputs(page, canary, form) -> None:
    """The frozen html, the text beside a live view and the display of a run without a panel, as a
    trusted page runs them, with every string: nothing happens."""
    watch = Watch(page)
    assert check_saved(page, watch, all_strings(canary), form=form) == []
    assert canary.hits == []


def plant_in_the_page(monkeypatch, tmp_path, old: str, new: str) -> None:
    """The front end with one line changed."""
    for path in harness.STATIC.iterdir():
        text = path.read_text()
        if path.name == "panel.js":
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        (tmp_path / path.name).write_text(text)
    monkeypatch.setattr(harness, "STATIC", tmp_path)


@contextlib.contextmanager
def fresh_page(page):
    """A page that may be ruined."""
    other = page.context.new_page()
    try:
        yield other
    finally:
        other.close()


def raw(text: str) -> str:
    return text


# What is broken -> (how, the check that must see it).
NODES = "const doc = new DOMParser()", "const raw = document.createElement('div'); raw.innerHTML = html; if (raw) return raw; const doc = new DOMParser()"  # fmt: skip
TEXT = 'if (typeof part !== "object" || part.nodeType) { el.append(part); continue; }', 'if (typeof part !== "object") { el.insertAdjacentHTML("beforeend", part); continue; } if (part.nodeType) { el.append(part); continue; }'  # fmt: skip
PLAIN = "args.textContent = one.args;", "args.innerHTML = one.args;"
GROWN = "else fill(el, document.createTextNode(text));", "else el.innerHTML = text;"


@pytest.mark.parametrize("hole", ["renderer", "text", "arguments", "growing"])
def test_a_hole_in_the_live_view_is_seen(page, canary, monkeypatch, tmp_path, hole) -> None:
    """The check of test_X02_live_page fails when the code that it guards lets raw text through."""
    if hole == "renderer":
        monkeypatch.setattr(wire, "render_block", raw)
    plant_in_the_page(
        monkeypatch, tmp_path,
        *{"renderer": NODES, "text": TEXT, "arguments": PLAIN, "growing": GROWN}[hole],
    )  # fmt: skip
    with fresh_page(page) as other:
        watch = Watch(other)
        attacks = [text.format(c=canary.address) for text in (OWN[1], OWN[6], OWN[0])]
        found = check_live(other, watch, attacks)
        assert any("<img" in one or "<script" in one for one in found)
        other.wait_for_timeout(300)
        assert watch.requests
    assert canary.hits
    canary.hits.clear()


@pytest.mark.parametrize(
    ("form", "module", "name"),
    [
        ("frozen", output, "render_block"), ("frozen", output, "escape"),
        ("standing", output, "escape"), ("running", update, "escape"),
        ("running", output, "render_block"),
    ],
)  # fmt: skip
def test_a_hole_in_html_output_is_seen(page, canary, monkeypatch, form, module, name) -> None:
    monkeypatch.setattr(module, name, raw)
    with fresh_page(page) as other:
        watch = Watch(other)
        attacks = [text.format(c=canary.address) for text in OWN[:2]]
        found = check_saved(other, watch, attacks, form=form)
        assert any("<img" in one for one in found)
        other.wait_for_timeout(300)
        assert watch.trouble()  # a script ran or a request left
    assert canary.hits
    canary.hits.clear()
