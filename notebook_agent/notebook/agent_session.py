"""AgentSession: everything the magics can do, as plain Python. Works without IPython (F14).

Source: notebook side, commands (section 3, F14).
"""

from __future__ import annotations

from typing import Any

from notebook_agent.notebook.verbs.ab import AbVerbs
from notebook_agent.notebook.verbs.about import AboutVerbs
from notebook_agent.notebook.verbs.conversation import ConversationVerbs
from notebook_agent.notebook.verbs.replaying import ReplayVerbs
from notebook_agent.notebook.verbs.setup import SetupVerbs
from notebook_agent.notebook.verbs.state import StateVerbs
from notebook_agent.notebook.verbs.teach import TeachVerbs

__all__ = ["AgentSession", "current"]


class AgentSession(
    StateVerbs, SetupVerbs, ConversationVerbs, ReplayVerbs, TeachVerbs, AbVerbs, AboutVerbs
):
    """One object per kernel: a method for every verb of ``%agent``.

    It holds one runtime per session name, the models and aliases, the settings and the engine's
    loop. The magics only read arguments and call it.

    Args:
        namespace: The notebook's variables, for ``{{name}}``, tools and results.
        shell: The IPython shell, None in a script.
        settings: See :class:`~notebook_agent.notebook.settings.Settings`.
        engine: Where the engine runs; default: a thread of its own, started at the first run.
        models: Names to clients.

    Example:
        >>> from notebook_agent import ScriptedModel
        >>> agent = AgentSession()
        >>> _ = agent.configure(store="memory")
        >>> _ = agent.model(ScriptedModel(["Hello."]))
        >>> agent.ask("Hi").text
        'Hello.'
        >>> agent.close()
    """

    def __repr__(self) -> str:
        return (
            f"<AgentSession {self.current!r}, {len(self._runtimes)} open; .help() lists the verbs>"
        )


def current() -> AgentSession:
    """The AgentSession of this kernel once the extension is loaded; else one of the process."""
    return _HOLDER.get()


class _Holder:
    """The one session of the process: it survives unload, reload and ``%reset`` (N04)."""

    def __init__(self) -> None:
        self._made: AgentSession | None = None

    def get(self, shell: Any = None) -> AgentSession:
        """The session, made at first use; a shell given later is taken in."""
        if self._made is None:
            self._made = AgentSession(shell=shell)
        elif shell is not None:
            self._made.shell = shell
        return self._made


_HOLDER = _Holder()


def of_shell(shell: Any) -> AgentSession:
    """The session of a shell, for the extension."""
    return _HOLDER.get(shell)
