"""What a view knows before the first event: how the breaker and the context stand."""

from __future__ import annotations

from notebook_agent import AgentRuntime, ScriptedModel
from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.notebook.attached import attached_view, first_gauge
from tests.conftest import run_virtual


def view_of(runtime):
    made = attached_view(
        "null", runtime, session="default", model=runtime.primary, prompt="hi", background=False, shown={},
    )  # fmt: skip
    made.open()
    return made.state


def test_a_run_that_opens_in_fallback_shows_its_real_cooldown() -> None:
    """20 s into a cooldown of 60, a new view says 40, not 60."""
    seen = []

    async def main():
        import asyncio

        from notebook_agent.engine.clock import Surroundings

        loop = asyncio.get_running_loop()
        clock = Surroundings(now=loop.time)
        bad = ScriptedModel(script="500*99", name="first")
        spare = ScriptedModel(["Fine."], name="spare")
        runtime = AgentRuntime(
            bad, fallback=["scripted:spare"], surroundings=clock,
            resolve_client=lambda name: spare if name.endswith("spare") else bad,
        )  # fmt: skip
        runtime.breaker.trip(loop.time())
        seen.append(view_of(runtime))
        await asyncio.sleep(20)
        seen.append(view_of(runtime))

    run_virtual(main())
    first, later = seen
    assert first.breaker.state == later.breaker.state == "fallback"
    assert later.breaker.serves == "scripted:spare"
    left = [round(s.breaker.cooldown_until - s.started, 1) for s in seen]
    assert left == [60.0, 40.0]


def test_the_window_and_the_lines_show_from_the_first_frame() -> None:
    runtime = AgentRuntime(
        ScriptedModel(["Fine."], window=8000),
        compaction=CompactionPolicy(threshold=70, emergency=90),
    )
    state = view_of(runtime)
    assert state.gauge.window == 8000
    assert (state.gauge.trigger, state.gauge.emergency) == (70, 90)
    off = AgentRuntime(ScriptedModel(["Fine."]), compaction=CompactionPolicy(auto=False))
    assert first_gauge(off, off.primary).trigger == 95


def test_D20_a_view_without_clicks_shows_the_question_and_takes_it_back() -> None:
    made = attached_view(
        "null", AgentRuntime(ScriptedModel(["x"])), session="default", model="scripted:scripted",
        prompt="hi", background=False, shown={},
    )  # fmt: skip
    made.open()
    assert made.clicks() is False
    number = made.ask("delete(path='a')")
    made.tick()
    assert made.state.ask is not None
    assert (made.state.ask.number, made.state.ask.call) == (number, "delete(path='a')")
    assert made.answered(number) is None
    made.unask()
    made.tick()
    assert made.state.ask is None
    assert made.ask("again()") == number + 1


def test_the_panel_of_a_session_is_the_one_that_its_run_uses() -> None:
    from notebook_agent.notebook.panel import close_panels, get_panel

    try:
        made = attached_view(
            "panel", AgentRuntime(ScriptedModel(["x"])), session="mine", model="scripted:scripted",
            prompt="hi", background=False, shown={},
        )  # fmt: skip
        made.open()
        assert made.clicks() is None  # not known before the view has had its second
        assert made.answered(1) is None
        assert made.sink._panel is get_panel("mine")
    finally:
        close_panels()
