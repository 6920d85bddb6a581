"""The panel's kernel side without a browser: handshake, keyframes, Stop, losses, freeze."""

from __future__ import annotations

import threading
from typing import Any

import ipywidgets
import pytest

from notebook_agent.notebook import frontend
from notebook_agent.notebook.output import bundle, metadata
from notebook_agent.notebook.panel import AgentPanel, close_panels, get_panel
from notebook_agent.notebook.panel_state import PanelState
from notebook_agent.notebook.reducer import reduce, reduce_all
from notebook_agent.notebook.sinks.panel_sink import KEYFRAMES_S, PanelSink
from tests.notebook.recorded import recorded
from tests.notebook.test_wire import View

RUNS = recorded()


# ipywidgets 7 opens no comm outside a kernel; kernels with it have tests of their own (compat).
NO_COMM = ipywidgets.__version__.startswith("7.")


class Recorded(AgentPanel):
    """A panel whose messages are kept."""

    gone = False

    @property
    def alive(self) -> bool:
        return not self.gone if NO_COMM else super().alive

    def close(self) -> None:
        self.gone = True
        super().close()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.sent: list[dict] = []
        super().__init__(*args, **kwargs)

    def send(self, content, buffers=None):
        self.sent.append(content)

    def ops(self) -> list[dict]:
        return [op for message in self.sent for op in message["ops"]]

    def kinds(self) -> list[str]:
        return [op["t"] for op in self.ops()]


class Ground:
    """A sink with a clock of its own and a display that keeps what it is given."""

    def __init__(self) -> None:
        self.panel = Recorded()
        self.t = 0.0
        self.shown: list[dict] = []
        self.stopped = 0
        self.sink = PanelSink(self._get, display=self._display, now=lambda: self.t)
        self.sink.on_stop = self._stop
        self.state = PanelState()

    def _get(self):
        if not self.panel.alive:
            self.panel = Recorded()
        return self.panel

    def _display(self, data, *, metadata, display_id=None, update=False):
        self.shown.append(dict(data=data, meta=metadata, id=display_id, update=update))

    def _stop(self) -> None:
        self.stopped += 1

    def play(self, name: str, *, close: bool = True, upto: int | None = None) -> None:
        for i, event in enumerate(RUNS[name][:upto]):
            self.state = reduce(self.state, event)
            if i == 0:
                self.sink.open(self.state)
            self.sink.update(self.state)
        if close:
            self.sink.close(self.state, None)

    def hear(self, **said: Any) -> None:
        self.panel._heard(self.panel, said, None)


@pytest.fixture(autouse=True)
def clean():
    frontend._HELLO.clear()
    yield
    frontend._HELLO.clear()
    close_panels()


@pytest.mark.parametrize("name", RUNS)
def test_the_view_ends_with_the_final_state_and_the_cell_with_the_bundle(name: str) -> None:
    ground = Ground()
    ground.play(name)
    view = View()
    view.take(ground.panel.ops())
    assert view.state["status"] == ground.state.status
    first, last = ground.shown[0], ground.shown[-1]
    assert "application/vnd.jupyter.widget-view+json" in first["data"]
    assert "its text is not here" in first["data"]["text/plain"]
    assert "%agent show run_0" in first["data"]["text/html"]
    assert last["data"] == bundle(ground.state)  # no widget view in it (D15)
    assert last["update"]
    assert last["id"] == first["id"]
    assert first["meta"] == last["meta"] == metadata(ground.state)
    assert [m["seq"] for m in ground.panel.sent] == list(range(1, len(ground.panel.sent) + 1))


def test_hello_is_answered_and_proves_the_front_end() -> None:
    ground = Ground()
    ground.play("streaming", close=False)
    ground.hear(t="hello", nonce="n1", versions={"lab": "4"})
    assert "hi" not in ground.panel.kinds()  # the handler's thread only sets a flag (D5)
    ground.sink.update(ground.state)
    hi = [op for op in ground.panel.ops() if op["t"] == "hi"]
    assert hi == [{"t": "hi", "nonce": "n1", "stop": True}]
    assert ground.panel.kinds()[-1] == "full"
    assert frontend.proven()["versions"] == {"lab": "4"}


def test_a_late_hello_is_alive_but_never_stoppable() -> None:
    ground = Ground()
    ground.play("completed")
    ground.hear(t="hello", nonce="late")
    assert [op for op in ground.panel.ops() if op["t"] == "hi"] == [
        {"t": "hi", "nonce": "late", "stop": False}
    ]


