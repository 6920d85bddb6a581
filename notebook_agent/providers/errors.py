"""What a provider's refusal means: one table from status, type and text to a ProviderError.

Source: LLM turn, "StreamHandler" (L58, L66, L69, L70); Turn FSM, "CallingModel" (B38).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from notebook_agent.errors import ErrorKind, ProviderError
from notebook_agent.providers.retry_after import parse_retry_after

__all__ = [
    "Refusal",
    "classify",
    "error_object",
    "from_error_object",
    "from_response",
    "malformed",
    "refusal_of",
    "stray_refusal",
    "truncated",
]

K = ErrorKind

# HTTP status -> kind; a status not here goes by its hundreds.
KIND_OF_STATUS: Final[Mapping[int, ErrorKind]] = {
    401: K.AUTHENTICATION,
    402: K.PROVIDER,  # payment required: a quota, see below
    403: K.AUTHENTICATION,
    408: K.TIMEOUT,
    429: K.RATE_LIMITED,
    503: K.OVERLOADED,
    529: K.OVERLOADED,
}
KIND_OF_HUNDRED: Final[Mapping[int, ErrorKind]] = {
    3: K.PROVIDER,
    4: K.BAD_REQUEST,
    5: K.PROVIDER,
}


class Word(NamedTuple):
    """A row: what the provider's type, code or status word says, with the status it stands for."""

    kind: ErrorKind
    status: int | None = None


# The provider's own type, code or status word -> kind. Used where there is no HTTP status (an
# error inside a stream) and for words that say more than their status does.
KIND_OF_WORD: Final[Mapping[str, Word]] = {
    "api_error": Word(K.PROVIDER, 500),
    "authentication_error": Word(K.AUTHENTICATION),
    "billing_error": Word(K.PROVIDER, 402),
    "deadline_exceeded": Word(K.TIMEOUT),
    "engine_overloaded": Word(K.OVERLOADED),
    "engine_overloaded_error": Word(K.OVERLOADED),
    "internal": Word(K.PROVIDER, 500),
    "internal_error": Word(K.PROVIDER, 500),
    "internal_server_error": Word(K.PROVIDER, 500),
    "invalid_argument": Word(K.BAD_REQUEST),
    "invalid_prompt": Word(K.BAD_REQUEST),
    "invalid_request_error": Word(K.BAD_REQUEST),
    "model_not_found": Word(K.BAD_REQUEST),
    "not_found": Word(K.BAD_REQUEST),
    "not_found_error": Word(K.BAD_REQUEST),
    "overloaded": Word(K.OVERLOADED),
    "overloaded_error": Word(K.OVERLOADED),
    "permission_denied": Word(K.AUTHENTICATION),
    "permission_error": Word(K.AUTHENTICATION),
    "rate_limit_error": Word(K.RATE_LIMITED),
    "rate_limit_exceeded": Word(K.RATE_LIMITED),
    "rate_limited": Word(K.RATE_LIMITED),
    "ratelimitreached": Word(K.RATE_LIMITED),
    "request_too_large": Word(K.BAD_REQUEST),
    "resource_exhausted": Word(K.RATE_LIMITED),
    "server_error": Word(K.PROVIDER, 500),
    "server_overloaded": Word(K.OVERLOADED),
    "service_unavailable": Word(K.OVERLOADED),
    "slow_down": Word(K.OVERLOADED),
    "timeout": Word(K.TIMEOUT),
    "timeout_error": Word(K.TIMEOUT),
    "too_many_requests": Word(K.RATE_LIMITED),
    "unauthenticated": Word(K.AUTHENTICATION),
    "unauthorized": Word(K.AUTHENTICATION),
    "unavailable": Word(K.OVERLOADED),
    "unknown_parameter": Word(K.BAD_REQUEST),
    "unsupported_value": Word(K.BAD_REQUEST),
}

