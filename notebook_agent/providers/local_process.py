"""Starts, shares and ends the local model's server process.

One server per model file and process, shared by all sessions. It is a child with its own process
group, so an interrupt of the kernel does not reach it, and a crash of it never takes the kernel.

Source: notebook section 6 (shared hosts, child processes end with the kernel).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from notebook_agent.errors import ErrorKind, ProviderError
from notebook_agent.providers.secret import Secret

__all__ = ["LocalServer", "ServerFacts", "ServerSettings", "default_threads", "shared_server"]

_SCRIPT: Final = Path(__file__).with_name("local_server.py")
_START_S: Final = 60.0  # longest start; half a second is usual
_POLL_S: Final = 0.02
_STOP_S: Final = 2.0
_TAIL: Final = 4_000  # characters of the child's words that an error may quote from


def default_threads() -> int:
    """One core is left to the notebook: two spinning threads on two busy cores crawl."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        cores = os.cpu_count() or 1
    return max(1, cores - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What the server is started with.

    Attributes:
        model: The .gguf file.
        name: Name it answers to.
        sha256: Checked before loading; None for a user's own file.
        threads: Compute threads.
        slots: Replies at the same time.
        n_ctx: Window in tokens, divided by the slots; 0 = the model's own for each slot.
        n_predict: Longest reply in tokens where a request does not say.
        sampling: llama.cpp's sampling parameters.
    """

    model: str
    name: str
    sha256: str | None = None
    threads: int = field(default_factory=default_threads)
    slots: int = 1
    n_ctx: int = 0
    n_predict: int = 1_024
    sampling: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What the running server said of itself; ``n_ctx`` in tokens, of one slot."""

    url: str
    pid: int
    n_ctx: int
    slots: int
    tools: bool


class LocalServer:
    """One child process. Use :func:`shared_server`.

    Attributes:
        key: The API key of this start.
        facts: Known once the server is ready.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.key = Secret("")
        self.facts: ServerFacts | None = None
        self._owner = os.getpid()
        self._process: subprocess.Popen[str] | None = None
        self._words: IO[bytes] | None = None
        self._folder: Path | None = None
        self._deadline = 0.0
        self._lock = threading.Lock()

    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def waits(self) -> Iterator[float]:
        """Start if need be, and yield seconds to sleep until the server is ready.

        Raises:
            ProviderError: It ended, or was not ready in time.
        """
        with self._lock:
            if not self.alive():
                self._start()
        while self.facts is None:
            with self._lock:
                self._look()
            if self.facts is None:
                yield _POLL_S

    def ended(self) -> str:
        """How a dead process ended, with its last words; "" while it runs."""
        process = self._process
        code = None if process is None else process.poll()
        if code is None:
            return ""
        said = [s for s in self._tail().splitlines() if s.strip()]
        last = f": {said[-1].strip()[:200]}" if said else ""
        return f"the local model's server ended with {_exit_words(code)}{last}"

    def stop(self) -> None:
        """End the process and wait for it. Another start is possible."""
        if os.getpid() != self._owner:
            return  # a fork of the kernel has no right to end it
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        process, self._process, self.facts = self._process, None, None
        if process is not None:
            _end(process)
        self._clean()
        if self._words is not None:
            self._words.close()
            self._words = None

    def _start(self) -> None:
        self._stop()  # what a dead one left: its pipe, its words
        key = secrets.token_urlsafe(32)
        here = os.path.realpath(".")
        self._folder = Path(tempfile.mkdtemp(prefix="notebook_agent-"))
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        config = {
            **asdict(self.settings),
            "sampling": dict(self.settings.sampling),
            "key": key,
            "ready": str(self._folder / "ready.json"),
            # The child finds packages where we do, but no file of the working folder
            # may stand in for a module.
            "sys_path": [p for p in sys.path if p and os.path.realpath(p) != here],
        }
        more: dict[str, Any] = {"start_new_session": True}
        if sys.platform == "win32":
            more = {"creationflags": subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP}  # fmt: skip
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and script
            [sys.executable, "-I", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._words,
            env={"OMP_WAIT_POLICY": "passive", **os.environ},
            text=True,
            **more,
        )
        self._process = process
        self.key = Secret(key)
        self._deadline = time.monotonic() + _START_S
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # ended at once: ended() tells
            process.stdin.write(json.dumps(config) + "\n")
            process.stdin.flush()

    def _look(self) -> None:
        if self.facts is not None or self._folder is None:
            return  # another thread saw it first
        with contextlib.suppress(FileNotFoundError):
            facts = ServerFacts(**json.loads((self._folder / "ready.json").read_text()))
            self._clean()
            self.facts = facts
            return
        problem = self.ended()
        if problem:
            # Not a kind that is tried again: what cannot start now cannot start in a second.
            raise ProviderError(
                ErrorKind.PROVIDER,
                problem[0].upper() + problem[1:],
                hint="See what is installed with:  !notebook-agent doctor",
            )
        if time.monotonic() > self._deadline:
            self._stop()
            raise ProviderError(
                ErrorKind.TIMEOUT, f"The local model's server was not ready in {_START_S:g} s."
            )

    def _tail(self) -> str:
        if self._words is None:
            return ""
        size = self._words.seek(0, os.SEEK_END)
        self._words.seek(max(0, size - _TAIL))
        return self._words.read().decode("utf-8", "replace")

    def _clean(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _end(process: subprocess.Popen[str]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()  # it ends by itself when its input closes
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _exit_words(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


_SERVERS: Final[dict[ServerSettings, LocalServer]] = {}
_SERVERS_LOCK: Final = threading.Lock()


def shared_server(settings: ServerSettings) -> LocalServer:
    """The server of this process for these settings; not started yet when it is new."""
    with _SERVERS_LOCK:
        server = _SERVERS.get(settings)
        if server is None or server._owner != os.getpid():
            if not _SERVERS:
                atexit.register(stop_all)
            server = _SERVERS[settings] = LocalServer(settings)
        return server


def stop_all() -> None:
    """End every server of this process."""
    with _SERVERS_LOCK:
        servers = list(_SERVERS.values())
    for server in servers:
        server.stop()


def servers() -> list[LocalServer]:
    """Every server that was asked for in this process."""
    with _SERVERS_LOCK:
        return list(_SERVERS.values())
