"""What the HTTP library's errors mean, by their names: httpx, httpx2 and httpcore share them.

Source: LLM turn, "StreamHandler" (L58, L69, L70); Turn FSM, "CallingModel" (B38).
"""

from __future__ import annotations

from notebook_agent.errors import ErrorKind, ProviderError

__all__ = ["transport_failure"]


def transport_failure(
    name: str,
    words: str,
    *,
    host: str,
    url: str,
    connect_s: float,
    gap_s: float,
    reading: bool,
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
    """
    if name == "ConnectTimeout":
        return ProviderError(
            ErrorKind.TIMEOUT,
            f"No connection to {host} within {connect_s:g} s.",
            hint="Check the base URL and the network.",
        )
    if "Timeout" in name:
        return ProviderError(
            ErrorKind.TIMEOUT,
            f"{host} sent nothing for {gap_s:g} s.",
        )
    if "CERTIFICATE_VERIFY_FAILED" in words:
        return ProviderError(
            ErrorKind.TRANSPORT,
            f"The certificate of {host} is not trusted: {words}",
            should_retry=False,
            hint="A certificate authority of your own is named by:  %env SSL_CERT_FILE=FILE",
        )
    if "ConnectError" in name or name == "ConnectionRefusedError":
        return ProviderError(
            ErrorKind.TRANSPORT,
            f"Cannot connect to {host}: {words or 'connection failed'}.",
            hint=f"Is a server running there? The base URL is {url}",
        )
    if "Decoding" in name:
        return ProviderError(
            ErrorKind.TRANSPORT, f"The body that {host} sent does not decompress: {words}"
        )
    if name in ("UnsupportedProtocol", "InvalidURL", "LocalProtocolError"):
        return ProviderError(
            ErrorKind.BAD_REQUEST, f"The request to {host} cannot be sent: {words}"
        )
    if name.startswith("Proxy"):
        return ProviderError(
            ErrorKind.TRANSPORT,
            f"The proxy refused the connection to {host}: {words}",
            hint="Proxies come from HTTP_PROXY, HTTPS_PROXY and NO_PROXY.",
        )
    when = "while the reply was read" if reading else "before it answered"
    return ProviderError(
        ErrorKind.TRANSPORT,
        f"The connection to {host} broke {when}: {words or name}",
    )
