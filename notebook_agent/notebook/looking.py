"""``there``: a session that is looked at, not begun.

A run with a new name begins a session (``-s``: created on first use). A verb that looks at one, or
takes something out of it, has nothing to find in a new one: a name that nobody used is a slip.

Source: notebook side, "Commands" (section 3).
"""

from __future__ import annotations

import shlex
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from notebook_agent.notebook.arguments import UsageError
from notebook_agent.notebook.session_map import kept_name

if TYPE_CHECKING:
    from notebook_agent.notebook.session_core import SessionCore

__all__ = ["there"]


def there(agent: SessionCore, session: str | None = None) -> Any:
    """The runtime of a session that exists; None is the current one.

    Raises:
        UsageError: It is not open in this kernel; what to type, with the nearest name.
    """
    if session is None or kept_name(session) in agent.sessions:
        return agent.runtime(session)
    store = agent.existing_store()
    kept = [] if store is None else [row.name for row in store.list_sessions()]
    if kept_name(session) in kept:  # D21: it comes back by `session load` only
        raise UsageError(
            f"Session {session!r} is stored, and not open in this kernel.\n"
            f"Type:  %agent session load {shlex.quote(session)}"
        )
    names = sorted({*agent.sessions, *kept})
    near = get_close_matches(session, names, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(names[:10])}."
    raise UsageError(f"There is no session {session!r}. {hint}\nType:  %agent session list")