# Too long for the model (L69: broad on purpose, a false positive only costs a compaction).
_OVERFLOW: Final = re.compile(
    r"context[ _]?(length|window|size)|maximum context|max(imum)? (prompt|input) (length|tokens)"
    r"|prompt (is )?too long|input (is )?too long|too[ _]many([ _]\w+)?[ _]tokens"
    r"|(input|prompt) token count.*exceed|exceeds? the (maximum|max) (number of )?(input )?tokens"
    r"|(messages?|prompt|input|conversation) (is|are) too (long|large)"
    r"|request[ _](entity )?too[ _]large|reduce the length|tokens? limit exceeded"
    r"|input_too_long|string_above_max_length|exceed_context",
    re.IGNORECASE | re.DOTALL,
)
# A rate limit counts tokens too: there only these words speak of the request's own length.
_OVERFLOW_AT_LIMIT: Final = re.compile(
    r"context[ _]?(length|window|size)|maximum context|too (long|large)|reduce the length"
    r"|too[ _]large|exceed_context|input_too_long",
    re.IGNORECASE,
)
# Statuses at which such a text is believed. 401, 403, 404 and 5xx keep their own meaning.
_OVERFLOW_STATUS: Final = frozenset({None, 200, 400, 413, 422, 429})
# The account has nothing left, or a daily quota is spent (L58.1, R02).
_QUOTA: Final = re.compile(
    r"insufficient[ _](quota|balance|credits?|funds)|billing[ _](hard[ _]limit|not[ _]active)"
    r"|credit balance is too low|quota_exceeded_error|out of credits|no credits? (left|remaining)"
    r"|exceeded_current_quota",
    re.IGNORECASE,
)
_DAILY: Final = re.compile(
    r"per[ _-]?day|(calls|requests|tokens) ?(per|/) ?(day|week|month)|\((rpd|tpd)\)"
    r"|(daily|weekly|monthly) (\w+ )?(quota|limit|allowance)",
    re.IGNORECASE,
)
_AUTH: Final = re.compile(
    r"(api[ _-]?key|x-api-key|token|credentials?) (is )?(not valid|invalid|incorrect|missing)"
    r"|(invalid|incorrect|missing|no) (api[ _-]?key|x-api-key|authentication|credentials)"
    r"|api_key_invalid|invalid_api_key|authentication (fails|failed|error)|unauthori[sz]ed",
    re.IGNORECASE,
)
_RATE: Final = re.compile(r"rate[ _-]?limit|too many requests", re.IGNORECASE)
_BUSY: Final = re.compile(
    r"overloaded|over capacity|at capacity|temporarily unavailable", re.IGNORECASE
)


class Refusal(NamedTuple):
    """What an error body says: its message, type and code words, and the object itself."""

    message: str
    words: tuple[str, ...] = ()
    status: int | None = None
    object: Any = None
    retry_after: float | None = None


def classify(status: int | None, refusal: Refusal) -> ProviderError:
    """The error of a refusal; the one place where that is decided.

    Args:
        status: HTTP status, None or 200 for an error inside a stream.
        refusal: The body's words.

    Returns:
        The error, with ``retry_after`` only from the body.
    """
    text = " ".join((refusal.message, *refusal.words))
    if refusal.object is not None:
        text += " " + json.dumps(refusal.object, default=str)[:8192]
    words = [w.lower() for w in refusal.words]
    known = next((KIND_OF_WORD[w] for w in words if w in KIND_OF_WORD), None)
    stated = status if status not in (None, 200) else refusal.status
    kind, found = _kind(stated, known, text)
    quota = (
        found == 402
        or (kind is K.RATE_LIMITED and _DAILY.search(text) is not None)
        or (
            kind in (K.RATE_LIMITED, K.BAD_REQUEST, K.AUTHENTICATION, K.PROVIDER)
            and _QUOTA.search(text) is not None
        )
    )
    words_of_overflow = _OVERFLOW_AT_LIMIT if kind is K.RATE_LIMITED else _OVERFLOW
    overflow = (
        not quota
        and kind in (K.BAD_REQUEST, K.RATE_LIMITED, K.PROVIDER)
        and stated in _OVERFLOW_STATUS
        and (stated == 413 or words_of_overflow.search(text) is not None)
    )
    if quota or overflow:
        found = known.status if stated is None and known is not None else stated
    if quota:
        kind, found = K.PROVIDER, found or 429
    elif overflow:
        kind = K.BAD_REQUEST
    return ProviderError(
        kind,
        refusal.message,
        status=found,
        retry_after=None if quota or overflow else refusal.retry_after,
        overflow=overflow,
        quota=quota,
        error_type=refusal.words[0] if refusal.words else None,
    )