def test_stop_from_any_thread_reaches_the_signal_once_a_run_is_there() -> None:
    ground = Ground()
    ground.play("streaming", close=False)
    run = ground.panel._wire.run
    thread = threading.Thread(target=ground.hear, kwargs=dict(t="stop", run=run))
    thread.start()
    thread.join()
    assert ground.stopped == 1
    ground.hear(t="stop", run=run - 1)  # a click on an older run
    assert ground.stopped == 1
    ground.sink.close(ground.state, None)
    ground.hear(t="stop", run=run)
    assert ground.stopped == 1


def test_F2_keyframes_until_hello_is_answered() -> None:
    ground = Ground()
    ground.play("connecting", close=False)
    before = ground.panel.kinds().count("full")
    at = []
    for i in range(600):
        ground.t = i / 30
        ground.sink.update(ground.state)
        now = ground.panel.kinds().count("full")
        if now > before:
            at.append(ground.t)
            before = now
    for got, wanted in zip(at, [*KEYFRAMES_S, 8.0, 13.0, 18.0], strict=True):
        assert wanted <= got < wanted + 0.05
    ground.hear(t="hello", nonce="x")
    ground.sink.update(ground.state)
    count = ground.panel.kinds().count("full")
    ground.t = 60.0
    ground.sink.update(ground.state)
    assert ground.panel.kinds().count("full") == count


def test_resync_is_answered_with_everything() -> None:
    ground = Ground()
    ground.play("streaming", close=False)
    ground.hear(t="resync", seq=3)
    ground.sink.update(ground.state)
    view = View()
    view.take(ground.panel.sent[-1]["ops"])
    assert view.tail.endswith("one jumps by 0.9")


def test_odd_messages_are_ignored() -> None:
    ground = Ground()
    ground.play("streaming", close=False)
    for said in ({}, {"t": "eval"}, {"t": ["stop"]}, {"t": None}, {"t": "hello"}):
        ground.panel._heard(ground.panel, said, None)
    for said in (None, "stop", 3, ["stop"]):
        ground.panel._heard(ground.panel, said, None)
    ground.sink.update(ground.state)
    assert ground.stopped == 0


def test_the_comm_closed_in_mid_run() -> None:
    """A new panel takes its place in the same cell and shows the whole state."""
    ground = Ground()
    ground.play("completed", close=False, upto=20)
    old = ground.panel
    old.close()
    for event in RUNS["completed"][20:]:
        ground.state = reduce(ground.state, event)
        ground.sink.update(ground.state)
    ground.sink.close(ground.state, None)
    assert ground.panel is not old
    view = View()
    view.take(ground.panel.ops())
    assert view.state["status"] == "completed"
    assert ground.shown[-1]["data"] == bundle(reduce_all(RUNS["completed"]))
    assert len({call["id"] for call in ground.shown}) == 1


def test_a_panel_that_cannot_be_told_the_end_still_leaves_its_frozen_output(caplog) -> None:
    ground = Ground()
    ground.play("streaming", close=False)

    def broken(_state):
        raise OSError("the socket is gone")

    ground.panel.finish = broken
    ground.sink.close(ground.state, None)
    assert ground.shown[-1]["data"] == bundle(ground.state)
    assert "could not be told the end" in caplog.text


def test_a_run_that_never_began_shows_its_end_all_the_same() -> None:
    ground = Ground()
    ground.sink.update(ground.state)  # before it is open there is nothing to tell
    ground.sink.close(ground.state, None)
    (only,) = ground.shown
    assert only["data"] == bundle(ground.state)
    assert not only["update"]
    ground.sink.on_stop = None
    ground.sink._stop()  # a click that nobody listens to


def test_the_final_snapshot_is_redacted_and_not_sent() -> None:
    ground = Ground()
    ground.play("completed")
    kept = str(ground.panel.final)
    assert "Two stretches" in kept
    assert "Flat runs first" not in kept
    assert "744 rows" not in kept
    assert ground.panel.get_state(["final"])["final"] == ground.panel.final
    assert not ground.panel._should_send_property("final", {})


def test_one_panel_per_session() -> None:
    one = get_panel("a")
    assert get_panel("a") is one
    assert get_panel("b") is not one
    assert close_panels("a") == 1
    assert get_panel("a") is not one


def test_repr_holds_no_address() -> None:
    panel = get_panel("a")
    assert repr(panel) == "agent panel of session 'a': connecting"
    data, _ = panel._repr_mimebundle_()
    assert "0x" not in data["text/plain"]
