"""Structured output: a class or JSON Schema that the reply must fit, and how a model is made to.

How a format is forced, by what the model can do (``STRATEGIES``): natively, by a tool that it must
call, by JSON mode, or by words alone. Whatever the way, the reply is validated here by the whole
schema; what a service enforces is only a help.

Source: LLM turn, "Building the request" (L7, L18); notebook, option ``--schema``.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from notebook_agent.core.messages import Message
from notebook_agent.core.request import ToolSchema
from notebook_agent.core.schema_refs import lost_refs
from notebook_agent.engine.tools.strict import drop_nulls
from notebook_agent.engine.tools.validate import schema_faults
from notebook_agent.errors import ConfigError, StructuredOutputError
from notebook_agent.providers.base import Capabilities, ModelClient

__all__ = ["STRATEGIES", "OutputSchema", "format_for"]

MAX_REPAIRS: Final = 2
_BOX: Final = "value"  # the one property around a schema that is no object
_MOST_FAULTS: Final = 8
_MOST_TRIES: Final = 40  # places in a text where JSON is looked for
_FENCE: Final = re.compile(r"(`{3,}|~{3,})[\w+-]*[ \t]*\n(.*?)\n?[ \t]*\1", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSchema:
    """What a reply must be.

    Attributes:
        name: For services and messages, letters, digits, ``_`` and ``-``.
        schema: A JSON Schema whose root is an object, as every service wants it.
        boxed: The wanted value is no object and travels as the property ``value`` of one.
        adapter: Makes the Python value; None = the JSON value itself is wanted.
        in_words: Whether :meth:`instruction` asks for it too, because a model that may serve
            cannot be forced; None = not settled yet.
    """

    name: str
    schema: Mapping[str, Any]
    boxed: bool = False
    adapter: TypeAdapter[Any] | None = field(default=None, repr=False, compare=False)
    in_words: bool | None = None

    @classmethod
    def of(cls, given: Any) -> OutputSchema:
        """The schema of a pydantic class, a dataclass, any type hint, or a JSON Schema mapping.

        Raises:
            ConfigError: It is none of them, or JSON has no form for it.
        """
        if isinstance(given, OutputSchema):
            return given
        if isinstance(given, Mapping):
            return cls._of_json(given)
        name = _name_of(given)
        if given is None or not _is_type(given):
            raise ConfigError(
                f"A schema is a pydantic class, a dataclass, a type hint or a JSON Schema; "
                f"{type(given).__name__} is none.\n"
                "Give the class itself:  schema=Person     not  schema=Person(...)",
                field="schema",
                value=given,
            )
        try:
            adapter = TypeAdapter(given)
            schema = adapter.json_schema()
        except (PydanticUserError, TypeError, NameError) as error:
            raise ConfigError(
                f"{name} has no JSON Schema: {str(error).splitlines()[0]}", field="schema"
            ) from error
        root, boxed = _rooted(schema)
        return cls(name=name, schema=root, boxed=boxed, adapter=adapter)

    @classmethod
    def _of_json(cls, schema: Mapping[str, Any]) -> OutputSchema:
        broken = [f for f in schema_faults(schema, None) if f.startswith("the tool's own schema")]
        broken += [f"it refers to {ref}, which is not in it" for ref in lost_refs(schema)]
        if broken or not schema:
            why = broken[0].replace("the tool's own schema", "it") if broken else "it is empty"
            raise ConfigError(f"That is no JSON Schema: {why}", field="schema")
        root, boxed = _rooted(schema)
        return cls(name=_clean(str(schema.get("title") or "reply")), schema=root, boxed=boxed)

    # --- what is sent

    def tool(self) -> ToolSchema:
        """The schema as a tool: how it is counted (L18), and how it is forced where it must be."""
        return ToolSchema(self.name, "Give the answer in this form.", self.schema)

    def instruction(self) -> Message:
        """The words that ask for the format, for a model that cannot be forced to the schema."""
        text = json.dumps(self.schema, ensure_ascii=False)
        return Message.user(
            "Answer with one JSON value and nothing else: no words around it, no code fence. "
            f"It must fit this JSON Schema:\n{text}"
        )

    def final_request(self) -> Message:
        """What asks for the format once the model, with tools at hand, has answered in words."""
        return Message.user(
            f"Now give that answer as one JSON value of the form {self.name!r}, and nothing else."
        )

    def repair_request(self, error: StructuredOutputError) -> Message:
        """What asks for a better reply."""
        faults = "\n".join(f"- {fault}" for fault in error.faults)
        return Message.user(
            f"That is not a valid {self.name}:\n{faults}\n"
            "Give the whole JSON value again, corrected, and nothing else."
        )

    # --- what comes back

    def read(self, text: str, *, reason: str = "") -> Any:
        """The value of a reply.

        Args:
            text: The reply. One code fence, or words around the JSON, are forgiven.
            reason: Why no repair follows, for the error.

        Raises:
            StructuredOutputError: It is no JSON, or does not fit; the places are named.
        """
        first: list[tuple[str, str]] | None = None
        for value in _values_in(text):
            done, got = self._fit(value)
            if done:
                return got
            first = first or got
        faults = first or [("$", _why_no_json(text))]
        lines = [f"{path}: {what}" for path, what in faults[:_MOST_FAULTS]]
        raise StructuredOutputError(self.name, lines, path=faults[0][0], raw=text, reason=reason)

    def _fit(self, value: Any) -> tuple[bool, Any]:
        """(True, the value) or (False, faults as (path, what))."""
        if not self.boxed:
            return self._fits(value, "$")
        boxed = isinstance(value, dict) and set(value) == {_BOX}
        inside = self._fits(value[_BOX], f"$.{_BOX}") if boxed else (False, [])
        if inside[0]:
            return inside
        bare = self._fits(value, "$")  # the wanted value itself may have that one property
        return inside if boxed and not bare[0] else bare

    def _fits(self, value: Any, prefix: str) -> tuple[bool, Any]:
        """As ``_fit``, of the value without its box."""
        value = drop_nulls(self.schema, {_BOX: value} if self.boxed else value)
        if self.adapter is None:
            faults = schema_faults(self.schema, value)
            if not faults:
                return True, value[_BOX] if self.boxed else value
            return False, [_split_fault(one) for one in faults]
        value = value[_BOX] if self.boxed else value
        try:
            return True, self.adapter.validate_json(json.dumps(value))
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            return False, [(_path(prefix, one["loc"]), one["msg"]) for one in found]
        except (Exception, SystemExit) as error:  # noqa: BLE001  # the user's own may raise anything
            return False, [(prefix, f"{type(error).__name__}: {error}")]

    # --- kept with the run

    def to_json(self) -> dict[str, Any]:
        """JSON form for the run's record; the class is not in it."""
        return {
            "name": self.name,
            "schema": dict(self.schema),
            "boxed": self.boxed,
            "in_words": self.in_words,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> OutputSchema | None:
        """The schema that ``to_json`` wrote: a resumed run gives the JSON value itself."""
        if data is None:
            return None
        return cls(**data)


# --- how a model is made to answer in the format


def _native(client: ModelClient, wanted: OutputSchema) -> Mapping[str, Any] | None:
    form = getattr(client, "native_format", None)
    if form is not None:
        found: Mapping[str, Any] | None = form(wanted.name, wanted.schema)
        return found
    return {"type": "json_schema", "name": wanted.name, "schema": wanted.schema}


def _by_tool(client: ModelClient, wanted: OutputSchema) -> Mapping[str, Any] | None:
    if getattr(client, "forces_tools", True) is False:
        return None
    tool = wanted.tool()
    return {
        "type": "tool",
        "name": tool.name,
        "description": tool.description,
        "schema": tool.parameters,
    }


Form = Callable[[ModelClient, OutputSchema], Mapping[str, Any] | None]

# (name, capability that must be True, the format it sends, whether words must ask for it too).
# The first row that the model can do counts; the last one every model can.
STRATEGIES: Final[tuple[tuple[str, str, Form, bool], ...]] = (
    ("native", "json_schema", _native, False),
    ("tool", "tool_calling", _by_tool, False),
    ("json", "json_object", lambda _c, _w: {"type": "json_object"}, True),
    ("words", "chat", lambda _c, _w: None, True),
)


def format_for(
    client: ModelClient, can: Capabilities, wanted: OutputSchema
) -> tuple[str, Mapping[str, Any] | None, bool]:
    """How a model is made to answer in a format.

    Args:
        client: The model.
        can: What it can do; what is not known counts as missing, so that a request is not
            refused for a feature that nobody promised.
        wanted: The schema.

    Returns:
        The strategy's name, ``RequestOptions.response_format`` (None = none is sent), and
        whether :meth:`OutputSchema.instruction` must be among the messages.
    """
    for name, feature, form, words in STRATEGIES[:-1]:
        if getattr(can, feature) is True:
            found = form(client, wanted)
            if found is not None:
                return name, found, words
    return STRATEGIES[-1][0], None, True


# --- reading


def _values_in(text: str) -> Iterator[Any]:
    """JSON values of a reply: the whole, what a fence holds, then what stands among words."""
    bare = text.strip().removeprefix("\ufeff")
    value, ok = _load(bare)
    if ok:
        yield value
    bare = bare.rpartition("</think>")[2]  # some servers leave what was thought in the reply
    fenced = [m[2] for m in _FENCE.finditer(bare)]
    for one in (bare, *fenced):
        value, ok = _load(one)
        if ok:
            yield value
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    at, tries = 0, 0
    while tries < _MOST_TRIES:
        found = re.search(r"[\[{]", bare[at:])
        if found is None:
            return
        at += found.start()
        tries += 1
        try:
            value, at = decoder.raw_decode(bare, at)
        except (ValueError, RecursionError):
            at = _after_brackets(bare, at)
            continue
        yield value


def _after_brackets(text: str, start: int) -> int:
    """Behind the brackets that open at ``start``: what is inside broken or cut JSON is a part of
    the value, never the value."""
    depth, at, quoted = 0, start, False
    while at < len(text):
        char = text[at]
        if char == '"':
            quoted = not quoted
        elif char == "\\" and quoted:
            at += 1
        elif not quoted:
            depth += (char in "[{") - (char in "]}")
            if depth <= 0:
                return at + 1
        at += 1
    return at


def _load(text: str) -> tuple[Any, bool]:
    try:
        return json.loads(text, parse_constant=_no_constant), True
    except (ValueError, RecursionError):
        return None, False


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _why_no_json(text: str) -> str:
    if not text.strip():
        return "the reply is empty"
    try:
        json.loads(text.strip(), parse_constant=_no_constant)
    except RecursionError:
        return "the reply is nested too deeply"
    except ValueError as error:
        return f"the reply is no JSON: {error}"
    return "the reply is no JSON value of that form"


def _path(prefix: str, loc: tuple[int | str, ...]) -> str:
    return prefix + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in loc)


