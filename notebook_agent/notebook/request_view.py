"""``--dry-run``: the exact request, and what it would cost in tokens. Nothing is sent.

Source: notebook side, commands (``--raw, --dry-run``; ``count``); LLM turn (L10, L17).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from notebook_agent.core.context import ContextEstimate, estimate_context
from notebook_agent.core.messages import Message
from notebook_agent.core.request import StreamRequest, build_turn_request
from notebook_agent.notebook.report import Report
from notebook_agent.providers.base import full_name

if TYPE_CHECKING:
    from notebook_agent.notebook.prepare import Plan
    from notebook_agent.notebook.session_core import SessionCore

__all__ = ["anatomy", "dry_run", "planned_request"]


def planned_request(agent: SessionCore, plan: Plan) -> StreamRequest:
    """The request that the first turn of this run would send; tools as the run offers them."""
    runtime = agent.runtime(plan.session)
    history = () if plan.options.fresh else tuple(runtime.session.history)
    return build_turn_request(
        plan.transients,
        (*history, Message.user(plan.text)),
        system=plan.system if plan.system is not None else runtime.system,
        tools=_schemas(runtime, plan.tools),
    )


def _schemas(runtime: Any, tools: tuple[Any, ...] | None) -> tuple[Any, ...]:
    if tools is None:
        return tuple(runtime.registry.schemas())
    from notebook_agent.engine.tools import ToolRegistry  # noqa: PLC0415  # only when a cell names tools

    return ToolRegistry(tools).schemas()


def anatomy(agent: SessionCore, request: StreamRequest, transients: int) -> ContextEstimate:
    """Tokens of a request in parts; its first ``transients`` messages are transients."""
    counter = agent.counter
    system = counter.count_overhead(request.system, None)
    whole = counter.count_overhead(request.system, request.tools)
    return estimate_context(
        counter,
        request.messages[transients:],
        request.messages[:transients],
        system=system,
        tools=max(whole - system, 0),
    )


def dry_run(agent: SessionCore, plan: Plan) -> Report:
    """The request as text."""
    request = planned_request(agent, plan)
    parts = anatomy(agent, request, len(plan.transients))
    window = agent.window(plan.options.model)
    own = " of yours; the model's template adds its own" if parts.system else ""
    lines = ["", f"system: {request.system or f'(none{own})'}"]
    if request.tools:
        lines.append("tools: " + ", ".join(t.name for t in request.tools))
    for i, message in enumerate(request.messages):
        kind = "transient, " if i < len(plan.transients) else ""
        lines += ["", f"[{kind}{message.role.value}]", message.display_text()]
    pairs = [
        ("model", plan.model_name or agent.model_name()),
        ("tokens", _tokens(parts, window)),
    ]
    if plan.request.extra:
        pairs.append(("parameters", ", ".join(f"{k}={v!r}" for k, v in plan.request.extra.items())))
    if plan.schema is not None:
        pairs.append(("format", f"{plan.options.schema}, forced where the model answers"))
    if plan.fallback:
        pairs.append(("fallback", ", ".join(map(full_name, plan.fallback))))
    return Report(
        "dry run: nothing was sent", tuple(pairs), lines=tuple(lines),
        data={"request": request, "estimate": parts, "options": plan.request},
    )  # fmt: skip


def _tokens(parts: ContextEstimate, window: int | None) -> str:
    label = "" if parts.exact else "est. "
    inner = ", ".join(f"{name} {count:,}" for name, count in parts.parts().items())
    of = "" if window is None else f" of {window:,}"
    return f"{label}{parts.total:,}{of} ({inner})"
