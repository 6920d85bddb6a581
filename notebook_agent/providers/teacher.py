"""What the scripted model says when nobody gave it replies: where nothing is configured.

It never plays a language model: it says that it is scripted, shows what arrived, calls a tool
when asked in its own small form (``call NAME {"argument": 1}``), and says how to choose a real
model. The same request gives the same reply.

Source: notebook D11 (nothing configured); N11.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from notebook_agent.core.messages import Message, Role, ToolCallPart
from notebook_agent.core.request import RequestOptions, StreamRequest

__all__ = ["HOW_TO_CHOOSE", "teach"]

HOW_TO_CHOOSE: Final = (
    "To talk to a real model:\n"
    "- a small one on this machine, no key: run `%run -m notebook_agent fetch-model`, then "
    "`%agent model local`\n"
    "- a provider's: set its key, for example `%agent key openai`, then "
    "`%agent model openai:NAME`\n"
)
_CALL: Final = re.compile(r"\bcall\s+(\w+)\s*(\{.*\})?\s*$", re.DOTALL)
_SHOWN: Final = 200  # characters of the question that are repeated


def teach(request: StreamRequest, options: RequestOptions) -> tuple[str, tuple[ToolCallPart, ...]]:
    """Text and tool calls of the teacher's reply to a request.

    Under a forced JSON format the reply is JSON of that format.
    """
    wanted = options.response_format
    if wanted is not None:
        schema = wanted.get("schema")
        value = {"reply": "scripted"} if schema is None else sample_of(schema)
        return json.dumps(value), ()
    last = _last_user(request)
    if last is not None and last.results:
        lines = [
            f"- `{r.name}` {'failed' if r.is_error else 'returned'}: {r.output[:_SHOWN]}"
            for r in last.results
        ]
        return "Scripted reply. The tools answered:\n\n" + "\n".join(lines), ()
    question = "" if last is None else last.text_content().strip()
    call = _asked_call(question, request)
    if call is not None:
        return "", (call,)
    return _answer(question, request), ()


def _last_user(request: StreamRequest) -> Message | None:
    for message in reversed(request.messages):
        if message.role is Role.USER:
            return message
    return None


def _asked_call(question: str, request: StreamRequest) -> ToolCallPart | None:
    match = _CALL.search(question)
    names = {tool.name for tool in request.tools or ()}
    if match is None or match[1] not in names:
        return None
    raw = match[2] or "{}"
    return ToolCallPart("", match[1], None, raw)


def _answer(question: str, request: StreamRequest) -> str:
    words = len(question.split())
    shown = question if len(question) <= _SHOWN else question[:_SHOWN] + " ..."
    quoted = "\n".join(f"> {line}" for line in shown.splitlines()) or "> (nothing)"
    count = len(request.messages)
    lines = [
        "This is the **scripted** model: it plays a fixed reply and understands nothing.",
        "",
        (
            f"It received {count} message{'s' * (count != 1)}; the last one has "
            f"{words} word{'s' * (words != 1)}:"
        ),
        "",
        quoted,
        "",
    ]
    if request.tools:
        names = ", ".join(f"`{tool.name}`" for tool in request.tools)
        lines += [f"Tools it may call: {names}. Ask for one with `call NAME {{...}}`.", ""]
    return "\n".join([*lines, HOW_TO_CHOOSE])


def sample_of(schema: Mapping[str, Any], depth: int = 0) -> Any:
    """A small value that fits a plain JSON schema: required fields, first of an enum."""
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return sample_of(schema[key][0], depth + 1)
    kind = schema.get("type")
    if kind == "object" or "properties" in schema:
        fields = schema.get("properties", {})
        wanted = schema.get("required", list(fields))
        return {n: sample_of(fields.get(n, {}), depth + 1) for n in wanted} if depth < 16 else {}
    if kind == "array":
        size = int(schema.get("minItems", 0))
        return [sample_of(schema.get("items", {}), depth + 1) for _ in range(min(size, 100))]
    plain: Mapping[Any, Any] = {
        "integer": schema.get("minimum", 0), "number": schema.get("minimum", 0),
        "boolean": False, "null": None,
    }  # fmt: skip
    return plain.get(kind, "scripted")
