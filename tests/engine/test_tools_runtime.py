"""ToolRuntime: groups, order, time-outs, soft and hard errors, threads, approval, resume."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time

import pytest

from notebook_agent.core.messages import ImagePart, ToolCallPart
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.observers import Observer, ObserverHub
from notebook_agent.engine.store.base import StoreBusy, ToolExecution
from notebook_agent.engine.tools import (
    INTERRUPTED,
    LoopPolicy,
    ToolRegistry,
    ToolRuntime,
    abandoned_tools,
    current_cancel,
    tool,
)
from notebook_agent.errors import Cancelled, LoopDetected, StoreError, ToolFailed
from tests.conftest import fixed_surroundings, run_virtual


class Rows:
    """The two methods of a store that the runtime uses, and what was written."""

    def __init__(self, fail=()):
        self.log: list[tuple[str, ToolExecution]] = []
        self.fail = list(fail)

    def start_tool(self, row):
        self._fail()
        self.log.append(("start", row))

    def finish_tool(self, row):
        self._fail()
        self.log.append(("finish", row))

    def _fail(self):
        if self.fail:
            error = self.fail.pop(0)
            if error is not None:
                raise error

    @property
    def statuses(self):
        return [(kind, row.tool_name, row.status) for kind, row in self.log]


class Ear(Observer):
    def __init__(self):
        self.heard = []

    def on_tool_call_received(self, ctx):
        self.heard.append(("received", ctx.call_id))

    def on_tool_pre(self, ctx):
        self.heard.append(("pre", ctx.tool_call_id))

    def on_tool_post(self, ctx):
        self.heard.append(("post", ctx.tool_call_id))
        self.last = ctx

    def on_loop_detected(self, ctx):
        self.heard.append(("loop", ctx.repetitions))


def make(*tools, **given):
    rows = given.pop("store", Rows())
    ear = Ear()
    events = []
    runtime = ToolRuntime(
        ToolRegistry(tools),
        hub=ObserverHub([ear]),
        emit=events.append,
        store=rows,
        surroundings=given.pop("surroundings", fixed_surroundings()),
        **given,
    )
    return runtime, rows, ear, events


def call(name, given=None, id=None):
    return ToolCallPart(id or f"c_{name}", name, {} if given is None else given)


async def go(runtime, *calls, turn=0, **over):
    return await runtime.execute(calls, turn=turn, run_id="r", session_id="s", **over)


def texts(results):
    return [(r.name, r.output, r.is_error) for r in results]


def test_B49_concurrent_first_together_then_the_others_in_order():
    order = []

    def made(name, seconds, **ways):
        async def f():
            order.append(f"+{name}")
            await asyncio.sleep(seconds)
            order.append(f"-{name}")
            return name

        return tool(name=name, **ways)(f)

    tools = [
        made("x1", 1),
        made("c1", 3, concurrent=True),
        made("x2", 1),
        made("c2", 2, concurrent=True),
    ]
    runtime, *_ = make(*tools)

    async def main():
        began = asyncio.get_running_loop().time()
        results = await go(runtime, call("x1"), call("c1"), call("x2"), call("c2"))
        return results, asyncio.get_running_loop().time() - began

    results, took = run_virtual(main())
    assert order == ["+c1", "+c2", "-c2", "-c1", "+x1", "-x1", "+x2", "-x2"]
    assert [r.name for r in results] == ["x1", "c1", "x2", "c2"]
    assert [r.call_id for r in results] == ["c_x1", "c_c1", "c_x2", "c_c2"]
    assert took == pytest.approx(5)


def test_B49_at_most_max_tool_concurrency():
    now = most = 0

    @tool(concurrent=True)
    async def f(n: int):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(1)
        now -= 1
        return n

    runtime, *_ = make(f, policy=RuntimePolicy(max_tool_concurrency=3))
    calls = [call("f", {"n": n}, id=f"c{n}") for n in range(8)]
    results = run_virtual(go(runtime, *calls))
    assert most == 3
    assert [r.output for r in results] == [str(n) for n in range(8)]


def test_B51_a_timed_out_call_leaves_the_others_alone():
    ended = []

    @tool(concurrent=True, timeout_s=2)
    async def slow():
        try:
            await asyncio.sleep(100)
        finally:
            ended.append("cancelled")

    @tool(concurrent=True)
    async def fast():
        await asyncio.sleep(5)
        return "fine"

    runtime, rows, _ear, _events = make(slow, fast)
    results = run_virtual(go(runtime, call("slow"), call("fast")))
    assert texts(results) == [
        ("slow", "Tool 'slow' timed out after 2 s.", True),
        ("fast", "fine", False),
    ]
    assert ended == ["cancelled"]
    finished = {row.tool_name: row for kind, row in rows.log if kind == "finish"}
    assert (finished["slow"].status, finished["slow"].duration_s) == ("timeout", 2)
    assert (finished["fast"].status, finished["fast"].duration_s) == ("ok", 5)


def test_the_policys_timeout_is_the_default_and_a_runs_own_policy_wins():
    @tool
    async def slow():
        await asyncio.sleep(100)

    runtime, *_ = make(slow, policy=RuntimePolicy(tool_timeout_s=3))
    assert "after 3 s" in run_virtual(go(runtime, call("slow")))[0].output
    own = RuntimePolicy(tool_timeout_s=7)
    assert "after 7 s" in run_virtual(go(runtime, call("slow"), policy=own))[0].output


def test_L91_B52_soft_errors_keep_their_place_and_reach_no_tool():
    ran = []

    @tool
    async def ok(n: int):
        ran.append(n)
        return n

    @tool
    async def bad():
        raise ValueError("no such thing")

    @tool
    async def silent():
        raise KeyError

    runtime, rows, ear, events = make(ok, bad, silent)
    results = run_virtual(
        go(
            runtime,
            call("nope"),
            call("ok", {"n": "x", "m": 1}),
            ToolCallPart("u", "ok", None, raw='{"n":'),
            ToolCallPart("l", "ok", [1]),
            call("bad"),
            call("silent"),
            call("ok", {"n": 3}, id="good"),
        )
    )
    assert [r.is_error for r in results] == [True] * 6 + [False]
    assert results[0].output == "Tool 'nope' is not available. Available tools: bad, ok, silent."
    assert "n: 'x' is not of type 'integer'; m: no such parameter" in results[1].output
    assert "no valid JSON" in results[2].output
    assert "JSON object, not list" in results[3].output
    assert results[4].output == "Tool 'bad' failed: ValueError: no such thing"
    assert results[5].output == "Tool 'silent' failed: KeyError"
    assert ran == [3]
    # every call is received; only what is dispatched has a pre and a post, in pairs (L114)
    ids = [r.call_id for r in results]
    assert [one for what, one in ear.heard if what == "received"] == ids
    assert [one for one in ear.heard if one[0] in ("pre", "post")] == [
        (what, one) for one in ("c_bad", "c_silent", "good") for what in ("pre", "post")
    ]
    assert [r.status for k, r in rows.log if k == "finish"] == [
        "not_found", "invalid", "invalid", "invalid", "error", "error", "ok",
    ]  # fmt: skip
    finished = [e for e in events if type(e).__name__ == "ToolExecutionFinished"]
    assert [e.call_id for e in finished] == ids


@pytest.mark.parametrize("which", ["missing", "invalid", "raises", "slow"])
def test_B52_continue_on_tool_failure_false_is_hard(which):
    ran = []

    @tool(timeout_s=1)
    async def f(what: str):
        if what == "slow":
            await asyncio.sleep(9)
        raise ValueError("boom")

    @tool
    async def after():
        ran.append(1)

    runtime, *_ = make(f, after, policy=RuntimePolicy(continue_on_tool_failure=False))
    one = {
        "missing": call("gone"),
        "invalid": call("f"),
        "raises": call("f", {"what": "raise"}),
        "slow": call("f", {"what": "slow"}),
    }[which]
    with pytest.raises(ToolFailed):
        run_virtual(go(runtime, one, call("after")))
    assert ran == []


def test_L122_one_hard_error_cancels_what_still_runs():
    seen = []

    @tool(concurrent=True)
    async def long():
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            seen.append(current_cancel().is_cancelled())
            raise

    @tool(concurrent=True)
    async def bad():
        await asyncio.sleep(1)
        raise ValueError("x")

    runtime, rows, *_ = make(long, bad, policy=RuntimePolicy(continue_on_tool_failure=False))
    with pytest.raises(ToolFailed, match="bad"):
        run_virtual(go(runtime, call("long"), call("bad"), call("long", id="l2")))
    assert seen == [True, True]
    assert ("finish", "long", "cancelled") in rows.statuses


def test_L118_cancel_ends_every_running_tool_and_writes_its_row():
    signal = CancelSignal()
    ended = []

    @tool(concurrent=True)
    async def long(n: int):
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append(n)

    runtime, rows, *_ = make(long, cancel=signal)

    async def main():
        loop = asyncio.get_running_loop()
        loop.call_later(5, signal.cancel)
        with pytest.raises(Cancelled):
            await go(runtime, *(call("long", {"n": n}, id=f"c{n}") for n in range(6)))
        return loop.time()

    assert run_virtual(main()) == pytest.approx(1005)
    assert sorted(ended) == [0, 1, 2, 3]  # the fifth and sixth never started
    assert [s for s in rows.statuses if s[0] == "finish"] == [("finish", "long", "cancelled")] * 4
    assert all(r.duration_s == 5 for k, r in rows.log if k == "finish")


def test_L118_nothing_starts_after_a_cancel_not_even_between_two_calls():
    signal = CancelSignal()
    ran = []

    @tool
    async def stop():
        signal.cancel()
        return "done"

    @tool
    async def next_one():
        ran.append(1)

    runtime, _rows, *_ = make(stop, next_one, cancel=signal)
    with pytest.raises(Cancelled):
        run_virtual(go(runtime, call("stop"), call("next_one")))
    assert ran == []
    with pytest.raises(Cancelled):
        run_virtual(go(runtime, call("next_one")))
    assert ran == []


def test_a_cancel_from_outside_ends_the_tools_too():
    ended = []

    @tool(concurrent=True)
    async def long():
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append(1)

    runtime, rows, *_ = make(long)

    async def main():
        task = asyncio.ensure_future(go(runtime, call("long"), call("long", id="b")))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(main())
    assert ended == [1, 1]
    assert [s[2] for s in rows.statuses if s[0] == "finish"] == ["cancelled"] * 2


def test_exit_and_a_tools_own_cancelled_error_are_soft():
    @tool
    async def leave():
        raise SystemExit(3)

    @tool
    def leave_thread():
        raise SystemExit(4)

    @tool
    async def own():
        raise asyncio.CancelledError

    @tool
    def stop():
        raise StopIteration

    @tool
    async def polite():
        raise Cancelled

    runtime, *_ = make(leave, leave_thread, own, stop, polite)

    async def main():
        return await go(
            runtime,
            *(call(n) for n in ("leave", "leave_thread", "own", "stop", "polite")),
        )

    out = asyncio.run(main())
    assert [r.is_error for r in out] == [True] * 5
    assert [r.output.split("failed: ")[1] for r in out] == [
        "SystemExit: 3", "SystemExit: 4", "CancelledError", "StopIteration", "Cancelled: cancelled",
    ]  # fmt: skip


def test_a_generator_is_a_result_and_its_failure_is_the_tools():
    @tool
    def numbers(n: int):
        return (6 // (2 - at) for at in range(n))

    runtime, *_ = make(numbers)
    out = asyncio.run(go(runtime, call("numbers", {"n": 2}), call("numbers", {"n": 3})))
    assert [r.is_error for r in out] == [False, True]
    assert out[0].output == "[3, 6]"
    assert "failed: ZeroDivisionError" in out[1].output


def test_B75_the_started_row_is_written_before_the_dispatch():
    rows = Rows()
    seen = []

    @tool
    async def f():
        seen.append(list(rows.statuses))

    runtime, *_ = make(f, store=rows)
    run_virtual(go(runtime, call("f", id="c1")))
    assert seen == [[("start", "f", "started")]]
    assert rows.statuses == [("start", "f", "started"), ("finish", "f", "ok")]
    (_, begun), (_, ended) = rows.log
    assert begun.id == ended.id
    assert (begun.duration_s, begun.result) == (None, "")
    assert (ended.arguments, ended.turn, ended.call_id) == ("{}", 0, "c1")


def test_B53_a_failed_write_is_fail_stop():
    ran = []

    @tool
    async def f():
        ran.append(1)

    runtime, *_ = make(f, store=Rows(fail=[StoreError("disk full")]))
    with pytest.raises(StoreError, match="disk full"):
        run_virtual(go(runtime, call("f")))
    assert ran == []
    runtime, *_ = make(f, store=Rows(fail=[None, StoreError("disk full")]))
    with pytest.raises(StoreError):
        run_virtual(go(runtime, call("f"), call("f", id="b")))
    assert ran == [1]


def test_a_busy_store_is_waited_for_and_a_cancel_ends_the_wait():
    @tool
    async def f():
        return "ok"

    runtime, rows, *_ = make(f, store=Rows(fail=[StoreBusy("b")] * 5))
    assert run_virtual(go(runtime, call("f")))[0].output == "ok"
    assert len(rows.log) == 2

    signal = CancelSignal()
    runtime, rows, *_ = make(f, store=Rows(fail=[StoreBusy("b")] * 10_000), cancel=signal)

    async def main():
        asyncio.get_running_loop().call_later(1, signal.cancel)
        await go(runtime, call("f"))

    with pytest.raises(Cancelled):
        run_virtual(main())
    runtime, rows, *_ = make(f, store=Rows(fail=[StoreBusy("b")] * 10_000))
    with pytest.raises(StoreError, match="busy for 30 s"):
        run_virtual(go(runtime, call("f")))


def test_a_cancel_does_not_wait_long_for_a_busy_store(caplog):
    signal = CancelSignal()

    @tool
    async def f():
        await asyncio.sleep(1000)

    rows = Rows(fail=[None, *[StoreBusy("b")] * 10_000])
    runtime, *_ = make(f, store=rows, cancel=signal)

    async def main():
        loop = asyncio.get_running_loop()
        loop.call_later(5, signal.cancel)
        with pytest.raises(Cancelled):
            await go(runtime, call("f"))
        return loop.time()

    assert run_virtual(main()) < 1005.5
    assert rows.statuses == [("start", "f", "started")]
    assert "stays started" in caplog.text


def execution(call_id, status, *, result="", turn=0, name="f", images=()):
    return ToolExecution(
        id="old", session_id="s", run_id="r", turn=turn, call_id=call_id, tool_name=name,
        arguments="{}", status=status, result=result, is_error=status != "ok", images=images,
    )  # fmt: skip


def test_B75_resume_reuses_runs_and_answers_interrupted():
    ran = []

    @tool
    async def f():
        ran.append("f")
        return "new"

    @tool(idempotent=True)
    async def again():
        ran.append("again")
        return "again"

    runtime, rows, *_ = make(f, again)
    done = {
        "a": execution("a", "ok", result="old"),
        "b": execution("b", "started"),
        "c": execution("c", "started", name="again"),
        "d": execution("d", "timeout", result="timed out"),
        "e": execution("e", "ok", result="of another turn", turn=7),
        "g": execution("g", "cancelled"),
        "h": execution("h", "interrupted", result=INTERRUPTED),
        "i": execution("i", "interrupted", name="again"),
    }
    calls = [call("again" if i in "ci" else "f", id=i) for i in "abcdeghi"]
    results = run_virtual(go(runtime, *calls, done=done))
    assert [(r.call_id, r.output, r.is_error) for r in results] == [
        ("a", "old", False),
        ("b", INTERRUPTED, True),
        ("c", "again", False),
        ("d", "timed out", True),
        ("e", "new", False),
        ("g", INTERRUPTED, True),
        ("h", INTERRUPTED, True),
        ("i", "again", False),
    ]
    assert ran == ["again", "f", "again"]
    closed = [r.call_id for k, r in rows.log if k == "finish" and r.status == "interrupted"]
    assert closed == ["b", "c", "g", "h", "i"]


def test_B75_a_reused_result_has_its_picture():
    image = ImagePart("data:image/png;base64,iVBORw0KGgo=", 3, 4)

    @tool
    async def f():
        return ["seen", image]

    runtime, rows, *_ = make(f)
    first = run_virtual(go(runtime, call("f", id="a")))
    finished = [row for kind, row in rows.log if kind == "finish"]
    assert [row.images for row in finished] == [(image,)]
    kept = execution("a", "ok", result=finished[0].result, images=finished[0].images)
    again = run_virtual(go(make(f)[0], call("f", id="a"), done={"a": kept}))
    assert again == first
    assert again[0].images == (image,)


# --- threads ------------------------------------------------------------------------------


async def test_D20_sync_tools_run_in_a_worker_with_context_and_captured_output(capsys):
    var = contextvars.ContextVar("v", default="no")
    var.set("yes")
    seen = []

    @tool
    def f(n: int):
        import sys

        seen.append((threading.current_thread() is threading.main_thread(), var.get()))
        print("said", n)
        print("err", file=sys.stderr)
        return n

    runtime, _, ear, _ = make(f)
    print("before")
    (result,) = await go(runtime, call("f", {"n": 4}))
    print("after")
    assert seen == [(False, "yes")]
    assert result.output == "4"
    assert ear.last.stdout == "said 4\nerr\n"
    out = capsys.readouterr()
    assert (out.out, out.err) == ("before\nafter\n", "")
    assert not [t for t in threading.enumerate() if t.name.startswith("notebook-agent-tool")]


async def test_D20_what_concurrent_tools_print_stays_apart(capsys):
    heard = {}

    class Post(Observer):
        def on_tool_post(self, ctx):
            heard[ctx.tool_call_id] = ctx.stdout

    @tool(concurrent=True)
    def thread(n: int):
        for _ in range(20):
            print(n, end="")
            time.sleep(0.001)

    @tool(concurrent=True)
    async def task(n: int):
        for _ in range(20):
            print(n, end="")
            await asyncio.sleep(0.001)

    runtime, *_ = make(thread, task)
    runtime._runner.hub.add(Post())
    names = ["thread", "task", "thread", "task"]
    await go(runtime, *(call(n, {"n": i}, id=str(i)) for i, n in enumerate(names)))
    assert heard == {str(i): str(i) * 20 for i in range(4)}
    assert capsys.readouterr().out == ""


def test_streams_come_back_after_capture():
    import sys

    from notebook_agent.engine.tools import capture

    before = sys.stdout
    with capture() as one:
        print("a")
        with capture() as two:
            print("b")
        print("c")
        assert sys.stdout.encoding == before.encoding
    assert (one.getvalue(), two.getvalue()) == ("a\nc\n", "b\n")
    assert sys.stdout is before


async def test_K04_a_sync_tool_that_times_out_is_abandoned_counted_and_discarded(caplog):
    let_go = threading.Event()

    @tool(timeout_s=0.05)
    def stuck():
        let_go.wait(20)
        return "late"

    runtime, rows, ear, _ = make(stuck)
    before = abandoned_tools()
    (result,) = await go(runtime, call("stuck"))
    assert "timed out after 0.05 s" in result.output
    assert abandoned_tools() == before + 1
    let_go.set()
    for _ in range(200):
        if abandoned_tools() == before:
            break
        await asyncio.sleep(0.01)
    assert abandoned_tools() == before
    assert [s[2] for s in rows.statuses] == ["started", "timeout"]
    assert [what for what, _ in ear.heard] == ["received", "pre", "post"]
    assert "given up" in caplog.text
    assert "thrown away" in caplog.text


async def test_D20_a_sync_tool_may_poll_current_cancel():
    signal = CancelSignal()
    ended = threading.Event()

    @tool
    def loops():
        try:
            while True:
                current_cancel().sleep(0.01)
        finally:
            ended.set()

    runtime, rows, *_ = make(loops, cancel=signal)
    asyncio.get_running_loop().call_later(0.05, signal.cancel)
    began = time.monotonic()
    with pytest.raises(Cancelled):
        await go(runtime, call("loops"))
    assert time.monotonic() - began < 2
    assert await asyncio.to_thread(ended.wait, 2)
    assert [s[2] for s in rows.statuses] == ["started", "cancelled"]
    assert not current_cancel().is_cancelled()


async def test_too_many_abandoned_tools_refuse_the_next(monkeypatch):
    monkeypatch.setattr("notebook_agent.engine.tools.workers.MAX_ABANDONED", 0)

    @tool
    def f(): ...

    runtime, *_ = make(f)
    (result,) = await go(runtime, call("f"))
    assert result.is_error
    assert "Restart the kernel" in result.output


def test_an_async_tool_that_swallows_its_cancel_does_not_hold_the_turn():
    async def main():
        free = asyncio.Event()

        @tool(timeout_s=1)
        async def stubborn():
            while not free.is_set():
                try:
                    await free.wait()
                except asyncio.CancelledError:
                    continue

        runtime, *_ = make(stubborn)
        before = abandoned_tools()
        began = asyncio.get_running_loop().time()
        (result,) = await go(runtime, call("stubborn"))
        assert "timed out" in result.output
        assert asyncio.get_running_loop().time() - began < 2
        assert abandoned_tools() == before + 1
        free.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert abandoned_tools() == before

    run_virtual(main())


async def test_a_plain_function_that_gives_a_coroutine_is_awaited():
    async def inner():
        await asyncio.sleep(0)
        return "inner"

    runtime, *_ = make(tool(name="outer")(lambda: inner()))
    assert (await go(runtime, call("outer")))[0].output == "inner"


# --- main thread, approval -------------------------------------------------------------------


def test_D20_main_tools_go_through_the_notebooks_thread():
    went = []

    async def run_on_main(fn):
        went.append("asked")
        await asyncio.sleep(2)
        out = fn()
        return await out if asyncio.iscoroutine(out) else out

    @tool(main=True)
    def f(n: int):
        return n + 1

    @tool(main=True)
    async def g():
        return "async too"

    @tool(main=True, timeout_s=1)
    def late():
        went.append("must not run")

    runtime, *_ = make(f, g, late, run_on_main=run_on_main)
    results = run_virtual(go(runtime, call("f", {"n": 1}), call("g"), call("late")))
    assert [r.output for r in results[:2]] == ["2", "async too"]
    assert "timed out" in results[2].output
    assert went == ["asked"] * 3


def test_a_main_tool_keeps_the_notebooks_context_and_has_its_own_cancel_and_output(capsys):
    var = contextvars.ContextVar("v", default="unset")
    jobs = []
    home = contextvars.copy_context()
    home.run(var.set, "the notebook's")

    async def run_on_main(fn):
        done = asyncio.get_running_loop().create_future()
        jobs.append((fn, done))
        out = home.run(fn)
        return await out if asyncio.iscoroutine(out) else out

    seen = []

    @tool(main=True)
    def f():
        print("from the notebook")
        seen.append((var.get(), current_cancel().is_cancelled(), current_cancel()))

    @tool(main=True)
    async def g():
        print("async")
        seen.append(current_cancel())

    runtime, _, _ear, _ = make(f, g, run_on_main=run_on_main)
    posts = []
    runtime._runner.hub.add(
        type("P", (Observer,), {"on_tool_post": lambda s, c: posts.append(c)})()
    )
    run_virtual(go(runtime, call("f"), call("g")))
    assert seen[0][:2] == ("the notebook's", False)
    assert seen[0][2] is not seen[1]
    assert [p.stdout for p in posts] == ["from the notebook\n", "async\n"]
    assert capsys.readouterr().out == ""


def test_a_main_call_that_was_given_up_never_runs():
    queue = []
    ran = []

    async def run_on_main(fn):
        queue.append(fn)
        await asyncio.sleep(1000)

    @tool(main=True, timeout_s=1)
    def f():
        ran.append(1)

    runtime, *_ = make(f, run_on_main=run_on_main)
    run_virtual(go(runtime, call("f")))
    with pytest.raises(Cancelled):
        queue[0]()
    assert ran == []


def test_main_tools_in_a_script_fail_softly_and_leave_a_foreign_thread_alone():
    @tool(main=True)
    def bad():
        raise ValueError("x")

    @tool(main=True)
    async def co():
        return "co"

    @tool(main=True)
    def where():
        return threading.current_thread().name.split()[0]

    class Rude(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    @tool
    async def rude():
        raise Rude

    runtime, *_ = make(bad, co, where, rude)
    calls = [call(n) for n in ("bad", "co", "where", "rude")]
    here = asyncio.run(go(runtime, *calls))
    assert [r.output for r in here] == [
        "Tool 'bad' failed: ValueError: x", "co", "MainThread", "Tool 'rude' failed: Rude",
    ]  # fmt: skip
    box = []
    thread = threading.Thread(target=lambda: box.append(asyncio.run(go(runtime, call("where")))))
    thread.start()
    thread.join()
    assert box[0][0].output == "notebook-agent-tool"


async def test_without_a_store_or_observers_it_works_too():
    @tool
    def f(n: int) -> int:
        return n

    runtime = ToolRuntime(ToolRegistry([f]))
    (result,) = await go(runtime, call("f", {"n": 2}))
    assert result.output == "2"


def test_a_question_that_cancels_itself_is_a_denial():
    @tool(confirm=True)
    async def f(): ...

    async def approve(one):
        raise Cancelled

    runtime, *_ = make(f, approve=approve)
    assert "did not answer" in run_virtual(go(runtime, call("f")))[0].output


async def test_main_without_a_notebook_runs_in_the_main_thread():
    @tool(main=True)
    def f():
        return threading.current_thread() is threading.main_thread()

    runtime, *_ = make(f)
    assert (await go(runtime, call("f")))[0].output == "true"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (True, None),
        (False, "the user did not allow it"),
        (None, "the user did not answer"),
        (RuntimeError("no widget"), "the user did not answer"),
        ("nobody", "nobody can be asked"),
    ],
)
def test_D20_approval_denies_unless_told_yes(answer, words):
    ran = []
    asked = []

    @tool(confirm=True)
    async def rm(path: str):
        ran.append(path)
        return "gone"

    async def approve(one):
        asked.append((one.name, one.input))
        await asyncio.sleep(100)  # longer than any time-out: thinking is not running
        if isinstance(answer, Exception):
            raise answer
        return answer

    runtime, rows, _ear, _ = make(rm, approve=None if answer == "nobody" else approve)
    policy = RuntimePolicy(continue_on_tool_failure=False)  # a denial is no failure
    (result,) = run_virtual(go(runtime, call("rm", {"path": "x"}), policy=policy))
    assert ran == (["x"] if words is None else [])
    if words is None:
        assert result.output == "gone"
        assert asked == [("rm", {"path": "x"})]
    else:
        assert result.is_error
        assert words in result.output
        assert rows.statuses == [("finish", "rm", "denied")]


def test_invalid_calls_are_not_asked_about_and_one_question_at_a_time():
    open_now = most = 0
    asked = []

    @tool(confirm=True, concurrent=True)
    async def f(n: int):
        return n

    async def approve(one):
        nonlocal open_now, most
        asked.append(one.id)
        open_now += 1
        most = max(most, open_now)
        await asyncio.sleep(1)
        open_now -= 1
        return True

    runtime, *_ = make(f, approve=approve)
    run_virtual(go(runtime, call("f", {"n": 1}, "a"), call("f", {}, "b"), call("f", {"n": 2}, "c")))
    assert asked == ["a", "c"]
    assert most == 1


def test_a_cancel_ends_the_question():
    signal = CancelSignal()

    @tool(confirm=True)
    async def f(): ...

    async def approve(one):
        await asyncio.sleep(10_000)

    runtime, rows, *_ = make(f, approve=approve, cancel=signal)

    async def main():
        asyncio.get_running_loop().call_later(1, signal.cancel)
        await go(runtime, call("f"))

    with pytest.raises(Cancelled):
        run_virtual(main())
    assert rows.log == []


def test_L114_payloads_are_copies():
    class Rude(Observer):
        def on_tool_call_received(self, ctx):
            ctx.input["xs"].append(9)

        def on_tool_pre(self, ctx):
            ctx.input["xs"].append(8)

    @tool
    async def f(xs: list):
        xs.append(7)
        return xs

    runtime, *_ = make(f)
    runtime._runner.hub.add(Rude())
    one = call("f", {"xs": [1]})
    assert run_virtual(go(runtime, one))[0].output == "[1, 7]"
    assert one.input == {"xs": [1]}


# --- loops ------------------------------------------------------------------------------------


def same(runtime, times, name="f", given=None):
    async def main():
        for turn in range(times):
            await go(runtime, call(name, given, id=f"c{turn}"), turn=turn)

    run_virtual(main())


def test_L124_warns_at_3_stops_at_10():
    @tool
    async def f():
        return "same"

    runtime, rows, ear, events = make(f)
    same(runtime, 9)
    assert [n for what, n in ear.heard if what == "loop"] == [3, 6, 9]
    assert ear.last.hint
    with pytest.raises(LoopDetected) as caught:
        run_virtual(go(runtime, call("f", id="last"), turn=9))
    assert caught.value.repetitions == 10
    assert rows.statuses[-1] == ("finish", "f", "ok")
    assert [type(e).__name__ for e in events if "Loop" in type(e).__name__] == [
        "LoopWarning", "LoopWarning", "LoopWarning", "DoomLoopDetected",
    ]  # fmt: skip


def test_L124_changing_results_are_progress_and_a_new_run_starts_afresh():
    count = 0

    @tool
    async def poll():
        nonlocal count
        count += 1
        return count

    runtime, _, ear, _ = make(poll)
    same(runtime, 40, "poll")
    assert not [one for one in ear.heard if one[0] == "loop"]

    @tool
    async def f():
        return "same"

    runtime, _, ear, _ = make(f)

    async def main():
        for n in range(30):
            await runtime.execute([call("f")], turn=0, run_id=f"r{n // 2}", session_id="s")

    run_virtual(main())
    assert not [one for one in ear.heard if one[0] == "loop"]


def test_B55_strict_mode_fires_before_the_third_equal_call_runs():
    ran = []

    @tool
    async def f(n: int):
        ran.append(n)
        return len(ran)

    runtime, _, _ear, events = make(f, loops=LoopPolicy(strict=True))
    with pytest.raises(LoopDetected, match="three equal calls"):
        same(runtime, 3, given={"n": 1})
    assert ran == [1, 1]
    assert type(events[-1]).__name__ == "DoomLoopDetected"
