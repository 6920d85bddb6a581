"""CompactionService: one pass from the first question to the verdict.

A pass proposes, measures, and only then offers its result: nothing here changes a history, so
whatever fails, or whoever interrupts, nothing is lost (P06). The runtime swaps in one step.

Source: Turn FSM, "BuildingContext" (B28-B35); LLM turn, "The turn's paper trail" (L98-L106).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from notebook_agent.core import agent_events as events
from notebook_agent.core.compaction import CompactionPolicy, classify, target_tokens
from notebook_agent.core.context import TokenCounter, sum_tokens
from notebook_agent.core.messages import Message
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.clock import SYSTEM, Surroundings
from notebook_agent.engine.compaction.preview import preview_of
from notebook_agent.engine.compaction.strategies import (
    Task,
    extractive,
    only_pruned,
    pruned,
    truncating,
    untouched,
)
from notebook_agent.engine.compaction.summarise import Spent, by_model
from notebook_agent.engine.compaction.words import (
    check_draft,
    done_words,
    nothing_words,
    paused_words,
)
from notebook_agent.engine.compaction_values import (
    CompactionPreview,
    CompactionResult,
    CompactionState,
    CompleteOnce,
    Draft,
    Guidance,
    PreCompact,
    SummaryFailed,
)
from notebook_agent.errors import AgentError, Cancelled, ConfigError

__all__ = [
    "CompactionPreview",
    "CompactionResult",
    "CompactionService",
    "CompactionState",
    "Guidance",
    "PreCompact",
]

log = logging.getLogger("notebook_agent.compaction")

_REMEMBERED = 64  # passes without gain that are remembered


class CompactionService:
    """Makes a conversation smaller, for one session.

    Args:
        policy: Strategy and numbers; may be replaced between passes.
        counter: The one counter, the trigger's own (L20).
        complete_once: ``LlmTurn.complete_once``; only the ``model`` strategy needs it. It is
            given an empty model name when the model that serves is meant.
        hooks: Asked before each pass, in order (L103); one with a ``post_compact`` method is
            told after the rewrite (L106).
        surroundings: Ids.
        window_of: Window of a model by its full name, None when it is not known.
        emit: Gets CompactionCircuitOpened.
        cancel: Looked at between slices of work.
    """

    def __init__(
        self,
        policy: CompactionPolicy,
        counter: TokenCounter,
        complete_once: CompleteOnce | None = None,
        hooks: Sequence[Any] = (),
        surroundings: Surroundings = SYSTEM,
        *,
        window_of: Callable[[str], int | None] | None = None,
        emit: Callable[[events.AgentEvent], None] | None = None,
        cancel: CancelSignal | None = None,
    ) -> None:
        self.policy = policy
        self.counter = counter
        self.complete_once = complete_once
        self.hooks = list(hooks)
        self.surroundings = surroundings
        self.window_of = window_of
        self.emit = emit
        self.cancel = cancel
        self.state = CompactionState()

    async def compact(
        self,
        history: Sequence[Message],
        pending: Sequence[Message] = (),
        *,
        reason: str = "threshold",
        window: int | None = None,
        reserved: int = 0,
        session_state: CompactionState | None = None,
        passes: int = 0,
        model: str = "",
        run_id: str = "",
        manual: bool = False,
    ) -> CompactionResult:
        """One pass. Changes nothing but what it remembers of itself.

        Args:
            history, pending: The conversation; neither list is touched.
            reason: threshold, emergency, provider (it said too long), or manual.
            window: Tokens of the model that serves; None takes the policy's.
            reserved: Tokens of system prompt, tools and this turn's transients (L108).
            session_state: What the session remembers; None takes the service's own.
            passes: Passes this turn has already seen; a second one keeps less (L102).
            model: Full name of the model that serves, for the ``model`` strategy.
            run_id: For events.
            manual: Asked for by the user: tries also while automatic passes are paused (B34)
                and what was tried before.

        Returns:
            What was done, or why nothing was. A failed pass is a result, not an exception.

        Raises:
            Cancelled: The user stopped it; not a failure (P06).
            ConfigError: The ``model`` strategy without a way to ask a model.
        """
        state = self.state if session_state is None else session_state
        manual = manual or reason == "manual"
        task = self._task(history, pending, window, reserved, reason, passes, model)
        blank = self._blank(task)
        if state.paused and not manual:
            return replace(blank, status="paused", detail=paused_words(state))
        key = self._key(task)
        if key in state.fruitless and not manual:
            detail = "nothing has changed since the last try, which gained nothing"
            return replace(blank, detail=detail)
        guided = await self._guided(task, blank.tokens_before)
        if isinstance(guided, str):
            return replace(blank, status="vetoed", detail=guided)
        result = await self._worked(blank, task, guided, state, run_id)
        if result.applied:
            state.failures, state.paused = 0, False
            state.fruitless.clear()
        elif result.status != "failed":
            state.fruitless[key] = None
            while len(state.fruitless) > _REMEMBERED:
                state.fruitless.pop(next(iter(state.fruitless)))
        return result

    async def preview(
        self,
        history: Sequence[Message],
        pending: Sequence[Message] = (),
        *,
        window: int | None = None,
        reserved: int = 0,
        reason: str = "manual",
        model: str = "",
    ) -> CompactionPreview:
        """What a pass would do now, message by message, without doing it and without a request.

        Args:
            history, pending, window, reserved, reason, model: As for :meth:`compact`.
        """
        task = self._task(history, pending, window, reserved, reason, 0, model)
        return await preview_of(task, self._tokens(task.messages, reserved))

    async def after_rewrite(self, result: CompactionResult) -> None:
        """Tell the hooks of an applied pass, once the history is rewritten (L106)."""
        if not result.applied:
            return
        for hook in self.hooks:
            told = getattr(hook, "post_compact", None)
            if told is None:
                continue
            try:
                answer = told(result)
                if inspect.isawaitable(answer):
                    await answer
            except Exception:
                log.exception("compaction hook %s raised", _name(hook))

    # --- steps of a pass --------------------------------------------------------------------

    def _task(
        self,
        history: Sequence[Message],
        pending: Sequence[Message],
        window: int | None,
        reserved: int,
        reason: str,
        passes: int,
        model: str,
    ) -> Task:
        return Task(
            messages=(*history, *pending),
            policy=self.policy,
            counter=self.counter,
            surroundings=self.surroundings,
            window=self.policy.window if window is None else window,
            reserved=reserved,
            reason=reason,
            passes=passes,
            check=self._look,
            model=self.policy.summary_model or model,
        )

    def _blank(self, task: Task) -> CompactionResult:
        """A pass that has done nothing yet."""
        before = self._tokens(task.messages, task.reserved)
        return CompactionResult(
            applied=False, status="nothing", messages=task.messages, tokens_before=before,
            tokens_after=before, strategy=self.policy.strategy, reason=task.reason,
        )  # fmt: skip

    def _tokens(self, messages: Sequence[Message], reserved: int) -> int:
        """The full request (P07)."""
        return sum_tokens(self.counter, messages) + reserved

    async def _guided(self, task: Task, before: int) -> Task | str:
        """The task with the hooks' words in it, or the reason of a veto (L103)."""
        instructions: str | None = None
        extra: list[str] = []
        for hook in self.hooks:
            ask = getattr(hook, "pre_compact", hook)
            if not callable(ask):
                continue
            ctx = PreCompact(
                reason=task.reason,
                strategy=self.policy.strategy,
                tokens_before=before,
                target=target_tokens(self.policy, task.window),
                window=task.window,
                message_count=len(task.messages),
                instructions=instructions,
            )
            try:
                said = ask(ctx)
                if inspect.isawaitable(said):
                    said = await said
            except Cancelled:
                raise
            except Exception:  # one hook's bug must not stop a compaction
                log.exception("compaction hook %s raised; left out", _name(hook))
                continue
            if said is None:
                continue
            if said.abort is not None:
                return f"a hook said no: {said.abort}" if said.abort else "a hook said no"
            if said.new_instructions is not None:
                instructions = said.new_instructions
            if said.additional_context is not None:
                extra.append(said.additional_context)
        return replace(task, instructions=instructions, extra=tuple(extra))

    async def _worked(
        self,
        blank: CompactionResult,
        task: Task,
        guided: Task,
        state: CompactionState,
        run_id: str,
    ) -> CompactionResult:
        """The strategy's draft, checked and measured; a failure is counted."""
        spent = Spent()
        try:
            draft = await self._draft(guided, spent)
            if draft is not None and draft.messages:
                check_draft(task.messages, draft.messages)
        except (Cancelled, ConfigError):
            raise
        except (SummaryFailed, AgentError) as error:
            return self._failed(blank, state, spent, str(error), run_id)
        except Exception as error:
            log.exception("compaction failed; the history is unchanged")
            return self._failed(blank, state, spent, f"{type(error).__name__}: {error}", run_id)
        return self._verdict(blank, task, draft, spent)

    async def _draft(self, task: Task, spent: Spent) -> Draft | None:
        self._look()
        ready = pruned(task)
        draft = only_pruned(task, ready) or await self._strategy(ready, spent)
        return untouched(ready) if draft is None and ready is not task else draft

    def _look(self) -> None:
        if self.cancel is not None:
            self.cancel.raise_if_cancelled()

    async def _strategy(self, task: Task, spent: Spent) -> Draft | None:
        match self.policy.strategy:
            case "truncate":
                return truncating(task)
            case "model":
                if self.complete_once is None:
                    raise ConfigError(
                        "The compaction strategy 'model' has no model to ask.\n"
                        "Use another:  %agent compact policy strategy=extractive",
                        field="strategy",
                    )
                return await by_model(task, self.complete_once, self._window(task), spent)
            case _:
                return await extractive(task)

    def _window(self, task: Task) -> int:
        """The summariser's window: its own where known, else that of the model that serves."""
        if self.policy.summary_model is None:
            return task.window
        known = self.window_of(self.policy.summary_model) if self.window_of else None
        return task.window if known is None else known

    def _verdict(
        self, blank: CompactionResult, task: Task, draft: Draft | None, spent: Spent
    ) -> CompactionResult:
        blank = replace(blank, usage=spent.usage, calls=spent.calls)
        if draft is None or not draft.messages:
            return replace(blank, detail=nothing_words(task))
        after = self._tokens(draft.messages, task.reserved)
        if classify(blank.tokens_before, after) == "no_gain":
            detail = f"no gain: {blank.tokens_before:,} tokens before, {after:,} after"
            return replace(blank, status="no_gain", tokens_after=after, detail=detail)
        summary = draft.summary
        kept = tuple(message for message in draft.messages if message is not summary)
        known = {message.id for message in task.messages}
        new = tuple(message for message in kept if message.id not in known)
        removed = len(task.messages) - len(kept)
        return replace(
            blank,
            applied=True,
            status="applied",
            messages=draft.messages,
            summary=summary,
            new_messages=new,
            origins={m.id: task.origin[m.id].id for m in new if m.id in task.origin},
            kept_ids=tuple(message.id for message in kept),
            tokens_after=after,
            removed=removed,
            detail=done_words(task, removed, len(new)),
        )

    def _failed(
        self,
        blank: CompactionResult,
        state: CompactionState,
        spent: Spent,
        why: str,
        run_id: str,
    ) -> CompactionResult:
        """Count a failure; the third in a row pauses automatic passes."""
        state.failures += 1  # Ruling: B34, of the session object
        opened: int | None = None
        if state.failures >= self.policy.max_failures and not state.paused:
            state.paused = True
            opened = state.failures
            if self.emit is not None:
                self.emit(
                    events.CompactionCircuitOpened(
                        run_id=run_id,
                        timestamp=self.surroundings.wall(),
                        consecutive_failures=opened,
                    )
                )
        detail = f"failed: {why}"
        if state.paused:
            detail += f". {paused_words(state)}"
        return replace(
            blank, status="failed", detail=detail, usage=spent.usage, calls=spent.calls,
            circuit_opened=opened,
        )  # fmt: skip

    def _key(self, task: Task) -> str:
        """Idempotence: what would be summarised, under which rules."""
        # Ruling: B33, kept for passes without gain too
        rules = f"{task.policy} {task.window} {task.passes}"
        # truncate goes by position: every message but the last few may go
        head = (
            range(len(task.messages)) if self.policy.strategy == "truncate" else task.split().head
        )
        if not task.messages:
            return rules
        last = task.messages[head[-1] if head else -1]
        mark = last.id or last.display_text()[:200]
        return f"{rules} {len(head) or len(task.messages)} {mark}"


def _name(hook: Any) -> str:
    return getattr(hook, "__name__", None) or type(hook).__name__
