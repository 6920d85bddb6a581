"""What is set: model, models, alias, system, tools, fallback, breaker, config, key.

Source: notebook side, commands (D11, F3, X05); LLM turn (L82, L83).
"""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from notebook_agent.engine.clock import SYSTEM
from notebook_agent.errors import Cancelled, ConfigError
from notebook_agent.notebook.arguments import UsageError, nearest
from notebook_agent.notebook.drive import TICK_S
from notebook_agent.notebook.frontend import guess, proven
from notebook_agent.notebook.model_book import is_address, without_keys
from notebook_agent.notebook.report import Report
from notebook_agent.notebook.runs import RunVerbs
from notebook_agent.providers.base import ModelClient, full_name

__all__ = ["SetupVerbs"]

NONE = ("none", "None", "off", "-")


class SetupVerbs(RunVerbs):
    """Verbs that show and change settings."""

    def model(self, name: str | ModelClient | None = None, api: str | None = None) -> Report:
        """Show the model, or choose it for every session of this kernel.

        Args:
            name: ``provider:name``, an alias, ``@variable``, an address with ``#name``, or a client.
            api: Wire format of the service instead of the provider's own.

        Raises:
            ConfigError: There is no such model, or its key is missing; nothing changes.
        """
        if name is None:
            return Report(
                "", (("model", self._chosen()),), lines=("choose with:  %agent model ID",)
            )
        if api is not None and isinstance(name, str):
            from notebook_agent.providers import registry  # noqa: PLC0415  # reads entry points: not at load

            name = registry.model(self.models_book.expand(name), api=api)
        full = (
            self.models_book.add(name) if not isinstance(name, str) else self.models_book.full(name)
        )
        client = self.models_book.client(full)
        full = self.models_book.full(full)  # an address has its own name from now on
        for runtime in self._runtimes.values():
            runtime.switch_model(client)
        self.settings.model = full
        self._tell_setting()
        return Report("", (("model", full), ("capabilities", _capabilities(client))))

    def _tell_setting(self) -> None:
        """``%config`` shows what a twin changed, as it does after a verb."""
        if self.on_setting is not None:
            self.on_setting()

    def _chosen(self) -> str:
        return without_keys(self.settings.model) or self.models_book.default()[0]

    async def amodels(self, provider: str | None = None) -> Report:
        """The models that endpoints offer, asked now; and the aliases of this kernel."""
        name = self.model_name() if provider is None else f"{provider.rstrip(':')}:"
        rows = [
            (alias, f"alias of {without_keys(target)}")
            for alias, target in sorted(self.models_book.aliases.items())
        ]
        lines: list[str] = []
        try:
            rows += [(full, _known_of(full)) for full in await self._offered(name)]
        except ConfigError as error:
            lines += str(error).splitlines()
        rows += [(n, "in use") for n in self.models_book.known() if n not in {r[0] for r in rows}]
        return Report("models", header=("name", ""), rows=tuple(rows), lines=tuple(lines))

    async def _offered(self, name: str) -> Sequence[str]:
        from notebook_agent.providers import registry  # noqa: PLC0415  # reads entry points: not at load

        provider = name.split(":", maxsplit=1)[0]
        own = self.models_book.of_provider(provider)
        if own is None or provider in registry.providers():
            found = await registry.list_models(provider)
        else:  # a client of a variable: nobody else knows its provider
            found = await registry.models_of(own)
        return [m if m.startswith(f"{provider}:") else f"{provider}:{m}" for m in found]

    def models(self, provider: str | None = None) -> Report:
        """As :meth:`amodels`, waiting for it."""
        return self.block(self.amodels(provider))

    def alias(self, name: str | None = None, target: str | None = None) -> Report:
        """Show the aliases, or make one."""
        if name is None or target is None:
            if name is not None:
                raise UsageError(
                    f"alias needs a name and a model.\nType:  %agent alias {name} openai:gpt-4.1-mini"
                )
            aliases = self.models_book.aliases.items()
            rows = tuple(sorted((alias, without_keys(target)) for alias, target in aliases))
            return Report(
                "" if rows else "no aliases", header=("alias", "model") if rows else (), rows=rows
            )
        self.models_book.alias(name, target)
        if not target.startswith("@"):
            from notebook_agent.providers import registry  # noqa: PLC0415  # reads entry points: not at load

            registry.alias(name, target)  # ask() and AgentRuntime know the name too
        return Report(f"{name} = {without_keys(self.models_book.expand(name))}")

    def system(self, text: str | None = None) -> Report:
        """Show or set the system prompt of the current session and of new ones."""
        if text is None:
            now = (
                self._runtimes[self.current].system
                if self.current in self._runtimes
                else self.settings.system
            )
            return Report(now or "no system prompt")
        prompt = "" if text in NONE else self.system_text(text)
        self.settings.system = prompt
        self._tell_setting()
        if self.current in self._runtimes:
            self._runtimes[self.current].system = prompt or None
        return Report("system prompt set" if prompt else "no system prompt")

    def tools(
        self,
        action: str | None = None,
        names: Sequence[str] = (),
        session: str | None = None,
        no_confirm: bool = False,
    ) -> Report:
        """Show the tools, register functions of the notebook, or take tools away.

        Args:
            action: ``add`` or ``rm``.
            names: Functions; ``mcp:COMMAND ...`` or ``mcp:http://...`` for an MCP server's tools.
            session: Whose tools; default the current one's.
            no_confirm: Calls of the MCP server are not asked about, one by one.
        """
        registry = self.runtime(session).registry
        if action is not None and not names:
            raise UsageError(
                f"tools {action} needs names.\nType:  %agent tools {action} my_function"
            )
        for name in names:
            of_server = name.startswith("mcp:") or (action == "rm" and self.mcp_servers)
            if of_server and self._mcp(action, name, registry, confirm=not no_confirm):
                continue
            if action == "add":
                registry.register(self.function(name, "%agent tools add"))
            elif not registry.remove(name):
                close = nearest(name, registry.names()) or ",".join(registry.names())
                typed = f"%agent tools rm {close}" if close else "%agent tools add my_function"
                raise UsageError(f"There is no tool {name!r}.\nType:  {typed}")
        rows = tuple((t.name, _first_line(t.description)) for t in registry)
        return Report(
            "" if rows else "no tools", header=("tool", "what it does") if rows else (), rows=rows
        )

    def _mcp(self, action: str | None, name: str, registry: Any, *, confirm: bool) -> bool:
        """Add or remove a server's tools; False when the name is no server's."""
        from notebook_agent.notebook.mcp_tools import add_server, remove_server  # noqa: PLC0415  # optional

        if action == "add":
            add_server(self.mcp_servers, registry, name, confirm=confirm)
            return True
        return remove_server(self.mcp_servers, registry, name)

    def fallback(
        self, chain: str | Sequence[str] | None = None, session: str | None = None
    ) -> Report:
        """Show or set the chain of backups; ``none`` clears it."""
        if chain is not None:
            given = chain.split(",") if isinstance(chain, str) else list(chain)
            names = [n.strip() for n in given if n.strip() and n.strip() not in NONE]
            clients = [self.models_book.client(n) for n in names]
            names = [self.models_book.full(n) if is_address(n) else n for n in names]
            self.settings.fallback = ",".join(names)
            self._tell_setting()
            self.runtime(session).set_fallback(clients)
        return self.breaker(session=session)

    def breaker(self, action: str | None = None, session: str | None = None) -> Report:
        """Show the breaker, clear it, or trip it by hand."""
        breaker = self.runtime(session).breaker
        now = self.surroundings.now()
        if action == "reset":
            breaker.reset()
        elif action == "trip":
            breaker.trip(now)
        data = breaker.to_json(now)
        pairs = [
            ("state", str(data["state"])),
            ("primary", breaker.original_model),
            ("serves", str(data["routed_model"])),
            ("failures in a row", str(data["consecutive_failures"])),
            ("probes succeeded", str(data["primary_success_count"])),
        ]
        left = data.get("cooldown_left_s")
        if data["state"] == "fallback" and left is not None:
            pairs.append(("next probe in", f"{left:.0f} s"))
        rows = tuple(
            (e.name, f"{e.attempt_count} of {e.max_fail_count}", "resting" if e.failed else "ready")
            for e in breaker.chain
        )
        header = ("backup", "strikes", "") if rows else ()
        note = () if rows else ("no backups; set a chain with:  %agent fallback A,B",)
        return Report("breaker", tuple(pairs), header, rows, note, data)

    def config(self) -> Report:
        """All settings, and the front end guessed and proven."""
        from notebook_agent.notebook.magics import AgentMagics  # noqa: PLC0415  # it imports this

        told = AgentMagics.class_traits()
        pairs = [
            (k, f"{without_keys(repr(v)):<6}  {told[k].help if k in told else ''}".rstrip())
            for k, v in self.settings.pairs().items()
        ]
        front = guess(self.shell)
        hello = proven()
        pairs.append(("front end guessed", f"{front.name} ({front.sign}), shown by {front.sink}"))
        pairs.append(("front end proven", "a panel answered" if hello else "nothing answered yet"))
        note = "change one with:  %config AgentMagics.max_turns = 4"
        return Report("settings", tuple(pairs), lines=(note,), data=self.settings.pairs())

    def configure(self, **changes: Any) -> Report:
        """Change settings by name: the twin of ``%config``.

        Raises:
            ConfigError: There is no such setting.
        """
        for name, value in changes.items():
            if name not in self.settings.pairs():
                close = nearest(name, self.settings.pairs())
                raise ConfigError(
                    f"There is no setting {name!r}; nearest: {close}", field=name, value=value
                )
            self.apply_setting(name, value)
        return self.config()

    async def pause(self, seconds: float) -> None:
        """Let the session's clock pass: a cooldown runs out, a rate limit is over.

        With pinned surroundings the clock moves at once; else it is waited, and an interrupt
        ends the wait.

        Args:
            seconds: At least 0.

        Raises:
            ConfigError: No finite number of at least 0.
            Cancelled: Interrupted.
        """
        if not isinstance(seconds, (int, float)) or not 0 <= seconds < float("inf"):
            raise ConfigError(
                f"pause({seconds!r}): seconds must be a finite number of at least 0.\n"
                "Type:  await current().pause(2)",
                field="seconds",
                value=seconds,
            )
        clock = self.surroundings
        if clock is not SYSTEM:
            await clock.sleep(seconds)
            return
        end = clock.now() + seconds
        try:
            while (left := end - clock.now()) > 0:  # short waits let an interrupt through (D3)
                await clock.sleep(min(left, TICK_S))
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise Cancelled("stopped") from None

    def set_request_options(self, **extra: Any) -> Report:
        """Request parameters of all following runs; a cell's own beat them (L13)."""
        self.options = replace(self.options, extra={**self.options.extra, **extra})
        for runtime in self._runtimes.values():
            runtime.set_request_options(self.options)
        return Report("request options", tuple((k, repr(v)) for k, v in self.options.extra.items()))

    def key(self, name: str | None = None, save: bool = False) -> Report:  # an option's name
        """Ask for a provider's key and keep it for this kernel, or in the keyring.

        The key is never an argument, so that it is in no history, no notebook and no traceback.
        """
        from notebook_agent.providers import registry  # noqa: PLC0415  # reads entry points: not at load

        known = registry.providers()
        if name is None or name not in known:
            close = nearest(name or "", known) or "openai"  # the name itself may be a key (X05)
            said = (
                "key needs the provider's name"
                if name is None
                else "That is no provider, and a key never stands in a cell; the providers"
            )
            raise UsageError(f"{said}: {', '.join(sorted(known))}.\nType:  %agent key {close}")
        try:
            typed = getpass.getpass(f"key for {name}: ")
        except (NotImplementedError, EOFError, OSError):  # a headless run, an end of input
            raise UsageError(
                f"Nobody can be asked for a key here, so {name} has none; put it in the environment "
                "variable that %agent doctor names, before the kernel starts.\n"
                f"Type:  %agent key {name} --save     once, in a notebook of your own"
            ) from None
        registry.set_key(name, typed, save=save)
        self.models_book.forget(name)
        where = "in the keyring" if save else "for this kernel"
        return Report(f"the key for {name} is kept {where}")


def _capabilities(client: ModelClient) -> str:
    read = getattr(client, "capabilities", None)
    if read is None:
        return f"{full_name(client)}: not known"
    known = read()
    words = [
        w
        for w, v in (
            ("tools", known.tool_calling),
            ("images", known.vision),
            ("thinking", known.thinking),
        )
        if v
    ]
    window = (
        "window unknown" if known.context_window is None else f"window {known.context_window:,}"
    )
    return ", ".join([window, *words])


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""


def _known_of(full: str) -> str:
    """What the dated table knows of a model that an endpoint offers, "" when it is not there."""
    from notebook_agent.providers.capabilities import capabilities_of  # noqa: PLC0415  # at use

    provider, _, bare = full.partition(":")
    known = capabilities_of(provider, bare)
    if not known.source.startswith("table"):
        return ""
    window = f"window {known.context_window:,}" if known.context_window else ""
    can = [
        words
        for name, words in (
            ("tool_calling", "tools"),
            ("vision", "images"),
            ("thinking", "thinking"),
        )
        if getattr(known, name)
    ]
    return ", ".join([w for w in (window, *can) if w]) + f" ({known.source})"
