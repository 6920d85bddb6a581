"""The line to type after a provider's error (N11).

Source: notebook side, commands (D12); LLM turn, "Recording the outcome" (L69).
"""

from __future__ import annotations

import re
from typing import Final

from notebook_agent.errors import ErrorKind, ProviderError
from notebook_agent.providers.services import SERVICES

__all__ = ["hint_for"]

_PAGE: Final = re.compile(r"answered HTTP \d+ with an HTML page")
_NO_MODEL: Final = re.compile(
    r"(invalid|unknown|unsupported) model|model\b.{0,80}(not found|does not exist|not supported|unknown)",
    re.IGNORECASE | re.DOTALL,
)


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
