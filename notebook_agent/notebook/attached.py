"""AttachedView: a live view of one run of a runtime, from the first paint to the frozen end.

Source: notebook side, running a cell and the panel (D2, D10, D19, F10).
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from typing import Any

from notebook_agent.core.prices import Prices, run_cost
from notebook_agent.core.result import RunResult
from notebook_agent.notebook.drive import Outcome
from notebook_agent.notebook.live import LiveObserver, breaker_view
from notebook_agent.notebook.panel_state import Ask, Gauge, PanelState
from notebook_agent.notebook.sinks import Sink, make_sink
from notebook_agent.notebook.sinks.panel_sink import PanelSink
from notebook_agent.notebook.view import LiveView

__all__ = ["AttachedView", "attached_view", "first_gauge"]


class AttachedView(LiveView):
    """A live view that hears its runtime from ``open`` to ``close``.

    Args:
        hub: The runtime's observers.
        shown: Where the last state is kept for ``show``, by run id.
        notices: Lines of the notebook's own for the footer.
        prices: What the models cost, where the user said so.
    """

    def __init__(
        self,
        observer: LiveObserver,
        sink: Sink,
        *,
        hub: Any,
        shown: MutableMapping[str, PanelState],
        notices: tuple[str, ...] = (),
        prices: Prices | None = None,
    ) -> None:
        super().__init__(observer, sink)
        self._prices = prices or {}
        self._hub = hub
        self._shown = shown
        self._notices = notices
        self._asked = 0

    def clicks(self) -> bool | None:
        """Whether a click on this view arrives while the run goes on; None: not known yet."""
        return self.sink.clicks() if isinstance(self.sink, PanelSink) else False

    def ask(self, call: str) -> int:
        """Ask by the panel whether this call may run; the question's number."""
        self._asked += 1
        self.observer.asked(Ask(self._asked, call))
        return self._asked

    def answered(self, number: int) -> bool | None:
        """What was clicked, None while nothing was."""
        return self.sink.answered(number) if isinstance(self.sink, PanelSink) else None

    def unask(self) -> None:
        """The question is answered or void."""
        self.observer.asked(None)

    def open(self) -> None:
        """First paint; from now on the observer hears the runtime."""
        self._hub.add(self.observer)
        super().open()

    def close(self, outcome: Outcome) -> None:
        """The end, with the notebook's own lines."""
        self._hub.remove(self.observer)
        if isinstance(outcome, RunResult):
            cost = run_cost(outcome.run, self._prices)
            told = (*self._notices, *(() if cost is None else (f"cost {cost}",)))
            outcome = replace(outcome, notices=(*outcome.notices, *told)) if told else outcome
        super().close(outcome)
        if self.state.run_id:
            self._shown[self.state.run_id] = self.state


def attached_view(
    name: str,
    runtime: Any,
    *,
    session: str,
    model: str,
    prompt: str,
    background: bool,
    shown: MutableMapping[str, PanelState],
    notices: tuple[str, ...] = (),
    prices: Prices | None = None,
) -> AttachedView:
    """The view of a run that is about to start.

    Args:
        name: The sink.
        runtime: Its observers hear the run, its signal is what the Stop button fires.
        session: Whose panel.
        model: Full name of the run's primary.
        prompt: As typed.
        background: The cell ends before the run.
        shown: Keeps the last state, by run id.
        notices: Lines of the notebook's own.
        prices: Of the user, for the cost.
    """
    now = runtime.surroundings.now
    breaker = runtime.breaker_of(model)
    live = LiveObserver(
        runtime.session,
        now=now,
        model=model,
        prompt=prompt,
        breaker=breaker_view(breaker.to_json(now()), now()),
        gauge=first_gauge(runtime, breaker.routed_model()),
    )
    sink = make_sink(name, panel=lambda: _panel(session), background=background)
    sink.on_stop = runtime.cancel_signal.cancel
    return AttachedView(live, sink, hub=runtime.hub, shown=shown, notices=notices, prices=prices)


def first_gauge(runtime: Any, model: str) -> Gauge:
    """The gauge before the first count: the window of the model that serves, and the lines.

    Args:
        runtime: Whose compaction policy draws the lines, in percent of the window.
        model: Full name.
    """
    policy = runtime.compaction
    off = not policy.auto or not policy.threshold  # only the emergency line is left
    return Gauge(
        window=runtime.llm.window_of(model),
        trigger=policy.emergency if off else policy.threshold,
        emergency=policy.emergency,
    )


def _panel(session: str) -> Any:
    from notebook_agent.notebook.panel import get_panel  # noqa: PLC0415  # F4: no anywidget before it is wanted

    return get_panel(session)
