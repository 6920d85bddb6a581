"""What stands: status, count, history, audit, fsm, events, why, show.

Source: notebook side, commands; audit frame (section 5, F10).
"""

from __future__ import annotations

from typing import Any, Final

from notebook_agent.core import agent_events as ev
from notebook_agent.core.agent_events import AgentEvent, event_to_json
from notebook_agent.core.session import Run
from notebook_agent.notebook.looking import there
from notebook_agent.notebook.model_book import without_keys
from notebook_agent.notebook.report import Report
from notebook_agent.notebook.runs import RunVerbs

__all__ = ["StateVerbs"]

SHORT: Final = 300  # characters of a message in a listing


def short(text: str, limit: int = SHORT) -> str:
    """A text on few lines."""
    return text if len(text) <= limit else f"{text[:limit]} [... {len(text) - limit:,} more]"


class StateVerbs(RunVerbs):
    """Verbs that only look."""

    def status(self, session: str | None = None) -> Report:
        """Who answers, what is kept, how the last run ended."""
        name = session or self.current
        pairs: list[tuple[str, str]] = [("session", name), ("model", self._model_line())]
        runtime = self._runtimes.get(name)
        if runtime is not None:
            runs = runtime.session.runs
            breaker = runtime.breaker
            pairs.append(("breaker", self._breaker_line(breaker)))
            pairs.append(("tools", ", ".join(runtime.registry.names()) or "none"))
            pairs.append(("system", short(runtime.system or "none", 80)))
            pairs.append(("runs", f"{len(runs)}{self._last_line(runs)}"))
            pairs.append(("history", f"{len(runtime.session.history)} messages"))
            pairs.append(("store", runtime.store.location))
        else:
            pairs.append(("verbs", "%agent help"))
        options = {
            k: v for k, v in [("model", self.options.model), *self.options.extra.items()] if v
        }
        if options:
            pairs.append(("request options", ", ".join(f"{k}={v!r}" for k, v in options.items())))
        running = [h for h in self.background if not h.done]
        if running:
            pairs.append(("background", f"{len(running)} running; stop with:  %agent stop"))
        # Ruling: D21, after a kill the first line offers the way back.
        title = "\n".join([*self.broken_off(), "agent status"])
        return Report(title, tuple(pairs))

    def _model_line(self) -> str:
        chosen = self.settings.model
        if not chosen:
            name, hint = self.models_book.default()
            return f"{name}{'' if hint is None else f'  ({hint})'}"
        full, chosen = map(without_keys, (self.models_book.expand(chosen), chosen))
        return full if full == chosen else f"{full}  (alias {chosen})"

    def _breaker_line(self, breaker: Any) -> str:
        data = breaker.to_json(self.surroundings.now())
        failed = data["consecutive_failures"]
        line = f"{data['state']}, {failed} failure{'' if failed == 1 else 's'} in a row"
        if data["state"] != "primary":
            line += f", {data['routed_model']} serves"
        chain = [f"{e.name} {e.attempt_count}/{e.max_fail_count} strikes" for e in breaker.chain]
        return line + (f"; chain: {', '.join(chain)}" if chain else "")

    def _last_line(self, runs: list[Run]) -> str:
        return f", last {runs[-1].status.value}" if runs else ""

    def count(self, text: str = "", exact: bool = False) -> Report:
        """Tokens of the next request in parts, against the window; no request, unless ``exact``.

        Args:
            text: A prompt that would be asked.
            exact: Ask the provider's own count endpoint too.
        """
        runtime = self.runtime()
        told = runtime.exact_count(text) if exact else None
        parts = runtime.context_anatomy(text)
        label = "" if parts.exact else "est. "
        window = parts.window
        share = f" ({parts.total * 100 // window} %)" if window else ""
        pairs = [
            (name, f"{label}{getattr(parts, name):,}")
            for name in ("system", "tools", "transients", "history", "prompt")
        ]
        pairs.append(("total", f"{label}{parts.total:,} of {window:,}{share}"))
        if told is not None:
            pairs.append(("by the provider", f"{told:,}"))
        pairs.append(("compaction above", f"{parts.threshold:,}" if parts.threshold else "off"))
        pairs.append(("emergency from", f"{parts.emergency:,}" if parts.emergency else "off"))
        pairs.append(("serves", parts.model))
        pairs.append(("counted by", parts.counter))
        return Report("tokens of the next request", tuple(pairs), data=parts)

    def history(self, last: int = 10, session: str | None = None) -> Report:
        """The last messages of the conversation, oldest first."""
        messages = there(self, session).session.history
        if not messages:
            return Report("the conversation is empty")
        lines: list[str] = []
        for message in messages[-last:]:
            lines += [f"[{message.role.value}] {short(message.display_text())}"]
        head = f"{len(messages)} messages, the last {min(last, len(messages))}:"
        return Report(head, lines=tuple(lines), data=tuple(messages[-last:]))

    def audit(
        self, run: str | None = None, last: int | None = None, session: str | None = None
    ) -> Any:
        """The audit trail: a pandas.DataFrame, one row per turn.

        Args:
            run: Only this run: number or id.
            last: Only the last rows.

        Returns:
            The frame; with prices in the settings a ``cost`` column too.
        """
        from notebook_agent.notebook.audit import audit_frame, cost_column  # noqa: PLC0415  # pandas is slow to import

        trail = there(self, session).session
        frame = audit_frame(trail)
        if self.settings.prices:  # a column that only a price of the user's own makes (D10)
            frame["cost"] = cost_column(trail, self.settings.prices)
        if run is not None:
            frame = frame[frame["run_id"] == self.find_run(run, session).id]
        if last is not None:
            frame = frame.tail(last)
        return frame.reset_index(drop=True)

    def fsm(self, run: str | None = None, session: str | None = None) -> Report:
        """States, outcomes and actions of a run, as recorded."""
        found = self.find_run(run, session)
        records = self.runtime(session).store.records(found.id)
        rows = tuple(
            (
                str(r.sequence),
                str(r.turn),
                r.state.name,
                "-" if r.outcome is None else type(r.outcome).__name__,
                _action(r.action) if r.status is None else r.status.value,
            )
            for r in records
        )
        header = ("seq", "turn", "state", "outcome", "action")
        return Report(
            f"run {found.id}: {found.status.value}", header=header, rows=rows, data=records
        )

    def events(self, run: str | None = None, session: str | None = None) -> Report:
        """What happened in a run, event by event."""
        found = self.find_run(run, session)
        events = self.runtime(session).store.events(found.id)
        start = events[0].timestamp if events else 0.0
        lines = tuple(f"{e.timestamp - start:8.3f} s  {_event_line(e)}" for e in events)
        return Report(f"run {found.id}: {found.status.value}", lines=lines, data=events)

    def why(self, run: str | None = None) -> Report:
        """The last error in full: every attempt, its cause, its wait and its outcome."""
        failed = self.find_run(run) if run is not None else self._last_failed()
        error = self.last_error
        if failed is None:
            if error is None:
                return Report("nothing has failed in this session")
            frames = "".join(getattr(error, "_frames", ()))
            head = f"{type(error).__name__} (before any request)"
            return Report(head, lines=(str(error), *frames.splitlines()))
        lines = [
            _event_line(e) for e in self.runtime().store.events(failed.id) if isinstance(e, _CHAIN)
        ]
        data = dict(failed.error or {})
        pairs = [("run", f"{failed.id}, {failed.status.value}")]
        pairs += [(k.replace("_", " "), str(v)) for k, v in data.items() if _worth(k, v)]
        lines += [
            f"partial text of turn {one.turn.turn}: {short(one.turn.output)}"
            for one in failed.unserved
            if one.turn.output
        ]
        return Report("why the last error happened", tuple(pairs), lines=tuple(lines), data=failed)

    def _last_failed(self) -> Run | None:
        if self.current not in self._runtimes:
            return None
        runs = self.runtime().session.runs
        return next((r for r in reversed(runs) if r.error), None)

    def show(self, run: str | None = None, session: str | None = None) -> Any:
        """The output of a run of this session again; no request is made (F10)."""
        from notebook_agent.notebook.verbs.shown import Shown  # noqa: PLC0415  # pandas-free, but rendering is slow to import

        found = self.find_run(run, session)
        return Shown.of(found, self.runtime(session).session, self.shown.get(found.id))


_CHAIN = (
    ev.ModelStarted, ev.AttemptStarted, ev.AttemptFailed, ev.RescueStarted, ev.ModelSwitched,
    ev.CompactionTriggered, ev.CompactionCompleted, ev.RunFailed, ev.RunCancelled, ev.DoomLoopDetected,
)  # fmt: skip


def _worth(name: str, value: Any) -> bool:
    return name != "result" and value not in (None, "", False, [], ())


def _action(action: Any) -> str:
    state = getattr(action, "state", None)
    name = type(action).__name__
    return name if state is None else f"{name}({state.name})"


def _event_line(event: AgentEvent) -> str:
    fields = event_to_json(event)
    name = fields.pop("event")
    for left in ("run_id", "timestamp", "order"):
        fields.pop(left)
    inner = ", ".join(
        f"{k}={short(str(round(v, 3) if isinstance(v, float) else v), 160)}"
        for k, v in fields.items()
        if v not in (None, "", {}, ())
    )
    return f"{name} {inner}".rstrip()
