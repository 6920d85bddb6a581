"""CompactionService: strategies, verdicts, hooks, circuit, idempotence, preview."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notebook_agent.core.compaction import CompactionPolicy, target_tokens
from notebook_agent.core.compaction_cut import left_open, newest_ask
from notebook_agent.core.context import sum_tokens
from notebook_agent.core.log_view import conversation
from notebook_agent.core.messages import Message, Role, TextPart, ToolCallPart
from notebook_agent.core.response import ChatResponse, Ending, StopReason, Usage
from notebook_agent.core.trim import is_summary
from notebook_agent.engine.compactor import CompactionService, CompactionState, Guidance
from notebook_agent.engine.store.base import MessageRecord
from notebook_agent.errors import AgentError, Cancelled, ConfigError, ErrorKind, ProviderError
from tests.conftest import fixed_surroundings, run_virtual
from tests.core.test_compaction import histories
from tests.engine.compaction_kit import NOTES, Summariser, Words, exchange, give_ids, turns

WINDOW = 2_000


def service(strategy="extractive", complete=None, hooks=(), **over):
    given = {"window": WINDOW, "keep_tokens": 300, **over}
    given_policy = CompactionPolicy(strategy=strategy, **given)
    return CompactionService(given_policy, Words(), complete, hooks, fixed_surroundings())


def compact(made, history, pending=(), **over):
    ask = {"reason": "threshold", "window": WINDOW, "reserved": 100, **over}
    return run_virtual(made.compact(history, pending, **ask))


def text_of(result):
    return result.summary.text_content()


# --- what a pass gives -----------------------------------------------------------------------


def test_B28_extractive_is_the_default_and_needs_no_model():
    assert CompactionPolicy().strategy == "extractive"
    history = turns(20)
    result = compact(service(), history)
    assert (result.applied, result.status, result.calls) == (True, "applied", 0)
    assert result.tokens_before == sum_tokens(Words(), history) + 100
    assert result.tokens_after == sum_tokens(Words(), result.messages) + 100
    assert result.tokens_saved == result.tokens_before - result.tokens_after > 0
    assert result.messages[0] is result.summary
    assert result.summary.role is Role.USER
    assert is_summary(result.summary)
    assert result.messages[1:] == tuple(history[36:])
    assert result.kept_ids == ("m36", "m37", "m38", "m39")
    assert result.removed == 36
    assert "box 7" in text_of(result)
    assert "fill fill fill" not in text_of(result)
    assert result.tokens_after <= target_tokens(CompactionPolicy(), WINDOW)


def test_nothing_given_is_touched():
    history, pending = turns(20), give_ids([Message.user("now?")])
    before = (list(history), list(pending))
    result = compact(service(), history, pending)
    assert (history, pending) == before
    assert result.messages[-1] is pending[-1]


def test_L101_history_and_pending_become_one_history():
    pending = give_ids([Message.user("the question"), *exchange("a"), *exchange("b", "c")])
    pending = [m.with_id(f"p{n}") for n, m in enumerate(pending)]
    result = compact(service(), turns(20), pending)
    assert result.kept_ids[-len(pending) :] == tuple(m.id for m in pending)


def test_B25_the_log_gives_the_same_view_after_a_reload():
    history = turns(12)
    giant = give_ids([Message.user("x"), *exchange("a", output="row " * 5_000)])
    history += [m.with_id(f"g{n}") for n, m in enumerate(giant)]
    history += [m.with_id(f"z{n}") for n, m in enumerate(turns(1, start=90))]
    for strategy in ("extractive", "truncate"):
        result = compact(service(strategy), history)
        assert result.applied
        log = [
            MessageRecord(session_id="s", run_id="r", kind="message", message=m)
            for m in (*history, *result.new_messages)
        ]
        log.append(MessageRecord(session_id="s", run_id="r", kind="compaction", meta=result.meta()))
        if result.summary is not None:
            log.append(
                MessageRecord(session_id="s", run_id="r", kind="summary", message=result.summary)
            )
        assert conversation(log) == result.messages, strategy


def test_a_second_compaction_updates_the_summary_and_keeps_its_facts():
    history = [
        *give_ids([Message.user("My name is Marija Ozola. We must never use krypton-7."),
                   Message.assistant("Noted.")]),
        *[m.with_id(f"t{n}") for n, m in enumerate(turns(12))],
    ]  # fmt: skip
    made = service()
    for round_ in range(4):
        result = compact(made, history)
        assert result.applied, result.detail
        assert sum(is_summary(m) for m in result.messages) == 1
        assert "Marija Ozola" in text_of(result)
        assert "krypton-7" in text_of(result)
        more = [m.with_id(f"r{round_}_{n}") for n, m in enumerate(turns(12, start=20 * round_))]
        history = [*result.messages, *more]


def test_L104_truncate_keeps_first_and_last():
    history = turns(20)
    result = compact(service("truncate"), history)
    assert result.summary is None
    assert result.messages == (history[0], *history[36:])
    assert result.kept_ids == ("m0", "m36", "m37", "m38", "m39")
    assert result.meta()["summary_id"] is None


def test_L104_six_messages_or_fewer_lose_none_but_the_oversize_one_is_shortened():
    history = give_ids(
        [Message.user("q"), *exchange("a", output="row " * 3_000), Message.user("e")]
    )
    result = compact(service("truncate"), history)
    assert result.applied
    assert len(result.messages) == len(history)
    assert [m.id for m in result.new_messages] == [result.messages[2].id]
    assert result.messages[2].id != history[2].id
    assert "left out here" in result.messages[2].results[0].output
    assert result.tokens_after <= target_tokens(CompactionPolicy(), WINDOW)
    small = compact(service("truncate"), turns(3))
    assert (small.applied, small.status) == (False, "nothing")


@pytest.mark.parametrize("strategy", ["extractive", "truncate", "model"])
def test_P03_a_giant_in_a_history_without_a_head_is_shortened(strategy):
    pending = give_ids([Message.user("dump it"), *exchange("d", output="cell " * 9_000)])
    made = service(strategy, Summariser(NOTES))
    result = compact(made, [], pending)
    assert result.applied
    assert result.summary is None
    assert [m.id for m in result.messages[:2]] == ["m0", "m1"]
    assert result.tokens_after <= target_tokens(CompactionPolicy(), WINDOW)
    shown = run_virtual(made.preview([], pending, window=WINDOW, reserved=100))
    assert shown.tokens_after == result.tokens_after


def test_a_long_run_of_tool_calls_is_compacted_inside_its_turn():
    pending = give_ids(
        [
            Message.user("the question"),
            *(m for n in range(30) for m in exchange(f"c{n}", output="w " * 40)),
        ]
    )
    result = compact(service(), [], pending)
    assert result.applied
    assert result.messages[1].text_content() == "the question"
    assert left_open(result.messages) == []
    assert result.tokens_after < target_tokens(CompactionPolicy(), WINDOW)


def test_nothing_to_drop_says_so():
    for history in ([], give_ids([Message.user("hello")])):
        result = compact(service(), history)
        assert (result.applied, result.status) == (False, "nothing")
        assert result.messages == tuple(history)
    giant = compact(service(), give_ids([Message.user("word " * 1_900)]))
    assert "newest message alone has 1,903 tokens and is never cut" in giant.detail


def test_the_second_pass_of_a_turn_keeps_less():
    history = turns(20)
    first = compact(service(), history)
    second = compact(service(), list(first.messages), passes=1)
    assert second.applied
    assert len(second.messages) < len(first.messages)
    assert second.messages[-2:] == tuple(history[-2:])


def test_pruning_comes_first_when_it_is_on():
    history = give_ids(
        [
            m
            for n in range(10)
            for m in (Message.user(f"q{n}"), *exchange(f"c{n}", output="w " * 60))
        ]
    )
    plain = compact(service("truncate", min_messages=50), history)
    assert plain.status == "nothing"
    result = compact(
        service("truncate", min_messages=50, prune=True, prune_protect=100, prune_minimum=50),
        history,
    )
    assert result.applied
    assert len(result.messages) == len(history)
    assert len(result.new_messages) == 8


# --- hooks ------------------------------------------------------------------------------------


def test_L103_the_first_abort_wins_and_ends_the_walk():
    seen = []

    def one(ctx):
        seen.append("one")

    def two(ctx):
        seen.append("two")
        return Guidance(abort="wait for the end of the sprint")

    def three(ctx):
        seen.append("three")

    result = compact(service(hooks=[one, two, three]), turns(20))
    assert (result.status, result.applied) == ("vetoed", False)
    assert result.detail == "a hook said no: wait for the end of the sprint"
    assert seen == ["one", "two"]


def test_L103_guidance_reaches_the_summariser_and_a_broken_hook_is_left_out():
    seen = []

    def a(ctx):
        return Guidance(new_instructions="in French", additional_context="ticket 42")

    async def b(ctx):
        seen.append((ctx.instructions, ctx.tokens_before, ctx.window, ctx.strategy))
        return Guidance(new_instructions="in Latvian", additional_context="ticket 43")

    def broken(ctx):
        raise RuntimeError("x")

    class Full:
        def pre_compact(self, ctx):
            seen.append(ctx.instructions)

        def post_compact(self, result):
            seen.append(result.tokens_saved)

    model = Summariser(NOTES)
    made = service("model", model, hooks=[a, broken, b, Full()])
    result = compact(made, turns(20))
    assert result.applied
    prompt = model.requests[0].messages[0].text_content()
    assert "in Latvian" in prompt
    assert "in French" not in prompt
    assert text_of(result).endswith("- ticket 42\n- ticket 43")
    assert seen == [("in French", result.tokens_before, WINDOW, "model"), "in Latvian"]
    run_virtual(made.after_rewrite(result))
    assert seen[-1] == result.tokens_saved
    extractive = compact(service(hooks=[a]), turns(20))
    assert "- ticket 42" in text_of(extractive)


def test_odd_hooks_are_survived():
    seen = []

    class Mixed:
        pre_compact = None

        async def post_compact(self, result):
            seen.append("async")

    class Broken:
        def pre_compact(self, ctx):
            return Guidance()

        def post_compact(self, result):
            raise RuntimeError("x")

    made = service(hooks=[Mixed(), Broken(), lambda ctx: None])
    result = compact(made, turns(20))
    assert result.applied
    run_virtual(made.after_rewrite(result))
    assert seen == ["async"]
    run_virtual(made.after_rewrite(compact(made, [])))
    assert seen == ["async"]
    empty = service(hooks=[lambda ctx: Guidance(abort="")])
    assert compact(empty, turns(20)).detail == "a hook said no"

    def stop(ctx):
        raise Cancelled

    with pytest.raises(Cancelled):
        compact(service(hooks=[stop]), turns(20))


def test_a_draft_that_is_not_legal_is_refused():
    from notebook_agent.engine.compaction.words import check_draft
    from notebook_agent.engine.compaction_values import SummaryFailed

    history = turns(2)
    with pytest.raises(SummaryFailed, match="newest user message is gone"):
        check_draft(history, history[:2])
    with pytest.raises(SummaryFailed, match="without a result"):
        check_draft([], exchange("a")[:1])


def test_a_window_of_zero_is_no_limit():
    made = service("extractive", window=0)
    history = turns(20)
    result = compact(made, history, window=0, manual=True)
    assert result.applied
    tidied = give_ids([Message.user("q"), Message(Role.ASSISTANT, ()), Message.user("e")])
    result = compact(service("truncate"), tidied)
    assert (result.applied, result.removed) == (True, 1)


def test_what_gained_nothing_is_remembered_within_bounds():
    made = service()
    for n in range(80):
        assert compact(made, [Message.user("only", id=f"q{n}")]).detail == "nothing can be left out"
    assert len(made.state.fruitless) == 64


def test_B33_another_conversation_of_the_same_length_is_another_thing():
    made = service()
    assert compact(made, [Message.user("q", id="q1"), *give_ids(exchange("a"))]).status == "nothing"
    giant = exchange("a", output="cell " * 9_000)
    result = compact(made, [Message.user("q", id="q2"), *[m.with_id(m.role.value) for m in giant]])
    assert result.applied


# --- the model strategy ------------------------------------------------------------------------


def test_B31_the_model_is_asked_once_without_tools_and_its_usage_is_counted():
    model = Summariser(NOTES)
    result = compact(
        service("model", model, window=9_000, threshold=20),
        turns(20),
        window=9_000,
        model="openai:gpt-x",
    )
    assert result.applied
    assert (result.calls, result.usage) == (1, Usage(50, 20))
    assert model.asked == [("openai:gpt-x", "summary")]
    (request,) = model.requests
    assert request.tools is None
    assert [m.role for m in request.messages] == [Role.USER]
    assert text_of(result).endswith(NOTES)
    assert "box 7" in text_of(result)


def test_B31_texts_and_arguments_are_cut_and_the_earlier_summary_is_fed_in_to_update():
    model = Summariser(NOTES, NOTES + "\n- and more")
    made = service("model", model, message_chars=100, argument_chars=40)
    call = Message(Role.ASSISTANT, (ToolCallPart("a", "f", {"text": "A" * 500}),))
    history = give_ids([Message.user("B" * 5_000 + " END"), call, exchange("a")[1], *turns(12)])
    first = compact(made, [m.with_id(f"h{n}") for n, m in enumerate(history)])
    prompt = model.requests[0].messages[0].text_content()
    assert "A" * 60 not in prompt
    assert "B" * 120 not in prompt
    assert "END" in prompt
    assert "characters cut" in prompt
    later = [*first.messages, *[m.with_id(f"l{n}") for n, m in enumerate(turns(12, start=50))]]
    second = compact(made, later)
    assert second.applied
    prompt = model.requests[1].messages[0].text_content()
    assert f"<notes>\n{NOTES}\n</notes>" in prompt
    assert prompt.count("box 7 stays") == 1


def test_P03_a_summariser_with_a_small_window_is_given_pieces():
    model = Summariser(NOTES)
    made = service("model", model, summary_model="x:small", summary_tokens=64, piece_tokens=500)
    made.window_of = {"x:small": 600}.get
    result = compact(made, turns(20))
    assert result.applied
    assert result.calls == len(model.requests) > 2
    assert result.usage == Usage(50 * result.calls, 20 * result.calls)
    counter = Words()
    for request in model.requests:
        size = sum(map(counter.count_message, request.messages))
        assert size + counter.count_overhead(request.system, None) <= 600
    assert model.asked[0][0] == "x:small"
    assert all("<notes>" in r.messages[0].text_content() for r in model.requests[1:])


def test_past_the_pieces_allowed_the_middle_is_left_out_with_a_note():
    model = Summariser(NOTES)
    made = service("model", model, piece_tokens=500, max_pieces=2, message_chars=10_000)
    compact(made, turns(60))
    assert len(model.requests) == 2
    first, second = (r.messages[0].text_content() for r in model.requests)
    assert "Question 0 " in first
    assert "lines are left out here]" in first
    assert "Question 57" in second


def test_a_window_too_small_for_anything_is_a_clear_failure():
    made = service("model", Summariser(NOTES), summary_model="x:tiny")
    made.window_of = {"x:tiny": 60}.get
    result = compact(made, turns(20))
    assert result.status == "failed"
    assert "window of 60 tokens is too small" in result.detail


def test_the_model_strategy_without_a_model_is_a_config_error():
    with pytest.raises(ConfigError, match="no model to ask"):
        compact(service("model"), turns(20))


def test_an_overlong_summary_is_bounded():
    model = Summariser("## Goal\n" + "\n".join(f"- line {n} of the notes" for n in range(900)))
    made = service("model", model, summary_tokens=64)
    result = compact(made, turns(20))
    assert result.applied
    assert Words().count_text(text_of(result)) < 2 * 64 + 20


# --- circuit and idempotence -------------------------------------------------------------------


def failing(**over):
    model = Summariser(ProviderError(ErrorKind.TRANSPORT, "gone"))
    return model, service("model", model, **over)


def test_B34_three_failures_pause_automatic_passes_and_a_manual_success_resumes():
    model, made = failing()
    events = []
    made.emit = events.append
    history = turns(20)
    said = [compact(made, history) for _ in range(5)]
    assert [r.status for r in said] == ["failed"] * 3 + ["paused"] * 2
    assert [r.circuit_opened for r in said] == [None, None, 3, None, None]
    assert len(model.requests) == 3
    assert [type(e).__name__ for e in events] == ["CompactionCircuitOpened"]
    assert "compact now" in said[2].detail
    assert all(r.messages == tuple(history) for r in said)
    manual = compact(made, history, reason="manual")
    assert manual.status == "failed"
    assert len(model.requests) == 4
    model.replies = [NOTES]
    assert compact(made, history).status == "paused"
    assert compact(made, history, manual=True).applied
    assert compact(made, turns(21)).applied
    assert len(events) == 1


def test_B34_a_success_between_two_failures_sets_the_count_back():
    model, made = failing()
    for _ in range(4):
        model.replies = [ProviderError(ErrorKind.TRANSPORT, "x")]
        assert compact(made, turns(20)).status == "failed"
        assert compact(made, turns(20)).status == "failed"
        model.replies = [NOTES]
        assert compact(made, turns(20)).applied


def test_the_state_is_the_sessions_own():
    _, made = failing()
    one, two = CompactionState(), CompactionState()
    for _ in range(3):
        compact(made, turns(20), session_state=one)
    assert one.paused
    assert not two.paused
    assert compact(made, turns(20), session_state=two).status == "failed"


def test_B33_a_pass_without_gain_is_not_repeated_until_something_changes():
    model = Summariser("## Goal\n" + "many words " * 60)
    made = service("model", model, keep_tokens=40, summary_tokens=2_000)
    history = turns(3, words=1)
    first = compact(made, history)
    assert first.status == "no_gain"
    assert first.tokens_after > first.tokens_before
    second = compact(made, history)
    assert second.status == "nothing"
    assert "nothing has changed" in second.detail
    assert len(model.requests) == 1
    compact(made, turns(4, words=1))
    assert len(model.requests) == 2
    compact(made, turns(4, words=1), manual=True)
    assert len(model.requests) == 3
    assert made.state.failures == 0


def test_a_cancel_between_two_slices_ends_an_extractive_pass():
    from notebook_agent.engine.cancel import CancelSignal

    made = service()
    made.cancel = CancelSignal()

    async def main():
        asyncio.get_running_loop().call_soon(made.cancel.cancel)
        await made.compact(turns(600), window=WINDOW)

    with pytest.raises(Cancelled):
        run_virtual(main())
    assert made.state.failures == 0


def test_a_question_that_looks_like_a_summary_is_still_a_question():
    odd = Message.user("[Summary of the earlier conversation] what does that mean?", id="q1")
    result = compact(service(), [*turns(20), odd])
    assert result.messages[-1] is odd


def test_a_bug_in_a_strategy_is_a_failed_pass_not_a_crash(monkeypatch):
    async def broken(task):
        raise ZeroDivisionError

    monkeypatch.setattr("notebook_agent.engine.compactor.extractive", broken)
    history = turns(20)
    result = compact(service(), history)
    assert result.status == "failed"
    assert "ZeroDivisionError" in result.detail
    assert result.messages == tuple(history)


def test_a_cancel_is_no_failure():
    model = Summariser(Cancelled())
    made = service("model", model)
    for _ in range(4):
        with pytest.raises(Cancelled):
            compact(made, turns(20))
    assert (made.state.failures, made.state.paused) == (0, False)

    async def hang():
        await asyncio.sleep(10_000)

    made = service("model", Summariser(hang))

    async def main():
        task = asyncio.ensure_future(made.compact(turns(20), window=WINDOW))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(main())
    assert made.state.failures == 0


# --- preview -----------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["extractive", "truncate"])
def test_preview_tells_exactly_what_a_pass_then_does(strategy):
    history = turns(20)
    made = service(strategy)
    shown = run_virtual(made.preview(history, window=WINDOW, reserved=100))
    result = compact(made, history, reason="manual")
    assert (shown.tokens_before, shown.tokens_after) == (result.tokens_before, result.tokens_after)
    assert shown.status == "applied"
    assert not shown.estimated
    kept = [row.id for row in shown.rows if row.fate == "kept"]
    assert tuple(kept) == result.kept_ids
    assert len(shown.rows) == 40
    gone = {row.fate for row in shown.rows if row.id not in kept}
    assert gone == {"summarised" if strategy == "extractive" else "left out"}
    assert sum(row.tokens for row in shown.rows) + 100 == shown.tokens_before
    assert shown.rows[0].text.startswith("Question 0 about box 0.")


def test_preview_of_the_model_strategy_sends_nothing_and_is_marked_estimated():
    model = Summariser(NOTES)
    shown = run_virtual(service("model", model).preview(turns(20), window=WINDOW))
    assert shown.estimated
    assert model.requests == []
    assert 0 < shown.tokens_after < shown.tokens_before


def test_preview_names_shortened_and_updated_messages():
    made = service("truncate")
    history = give_ids(
        [Message.user("q"), *exchange("a", output="row " * 3_000), Message.user("e")]
    )
    shown = run_virtual(made.preview(history, window=WINDOW))
    assert [row.fate for row in shown.rows] == ["kept", "kept", "shortened", "kept"]
    assert 0 < shown.rows[2].tokens_after < shown.rows[2].tokens
    first = compact(service(), turns(20))
    later = [*first.messages, *[m.with_id(f"l{n}") for n, m in enumerate(turns(12, start=50))]]
    shown = run_virtual(service().preview(later, window=WINDOW))
    assert shown.rows[0].fate == "updated"
    nothing = run_virtual(service().preview([], window=WINDOW))
    assert (nothing.rows, nothing.status) == ((), "nothing")


# --- any history ---------------------------------------------------------------------------------


@given(
    histories(legal=False),
    st.sampled_from(["extractive", "truncate", "model"]),
    st.integers(0, 400),
    st.integers(60, 800),
    st.integers(0, 2),
)
@settings(max_examples=200, deadline=None)
def test_P01_any_history_is_legal_after_a_pass(history, strategy, reserved, window, passes):
    history = give_ids(history)
    made = service(strategy, Summariser("## Goal\nx"), keep_tokens=30, window=window)
    result = compact(made, history, window=window, reserved=reserved, passes=passes)
    if not result.applied:
        assert result.messages == tuple(history)
        return
    assert left_open(result.messages) == []
    assert result.messages
    assert result.tokens_after < result.tokens_before
    newest = newest_ask(history)
    if newest is not None:
        assert any(m is history[newest] for m in result.messages)
    assert all(m in result.messages for m in history if m.role is Role.SYSTEM)


@pytest.mark.parametrize(
    "reply",
    [
        "", "  \n", "Sure", "## Goal\n\n## Decisions\n- none\n",
        ChatResponse(Message(Role.ASSISTANT, ())),
        ChatResponse(Message(Role.ASSISTANT, (TextPart("no", refusal=True),))),
        ChatResponse(Message.assistant("I'm sorry, but I can't help with that.")),
        ChatResponse(Message.assistant("As an AI language model I cannot do this")),
        ChatResponse(Message.assistant(NOTES), stop_reason=StopReason.MAX_TOKENS),
        ChatResponse(Message.assistant(NOTES), ending=Ending.CONTENT_FILTER),
        ChatResponse(Message.assistant(NOTES), ending=Ending.REFUSAL),
        ChatResponse(Message.assistant(NOTES), ending=Ending.ERROR),
        ChatResponse(
            Message(Role.ASSISTANT, (TextPart(NOTES), ToolCallPart("a", "f", {}))),
            stop_reason=StopReason.TOOL_CALL,
        ),
        ChatResponse(Message.assistant(NOTES), tools_not_run=("f",)),
        AgentError("odd"),
    ],
)  # fmt: skip
def test_P05_what_is_no_summary_is_never_stored(reply):
    history = turns(20)
    made = service("model", Summariser(reply))
    result = compact(made, history)
    if reply == "Sure":  # plain words are taken: small models write no headings
        assert result.applied
        return
    assert (result.status, result.applied, result.summary) == ("failed", False, None)
    assert result.messages == tuple(history)
    assert made.state.failures == 1
