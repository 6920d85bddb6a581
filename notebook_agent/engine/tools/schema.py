"""JSON Schema of a Python function, and the way back: JSON arguments to Python values.

Source: LLM turn, "Building the request" (L12); Turn FSM, "ExecutingTools" (B48, B50).
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import (
    PydanticInvalidForJsonSchema,
    PydanticSchemaGenerationError,
    PydanticUserError,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, PydanticUndefined, to_jsonable_python

from notebook_agent.core.schema_refs import reaches_itself
from notebook_agent.engine.tools.docstrings import parse_docstring
from notebook_agent.errors import ConfigError

__all__ = ["Binding", "bind_function"]

_Kind: Final = inspect.Parameter
_OWN: Final = "notebook_agent.engine.tools"
_MOST_FRAMES: Final = 12


@dataclass(frozen=True, slots=True)
class Binding:
    """How a function takes JSON arguments.

    Attributes:
        parameters: The JSON Schema object.
        description: The docstring's prose.
    """

    parameters: Mapping[str, Any]
    description: str = ""
    adapters: Mapping[str, TypeAdapter[Any]] = field(default_factory=dict)
    positional: tuple[str, ...] = ()
    open_ended: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def convert(self, given: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any], list[str]]:
        """Python values for the call.

        Args:
            given: JSON arguments, already valid by the schema.

        Returns:
            Positional values, keyword values, and what is wrong, one line per fault.
        """
        values: dict[str, Any] = {}
        faults: list[str] = []
        for name, value in given.items():
            adapter = self.adapters.get(name)
            if adapter is None:
                if self.open_ended:
                    values[name] = value
                else:
                    legal = ", ".join(self.adapters) or "none"
                    faults.append(f"{name}: no such parameter; the parameters are: {legal}")
                continue
            try:
                values[name] = adapter.validate_python(value)
            except ValidationError as error:
                faults += [_fault(name, one) for one in error.errors(include_url=False)]
            except Exception as error:  # noqa: BLE001  # a validator of the user's own may raise anything
                faults.append(f"{name}: {type(error).__name__}: {error}")
        args: list[Any] = []
        for name in self.positional:
            if name in values:
                args.append(values.pop(name))
            elif name in self.defaults:
                args.append(self.defaults[name])
        return args, values, faults


def bind_function(fn: Callable[..., Any]) -> Binding:
    """Read a function's signature, type hints and docstring.

    Args:
        fn: Any callable but a class; async ones too.

    Returns:
        Its schema and converter. A parameter without a hint takes any JSON value.

    Raises:
        ConfigError: ``*args``, an unresolvable hint, or a type that JSON cannot carry.
    """
    name = getattr(fn, "__name__", type(fn).__name__)
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} has no readable signature: {error}", field=name) from error
    doc = parse_docstring(inspect.getdoc(fn))
    hints = _hints(fn, name)
    adapters: dict[str, TypeAdapter[Any]] = {}
    positional: list[str] = []
    defaults: dict[str, Any] = {}
    open_ended = False
    for param in signature.parameters.values():
        if param.kind is _Kind.VAR_KEYWORD:
            open_ended = True
            continue
        if param.kind is _Kind.VAR_POSITIONAL:
            raise ConfigError(
                f"{name}(*{param.name}) cannot be a tool: a model gives named arguments.\n"
                f"Take a list instead:  {param.name}: list",
                field=param.name,
            )
        adapters[param.name] = _adapter(name, param, hints.get(param.name, Any))
        if param.kind is _Kind.POSITIONAL_ONLY:
            positional.append(param.name)
        default = _default_of(param)
        if default is not _Kind.empty:
            defaults[param.name] = default
    schema = _object_schema(name, adapters, defaults, doc.params)
    return Binding(schema, doc.summary, adapters, tuple(positional), open_ended, defaults)


def _hints(fn: Callable[..., Any], name: str) -> dict[str, Any]:
    target = inspect.unwrap(fn)
    if not inspect.isroutine(target):
        partial_of = getattr(target, "func", None)  # functools.partial
        target = partial_of if callable(partial_of) else type(target).__call__
    local: dict[str, Any] = {}
    plain = getattr(target, "__func__", target)
    for var, cell in zip(
        getattr(getattr(plain, "__code__", None), "co_freevars", ()),
        getattr(plain, "__closure__", None) or (),
        strict=False,
    ):
        try:
            local[var] = cell.cell_contents
        except ValueError:  # a cell that is not filled yet
            continue
    try:
        return _resolved(target, local)
    except NameError as error:
        raise ConfigError(
            f"A type hint of {name} cannot be read: {error}.\n"
            "Define the type before the tool, in the same module or notebook.",
            field=name,
        ) from error


def _resolved(target: Any, local: Mapping[str, Any]) -> dict[str, Any]:
    """The hints; a name that only the defining function knows is looked up in the callers' frames."""
    try:
        return typing.get_type_hints(target, localns=dict(local) or None, include_extras=True)
    except NameError:
        seen = dict(local)
        frame = inspect.currentframe()
        for _ in range(_MOST_FRAMES):
            if frame is None:
                break
            if not str(frame.f_globals.get("__name__", "")).startswith(_OWN):
                seen = {**frame.f_locals, **seen}
            frame = frame.f_back
        return typing.get_type_hints(target, localns=seen, include_extras=True)


