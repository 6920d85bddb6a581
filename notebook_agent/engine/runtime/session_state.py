"""SessionState: one session in memory and in its store: history, log, trail, undo and reset.

Source: LLM turn, "The turn's paper trail" (L95, L96, L121); Turn FSM, "Persisting" (B25, B56,
B60); notebook D21.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from notebook_agent.core.log_view import conversation as read_log
from notebook_agent.core.log_view import paired
from notebook_agent.core.messages import Message
from notebook_agent.core.sendable import sendable
from notebook_agent.core.session import Session
from notebook_agent.engine.clock import Surroundings
from notebook_agent.engine.compactor import CompactionResult
from notebook_agent.engine.conversation import Conversation, without_state
from notebook_agent.engine.store.base import MessageRecord, SessionRow, Store
from notebook_agent.engine.store.open import load_session
from notebook_agent.errors import ConfigError, StoreError

__all__ = ["SessionState", "find"]


class SessionState:
    """The session the runtime works on.

    Args:
        session: New, or read from the store by :meth:`load`.
        store: Where it is kept; touched at the first run, not before (D21).
        surroundings: Clock and ids.
        by_name: It was asked for by its name, and the store had none of that name.
    """

    def __init__(
        self,
        session: Session,
        store: Store,
        surroundings: Surroundings,
        *,
        by_name: bool = False,
    ) -> None:
        self.session = session
        self.store = store
        self.conversation = Conversation(session.history)
        self._surroundings = surroundings
        self._stored = False
        self._by_name = by_name
        self._marked = False  # the watermark says how far the conversation was read

    @classmethod
    def load(cls, store: Store, row: SessionRow, surroundings: Surroundings) -> SessionState:
        """A stored session with its conversation and trail.

        Raises:
            StoreError: It cannot be read.
        """
        state = cls(load_session(store, row.id), store, surroundings)
        state.conversation.close_exchange()
        state._mark()
        return state

    @property
    def key(self) -> tuple[str, str]:
        """What one run at a time holds (B78): the medium and the session on it."""
        place = self.store.location
        return (place if place != "memory" else f"memory:{id(self.store)}", self.session.id)

    def settle(self) -> None:
        """Become the one session of the name that was asked for: another runtime or kernel may
        have made it since. Before the session is held for a run, for the key may change.

        Raises:
            StoreError: It cannot be read or written.
        """
        if not self._by_name or self._stored:
            return
        row = self.store.claim_session(self._row())
        if row.id != self.session.id:
            found = load_session(self.store, row.id)
            mine = self.session
            mine.id, mine.name, mine.config = found.id, found.name, found.config
            mine.runs[:] = found.runs
            self.conversation.replace(list(found.history))
            self.conversation.close_exchange()
            self._mark()
        self._by_name, self._stored = False, True

    def _row(self) -> SessionRow:
        at = self._surroundings.wall()
        return SessionRow(
            id=self.session.id,
            name=self.session.name,
            created_at=at,
            updated_at=at,
            config=self.session.config,
        )

    def ensure_stored(self) -> None:
        """Create the session's row at the first write.

        Raises:
            StoreError: It cannot be written.
        """
        if self._stored:
            return
        row = self.store.get_session(self.session.id)
        if row is None:
            self.store.create_session(self._row())
            self._take_in()
        else:
            if not self._marked:
                self._mark()
        self._stored = True

    def _mark(self) -> None:
        log = self.store.list_messages(self.session.id)
        self.conversation.upto = log[-1].seq if log else 0
        self._marked = True

    def catch_up(self) -> None:
        """Take in what another runtime or kernel has written to this session meanwhile.

        Raises:
            StoreError: The log cannot be read.
        """
        if not self.known():  # nobody has written to it, and looking creates nothing
            return
        if not self.store.list_messages(self.session.id, after=self.conversation.upto):
            return
        self.reread()
        mine = {run.id: run for run in self.session.runs}
        stored = self.store.list_runs(self.session.id)
        self.session.runs[:] = [mine.pop(run.id, run) for run in stored] + list(mine.values())

    def reread(self) -> None:
        """Bring the conversation in line with the log (B25)."""
        records = self.store.list_messages(self.session.id)
        kept = [sendable(m) for m in read_log(records)]
        self.conversation.replace([without_state(m) for m in kept if m is not None])
        self.conversation.upto = records[-1].seq if records else 0

    def entry(
        self,
        kind: str,
        message: Message | None = None,
        *,
        run_id: str = "",
        meta: Mapping[str, Any] | None = None,
    ) -> MessageRecord:
        """One entry for the append-only log."""
        return MessageRecord(
            session_id=self.session.id,
            run_id=run_id,
            kind=kind,
            message=message,
            meta=meta or {},
            created_at=self._surroundings.wall(),
        )

    def append(self, entries: Sequence[MessageRecord]) -> None:
        """Write entries outside a run, in one transaction.

        Raises:
            StoreError: They could not be written.
        """
        self.ensure_stored()
        self.conversation.upto = self.store.append_messages(entries) or self.conversation.upto

    def marker_entries(self, result: CompactionResult, *, run_id: str = "") -> list[MessageRecord]:
        """What a pass writes: shortened messages, the marker, its summary, in this order (B32)."""
        entries = [self.entry("message", m, run_id=run_id) for m in result.new_messages]
        entries.append(self.entry("compaction", run_id=run_id, meta=result.meta()))
        if result.summary is not None:
            entries.append(self.entry("summary", result.summary, run_id=run_id))
        return entries

    def undo(self, count: int = 1) -> tuple[str, ...]:
        """Take the last runs out of the conversation by a marker; log and trail stay (D21).

        Args:
            count: How many runs that are part of the conversation.

        Returns:
            Ids of the runs that left it, newest first; fewer when there were fewer.

        Raises:
            ConfigError: ``count`` is not positive.
            StoreError: The marker could not be written.
        """
        if count < 1:
            raise ConfigError(field="undo", value=count, legal="1 run or more")
        if not self.known():
            return ()
        runs = self._conversing()[-count:]
        if not runs:
            return ()
        self.append([self.entry("undo", meta={"run_ids": runs})])
        self.reread()
        return tuple(reversed(runs))

    def reset(self, *, hard: bool = False) -> None:
        """Start the conversation anew. The trail stays, unless ``hard`` (D21).

        Raises:
            StoreError: It could not be written.
        """
        if hard:
            if self.store.get_session(self.session.id) is not None:
                self.store.delete_session(self.session.id)
            self._stored = False
            self.session.runs.clear()
            self.conversation.replace([])
            self.conversation.upto = 0
            return
        if self.known():
            self.append([self.entry("reset", meta={"hard": False})])
        self.conversation.replace([])

    def known(self) -> bool:
        """Whether the store has the session; nothing is created.

        Raises:
            StoreError: It had it, and somebody has deleted it since.
        """
        there = self.store.get_session(self.session.id) is not None
        if self._stored and not there:
            raise StoreError(
                f"Session {self.session.name!r} was deleted in the store while it was open here; "
                "nothing was saved. Its conversation is still here.\n"
                "Keep it as a new session:  %agent session save NAME\n"
                "or begin anew:  %agent reset --hard"
            )
        return there

    def store_again(self) -> None:
        """A session that was deleted in the store is created anew, with its conversation."""
        if self._stored and self.store.get_session(self.session.id) is None:
            self._stored = self._marked = False
        self.ensure_stored()

    def _conversing(self) -> list[str]:
        """Ids of the runs that the conversation rests on, oldest first."""
        order: dict[str, None] = {}
        for record in self.store.list_messages(self.session.id):
            if record.kind == "reset":
                order.clear()
            elif record.kind == "undo":
                for run_id in record.meta.get("run_ids", ()):
                    order.pop(run_id, None)
            elif record.run_id and record.kind in ("commit", "compaction"):
                order.pop(record.run_id, None)
                order[record.run_id] = None
        return list(order)

    def _take_in(self) -> None:
        """A session that came with a history of its own: the log begins with it."""
        if not self.session.history:
            return
        given = [
            m if m.id else replace(m, id=self._surroundings.new_id("message"))
            for m in self.session.history
        ]
        run_id = self._surroundings.new_id("run")
        entries = [self.entry("message", m, run_id=run_id) for m in given]
        entries.append(self.entry("commit", run_id=run_id))
        last = self.store.append_messages(entries)
        self.conversation.replace(
            list(paired(given))
        )  # as the log is read: legal for every provider
        self.conversation.upto = last


def find(store: Store, name_or_id: str) -> SessionRow:
    """The stored session of that id, else the newest of that name.

    Raises:
        ConfigError: There is none.
        StoreError: The store cannot be read.
    """
    row = store.get_session(name_or_id) or store.find_session(name_or_id)
    if row is None:
        names = sorted({row.name for row in store.list_sessions()})
        raise ConfigError(
            f"There is no session {name_or_id!r}. Stored: {', '.join(names) or 'none'}.\n"
            "List them with:  %agent session list",
            field="session",
            value=name_or_id,
        )
    return row