def _kind(status: int | None, known: Word | None, text: str) -> tuple[ErrorKind, int | None]:
    """Kind and status, before quota and overflow are looked at."""
    if status is not None:
        kind = KIND_OF_STATUS.get(status) or KIND_OF_HUNDRED.get(status // 100, K.PROVIDER)
        if kind is K.BAD_REQUEST and status in (400, 422) and _AUTH.search(text):
            kind = K.AUTHENTICATION
        return kind, status
    if known is not None:
        return known.kind, known.status
    for pattern, kind in (
        (_RATE, K.RATE_LIMITED),
        (_BUSY, K.OVERLOADED),
        (_AUTH, K.AUTHENTICATION),
    ):
        if pattern.search(text):
            return kind, None
    # Ruling: an error in mid-stream whose words we do not know is the server's trouble, so it is
    # retried (S10): the request itself had been accepted.
    return K.PROVIDER, 500


def error_object(document: Any) -> Refusal | None:
    """The refusal in a JSON document, None when there is none.

    Knows ``{"error": {...}}``, ``{"error": "text"}``, ``{"detail": ...}``, ``{"message": ...}``,
    ``{"type": "error", ...}``, ``[{"error": ...}]`` and ``{"errors": [...]}``.
    """
    if isinstance(document, list) and document:
        document = document[0]
    if not isinstance(document, dict):
        return None
    inner = document.get("error") or document.get("errors")
    if isinstance(inner, list) and inner:
        inner = inner[0]
    if isinstance(inner, dict):
        return _refusal(inner, document)
    if isinstance(inner, str):
        return _refusal({**document, "message": inner}, document)._replace(object=inner)
    for key in ("detail", "message", "title"):
        value = document.get(key)
        if isinstance(value, str) and value:
            return _refusal({**document, "message": value}, document)
        if isinstance(value, list) and value:
            return Refusal(json.dumps(value)[:500], object=document)
    return None


_NO_WORDS: Final = "the provider reported an error without words"


def refusal_of(document: Any) -> Refusal:
    """The refusal in a document that is known to report an error, in whatever words."""
    found = error_object(document)
    if found is not None:
        return found
    inner = document.get("error") if isinstance(document, dict) else None
    # a bare number can be a status, all else is repeated as it is
    told = {"code": inner} if isinstance(inner, int) else {"message": str(inner or _NO_WORDS)}
    return _refusal(told, {})._replace(object=document)


def stray_refusal(document: Any) -> Refusal | None:
    """The refusal in a document that is no part of a reply; None when it reports no error.

    ``{"type": "error", ...}``, ``{"detail": ...}``, ``{"code": 503, "message": ...}``,
    ``[{"error": ...}]``: what gateways send in the middle of a stream whose format has another
    form for it.
    """
    first = document[0] if isinstance(document, list) and document else document
    if not isinstance(first, dict):
        return None
    if first.get("error") or first.get("errors") or first.get("type") == "error":
        return refusal_of(first)
    found = error_object(first)
    if found is None:
        return None
    known = any(w.lower() in KIND_OF_WORD or w.lower().endswith("error") for w in found.words)
    return found if known or found.status is not None or "detail" in first else None


def _refusal(inner: Mapping[str, Any], outer: Mapping[str, Any]) -> Refusal:
    message = inner.get("message") or inner.get("msg") or inner.get("detail") or ""
    if not isinstance(message, str):
        message = json.dumps(message)
    words = [inner.get(key) for key in ("code", "type", "status", "reason")]
    metadata = inner.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("raw"), str):
        message = f"{message}: {metadata['raw']}"  # OpenRouter: the upstream's own words
    status = next(
        (v for v in (inner.get(k) for k in ("status_code", "http_status", "code", "status"))
         if isinstance(v, int) and not isinstance(v, bool) and 300 <= v < 600),
        None,
    )  # fmt: skip
    if status is None:
        digits = [w for w in words if isinstance(w, str) and re.fullmatch("[345][0-9][0-9]", w)]
        status = int(digits[0]) if digits else None
    texts = [w for w in words if isinstance(w, str) and w and not w.isdigit()]
    if not texts and isinstance(outer.get("type"), str) and outer["type"] != "error":
        texts = [outer["type"]]
    return Refusal(
        message or (texts[0] if texts else _NO_WORDS),
        tuple(texts),
        status,
        dict(inner),
        _retry_delay(inner.get("details")),
    )


