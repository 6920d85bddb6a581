"""What the HTTP library's errors mean, by their names: httpx, httpx2 and httpcore share them.

Source: LLM turn, "StreamHandler" (L58, L69, L70); Turn FSM, "CallingModel" (B38).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from notebook_agent.errors import ErrorKind, ProviderError

__all__ = ["transport_failure"]


class _Row(NamedTuple):
    """Pattern over ``ClassName: words`` -> kind, text, hint, whether trying again may help."""

    pattern: str
    kind: ErrorKind
    text: str
    hint: str = ""
    should_retry: bool | None = None


_PROXIES: Final = "HTTP_PROXY, HTTPS_PROXY and NO_PROXY"

# The first row that matches counts.
_ROWS: Final[tuple[_Row, ...]] = (
    _Row(
        r"^ConnectTimeout:",
        ErrorKind.TIMEOUT,
        "No connection to {host} within {connect_s:g} s.",
        "Check the base URL and the network.",
    ),
    _Row(r"^\w*Timeout\w*:", ErrorKind.TIMEOUT, "{host} sent nothing for {gap_s:g} s."),
    _Row(
        r"CERTIFICATE_VERIFY_FAILED",
        ErrorKind.TRANSPORT,
        "The certificate of {host} is not trusted: {words}",
        "A certificate authority of your own is named by:  %env SSL_CERT_FILE=FILE",
        False,
    ),
    _Row(
        r"WRONG_VERSION_NUMBER",
        ErrorKind.TRANSPORT,
        "Cannot connect to {host}: it answers without TLS ({words}).",
        "Give the base URL with http:// if that is meant; it is {url}",
        False,
    ),
    _Row(
        r"^(\w*ConnectError|ConnectionRefusedError):",
        ErrorKind.TRANSPORT,
        "Cannot connect to {host}: {words}.",
        "Is a server running there? The base URL is {url}",
    ),
    _Row(
        r"^\w*Decoding\w*:",
        ErrorKind.TRANSPORT,
        "The body that {host} sent does not decompress: {words}",
    ),
    _Row(
        # the last ones are Python's own words: nothing has left this machine
        r"^(UnsupportedProtocol|InvalidURL|LocalProtocolError|Unicode\w*Error|IDNA\w*):"
        r"|^TypeError: Header value|A-label",
        ErrorKind.BAD_REQUEST,
        "The request to {host} cannot be sent: {words}",
    ),
    _Row(
        r"^Proxy\w*:",
        ErrorKind.TRANSPORT,
        "The proxy refused the connection to {host}: {words}",
        f"Proxies come from {_PROXIES}.",
    ),
    _Row(r"", ErrorKind.TRANSPORT, "The connection to {host} broke {when}: {words}"),
)


def transport_failure(
    name: str,
    words: str,
    *,
    host: str,
    url: str,
    connect_s: float,
    gap_s: float,
    reading: bool,
    proxied: bool = False,
) -> ProviderError:
    """Our error for one of the HTTP library's.

    Args:
        name: The class name of what the library raised.
        words: Its text, without keys.
        host: Who was asked.
        url: The base URL that may be shown.
        connect_s: Seconds that a connection may take.
        gap_s: Seconds of silence that were allowed.
        reading: Whether the body was being read.
        proxied: Whether the environment names a proxy for the host: what cannot be reached may be it.
    """
    row = next(row for row in _ROWS if re.search(row.pattern, f"{name}: {words}"))
    facts = {
        "host": host,
        "url": url,
        "words": words or name,
        "connect_s": connect_s,
        "gap_s": gap_s,
        "when": "while the reply was read" if reading else "before it answered",
    }
    hint = row.hint.format(**facts)
    if proxied and row.kind is not ErrorKind.BAD_REQUEST and _PROXIES not in hint:
        hint = f"{hint}{'. ' if hint else ''}A proxy is in between: {_PROXIES}"
    return ProviderError(
        row.kind,
        row.text.format(**facts),
        hint=hint,
        should_retry=row.should_retry,
    )
