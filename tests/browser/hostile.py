"""Hostile text in every place of a view: runs made of one attack string, and the checks over them.

``check_live`` and ``check_saved`` return what went wrong, so that a planted hole can be put to the
same checks as the real code.
"""

from __future__ import annotations

import json
from dataclasses import replace

from notebook_agent.core import agent_events as ev
from notebook_agent.core.session import RunStatus
from notebook_agent.core.text import visible
from notebook_agent.notebook.output import frozen_html, standing_bundle
from notebook_agent.notebook.panel_state import (
    Ask,
    Asked,
    Chained,
    Ended,
    Moved,
    PanelState,
    Printed,
    RowAdded,
    Voided,
)
from notebook_agent.notebook.reducer import reduce, reduce_all
from notebook_agent.notebook.sinks.update import running_bundle
from notebook_agent.notebook.wire import PanelWire
from tests.attacks import attack_strings
from tests.browser.harness import mount
from tests.notebook.recorded import S, happened, opened, row, to_model, words

# Field -> where the page shows it, in an open panel of a failed run. The session's name is no part
# of a view; it is in the text that stands beside one (FORMS, "standing").
SHOWN = {
    "reply": ".na-reply .na-block", "thinking": ".na-reply .think", "void": ".na-void .in",
    "void's cause": ".na-void summary", "tool name and arguments": ".na-tool summary code",
    "arguments": ".na-tool pre:nth-of-type(1)", "result": ".na-tool pre:nth-of-type(2)",
    "model": ".na-model", "error": ".na-error", "notice": ".na-tail", "loop": ".na-line > .row",
    "breaker's chain": ".na-chain li:nth-child(2) .m", "audit model": ".na-foot tbody td:nth-child(2)",
    "audit outcome": ".na-foot tbody td:nth-child(3)", "audit stop": ".na-foot tbody td:nth-child(4)",
    "foot": ".na-foot summary",
}  # fmt: skip
ODD = """window.odd = [];
const bad = /^(script|img|iframe|object|embed|link|style|meta|base|form|input|video|audio|image|math|foreignobject|mglyph|mjx-container|dialog|marquee|animate|template|noscript)$/i;
const look = (e) => { if (e.nodeType !== 1) return;
  if (bad.test(e.localName) || [...e.attributes].some((a) => /^on/i.test(a.name) || (a.name !== "title" && /^\\s*(javascript|data|vbscript|file):/i.test(a.value) || (a.name === "href" && e.localName === "a" && !/^(https?:|mailto:)/i.test(a.value)))))
    window.odd.push(e.outerHTML.slice(0, 200)); };
const deep = (e) => { look(e); e.querySelectorAll && e.querySelectorAll('*').forEach(look); };
deep(document.getElementById('el'));
new MutationObserver((all) => { for (const one of all) { one.addedNodes.forEach(deep); look(one.target); } })
  .observe(document.getElementById('el'), {subtree: true, childList: true, attributes: true});"""


