"""Run files: out, in, checked, cut off, edited, redacted, and where they may land (B59, X06, A02)."""

from __future__ import annotations

import json
import os
import unicodedata
from pathlib import Path, PureWindowsPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from notebook_agent.core import agent_events as ev
from notebook_agent.core import outcomes as o
from notebook_agent.core.log_view import conversation
from notebook_agent.core.messages import ImagePart, Message, Role, ToolCallPart, ToolResultPart
from notebook_agent.core.session import Run, RunStatus, Turn, UnservedTurn
from notebook_agent.engine.store.base import Commit, MessageRecord, ToolExecution
from notebook_agent.engine.store.jsonl import check_file, export_runs, import_runs, run_file_path
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.store.names import safe_file_stem, session_name
from notebook_agent.engine.store.redact import hide
from notebook_agent.engine.store.run_file import read_run_file
from notebook_agent.errors import ErrorKind, ProviderError, StoreError
from tests.engine.store_ground import (
    T0,
    make_store,
    plain_turn,
    session_row,
    steps_to_records,
    write_run,
)

SECRET = "my secret diary"


@pytest.fixture(params=("memory", "sqlite"))
def store(request, tmp_path):
    made = make_store(request.param, tmp_path)
    made.create_session(session_row(name="../my session"))
    yield made
    made.close()


def failed_run(store, run_id: str = "r2") -> None:
    """A run that fails with the provider's words in it, one tool and one other event."""
    error = ProviderError(ErrorKind.BAD_REQUEST, f"cannot read {SECRET}", status=400)
    error.partial_text = SECRET
    store.create_run(
        "s1",
        Run(id=run_id, input=SECRET, start=T0, config={"system": SECRET, "model": "scripted:m"}),
    )
    turn = Turn(
        turn=0,
        input=SECRET,
        output=SECRET,
        tool_calls=(ToolCallPart("c", "f", {"q": SECRET}, SECRET),),
    )
    for record in steps_to_records(run_id, [*plain_turn()[:2], o.ProviderError(error)]):
        last = record.outcome is None
        store.commit(Commit(
            run_id=run_id, session_id="s1", record=record,
            messages=[MessageRecord(session_id="s1", run_id=run_id, kind="message", message=Message.user(SECRET, id=f"{run_id}u"))] if record.sequence == 2 else (),
            unserved=UnservedTurn(turn=turn, outcome="failed", error=error.to_json()) if last else None,
            run=Run(id=run_id, input=SECRET, start=T0, end=T0 + 3, status=RunStatus.FAILED, error=error.to_json(), config={"system": SECRET, "model": "scripted:m"}) if last else None,
        ))  # fmt: skip
    store.append_events(run_id, [
        ev.AttemptFailed(run_id=run_id, timestamp=T0, turn=0, attempt=1, cause=SECRET, next_step="fail", partial_text=SECRET),
        ev.ToolExecutionFinished(run_id=run_id, timestamp=T0, call_id="c", tool_name="f", result=SECRET),
    ])  # fmt: skip
    store.finish_tool(ToolExecution(
        id=f"{run_id}x", session_id="s1", run_id=run_id, turn=0, call_id="c", tool_name="f",
        arguments=SECRET, status="ok", result=SECRET, duration_s=0.5, created_at=T0,
        images=(ImagePart(f"data:image/png;base64,{SECRET}", 2, 3),),
    ))  # fmt: skip


def everything(store, session_id="s1"):
    runs = store.list_runs(session_id)
    return [
        (
            run,
            store.records(run.id),
            store.state(run.id),
            store.tool_executions(run.id),
            store.events(run.id),
        )
        for run in runs
    ]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_export_and_import_give_the_same_runs(store, tmp_path, kind):
    write_run(store, "r1", prompt="hi", answer="hello")
    failed_run(store)
    file = export_runs(store, "s1", tmp_path / "out.jsonl", exported_at=T0)
    (tmp_path / "other").mkdir()
    other = make_store(kind, tmp_path / "other")
    assert import_runs(other, file) == ["r1", "r2"]
    assert everything(other) == everything(store)
    assert other.get_session("s1").name == "../my session"
    assert conversation(other.list_messages("s1")) == conversation(store.list_messages("s1"))
    with pytest.raises(StoreError, match="in the store already"):
        import_runs(other, file)
    again = export_runs(other, "s1", tmp_path / "again.jsonl", exported_at=T0)
    assert again.read_bytes() == file.read_bytes()
    other.close()


