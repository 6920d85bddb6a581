"""OwnCell: output of a background run belongs to its cell, whichever way the kernel keeps that."""

from __future__ import annotations

from contextvars import ContextVar

import pytest

from notebook_agent.notebook.own_cell import OwnCell


class GlobalParent:
    """The shell of ipykernel 6: one parent for the whole kernel."""

    def __init__(self) -> None:
        self.parent = {"header": {"msg_id": "one"}}
        self.log: list[str] = []

    def get_parent(self):
        return self.parent

    def set_parent(self, parent) -> None:
        self.parent = parent
        self.log.append(parent["header"]["msg_id"])


class OwnParent(GlobalParent):
    """The shell of ipykernel 7: a context variable."""

    def __init__(self) -> None:
        super().__init__()
        self.variable = ContextVar("parent", default=self.parent)

    def get_parent(self):
        return self.variable.get()

    def set_parent(self, parent) -> None:
        super().set_parent(parent)
        self.variable.set(parent)


@pytest.mark.parametrize("kind", [GlobalParent, OwnParent])
def test_N05_drawn_for_the_cell_that_began(kind) -> None:
    shell = kind()
    one = shell.get_parent()
    cell = OwnCell(shell)
    two = {"header": {"msg_id": "two"}}
    shell.set_parent(two)
    assert cell.run(shell.get_parent) is one
    assert shell.get_parent() is two


def test_N05_the_running_cell_gets_its_own_back_after_an_error() -> None:
    shell = GlobalParent()
    cell = OwnCell(shell)
    two = {"header": {"msg_id": "two"}}
    shell.set_parent(two)
    with pytest.raises(ZeroDivisionError):
        cell.run(lambda: 1 // 0)
    assert shell.get_parent() is two


def test_nothing_is_switched_in_the_cell_itself_or_without_a_kernel() -> None:
    shell = GlobalParent()
    assert OwnCell(shell).run(lambda: 3) == 3
    assert shell.log == []
    assert OwnCell(None).run(lambda: 4) == 4
    assert OwnCell(object()).run(lambda: 5) == 5


def test_a_cell_draws_while_it_draws() -> None:
    """Two threads, or a drawing within a drawing: a context is entered once only."""
    cell = OwnCell(GlobalParent())
    assert cell.run(lambda: cell.run(lambda: "both")) == "both"
