"""What is said about an exception that nobody expected: two lines, no values (X05).

Source: notebook side, commands (D12); cases N11, X05.
"""

from __future__ import annotations

import traceback

from notebook_agent.errors import AgentError

__all__ = ["internal_error"]


def internal_error(error: BaseException) -> AgentError:
    """An unexpected exception as an AgentError: its last frame, no local values (X05)."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = ""
    if frame is not None:
        code = frame.tb_frame.f_code
        where = f" in {code.co_name}, line {frame.tb_lineno} of {code.co_filename.split('/')[-1]}"
    made = AgentError(
        f"Unexpected {type(error).__name__}{where}: {str(error)[:300]}\n"
        "This is a defect of notebook_agent; see:  %agent why"
    )
    made._frames = traceback.format_tb(error.__traceback__)  # type: ignore[attr-defined]  # for ``why``: source lines only
    return made