def test_a_run_file_brings_the_conversation_it_stands_on(store, tmp_path):
    write_run(store, "r1", prompt="first", answer="one")
    write_run(store, "r2", prompt="second", answer="two")
    file = export_runs(store, "s1", tmp_path / "r2.jsonl", run_ids=["r2"])
    read = read_run_file(file)
    assert [m.id for m in read.history] == ["r1_u1", "r1_a0", "r1_t1", "r1_a1"]
    assert [b.run.id for b in read.runs] == ["r2"]
    other = MemoryStore()
    import_runs(other, file, session_id="mine")
    assert len(conversation(other.list_messages("mine"))) == 8
    with pytest.raises(StoreError, match="has no run r9"):
        export_runs(store, "s1", tmp_path / "no.jsonl", run_ids=["r2", "r9"])


def test_B59_check_needs_only_the_file(store, tmp_path):
    write_run(store)
    failed_run(store)
    file = export_runs(store, "s1", tmp_path / "out.jsonl")
    store.delete_session("s1")
    report = check_file(file)
    assert report.ok, str(report)
    assert report.complete
    assert report.records == 12 + 4
    one = check_file(export_single(tmp_path))
    assert (one.run_id, one.status) == ("r1", RunStatus.COMPLETED)
    assert json.dumps(one.to_json())


def export_single(tmp_path: Path) -> Path:
    single = MemoryStore()
    single.create_session(session_row())
    write_run(single)
    return export_runs(single, "s1", tmp_path / "single.jsonl", exported_at=T0)


# -- edited ----------------------------------------------------------------------------------


