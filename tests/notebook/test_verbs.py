"""The verb table, and every verb's Python twin without IPython (D8, D11, D21, F14, N11)."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from notebook_agent.core.messages import ToolCallPart
from notebook_agent.core.session import RunStatus
from notebook_agent.errors import AgentError, ConfigError, InputRejected, ProviderError
from notebook_agent.notebook.agent_session import AgentSession
from notebook_agent.notebook.arguments import UsageError
from notebook_agent.notebook.completion import Completer
from notebook_agent.notebook.settings import Settings
from notebook_agent.notebook.verbs.table import VERBS, read_line, verb_help
from notebook_agent.providers.scripted import Reply, ScriptedModel

SPEC = [
    "status",
    "ask",
    "model",
    "models",
    "alias",
    "fallback",
    "breaker",
    "system",
    "tools",
    "count",
    "stop",
    "reset",
    "undo",
    "history",
    "session",
    "audit",
    "events",
    "fsm",
    "compact",
    "ab",
    "record",
    "replay",
    "panel",
    "fix",
    "explain",
    "export",
    "demo",
    "key",
    "why",
    "config",
    "show",
    "doctor",
    "resume",
    "help",
    "version",
]


# ---- reading a line ---------------------------------------------------------------------------


def test_every_verb_is_in_the_table_and_has_its_twin():
    assert sorted(VERBS) == sorted(SPEC)
    for verb in VERBS.values():
        assert callable(getattr(AgentSession, verb.name)), verb.name
        if verb.kind == "run" and verb.name != "ask":
            assert callable(getattr(AgentSession, f"prepare_{verb.name}"))
        if verb.kind == "chore":
            assert inspect.iscoroutinefunction(getattr(AgentSession, f"a{verb.name}"))
        name = (
            f"prepare_{verb.name}"
            if verb.kind == "run" and verb.name != "ask"
            else f"{'a' if verb.kind == 'chore' else ''}{verb.name}"
        )
        taken = inspect.signature(getattr(AgentSession, name)).parameters
        for option in verb.options:
            assert option.dest in taken, (verb.name, option.dest)


@pytest.mark.parametrize(
    ("line", "verb", "arguments"),
    [
        ("", "status", {}),
        ("  ", "status", {}),
        ("status", "status", {}),
        ("status?", "help", {"verb": "status"}),
        ("status ?", "help", {"verb": "status"}),
        ("model??", "help", {"verb": "model"}),
        ("ask what is it?", "ask", {"text": "what is it?"}),
        ("ask   'quoted \"text", "ask", {"text": "'quoted \"text"}),
        ("what is a monad?", "ask", {"text": "what is a monad?"}),
        ("monads?", "ask", {"text": "monads?"}),
        ("explain this to me", None, {}),
        ("tell me more", "ask", {"text": "tell me more"}),
        ("count how many?", "count", {"text": "how many?"}),
        ("count --exact", "count", {"exact": True}),
        ("count --exact how many?", "count", {"exact": True, "text": "how many?"}),
        ("count -- --exact is a flag", "count", {"text": "--exact is a flag"}),
        ("model openai:gpt-x", "model", {"name": "openai:gpt-x"}),
        ("alias fast openai:gpt", "alias", {"name": "fast", "target": "openai:gpt"}),
        ("undo 3", "undo", {"runs": 3}),
        ("reset --hard", "reset", {"hard": True}),
        ("tools add f,g h", "tools", {"action": "add", "names": ("f", "g", "h")}),
        ("compact policy threshold=50 auto=false", "compact", {"action": "policy", "changes": {"threshold": 50, "auto": False}}),
        ("compact policy auto=False prune=True summary_model=None", "compact",
         {"action": "policy", "changes": {"auto": False, "prune": True, "summary_model": None}}),
        ("audit --run -1 --last 5", "audit", {"run": "-1", "last": 5}),
        ("audit --run=-1 --last 5", "audit", {"run": "-1", "last": 5}),
        ("replay f.jsonl --speed 2.5", "replay", {"path": "f.jsonl", "speed": 2.5}),
        ("system be brief, please", "system", {"text": "be brief, please"}),
        ("key openai --save", "key", {"name": "openai", "save": True}),
        ("history -s work", "history", {"session": "work"}),
    ],
)  # fmt: skip
def test_lines(line, verb, arguments):
    if verb is None:
        with pytest.raises(UsageError):
            read_line(line)
        return
    call = read_line(line)
    assert (call.verb.name, dict(call.arguments)) == (verb, arguments)


@pytest.mark.parametrize(
    ("line", "says", "types"),
    [
        ("staus", "'staus'", "%agent status"),
        ("hello there", "'hello'", "%agent ask hello there"),
        ("stop the war", "takes no arguments", "%agent ask stop the war"),
        ("version two please", "takes no arguments", "%agent ask version two please"),
        ("undo everything", "'everything'", "%agent undo"),
        ("breaker smash", "'smash'", "%agent ask breaker smash"),
        ("demo dance", "'dance'", "%agent ask demo dance"),
        ("reset --hrad", "--hrad", "%agent reset --hard"),
        ("ask", "needs a text", "%agent ask TEXT"),
        ("undo 0", "at least 1", "%agent undo"),
    ],
)  # fmt: skip
def test_N11_lines_that_cannot_be_read(line, says, types):
    with pytest.raises(UsageError) as caught:
        read_line(line)
    lines = str(caught.value).splitlines()
    assert says in lines[0]
    assert types in lines[-1]
    assert len(lines) == 2


@given(st.text(max_size=60))
def test_any_line_is_read_or_refused_in_two_lines(line):
    try:
        seen = read_line(line).verb.name
    except UsageError as error:
        seen = str(error)
    assert seen in VERBS or "Type:" in seen


def test_help_of_every_verb():
    listing = verb_help()
    for name, verb in VERBS.items():
        assert f"  {name}" in listing
        assert verb.summary in verb_help(name)
    with pytest.raises(UsageError, match="status"):
        verb_help("staus")


# ---- the twins --------------------------------------------------------------------------------


def test_F14_ask_and_aask(agent):
    result = agent.ask("hi")
    assert (result.text, result.status) == ("First reply.", RunStatus.COMPLETED)
    assert agent.namespace["_"] is result
    assert agent.ask("again", into="x").text == "Second reply."
    assert agent.namespace["x"].text == "Second reply."


async def test_F14_aask(agent):
    assert (await agent.aask("hi")).text == "First reply."


def test_F14_every_looking_verb(agent):
    agent.ask("hi")
    for verb in ("status", "history", "fsm", "events", "count", "why", "config", "doctor", "help",
                 "version", "tools", "breaker", "fallback", "system", "alias", "session", "models",
                 "compact", "stop", "show", "model"):  # fmt: skip
        text = repr(getattr(agent, verb)())
        assert text.strip(), verb
        assert " at 0x" not in text
    assert list(agent.audit()["output"]) == ["First reply."]
    assert len(agent.audit(last=1)) == 1
    assert agent.audit(run="0")["run_id"].nunique() == 1
    assert "CHECKING_POLICY" in repr(agent.fsm("0"))
    with pytest.raises(UsageError):
        agent.fsm("nosuch")


def test_options_reach_the_request(agent, model):
    agent.namespace.update(df=[1, 2], f=lambda x: x, prompt="from a variable")

    def tool_f(x: int) -> int:
        """Double it."""
        return x * 2

    agent.namespace["tool_f"] = tool_f
    agent.ask(
        "hi",
        system="@prompt",
        with_=("df",),
        tools=("tool_f",),
        params={"temperature": 0.2},
        format="text",
    )
    call = model.calls[-1]
    assert call.request.system == "from a variable"
    assert [t.name for t in call.request.tools] == ["tool_f"]
    assert call.options.extra == {"temperature": 0.2}
    texts = [m.text_content() for m in call.request.messages]
    assert "df: list of 2" in texts[0]
    assert "plain text" in texts[1]
    assert texts[2] == "hi"
    agent.ask("next")
    assert [m.text_content() for m in model.calls[-1].request.messages] == [
        "hi",
        "First reply.",
        "next",
    ]
    assert model.calls[-1].request.tools is None
    agent.ask("alone", fresh=True, no_stream=True)
    assert [m.text_content() for m in model.calls[-1].request.messages] == ["alone"]
    assert model.calls[-1].streamed is False


def test_dry_run_sends_nothing(agent, model):
    agent.namespace["name"] = "Ada"
    text = repr(agent.dry_run("hello {{name}}", params={"seed": 7}))
    assert "hello Ada" in text
    assert "seed=7" in text
    assert "scripted:m" in text
    assert model.calls == []


def test_refusals_come_before_any_request(agent, model):
    for prompt, options, kind in (
        ("", {}, InputRejected),
        (" \n", {}, InputRejected),
        ("{{nothing}}", {}, InputRejected),
        ("hi", {"with_": ("nothing",)}, InputRejected),
        ("hi", {"tools": ("nothing",)}, UsageError),
        ("hi", {"system": "@nothing"}, UsageError),
        ("hi", {"schema": "M"}, UsageError),
        ("hi", {"model": "nosuch:x"}, ConfigError),
        ("hi", {"fallback": ("nosuch:x",)}, ConfigError),
    ):
        with pytest.raises(kind) as caught:
            agent.ask(prompt, **options)
        assert 2 <= len(str(caught.value).splitlines()) <= 3
    assert model.calls == []
    assert agent.ask("still fine").text == "First reply."


def test_sessions_are_apart(agent, model):
    agent.ask("in default")
    agent.ask("in work", session="work")
    assert [m.text_content() for m in model.calls[-1].request.messages] == ["in work"]
    assert agent.sessions == ["default", "work"]
    agent.session("load", "work")
    assert agent.current == "work"
    assert "in work" in repr(agent.history())
    agent.session("save", "project")
    assert agent.current == "project"
    assert "project" in repr(agent.session())
    agent.session("delete", "project")
    assert agent.current == "default"
    with pytest.raises(ConfigError):
        agent.session("load", "nosuch")


def test_undo_and_reset(agent):
    agent.ask("one")
    agent.ask("two")
    assert "1 run left" in repr(agent.undo())
    assert len(agent.runtime().session.history) == 2
    agent.reset()
    assert len(agent.runtime().session.history) == 0
    assert len(agent.audit()) == 2
    agent.reset(hard=True)
    assert len(agent.audit()) == 0


def test_alias_and_models(agent):
    agent.alias("fast", "scripted:other")
    assert agent.ask("hi", model="fast").turns[-1].model == "scripted:other"
    with pytest.raises(ConfigError, match="mean itself"):
        agent.models_book.alias("fast", "fast")
    agent.models_book.alias("a", "b")
    with pytest.raises(ConfigError, match="mean itself"):
        agent.models_book.alias("b", "a")
    with pytest.raises(ConfigError, match="one word"):
        agent.models_book.alias("two words", "x")
    assert "alias of scripted:other" in repr(agent.models())


def test_D11_default_choice(monkeypatch):
    monkeypatch.delenv("NOTEBOOK_AGENT_MODEL", raising=False)
    monkeypatch.setattr("notebook_agent.providers.local_files.is_installed", lambda: False)
    agent = AgentSession({}, settings=Settings(store="memory"))
    try:
        assert agent.model_name() == "scripted:teacher"
        assert "%agent model ID" in repr(agent.status())
        assert agent.start_notices("default") == (
            "no model is set up, so the scripted one answers; choose one with:  %agent model ID",
        )
        assert agent.start_notices("default") == ()
        assert "scripted" in agent.ask("hi").text
    finally:
        agent.close()
    monkeypatch.setattr("notebook_agent.providers.local_files.is_installed", lambda: True)
    assert AgentSession({}, settings=Settings(store="memory")).model_name() == "local:smollm2"


def test_a_run_with_its_own_model_needs_no_other_key(monkeypatch, model):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    agent = AgentSession({"m": model}, settings=Settings(store="memory", model="openai:gpt-x"))
    try:
        with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
            agent.ask("hi")
        assert agent.ask("hi", model="@m").text == "First reply."
        with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
            agent.ask("hi")
    finally:
        agent.close()


def test_breaker_and_fallback_verbs(agent):
    backup = ScriptedModel(["From the backup."], name="backup")
    agent.models_book.add(backup)
    agent.fallback("scripted:backup")
    assert "scripted:backup" in repr(agent.breaker())
    assert "fallback" in repr(agent.breaker("trip"))
    assert agent.ask("hi").turns[-1].model == "scripted:backup"
    assert "primary" in repr(agent.breaker("reset"))
    assert agent.ask("hi").turns[-1].model == "scripted:m"
    agent.fallback("none")
    assert "no backups" in repr(agent.fallback())


def test_why_tells_every_attempt(agent):
    bad = ScriptedModel(script="503*9", name="bad")
    agent.namespace["bad"] = bad
    with pytest.raises(AgentError):
        agent.ask("hi", model="@bad", timeout=20)
    text = repr(agent.why())
    assert text.count("AttemptFailed") >= 2
    assert "503" in text
    assert "RescueStarted" in text


def test_why_without_a_run(agent):
    assert "nothing has failed" in repr(agent.why())
    with pytest.raises(InputRejected):
        agent.ask("{{nothing}}")
    agent.note_error(InputRejected("said"))
    assert "said" in repr(agent.why())


def test_tools_verb_and_a_tool_run(agent):
    def double(x: int) -> int:
        """Double a number."""
        return x * 2

    agent.namespace["double"] = double
    agent.tools("add", ["double"])
    assert "Double a number." in repr(agent.tools())
    caller = ScriptedModel(
        [Reply(tool_calls=[ToolCallPart("c", "double", {"x": 4})]), "It is 8."], name="caller"
    )
    agent.model(caller)
    result = agent.ask("double 4")
    assert result.text == "It is 8."
    assert caller.calls[-1].request.messages[-1].results[0].output == "8"
    with pytest.raises(UsageError, match="tools rm double"):
        agent.tools("rm", ["doubel"])
    agent.tools("rm", ["double"])
    assert "no tools" in repr(agent.tools())


def test_json_format(agent):
    agent.model(ScriptedModel(['{"a": [1]}', "no json"], name="j"))
    assert agent.ask("hi", format="json").parsed == {"a": [1]}
    with pytest.raises(ProviderError, match="not valid JSON") as caught:
        agent.ask("hi", format="json")
    assert caught.value.partial_text == "no json"


def test_fix_and_explain_send_the_exception_and_no_values(agent, model, monkeypatch):
    monkeypatch.setattr(sys, "last_value", None, raising=False)
    with pytest.raises(UsageError, match="No exception"):
        agent.explain()
    secret = "sk-not-for-others"  # noqa: F841  # a local that a traceback could show
    try:
        _ = 1 / 0
    except ZeroDivisionError as error:
        monkeypatch.setattr(sys, "last_value", error, raising=False)
        monkeypatch.setattr(sys, "last_traceback", error.__traceback__, raising=False)
    agent.explain()
    sent = model.calls[-1].request.messages[-1].text_content()
    assert "ZeroDivisionError" in sent
    assert "sk-not-for-others" not in sent.replace('secret = "sk-not-for-others"', "")


def test_record_and_replay(agent, tmp_path):
    result = agent.ask("hi", record=str(tmp_path / "run.jsonl"))
    assert result.text == "First reply."
    assert "equals the record" in repr(agent.replay(str(tmp_path / "run.jsonl")))
    assert "BreakLoop" in repr(agent.replay_steps(str(tmp_path / "run.jsonl")))
    agent.record(str(tmp_path / "again.jsonl"))
    text = (tmp_path / "again.jsonl").read_text()
    (tmp_path / "bad.jsonl").write_text(
        text.replace('"NoMoreTurns"', '"Ok"').replace('"no_more_turns"', '"ok"')
    )
    with pytest.raises(AgentError):
        agent.replay(str(tmp_path / "bad.jsonl"))


@pytest.mark.parametrize("form", ["md", "json", "ipynb", "html"])
@pytest.mark.parametrize("redact", [False, True])
def test_export(agent, tmp_path, form, redact):
    agent.model(ScriptedModel(["<script>alert(1)</script> ![x](http://e/p.png)"], name="h"))
    agent.ask("my secret plan")
    said = repr(agent.export(str(tmp_path / f"out.{form}"), redact=redact))
    text = (tmp_path / f"out.{form}").read_text()
    assert ("my secret plan" in text) is not redact
    assert "1 runs" in said
    if form == "html":
        assert "<script" not in text
        assert "<img" not in text
    if form in ("json", "ipynb"):
        json.loads(text)
    if form == "ipynb":
        import nbformat

        nbformat.validate(nbformat.from_dict(json.loads(text)))
    with pytest.raises(UsageError, match=r"out\.md"):
        agent.export(str(tmp_path / "out.docx"))


@pytest.mark.parametrize("form", ["md", "ipynb"])
def test_X01_names_in_an_exported_text_are_code(agent, tmp_path, form):
    """A model chooses the name of its call; the front end that opens the file renders Markdown."""
    name = "![x](http://e/p.png)\n<img src=http://e/q> ``$\\style{a}{b}$"
    agent.model(
        ScriptedModel([Reply(tool_calls=[ToolCallPart("c1", name, {})]), "done"], name=name)
    )
    agent.ask("go")
    agent.export(str(tmp_path / f"out.{form}"))
    text = (tmp_path / f"out.{form}").read_text()
    if form == "ipynb":
        text = "\n\n".join(
            c["source"] for c in json.loads(text)["cells"] if c["cell_type"] == "markdown"
        )
    rendered = MarkdownIt("gfm-like", {"linkify": False}).render(text)
    assert rendered.count("p.png") >= 2
    assert "<img" not in rendered


def test_demo_runs(agent):
    result = agent.demo("retry")
    assert result.turns[-1].attempts == 3
    assert agent.demo("cancel").status is RunStatus.COMPLETED
    assert [r.status.value for r in agent.runtime("demo").session.runs] == [
        "cancelled",
        "completed",
    ]
    agent.demo("fallback")
    assert agent.runtime("demo").session.runs[-1].turns[-1].model == "scripted:backup"


def test_compact_verbs(agent):
    agent.model(ScriptedModel(["A long reply. " * 50], name="long"))
    for i in range(6):
        agent.ask(f"question {i} " + "word " * 50)
    assert "threshold" in repr(agent.compact("policy"))
    agent.compact("policy", {"keep_turns": 1})
    assert agent.runtime().compaction.keep_turns == 1
    assert "threshold        80 %\n" in repr(agent.compact("policy"))
    with pytest.raises(ConfigError):
        agent.compact("policy", {"nosuch": 1})
    before = len(agent.runtime().session.history)
    preview = repr(agent.compact("preview"))
    assert "nothing was changed" in preview
    assert max(len(line) for line in preview.splitlines()) < 90
    assert "A long reply. A long reply. A long reply. A…" in preview
    assert len(agent.runtime().session.history) == before
    assert "compacted" in repr(agent.compact("now"))


def test_the_policy_says_which_window_holds(agent):
    agent.model(ScriptedModel(["Yes."], name="narrow", window=960))
    assert "window           200,000, cut to the model's own 960\n" in repr(agent.compact("policy"))
    agent.compact("policy", {"window": 500, "threshold": 0})
    shown = repr(agent.compact("policy"))
    assert "window           500\n" in shown
    assert "threshold        0\n" in shown


def test_events_round_their_seconds(agent):
    agent.model(ScriptedModel(["Yes."], script="503, ok", name="shaky"))
    agent.ask("Well?")
    line = next(one for one in repr(agent.events()).splitlines() if "AttemptFailed" in one)
    assert re.search(r"delay_s=0\.\d{1,3},", line), line


def test_settings_twin(agent):
    agent.configure(max_turns=3)
    assert agent.policy().max_iterations == 3
    with pytest.raises(ConfigError, match="max_turns"):
        agent.configure(max_turn=3)
    assert {f.name for f in dataclasses.fields(Settings)} == set(agent.settings.pairs())


def test_X05_no_setting_holds_a_key(agent, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    agent.model("openai:gpt-4.1-mini")
    everything = (
        repr(agent.config())
        + repr(agent.status())
        + repr(vars(agent))
        + repr(agent.doctor())
        + repr(agent.models_book._clients)
    )
    assert "sk-test" not in everything
    assert "0123456789" not in everything


def test_D21_store_file_is_made_at_the_first_run(tmp_path, monkeypatch, model):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    agent = AgentSession({}, settings=Settings(store=""))
    try:
        agent.model(model)
        agent.status()
        agent.session()
        assert not list(tmp_path.rglob("*.db"))
        agent.ask("hi")
        [path] = tmp_path.rglob("sessions.db")
        assert path.stat().st_mode & 0o777 == 0o600
        first = agent.runtime().session.id
    finally:
        agent.close()
    again = AgentSession({}, settings=Settings(store=""))
    try:
        again.model(model)
        assert again.runtime().session.id != first  # `default` is new in every kernel
        assert "default" in repr(again.session("list"))
        again.session("load", first)
        assert "hi" in repr(again.history())
        assert "First reply." in repr(again.show())
    finally:
        again.close()


def test_D21_read_only_home_falls_back_with_one_line(tmp_path, monkeypatch, model):
    from notebook_agent.engine.store.memory import MemoryStore

    def no_file(spec=None, *, notify=None):
        notify("sessions.db cannot be written: sessions are kept in memory")
        return MemoryStore()

    monkeypatch.setattr("notebook_agent.engine.store.open.open_store", no_file)
    agent = AgentSession({}, settings=Settings(store=""))
    try:
        agent.model(model)
        assert agent.start_notices("default") == (
            "sessions.db cannot be written: sessions are kept in memory",
        )
        assert agent.start_notices("default") == ()
    finally:
        agent.close()


def test_a_store_that_cannot_be_opened_says_what_to_type(tmp_path, model):
    agent = AgentSession({}, settings=Settings(store=str(tmp_path)))
    agent.model(model)
    with pytest.raises(ConfigError, match=r"AgentMagics\.store"):
        agent.ask("hi")
    agent.close()


def test_pinned_runs_are_equal(model):
    def run():
        agent = AgentSession({}, settings=Settings(pinned=True))
        try:
            agent.model(ScriptedModel(["a", "b"], name="p"))
            agent.ask("hi")
            return repr(agent.fsm()), agent.audit().to_csv(), repr(agent.events())
        finally:
            agent.close()

    assert run() == run()


def test_completion_of_verbs_and_values(agent):
    complete = Completer(agent)
    agent.namespace.update(df=1, do_it=print, _hidden=1)
    assert complete.complete([], "st", cell=False) == ["status", "stop"]
    assert complete.complete(["model"], "scripted:m", cell=False) == ["scripted:m"]
    assert complete.complete(["breaker"], "", cell=False) == ["reset", "trip"]
    assert complete.complete(["tools", "add"], "do", cell=False) == ["do_it"]
    assert complete.complete(["nosuch"], "", cell=False) == []
    assert complete.complete(["-w"], "d", cell=True) == ["df", "do_it"]
    assert "openai:" in complete.complete(["-m"], "open", cell=True)


KILLED = """
import os, sys, threading, time
from notebook_agent.notebook.agent_session import AgentSession
from notebook_agent.notebook.settings import Settings
from notebook_agent.providers.scripted import ScriptedModel
agent = AgentSession({}, settings=Settings(store=sys.argv[1]))
agent.model(ScriptedModel(["never ends"], script="hang@1", name="m"))
def kill():
    while not (agent._runtimes and agent.runtime().session.runs):
        time.sleep(0.05)
    time.sleep(0.5)
    print(agent.runtime().session.runs[-1].id, flush=True)
    os.kill(os.getpid(), 9)
