"""What a named service's client is made with: address, options, capabilities.

Source: notebook side, commands (D11); Turn FSM, "CallingModel" (B39); case N11.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from notebook_agent.errors import ConfigError
from notebook_agent.providers.base import Capabilities
from notebook_agent.providers.capabilities import capabilities_of
from notebook_agent.providers.services import Service

__all__ = ["base_url_of", "check_options", "known_capabilities"]


def base_url_of(provider: str, service: Service, bare: str) -> str:
    """Where a service is: as the environment says, else where it always is.

    Args:
        provider: Its name.
        service: Its row.
        bare: The model's name, which some services have in the address.

    Raises:
        ConfigError: Nobody says where.
    """
    found = next((os.environ[n].strip() for n in service.base_env if os.environ.get(n)), "")
    if provider == "ollama" and found:
        return _ollama_host(found)
    if provider == "azure" and found and "/openai/v1" not in found:
        version = os.environ.get("AZURE_OPENAI_API_VERSION", "").strip()
        found = found.rstrip("/").removesuffix("/openai") + "/openai"
        if version:
            return f"{found}/deployments/{bare}?api-version={version}"
        return f"{found}/v1"
    if not (found or service.base_url):
        variable = service.base_env[0] if service.base_env else "base_url"
        raise ConfigError(
            f"The address of {provider} is not set: {variable} is empty.\n"
            f"Type:  %env {variable}=https://...",
            field="base_url",
            value=provider,
        )
    return found or service.base_url


def _ollama_host(value: str) -> str:
    """OLLAMA_HOST as Ollama reads it: scheme and port optional, 0.0.0.0 = this machine."""
    scheme, _, rest = value.rpartition("://")
    host, _, path = rest.partition("/")
    if not re.search(r":[0-9]+$", host):
        host += ":443" if scheme == "https" else ":80" if scheme == "http" else ":11434"
    host = re.sub(r"^(0\.0\.0\.0|\[::\])?:", "127.0.0.1:", host)
    return f"{scheme or 'http'}://{host}/{path}".rstrip("/")


def check_options(kind: type, name: str, given: Mapping[str, Any]) -> None:
    """Whether a client's class takes these options.

    Raises:
        ConfigError: It does not know one; the text says how parameters of requests are given.
    """
    known = _options_of(kind)
    unknown = sorted(given.keys() - known)
    if unknown:
        raise ConfigError(
            f"{unknown[0]!r} is no option of {name}; there are: {', '.join(sorted(known))}.\n"
            f"A parameter of requests:  RequestOptions(extra={{{unknown[0]!r}: ...}})"
            f"     or in a cell:  -p {unknown[0]}=...",
            field=unknown[0],
        )


def _options_of(kind: type) -> set[str]:
    """Names that the constructors of a client's class take."""
    found: set[str] = set()
    for one in inspect.getmro(kind):
        made = vars(one).get("__init__")
        if inspect.isfunction(made):
            taken = inspect.signature(made).parameters.values()
            found |= {p.name for p in taken if p.kind is not p.VAR_KEYWORD}
    return found - {"model", "self", "provider"}


def known_capabilities(provider: str, bare: str, own: Any) -> Capabilities:
    """What the table knows of a model, under what the user says of it.

    Args:
        provider: Its name.
        bare: The model's.
        own: A mapping of names of ``Capabilities``, None = nothing.

    Raises:
        ConfigError: It is none.
    """
    known = capabilities_of(provider, bare)
    if own is None:
        return known
    names = {f.name for f in fields(Capabilities)} - {"source"}
    if not isinstance(own, Mapping) or own.keys() - names:
        raise ConfigError(
            field="capabilities",
            value=own,
            legal=f"Capabilities(...) or a mapping of {', '.join(sorted(names))}",
        )
    return known.overridden(**own) if own else known
