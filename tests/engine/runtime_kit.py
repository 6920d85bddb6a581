"""What the runtime's tests share: a runtime over the scripted model, traces, legality checks."""

from __future__ import annotations

from notebook_agent.core import outcomes as o
from notebook_agent.core.messages import Message, Role
from notebook_agent.core.replay import replay
from notebook_agent.core.turn_fsm import BreakLoop, CompactAndRetry, Continue, Fail
from notebook_agent.engine.observers import CALLBACKS, Observer
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.errors import AgentError
from notebook_agent.providers.scripted import ScriptedModel
from tests.conftest import fixed_surroundings, run_virtual


class CharCounter:
    """One token per character of text, calls and results; ``per_message`` beside it."""

    exact = True

    def __init__(self, name="chars", per_message=0):
        self.name = name
        self.per_message = per_message
        self.messages_counted = 0
        self.overheads_counted = 0

    def count_text(self, text):
        return len(text)

    def count_message(self, message: Message):
        self.messages_counted += 1
        size = self.per_message
        for part in message.parts:
            match part.type:
                case "text":
                    size += len(part.text)
                case "tool_call":
                    size += len(part.name) + len(str(part.input))
                case "tool_result":
                    size += len(part.output)
        if message.provider_state is not None:
            size += len(str(message.provider_state))
        return size

    def count_overhead(self, system, tools):
        self.overheads_counted += 1
        return len(system or "") + sum(
            len(t.name) + len(t.description) + len(str(t.parameters)) for t in tools or ()
        )


class Log(Observer):
    """Every callback as ``(name, context)``, in order."""

    def __init__(self):
        self.calls = []

    def names(self, *skip):
        return [name for name, _ in self.calls if name not in skip]

    def of(self, name):
        return [ctx for n, ctx in self.calls if n == name]


def _heard(name):
    def hear(self, ctx=None):
        self.calls.append((name, ctx))

    return hear


for _name in CALLBACKS:
    setattr(Log, _name, _heard(_name))

QUIET = ("on_state", "on_event", "on_text_delta", "on_thinking_delta", "reset")


def make(replies="Hello.", *, script="", counter=None, delay_s=0.0, model=None, **given):
    """A runtime over a scripted model, with fixed surroundings and a plain counter."""
    client = model or ScriptedModel(replies, script=script, delay_s=delay_s)
    given.setdefault("surroundings", fixed_surroundings())
    runtime = AgentRuntime(client, counter=counter or CharCounter(), **given)
    runtime.client = client
    return runtime


def run(runtime, prompt="Hi", **given):
    """Run in virtual time; the result, also of a run that ended with an error."""
    try:
        return run_virtual(runtime.arun(prompt, **given))
    except AgentError as error:
        return error.result  # None would be a defect: the caller's first look fails


def failing(runtime, prompt="Hi", **given):
    """The error that a run ends with."""
    try:
        run_virtual(runtime.arun(prompt, **given))
    except AgentError as error:
        return error
    raise AssertionError("the run did not fail")


def trace(runtime, result):
    """``STATE: Outcome => action`` of every recorded transition."""
    return [
        f"{r.state.name}: {type(r.outcome).__name__} => {arrow(r.action)}"
        for r in runtime.store.records(result.run.id)
        if r.outcome is not None
    ]


def arrow(action):
    match action:
        case Continue(state=state):
            return f"->{state.name}"
        case CompactAndRetry():
            return "CompactAndRetry"
        case BreakLoop():
            return "BreakLoop"
        case Fail(error=error):
            return f"Fail({type(error).__name__})"


def check_run(runtime, result):
    """What must hold of every run, however it ended."""
    run_id = result.run.id
    records = runtime.store.records(run_id)
    report = replay(records)
    assert report.ok, str(report)
    assert report.complete
    assert report.status is result.status
    assert [r.sequence for r in records] == list(range(len(records)))
    assert records[-1].status is result.status
    assert runtime.store.state(run_id).status is result.status
    events = runtime.store.events(run_id)
    assert [e.terminal for e in events] == [False] * (len(events) - 1) + [True]
    check_b13(records)
    check_legal(runtime.session.history)


def check_b13(records):
    """B13 (d), (e), (f) on a record."""
    waiting = False  # between CompactAndRetry and ContextReady
    previous = None
    for record in records:
        if record.outcome is None:
            continue
        state = record.state.name
        if state == "BUILDING_CONTEXT" and previous is not None:
            came = (previous.state.name, type(previous.outcome).__name__)
            assert (
                came[0] == "CHECKING_POLICY"
                or isinstance(previous.action, CompactAndRetry)
                or came == ("BUILDING_CONTEXT", "CompactionTriggered")
            )
        if waiting:
            assert state != "CHECKING_POLICY"
        if isinstance(record.action, CompactAndRetry):
            waiting = True
        if isinstance(record.outcome, o.ContextReady):
            waiting = False
        if isinstance(record.action, BreakLoop):
            assert state == "PERSISTING"
        previous = record


def check_legal(messages):
    """A conversation that every provider takes: pairs whole, nothing blank, user first."""
    open_calls = {}
    for message in messages:
        assert message.parts, message
        if message.role is Role.ASSISTANT:
            assert not open_calls, f"calls without results: {open_calls}"
            assert (
                message.tool_calls
                or message.text_content().strip()
                or any(getattr(p, "refusal", False) for p in message.parts)
            )
            for call in message.tool_calls:
                assert call.id not in open_calls
                assert isinstance(call.input, dict)
                open_calls[call.id] = call.name
        else:
            if open_calls:
                assert {r.call_id for r in message.results} == set(open_calls)
                open_calls = {}
            else:
                assert not message.results
    assert not open_calls
