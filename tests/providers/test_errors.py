"""The classification table and the Retry-After parser."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_agent.errors import ErrorKind as K
from notebook_agent.errors import ProviderError, error_from_json
from notebook_agent.providers.errors import (
    classify,
    error_object,
    from_error_object,
    from_response,
)
from notebook_agent.providers.retry_after import parse_retry_after

NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z


def refused(status: int, body: object = b"", headers=()) -> ProviderError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return from_response(status, headers, data, host="api.example", wall=lambda: NOW)


@pytest.mark.parametrize(
    "message",
    [
        "Too many tokens, please wait before trying again.",
        "rate limit reached: too many tokens per minute",
        "You may upgrade for $20 per month. Limit: 3 / min",
    ],
)
@pytest.mark.parametrize("status", [429, None])
def test_R02_a_limit_of_tokens_by_the_minute_is_a_rate_limit(status, message):
    """L58.1: no compaction makes room in it, and waiting does."""
    document = {"error": {"message": message, "code": "rate_limit_exceeded"}}
    error = refused(429, document) if status else from_error_object(document)
    assert error.is_rate_limited
    assert error.is_retryable
    assert not error.overflow


@pytest.mark.parametrize(
    "message",
    [
        "Your account has exceeded its monthly quota",
        "You have reached your weekly usage limit",
        "A trial key is limited to 1000 API calls / month",
    ],
)
def test_R02_a_quota_of_weeks_is_an_empty_purse(message):
    error = refused(429, {"error": {"message": message}})
    assert error.quota
    assert not error.is_retryable


@pytest.mark.parametrize("word", ["insufficient_quota", "context_length_exceeded"])
def test_B38_an_error_inside_a_stream_has_no_status_of_our_own_making(word):
    error = from_error_object({"error": {"code": word, "message": "m"}})
    assert error.status == (429 if word == "insufficient_quota" else None)
    assert not error.is_retryable


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, K.BAD_REQUEST, False),
        (401, K.AUTHENTICATION, False),
        (402, K.PROVIDER, False),
        (403, K.AUTHENTICATION, False),
        (404, K.BAD_REQUEST, False),
        (405, K.BAD_REQUEST, False),
        (408, K.TIMEOUT, True),
        (409, K.BAD_REQUEST, False),
        (413, K.BAD_REQUEST, False),
        (418, K.BAD_REQUEST, False),
        (422, K.BAD_REQUEST, False),
        (429, K.RATE_LIMITED, True),
        (500, K.PROVIDER, True),
        (502, K.PROVIDER, True),
        (503, K.OVERLOADED, True),
        (504, K.PROVIDER, True),
        (520, K.PROVIDER, True),
        (529, K.OVERLOADED, True),
        (304, K.PROVIDER, False),
    ],
)
@pytest.mark.parametrize("body", [b"", b"nope", {"error": {"message": "words", "type": "x"}}])
def test_status(status, kind, retryable, body):
    error = refused(status, body)
    assert (error.kind, error.status, error.is_retryable) == (kind, status, retryable)
    assert error.message


QUOTAS = [
    (429, {"error": {"type": "insufficient_quota", "code": "insufficient_quota", "message": "You exceeded your current quota"}}),
    (402, {"error": {"message": "Insufficient Balance", "type": "unknown_error"}}),
    (402, {"error": {"message": "Payment required", "code": 402}}),
    (400, {"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low to access the API."}}),
    (403, {"error": {"message": "Insufficient credits. Add more.", "code": 403}}),
    (429, {"error": {"message": "Rate limit reached for model x on tokens per day (TPD): Limit 100000, Used 99999", "code": "rate_limit_exceeded"}}),
    (429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "quota", "details": [{"violations": [{"quotaId": "GenerateRequestsPerDayPerProject-FreeTier"}]}]}}),
    (429, {"error": {"code": "billing_hard_limit_reached", "message": "Billing hard limit has been reached"}}),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body"), QUOTAS)
def test_R02_an_empty_purse_is_permanent(status, body):
    error = refused(status, body, [("retry-after", "20")])
    assert error.quota
    assert error.kind is K.PROVIDER
    assert not error.is_retryable
    assert not error.is_rate_limited
    assert error.retry_after is None


def test_R02_a_minute_quota_is_a_rate_limit():
    body = {
        "error": {
            "code": 429,
            "status": "RESOURCE_EXHAUSTED",
            "message": "You exceeded your current quota, please check your plan and billing details.",
            "details": [
                {"violations": [{"quotaId": "GenerateContentInputTokensPerModelPerMinute"}]},
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "48.5s"},
            ],
        }
    }
    error = refused(429, body)
    assert error.kind is K.RATE_LIMITED
    assert error.is_rate_limited
    assert error.retry_after == 48.5
    assert refused(429, body, [("retry-after", "3")]).retry_after == 3


OVERFLOWS = [
    (400, {"error": {"code": "context_length_exceeded", "message": "Your input exceeds the context window"}}),
    (400, {"error": {"message": "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens"}}),
    (400, {"error": {"type": "exceed_context_size_error", "message": "the request exceeds the available context size", "n_ctx": 8192}}),
    (400, {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"}}),
    (400, {"error": {"message": "prompt too long; exceeded max context length by 9 tokens"}}),
    (400, {"error": {"type": "too_many_prompt_tokens", "message": "The total length of all messages is too long."}}),
    (400, {"error": {"message": "The input token count (1250074) exceeds the maximum number of tokens allowed (1048576)."}}),
    (400, {"error": {"message": "input is too long for requested model"}}),
    (413, {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}),
    (413, b"<html><head><title>413 Request Entity Too Large</title></head></html>"),
    (413, {"error": {"message": "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 9000", "code": "rate_limit_exceeded"}}),
    (429, {"error": {"message": "Request too large for gpt-x on tokens per min (TPM): Limit 30000, Requested 60000.", "code": "rate_limit_exceeded"}}),
    (422, {"error": {"message": "Too many tokens in prompt: the context window is 4096"}}),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body"), OVERFLOWS)
def test_too_long_is_recognised(status, body):
    error = refused(status, body)
    assert error.overflow
    assert error.kind is K.BAD_REQUEST
    assert not error.is_retryable
    assert not error.is_rate_limited


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "no access to the context window feature"),
        (500, "context length service failed"),
        (400, "max_tokens is too large: 5000. This model supports at most 4096 completion tokens"),
        (400, "Unknown parameter: 'temprature'"),
        (429, "Rate limit reached for requests per min"),
    ],
)
def test_not_every_text_is_an_overflow(status, message):
    assert not refused(status, {"error": {"message": message}}).overflow


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.", "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}},
        {"code": "invalid-argument", "error": "Incorrect API key provided. You can obtain an API key from the console."},
        {"error": {"message": "Invalid API Key", "code": "invalid_api_key"}},
    ],
)  # fmt: skip
def test_a_wrong_key_is_400_at_some(body):
    error = refused(400, body)
    assert error.kind is K.AUTHENTICATION
    assert not error.is_retryable


@pytest.mark.parametrize(
    ("document", "kind", "retryable"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}, K.OVERLOADED, True),
        ({"error": {"code": "server_error", "message": "boom"}}, K.PROVIDER, True),
        ({"error": {"code": 502, "message": "upstream"}}, K.PROVIDER, True),
        ({"error": {"code": "503", "message": "upstream"}}, K.OVERLOADED, True),
        ({"error": {"code": 429, "message": "slow down"}}, K.RATE_LIMITED, True),
        ({"error": {"type": "rate_limit_error", "message": "slow down"}}, K.RATE_LIMITED, True),
        ({"error": {"message": "Rate limit exceeded"}}, K.RATE_LIMITED, True),
        ({"error": "model is overloaded"}, K.OVERLOADED, True),
        ({"error": {"type": "invalid_request_error", "message": "bad", "status_code": 400}}, K.BAD_REQUEST, False),
        ({"error": {"type": "invalid_request_error", "message": "bad"}}, K.BAD_REQUEST, False),
        ({"error": {"type": "authentication_error", "message": "bad"}}, K.AUTHENTICATION, False),
        ({"error": {"type": "timeout_error", "message": "slow"}}, K.TIMEOUT, True),
        ({"error": {"code": 503, "status": "UNAVAILABLE", "message": "busy"}}, K.OVERLOADED, True),
        ({"error": {"message": "who knows"}}, K.PROVIDER, True),
        ({"error": {"type": "insufficient_quota", "message": "empty"}}, K.PROVIDER, False),
        ({"error": {"code": "context_length_exceeded", "message": "too long", "type": "invalid_request_error"}}, K.BAD_REQUEST, False),
        ({"type": "error", "code": "server_error", "message": "The server had an error", "param": None}, K.PROVIDER, True),
        ([{"error": {"code": 500, "message": "x", "status": "INTERNAL"}}], K.PROVIDER, True),
        ({"object": "error", "message": "bad things", "code": 400}, K.BAD_REQUEST, False),
        ({"detail": "Invalid API Key"}, K.AUTHENTICATION, False),
    ],
)  # fmt: skip
def test_S10_errors_inside_a_stream(document, kind, retryable):
    error = from_error_object(document)
    assert error is not None
    assert (error.kind, error.is_retryable) == (kind, retryable)
    assert error.retry_after is None


def test_S10_the_words_are_the_providers():
    error = from_error_object(
        {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    )
    assert (error.error_type, error.message) == ("overloaded_error", "busy")


@pytest.mark.parametrize("document", [None, 3, "x", [], {}, {"choices": []}, {"error": None}])
def test_no_error_object(document):
    assert error_object(document) is None
    assert from_error_object(document) is None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            b"<!DOCTYPE html><html><title>\n Bad  gateway </title>",
            'an HTML page titled "Bad gateway"',
        ),
        (b"<html>hi", "an HTML page: a proxy"),
        (b"", "an empty body"),
        (
            b"upstream connect error\n or disconnect",
            "HTTP 502: upstream connect error or disconnect",
        ),
        (b"\xff\xfe\x00", "HTTP 502"),
        (b"[" * 100_000, "HTTP 502"),
    ],
)
def test_bodies_that_are_no_json(body, words):
    error = refused(502, body)
    assert words in error.message
    assert "api.example" in error.message
    assert error.is_retryable
    assert len(error.message) < 500


def test_validation_errors_as_a_list():
    error = refused(422, {"detail": [{"loc": ["body", "model"], "msg": "field required"}]})
    assert "field required" in error.message


WAITS = [
    ("2", 2.0),
    ("0.5", 0.5),
    (" 3 ", 3.0),
    ("0", 0.0),
    ("+4", 4.0),
    (".5", 0.5),
    ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
    ("Thu, 01 Jan 2026 00:00:04 GMT", 4.0),
    ("Thu, 01 Jan 2026 00:00:04 -0000", 4.0),
    ("Thu, 01 Jan 2026 02:00:04 +0200", 4.0),
    ("Thursday, 01-Jan-26 00:00:04 GMT", 4.0),
    ("-5", None),
    ("-0.5", None),
    ("soon", None),
    ("", None),
    ("   ", None),
    ("1e3", None),
    ("nan", None),
    ("inf", None),
    ("1_000", None),
    ("٣", None),
    ("2s", None),
    ("99 Foo 2026 99:99:99 GMT", None),
    ("10800", 10800.0),
    ("99999999999", 99999999999.0),
    ("2, 5", 5.0),
    ("soon, 5", 5.0),
]


@pytest.mark.parametrize(("value", "expected"), WAITS)
def test_R01_retry_after(value, expected):
    assert parse_retry_after([("retry-after", value)], lambda: NOW) == expected
    assert refused(429, b"", [("Retry-After", value)]).retry_after == expected


def test_R01_milliseconds_win_and_repeats_take_the_longest():
    both = [("retry-after", "60"), ("retry-after-ms", "1500")]
    assert parse_retry_after(both, lambda: NOW) == 1.5
    assert parse_retry_after(list(reversed(both)), lambda: NOW) == 1.5
    assert parse_retry_after([("retry-after-ms", "x"), ("retry-after", "7")], lambda: NOW) == 7
    assert parse_retry_after([("retry-after", "1"), ("retry-after", "9")], lambda: NOW) == 9
    assert parse_retry_after([], lambda: NOW) is None


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "1m2.5s")], 62.5),
        ([("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "120ms")], 0.12),
        ([("x-ratelimit-remaining-tokens", "9"), ("x-ratelimit-reset-tokens", "120ms")], None),
        ([("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", str(int(NOW + 5) * 1000))], 5.0),
        ([("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "soon")], None),
        ([("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "9s"), ("retry-after", "2")], 2.0),
    ],
)  # fmt: skip
def test_R01_the_reset_of_a_limit_stands_in(headers, expected):
    assert parse_retry_after(headers, lambda: NOW) == expected


@given(st.text(max_size=40))
def test_R01_no_value_raises(value):
    found = parse_retry_after([("retry-after", value), ("retry-after-ms", value)], lambda: NOW)
    assert found is None or found >= 0


@pytest.mark.parametrize(
    ("status", "word", "retryable"),
    [(503, "false", False), (400, "true", True), (429, "FALSE", False), (503, "perhaps", True)],
)
def test_the_providers_own_word_on_retrying(status, word, retryable):
    error = refused(status, b"", [("x-should-retry", word)])
    assert error.is_retryable is retryable
    assert error.is_rate_limited is (status == 429 and retryable)


def test_an_error_survives_its_record():
    error = refused(429, {"error": {"message": "slow", "type": "t"}}, [("retry-after", "2")])
    error.hint = "type this"
    again = error_from_json(json.loads(json.dumps(error.to_json())))
    assert again == error
    assert str(again) == "slow\ntype this"
    older = error_from_json({"error": "ProviderError", "kind": "overloaded", "message": "m", "status": 503, "quota": False, "overflow": False})  # fmt: skip
    assert older.is_retryable


@given(st.integers(100, 999), st.binary(max_size=200))
def test_any_answer_has_an_error(status, body):
    error = from_response(status, [], body, host="h", wall=lambda: NOW)
    assert isinstance(error.message, str)
    assert error.message


def test_L69_classify_is_the_one_table():
    from notebook_agent.providers.errors import Refusal

    assert classify(None, Refusal("x", ("overloaded_error",))).kind is K.OVERLOADED
    assert classify(200, Refusal("x", ("overloaded_error",))).kind is K.OVERLOADED
    assert classify(400, Refusal("x", ("overloaded_error",))).kind is K.BAD_REQUEST
