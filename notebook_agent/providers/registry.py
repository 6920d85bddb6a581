"""Names to clients: ``openai:gpt-4.1-mini`` and the like.

A name is ``provider:name``, an alias, a bare ``local`` or ``scripted``, or the address of a
service with the model behind a ``#``: ``http://127.0.0.1:8000/v1#qwen3`` (OpenAI-compatible), with
another wire format in front: ``anthropic-messages+https://host#name``. Providers of third parties
come by entry points of the group ``notebook_agent.providers``: a callable ``(name, **options)``
that gives a client.

No wire format is imported before a model of it is made.

Source: notebook side, commands (D11); Turn FSM, "CallingModel" (B36); case N11.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from notebook_agent.errors import AgentError, ConfigError, ErrorKind, ProviderError
from notebook_agent.providers.base import Capabilities, ModelClient
from notebook_agent.providers.keys import KeyStore
from notebook_agent.providers.secret import Secret
from notebook_agent.providers.service_options import (
    base_url_of,
    check_options,
    known_capabilities,
)
from notebook_agent.providers.services import FORMATS, GUESSES, SERVICES, Service

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "GROUP",
    "alias",
    "aliases",
    "key_for",
    "key_status",
    "list_models",
    "model",
    "models_of",
    "providers",
    "set_key",
]

GROUP: Final = "notebook_agent.providers"
_BUILT_IN: Final = ("local", "scripted")
_LOCAL_DEFAULT: Final = "smollm2"
_SCRIPTED_DEFAULT: Final = "scripted"
_ADDRESS: Final = re.compile(r"(?:([a-z-]+)\+)?((?i:https?)://[^#]+)(?:#(.*))?", re.DOTALL)

_keys: Final = KeyStore()
_aliases: Final[dict[str, str]] = {}
# Services given by address in this process; an address may hold a key, so it is kept as one.
_addresses: Final[dict[str, Service]] = {}
_address_of: Final[dict[str, Secret]] = {}


def providers() -> tuple[str, ...]:
    """Names of all providers, sorted."""
    return tuple(sorted({*SERVICES, *_BUILT_IN, *_entry_points(), *_addresses}))


def aliases() -> dict[str, str]:
    """A copy of the aliases: name -> id."""
    return dict(_aliases)


def alias(name: str, target: str | None) -> None:
    """Let ``name`` mean ``target``; None takes it away. Kept in this process only.

    Raises:
        ConfigError: The name has a colon or white space, or is its own target.
    """
    if target is None:
        _aliases.pop(name, None)
        return
    texts = isinstance(name, str) and isinstance(target, str) and bool(target.strip())
    if not texts or not name or ":" in name or any(c.isspace() for c in name) or name == target:
        raise ConfigError(
            f"An alias is one word without a colon, and not its own target; {name!r} is none.\n"
            "Type:  %agent alias fast openai:gpt-4.1-mini",
            field="alias",
            value=name,
        )
    _aliases[name] = target


def set_key(provider: str, value: str, *, save: bool = False) -> None:
    """Keep a provider's key for this kernel, with ``save`` in the keyring too.

    Raises:
        ConfigError: An unknown provider, an empty key, or no usable keyring.
    """
    _keys.set(_key_owner(provider), value, save=save)


def key_for(provider: str) -> Secret | None:
    """A provider's key, looked up now: of this kernel, the environment, the keyring.

    Returns:
        None when there is none.

    Raises:
        ConfigError: An unknown provider.
    """
    owner = _key_owner(provider)
    return _keys.get(owner, _variables(owner))


def key_status(provider: str) -> str:
    """Where the key is, in words without the key: ``not needed`` for models without one.

    Raises:
        ConfigError: An unknown provider.
    """
    owner = _key_owner(provider)
    where = _keys.where(owner, _variables(owner))
    service = _service(provider)
    if where == "not set" and (service is None or not service.needs_key):
        return "not needed"
    return where


def model(name: str, **options: Any) -> ModelClient:
    """The client of a model's name.

    Args:
        name: ``provider:name``, an alias, or an address with ``#name``.
        options: For the client: ``base_url``, ``key``, ``api``, ``headers``, ``capabilities``,
            ``settings``, ``http_client``, ``transport``. ``api`` with ``base_url`` asks any
            service of a known wire format. ``capabilities`` is a ``Capabilities``, or a mapping of
            what is known better than the table does: ``{"vision": True}``.

    Returns:
        A new client.

    Raises:
        ConfigError: An unknown name, or no key; two lines that say what to type.

    Example:
        >>> model("ollama:llama3.2")
        <Ollama ollama:llama3.2 at http://127.0.0.1:11434>
    """
    full = _expand(name)
    address = _ADDRESS.fullmatch(full)
    if address is not None:
        return _at_address(address, options)
    provider, bare = _split(full)
    if provider == "local":
        local: Callable[..., ModelClient] = _load("notebook_agent.providers.local", "LocalModel")
        return local(bare or _LOCAL_DEFAULT, **options)
    if provider == "scripted":
        scripted: Callable[..., ModelClient] = _load(
            "notebook_agent.providers.scripted", "ScriptedModel"
        )
        return scripted(name=bare or _SCRIPTED_DEFAULT, **options)
    service = _service(provider)
    if service is not None:
        return _of_service(provider, service, bare, options)
    if provider in _entry_points():
        return _plugin(provider)(bare, **options)
    if "base_url" in options:
        return _of_service(provider, Service("openai-chat", "", needs_key=False), bare, options)
    raise _unknown_provider(provider, bare)


async def list_models(provider: str) -> list[str]:
    """Model names that a provider's endpoint offers; a request is sent.

    Args:
        provider: Its name.

    Raises:
        ConfigError: An unknown provider, or no key.
        ProviderError: The endpoint does not answer.
    """
    if provider in _BUILT_IN:
        return [_LOCAL_DEFAULT if provider == "local" else _SCRIPTED_DEFAULT]
    client = model(f"{provider}:-")
    try:
        return await models_of(client)
    finally:
        close = getattr(client, "aclose", None)
        if close is not None:
            await close()


async def models_of(client: ModelClient) -> list[str]:
    """Names that a client's own ``list_models()`` gives; none where it has no such method.

    Raises:
        ProviderError: It failed, or gave no list of names.
    """
    ask = getattr(client, "list_models", None)
    if ask is None:
        return []
    try:
        found = ask()
        found = await found if inspect.isawaitable(found) else found
    except AgentError:
        raise
    except Exception as error:  # noqa: BLE001  # somebody else's code
        problem: Exception | None = error
    else:
        if isinstance(found, (list, tuple)) and all(isinstance(name, str) for name in found):
            return list(found)
        problem = None
    words = "gave no list of names" if problem is None else f"{type(problem).__name__}: {problem}"
    raise ProviderError(
        ErrorKind.PROVIDER, f"list_models() of {type(client).__name__}: {words}"
    ) from problem


def _expand(name: str) -> str:
    full = name.strip()
    seen: set[str] = set()
    while full in _aliases and full not in seen:
        seen.add(full)
        full = _aliases[full]
    return full


def _split(full: str) -> tuple[str, str]:
    provider, colon, bare = full.partition(":")
    bare = bare.strip()
    if not colon and provider in _BUILT_IN:
        return provider, ""
    if not colon:
        if provider in providers():
            raise _no_model(provider)
        low = provider.lower()
        guess = next((p for start, p in GUESSES if low.startswith(start)), "openai")
        raise ConfigError(
            f"A model is named provider:name; {full!r} names no provider.\n"
            f"Type:  %agent model {guess}:{full or 'NAME'}",
            field="model",
            value=full,
        )
    if not bare and provider not in _BUILT_IN:
        raise _no_model(provider)
    return provider, bare


def _no_model(provider: str) -> ConfigError:
    service = _service(provider)
    if service is None and provider not in providers():
        return _unknown_provider(provider, "")
    example = service.example if service is not None else "NAME"
    return ConfigError(
        f"{provider} is a provider; its model is not named.\n"
        f"Type:  %agent model {provider}:{example}     or see:  %agent models {provider}",
        field="model",
        value=provider,
    )


def _unknown_provider(provider: str, bare: str) -> ConfigError:
    close = difflib.get_close_matches(provider.lower(), providers(), n=1, cutoff=0.7)
    meant = f" Did you mean {close[0]}?" if close else f" There are: {', '.join(providers())}."
    return ConfigError(
        f"There is no provider {provider!r}.{meant}\n"
        f"Type:  %agent model {close[0] if close else 'openai'}:{bare or 'NAME'}",
        field="model",
        value=provider,
    )


def _service(provider: str) -> Service | None:
    return SERVICES.get(provider) or _addresses.get(provider)


def _key_owner(provider: str) -> str:
    service = _service(provider)
    if service is None and provider not in providers():
        raise _unknown_provider(provider, "")
    return (service.key_of if service is not None else "") or provider


def _variables(owner: str) -> tuple[str, ...]:
    service = _service(owner)
    if service is not None:
        return service.key_env
    return () if owner in _BUILT_IN else (f"{owner.upper().replace('-', '_')}_API_KEY",)


def _of_service(provider: str, service: Service, bare: str, options: dict[str, Any]) -> ModelClient:
    given = dict(options)
    api = given.pop("api", None) or service.api
    if api not in FORMATS:
        raise ConfigError(field="api", value=api, legal=f"one of {', '.join(sorted(FORMATS))}")
    base_url = given.pop("base_url", None) or _base_url(provider, service, bare)
    if "key" not in given:
        given["key"] = _key_of(provider, service)
    if not isinstance(given.get("capabilities"), Capabilities):
        given["capabilities"] = known_capabilities(provider, bare, given.get("capabilities"))
    kind = _load(*FORMATS[api])
    check_options(kind, f"{provider}:{bare}", given)
    made: ModelClient = kind(bare, base_url=base_url, provider=provider, **given)
    return made


def _key_of(provider: str, service: Service) -> Callable[[], Secret | None]:
    """A function that finds the key at use; where one is needed it must be there now (N11)."""
    owner = service.key_of or provider
    if service.needs_key and _keys.get(owner, service.key_env) is None:
        variable = service.key_env[0] if service.key_env else "a key"
        raise ConfigError(
            f"There is no key for {owner}: {variable} is not set, and this kernel and the keyring "
            f"hold none.\nType:  %agent key {owner}",
            field="key",
            value=owner,
        )
    return lambda: _keys.get(owner, service.key_env)


def _base_url(provider: str, service: Service, bare: str) -> str | Secret:
    if provider in _address_of:
        return _address_of[provider]
    return base_url_of(provider, service, bare)


def _at_address(address: re.Match[str], options: dict[str, Any]) -> ModelClient:
    """A model of a service given by its address; the service gets a name of its own."""
    api, base_url, bare = address.groups()
    api = options.get("api") or api or "openai-chat"
    bare, base_url = (bare or "").strip(), base_url.strip()
    if "?" not in base_url:
        base_url = base_url.rstrip("/")
    if not bare:
        raise ConfigError(
            "The model behind an address is not named.\n"
            "Type:  %agent model http://127.0.0.1:8000/v1#NAME",
            field="model",
        )
    # The name holds nothing secret: user part and query of the address stay out of it.
    url = Secret(base_url)
    host = re.sub(r"^https?://(?:[^/@]*@)?([^/?#]+).*$", r"\1", base_url, flags=re.IGNORECASE)
    base_url = ""
    name = first = "at-" + re.sub(r"[^\w.]+", "-", host.lower()).strip("-")
    service = Service(api, "", needs_key=False)
    count = 1
    while name in _addresses and (
        _addresses[name] != service or _address_of[name].reveal() != url.reveal()
    ):
        count += 1
        name = f"{first}-{count}"
    known = name in _addresses
    _addresses[name], _address_of[name] = service, url
    try:
        return _of_service(name, service, bare, options)
    except BaseException:
        if not known:  # what cannot be asked is no provider
            del _addresses[name], _address_of[name]
        raise


@lru_cache(maxsize=1)
def _entry_points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # noqa: PLC0415  # slow to import

    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _plugin(provider: str) -> Callable[..., ModelClient]:
    entry = _entry_points()[provider]
    problem = ""
    try:
        found: Callable[..., ModelClient] = entry.load()
    except Exception as caught:  # noqa: BLE001  # somebody else's code
        problem = f"{type(caught).__name__}: {caught}"
    if problem:
        raise ConfigError(
            f"The provider {provider!r} ({entry.value}) does not load: {problem}", field="model"
        )
    return found


def _load(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)
