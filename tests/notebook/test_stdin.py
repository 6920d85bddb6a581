"""notebook/stdin.py: questions through a kernel's stdin and in a terminal (D20)."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import pytest
import zmq

from notebook_agent.notebook.road import no_asker
from notebook_agent.notebook.stdin import KernelStdin, TerminalStdin, asker_for


class Session:
    """A kernel's wire: what was sent, and the replies that wait."""

    def __init__(self, *replies, breaks=()):
        self.sent, self.replies, self.breaks = [], deque(replies), breaks

    def send(self, socket, kind, content, parent, ident):
        if "send" in self.breaks:
            raise TypeError("another signature")
        self.sent.append((socket, kind, content, parent, ident))

    def recv(self, socket, mode):
        assert (socket, mode) == ("stdin", zmq.NOBLOCK)
        if "recv" in self.breaks:
            raise ValueError("a signature that does not fit")
        if not self.replies:
            raise zmq.Again
        said = self.replies.popleft()
        return [b"front"], None if said is None else {"content": {"value": said}}


def kernel(session, *, allowed=True):
    return SimpleNamespace(
        session=session, stdin_socket="stdin", _allow_stdin=allowed,
        get_parent=lambda channel: {"of": channel}, _parent_ident={"shell": b"id"},
    )  # fmt: skip


def test_the_question_is_sent_and_the_answer_looked_for():
    session = Session()
    asker = KernelStdin(kernel(session))
    assert asker.open("Run delete(path=\x1b[31m)?") is True
    ((socket, kind, content, parent, ident),) = session.sent
    assert (socket, kind, parent, ident) == ("stdin", "input_request", {"of": "shell"}, b"id")
    assert "\x1b" not in content["prompt"]
    assert content["password"] is False
    assert asker.poll() is None
    session.replies.append("yes")
    assert asker.poll() == "yes"


def test_a_late_answer_to_an_earlier_question_is_dropped():
    session = Session("yes", "y")
    first = KernelStdin(kernel(session))
    first.close()
    asker = KernelStdin(kernel(session))
    assert asker.open("And this?")
    assert asker.poll() is None  # the stale yes is no answer to this one
    session.replies.append("no")
    assert asker.poll() == "no"


def test_a_front_end_without_stdin_is_not_asked():
    session = Session()
    assert KernelStdin(kernel(session, allowed=False)).open("?") is False
    assert session.sent == []


def test_a_kernel_of_another_kind_is_nobody_and_its_noise_is_no_yes():
    assert KernelStdin(kernel(Session(breaks=("send",)))).open("?") is False
    asker = KernelStdin(kernel(Session()))
    assert asker.open("?")
    asker._kernel.session.breaks = ("recv",)
    assert asker.poll() == ""
    empty = KernelStdin(kernel(Session(None)))
    assert empty.poll() is None


def test_the_terminal_asks_by_input(monkeypatch):
    asked = []
    monkeypatch.setattr("builtins.input", lambda prompt: asked.append(prompt) or "y")
    asker = TerminalStdin()
    assert asker.poll() is None
    assert asker.open("Run it\x07?") is True
    assert asker.poll() == "y"
    asker.close()
    assert "\x07" not in asked[0]


def test_a_terminal_at_its_end_answers_nothing(monkeypatch):
    def ended(_prompt):
        raise EOFError

    monkeypatch.setattr("builtins.input", ended)
    assert TerminalStdin().open("?") is False


class TerminalInteractiveShell:
    """By its name."""


@pytest.mark.parametrize(
    ("shell", "kind"),
    [
        (SimpleNamespace(kernel=kernel(Session())), KernelStdin),
        (TerminalInteractiveShell(), TerminalStdin),
        (SimpleNamespace(kernel=SimpleNamespace()), type(no_asker())),
        (None, type(no_asker())),
    ],
)
def test_who_is_asked(shell, kind):
    assert type(asker_for(shell)) is kind


def test_headless_nobody_answers():
    nobody = no_asker()
    assert nobody.open("?") is False
    assert nobody.poll() is None
    nobody.close()
