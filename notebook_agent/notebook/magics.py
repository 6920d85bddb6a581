"""``%agent`` and ``%%agent``: read the line, call the session, hand back what it gave.

No logic lives here: every verb is a method of AgentSession. ``%config AgentMagics`` shows and
changes the settings.

Source: notebook side, running a cell and commands (D1, D6, D8, section 3).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import traitlets as t
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand

from notebook_agent.core.result import RunResult
from notebook_agent.errors import AgentError, Cancelled
from notebook_agent.notebook.agent_session import AgentSession, of_shell
from notebook_agent.notebook.arguments import CellOptions, UsageError, cell_help, parse_cell
from notebook_agent.notebook.chore import Chore
from notebook_agent.notebook.internal import internal_error
from notebook_agent.notebook.settings import SHOWN, Settings
from notebook_agent.notebook.verbs.table import Call, read_line, verb_help

__all__ = ["AgentMagics"]


@magics_class
class AgentMagics(Magics):
    """Settings of the agent cells. No key is ever a setting."""

    model = t.Unicode("", help="provider:name or an alias; empty chooses").tag(config=True)
    fallback = t.Unicode("", help="backups, parted by commas").tag(config=True)
    system = t.Unicode("", help="system prompt").tag(config=True)
    show = t.Enum(SHOWN, "auto", help="how runs are shown").tag(config=True)
    store = t.Unicode(
        "", help='where sessions are kept: "" = user data folder, "memory", a path'
    ).tag(config=True)
    max_turns = t.Int(0, min=0, help="turns a run may take; 0 = 16").tag(config=True)
    max_tokens = t.Int(0, min=0, help="tokens a run may use; 0 = 256000").tag(config=True)
    timeout = t.Float(0.0, min=0.0, help="seconds a reply may take; 0 = 300").tag(config=True)
    cooldown = t.Float(0.0, min=0.0, help="seconds until a tripped breaker probes; 0 = 60").tag(
        config=True
    )
    trip_after = t.Int(0, min=0, help="failed turns that trip the breaker; 0 = 3").tag(config=True)
    stream = t.Bool(True, help="False = one unstreamed attempt per turn").tag(config=True)
    with_tokens = t.Int(2000, min=1, help="cap of each value of --with, tokens").tag(config=True)
    prices = t.Dict(help="model: (input, output, cached) per million tokens").tag(config=True)
    prompt_cache = t.Bool(False, help="mark what providers may keep between turns").tag(config=True)
    pinned = t.Bool(False, help="fixed clock and ids, for compared notebooks").tag(config=True)

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.agent: AgentSession = of_shell(shell)
        chosen = {} if self.agent.configured else self.config.get("AgentMagics", {})
        for name, value in self.agent.settings.pairs().items():
            if name not in chosen:
                setattr(self, name, value)  # what an earlier load or the environment said
        for name in chosen:  # the person's own IPython configuration, once
            if name in self.agent.settings.pairs():
                setattr(self.agent.settings, name, getattr(self, name))
        self.agent.configured = True
        self.agent.on_setting = self._follow
        self.observe(self._changed, names=list(Settings.__dataclass_fields__))

    def _changed(self, change: Any) -> None:
        if getattr(self.agent.settings, change["name"]) == change["new"]:
            return
        try:
            self.agent.apply_setting(change["name"], change["new"])
        except AgentError as error:
            setattr(self, change["name"], getattr(self.agent.settings, change["name"]))
            raise self._kept(error) from None

    def _follow(self) -> None:
        """Verbs and twins change settings too: ``%config`` shows what holds."""
        for name, value in self.agent.settings.pairs().items():
            if getattr(self, name) != value:
                setattr(self, name, value)

    # ---- what the rewritten cells call -------------------------------------------------------

    async def run_cell(self, line: str, body: str) -> Any:
        """``%%agent`` from an awaited cell."""
        return await self._guarded_async(self._cell_awaited(line, body))

    def run_cell_sync(self, line: str, body: str) -> Any:
        """``%%agent`` from synchronous code."""
        return self._guarded(lambda: self._cell_blocking(line, body))

    async def run_line(self, line: str, assigned: bool = False) -> Any:  # written by the transform
        """``%agent`` from an awaited cell; a result is returned only when it is assigned."""
        return await self._guarded_async(self._line_awaited(line, assigned))

    def run_line_sync(self, line: str, assigned: bool = False) -> Any:  # as above
        """``%agent`` from synchronous code."""
        return self._guarded(lambda: self._line_blocking(line, assigned))

    def not_first(self) -> None:
        """``%%agent`` below other code."""
        raise self._kept(
            UsageError(
                "%%agent must begin its cell: only comments and blank lines may stand above it. "
                "Nothing was run.\nType:  %%agent     in a cell of its own"
            )
        )

    @no_var_expand
    @line_cell_magic("agent")  # type: ignore[arg-type]  # IPython types the form without a name only
    def agent_magic(self, line: str, cell: str | None = None) -> Any:
        """Registered as ``agent``; its help is made from the tables below."""
        return (
            self.run_line_sync(line)
            if cell is None
            else self.run_cell_sync(line, cell.removesuffix("\n"))
        )

    # ---- cells -------------------------------------------------------------------------------

    async def _cell_awaited(self, line: str, body: str) -> Any:
        options = self._options(line)
        if options.dry_run:
            return self._dry_run(body, options)
        prepared = self.agent.prepare(body, options)
        if options.background:
            return await prepared.background().placed()
        await prepared.awaited()
        return None

    def _cell_blocking(self, line: str, body: str) -> Any:
        options = self._options(line)
        if options.dry_run:
            return self._dry_run(body, options)
        prepared = self.agent.prepare(body, options)
        if options.background:
            return prepared.background().placed_blocking()
        prepared.blocking()
        return None

    def _options(self, line: str) -> CellOptions:
        return self.agent.in_front(parse_cell(line, self.agent.names()))

    def _dry_run(self, body: str, options: CellOptions) -> Any:
        return self.agent.dry_run_of(body, options)

    # ---- lines -------------------------------------------------------------------------------

    async def _line_awaited(self, line: str, assigned: bool) -> Any:  # a fact, not a switch
        made = self._made(read_line(line, self.agent.names()))
        if hasattr(made, "awaited"):
            return _handed(await made.awaited(), assigned)
        return made

    def _line_blocking(self, line: str, assigned: bool) -> Any:  # as above
        made = self._made(read_line(line, self.agent.names()))
        if hasattr(made, "blocking"):
            return _handed(made.blocking(), assigned)
        return made

    def _made(self, call: Call) -> Any:
        """What a verb gives: a value, or a run or chore that is still to be driven."""
        agent, verb, given = self.agent, call.verb, dict(call.arguments)
        if verb.name == "ask":
            return agent.prepare(given["text"], CellOptions())
        if verb.kind == "run":
            return getattr(agent, f"prepare_{verb.name}")(**given)
        if verb.kind == "chore":
            return Chore(lambda: getattr(agent, f"a{verb.name}")(**given), agent.engine)
        value = getattr(agent, verb.name)(**given)
        self._follow()
        return value

    # ---- errors ------------------------------------------------------------------------------

    def _guarded(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except AgentError as error:
            raise self._kept(error) from None
        except KeyboardInterrupt:  # before or after the run, which takes its own (D4)
            raise self._kept(Cancelled("stopped")) from None
        except Exception as error:  # noqa: BLE001  # said in two lines, without values
            raise self._kept(internal_error(error)) from None

    async def _guarded_async(self, coro: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await coro
        except AgentError as error:
            raise self._kept(error) from None
        except KeyboardInterrupt:  # as above
            raise self._kept(Cancelled("stopped")) from None
        except Exception as error:  # noqa: BLE001  # said in two lines, without values
            raise self._kept(internal_error(error)) from None

    def _kept(self, error: AgentError) -> AgentError:
        """The error without its frames: no local value can be shown with it (X05)."""
        self.agent.note_error(error)
        return error.with_traceback(None)


def _handed(value: Any, assigned: bool) -> Any:  # a fact, not a switch
    """A run has shown itself: its result is handed back only to an assignment."""
    return value if assigned or not isinstance(value, RunResult) else None


_HELP = f"""{cell_help()}

{verb_help()}
"""
# Older IPython wraps a decorated magic, newer hands it back: the help stands on both.
for _one in (AgentMagics.agent_magic, inspect.unwrap(AgentMagics.agent_magic)):
    setattr(_one, "__doc__", _HELP)  # noqa: B010  # a method's docstring is read-only to mypy
