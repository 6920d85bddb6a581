"""The line to type after a provider's error (N11).

Source: notebook side, commands (D12); LLM turn, "Recording the outcome" (L69).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from notebook_agent.errors import ConfigError, ErrorKind, ProviderError
from notebook_agent.providers.base import Capabilities
from notebook_agent.providers.secret import Secret
from notebook_agent.providers.services import SERVICES

__all__ = ["hint_for", "unsendable", "unsupported", "unwritable", "wrong_argument"]

_PAGE: Final = re.compile(r"answered HTTP \d+ with an HTML page")
_NO_MODEL: Final = re.compile(
    r"(invalid|unknown|unsupported) model|model\b.{0,80}(not found|does not exist|not supported|unknown)",
    re.IGNORECASE | re.DOTALL,
)


def unsupported(feature: str, who: str, what: str) -> ProviderError:
    """The error for an option that a client cannot honour: rejected, never dropped (L7)."""
    return ProviderError(
        ErrorKind.UNSUPPORTED, f"{who} cannot {what}; nothing was sent.", feature=feature
    )


def unsendable(key: Secret, provider: str) -> ProviderError | None:
    """Why no header can carry a key, None when one can. The text holds none of it."""
    at = next((n for n, c in enumerate(key.reveal(), 1) if not " " <= c <= "~"), 0)
    if not at:
        return None
    return ProviderError(
        ErrorKind.AUTHENTICATION,
        f"The key for {provider} holds a character that no key has, at place {at}: was it copied "
        "with more than itself? Nothing was sent.",
    )


def unwritable(problem: Exception, name: str) -> ProviderError:
    """The error for a request that JSON has no form for."""
    return ProviderError(
        ErrorKind.BAD_REQUEST,
        f"The request to {name} cannot be written as JSON: {problem}. Nothing was sent.",
    )


def wrong_argument(key: object, headers: object, capabilities: object) -> ConfigError | None:
    """What is wrong with arguments that only fail when the first request is sent; no key is in it."""
    if not (key is None or isinstance(key, Secret) or callable(key)):
        kind = type(key).__name__
        return ConfigError(field="key", value=kind, legal="a text, a Secret or a function")
    if not (headers is None or isinstance(headers, Mapping)):
        return ConfigError(field="headers", value=headers, legal="a mapping of names to texts")
    if not (capabilities is None or isinstance(capabilities, Capabilities)):
        return ConfigError(field="capabilities", value=capabilities, legal="Capabilities(...)")
    return None


def hint_for(
    error: ProviderError, *, provider: str, model: str, base_url: str, key_given: bool
) -> str:
    """One line, "" when there is nothing to advise.

    Args:
        error: The provider's error.
        provider: The part before the colon.
        model: The bare model name that was asked.
        base_url: Where the request went, without keys.
        key_given: Whether the key came as an argument and not from the key store.
    """
    if error.kind is ErrorKind.AUTHENTICATION:
        if key_given or provider not in SERVICES:
            return f"Check the key that was given for {provider}."
        return f"Set the key for {provider} with:  %agent key {provider}"
    if error.overflow:
        return "Make room with:  %agent compact now     or start over with:  %agent reset"
    if _PAGE.search(error.message):
        return f"Check the base URL: {base_url}"
    unknown = error.status == 404 or error.error_type == "model_not_found"
    if unknown or (error.kind is ErrorKind.BAD_REQUEST and _NO_MODEL.search(error.message)):
        return f"{provider}:{model} is not known there. List what is:  %agent models"
    if error.quota:
        return (
            f"The account at {provider} has no quota left. Another model:  %%agent -m provider:name"
        )
    return ""
