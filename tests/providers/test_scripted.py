"""ScriptedModel: replies, deltas, faults, script words."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_agent.core import events as e
from notebook_agent.core.accumulator import StreamAccumulator
from notebook_agent.core.messages import Message, ToolCallPart, ToolResultPart
from notebook_agent.core.request import RequestOptions, StreamRequest, ToolSchema
from notebook_agent.core.response import Ending, StopReason, Usage
from notebook_agent.errors import ConfigError, ErrorKind, ProviderError
from notebook_agent.providers.base import ModelClient, full_name
from notebook_agent.providers.fault_script import parse_script
from notebook_agent.providers.scripted import Reply, ScriptedModel
from tests.conftest import run_virtual

PLAIN = RequestOptions()
ASK = StreamRequest((Message.user("What is a monad?"),))


async def collect(model, request=ASK, options=PLAIN):
    """Events until the end or the error: ``(events, error)``."""
    events = []
    try:
        async for event in model.stream_messages_with_options(request, options):
            events.append(event)
    except ProviderError as error:
        return events, error
    return events, None


def stream(model, request=ASK, options=PLAIN):
    return run_virtual(collect(model, request, options))


def create(model, request=ASK, options=PLAIN):
    return run_virtual(model.create_message_with_options(request, options))


def folded(events):
    accumulator = StreamAccumulator()
    for event in events:
        accumulator.apply(event)
    return accumulator


def deltas(events):
    return [event for event in events if isinstance(event, e.IndexedDelta)]


def test_is_a_client_and_says_scripted():
    model = ScriptedModel("hi")
    assert isinstance(model, ModelClient)
    assert full_name(model) == "scripted:scripted"
    assert model.set_model("b")
    assert full_name(model) == "scripted:b"
    assert not model.requires_network


@given(st.text(max_size=60), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_any_text_arrives_whole(text, sizes):
    for reply in (Reply(text=text), Reply(text=text, sizes=sizes)):
        events, error = stream(ScriptedModel(reply))
        assert error is None
        assert folded(events).build().text_content() == text
        assert isinstance(events[-1], e.MessageStop)


def test_sizes_and_deltas_are_kept():
    texts = lambda r: [d.delta.text for d in deltas(stream(ScriptedModel(r))[0])]  # noqa: E731  # one word for many asserts
    assert texts(Reply(text="abcdef", sizes=[1, 2])) == ["a", "bc", "d", "ef"]
    assert texts(Reply(deltas=["x", "", "y"])) == ["x", "", "y"]


def test_tool_arguments_travel_as_fragments_only():
    call = ToolCallPart("c1", "add", {"a": 1, "text": "ünï\ncode"})
    events, _ = stream(ScriptedModel(Reply(text="Adding.", tool_calls=[call])))
    opening = [x.part for x in events if isinstance(x, e.PartStart) and x.part is not None][1]
    assert opening.input is None
    assert opening.raw == ""
    assert len([d for d in deltas(events) if isinstance(d.delta, e.InputJson)]) > 2
    built = folded(events)
    assert built.build().tool_calls[0].input == call.input
    assert built.stop_reason is StopReason.TOOL_CALL


@pytest.mark.parametrize("interleave", [False, True])
def test_parallel_calls_keep_their_arguments(interleave):
    calls = [ToolCallPart("", f"t{i}", {"n": i, "pad": "x" * 20 * i}) for i in range(3)]
    events, _ = stream(ScriptedModel(Reply(tool_calls=calls, interleave=interleave)))
    built = folded(events).build().tool_calls
    assert [c.input for c in built] == [c.input for c in calls]
    assert len({c.id for c in built}) == 3
    indexes = [d.index for d in deltas(events)]
    assert (indexes != sorted(indexes)) is interleave


def test_raw_arguments_that_are_no_json_stay_raw():
    events, _ = stream(ScriptedModel(Reply(tool_calls=[ToolCallPart("c", "f", None, '{"a": ')])))
    (call,) = folded(events).build().tool_calls
    assert not call.parsed
    assert call.raw == '{"a": '


def test_thinking_never_reaches_the_message_and_redacted_is_one_empty_delta():
    events, _ = stream(ScriptedModel(Reply(text="4", thinking="two and two")))
    assert "".join(d.delta.text for d in deltas(events) if isinstance(d.delta, e.Thinking)) == (
        "two and two"
    )
    assert folded(events).build().text_content() == "4"
    events, _ = stream(ScriptedModel(Reply(text="4", thinking="")))
    assert deltas(events)[0].delta == e.Thinking("")


def test_usage_given_absent_or_counted():
    assert folded(stream(ScriptedModel("a", usage=None))[0]).usage is None
    assert folded(stream(ScriptedModel("a", usage=Usage(7, 3)))[0]).usage == Usage(7, 3)
    assert folded(stream(ScriptedModel(Reply(text="a", usage=None)))[0]).usage is None
    assert folded(stream(ScriptedModel("abcde"))[0]).usage == Usage(4, 2)


@pytest.mark.parametrize(
    ("reply", "reason", "ending", "raw"),
    [
        (Reply(text="a"), StopReason.END_TURN, Ending.END_TURN, "stop"),
        (Reply(text="a", stop_reason="length"), StopReason.MAX_TOKENS, Ending.MAX_TOKENS, "length"),
        (Reply(text="a", stop_reason=StopReason.STOP_SEQUENCE), StopReason.STOP_SEQUENCE,
         Ending.STOP_SEQUENCE, "stop_sequence"),
        (Reply(text="a", stop_reason="odd"), StopReason.END_TURN, Ending.UNKNOWN, "odd"),
        (Reply(text="a", stop_reason=""), StopReason.END_TURN, None, None),
        (Reply(text="a", refusal=True), StopReason.END_TURN, Ending.REFUSAL, "refusal"),
    ],
)  # fmt: skip
def test_stop_words_and_endings_streamed_and_not(reply, reason, ending, raw):
    built = folded(stream(ScriptedModel(reply))[0])
    whole = create(ScriptedModel(reply))
    assert (built.stop_reason, built.ending, built.ending_raw) == (reason, ending, raw)
    assert (whole.stop_reason, whole.ending, whole.ending_raw) == (reason, ending, raw)
    assert whole.message == built.build()


def test_refusal_is_marked_and_no_text():
    message = create(ScriptedModel(Reply(text="No.", refusal=True))).message
    assert message.text_content() == ""
    assert message.parts[0].refusal


def test_last_reply_repeats_and_a_fault_uses_none_up():
    model = ScriptedModel(["one", "two"], script="503,ok,drop@1,trunc@1,ok,ok")
    texts = []
    for _ in range(6):
        events, _ = stream(model)
        texts.append(folded(events).text() if folded(events).ended else None)
    assert texts == [None, "one", None, None, "two", "two"]
    assert [c.step.word for c in model.calls] == ["503", "ok", "drop@1", "trunc@1", "ok", "ok"]
    assert model.requests == [ASK] * 6


def test_last_step_repeats_and_unstreamed_requests_take_steps_too():
    model = ScriptedModel("x", script="429:2,ok*2,503")
    with pytest.raises(ProviderError) as caught:
        create(model)
    assert caught.value.is_rate_limited
    assert caught.value.retry_after == 2
    assert stream(model)[1] is None
    assert create(model).message.text_content() == "x"
    assert stream(model)[1].status == 503
    with pytest.raises(ProviderError):
        create(model)
    assert [c.streamed for c in model.calls] == [False, True, False, True, False]


def test_exceptions_are_replies():
    boom = ProviderError(ErrorKind.AUTHENTICATION, "bad key", status=401)
    model = ScriptedModel([boom, "fine"])
    assert stream(model)[1] is boom
    assert folded(stream(model)[0]).text() == "fine"
    with pytest.raises(RuntimeError):
        create(ScriptedModel(RuntimeError("own")))


def test_function_sees_the_request():
    model = ScriptedModel(lambda request: request.messages[-1].text_content().upper())
    assert create(model).message.text_content() == "WHAT IS A MONAD?"


FAULTS = [
    ("drop@{n}", ErrorKind.TRANSPORT),
    ("malformed@{n}", ErrorKind.TRANSPORT),
    ("error@{n}", ErrorKind.OVERLOADED),
    ("trunc@{n}", None),
]


@pytest.mark.parametrize(("word", "kind"), FAULTS)
@pytest.mark.parametrize("n", [0, 1, 3, 4, 99])
def test_fault_after_n_deltas(word, kind, n):
    events, error = stream(ScriptedModel("one two three four", script=word.format(n=n)))
    assert len(deltas(events)) == min(n, 4)
    assert isinstance(events[0], e.MessageStart)
    assert not any(isinstance(x, (e.MessageStop, e.MessageDelta)) for x in events)
    assert (error.kind if error else None) is kind


@pytest.mark.parametrize("word", ["drop", "malformed", "error", "503", "quota", "overflow"])
def test_fault_before_the_first_event(word):
    events, error = stream(ScriptedModel("one two", script=word))
    assert events == []
    assert isinstance(error, ProviderError)
    with pytest.raises(ProviderError):
        create(ScriptedModel("one two", script=word))


def test_bare_trunc_sends_everything_but_the_end():
    events, error = stream(ScriptedModel("one two", script="trunc"))
    assert error is None
    assert folded(events).build().text_content() == "one two"
    assert not folded(events).ended


def test_quota_and_overflow_are_permanent():
    for word, field in (("quota", "quota"), ("overflow", "overflow")):
        error = stream(ScriptedModel("x", script=word))[1]
        assert getattr(error, field)
        assert not error.is_retryable


def test_slow_and_delays_in_virtual_time():
    async def timed(model):
        loop = asyncio.get_running_loop()
        begin = loop.time()
        marks = []
        async for event in model.stream_messages_with_options(ASK, RequestOptions()):
            if isinstance(event, (e.MessageStart, e.IndexedDelta)):
                marks.append(round(loop.time() - begin, 6))
        return marks

    assert run_virtual(timed(ScriptedModel("a b", script="slow@1.5"))) == [1.5, 1.5, 1.5]
    assert run_virtual(timed(ScriptedModel("a b", delay_s=0.25))) == [0, 0.25, 0.5]
    assert run_virtual(timed(ScriptedModel(Reply(text="a b", delay_s=2, pings=1)))) == [0, 4, 6]


@pytest.mark.parametrize("script", ["hang", "hang@2"])
def test_hang_ends_by_cancel_and_leaves_nothing_open(script):
    model = ScriptedModel("a b c", script=script)

    async def run():
        events = []

        async def read():
            async for event in model.stream_messages_with_options(ASK, RequestOptions()):
                events.append(event)

        task = asyncio.create_task(read())
        await asyncio.sleep(1)
        assert model.open_streams == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return events

    assert len(deltas(run_virtual(run()))) == (2 if "@" in script else 0)
    assert model.open_streams == 0


def test_closing_a_stream_in_the_middle_leaves_nothing_open():
    model = ScriptedModel("a b c")

    async def run():
        events = model.stream_messages_with_options(ASK, RequestOptions())
        await anext(events)
        await events.aclose()

    run_virtual(run())
    assert model.open_streams == 0


@pytest.mark.parametrize(
    ("script", "word"),
    [("429,dorp@3", "dorp@3"), ("200", "200"), ("ok@3", "ok@3"), ("slow", "slow"), ("429,,ok", ""),
     ("503*0", "503*0"), ("drop@-1", "drop@-1"), ("600", "600"), ("drop:2", "drop:2")],
)  # fmt: skip
def test_bad_script_names_word_and_legal_list(script, word):
    with pytest.raises(ConfigError) as caught:
        ScriptedModel("x", script=script)
    assert repr(word) in str(caught.value)
    assert "drop[@n]" in str(caught.value)
    assert caught.value.value == word


@given(st.text(alphabet="0123456789@*:,. adehlmnoprstuwx", max_size=20))
def test_any_script_parses_or_is_refused(script):
    try:
        steps = parse_script(script)
    except ConfigError:
        return
    assert len(steps) >= script.strip().count(",")


def test_settings_out_of_range_are_refused():
    for bad in (dict(delay_s=-1), dict(delay_s=float("nan")), dict(window=0)):
        with pytest.raises(ConfigError):
            ScriptedModel("x", **bad)
    with pytest.raises(ConfigError):
        ScriptedModel([])
    with pytest.raises(ConfigError):
        Reply(sizes=[0])
    assert ScriptedModel("x", window=8000).capabilities().context_window == 8000


def test_teacher_says_scripted_and_how_to_choose_a_real_one():
    model = ScriptedModel()
    text = create(model).message.text_content()
    assert "scripted" in text
    assert "fetch-model" in text
    assert "What is a monad?" in text
    assert text == create(ScriptedModel()).message.text_content()


def test_teacher_calls_a_tool_when_asked_and_reports_its_result():
    request = StreamRequest(
        (Message.user('Please call add {"a": 2, "b": 3}'),), tools=(ToolSchema("add"),)
    )
    (call,) = create(ScriptedModel(), request).message.tool_calls
    assert (call.name, call.input) == ("add", {"a": 2, "b": 3})
    answered = StreamRequest(
        (*request.messages, Message.tool_results((ToolResultPart(call.id, "add", "5"),)))
    )
    assert "`add` returned: 5" in create(ScriptedModel(), answered).message.text_content()


def test_teacher_gives_json_when_a_format_is_forced():
    import jsonschema

    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string"}, "n": {"type": "integer", "minimum": 3},
            "kind": {"enum": ["a", "b"]}, "xs": {"type": "array", "items": {"type": "number"}},
        },
        "required": ["name", "n", "kind", "xs"],
    }  # fmt: skip
    options = RequestOptions(response_format={"type": "json_schema", "schema": schema})
    value = json.loads(create(ScriptedModel(), options=options).message.text_content())
    jsonschema.validate(value, schema)
    options = RequestOptions(response_format={"type": "json_object"})
    assert json.loads(create(ScriptedModel(), options=options).message.text_content())
