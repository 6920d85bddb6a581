"""Lines and target; where a cut may fall; shortening; the summary without a model."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notebook_agent.core import extract
from notebook_agent.core.compaction import (
    CompactionPolicy,
    classify,
    emergency_line,
    keep_budget,
    target_tokens,
    threshold_line,
    trigger,
)
from notebook_agent.core.compaction_cut import (
    asks,
    keep_tail,
    left_open,
    newest_ask,
    pairs_of,
    pull_together,
    safe_cut,
    truncate,
)
from notebook_agent.core.messages import (
    ImagePart,
    Message,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from notebook_agent.core.shorten import PRUNED, is_cut, prune_outputs, shorten, shorten_to
from notebook_agent.errors import ConfigError

U, A = Message.user, Message.assistant


def calls(*ids: str, text: str = "") -> Message:
    parts = (TextPart(text),) if text else ()
    return Message(Role.ASSISTANT, (*parts, *(ToolCallPart(i, f"f_{i}", {}) for i in ids)))


def results(*ids: str, output: str = "ok") -> Message:
    return Message.tool_results(tuple(ToolResultPart(i, f"f_{i}", output) for i in ids))


def size(message: Message) -> int:
    return 1 + len(message.display_text()) // 4


# --- lines ---------------------------------------------------------------------------------


def test_L97_lines_of_a_window_of_8000():
    policy = CompactionPolicy()
    said = [trigger(policy, n, 8_000) for n in (6_400, 6_401, 7_599, 7_600, 9_000)]
    assert said == [None, "threshold", "threshold", "emergency", "emergency"]
    assert (threshold_line(policy, 8_000), emergency_line(policy, 8_000)) == (6_400, 7_600)


def test_L97_the_emergency_line_works_with_auto_off():
    off = CompactionPolicy(auto=False)
    assert [trigger(off, n, 8_000) for n in (6_401, 7_599, 7_600)] == [None, None, "emergency"]


def test_L87_zero_switches():
    assert trigger(CompactionPolicy(threshold=0), 7_599, 8_000) is None
    assert trigger(CompactionPolicy(threshold=0), 7_600, 8_000) == "emergency"
    assert trigger(CompactionPolicy(), 10**9, 0) is None
    assert trigger(CompactionPolicy(window=8_000), 6_401) == "threshold"


def test_P02_lines():
    assert threshold_line(CompactionPolicy(threshold=85), 32_768) == 27_852
    assert emergency_line(CompactionPolicy(), 32_768) == 31_129


def test_L100_target():
    assert target_tokens(CompactionPolicy()) == 112_000
    assert target_tokens(CompactionPolicy(target_base="window")) == 140_000
    assert target_tokens(CompactionPolicy(threshold=0), 1_000) == 700
    assert target_tokens(CompactionPolicy(target=100), 1_000) == 800


def test_L99_only_a_shrink_is_a_gain():
    assert [classify(10, n) for n in (9, 10, 11)] == ["applied", "no_gain", "no_gain"]


def test_B30_keep_budget():
    policy = CompactionPolicy()
    ask = {"reserved": 0, "reason": "threshold"}
    assert keep_budget(policy, window=200_000, **ask) == 8_000
    assert keep_budget(policy, window=8_000, **ask) == 2_240
    assert keep_budget(policy, window=8_000, reserved=9_999, reason="threshold") == 0
    assert keep_budget(policy, window=0, **ask) == 8_000
    assert keep_budget(policy, window=200_000, passes=1, **ask) == 4_000
    wide = CompactionPolicy(keep_tokens=50_000, target_base="window", target=100)
    assert keep_budget(wide, window=20_000, reserved=0, reason="provider") == 10_000


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("window", -1), ("threshold", 101), ("threshold", -1), ("emergency", 0),
        ("emergency", 101), ("target", 0), ("target", 101), ("keep_turns", 0),
        ("preserve_recent", 0), ("min_messages", 1), ("strategy", "magic"),
        ("target_base", "moon"), ("max_failures", 0), ("window", 1.5), ("window", True),
        ("auto", 1), ("prune", "yes"), ("summary_model", " "), ("keep_tools", "grep"),
        ("keep_tokens", -1), ("prune_minimum", 0), ("threshold", 96),
    ],
)  # fmt: skip
def test_every_invalid_setting_is_refused_with_its_name(field, value):
    with pytest.raises(ConfigError) as caught:
        CompactionPolicy(**{field: value})
    assert caught.value.field == field
    assert caught.value.legal


def test_the_docs_table_names_every_default():
    doc = CompactionPolicy.__doc__
    for name, value in vars(CompactionPolicy)["__dataclass_fields__"].items():
        row = next(line for line in doc.splitlines() if line.strip().startswith(f"{name} "))
        default = value.default
        shown = f"{default:,}" if type(default) is int else str(default)
        assert shown in row, name


# --- cuts ----------------------------------------------------------------------------------


def test_P01_a_cut_between_two_parallel_results_moves_back():
    history = [
        U("q"),
        calls("A", "B"),
        results("A"),
        results("B"),
        A("done"),
        U("next"),
    ]
    assert pairs_of(history) == [(1, 2), (1, 3)]
    assert safe_cut(history, 3) == 1
    assert [safe_cut(history, n) for n in range(7)] == [0, 1, 1, 1, 4, 5, 6]


def test_L104_reused_ids_pair_with_the_latest_unconsumed_call():
    history = [calls("x"), results("x"), U("m"), calls("x"), results("x"), results("x")]
    assert pairs_of(history) == [(0, 1), (3, 4)]
    twice = [calls("x"), calls("x"), results("x"), results("x")]
    assert pairs_of(twice) == [(1, 2), (0, 3)]
    assert safe_cut(twice, 3) == 0
    assert left_open(history) == ["message 5: result 'x' without a call"]


def test_a_cut_is_moved_until_nothing_is_parted():
    chain = [calls("a"), calls("b"), results("a"), calls("c"), results("b"), results("c")]
    assert safe_cut(chain, 5) == 0
    assert safe_cut([], 3) == 0


def test_P03_a_short_neighbour_of_a_giant_keeps_its_words():
    giant = ToolResultPart("a", "f", "x" * 9_000)
    error = ToolResultPart("b", "f", "Tool 'slow' timed out after 30 s.", is_error=True)
    longer = ToolResultPart("c", "f", "y" * 60)

    def characters(message: Message) -> int:
        return sum(len(r.output) for r in message.results)

    out = shorten(Message.tool_results((error, giant, longer)), 100, characters)
    assert characters(out) < 250
    assert out.results[0] is error or out.results[0].output == error.output
    assert out.results[2].output == longer.output
    assert is_cut(out.results[1].output)
    assert not is_cut(error.output)


def test_L104_truncate_by_position():
    plain = [U(f"q{n}") if n % 2 == 0 else A(f"a{n}") for n in range(11)]
    assert truncate(plain[:6]) == (0, 1, 2, 3, 4, 5)
    assert truncate(plain) == (0, 7, 8, 9, 10)
    assert truncate(plain, preserve_recent=1) == (0, 10)
    assert truncate(plain[:7], min_messages=2, preserve_recent=2) == (0, 5, 6)


def test_truncate_keeps_the_newest_question_system_messages_and_the_summary():
    system = Message(Role.SYSTEM, (TextPart("be brief"),))
    summary = U("so far").with_id("summary_1")
    tools = [m for n in range(4) for m in (calls(f"c{n}"), results(f"c{n}"))]
    history = [U("first"), A("x"), system, summary, U("the question"), *tools]
    assert truncate(history) == (0, 2, 3, 4, 9, 10, 11, 12)


def test_truncate_pulls_message_0s_results_beside_it():
    history = [calls("a"), U("between"), results("a"), *[U(f"q{n}") for n in range(8)]]
    kept = truncate(history)
    assert kept == (0, 2, 7, 8, 9, 10)
    assert pull_together(history, kept)[:2] == (history[0], history[2])
    late = [calls("a"), *[U(f"q{n}") for n in range(8)], results("a"), U("end")]
    kept = truncate(late, preserve_recent=1)
    assert kept == (0, 9, 10)
    assert pull_together(late, kept) == (late[0], late[9], late[10])


def test_truncate_that_finds_no_border_changes_nothing():
    open_all_over = [calls("a"), *[U(f"q{n}") for n in range(8)], results("a")]
    assert truncate(open_all_over) == tuple(range(10))


def test_pull_together_drops_halves_and_empties():
    history = [U("q"), Message(Role.ASSISTANT, ()), results("zz"), calls("y", text="hm"), U("e")]
    out = pull_together(history, range(5))
    assert [m.display_text() for m in out] == ["q", "hm", "e"]
    assert left_open(out) == []


def test_B30_the_tail_is_the_last_turns_that_fit():
    turns = [m for n in range(5) for m in (U(f"question {n}"), A("x" * 40))]
    split = keep_tail(turns, keep_turns=2, keep_tokens=1_000, count=size)
    assert split.kept == (6, 7, 8, 9)
    assert split.head == (0, 1, 2, 3, 4, 5)
    one = keep_tail(turns, keep_turns=2, keep_tokens=20, count=size)
    assert one.kept == (8, 9)


def test_a_turn_of_many_tool_calls_is_cut_inside_and_keeps_its_question():
    tools = [m for n in range(10) for m in (calls(f"c{n}"), results(f"c{n}", output="z" * 400))]
    history = [U("old"), A("old answer"), U("the question"), *tools]
    split = keep_tail(history, keep_turns=2, keep_tokens=350, count=size)
    assert split.kept[0] == 2
    assert split.kept[1:] == tuple(range(17, 23))
    assert 3 in split.head
    tiny = keep_tail(history, keep_turns=2, keep_tokens=0, count=size)
    assert tiny.kept == (2, 21, 22)


def test_earlier_summaries_are_updated_and_system_messages_stay():
    system = Message(Role.SYSTEM, (TextPart("s"),))
    history = [U("sum").with_id("summary_9"), U("a"), system, A("b"), U("c"), A("d"), U("e")]
    split = keep_tail(history, keep_turns=1, keep_tokens=100, count=size)
    assert split.summaries == (0,)
    assert split.kept == (2, 6)
    assert split.head == (1, 3, 4, 5)


# any history: legal exchanges, reused ids, parallel calls, results split over messages, halves


@st.composite
def histories(draw, *, legal: bool):
    ids = st.sampled_from(["a", "b", "c"])
    out: list[Message] = []
    for _ in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["user", "assistant", "tools", "system", "summary"]))
        if kind == "tools":
            wanted = draw(st.lists(ids, min_size=1, max_size=3, unique=True))
            out.append(calls(*wanted, text=draw(st.sampled_from(["", "hm"]))))
            if draw(st.booleans()):
                out.append(results(*wanted))
            else:
                out += [results(one) for one in draw(st.permutations(wanted))]
        elif kind == "system":
            out.append(Message(Role.SYSTEM, (TextPart("rule"),)))
        elif kind == "summary":
            out.append(U("earlier").with_id(f"summary_{len(out)}"))
        else:
            out.append((U if kind == "user" else A)(draw(st.text("xyz ", min_size=1, max_size=80))))
    if not legal:
        for _ in range(draw(st.integers(0, 4))):
            at = draw(st.integers(0, len(out)))
            odd = draw(
                st.sampled_from([calls("a"), results("a"), results("q"), Message(Role.USER, ())])
            )
            out.insert(at, odd)
    return out


@given(histories(legal=True), st.integers(0, 30))
def test_P01_any_history_any_cut_keeps_pairs(history, at):
    border = safe_cut(history, at)
    assert 0 <= border <= min(at, len(history))
    assert left_open(history[:border]) == left_open(history[border:]) == []
    # and it is the latest such border
    for later in range(border + 1, min(at, len(history)) + 1):
        assert left_open(history[later:]) or left_open(history[:later])


@given(
    histories(legal=False), st.integers(1, 6), st.integers(2, 8), st.integers(0, 60),
    st.integers(1, 3),
)  # fmt: skip
@settings(max_examples=300)
def test_P01_whatever_is_kept_is_legal_not_empty_and_has_the_question(
    history, recent, least, tokens, turns
):
    kept = truncate(history, preserve_recent=recent, min_messages=least)
    split = keep_tail(history, keep_turns=turns, keep_tokens=tokens, count=size)
    assert sorted((*split.kept, *split.head, *split.summaries)) == list(range(len(history)))
    for places in (kept, split.kept):
        out = pull_together(history, places)
        assert left_open(out) == []
        assert all(m.parts for m in out)
        newest = newest_ask(history)
        if newest is not None:
            assert any(m is history[newest] for m in out)
        for m in history:
            if m.role is Role.SYSTEM:
                assert m in out
    if any(asks(m) for m in history):
        assert pull_together(history, kept)


@given(histories(legal=True))
def test_a_legal_history_loses_nothing_to_pull_together(history):
    assert pull_together(history, range(len(history))) == tuple(history) or history[0].tool_calls


# --- shortening ------------------------------------------------------------------------------


def test_P03_the_giant_is_shortened_and_says_so():
    giant = results("a", output="start " + "x" * 1_900_000 + " end")
    history = [U("q"), calls("a"), giant, A("short"), U("newest " + "n" * 4_000)]
    out = shorten_to(history, 3_000, size)
    assert list(out) == [2]
    text = out[2].results[0].output
    assert text.startswith("start ")
    assert text.endswith(" end")
    assert "left out here" in text
    assert "1,900,010" in text
    after = [out.get(n, m) for n, m in enumerate(history)]
    assert sum(map(size, after)) <= 3_000
    assert left_open(after) == []


def test_the_newest_question_and_small_messages_are_never_cut():
    history = [A("a" * 800), U("q" * 40_000)]
    assert shorten_to(history, 100, size, least=100) == {
        0: shorten(history[0], 100, size),
    }
    assert shorten_to(history, 100, size, least=300) == {}
    assert shorten_to(history, 10**6, size) == {}


def test_the_tallest_are_cut_to_one_level():
    history = [A("a" * 4_000), A("b" * 8_000), A("c" * 1_200), U("q")]
    out = shorten_to(history, 1_500, size)
    assert set(out) == {0, 1}
    assert abs(size(out[0]) - size(out[1])) <= 120


def test_shorten_keeps_structure_images_and_arguments_valid():
    message = Message(
        Role.ASSISTANT,
        (
            TextPart("t" * 5_000),
            ImagePart("data:image/png;base64,AAAA", 8, 8),
            ToolCallPart("a", "write", {"path": "x.py", "rows": ["r" * 5_000, 3], "n": None}),
        ),
        provider_state={"model": "m"},
    )
    out = shorten(message, 300, size)
    assert size(out) <= 300
    assert [type(p) for p in out.parts] == [type(p) for p in message.parts]
    assert out.parts[1] == message.parts[1]
    given = out.parts[2].input
    assert (given["path"], given["rows"][1], given["n"]) == ("x.py", 3, None)
    assert out.provider_state is None
    assert shorten(message, 10**6, size) is message


def test_what_cannot_be_cut_stays_as_it_is():
    picture = Message(Role.ASSISTANT, (ImagePart("data:image/png;base64,AAAA"),))

    def heavy(message):
        return 900 + sum(len(p.text) for p in message.parts if isinstance(p, TextPart)) // 10

    assert shorten(picture, 100, heavy) is picture
    assert shorten_to([picture], 100, heavy) == {}
    assert shorten_to([U("q" * 9_000)], 100, heavy) == {}
    both = Message(Role.ASSISTANT, (*picture.parts, TextPart("t" * 3_000)))
    out = shorten(both, 890, heavy)  # the picture alone is more: as near as it gets
    assert 900 < heavy(out) < heavy(both)


def test_B35_pruning_blanks_old_outputs_only_when_it_is_worth_it():
    history = [
        m
        for n in range(6)
        for m in (U(f"q{n}"), calls(f"c{n}"), results(f"c{n}", output="o" * 400))
    ]
    ask = {"keep_tools": (), "count": size}
    out = prune_outputs(history, protect=200, minimum=100, **ask)
    assert sorted(out) == [2, 5, 8, 11]  # the newest two fill the 200
    assert {m.results[0].output for m in out.values()} == {PRUNED}
    assert prune_outputs(history, protect=200, minimum=10_000, **ask) == {}
    kept = prune_outputs(
        history, protect=0, minimum=1, keep_tools=[f"f_c{n}" for n in range(5)], count=size
    )
    assert list(kept) == [17]


# --- the summary without a model ---------------------------------------------------------------

STORY = [
    U("Help me plan the move to Tartu. My name is Marija Ozola and the budget is 4,250 EUR."),
    A("Happy to help! That sounds exciting. Let me think about it. Moving can be fun."),
    U("We must never use the old server krypton-7. The weather is nice today."),
    A("We decided to use PostgreSQL 16 for the data. I like databases a lot."),
    calls("a"),
    results("a", output="Found src/app/main.py and report_2024.xlsx. Nothing else. Bye."),
    U("What about the parking permit? ok. thanks. lovely."),
    A("Still need to ask the landlord, Dr. Jaan Tamm, approx. 30 days before 2026-05-01."),
]
FACTS = [
    "Marija Ozola", "4,250 EUR", "must never use the old server krypton-7",
    "decided to use PostgreSQL 16", "report_2024.xlsx", "src/app/main.py",
    "What about the parking permit?", "Dr. Jaan Tamm", "approx. 30 days", "2026-05-01",
]  # fmt: skip


def summary(points, room=10_000, **given):
    return extract.render_summary(points, count=8, fits=lambda s: len(s) <= room, **given)


def test_the_extractive_summary_keeps_what_carries_something():
    text = summary(extract.extract_points(STORY), room=1_500)
    for fact in FACTS:
        assert fact in text, fact
    assert "Happy to help" not in text
    assert "Moving can be fun" not in text
    assert text.index("Constraints:") < text.index("Decisions:") < text.index("Open questions")


def test_facts_survive_a_thousand_messages_of_filler_and_repeated_compaction():
    filler = [A(f"Sure thing, sounds good to me friend {'really ' * (n % 7)}.") for n in range(500)]
    text = summary(extract.extract_points([*STORY, *filler, U("ok then"), *filler]), room=1_600)
    for fact in FACTS:
        assert fact in text, fact
    for n in range(5):
        points = extract.points_of_summary(text)
        more = extract.extract_points([U(f"Next topic {n} is about {n * 17} boxes."), *filler])
        text = summary([*points, *more], room=2_200)
    for fact in FACTS:
        assert fact in text, fact
    assert "68 boxes" in text


def test_an_earlier_summary_reads_back_as_it_was():
    text = summary(extract.extract_points(STORY))
    assert summary(extract.points_of_summary(text)) == text
    assert extract.summary_count(text) == 8
    assert extract.summary_count("## Goal\nx") == 0


def test_a_models_summary_reads_as_points():
    points = extract.points_of_summary(
        "## Goal\nMove to Tartu\n\n## Decisions\n- **PostgreSQL** 16\n- none\n"
        "### Next steps:\n* ask Jaan\n\nFiles:\n- a.py"
    )
    assert [(p.section, p.text) for p in points] == [
        ("goal", "Move to Tartu"),
        ("decision", "**PostgreSQL** 16"),
        ("open", "ask Jaan"),
        ("fact", "a.py"),
    ]


def test_the_summary_is_deterministic_bounded_and_says_nothing_of_nothing():
    points = extract.extract_points(STORY * 3)
    for room in (300, 500, 900, 2_000):
        text = summary(points, room=room)
        assert text == summary(extract.extract_points(STORY * 3), room=room)
        assert len(text) <= room
    assert summary([]) == ""
    assert summary(extract.extract_points([A("sure thing")])) == ""
    assert "- keep me" in summary([], extra=["keep me"])


def test_a_huge_text_is_read_at_its_ends_only():
    text = "The code is 1234. " + "filler words " * 200_000 + "The end is 9876."
    found = [p.text for p in extract.extract_points([U(text)])]
    assert found[0] == "The code is 1234."
    assert found[-1].endswith("The end is 9876.")
    assert sum(map(len, found)) < 20_000


def test_corners_of_reading():
    picture = Message(Role.USER, (ImagePart("data:,x"), TextPart("See the end of sec. 4 etc.")))
    long_call = Message(Role.ASSISTANT, (ToolCallPart("a", "f", {"q": "z" * 300}),))
    points = extract.extract_points([picture, U("? . !"), long_call])
    assert [p.text for p in points[:2]] == ["[an image]", "See the end of sec. 4 etc."]
    assert points[2].text.startswith('f({"q": "zzz')
    assert points[2].text.endswith("…) -> no result")
    assert len(points) == 3
    assert summary(extract.points_of_summary("- !!\n- a\n- A.")).count("\n- ") == 1


def test_of_two_equal_lines_the_newer_place_and_the_higher_worth_stay():
    kept = extract.points_of_summary("Decisions:\n- We use Redis")
    text = summary([*kept, *extract.extract_points([A("sure"), A("We use Redis")])])
    assert text.count("We use Redis") == 1


def test_no_section_crowds_out_the_others_and_beginnings_count():
    story = [U("The key is under mat 7.")]
    story += [A(f"We decided to keep option {n}.") for n in range(300)]
    text = summary(extract.extract_points([U("Hello there."), *story]), room=2_000)
    assert "mat 7" in text
    assert "option 0." in text
    assert "option 299." in text
    assert "option 150." not in text


def test_other_scripts_are_kept_too():
    story = [
        U("我们决定使用十二个服务器。价格是三千元。"),
        A("Мы договорились встретиться у моста."),
    ]
    text = summary(extract.extract_points(story))
    assert "我们决定使用十二个服务器。" in text
    assert "Мы договорились встретиться у моста." in text


@given(st.lists(st.text(max_size=200), max_size=8), st.integers(120, 800))
def test_any_text_gives_a_bounded_summary(texts, room):
    text = summary(extract.extract_points([U(t) for t in texts]), room=room)
    assert len(text) <= room
