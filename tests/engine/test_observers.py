"""L113, L114: the hub."""

from __future__ import annotations

import dataclasses
import logging

import pytest

from notebook_agent.engine import observers as obs
from notebook_agent.engine.observers import CALLBACKS, Observer, ObserverHub

L113 = {
    "on_run_start", "on_turn_start", "on_text_delta", "on_thinking_delta", "on_response",
    "on_stream_success", "on_stream_failure", "on_fallback", "on_model_switched", "on_turn_end",
    "on_tool_call_received", "on_tool_pre", "on_tool_post", "on_compaction", "on_loop_detected",
    "on_convergence_detected", "on_run_end", "reset", "on_attempt_reset",
}  # fmt: skip


def recording(*names):
    log = []

    def method(name):
        return lambda self, ctx=None: log.append((self.tag, name, ctx))

    kind = type("Recording", (Observer,), {name: method(name) for name in names})

    def make(tag):
        one = kind()
        one.tag = tag
        return one

    return log, make


def test_L113_every_callback_is_there():
    assert set(CALLBACKS) >= L113
    assert set(CALLBACKS) - L113 == {"on_state", "on_event"}  # ours


def test_an_observer_that_overrides_nothing_is_never_called():
    hub = ObserverHub([Observer()])
    for name in CALLBACKS:
        assert not hub.hears(name)
        hub.fire(name, object())


@pytest.mark.parametrize("name", CALLBACKS)
def test_L114_registration_order_and_twice_means_twice(name):
    log, make = recording(name)
    a, b = make("a"), make("b")
    hub = ObserverHub([a, b])
    hub.add(a)
    hub.fire(name, 7)
    assert log == [(tag, name, 7) for tag in "aba"]
    assert hub.hears(name)


def test_L114_an_exception_is_logged_with_its_name_and_the_walk_goes_on(caplog):
    class Clumsy(Observer):
        def on_text_delta(self, ctx):
            raise RuntimeError("oops")

    log, make = recording("on_text_delta")
    hub = ObserverHub([Clumsy(), make("a")])
    with caplog.at_level(logging.ERROR):
        hub.fire("on_text_delta", 1)
    assert log == [("a", "on_text_delta", 1)]
    assert "Clumsy" in caplog.text
    assert "on_text_delta" in caplog.text
    assert "oops" in caplog.text


def test_a_keyboard_interrupt_in_an_observer_is_not_swallowed():
    class Stop(Observer):
        def on_text_delta(self, ctx):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ObserverHub([Stop()]).fire("on_text_delta", 1)


def test_any_object_with_some_of_the_methods_will_do():
    class Duck:
        seen = ()

        def on_run_end(self, ctx):
            self.seen = (*self.seen, ctx)

    duck = Duck()
    hub = ObserverHub([duck])
    hub.fire("on_run_end", 1)
    hub.fire("on_run_start", 2)
    assert duck.seen == (1,)


def test_remove_takes_one_registration_out():
    log, make = recording("on_run_end")
    a, b = make("a"), make("b")
    hub = ObserverHub([a, b, a])
    hub.remove(a)
    hub.fire("on_run_end")
    assert [tag for tag, *_ in log] == ["b", "a"]
    hub.remove(object())
    hub.remove(a)
    hub.remove(b)
    assert not hub.hears("on_run_end")


def test_L114_contexts_cannot_be_changed_but_for_the_two_made_per_delta():
    contexts = [
        kind for kind in vars(obs).values()
        if dataclasses.is_dataclass(kind) and kind.__module__ == obs.__name__
    ]  # fmt: skip
    loose = {kind.__name__ for kind in contexts if not kind.__dataclass_params__.frozen}
    assert len(contexts) > 15
    assert loose == {"TextDelta", "ThinkingDelta"}