def edit(file: Path, kind: str, n: int, change) -> None:
    """Change the n-th line of a kind as somebody with an editor would."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    change([line for line in lines if line["type"] == kind][n])
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def nested(*keys, value):
    def change(line):
        for key in keys[:-1]:
            line = line[key]
        line[keys[-1]] = value

    return change


@pytest.mark.parametrize(("n", "change", "what", "actual"), [
    (3, nested("action", "state", value="persisting"), "action", "Continue(PERSISTING)"),
    (3, nested("outcome", "outcome", value="NoMoreTurns"), "action", "Continue(EXECUTING_TOOLS)"),
    (3, nested("outcome", "call_ids", value=None), "record", "TypeError"),
    (4, nested("state", value="persisting"), "state", "PERSISTING"),
    (4, nested("state", value="nowhere"), "record", "ValueError: 'nowhere' is not a valid TurnState"),
    (2, nested("outcome", "response", "usage", "input_tokens", value=1), "record", "the record was changed"),
    (5, nested("timestamp", value=0.0), "record", "the record was changed"),
    (11, nested("status", value="failed"), "status", "failed"),
    (11, nested("events", value=[]), "event", "none"),
    (6, nested("sequence", value=60), "sequence", "60"),
    (7, nested("outcome", value=None), "action", "Continue(CALLING_MODEL)"),
    (7, nested("action", value={"action": "Explode"}), "record", "'Explode' is no action"),
])  # fmt: skip
def test_B59_a_tampered_record_is_named_by_its_number(tmp_path, n, change, what, actual):
    file = export_single(tmp_path)
    edit(file, "record", n, change)
    report = check_file(file)
    assert not report.ok
    found = report.mismatches[0]
    assert found.what == what
    assert found.sequence == (60 if n == 6 else n)
    assert actual in found.actual
    with pytest.raises(StoreError, match="was changed"):
        import_runs(MemoryStore(), file)


def test_a_removed_record_is_found_even_when_renumbered(tmp_path):
    file = export_single(tmp_path)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    records = [line for line in lines if line["type"] == "record"]
    del lines[lines.index(records[4])]
    for line in records[5:]:
        line["sequence"] -= 1
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = check_file(file)
    assert report.mismatches[0].sequence == 4
    assert report.mismatches[0].expected == "EXECUTING_TOOLS"


@pytest.mark.parametrize(("kind", "change", "what"), [
    ("run", nested("status", value="failed"), "status"),
    ("state", nested("iteration", value=7), "projection"),
    ("turn", nested("turn", "output_tokens", value=9), "file"),
    ("message", nested("message", "parts", 0, "text", value="hacked"), "file"),
])  # fmt: skip
def test_other_edits_are_found(tmp_path, kind, change, what):
    file = export_single(tmp_path)
    edit(file, kind, 0, change)
    report = check_file(file)
    assert what in {m.what for m in report.mismatches}


# -- cut off and foreign ---------------------------------------------------------------------


def test_a_check_says_that_the_file_was_cut_off(tmp_path):
    path = export_single(tmp_path)
    assert "cut off" not in str(check_file(path))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - 30])
    report = check_file(path)
    assert (report.ok, report.complete, report.cut) == (True, False, True)
    assert "cut off" in str(report)
    assert report.to_json()["cut"]


def test_a_file_cut_anywhere_is_read_up_to_the_cut(tmp_path):
    file = export_single(tmp_path)
    data = file.read_bytes()
    whole = read_run_file(file)
    first = data.index(b"\n") + 1
    previous = -1
    for at in range(first, len(data), 37):
        file.write_bytes(data[:at])
        read = read_run_file(file)
        assert read.cut
        assert read.problems == []
        count = sum(len(b.records) for b in read.runs)
        assert count >= previous
        previous = count
        report = check_file(file)
        assert report.ok
        assert not report.complete
    assert previous == len(whole.runs[0].records)
    file.write_bytes(data[:-1])  # only the last newline is missing
    assert not read_run_file(file).cut


def test_a_damaged_line_in_the_middle_names_its_number(tmp_path):
    file = export_single(tmp_path)
    lines = file.read_bytes().splitlines(keepends=True)
    lines[4] = b'{"type": "mess\n'
    file.write_bytes(b"".join(lines))
    with pytest.raises(StoreError, match="line 5 is damaged"):
        check_file(file)
    lines[4] = b'{"type": "message"}\n'
    file.write_bytes(b"".join(lines))
    with pytest.raises(StoreError, match="line 5 is damaged: KeyError"):
        read_run_file(file)
    lines[4] = b"\xff\xfe\n"
    file.write_bytes(b"".join(lines))
    with pytest.raises(StoreError, match="line 5 is damaged"):
        read_run_file(file)


@pytest.mark.parametrize(("kind", "n", "change"), [
    ("record", 5, nested("sequence", value={"a": 1})),
    ("record", 3, nested("turn", value=[])),
])  # fmt: skip
def test_B59_values_of_another_type_are_damage_not_a_crash(tmp_path, kind, n, change):
    file = export_single(tmp_path)
    edit(file, kind, n, change)
    with pytest.raises(StoreError, match="is damaged"):
        check_file(file)


def test_B59_an_error_of_another_type_is_damage_not_a_crash(tmp_path):
    single = MemoryStore()
    single.create_session(session_row())
    failed_run(single)
    file = export_runs(single, "s1", tmp_path / "failed.jsonl", exported_at=T0)
    edit(file, "record", -1, nested("events", 0, "error", value=True))
    with pytest.raises(StoreError, match="is damaged"):
        check_file(file)


def test_a_header_whose_session_is_no_object_has_no_session(tmp_path):
    file = export_single(tmp_path)
    edit(file, "header", 0, nested("session", value="x"))
    assert read_run_file(file).session_id == ""
    assert not check_file(file).ok


def test_a_newer_run_file_is_refused_with_the_version_that_wrote_it(tmp_path):
    file = export_single(tmp_path)
    edit(file, "header", 0, lambda line: line.update(schema=9, app_version="7.7.7"))
    before = file.read_bytes()
    with pytest.raises(StoreError, match=r"newer notebook_agent \(7.7.7\): it has schema 9"):
        check_file(file)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"hello",
        b"[]",
        b"{}\n",
        b'{"format": "notebook_agent.run"}\n',
        b'{"format": "notebook_agent.run", "schema": "1"}\n',
        b"\x00" * 50,
    ],
)
def test_what_is_no_run_file_is_refused(tmp_path, content):
    file = tmp_path / "x.jsonl"
    file.write_bytes(content)
    with pytest.raises(StoreError, match="is not a run file"):
        check_file(file)


def test_a_missing_file_says_what_to_do(tmp_path):
    with pytest.raises(StoreError, match=r"No such file[\s\S]*--record FILE"):
        check_file(tmp_path / "none.jsonl")
    with pytest.raises(StoreError, match="cannot be read"):
        check_file(tmp_path)


def test_lines_that_this_version_does_not_know_are_passed_over(tmp_path):
    file = export_single(tmp_path)
    text = file.read_text().splitlines(keepends=True)
    text.insert(3, '{"type": "mood", "value": "fine"}\n')
    file.write_text("".join(text[:-1]))  # without the end: its sum is another now
    assert len(read_run_file(file).runs[0].records) == 12


# -- redacted --------------------------------------------------------------------------------


def test_redacted_file_has_no_words_and_still_replays(store, tmp_path):
    write_run(store, "r1", prompt=SECRET, answer=f"of course, {SECRET}")
    failed_run(store)
    call = ToolCallPart("c9", "f", {"q": SECRET}, SECRET)
    store.append_messages([
        MessageRecord(session_id="s1", run_id="r2", kind="message", message=Message(Role.ASSISTANT, (call,), id="x", provider_state={"model": "p:m", "t": SECRET})),
        MessageRecord(session_id="s1", run_id="r2", kind="message", message=Message.tool_results((ToolResultPart("c9", "f", SECRET),), id="y")),
        MessageRecord(session_id="s1", run_id="r2", kind="compaction", meta={"kept_ids": ["x"], "summary_id": None, "detail": SECRET}),
    ])  # fmt: skip
    file = export_runs(store, "s1", tmp_path / "red.jsonl", redact=True)
    text = file.read_text()
    assert SECRET not in text
    assert "secret" not in text
    assert "../my session" not in text
    report = check_file(file)
    assert report.ok, str(report)
    assert report.complete
    read = read_run_file(file)
    assert read.redacted
    assert read.runs[0].run.turns[1].input_tokens == 7
    assert read.runs[0].run.input == hide(SECRET) == "[redacted, 15 characters]"
    assert read.runs[0].run.config == {"model": "scripted:m"}
    assert read.runs[1].messages[-1].meta["kept_ids"] == ["x"]
    assert read.runs[1].executions[0].tool_name == "f"
    import_runs(MemoryStore(), file)


def test_redaction_may_be_a_function(store, tmp_path):
    write_run(store, "r1", prompt="mail ann@example.org", answer="done")
    file = export_runs(
        store, "s1", tmp_path / "red.jsonl", redact=lambda t: t.replace("ann@example.org", "<mail>")
    )
    assert "ann@" not in file.read_text()
    assert read_run_file(file).runs[0].run.input == "mail <mail>"
    assert check_file(file).ok


def test_limits_keep_their_own_numbers_when_redacted(tmp_path):
    from notebook_agent.core.policy import MaxIterations

    store = MemoryStore()
    store.create_session(session_row())
    store.create_run("s1", Run(id="r1", input="x"))
    records = steps_to_records("r1", [o.PolicyExhausted(MaxIterations(1, 2))])
    for record in records:
        last = record.outcome is None
        store.commit(
            Commit(
                run_id="r1",
                session_id="s1",
                record=record,
                run=Run(id="r1", input="x", status=RunStatus.LIMIT_REACHED) if last else None,
            )
        )
    file = export_runs(store, "s1", tmp_path / "limit.jsonl", redact=True)
    assert check_file(file).ok
    assert check_file(file).status is RunStatus.LIMIT_REACHED


# -- A02 -------------------------------------------------------------------------------------


def test_A02_odd_text_comes_back_from_a_file_as_it_is_in_the_store(store, tmp_path):
    odd = "ok\x00\x1b[31mend\x85\u2028\ud800\r\n\u202e"
    write_run(store, "r1", prompt=odd, answer=odd)
    file = export_runs(store, "s1", tmp_path / "odd.jsonl")
    data = file.read_bytes()
    assert b"\x00" not in data
    assert b"\x1b" not in data  # JSON escapes it: safe to print
    other = MemoryStore()
    import_runs(other, file)
    assert everything(other) == everything(store)
    assert other.get_run("r1").output == odd.replace("\x00", "\ufffd").replace("\ud800", "\ufffd")
    assert check_file(file).ok


# -- X06: where files land -------------------------------------------------------------------

NAMES = [
    "../x", "/etc/x", "a/b", "C:\\x", "con", "CON", "nul.txt", "com1", "aux.", ".", "..", "~root",
    "a\x00b", "A", "a", " ", "x ", "x.", "-rf", "résumé", "RÉSUMÉ", "日本語", "🦙" * 60, "x" * 200,
    "a:b", "a|b?*<>\"", "\n", "\x1b[2J", "\u202egnp.exe", "x'); DROP TABLE turns;--", "e\u0301" * 200,
]  # fmt: skip
RESERVED = {
    "con",
    "prn",
    "aux",
    "nul",
    *(f"com{n}" for n in range(10)),
    *(f"lpt{n}" for n in range(10)),
}


def check_stem(stem: str) -> None:
    assert stem
    assert len(f".{stem}.jsonl.part".encode()) <= 255
    assert not stem.startswith((".", "-", "~", " "))
    assert not stem.endswith((".", " "))
    assert stem.split(".", maxsplit=1)[0].casefold() not in RESERVED
    assert Path(stem).name == stem
    assert PureWindowsPath(stem).name == stem
    assert not PureWindowsPath(stem).drive
    assert all(c.isalnum() or c in "_-" for c in stem)


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_X06_a_file_name_is_safe(tmp_path, name):
    check_stem(safe_file_stem(name))
    path = run_file_path(tmp_path, name)
    assert path.parent == tmp_path
    path.write_text("x")
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@given(st.text(max_size=210))
@example("\ud800")
def test_X06_any_name_gives_a_safe_file_name(name):
    check_stem(safe_file_stem(name))


@given(st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=8))
@example("A", "a")
@example("ß", "ss")
@example("x", "x/")
@example("K", "k")
def test_X06_two_names_never_share_a_file(one, two):
    """Not even where the file system ignores case and composes accents."""

    def on_disk(name):
        return unicodedata.normalize("NFC", safe_file_stem(name)).casefold()

    assert (on_disk(one) == on_disk(two)) is (session_name(one) == session_name(two))


def test_X06_every_name_has_a_file_of_its_own():
    stems = {safe_file_stem(n).casefold() for n in NAMES}
    assert len(stems) == len({session_name(n) if n != "e\u0301" * 200 else n for n in NAMES})


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_X06_export_into_a_folder_stays_in_it(tmp_path, name):
    folder = tmp_path / "out"
    folder.mkdir()
    store = MemoryStore()
    store.create_session(session_row(name=name))
    write_run(store)
    file = export_runs(store, "s1", folder)
    assert file.parent == folder
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [file]
    assert check_file(file).ok


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_X06_a_link_is_replaced_never_followed(tmp_path):
    store = MemoryStore()
    store.create_session(session_row(name="evil"))
    write_run(store)
    outside = tmp_path / "outside.txt"
    outside.write_text("precious")
    folder = tmp_path / "out"
    folder.mkdir()
    run_file_path(folder, "evil").symlink_to(outside)
    file = export_runs(store, "s1", folder)
    assert outside.read_text() == "precious"
    assert not file.is_symlink()
    assert check_file(file).ok
    assert file.stat().st_mode & 0o777 == 0o600


def test_an_export_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    file = export_single(tmp_path)
    before = file.read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("notebook_agent.engine.store.jsonl.os.fsync", full)
    with pytest.raises(StoreError, match=r"No space left[\s\S]*nothing was saved"):
        export_single(tmp_path)
    assert file.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["single.jsonl"]
