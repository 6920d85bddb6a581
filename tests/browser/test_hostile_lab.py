"""X01 to X03 in JupyterLab: attack strings wherever a notebook can show text from outside, looked
at live, frozen, saved, reopened (trusted and not) and exported; and that each look sees a hole."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from notebook_agent.core.text import clean_text, visible
from notebook_agent.notebook.render import TAGS
from tests.attacks import OWN, attack_strings
from tests.browser.conftest import Watch
from tests.browser.lab import SETUP, Notebook, lab_page

SESSION = "<img src=x onerror=window.PWNED='s'>$\\raise{9em}{s}$"
# In the kernel. The strings come from a file, so that no cell's source holds one.
KERNEL = """
import json, pathlib, sys, time
from notebook_agent.core.messages import ToolCallPart
from notebook_agent.core.session import Run, Session, Turn
from notebook_agent.errors import ErrorKind, ProviderError
from notebook_agent.notebook.agent_session import of_shell
from notebook_agent.notebook.audit import audit_frame, audit_view
given = json.loads(pathlib.Path('given.json').read_text())
evil, parts = given['evil'], given['parts']
sys.path.insert(0, given['tests'])
agent, every = of_shell(get_ipython()), '\\n\\n'.join(evil)
def probe(n: int, x: str) -> str:
    'A tool.'
    print(x)
    return '\\n'.join(parts[n])
def hold(n: int) -> str:
    'Waits until the live page was looked at.'
    end = time.monotonic() + 20
    while not pathlib.Path('looked').exists() and time.monotonic() < end:
        time.sleep(0.02)
    return 'looked'
calls = [ToolCallPart(f'c{n}', 'probe', {'n': n, 'x': part[0]}) for n, part in enumerate(parts)]
calls += [ToolCallPart(f'u{n}', s, {s: s, 'y': s}) for n, s in enumerate(evil[:12])]
calls += [ToolCallPart('h', 'hold', {'n': 1})]
for s in evil:
    agent.models_book.add(ScriptedModel(name=s))
    name = ''.join(s.replace(':', '').split())
    if name and not name.startswith('@'):
        agent.models_book.alias(name[:60], '@backup')
m = ScriptedModel([Reply(text=every, thinking=every, tool_calls=calls), Reply(text='The end.')],
                  window=1_000_000, name=given['model'])
bad = ScriptedModel([ProviderError(ErrorKind.BAD_REQUEST, '\\n'.join(given['error']), status=400, hint=evil[0])],
                    name=evil[1])
backup = ScriptedModel(['Fine.'], name=evil[6])
%agent model @m
%agent fallback @backup
for s in evil[:24]:
    agent.ask(s, session=s[:200], model='@backup')
