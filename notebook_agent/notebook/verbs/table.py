"""The verb table: what each verb of ``%agent`` takes, and which method it is.

Source: notebook side, commands (the list of verbs; D8, N11).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from notebook_agent.core.interpolate import insert
from notebook_agent.notebook.arguments import (
    LINE_HINT,
    Option,
    UsageError,
    nearest,
    option_lines,
    parse_options,
)

__all__ = ["VERBS", "Call", "Verb", "read_line", "verb_help"]


@dataclass(frozen=True, slots=True)
class Verb:
    """One row.

    Attributes:
        usage: What may follow, for the help.
        kind: ``value`` (called at once), ``run`` (``prepare_NAME`` makes a run to drive) or
            ``chore`` (``aNAME`` is awaited on the engine's loop).
        text: The rest of the line is one text, taken as it is.
        needs_text: An empty text is an error.
        options: Its options and positionals.
        hushed: An error repeats nothing of the line: it may hold a key (X05).
    """

    name: str
    usage: str
    summary: str
    kind: str = "value"
    text: bool = False
    needs_text: bool = False
    options: tuple[Option, ...] = ()
    hushed: bool = False


def _word(dest: str, metavar: str, help: str, **more: Any) -> Option:
    return Option((), dest, help, metavar=metavar, **more)


APIS: Final = ("openai-chat", "openai-responses", "anthropic-messages", "gemini", "ollama")
# A slip of the verb `key` with something like a key behind it.
_KEY_VERB: Final = re.compile(r"(?:set[-_]?)?(?:api[-_]?)?keys?(?:[=:]|$)", re.IGNORECASE)
_KEY: Final = re.compile(r"(?=[\w.-]*\d)(?=[\w.-]*[A-Za-z])[\w.-]{16,}")
_MCP: Final = re.compile(r"(?:^|(?<=\s))mcp:")
_RUN: Final = _word("run", "RUN", "number (0 is the first, -1 the last) or id", complete="runs")
_SESSION: Final = Option(
    ("-s", "--session"), "session", "which session", metavar="NAME", complete="sessions", example="default"
)  # fmt: skip


def _action(*choices: str) -> Option:
    return _word("action", "|".join(choices), "what to do", kind="choice", choices=choices)


VERBS: Final[Mapping[str, Verb]] = {
    verb.name: verb
    for verb in (
        Verb("status", "", "who answers, what is kept, how the last run ended", options=(_SESSION,)),
        Verb("ask", "TEXT", "ask in one line", "run", text=True, needs_text=True),
        Verb("model", "[ID]", "show or choose the model",
             options=(_word("name", "ID", "provider:name, an alias, @variable, or http://host/v1#name", complete="models"),
                      Option(("--api",), "api", "wire format of the service at that address",
                             metavar="FORMAT", choices=APIS, kind="choice", example="openai-chat"))),
        Verb("models", "", "ask the endpoint which models it has", "chore",
             options=(_word("provider", "PROVIDER", "of this provider only"),)),
        Verb("alias", "[NAME ID]", "give a model a short name",
             options=(_word("name", "NAME", "the short name"),
                      _word("target", "ID", "what it means", complete="models"))),
        Verb("fallback", "[A,B]", "show or set the chain of backups; 'none' clears it",
             options=(_word("chain", "A,B", "backups in order", complete="models"), _SESSION)),
        Verb("breaker", "[reset|trip]", "show the breaker, clear it, or trip it by hand",
             options=(_action("reset", "trip"), _SESSION)),
        Verb("system", "[TEXT]", "show or set the system prompt; @variable takes its text, 'none' clears it",
             text=True),
        Verb("tools", "[add|rm NAMES | mcp:COMMAND...]", "show, add or remove tools; of an MCP server too",
             options=(_action("add", "rm"),
                      _word("names", "NAMES", "functions of this notebook; mcp:COMMAND ... or mcp:http://...",
                            kind="names", complete="functions"),
                      Option(("--no-confirm",), "no_confirm", "do not ask before each call of the MCP server", "flag"),
                      _SESSION)),
        Verb("count", "[--exact] [TEXT]", "tokens of the next request in parts; no request, unless exact",
             text=True,
             options=(Option(("--exact",), "exact", "ask the provider's own count endpoint", "flag"),)),
        Verb("stop", "", "stop what runs in the background", options=(_SESSION,)),
        Verb("reset", "[--hard]", "clear the conversation; the audit trail stays, unless hard",
             options=(Option(("--hard",), "hard", "the audit trail too", "flag"), _SESSION)),
        Verb("undo", "[N]", "drop the last N runs from the conversation; log and trail stay",
             options=(_word("runs", "N", "how many", kind="count", least=1, example="1"), _SESSION)),
        Verb("history", "[N]", "the last N messages of the conversation",
             options=(_word("last", "N", "how many (10)", kind="count", least=1, example="10"), _SESSION)),
        Verb("session", "[list|save|load|delete] [NAME]", "sessions: list, name, take up, delete",
             options=(_action("list", "save", "load", "delete"),
                      _word("name", "NAME", "the session's name or id", complete="stored"))),
        Verb("audit", "[--run R] [--last N]", "the audit trail as a DataFrame",
             options=(Option(("--run",), "run", "one run: number or id", metavar="R", complete="runs", example="-1"),
                      Option(("--last",), "last", "the last N rows", "count", metavar="N", least=1, example="10"),
                      _SESSION)),
        Verb("events", "[RUN]", "what happened in a run, event by event", options=(_RUN, _SESSION)),
        Verb("fsm", "[RUN]", "states, outcomes and actions of a run", options=(_RUN, _SESSION)),
        Verb("compact", "[now|preview|policy K=V]", "compaction: do it, look at it, tune it", "chore",
             options=(_action("now", "preview", "policy"),
                      _word("changes", "K=V", "threshold=80 keep_last=2 ...", kind="pair"), _SESSION)),
        Verb("ab", "[A] [B] [--answer]", "replay the conversation under two compaction policies", "chore",
             options=(_word("a", "A", "changes: threshold=60,target=50 or current"),
                      _word("b", "B", "changes of the other one"),
                      Option(("--answer",), "answer", "ask for the next answer under both", "flag"), _SESSION)),
        Verb("record", "FILE [RUN]", "write a run file",
             options=(_word("path", "FILE", "where to", complete="files"), _RUN)),
        Verb("replay", "FILE [--check|--step|--speed X]", "replay a run file", "run",
             options=(_word("path", "FILE", "a run file", complete="files"),
                      Option(("--check",), "check", "recompute every action and compare; no engine", "flag"),
                      Option(("--step",), "step", "print one transition after the other", "flag"),
                      Option(("--speed",), "speed", "drive the real engine at X times the speed", "number",
                             metavar="X", least=0.01, example="10"))),
        Verb("panel", "[close]", "show the session's live panel",
             options=(_action("close"),)),
        Verb("fix", "", "send the last exception and its cell; proposes a next cell, never runs it", "run"),
        Verb("explain", "", "send the last exception and its cell; answers in words", "run"),
        Verb("export", "FILE.{md,json,ipynb,html} [--redact]", "write transcript and audit trail",
             options=(_word("path", "FILE", "where to", complete="files"),
                      Option(("--redact",), "redact", "leave the texts out", "flag"), _SESSION)),
        Verb("demo", "[retry|fallback|recover|cancel]", "watch the engine meet a bad day, on the scripted model",
             "run", options=(_word("name", "NAME", "which", kind="choice",
                                   choices=("retry", "fallback", "recover", "cancel")),)),
        Verb("key", "NAME [--save]", "ask for a provider's key; kept for this kernel",
             options=(_word("name", "NAME", "the provider", complete="providers"),
                      Option(("--save",), "save", "keep it in the system's keyring", "flag")), hushed=True),
        Verb("why", "", "the last error in full: every attempt, its cause, wait and outcome",
             options=(_RUN,)),
        Verb("config", "", "all settings, the front end guessed and proven"),
        Verb("show", "[RUN]", "the output of a run again; no request", options=(_RUN, _SESSION)),
        Verb("doctor", "", "what is installed, usable and where things are; no network"),
        Verb("resume", "[RUN] [--force]", "go on with a run that was broken off", "run",
             options=(_RUN, Option(("--force",), "force", "although another process seems to work on it, "
                                   "or its tools are not here", "flag"), _SESSION)),
        Verb("help", "[VERB]", "this list, or one verb",
             options=(_word("verb", "VERB", "which", complete="verbs"),)),
        Verb("version", "", "versions"),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """A line that was read: the verb and its arguments."""

    verb: Verb
    arguments: Mapping[str, Any]


def read_line(line: str, names: Mapping[str, Any] | None = None) -> Call:
    """Read what follows ``%agent``.

    Args:
        names: Variables for ``{{name}}`` in the arguments of a verb, by the rule of prompts
            (D7); None inserts nothing. A question is inserted into when it is asked.

    Returns:
        Bare: ``status``. A verb with its arguments. A text of three words or more, or one that
        ends in ``?``, whose first word is no verb: ``ask``.

    Raises:
        UsageError: Anything else; the text names the nearest verb and what to type.
        InsertionError: A ``{{name}}`` that is not there.
    """
    text = line.strip()
    if not text:
        return Call(VERBS["status"], {})
    first, rest = [*text.split(None, 1), ""][:2]
    asked = first.rstrip("?")
    if asked in VERBS and (asked != first or rest in ("?", "??")) and not rest.rstrip("?"):
        return Call(VERBS["help"], {"verb": asked})
    verb = VERBS.get(first)
    if verb is None:
        if _KEY_VERB.match(first) and _KEY.search(text):  # never asked, never repeated (X05)
            raise _hushed(VERBS["key"])
        if len(text.split()) >= 3 or text.endswith("?"):
            return Call(VERBS["ask"], {"text": text})
        close = nearest(first, VERBS)
        typed = f"%agent {close}".rstrip() if close else "%agent help"
        raise UsageError(
            f"%agent has no verb {first!r}; nothing was sent.\n"
            f"Type:  {typed}     or to ask it:  %agent ask {text}"
        )
    if verb.text:
        flags, rest = _leading_flags(verb, rest)
        if verb.needs_text and not rest:
            raise UsageError(
                f"%agent {first} needs a text; nothing was sent.\nType:  %agent ask TEXT"
            )
        if names is not None and verb.name != "ask":
            rest = insert(rest, names, hint=LINE_HINT).text
        return Call(verb, {**flags, **({"text": rest} if rest else {})})
    return Call(verb, _arguments(verb, rest, names))


def _leading_flags(verb: Verb, rest: str) -> tuple[dict[str, Any], str]:
    """Flags before a text, and the text; ``--`` ends them. What is no flag of the verb is text."""
    flags: dict[str, Any] = {}
    known = {name: option for option in verb.options for name in option.flags}
    while known and rest:
        word, _, after = rest.partition(" ")
        if word == "--":
            return flags, after.lstrip()
        if word not in known:
            break
        flags[known[word].dest] = True
        rest = after.lstrip()
    return flags, rest


def _arguments(verb: Verb, rest: str, names: Mapping[str, Any] | None) -> dict[str, Any]:
    command = f"%agent {verb.name}"
    server = _MCP.search(rest) if verb.name == "tools" else None
    if server is not None:  # what follows is the server's own command, dashes and all
        values, _ = parse_options(command, rest[: server.start()], verb.options, names)
        words = rest[server.start() :].strip()
        if names is not None:
            words = insert(words, names, hint=LINE_HINT, place=shlex.quote).text
        return {**values, "names": (words,)}
    to_ask = f"or to ask it:  %agent ask {verb.name} {rest}"
    try:
        values, left = parse_options(command, rest, verb.options, names)
    except UsageError as error:
        if verb.hushed:
            raise _hushed(verb) from None
        if rest.startswith("-") or " -" in rest:
            raise
        raise UsageError(f"{error.message}     {to_ask}") from None
    if left and verb.hushed:
        raise _hushed(verb)
    if left:
        takes = f"takes {verb.usage}" if verb.usage else "takes no arguments"
        raise UsageError(
            f"{command} {takes}; {rest!r} is not that.\nType:  {command}?     {to_ask}"
        )
    return values


def _hushed(verb: Verb) -> UsageError:
    return UsageError(
        f"%agent {verb.name} takes {verb.usage} and asks for the rest; nothing was kept.\n"
        f"Type:  %agent {verb.name} openai     and delete this cell if a key stands in it"
    )


def verb_help(name: str | None = None) -> str:
    """The help of one verb, or the list of all.

    Raises:
        UsageError: There is no such verb.
    """
    if name is None:
        width = max(len(f"{v.name} {v.usage}") for v in VERBS.values() if len(v.usage) < 30)
        lines = [
            f"  {f'{v.name} {v.usage}':<{width}}  {v.summary}".rstrip() for v in VERBS.values()
        ]
        head = [
            "%agent VERB [arguments]",
            "A line that is no verb and has three words or more is asked.",
            "",
        ]
        return "\n".join(
            [*head, *lines, "", "Options of cells:  %%agent?     One verb:  %agent help VERB"]
        )
    verb = VERBS.get(name.rstrip("?"))
    if verb is None:
        close = nearest(name, VERBS)
        raise UsageError(f"There is no verb {name!r}.\nType:  %agent help {close or ''}".rstrip())
    lines = [f"%agent {verb.name} {verb.usage}".rstrip(), f"  {verb.summary}"]
    if verb.options:
        lines += ["", *option_lines(verb.options)]
    return "\n".join(lines)