def _default_of(param: inspect.Parameter) -> Any:
    """The default; pydantic's ``Field(...)`` as a default is looked into."""
    if isinstance(param.default, FieldInfo):
        if param.default.is_required():
            return _Kind.empty
        return param.default.get_default(call_default_factory=True, validated_data={})
    return param.default


def _adapter(tool: str, param: inspect.Parameter, hint: Any) -> TypeAdapter[Any]:
    if isinstance(param.default, FieldInfo):
        hint = typing.Annotated[hint, _without_default(param.default)]
    try:
        return TypeAdapter(hint)
    except (PydanticUserError, TypeError, NameError) as error:
        # typing.TypedDict before Python 3.12 and the like: pydantic says what to write instead
        known = isinstance(error, PydanticSchemaGenerationError)
        why = "JSON has no form for that type" if known else str(error).splitlines()[0].rstrip(".")
        raise ConfigError(
            f"{tool}({param.name}: {_hint_name(hint)}) cannot be a tool: {why}.\n"
            "Use str, int, float, bool, list, dict, Literal, a dataclass or a pydantic model.",
            field=param.name,
        ) from error


def _without_default(info: FieldInfo) -> Any:
    """The same field without its default: the default is ours to apply."""
    bare = FieldInfo(description=info.description, title=info.title, examples=info.examples)
    bare.metadata = list(info.metadata)
    bare.json_schema_extra = info.json_schema_extra
    return bare


def _object_schema(
    tool: str,
    adapters: Mapping[str, TypeAdapter[Any]],
    defaults: Mapping[str, Any],
    described: Mapping[str, str],
) -> dict[str, Any]:
    try:
        found, shared = TypeAdapter.json_schemas(
            [(name, "validation", adapter) for name, adapter in adapters.items()],
        )
    except (PydanticInvalidForJsonSchema, PydanticUserError) as error:
        raise ConfigError(
            f"{tool} cannot be a tool: {str(error).splitlines()[0]}", field=tool
        ) from error
    defs = dict(shared.get("$defs", {}))
    kept: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    for name in adapters:
        schema = _tidy(_inline(dict(found[name, "validation"]), defs, (), kept), name)
        if name in described and "description" not in schema:
            schema["description"] = described[name]
        if name in defaults:
            default = _json_default(defaults[name])
            if default is not PydanticUndefined:
                schema["default"] = default
        properties[name] = schema
    out: dict[str, Any] = {"type": "object", "properties": properties}
    required = [name for name in adapters if name not in defaults]
    if required:
        out["required"] = required
    if kept:
        out["$defs"] = {name: _tidy(schema, name) for name, schema in kept.items()}
    return out


def _json_default(value: Any) -> Any:
    try:
        return to_jsonable_python(value)
    except (PydanticSerializationError, ValueError, TypeError):
        return PydanticUndefined


def _inline(
    schema: Any, defs: Mapping[str, Any], path: tuple[str, ...], kept: dict[str, Any]
) -> Any:
    """Put shared definitions where they are used; only recursive ones stay in ``$defs``.

    Several providers refuse ``$ref``, and a model reads an inline schema more surely.
    """
    if isinstance(schema, list):
        return [_inline(one, defs, path, kept) for one in schema]
    if not isinstance(schema, dict):
        return schema
    ref = schema.get("$ref")
    if isinstance(ref, str) and ref.startswith("#/$defs/"):
        name = ref.removeprefix("#/$defs/")
        beside = {k: v for k, v in schema.items() if k != "$ref"}
        if name in path or reaches_itself(ref, {f"#/$defs/{n}": one for n, one in defs.items()}):
            if name not in kept and name in defs:
                kept[name] = {}  # marks it before its own references are followed
                kept[name] = _inline(defs[name], defs, (*path, name), kept)
            return schema
        return {**_inline(defs.get(name, {}), defs, (*path, name), kept), **beside}
    return {key: _inline(value, defs, path, kept) for key, value in schema.items()}


def _tidy(schema: Any, name: str = "") -> Any:
    """Drop the titles that pydantic makes up from names; they cost tokens and say nothing."""
    if isinstance(schema, list):
        return [_tidy(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "title" and isinstance(value, str) and _made_up(value, name, schema):
            continue
        if key == "properties" and isinstance(value, dict):
            out[key] = {prop: _tidy(one, prop) for prop, one in value.items()}
        elif key in ("default", "const", "enum", "examples", "example"):
            out[key] = value
        else:
            out[key] = _tidy(value)
    return out


def _made_up(title: str, name: str, schema: Mapping[str, Any]) -> bool:
    return (
        title.replace(" ", "").lower() == name.replace("_", "").lower()
        or "properties" in schema
        or "enum" in schema
    )


def _fault(name: str, error: Any) -> str:
    where = ".".join([name, *(str(part) for part in error["loc"])])
    return f"{where}: {error['msg']}"


def _hint_name(hint: Any) -> str:
    return getattr(hint, "__name__", None) or str(hint)
