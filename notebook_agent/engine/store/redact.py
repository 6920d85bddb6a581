"""Taking the words out of a run file and leaving its shape: who said how much, when, at what cost.

Works on the JSON lines of a run file. Equal texts stay equal, so a redacted file replays like
the whole one.

Source: notebook side, ``export --redact``; Turn FSM, "Determinism" (B59).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["hide", "redact_line"]

Hide = Callable[[str], str]


def hide(text: str) -> str:
    """What stands for a text: its length only.

    Example:
        >>> hide("secret")
        '[redacted, 6 characters]'
    """
    return f"[redacted, {len(text)} characters]" if text else text


# Errors whose text the machine itself makes out of numbers: replay makes it again, and no word
# of a person or a model is in it.
_OWN_WORDS: Final = frozenset(
    {"LimitReached", "TokenBudgetExhausted", "InvalidTransition", "ContextExceeded", "Cancelled"}
)
# event -> its fields that may hold somebody's words
_EVENT_TEXTS: Final[Mapping[str, tuple[str, ...]]] = {
    "InputRejected": ("reason",),
    "AttemptFailed": ("partial_text", "cause"),
    "ToolCallCompleted": ("arguments",),
    "ToolExecutionFinished": ("result",),
    "CompactionCompleted": ("detail",),
    "LoopWarning": ("pattern",),
    "DoomLoopDetected": ("description",),
}
_ERROR_TEXTS: Final = ("message", "partial_text", "pattern", "value", "session")
# keys of a configuration whose strings are names, not words
_NAMES: Final = frozenset(
    {
        "counter",
        "fallback",
        "keep_tools",
        "mode",
        "model",
        "name",
        "provider",
        "strategy",
        "summary_model",
        "target_base",
        "tool_constraint",
        "tools",
        "type",
    }
)


def redact_line(line: Mapping[str, Any], *, hide: Hide = hide) -> dict[str, Any]:
    """One line of a run file without words.

    Args:
        line: A line as ``jsonl`` writes it.
        hide: What replaces a text.
    """
    edit = _EDITS.get(str(line.get("type")))
    return dict(line) if edit is None else edit(dict(line), hide)


def _header(line: dict[str, Any], hide: Hide) -> dict[str, Any]:
    session = line["session"]
    return line | {"redacted": True, "session": {**session, "name": hide(session["name"])}}


def _run(line: dict[str, Any], hide: Hide) -> dict[str, Any]:
    config = _all_texts(line["config"], hide)
    if "breaker" in config:  # names and numbers; its words are causes
        config["breaker"] = _causes(line["config"]["breaker"], hide)
    return line | {
        "input": hide(line["input"]),
        "output": hide(line["output"]),
        "config": config,
        "error": _error(line["error"], hide),
    }


def _causes(value: Any, hide: Hide) -> Any:
    if isinstance(value, Mapping):
        return {k: hide(v) if k == "last_cause" else _causes(v, hide) for k, v in value.items()}
    return [_causes(v, hide) for v in value] if isinstance(value, list) else value


def _turn(line: dict[str, Any], hide: Hide) -> dict[str, Any]:
    turn = line["turn"]
    calls = [c | {"input": _input(c["input"]), "raw": ""} for c in turn["tool_calls"]]
    words = {"input": hide(turn["input"]), "output": hide(turn["output"]), "tool_calls": calls}
    return line | {"turn": turn | words, "error": _error(line.get("error"), hide)}


def _message_line(line: dict[str, Any], hide: Hide) -> dict[str, Any]:
    message = line.get("message")
    out = line | {"message": None if message is None else _message(message, hide)}
    if "meta" in line:
        meta = line["meta"]
        ids = {k: meta[k] for k in ("kept_ids", "summary_id", "run_ids") if k in meta}
        out["meta"] = {**_all_texts(meta, hide), **ids}
    return out


def _message(message: Mapping[str, Any], hide: Hide) -> dict[str, Any]:
    parts = [_part(dict(p), hide) for p in message["parts"]]
    return {k: v for k, v in message.items() if k != "provider_state"} | {"parts": parts}


def _part(part: dict[str, Any], hide: Hide) -> dict[str, Any]:
    match part["type"]:
        case "text":
            part["text"] = hide(part["text"])
        case "image":
            part["source"] = "redacted:"
        case "tool_call":
            part["input"] = _input(part["input"])
            part.pop("raw", None)  # the same words once more
        case "tool_result":
            part["output"] = hide(part["output"])
            if "images" in part:
                part["images"] = [_part(dict(i), hide) for i in part["images"]]
    return part


def _record(line: dict[str, Any], hide: Hide) -> dict[str, Any]:
    outcome, action = line["outcome"], line["action"]
    if outcome is not None:
        outcome = dict(outcome)
        if "error" in outcome:
            outcome["error"] = _error(outcome["error"], hide)
        if "result" in outcome:
            outcome["result"] = _all_texts(outcome["result"], hide)
    if action is not None and "error" in action:
        action = action | {"error": _error(action["error"], hide)}
    events = [_event(e, hide) for e in line["events"]]
    return line | {"outcome": outcome, "action": action, "events": events}


def _event_line(line: dict[str, Any], hide: Hide) -> dict[str, Any]:
    return line | {"event": _event(line["event"], hide)}


def _event(event: Mapping[str, Any], hide: Hide) -> dict[str, Any]:
    out = dict(event)
    for name in _EVENT_TEXTS.get(str(event["event"]), ()):
        out[name] = hide(str(event[name]))
    if "error" in out:
        out["error"] = _error(out["error"], hide)
    return out


def _execution(line: dict[str, Any], hide: Hide) -> dict[str, Any]:
    line = line | {"arguments": hide(line["arguments"]), "result": hide(line["result"])}
    if "images" in line:
        line["images"] = [_part(dict(image), hide) for image in line["images"]]
    return line


def _error(error: Mapping[str, Any] | None, hide: Hide) -> dict[str, Any] | None:
    if error is None:
        return None
    out = dict(error)
    own = out.get("error") in _OWN_WORDS
    for name in ("partial_text",) if own else _ERROR_TEXTS:
        if isinstance(out.get(name), str):
            out[name] = hide(out[name])
    return out


def _all_texts(value: Any, hide: Hide, *, key: str = "") -> Any:
    if isinstance(value, str):
        return value if key in _NAMES else hide(value)
    if isinstance(value, Mapping):
        return {k: _all_texts(v, hide, key=k) for k, v in value.items()}
    if isinstance(value, list):
        return [_all_texts(v, hide, key=key) for v in value]
    return value


def _input(given: Any) -> Any:
    return None if given is None else {"redacted": True}


_EDITS: Final[Mapping[str, Callable[[dict[str, Any], Hide], dict[str, Any]]]] = {
    "header": _header,
    "run": _run,
    "turn": _turn,
    "history": _message_line,
    "after": _message_line,
    "between": _message_line,
    "message": _message_line,
    "record": _record,
    "event": _event_line,
    "execution": _execution,
}
