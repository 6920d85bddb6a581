"""From the first line and the body of a cell to one run: everything that can be refused is
refused here, before any request.

Source: notebook side, the prompt and commands (D7, D9, N01, N02, N11).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from notebook_agent.core.interpolate import known_as, look_up
from notebook_agent.core.messages import Message
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.core.request import RequestOptions, TurnMode
from notebook_agent.core.settings import StreamTimeouts
from notebook_agent.errors import ConfigError, ContextExceeded, InputRejected
from notebook_agent.notebook.arguments import CellOptions, UsageError, nearest, own_names
from notebook_agent.notebook.formats import INSTRUCTIONS
from notebook_agent.notebook.interpolate import Inserted, insert, literal_brace
from notebook_agent.notebook.place import writable_place
from notebook_agent.notebook.session_map import kept_name
from notebook_agent.notebook.with_values import cells_message, values_message
from notebook_agent.providers.base import ModelClient, full_name

if TYPE_CHECKING:
    from notebook_agent.notebook.session_core import SessionCore

__all__ = ["Plan", "plan_run"]


_PIECE: Final = 200_000  # characters counted at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run, ready to be sent; nothing is looked up any more.

    Attributes:
        text: The prompt with its values in place.
        prompt: The prompt as typed, for the view.
        model: The run's own model; None = the session's.
        fallback: The run's own chain; None = the session's.
        tools: The run's own tools; None = the session's.
        notices: Lines for the footer.
    """

    text: str
    prompt: str
    options: CellOptions
    session: str
    model: ModelClient | None = None
    fallback: tuple[ModelClient, ...] | None = None
    system: str | None = None
    tools: tuple[Any, ...] | None = None
    transients: tuple[Message, ...] = ()
    request: RequestOptions = field(default_factory=RequestOptions)
    policy: RuntimePolicy | None = None
    timeouts: StreamTimeouts | None = None
    mode: TurnMode | None = None
    schema: Any = None
    notices: tuple[str, ...] = ()

    @property
    def model_name(self) -> str | None:
        """Full name of the run's own model."""
        return None if self.model is None else full_name(self.model)

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of ``AgentRuntime.arun``; only what the run sets."""
        given: dict[str, Any] = {
            "options": self.request,
            "policy": self.policy,
            "transients": self.transients,
            "fresh": self.options.fresh,
            "tools": self.tools,
            "model": self.model,
            "fallback": self.fallback,
            "system": self.system,
            "timeouts": self.timeouts,
            "mode": self.mode,
            "schema": self.schema,
        }
        return {k: v for k, v in given.items() if v is not None}


def plan_run(agent: SessionCore, body: str, options: CellOptions) -> Plan:
    """Check and gather everything a run needs.

    Raises:
        UsageError, InputRejected, InsertionError, ConfigError, ContextExceeded: Two or three
            lines; nothing was sent.
    """
    session = kept_name(options.session or agent.current)
    model = _model(agent, options)
    if model is None:
        agent.use_default_model(session)
    inserted = _insert(agent, body, options, session)
    if not inserted.text.strip():
        raise InputRejected(
            "The prompt is empty; nothing was sent.\nType it below the line, or:  %agent ask TEXT"
        )
    if options.record is not None:  # said now, not when the reply is paid for
        writable_place(options.record, "%%agent --record run.jsonl")
    notices = agent.start_notices(session, model) + _brace_note(agent, body, options)
    return Plan(
        text=inserted.text,
        prompt=body,
        options=options,
        session=session,
        model=model,
        fallback=_chain(agent, options),
        system=_system(agent, options),
        tools=_tools(agent, options),
        transients=_transients(agent, options),
        request=_request(agent, options),
        policy=_policy(agent, options),
        timeouts=_timeouts(agent, options),
        schema=_schema(agent, options),
        mode=TurnMode.NON_STREAMING if options.no_stream or not agent.settings.stream else None,
        notices=notices,
    )


def _model(agent: SessionCore, options: CellOptions) -> ModelClient | None:
    """Look the model up now: an unknown one or a missing key is said before anything else."""
    if options.model is None:
        return None
    return _named(agent, options.model, "-m")


def _chain(agent: SessionCore, options: CellOptions) -> tuple[ModelClient, ...] | None:
    if options.fallback is None:
        return None
    return tuple(_named(agent, name, "--fallback") for name in options.fallback)


def _named(agent: SessionCore, name: str, option: str) -> ModelClient:
    """The client of a name; the line to type of its error is the cell's."""
    try:
        return agent.models_book.client(name)
    except ConfigError as error:
        error.message = error.message.replace("Type:  %agent model ", f"Type:  %%agent {option} ")
        error.args = (error.message,)
        raise