def _split_fault(line: str) -> tuple[str, str]:
    """``items.0.price: what`` -> (``$.items[0].price``, what)."""
    head, colon, what = line.partition(": ")
    if not colon or " " in head or "'" in head:
        return "$", line
    parts = tuple(int(p) if p.isdigit() else p for p in head.split("."))
    return _path("$", parts), what


# --- schemas


def _rooted(schema: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The schema with an object at its root, and whether a box was put around it."""
    root = dict(schema)
    ref = root.get("$ref")
    for word in ("$defs", "definitions"):
        if isinstance(ref, str) and ref.startswith(f"#/{word}/"):
            target = root.get(word, {}).get(ref.split("/", 2)[2])
            if isinstance(target, Mapping):
                root = {**target, **{k: v for k, v in root.items() if k != "$ref"}}
    if root.get("type") == "object":
        return root, False
    shared = {w: root.pop(w) for w in ("$defs", "definitions", "$schema") if w in root}
    box: dict[str, Any] = {
        "type": "object",
        "properties": {_BOX: root},
        "required": [_BOX],
        "additionalProperties": False,
    }
    return box | shared, True


def _is_type(given: Any) -> bool:
    if inspect.isclass(given) or dataclasses.is_dataclass(given):
        return inspect.isclass(given)
    module = type(given).__module__
    return typing.get_origin(given) is not None or module in ("typing", "typing_extensions")


def _name_of(given: Any) -> str:
    return _clean(getattr(given, "__name__", None) or str(given))


def _clean(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:64] or "reply"
