"""What stands for code and settings in the key of a cell.

An answer is used again when nothing that made it has changed, in another process too: so nothing
of an object's address may come in, and nothing that tells two pieces of work apart may be left out.

Source: tune by experiment, sweeps (the journal's key: prompt, config, inputs, seed, code version).
"""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import re
import types
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final

from notebook_agent.providers.base import full_name

__all__ = ["code_version", "settings_version"]

_DEEP: Final = 8  # functions within functions, values within values
_PLAIN: Final = (str, bytes, int, float, complex, bool, type(None))
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
# Settings that change what is seen of a run, not what is asked.
_UNASKED: Final = frozenset(
    {
        "approve", "cancel", "counter", "observers", "run_on_main", "store", "surroundings",
        "text_streamer",
    }
)  # fmt: skip


def code_version(work: Callable[..., Any]) -> str:
    """What stands for the code of a function: its name and a digest of its source.

    The arguments of a ``partial``, the defaults, and the texts, numbers and functions that a
    function closes over count too: they tell apart what the source does not. Lists, mappings
    and objects that it closes over do not, since it may change them; nor do the fields of an
    object with ``__call__``. Where they matter, give the sweep a ``code=``, or the object a
    ``code_version``.
    """
    return _code(work, 0)


def settings_version(settings: Mapping[str, Any]) -> str:
    """Settings as part of every cell's key: other tools or limits are another experiment."""
    return " ".join(
        f"{name}={_value(value, 0)}"
        for name, value in sorted(settings.items())
        if name not in _UNASKED
    )


def _code(work: Any, depth: int) -> str:
    known = getattr(work, "code_version", None)
    if isinstance(known, str):
        return known
    told: list[str] = []
    while isinstance(work, functools.partial):
        given = {str(at): value for at, value in enumerate(work.args)} | work.keywords
        told += [_value(given, depth + 1)] if given else []
        work = work.func
    if not inspect.isroutine(work):
        work = inspect.unwrap(work)  # a tool's own function
    name = getattr(work, "__qualname__", type(work).__name__)
    try:
        told.insert(0, inspect.getsource(work if inspect.isroutine(work) else type(work)))
    except (OSError, TypeError):
        told[:0] = _compiled(getattr(work, "__code__", None))
    if depth < _DEEP:
        told += _held(getattr(work, "__func__", work), depth + 1)
    if not told:
        return name
    text = "\0".join(told).encode("utf-8", "surrogatepass")
    return f"{name} {hashlib.sha256(text).hexdigest()[:16]}"


def _held(function: Any, depth: int) -> list[str]:
    """Defaults, and what a function closes over and does not set itself."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, types.CodeType):
        return []
    given = dict(enumerate(function.__defaults__ or ()))
    held: dict[Any, Any] = given | (function.__kwdefaults__ or {})
    if code.co_freevars:
        sets = {i.argval for i in dis.get_instructions(code) if i.opname == "STORE_DEREF"}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
            try:
                value = cell.cell_contents
            except ValueError:  # not set yet
                continue
            if name not in sets and value is not function:
                held[f"closed {name}"] = value
    found = []
    for key, value in held.items():
        if isinstance(value, _PLAIN):
            found.append(f"{key}={value!r}")
        elif isinstance(value, (types.FunctionType, functools.partial)):
            found.append(f"{key}={_code(value, depth)}")
    return found


def _compiled(code: types.CodeType | None) -> list[str]:
    """A function without a source file, typed at a prompt: what it was compiled to."""
    if code is None:
        return []
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    plain = [c for c in code.co_consts if not isinstance(c, types.CodeType)]
    names = (code.co_names, code.co_varnames)
    return [
        code.co_code.hex(),
        _value(plain, 0),
        repr(names),
        *(t for c in inner for t in _compiled(c)),
    ]


def _value(value: Any, depth: int) -> str:
    """A value in words that are the same in every process."""
    if isinstance(value, (*_PLAIN, Enum)) or depth > _DEEP:
        return repr(value) if isinstance(value, (*_PLAIN, Enum)) else type(value).__qualname__
    if isinstance(value, Mapping):
        items = sorted((str(k), _value(v, depth + 1)) for k, v in value.items())
        return "{" + ", ".join(f"{k}: {v}" for k, v in items) + "}"
    if isinstance(value, Set):
        return "{" + ", ".join(sorted(_value(v, depth + 1) for v in value)) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(_value(v, depth + 1) for v in value) + "]"
    if is_dataclass(value) and not isinstance(value, type):
        own = {f.name: getattr(value, f.name) for f in fields(value) if f.compare}
        return f"{type(value).__qualname__}{_value(own, depth + 1)}"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if callable(getattr(value, "model", None)) and hasattr(value, "capabilities"):
        return full_name(value)  # a client
    if inspect.isroutine(value) or isinstance(value, functools.partial):
        return _code(value, depth + 1)
    said = repr(value)
    return _code(value, depth + 1) if _ADDRESS.search(said) else said