def _retry_delay(details: object) -> float | None:
    """Google's RetryInfo: ``"retryDelay": "48.9s"``."""
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and re.fullmatch(r"[0-9]+(\.[0-9]+)?s", delay):
            return float(delay[:-1])
    return None


def from_error_object(document: Any) -> ProviderError | None:
    """The error of an error object inside a stream or a 200 reply; it has no headers (L69)."""
    refusal = error_object(document)
    return None if refusal is None else classify(None, refusal)


def from_response(
    status: int,
    headers: Iterable[tuple[str, str]],
    body: bytes,
    *,
    host: str,
    wall: Callable[[], float],
) -> ProviderError:
    """The error of an HTTP answer that is not 2xx.

    Args:
        status: Its status.
        headers: Its headers, repeated ones repeated.
        body: Its first kilobytes.
        host: Who answered, for texts of our own.
        wall: Seconds since the epoch, for dates in ``Retry-After``.
    """
    pairs = [(name.lower(), value) for name, value in headers]
    error = classify(status, _read(status, body, host))
    if not error.quota and not error.overflow:
        after = parse_retry_after(pairs, wall)
        error.retry_after = error.retry_after if after is None else after
    words = [value.strip().lower() for name, value in pairs if name == "x-should-retry"]
    if words and words[-1] in ("true", "false"):
        error.should_retry = words[-1] == "true"
    return error


def _read(status: int, body: bytes, host: str) -> Refusal:
    text = body.decode("utf-8-sig", "replace").strip()
    try:
        document = json.loads(text) if text else None
    except (ValueError, RecursionError):
        document = None
    refusal = error_object(document)
    if refusal is not None:
        return refusal
    if not text:
        return Refusal(f"{host} answered HTTP {status} with an empty body.")
    if text[:200].lower().lstrip("\ufeff").startswith(("<!doctype", "<html", "<head", "<?xml")):
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        named = f' titled "{" ".join(title.group(1).split())[:120]}"' if title else ""
        return Refusal(
            f"{host} answered HTTP {status} with an HTML page{named}: a proxy or a wrong address?"
        )
    return Refusal(f"{host} answered HTTP {status}: {' '.join(text.split())[:300]}")


def malformed(payload: bytes, why: str = "") -> ProviderError:
    """A document in a stream that does not decode: a transient failure of the attempt (L56)."""
    start = payload[:80].decode("utf-8", "replace")
    return ProviderError(
        K.TRANSPORT,
        f"The stream held a document that does not decode: {start!r}{f' ({why})' if why else ''}",
    )


def truncated(events: int) -> ProviderError:
    """A body that ended without an end of the reply (L57)."""
    return ProviderError(
        K.TRANSPORT,
        f"The stream ended in the middle of the reply, after {events} events: no finish reason "
        "and no end marker.",
    )
