"""Errors in a notebook: two or three lines, no traceback, the cell still marked as an error.

``_render_traceback_`` is IPython's own hook; it is put on the error tree when the extension is
loaded and taken off when it is unloaded, so that the core knows nothing of notebooks. With no
frames shown there are no local values either, whatever ``%xmode`` says (X05).

Source: notebook side, commands (D4, D12, N11, X03, X05).
"""

from __future__ import annotations

from notebook_agent.core.text import visible
from notebook_agent.errors import AgentError, ErrorKind, ProviderError, RateLimitEscalation

__all__ = ["install", "render", "uninstall"]

MAX_LINES = 8


def render(error: AgentError) -> list[str]:
    """The lines that stand in place of a traceback."""
    lines = visible(str(error)).splitlines() or [""]
    if isinstance(error, (ProviderError, RateLimitEscalation)) and not getattr(error, "hint", ""):
        late = isinstance(error, ProviderError) and error.kind is ErrorKind.TIMEOUT
        more = "More time:  %%agent --timeout 600     every" if late else "Every"
        lines.append(f"{more} attempt:  %agent why")
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], "..."]
    return [f"{type(error).__name__}: {lines[0]}", *lines[1:]]


def install() -> None:
    """Short errors for every AgentError."""
    AgentError._render_traceback_ = render  # type: ignore[attr-defined]  # IPython's hook


def uninstall() -> None:
    """Ordinary tracebacks again."""
    if "_render_traceback_" in vars(AgentError):
        del AgentError._render_traceback_  # type: ignore[attr-defined]  # put there by install
