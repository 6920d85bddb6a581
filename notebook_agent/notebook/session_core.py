"""SessionCore: what every verb stands on: runtimes by session name, models, store, settings (F14).

One object per kernel. It holds one ``AgentRuntime`` per session name, the models and aliases,
the settings and the engine's loop; the magics only read arguments and call it.

Source: notebook side, commands (section 3, D11, D21, F14).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, MutableMapping
from pathlib import Path
from typing import Any, TypeVar

from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.context import TokenCounter
from notebook_agent.core.interpolate import known_as, no_text, value_text
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.core.request import RequestOptions
from notebook_agent.core.session import Run, Session
from notebook_agent.engine.clock import SYSTEM, PinnedClock, Surroundings, pinned
from notebook_agent.errors import AgentError, Cancelled, ConfigError, StoreError
from notebook_agent.notebook.applied import CHECKS, FOLLOWS, breaker_config, nothing, run_policy
from notebook_agent.notebook.arguments import UsageError
from notebook_agent.notebook.asking import approver
from notebook_agent.notebook.chore import Chore
from notebook_agent.notebook.kernel_loop import EngineDriver, default_driver
from notebook_agent.notebook.looking import there
from notebook_agent.notebook.model_book import LiveNames, ModelBook
from notebook_agent.notebook.prepare import find_function
from notebook_agent.notebook.road import KernelRoad, no_asker
from notebook_agent.notebook.session_map import SessionMap
from notebook_agent.notebook.settings import Settings, legal_value
from notebook_agent.notebook.stdin import asker_for
from notebook_agent.providers.base import ModelClient, full_name

__all__ = ["SessionCore", "current_surroundings"]

T = TypeVar("T")

OWN_MODELS = ("demo",)  # sessions whose model is part of what they show


def current_surroundings(settings: Settings) -> Surroundings:
    """The real clock and ids, or the pinned ones (D16)."""
    return pinned(PinnedClock()) if settings.pinned else SYSTEM


class SessionCore:
    """What the verbs share.

    Args:
        namespace, shell, settings, engine, models: As for ``AgentSession``.
    """

    def __init__(
        self,
        namespace: MutableMapping[str, Any] | None = None,
        *,
        shell: Any = None,
        settings: Settings | None = None,
        engine: EngineDriver | None = None,
        models: ModelBook | None = None,
    ) -> None:
        self.shell = shell
        self._namespace: MutableMapping[str, Any] = {} if namespace is None else namespace
        self.settings = settings or Settings()
        self.engine = engine or default_driver()
        self.models_book = models or ModelBook(LiveNames(lambda: self.namespace))
        self.configured = False  # has the person's IPython configuration been read?
        self.on_setting: Callable[[], None] | None = None
        self.road = KernelRoad(asker=lambda: asker_for(shell) if shell is not None else no_asker())
        self.current = "default"
        self.options = RequestOptions()
        self.said: set[str] = set()
        self.last_error: AgentError | None = None
        self.background: dict[Any, str] = {}  # handle -> its session
        self.shown: dict[str, Any] = {}
        self.views: dict[str, Any] = {}  # session -> the view of its newest run
        self.mcp_servers: dict[str, Any] = {}
        self._runtimes: dict[str, Any] = SessionMap()
        self._store: Any = None
        self._store_line: str | None = None
        self._counter: tuple[tuple[str, ...], TokenCounter] | None = None
        self._surroundings: Surroundings | None = None

    # ---- the notebook ----------------------------------------------------------------------

    @property
    def namespace(self) -> MutableMapping[str, Any]:
        """The notebook's variables; the shell's own dict, which ``%reset`` may replace."""
        return self._namespace if self.shell is None else self.shell.user_ns

    def names(self) -> Mapping[str, Any]:
        """The variables as a prompt sees them: ``In`` holds the sources as they were typed."""
        history = getattr(getattr(self.shell, "history_manager", None), "input_hist_raw", None)
        return self.namespace if history is None else {**self.namespace, "In": history}

    def cell_sources(self, count: int) -> list[str]:
        """The last ``count`` cells as typed, oldest first, without the one that runs now."""
        history = getattr(getattr(self.shell, "history_manager", None), "input_hist_raw", None)
        before = history[1:-1] if count and history else ()
        return [one for one in before if one.strip()][-count:]

    def function(self, name: str, command: str = "%%agent --tools") -> Any:
        """A function or tool of the notebook; ``command`` is what an error says to type.

        Raises:
            UsageError: There is none of that name.
        """
        return find_function(name, self.namespace, lambda v: hasattr(v, "schema"), command)

    def system_text(self, text: str) -> str:
        """A system prompt as given, or the text of ``@variable``.

        Raises:
            UsageError: There is no such variable, or it has no text.
        """
        if not text.startswith("@"):
            return text
        name = known_as(text[1:], self.namespace)
        if name not in self.namespace:
            raise UsageError(
                f"--system: there is no variable {name!r} in this notebook. Nothing was sent.\n"
                f'Type:  {name} = "..."     in a cell of its own'
            )
        try:
            return value_text(self.namespace[name])
        except (Exception, SystemExit) as error:  # noqa: BLE001  # a user object may raise anything
            raise UsageError(f"--system: @{name}: {no_text(self.namespace[name], error)}") from None

    # ---- models ------------------------------------------------------------------------------

    def model_name(self) -> str:
        """Full name of the model that the next run asks, unless its cell names another."""
        chosen = self.settings.model or self.models_book.default()[0]
        return self.models_book.full(chosen)

    def start_notices(self, session: str, model: ModelClient | None = None) -> tuple[str, ...]:
        """Lines that are said once: which model was chosen for want of one, where things go.

        Args:
            model: The run's own model; None = the settings'.
        """
        lines = []
        if not self.settings.model and model is None and "model" not in self.said:
            line = self.models_book.default()[1]
            if line:
                self.said.add("model")
                lines.append(line)
        self.runtime(session, model=model)  # opens the store: its line is known now
        if "broken" not in self.said:
            self.said.add("broken")
            if self.broken_off():
                lines.append("a run of an earlier kernel was broken off; see:  %agent status")
        if self._store_line and "store" not in self.said:
            self.said.add("store")
            lines.append(self._store_line)
        return tuple(lines)

    def policy(self) -> RuntimePolicy:
        """The limits of a run by the settings."""
        return run_policy(self.settings)

    def window(self, model: str | None = None) -> int | None:
        """Window in tokens of the model that will serve, None when it is not known."""
        name = self.model_name() if model is None else model
        capabilities = getattr(self.models_book.client(name), "capabilities", None)
        found = None if capabilities is None else capabilities().context_window
        limit = self.policy().max_input_tokens
        return found if limit is None or found is None else min(found, limit)

    def effective_window(self, session: str, model: str | None = None) -> int | None:
        """Window that a run may fill: the model's, capped by the session's policy; the policy's
        where the model does not say; None = no limit at all."""
        runtime = self._runtimes.get(session)
        limit = CompactionPolicy().window if runtime is None else runtime.compaction.window
        known = self.window(model)
        if not limit:
            return known
        return limit if known is None else min(known, limit)

    # ---- counting ----------------------------------------------------------------------------

    @property
    def counter(self) -> TokenCounter:
        """The counter of the session's next run (L20), which follows its models; before there is
        a session, that of the models it would have. Its vocabulary loads at use."""
        runtime = self._runtimes.get(self.current)
        if runtime is not None:
            follows: TokenCounter = runtime.counter
            return follows
        names = (self.model_name(), *map(self.models_book.full, self.settings.backups))
        if self._counter is None or self._counter[0] != names:
            from notebook_agent.engine.tokenizer import counter_for_models  # noqa: PLC0415  # loads at use, not with the extension

            self._counter = (names, counter_for_models(names))
        return self._counter[1]

    def count_text(self, text: str) -> int:
        """Tokens of a text."""
        return self.counter.count_text(text)

    # ---- settings ----------------------------------------------------------------------------

    def apply_setting(self, name: str, value: Any) -> None:
        """Take over one setting; open sessions follow where they can.

        Raises:
            AgentError: The value cannot be used, or a run is in progress; nothing changed.
        """
        before = getattr(self.settings, name)
        setattr(self.settings, name, legal_value(name, value))
        open_ones = [r for session, r in self._runtimes.items() if session not in OWN_MODELS]
        try:
            CHECKS.get(name, nothing)(self)
            for runtime in open_ones:
                FOLLOWS.get(name, nothing)(self, runtime)
        except AgentError:
            setattr(self.settings, name, before)
            raise
        if self.on_setting is not None:
            self.on_setting()

    def note_error(self, error: AgentError) -> None:
        """Keep an error for ``why``; the user's own stop is none."""
        if not isinstance(error, Cancelled):
            self.last_error = error

    # ---- runtimes ----------------------------------------------------------------------------

    @property
    def surroundings(self) -> Surroundings:
        """Clock and ids of this kernel's runs."""
        if self._surroundings is None:
            self._surroundings = current_surroundings(self.settings)
        return self._surroundings

    def runtime(self, session: str | None = None, *, model: ModelClient | None = None) -> Any:
        """The runtime of a session name; made at first use.

        Args:
            model: The primary of a new one where the settings' model cannot be used: a run
                that names its own model must not need the other's key.
        """
        name = session or self.current
        if name not in self._runtimes:
            self._runtimes[name] = self._make_runtime(name, model)
        return self._runtimes[name]

    def use_default_model(self, session: str) -> None:
        """Bring a session's primary in line with the settings before a run.

        Raises:
            ConfigError: There is no such model, or its key is missing.
        """
        client = self.models_book.client(self.model_name())
        runtime = self.runtime(session)
        if session not in OWN_MODELS and runtime.primary != full_name(client):
            runtime.switch_model(client)

    def _primary(self, model: ModelClient | None) -> ModelClient:
        try:
            return self.models_book.client(self.model_name())
        except ConfigError:
            if model is None:
                raise
            return model

    def _make_runtime(self, name: str, model: ModelClient | None = None) -> Any:
        from notebook_agent.engine.runtime import AgentRuntime  # noqa: PLC0415  # the engine loads at the first run

        settings = self.settings
        # Ruling: D21, a name is a new session in every kernel; `session load` takes one up.
        fresh = Session(id=self.surroundings.new_id("session"), name=name)
        return AgentRuntime(
            self._primary(model),
            resolve_client=self.models_book.client,
            system=settings.system or None,
            policy=self.policy(),
            options=self.options,
            fallback=tuple(self.models_book.full(n) for n in settings.backups),
            breaker=breaker_config(settings),
            store=self.store(),
            session=fresh,
            surroundings=self.surroundings,
            approve=approver(self.road, lambda: self.views.get(name)),
            run_on_main=self.road.run_on_main,
        )

    def adopt(self, name: str, runtime: Any) -> None:
        """Keep a runtime that was made for a purpose as a session of this kernel."""
        self._runtimes[name] = runtime

    @property
    def sessions(self) -> list[str]:
        """Names of this kernel's sessions."""
        return sorted({"default", self.current, *self._runtimes})

    def store(self) -> Any:
        """The store of this kernel, opened at first use (D21)."""
        if self._store is None:
            from notebook_agent.engine.store.open import open_store  # noqa: PLC0415  # at the first run

            try:
                # Pinned ids begin anew in every kernel: they must not meet those of the last one.
                wanted = self.settings.store or ("memory" if self.settings.pinned else "")
                self._store = open_store(wanted, notify=self._note_store)
            except StoreError as error:
                raise ConfigError(
                    f'{error.message}\nType:  %config AgentMagics.store = "memory"',
                    field="store",
                    value=self.settings.store,
                ) from None
        return self._store

    def reopen_store(self) -> None:
        """Open the store that the settings name, in place of the open one.

        Raises:
            ConfigError: It cannot be used; the open one stays.
        """
        before, self._store = self._store, None
        try:
            self.store()
        finally:
            self._store = self._store or before

    def existing_store(self) -> Any:
        """The store if it is open or its file is there; looking makes no file (D21)."""
        if self._store is None:
            from notebook_agent.engine.store.open import default_path  # noqa: PLC0415  # as in store

            setting = self.settings.store
            memory = setting == "memory" or (self.settings.pinned and not setting)
            if memory or not (Path(setting).expanduser() if setting else default_path()).exists():
                return None
        return self.store()

    def broken_off(self) -> list[str]:
        """Runs that a kill of an earlier kernel broke off, and what to type; newest first."""
        store = self.existing_store()
        if store is None:
            return []
        from notebook_agent.notebook.broken import broken_lines  # noqa: PLC0415  # with the engine, at use

        mine = {runtime.session.id for runtime in self._runtimes.values()}
        return broken_lines(store, mine, self.surroundings)

    def _note_store(self, line: str) -> None:
        self._store_line = line

    # ---- blocking and errors -------------------------------------------------------------------

    def block(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the engine's loop and wait for it: Python twins of short chores.

        Raises:
            AgentError: This platform cannot wait.
        """
        if not self.engine.own_thread:
            coro.close()
            raise AgentError("This Python has no threads: await the twin that begins with 'a'.")
        return Chore(lambda: coro, self.engine).blocking()  # type: ignore[no-any-return]  # a chore's

    def last_run(self, session: str | None = None) -> Run | None:
        """The newest run of a session, None when there is none."""
        runs = there(self, session).session.runs
        return runs[-1] if runs else None

    def find_run(self, ref: str | None, session: str | None = None) -> Run:
        """A run by id, by the start of an id, or by number; the newest when None.

        Raises:
            UsageError: There is none.
        """
        runs = there(self, session).session.runs
        if not runs:
            raise UsageError("This session has no runs yet.\nType:  %agent ask TEXT")
        if ref is None:
            return runs[-1]  # type: ignore[no-any-return]  # see _make_runtime
        if ref.lstrip("-").isdigit() and -len(runs) <= int(ref) < len(runs):
            return runs[int(ref)]  # type: ignore[no-any-return]  # as above
        found = [r for r in runs if r.id == ref] or [r for r in runs if r.id.startswith(ref)]
        if len(found) != 1:
            raise UsageError(
                f"There is no run {ref!r}: give 0 to {len(runs) - 1}, or an id.\n"
                "Type:  %agent history"
            )
        return found[0]  # type: ignore[no-any-return]  # as above

    def close(self) -> None:
        """Stop what runs and end the engine's thread; the sessions' stores are closed."""
        for runtime in self._runtimes.values():
            runtime.cancel_signal.cancel()
        for server in list(self.mcp_servers.values()):
            server.close()
        self.engine.close()
        if self._store is not None:
            self._store.close()