threading.Thread(target=kill).start()
agent.ask("what was I saying?")
"""


def test_D21_after_a_kill_status_offers_the_way_back(tmp_path, model):
    import subprocess

    path = str(tmp_path / "sessions.db")
    done = subprocess.run(
        [sys.executable, "-c", KILLED, path], capture_output=True, text=True, timeout=60
    )
    run_id = done.stdout.strip()
    assert done.returncode == -9, done.stderr
    agent = AgentSession({}, settings=Settings(store=path))
    try:
        agent.model(model)
        first, load, resume, *_ = repr(agent.status()).splitlines()
        assert "what was I saying?" in first
        assert resume == f"%agent resume {run_id}"
        agent.session(*load.split()[2:])
        result = agent.resume(resume.split()[-1])
        assert result.text == "First reply."
        assert "broken off" not in repr(agent.status())
        assert [r.status.value for r in agent.runtime().session.runs] == ["completed"]
    finally:
        agent.close()


def test_key_is_asked_for_and_never_shown(agent, monkeypatch):
    from notebook_agent.providers import registry

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr("getpass.getpass", lambda prompt: "sk-typed-0123456789")
    monkeypatch.setattr(registry, "_keys", type(registry._keys)())
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        agent.model("openai:gpt-x")
    said = repr(agent.key("openai"))
    assert "openai" in said
    assert "sk-typed" not in said
    assert "openai:gpt-x" in repr(agent.model("openai:gpt-x"))
    assert registry.key_for("openai").reveal() == "sk-typed-0123456789"
    with pytest.raises(UsageError, match="key openai"):
        agent.key("opnai")


@pytest.mark.parametrize("error", [NotImplementedError("no stdin"), EOFError(), OSError("no tty")])
def test_N11_a_key_that_nobody_can_be_asked_for(agent, monkeypatch, error):
    """A headless run says what to do; it is no defect of ours."""

    def ask(_prompt):
        raise error

    monkeypatch.setattr("getpass.getpass", ask)
    with pytest.raises(UsageError, match="Nobody can be asked for a key here"):
        agent.key("openai")


@pytest.mark.parametrize("path", ["a\0b.db", "~no-such-user-here/sessions.db"])
def test_D21_a_store_at_no_place_is_refused_in_words(agent, path):
    with pytest.raises(UsageError, match="is no place for a file"):
        agent.configure(store=path)
    assert agent.settings.store != path
    fresh = AgentSession(settings=Settings(store=path))  # as the environment would set it
    fresh.model(ScriptedModel(["x"], name="m"))
    with pytest.raises(ConfigError, match="is no place for sessions"):
        fresh.ask("hi")
    fresh.close()


def test_L20_the_counter_follows_the_model(agent):
    class Local(ScriptedModel):
        provider = "local"

    assert agent.counter.name == "o200k_base"
    agent.ask("hi")
    assert agent.runtime().session.runs[-1].config["counter"] == "o200k_base"
    agent.model(Local(["Yes."], name="smollm2"))
    assert agent.counter.name == "estimate"
    agent.ask("again")
    assert agent.runtime().session.runs[-1].config["counter"] == "estimate"
    assert "est. " in repr(agent.count("hi"))
    agent.model(ScriptedModel(["Yes."]))
    agent.fallback("ollama:llama")
    assert agent.counter.name == "largest(o200k_base,estimate)"
    agent.ask("and again")
    assert agent.runtime().session.runs[-1].config["counter"] == "largest(o200k_base,estimate)"
    agent.fallback("none")
    assert agent.counter.name == "o200k_base"


def test_replay_speed_drives_the_real_engine_by_the_file(agent, tmp_path):
    def double(x: int) -> int:
        """Double a number."""
        calls.append(x)
        return x * 2

    calls: list[int] = []
    agent.namespace["double"] = double
    faulty = ScriptedModel(
        [Reply(tool_calls=[ToolCallPart("c", "double", {"x": 4})]), "It is eight, I think."],
        script="503,ok,drop@2,ok",
        name="faulty",
    )
    agent.model(faulty)
    first = agent.ask("double 4", tools=("double",), record=str(tmp_path / "run.jsonl"))
    assert [t.attempts for t in first.turns] == [2, 2]
    said = repr(agent.prepare_replay(str(tmp_path / "run.jsonl"), speed=100.0).blocking())
    assert "the same as recorded" in said
    assert calls == [4]  # the notebook's own tool did not run again
    assert len(faulty.calls) == 4
    agent.record(str(tmp_path / "run2.jsonl"))
    text = (tmp_path / "run2.jsonl").read_text()
    (tmp_path / "none.jsonl").write_text(text.splitlines()[0] + "\n")
    with pytest.raises(AgentError, match="holds no run"):
        agent.prepare_replay(str(tmp_path / "none.jsonl"), speed=1.0)


async def test_F7_the_same_loop_driver_serves_a_session(model):
    from notebook_agent.notebook.kernel_loop import SameLoop

    agent = AgentSession({}, settings=Settings(store="memory"), engine=SameLoop())
    agent.model(model)
    assert (await agent.aask("hi")).text == "First reply."
    assert "policy" in repr(await agent.acompact("policy"))
    with pytest.raises(AgentError, match="no threads"):
        agent.ask("hi")
    with pytest.raises(AgentError, match="no threads"):
        agent.models()
    agent.close()


def test_schema_gives_parsed(agent):
    from pydantic import BaseModel

    class City(BaseModel):
        name: str
        people: int

    agent.namespace["City"] = City
    agent.model(ScriptedModel(['{"name": "Riga", "people": 605000}'], name="s"))
    result = agent.ask("Riga?", schema="City")
    assert result.parsed == City(name="Riga", people=605000)
    with pytest.raises(UsageError, match="schema City"):
        agent.ask("Riga?", schema="Citi")
    agent.namespace["nothing"] = 5
    with pytest.raises(ConfigError):
        agent.ask("Riga?", schema="nothing")


TYPED_KEY = "sk-proj-AbCdEf0123456789wxyz"


@pytest.mark.parametrize(
    "line",
    ["keys {}", "keys openai {}", "apikey openai {} please", "API_KEY = '{}'", "key={}", "set-key openai {}"],
)  # fmt: skip
def test_X05_a_slip_of_the_key_verb_is_neither_asked_nor_repeated(line):
    with pytest.raises(UsageError, match="nothing was kept") as caught:
        read_line(line.format(TYPED_KEY))
    assert TYPED_KEY not in str(caught.value)


@pytest.mark.parametrize("line", ["keys of a dict in python3?", "keyboard shortcuts in jupyterlab"])
def test_a_question_about_keys_is_asked(line):
    assert read_line(line).verb.name == "ask"


ADDRESSES = ("http://me:{}@127.0.0.1:1/v1#m", "http://127.0.0.1:1/v1?token={}#m")


@pytest.mark.parametrize("address", [one.format(TYPED_KEY) for one in ADDRESSES])
def test_X05_a_key_in_an_address_is_in_nothing_that_is_shown(agent, address):
    agent.alias("mine", address)
    agent.model("mine")
    agent.fallback(address)
    agent.configure(model=address, fallback=f"{address},scripted:b")
    agent.models_book.client(address)
    shown = [
        *map(str, (agent.model(), agent.alias(), agent.config(), agent.status(), agent.breaker(), agent.models("scripted"))),
        agent.alias("mine", address), repr(vars(agent.models_book)["_clients"]), repr(agent.settings),
        agent.models_book.known(), agent.dry_run("hi", model=address),
    ]  # fmt: skip
    for one in shown:
        assert "AbCdEf" not in str(one)


def test_X05_a_key_in_place_of_a_provider_is_not_repeated(agent):
    with pytest.raises(UsageError) as caught:
        agent.key("sk-live-ABCDEFGHIJ0123456789")
    assert "sk-live" not in str(caught.value)


def test_N11_tools_says_what_to_type(agent):
    with pytest.raises(UsageError, match=r"Type:  %agent tools add"):
        agent.tools("add", ["nope"])
    with pytest.raises(UsageError, match=r"Type:  %agent tools add my_function"):
        agent.tools("rm", ["nope"])
