"""Tool and the ``@tool`` decorator: a Python function that a model may call.

Source: LLM turn, "Building the request" (L12); Turn FSM, "ExecutingTools" (B48-B51, B75, D20).
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, overload

from notebook_agent.core.request import ToolConstraint, ToolSchema
from notebook_agent.engine.tools.schema import Binding, bind_function
from notebook_agent.engine.tools.sent import sent_schema
from notebook_agent.engine.tools.strict import drop_nulls, strict_schema
from notebook_agent.engine.tools.validate import schema_faults
from notebook_agent.errors import ConfigError

__all__ = ["Tool", "as_tool", "tool"]

# The narrowest rule of the providers' own.
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)  # no slots: __wrapped__ and __doc__ make help() and signature() work
class Tool:
    """A function with its schema and the way it may be run. Calling it calls the function.

    Attributes:
        name: What the model calls it: 1 to 64 letters, digits, ``_`` or ``-``.
        fn: The function, sync or async.
        description: What the model reads.
        parameters: JSON Schema of the arguments; None, or one that is no object, accepts
            everything (B50).
        concurrent: Safe to run beside others (B49); False runs it alone.
        timeout_s: Seconds for one call; None takes the policy's.
        idempotent: May be run again when a kill left its end unknown (B75).
        confirm: Ask the user before each call; no answer is no (D20).
        main: Run in the notebook's own thread, between ticks (D20).
        primary: The parameter that says what the call is about, for the loop detector; None
            compares all of them (L124).
    """

    name: str
    fn: Callable[..., Any] = field(repr=False)
    description: str = ""
    parameters: Mapping[str, Any] | None = field(default=None, repr=False)
    concurrent: bool = False
    timeout_s: float | None = None
    idempotent: bool = False
    confirm: bool = False
    main: bool = False
    primary: str | None = None
    binding: Binding | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                field="tool name",
                value=self.name,
                legal="1 to 64 letters, digits, _ or -:  @tool(name='...')",
            )
        if self.timeout_s is not None and not (
            isinstance(self.timeout_s, (int, float))
            and not isinstance(self.timeout_s, bool)
            and math.isfinite(self.timeout_s)
            and self.timeout_s > 0
        ):
            raise ConfigError(field="timeout_s", value=self.timeout_s, legal="seconds above 0")
        object.__setattr__(self, "__wrapped__", self.fn)
        object.__setattr__(self, "__doc__", getattr(self.fn, "__doc__", None))
        object.__setattr__(self, "__name__", self.name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, for use by hand."""
        return self.fn(*args, **kwargs)

    @property
    def is_async(self) -> bool:
        """Whether it runs on the engine's loop rather than in a worker thread."""
        return inspect.iscoroutinefunction(self.fn) or inspect.iscoroutinefunction(
            getattr(self.fn, "__call__", None)  # noqa: B004  # an object with an async __call__
        )

    def schema(self, constraint: ToolConstraint | None = None) -> ToolSchema:
        """The tool as a model sees it.

        Args:
            constraint: STRICT closes every object and requires every property (L7).
        """
        parameters = sent_schema(self.parameters)
        if constraint is ToolConstraint.STRICT:
            parameters = strict_schema(parameters)
        return ToolSchema(self.name, self.description, parameters)

    def prepare(self, given: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any], list[str]]:
        """Check JSON arguments and turn them into Python values.

        Args:
            given: The arguments as the model wrote them.

        Returns:
            Positional values, keyword values, and every fault found (B50).
        """
        arguments = drop_nulls(self.parameters, given)
        faults = schema_faults(self.parameters, arguments)
        if self.binding is None:
            return [], dict(arguments), faults
        if faults:
            unknown = [
                line for line in self.binding.convert(arguments)[2] if ": no such parameter" in line
            ]
            return [], {}, faults + unknown
        return self.binding.convert(arguments)


@overload
def tool(fn: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    fn: None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    concurrent: bool | None = None,
    timeout_s: float | None = None,
    idempotent: bool = False,
    confirm: bool = False,
    main: bool = False,
    primary: str | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    fn: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    concurrent: bool | None = None,
    timeout_s: float | None = None,
    idempotent: bool = False,
    confirm: bool = False,
    main: bool = False,
    primary: str | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function: name, hints and docstring become what the model reads.

    Args:
        fn: The function; left out when options are given.
        name: Instead of the function's name.
        description: Instead of the docstring's prose.
        parameters: A JSON Schema instead of the one read from the signature.
        concurrent: True = safe to run beside other calls. Left out means False: only a tool
            that declares it is run together with others (B49).
        timeout_s: Seconds for one call, instead of the policy's.
        idempotent: True = may be run again after a kill (B75).
        confirm: True = the user is asked before each call.
        main: True = runs in the notebook's own thread.
        primary: The parameter that says what the call is about (loop detector).

    Returns:
        The Tool, still callable like the function.

    Raises:
        ConfigError: The function cannot be a tool; says why and what to write.

    Example:
        >>> @tool
        ... def add(a: int, b: int = 1) -> int:
        ...     "Add two numbers."
        ...     return a + b
        >>> add.schema().parameters["required"], add(2, 3)
        (['a'], 5)
    """
    if fn is None:
        return functools.partial(
            _make, name=name, description=description, parameters=parameters,
            concurrent=concurrent, timeout_s=timeout_s, idempotent=idempotent, confirm=confirm,
            main=main, primary=primary,
        )  # fmt: skip
    return _make(
        fn, name=name, description=description, parameters=parameters, concurrent=concurrent,
        timeout_s=timeout_s, idempotent=idempotent, confirm=confirm, main=main, primary=primary,
    )  # fmt: skip


def _make(
    fn: Callable[..., Any],
    *,
    name: str | None,
    description: str | None,
    parameters: Mapping[str, Any] | None,
    concurrent: bool | None,
    **ways: Any,
) -> Tool:
    if not callable(fn):
        raise ConfigError(f"{fn!r} is not a function and cannot be a tool.", field="tool")
    if isinstance(fn, Tool):
        fn = fn.fn
    if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
        raise ConfigError(
            f"{fn.__name__} yields and cannot be a tool: return the whole result instead.",
            field=fn.__name__,
        )
    given = name or getattr(fn, "__name__", None) or _partial_name(fn)
    if given == "<lambda>":
        raise ConfigError(
            "A lambda has no name for the model to call.\nGive one:  tool(name='...')(lambda: ...)",
            field="tool name",
        )
    binding = None if parameters is not None else bind_function(fn)
    prose = binding.description if binding else (inspect.getdoc(fn) or "")
    made = Tool(
        given,
        fn,
        prose if description is None else description,
        binding.parameters if binding else parameters,
        concurrent=bool(concurrent),
        binding=binding,
        **ways,
    )
    primary = made.primary
    if primary is not None and binding is not None and primary not in binding.adapters:
        raise ConfigError(
            field="primary", value=primary, legal=f"one of {', '.join(binding.adapters) or 'none'}"
        )
    return made


def _partial_name(fn: Callable[..., Any]) -> str:
    inner = getattr(fn, "func", None)  # functools.partial
    return str(getattr(inner, "__name__", type(fn).__name__))


def as_tool(thing: Tool | Callable[..., Any]) -> Tool:
    """A tool as it is; a plain function through ``@tool``."""
    return thing if isinstance(thing, Tool) else tool(thing)