def hostile_run(text: str):
    """One attack string in every place that shows outside text, of a run that fails."""
    args = json.dumps({"x": text, text: 1})
    error = {"error": text, "message": text}
    view = replace(opened(text).breaker, primary=text, serves=text, chain=(Chained(text, 1),))
    start = replace(opened(text, session=text), prompt=text, run_id=text, breaker=view)
    return [
        start,
        *to_model(0.0, model=text),
        *words(0.2, text, lane="thinking", step=97),
        *words(0.3, text[:300], step=31),
        happened(0.4, ev.AttemptFailed(turn=0, attempt=1, cause=text, next_step="retry", delay_s=0.1)),
        Voided(at=0.5, attempt=2, cause=text),
        happened(0.6, ev.ModelSwitched(from_model=text, to_model=text)),
        happened(0.6, ev.LoopWarning(pattern=text, repetitions=3)),
        *words(0.6, text, lane="thinking", step=41),
        *words(0.7, text, step=max(1, len(text) // 3)),
        happened(1.0, ev.ToolCallStarted(call_id=text, tool_name=text)),
        happened(1.2, ev.ToolCallCompleted(call_id=text, tool_name=text, arguments=args)),
        Moved(at=1.9, state=S.PROCESSING_RESPONSE, to=S.EXECUTING_TOOLS, outcome="ToolCallsPresent", action="Continue"),
        Asked(at=1.9, ask=Ask(1, f"{text}({args})")),
        Asked(at=2.0),
        happened(2.0, ev.ToolExecutionStarted(call_id=text, tool_name=text)),
        Printed(at=2.0, call_id=text, text=text),
        happened(2.5, ev.ToolExecutionFinished(call_id=text, tool_name=text, result=text, duration_s=0.1, is_error=True)),
        RowAdded(at=3.0, row=row(0, text, stop=text, input=text, output=text)),
        RowAdded(at=3.0, row=row(1, text, outcome=text, stop=text)),
        Ended(at=3.1, status=RunStatus.FAILED, error=error, notices=(text, text)),
    ]  # fmt: skip


def run_messages(number: int, text: str, seq: int) -> list[dict]:
    """The messages of one hostile run of a panel: a keyframe, four changes, the end."""
    wire, state, out = PanelWire(number), PanelState(), []
    events = hostile_run(text)
    for i, event in enumerate(events):
        state = reduce(state, event)
        if i == 0:
            ops = [{"t": "full", "full": wire.full(state)}]
        elif i == len(events) - 1:
            ops = [*wire.diff(state), {"t": "end", "full": wire.full(state)}]
        elif i % 4 == 0 or isinstance(event, Asked):
            ops = wire.diff(state)
        else:
            continue
        seq += 1
        out.append({"seq": seq, "run": number, "ops": ops})
    return out


def check_live(page, watch, strings, *, size: int = 250) -> list[str]:
    """Feed a hostile run for each string to a live view; everything that went wrong."""
    wrong: list[str] = []
    for at in range(0, len(strings), size):
        part = strings[at : at + size]
        mount(page)
        page.evaluate(ODD)
        made: list[dict] = []
        for number, text in enumerate(part, 1):
            made += run_messages(number, text, len(made) + 1)
        # as one text: the driver takes a list value by value
        page.evaluate("(ms) => JSON.parse(ms).forEach((m) => window.feed(m))", json.dumps(made))
        page.evaluate(
            "() => document.querySelectorAll('.na details').forEach((d) => { d.open = true; })"
        )
        wrong += missing(page, part[-1])
        wrong += page.evaluate("window.odd")
        if (
            page.locator("#el > *").count() != 1
            or page.evaluate("document.body.children.length") != 1
        ):
            wrong.append("something broke out of the panel")  # fmt: skip
        wrong += watch.trouble()
        if wrong:  # a page that runs foreign script is not asked further
            break
    page.wait_for_timeout(300)
    return wrong + watch.trouble()


def missing(page, text: str) -> list[str]:
    """Fields of ``SHOWN`` that do not show the string: a check must have visited them."""
    want = "".join(visible(text).split())[:24].casefold()  # a stop reason is in capitals
    found = page.evaluate(
        "(at) => Object.fromEntries(Object.entries(at).map(([k, q]) =>"
        " [k, [...document.querySelectorAll(q)].map((e) => e.textContent).join(' ')]))",
        SHOWN,
    )
    return [
        f"{name} shows no {want!r} but {shown[:80]!r}"
        for name, shown in found.items()
        if name != "reply" and want not in "".join(shown.casefold().split()).replace('\\"', '"')
    ]


# Form of html in a notebook -> (how it is made, how often a string is shown in it at least).
FORMS = {
    "frozen": (lambda text: frozen_html(reduce_all(hostile_run(text))), 10),
    # beside a live view: model, run, session
    "standing": (lambda text: standing_bundle(reduce_all(hostile_run(text)[:2]))["text/html"], 4),
    # a display that is sent again while the run goes on: model, reply, tool, breaker
    "running": (lambda text: running_bundle(reduce_all(hostile_run(text)[:-3]))["text/html"], 3),
}


def check_saved(page, watch, strings, *, form: str = "frozen", size: int = 150) -> list[str]:
    """Put html outputs of hostile runs into a page as a trusted notebook does."""
    wrong: list[str] = []
    make, times = FORMS[form]
    for at in range(0, len(strings), size):
        part = strings[at : at + size]
        saved = [make(text) for text in part]
        page.set_content(
            f"<!doctype html><body><div id=el>{''.join(saved)}</div></body>", wait_until="commit"
        )
        page.evaluate(ODD)
        wrong += page.evaluate("window.odd")
        if (
            page.locator("#el > div").count() != len(part)
            or page.evaluate("document.body.children.length") != 1
        ):
            wrong.append("something broke out of an output")  # fmt: skip
        shown = page.evaluate("[...document.querySelectorAll('#el > div')].map((e) => e.textContent.replace(/\\s+/g, ''))")  # fmt: skip
        for text, one in zip(part, shown, strict=False):
            want = "".join(visible(text).split())[:24]
            if one.count(want) < times:
                wrong.append(f"{want!r} is shown {one.count(want)} times")
        wrong += watch.trouble()
        if wrong:
            break
    page.wait_for_timeout(300)
    return wrong + watch.trouble()


def all_strings(canary) -> list[str]:
    """Every attack string that is not blank, pointed at the canary."""
    return [text for text in attack_strings(canary.address) if text.strip()]