third = max(1, len(evil) // 3)
trail = Session(runs=[Run(id=s, input=s, turns=[Turn(
    turn=0, input=evil[(i + third) % len(evil)], output=evil[(i + 2 * third) % len(evil)], model=s, started_at=0.0)])
    for i, s in enumerate(evil[:third])])
"""
CELLS = {
    "run": f"%%agent -t probe,hold -s {shlex.quote(SESSION)}\nhello",
    "error": f"%%agent -m @bad -s {shlex.quote(SESSION)}\nhello",
    "load": f"%agent session load {shlex.quote(SESSION)}",
    "audit": "%agent audit",
    "trail": "audit_view(trail)",
    "frame": "audit_frame(trail).head(50)[['model', 'input', 'output']]",
    "show": "%agent show",
    "status": "%agent status",
    "models": "%agent models",
    "tools": "%agent tools",
    "sessions": "%agent session list",
    "history": "%agent history 50",
    "why": "%agent why",
    "updated": "%%agent --show footer -m @again\nhello",
    "kinds": "from tests.browser.hostile import hostile_run\n"
    "from notebook_agent.notebook.output import bundle, standing_bundle\n"
    "from notebook_agent.notebook.reducer import reduce_all\n"
    "for s in given['kinds']:\n"
    "    display(bundle(reduce_all(hostile_run(s))), raw=True)\n"
    "display(standing_bundle(reduce_all(hostile_run(SESSION)[:2])), raw=True)",
}
NUMBER = {name: i for i, name in enumerate(CELLS, 1)}
# Holes for the proof that each look can fail: the renderer, the escaping, the guard against maths
# and the front end let everything through.
HOLES = """
import importlib
from notebook_agent.notebook import panel
for name in ('output', 'wire', 'tables', 'sinks.update'):
    module = importlib.import_module(f'notebook_agent.notebook.{name}')
    for function in ('escape', 'render_block', 'unset_maths'):
        if hasattr(module, function):
            setattr(module, function, lambda text: text)
source = (panel.STATIC / 'panel.js').read_text()
assert source.count('const doc = new DOMParser()') == 1
panel.AgentPanel._esm = source.replace('const doc = new DOMParser()', "const raw = document.createElement('div');"
    " raw.innerHTML = html; if (raw) return raw; const doc = new DOMParser()")
"""

# Everything in the outputs that our saved html, a data frame or plain text does not need.
# JupyterLab makes links of whatever looks like an address or a path in plain text, ours or not; a
# browser opens none of them but http in the new tab that they ask for, so only our html is held to
# the schemes.
ODD = """([selector, tags, attributes, strict]) => { const odd = {};  // one of each tag
  for (const root of document.querySelectorAll(selector)) for (const e of root.querySelectorAll('*')) {
    if (e.localName === 'style' && e.textContent.includes('.dataframe tbody') && e.parentNode.querySelector('table.dataframe')) continue;
    const a = [...e.attributes].find((a) => !attributes.includes(a.name) || (a.name === 'style' && /url\\(|position|z-index/.test(a.value))
      || (a.name === 'class' && !/^(dataframe( tex2jax_ignore mathjax_ignore)?|ansi-[\\w -]+)$/.test(a.value)));
    const to = e.getAttribute('href'), safe = strict ? /^(https?:|mailto:)/i.test(to) : e.target === '_blank' && e.rel === 'noopener';
    if (!tags.includes(e.localName) || a || (to && !safe)) odd[e.localName] ??= e.outerHTML.slice(0, 160); }
  return Object.values(odd); }"""
ATTRIBUTES = ["style", "scope", "dir", "href", "rel", "start", "align", "tabindex", "target", "border", "class"]  # fmt: skip
ALLOWED = [*TAGS, "div", "abbr"]
KINDS = (
    [".jp-CodeCell .jp-RenderedHTMLCommon", ALLOWED, ATTRIBUTES, True],
    [".jp-CodeCell .jp-RenderedText", ["pre", "span", "a"],
     ["class", "href", "rel", "target", "data-path", "data-locator"], False],
)  # fmt: skip
OTHER = re.compile(rf"<(?!/?(?:{'|'.join(ALLOWED)}|style scoped|/style)[ >])[^ >]{{0,40}}")
LIVE = """() => { window.odd = []; const bad = /^(script|img|iframe|object|embed|link|meta|base|form|input|video|audio|image|math|mjx-container|dialog|template)$/i;
  const look = (e) => { if (e.nodeType === 1 && e.closest('.na') && (bad.test(e.localName) || [...e.attributes].some((a) => /^on/i.test(a.name))))
    window.odd.push(e.outerHTML.slice(0, 160)); };
  new MutationObserver((all) => all.forEach((one) => one.addedNodes.forEach((e) => { look(e); e.querySelectorAll?.('*').forEach(look); })))
    .observe(document.body, {subtree: true, childList: true}); }"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory, chromium):
    with lab_page(tmp_path_factory.mktemp("hostile")) as (server, page):
        server.set("notebook-extension", "tracker", windowingMode="none")  # all cells are there
        yield server, page


class Look:
    """What was wrong in each form of one notebook."""

    def __init__(self, lab: Any, canary: Any, evil: list[str]) -> None:
        self.server, self.page = lab
        self.canary, self.evil = canary, evil
        self.watch = Watch(self.page, allowed=self.server.base)
        self.wrong: dict[str, list[str]] = {}

    def note(self, form: str, wrong: list[str]) -> None:
        """Keep what was seen in this form, and begin anew for the next one."""
        self.page.wait_for_timeout(400)  # time for a request, or for maths to be set
        self.wrong[form] = [
            *wrong, *self.watch.trouble(), *[f"canary {hit}" for hit in self.canary.hits],
        ]  # fmt: skip
        for seen in (self.watch.dialogs, self.watch.requests, self.canary.hits):
            seen.clear()

    def outputs(self, *, sanitized: bool = False) -> list[str]:
        """Checks over the outputs of all cells in the page, saved form."""
        page = self.page
        page.wait_for_timeout(300)
        wrong = [one for kind in KINDS for one in page.evaluate(ODD, kind)]
        cells = page.locator(".jp-CodeCell")
        if cells.count() != len(CELLS) + 1 or page.locator(".jp-CodeCell .jp-CodeCell").count():
            wrong.append("something broke out of its cell")
        loose = page.evaluate(
            "() => [...document.querySelectorAll('.jp-CodeCell .jp-RenderedHTMLCommon')].map((e) => e.children.length).filter((n) => n > 3)"
        )
        if loose and not sanitized:  # there the outermost elements are text
            wrong.append("something broke out of an output")
        shown = page.evaluate(
            "() => [...document.querySelectorAll('.jp-CodeCell')].map((e) => e.querySelector('.jp-Cell-outputWrapper')?.textContent || '')"
        )
        return wrong + self.missing(dict(zip(["setup", *CELLS], map(squeeze, shown), strict=False)))

    def missing(self, shown: dict[str, str]) -> list[str]:
        """Cells that do not show their strings; a look must have seen what it looked for."""
        wrong = []
        for cell, wanted in wants(self.evil).items():
            lost = [text for text in wanted if not stands(text, shown.get(cell, ""))]
            if lost:
                wrong.append(f"{cell} lacks {len(lost)} of {len(wanted)}: {lost[0]!r}")
        everything = "".join(shown.values())
        seen = sum(stands(text, everything) for text in self.evil)
        if seen < len(self.evil):
            wrong.append(f"{seen} of {len(self.evil)} strings are shown")
        return wrong


def squeeze(text: str) -> str:
    return "".join(text.split())


def stands(text: str, shown: str) -> bool:
    """Whether a squeezed page shows a string, its NUL replaced where it entered or shown (D9)."""
    return any(squeeze(visible(one))[:24] in shown for one in (clean_text(text), text))


def wants(evil: list[str]) -> dict[str, list[str]]:
    """Cell -> strings that its output shows letter for letter."""
    third = max(1, len(evil) // 3)
    return {
        "run": [*evil, given_model(evil)], "error": [*errors(evil), evil[1]],
        "audit": [given_model(evil)], "load": [SESSION], "trail": evil[: 3 * third] if third <= 200 else evil[:100],
        "frame": [text for text in evil[: min(50, third)] if "\n" not in text], "show": [evil[1], *errors(evil)],
        "status": [SESSION, given_model(evil)], "models": evil,
        "sessions": [SESSION, *(text[:200] for text in evil[:24])], "why": errors(evil)[:1],
        "kinds": evil[:len(OWN)], "updated": [evil[6]], "history": [evil[0]],
    }  # fmt: skip


def given_model(evil: list[str]) -> str:
    return evil[-1]


def errors(evil: list[str]) -> list[str]:
    """The lines of the provider's words, terminal codes too; an error is shown up to 2,000 characters."""
    return [text for text in (*evil[2:14], *evil[16:17]) if "\n" not in text]


def given(evil: list[str]) -> dict[str, Any]:
    """What the kernel reads."""
    parts: list[list[str]] = [[]]
    for text in evil:  # results are shown up to 4,000 characters
        if sum(map(len, parts[-1])) + len(text) > 2_500:
            parts.append([])
        parts[-1].append(text)
    return {
        "evil": evil, "parts": parts, "model": given_model(evil), "error": errors(evil),
        "kinds": evil[: len(OWN)], "tests": str(Path(__file__).parents[2]),
    }  # fmt: skip


def walk(
    lab: Any, canary: Any, evil: list[str], name: str, holes: str = ""
) -> dict[str, list[str]]:
    """One notebook through all its forms; form -> what was wrong."""
    server, page = lab
    server.end_sessions()
    canary.hits.clear()
    look = Look(lab, canary, evil)
    (server.root / "given.json").write_text(json.dumps(given(evil)))
    (server.root / "looked").unlink(missing_ok=True)
    last = f"SESSION = {SESSION!r}\nagain = ScriptedModel([every], name=evil[6])\n"
    book = Notebook(server, page, f"{name}.ipynb", [SETUP + KERNEL + last + holes, *CELLS.values()])
    book.run(0, done=40)
    live(book, look)
    for cell in list(CELLS)[1:]:
        book.run(NUMBER[cell], done=20)
    look.note("frozen", look.outputs())
    saved = book.save()
    look.note("saved", [one for cell in saved["cells"] for one in raw(cell["outputs"])])
    server.end_sessions()
    reopen(lab, f"{name}.ipynb")
    look.note("reopened", look.outputs())
    saved["cells"][0]["source"] = "# a copy that nobody signed"
    (server.root / f"{name}_copy.ipynb").write_text(json.dumps(saved))
    reopen(lab, f"{name}_copy.ipynb")
    look.note("reopened untrusted", look.outputs())
    for form, sanitized in (("nbconvert", False), ("nbconvert sanitized", True)):
        page.goto("about:blank")
        page.set_content(exported(server.root / f"{name}.ipynb", sanitized=sanitized, holes=holes))
        look.note(form, look.outputs(sanitized=sanitized))
    return look.wrong


def reopen(lab: Any, name: str) -> None:
    """Open a saved notebook; a kernel is not waited for."""
    server, page = lab
    page.goto(f"{server.base}/lab/tree/{name}?token={server.token}&reset")
    page.wait_for_selector(".jp-NotebookPanel .jp-CodeCell >> nth=-1", timeout=60_000)
    page.wait_for_function(
        f"document.querySelectorAll('.jp-NotebookPanel .jp-CodeCell').length === {len(CELLS) + 1}"
    )


def raw(value: Any) -> list[str]:
    """Texts of a file in which something that a terminal or an eye obeys stands as it came (X03),
    and html that opens an element which ours never does (X02)."""
    if isinstance(value, str):
        return [ascii(value[:80])] if value != visible(value) else []
    if isinstance(value, dict):
        named = [f"{k}: {one}" for k, v in value.items() for one in raw(v)]
        return named + OTHER.findall("".join(value.get("text/html", "")))
    return [one for v in value for one in raw(v)] if isinstance(value, list) else []


def live(book: Notebook, look: Look) -> None:
    """Look at the panel while its run waits for us."""
    page = book.page
    page.evaluate(LIVE)
    book.run(NUMBER["run"])
    panel = book.panel(NUMBER["run"])
    panel.wait_for(timeout=15_000)
    page.wait_for_function(
        "(n) => document.querySelectorAll('.na .na-tool').length > n",
        arg=len(look.evil[:12]), timeout=20_000,
    )  # fmt: skip
    page.wait_for_function("document.querySelector('.na').textContent.includes('hold(')")
    page.wait_for_timeout(500)
    page.evaluate(
        "() => document.querySelectorAll('.na details').forEach((d) => { d.open = true; })"
    )
    page.wait_for_timeout(200)
    shown = squeeze(panel.evaluate("(e) => e.textContent"))
    lost = [text for text in look.evil if not stands(text, shown)]
    wrong = [f"the live view lacks {len(lost)}: {lost[0]!r}"] if lost else []
    look.note("live", wrong + page.evaluate("window.odd.slice(0, 5)"))
    (book.lab.root / "looked").touch()
    book.wait_done(NUMBER["run"], 20)


def exported(path: Path, *, sanitized: bool, holes: str) -> str:
    """The whole page of nbconvert, its own libraries from the net left out."""
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(sanitize_html=sanitized)
    if holes:  # its cleaner would close our hole: for the proof it has one as well
        exporter.register_filter("clean_html", lambda text: text)
    exporter.mathjax_url = exporter.require_js_url = exporter.mermaid_js_url = ""
    exporter.jquery_url = exporter.jupyter_widgets_base_url = ""
    return exporter.from_filename(str(path))[0]


def chosen(canary: Any) -> list[str]:
    """All of ours and every seventh public one that fits into a result."""
    own, public = (
        attack_strings(canary.address)[: len(OWN)],
        attack_strings(canary.address)[len(OWN) :: 7],
    )
    return own + [text for text in public if 12 < len(text.strip()) <= 200]


def test_X01_X02_X03_hostile_text_in_every_form_of_a_notebook(lab, canary) -> None:
    """No script runs, no request leaves, nothing breaks out, and every string is there to be read."""
    evil = chosen(canary)
    assert len(evil) >= 500
    wrong = walk(lab, canary, evil, "hostile")
    assert len(wrong) == 7
    assert {form: seen for form, seen in wrong.items() if seen} == {}


def test_a_hole_is_seen_in_every_form_of_a_notebook(lab, canary) -> None:
    """The same looks with working attacks: each form's fails, with an attack that reached the net."""
    own = attack_strings(canary.address)
    maths = next(text for text in own if text.startswith("$\\raise"))
    evil = [*(own[n] for n in (1, 6, 0, 5, 9, 16, 3, 8)), maths]  # none that leads the page away
    wrong = walk(lab, canary, evil, "planted", HOLES)
    assert len(wrong) == 7
    for form, seen in wrong.items():
        if form == "saved":  # nothing is loaded: the file itself holds it
            assert any("<img" in one for one in seen)
            assert any("x1b" in one for one in seen)
        else:
            assert any(one.startswith(("canary", "http")) for one in seen), (form, seen)
            drawn = any(one.startswith("<mjx-container") for one in seen)
            assert drawn is (form in ("frozen", "reopened", "reopened untrusted")), (form, seen)
