"""Driving the real engine again with a recorded run: the same turns, seen live once more.

``replay`` only compares actions; here policy, context, ladder, tools and persisting work again,
over a memory store and with recorded replies and tool results, and what they record is compared
with the file. Ids, times and token estimates are left out of the comparison.

What a run saw of the outside is given again as it is recorded: each build's estimate and route,
the breaker that earlier runs had left, the attempts that failed, the summariser's tokens, and what
was undone or compacted by hand between two runs. One thing is in no record: the summary that a
model wrote in a run that was asked ``fresh``, whose compactions are not the session's.

Source: Turn FSM, "Determinism" (B58, B59).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notebook_agent.core import agent_events as ev
from notebook_agent.core import outcomes as o
from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.context import TokenCounter
from notebook_agent.core.messages import Message, Role
from notebook_agent.core.replay import Mismatch
from notebook_agent.core.request import TurnMode
from notebook_agent.core.result import RunResult
from notebook_agent.core.session import RunEventRecord, Session
from notebook_agent.core.settings import RetryPolicy, StreamTimeouts
from notebook_agent.core.turn_fsm import TurnState
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.clock import SYSTEM, Surroundings
from notebook_agent.engine.observers import Observer, StateChange
from notebook_agent.engine.recorded_context import (
    RecordedCounter,
    RecordedRoutes,
    RecordedTransients,
    compaction_of,
    counter_of,
    options_of,
    policy_of,
    refs_of,
    windows_of,
)
from notebook_agent.engine.recorded_run import Player, Recording, calls_of, pass_of
from notebook_agent.engine.recorded_schema import recorded_schema
from notebook_agent.engine.recorded_tools import recorded_tools
from notebook_agent.engine.replay_compare import compare
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.engine.runtime.run_context import RunContext
from notebook_agent.engine.store.base import Commit
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.store.run_file import (
    RunBundle,
    RunFile,
    conversation_before,
    read_run_file,
)
from notebook_agent.errors import AgentError, ConfigError, StoreError

__all__ = ["DriveReport", "redrive"]


@dataclass(slots=True, kw_only=True)
class DriveReport:
    """What came of driving a file again.

    Attributes:
        results: One per run, in order; a run that failed has its result too.
        mismatches: Where the new records and messages differ from the file's, by the sequence
            number of the record. Empty = the engine does again what it did.
        session: The session as it is now, with its trail.
    """

    results: list[RunResult] = field(default_factory=list)
    mismatches: list[Mismatch] = field(default_factory=list)
    session: Session | None = None

    @property
    def ok(self) -> bool:
        """Whether the engine did again what is recorded."""
        return not self.mismatches

    def __str__(self) -> str:
        runs = "1 run" if len(self.results) == 1 else f"{len(self.results)} runs"
        if self.ok:
            return f"Driven again: {runs}, the same as recorded"
        return "\n".join([f"Driven again: {runs}, not as recorded:", *map(str, self.mismatches)])


async def redrive(
    file: str | Path | RunFile,
    *,
    observers: Sequence[Observer] = (),
    speed: float | None = None,
    step: Callable[[StateChange], None] | None = None,
    text_streamer: Callable[[str], Any] | None = None,
    cancel: CancelSignal | None = None,
    compaction: CompactionPolicy | None = None,
    counter: TokenCounter | None = None,
    surroundings: Surroundings = SYSTEM,
) -> DriveReport:
    """Work the runs of a file again with their recorded replies.

    Args:
        file: A run file, or one that was read.
        observers: Told as in a live run: a panel shows it again.
        speed: 1.0 = the recorded pace, 2.0 = twice as fast; None = without waiting.
        step: Called after every transition, on the engine's thread; it may block until the
            user wants the next one.
        text_streamer: As in a live run.
        cancel: Stops the drive; a run that is stopped here ends there.
        compaction: Instead of the recorded policy; files of old versions have none.
        counter: Instead of the recorded counter: one of the user's own that has no known name.
        surroundings: Clock, sleep, ids.

    Returns:
        Results and differences.

    Raises:
        ConfigError: ``speed`` is not a number above 0.
        StoreError: It is no run file, or it was changed after it was written.
    """
    if speed is not None and not 0 < speed < float("inf"):
        raise ConfigError(field="speed", value=speed, legal="a number above 0")
    read = file if isinstance(file, RunFile) else read_run_file(file)
    if read.problems:
        raise StoreError(
            f"{read.path} was changed after it was written: {read.problems[0]}\n"
            f"See more with:  %agent replay {read.path} --check"
        )
    report, store, signal = DriveReport(), _FailingStore(), cancel or CancelSignal()
    key = read.session_id or "replay"
    session = Session(id=key, name="replay", history=list(read.history))
    for number, bundle in enumerate(read.runs):
        if bundle.before:  # the conversation was changed between two runs
            history = list(conversation_before(read, number))
            session = Session(id=f"{key}_{number}", name="replay", history=history, runs=session.runs)  # fmt: skip
        stage = _Stage(bundle, store, signal, surroundings, speed=speed, step=step)
        runtime = stage.runtime(session, [*observers, stage], text_streamer, compaction, counter)
        result = await stage.run(runtime)
        if result is not None:
            report.results.append(result)
            found = compare(bundle, store, session.id, result.run.id)
            report.mismatches += [] if found is None else [found]
        if stage.stopped:
            break  # by the user, not by the recording
    report.session = session
    return report


class _FailingStore(MemoryStore):
    """A memory store that fails where the recorded one did."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: dict[int, AgentError] = {}

    def commit(self, commit: Commit) -> None:
        """As recorded: the transition that could not be written then cannot be written now."""
        record = commit.record
        error = self.failing.get(record.sequence)
        if error is not None and not isinstance(record.outcome, o.StorageError):
            raise StoreError(error.message)
        super().commit(commit)


