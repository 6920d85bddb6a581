"""errors.py: the tree, its texts, its JSON form (L66, L69, B38)."""

from __future__ import annotations

import re
import traceback

import pytest

from notebook_agent import errors
from notebook_agent.errors import ErrorKind, ProviderError, RestingModel, error_from_json

ONE_OF_EACH = [
    errors.AgentError("plain"),
    errors.Cancelled(),
    ProviderError(ErrorKind.OVERLOADED, "busy", status=529, retry_after=2.5, error_type="overloaded"),
    ProviderError(ErrorKind.UNSUPPORTED, "no tools", feature="tool_calling"),
    errors.RateLimitEscalation(4, 30.0),
    errors.FallbackExhausted([RestingModel("a:x", "2 strikes"), RestingModel("b:y", "tripped", 41.0)]),
    errors.ContextExceeded(9000, 8000),
    errors.LimitReached(16, 17),
    errors.TokenBudgetExhausted(256_000, 256_001),
    errors.LoopDetected("find(q)", 10),
    errors.InvalidTransition("PERSISTING", "Ok", ["Persisted"]),
    errors.SessionBusy("default"),
    errors.InputRejected("empty"),
    errors.ToolFailed("find", "boom"),
    errors.StructuredOutputError("Person", ["$.age: not a number"], path="$.age", raw="{}"),
    errors.StoreError("disk full"),
    errors.ConfigError(field="jitter_factor", value=2.0, legal="0 to 1"),
]  # fmt: skip


@pytest.mark.parametrize("error", ONE_OF_EACH, ids=lambda e: type(e).__name__)
def test_json_round_trip(error: errors.AgentError) -> None:
    again = error_from_json(error.to_json())
    assert type(again) is type(error)
    assert again == error
    assert str(again) == str(error)


def test_L66_every_error_of_the_tree_is_tried() -> None:
    tree = {getattr(errors, n) for n in errors.__all__ if isinstance(getattr(errors, n), type)}
    tree = {t for t in tree if issubclass(t, errors.AgentError)}
    assert tree == {type(e) for e in ONE_OF_EACH}


def test_equality_looks_at_the_fields() -> None:
    assert errors.LimitReached(1, 2) != errors.LimitReached(1, 3)
    assert errors.LimitReached(1, 2) != errors.TokenBudgetExhausted(1, 2)
    assert len({errors.Cancelled(), errors.Cancelled()}) == 1


def test_unknown_class_comes_back_as_the_root() -> None:
    assert type(error_from_json({"error": "FromTheFuture", "message": "m"})) is errors.AgentError


@pytest.mark.parametrize(
    ("kind", "status", "more", "retryable"),
    [
        (ErrorKind.AUTHENTICATION, 401, {}, False),
        (ErrorKind.BAD_REQUEST, 400, {}, False),
        (ErrorKind.RATE_LIMITED, 429, {}, True),
        (ErrorKind.RATE_LIMITED, 429, {"quota": True}, False),
        (ErrorKind.TIMEOUT, None, {}, True),
        (ErrorKind.OVERLOADED, 529, {}, True),
        (ErrorKind.UNSUPPORTED, None, {}, False),
        (ErrorKind.TRANSPORT, None, {}, True),
        (ErrorKind.DECODE, 200, {}, False),
        (ErrorKind.PROVIDER, 500, {}, True),
        (ErrorKind.PROVIDER, 408, {}, True),
        (ErrorKind.PROVIDER, 418, {}, False),
        (ErrorKind.PROVIDER, None, {}, False),
        (ErrorKind.PROVIDER, 500, {"overflow": True}, False),
    ],
)
def test_B38_retryable_by_kind_and_status(kind, status, more, retryable) -> None:
    error = ProviderError(kind, "x", status=status, **more)
    assert error.is_retryable is retryable
    assert error.is_rate_limited is (kind is ErrorKind.RATE_LIMITED and not error.quota)


def test_texts_say_what_to_do() -> None:
    text = str(errors.FallbackExhausted([RestingModel("b:y", "tripped", 41.0)]))
    assert "b:y: tripped, may be tried in 41 s" in text
    assert "%agent breaker reset" in text
    assert "9,000" in str(errors.ContextExceeded(9000, 8000))
    assert "return in 30 s" in str(errors.RateLimitEscalation(4, 30.0))
    assert "jitter_factor = 2.0 is not legal; give 0 to 1" in str(
        errors.ConfigError(field="jitter_factor", value=2.0, legal="0 to 1")
    )


def test_config_error_keeps_odd_values_as_text() -> None:
    assert errors.ConfigError(field="x", value=[1], legal="a number").value == "[1]"


def test_json_of_odd_attributes_is_plain() -> None:
    error = errors.AgentError("m")
    error.note = object()
    assert isinstance(error.to_json()["note"], str)


@pytest.mark.parametrize("kind", ["agent", "provider", "escalation", "resting"])
def test_X03_an_error_shows_no_control_codes_and_keeps_the_original(kind) -> None:
    """Tracebacks, ``print(error)`` and logs cannot be steered by a provider's words."""
    raw = "a\x1b]8;;https://evil.example\x07ok\x1b[2J\x9b31m\rb\x08\nsecond\tline"
    error = {
        "agent": errors.AgentError(raw),
        "provider": errors.ProviderError(errors.ErrorKind.PROVIDER, raw, hint=raw),
        "escalation": errors.RateLimitEscalation(2, 1.0, raw),
        "resting": errors.FallbackExhausted([errors.RestingModel(raw, raw)]),
    }[kind]
    shown = str(error) + "".join(traceback.format_exception(error))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)
    assert "second\tline" in shown
    assert raw in error.message
    assert errors.error_from_json(error.to_json()) == error