def _insert(agent: SessionCore, body: str, options: CellOptions, session: str) -> Inserted:
    window = agent.effective_window(session, options.model)

    def fits(expression: str, text: str) -> None:
        # A token is at least one byte: most values need no counting.
        if window is None or len(text.encode(errors="replace")) <= window:
            return
        tokens = sum(map(agent.count_text, _pieces(text)))
        if tokens > window:
            raise _too_big(expression, f"{tokens:,}", tokens, window)

    def ahead(expression: str, value: Any) -> None:
        # A frame's text takes minutes when it is large, and no cell of it is less than a token.
        cells = getattr(value, "size", 0) if hasattr(value, "to_string") else 0
        if window is not None and isinstance(cells, int) and cells > window:
            raise _too_big(expression, f"at least {cells:,}", cells, window)

    return insert(body, agent.names(), raw=options.raw, fits=fits, ahead=ahead)


def _pieces(text: str) -> Iterator[str]:
    """A long text in pieces: an interrupt comes through between two counts (F11). Each begins
    with a blank where there is one, as tokens do, so that the sum is the whole's count."""
    at = 0
    while at < len(text):
        end = min(at + _PIECE, len(text))
        if end < len(text):
            blank = text.rfind(" ", at + 1, end)
            end = blank if blank > at + _PIECE // 2 else end
        yield text[at:end]
        at = end


def _too_big(expression: str, size: str, tokens: int, window: int) -> ContextExceeded:
    name = re.split(r"[.\[]", expression, maxsplit=1)[0]
    return ContextExceeded(
        tokens,
        window,
        f"{{{{{expression}}}}} has {size} tokens and the window holds {window:,}. "
        "Nothing was sent.\n"
        f"Insert a part of it, or show its shape with:  %%agent --with {name}",
    )


def _brace_note(agent: SessionCore, body: str, options: CellOptions) -> tuple[str, ...]:
    name = None if options.raw else literal_brace(body, agent.namespace)
    if name is None or "brace" in agent.said:
        return ()
    agent.said.add("brace")
    return (f"{{{name}}} was sent literally; {{{{{name}}}}} inserts the variable",)


def _system(agent: SessionCore, options: CellOptions) -> str | None:
    if options.system is None:
        return None
    return agent.system_text(options.system)


def _schema(agent: SessionCore, options: CellOptions) -> Any:
    """The class of ``--schema``; one that cannot be a schema is refused before sending."""
    if options.schema is None:
        return None
    if options.format not in ("md", "json"):
        raise UsageError(
            f"--schema gives JSON, and --format {options.format} asks for something else.\n"
            f"Type:  %%agent --schema {options.schema}"
        )
    try:
        given = look_up(options.schema, agent.namespace)
    except LookupError:
        own = own_names(agent.namespace)
        classes = [n for n in own if isinstance(agent.namespace[n], type)]
        raise UsageError(
            f"--schema: {options.schema!r} is not defined in this notebook. Nothing was sent.\n"
            f"Type:  %%agent --schema {nearest(options.schema, classes) or 'Model'}"
        ) from None
    from notebook_agent.engine.structured import OutputSchema  # noqa: PLC0415  # pydantic loads at use

    OutputSchema.of(given)
    return given


def _tools(agent: SessionCore, options: CellOptions) -> tuple[Any, ...] | None:
    if options.no_tools:
        return ()
    return None if options.tools is None else tuple(agent.function(n) for n in options.tools)


def _transients(agent: SessionCore, options: CellOptions) -> tuple[Message, ...]:
    cap, count = agent.settings.with_tokens, agent.count_text
    found = [
        values_message(options.with_, agent.names(), cap=cap, count=count),
        cells_message(agent.cell_sources(options.cells), cap=cap, count=count),
    ]
    if options.format in INSTRUCTIONS:
        found.append(Message.user(INSTRUCTIONS[options.format]))
    return tuple(m for m in found if m is not None)


def _request(agent: SessionCore, options: CellOptions) -> RequestOptions:
    return RequestOptions(
        extra=dict(options.params), prompt_cache=agent.settings.prompt_cache or None
    )


def _policy(agent: SessionCore, options: CellOptions) -> RuntimePolicy | None:
    changes: dict[str, Any] = {}
    if options.max_turns is not None:
        changes["max_iterations"] = options.max_turns
    if options.max_tokens is not None:
        changes["max_total_tokens"] = options.max_tokens
    return replace(agent.policy(), **changes) if changes else None


def _timeouts(agent: SessionCore, options: CellOptions) -> StreamTimeouts | None:
    seconds = options.timeout or agent.settings.timeout
    if not seconds:
        return None
    return StreamTimeouts().capped(seconds)


def find_function(
    name: str, namespace: Mapping[str, Any], is_tool: Callable[[Any], bool], command: str
) -> Any:
    """A function or tool of the notebook by name.

    Raises:
        UsageError: There is none of that name.
    """
    value = namespace.get(known_as(name, namespace))
    if value is not None and (callable(value) or is_tool(value)):
        return value
    callables = [n for n in own_names(namespace) if callable(namespace[n])]
    close = nearest(name, callables)
    what = "is no function" if name in namespace else "is not defined"
    raise UsageError(
        f"{command.rsplit(maxsplit=1)[-1]}: {name!r} {what} in this notebook. Nothing was sent.\n"
        f"Type:  {command} {close or 'my_function'}"
    )