class _Stage(Observer):
    """One run being driven again: watches where it is, and stops it where it was stopped."""

    def __init__(
        self,
        bundle: RunBundle,
        store: _FailingStore,
        cancel: CancelSignal,
        surroundings: Surroundings,
        *,
        speed: float | None,
        step: Callable[[StateChange], None] | None,
    ) -> None:
        self.bundle = bundle
        self.store = store
        self.surroundings = surroundings
        self._step = step
        self._at = 0  # sequence number of the next record
        self._expects_cancel = False
        self._cancel = cancel
        self._runtime: AgentRuntime | None = None
        self._routes: RecordedRoutes | None = None
        self.stopped = False
        self.recording = Recording(
            calls=deque(calls_of(bundle)),
            cancel=cancel,
            sleep=surroundings.sleep,
            speed=speed,
            router=bool(bundle.run.config.get("policy", {}).get("router_retries")),
        )
        store.failing = {
            r.sequence: r.outcome.error
            for r in bundle.records
            if isinstance(r.outcome, o.StorageError)
        }

    def runtime(
        self,
        session: Session,
        observers: Sequence[Observer],
        text_streamer: Callable[[str], Any] | None,
        compaction: CompactionPolicy | None,
        counter: TokenCounter | None,
    ) -> AgentRuntime:
        """A runtime set up as the run's configuration says."""
        config = self.bundle.run.config
        refs = refs_of(self.bundle)
        kept = config.get("breaker")
        primary = refs[0].route if refs and refs[0].route else str(config.get("model", "recorded"))
        if kept is not None:  # it does not begin with its first model
            primary = str(kept["original_model"])
        windows = windows_of(self.bundle, primary)

        def player(name: str) -> Player:
            return Player(name, self.recording, window=windows.get(name))

        counting = RecordedCounter(counter or counter_of(config), refs)
        self._runtime = AgentRuntime(
            player(primary),
            resolve_client=player,
            system=config.get("system"),
            tools=recorded_tools(config.get("tools", ()), self.bundle.executions),
            policy=policy_of(config.get("policy", {})),
            options=options_of(config.get("options", {})),
            fallback=[n for n in config.get("fallback", ()) if n != primary],
            mode=TurnMode(config.get("mode", "streaming")),
            compaction=compaction or compaction_of(self.bundle),
            contributors=[RecordedTransients(self._coming, self._live)],
            observers=observers,
            store=self.store,
            session=session,
            counter=counting,
            surroundings=self.surroundings,
            text_streamer=text_streamer,
            cancel=self._cancel,
            calibrate="calibration" in config,  # recordings of old versions were not calibrated
        )
        self._begin_as_recorded(self._runtime)
        return self._runtime

    def _begin_as_recorded(self, runtime: AgentRuntime) -> None:
        """What earlier runs had left behind: the anchor of the estimates, the breaker."""
        config = self.bundle.run.config
        if anchor := config.get("calibration"):
            runtime.calibration.restore(anchor, runtime.state.conversation)
        runtime.restore_breaker(config.get("breaker"))
        self._routes = RecordedRoutes(self._ahead, self._live, runtime.llm.route)
        runtime.llm.route = self._routes  # type: ignore[method-assign]  # this runtime's alone

    def _live(self) -> RunContext | None:
        return None if self._runtime is None else self._runtime.active

    def _ahead(self) -> Sequence[RunEventRecord]:
        return self.bundle.records[self._at :]

    def _coming(self) -> RunEventRecord | None:
        return next(iter(self._ahead()), None)

    async def run(self, runtime: AgentRuntime) -> RunResult | None:
        """Drive; the result, also of a run that failed. None when nothing was begun."""
        first = next((m.message for m in self.bundle.messages if m.message is not None), None)
        asked = first is not None and first.role is Role.USER and not first.results
        prompt: str | Message = first if asked and first is not None else self.bundle.run.input
        self._stop_where_it_stopped()
        try:
            config = self.bundle.run.config
            schema = recorded_schema(config.get("schema"), self.bundle.messages)
            return await runtime.arun(prompt, fresh=bool(config.get("fresh")), schema=schema)
        except AgentError as error:
            self.stopped = self._cancel_was_ours(error)
            result = getattr(error, "result", None)
            return result if isinstance(result, RunResult) else None

    def on_state(self, ctx: StateChange) -> None:
        """One transition further."""
        self._at += 1
        if self._routes is not None:
            self._routes.asked = 0
        if self._step is not None:
            self._step(ctx)
        self._stop_where_it_stopped()

    def on_event(self, event: ev.AgentEvent) -> None:
        """The ladder of the coming call, and whether a summary is asked for."""
        if isinstance(event, ev.CompactionTriggered):
            self.recording.summary = pass_of(self.bundle, self._coming())
        elif isinstance(event, ev.CompactionCompleted):
            self.recording.summary = None
        elif isinstance(event, ev.ModelStarted) and self._runtime and self._routes:
            self._routes.asked += 1
            self._set_ladder(self._runtime)

    def _set_ladder(self, runtime: AgentRuntime) -> None:
        """As many retries as then, and a rescue when there was one."""
        calls, speed = self.recording.calls, self.recording.speed
        pause = 1e-4 if speed is None else max(RetryPolicy().base_delay / speed, 1e-4)
        retries = calls[0].retries if calls else 0
        runtime.llm.retry = RetryPolicy(
            max_retries=retries, base_delay=pause, max_delay=max(pause, 10.0), jitter_factor=0.0
        )
        rescue = bool(calls) and calls[0].rescue is not None
        if self.recording.router and rescue:  # each of its tries is one attempt
            rescue = not calls[0].failed
        runtime.llm.timeouts = StreamTimeouts(fallback_to_non_streaming=rescue)

    def _stop_where_it_stopped(self) -> None:
        """Fire the cancel where the recorded run was stopped, or broken off by a kill."""
        records, coming = self.bundle.records, self._coming()
        if coming is None or (
            isinstance(coming.outcome, o.Cancelled)
            and coming.state is not TurnState.CALLING_MODEL  # there the player does it
        ):
            ended = bool(records) and records[-1].outcome is None
            if coming is not None or not ended:
                self._expects_cancel = True
                self._cancel.cancel()

    def _cancel_was_ours(self, error: AgentError) -> bool:
        recorded = any(isinstance(r.outcome, o.Cancelled) for r in self.bundle.records)
        cancelled = type(error).__name__ == "Cancelled"
        return cancelled and not recorded and not self._expects_cancel
