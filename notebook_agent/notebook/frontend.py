"""Which front end this is, guessed from cheap signs; what a panel's ``hello`` proves wins.

No widget is made and nothing is imported to find out (F4).

Source: notebook side, "Front ends" (F3, F4), "The panel" (D16).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from notebook_agent.errors import ConfigError

__all__ = ["SHOW", "FrontEnd", "choose", "guess", "note_hello", "proven"]

SWITCH: Final = "NOTEBOOK_AGENT_DISPLAY"
# ``--show``: what it asks for; None = by the front end.
SHOW: Final = ("panel", "footer", "quiet")
# Front end -> the sink that works there.
SINK_OF: Final[Mapping[str, str]] = {
    "terminal": "stream",
    "script": "stream",
    "headless": "static",
    "jupyter": "panel",
    "vscode": "panel",
    "vscode-remote": "update",
    "colab": "update",
    "kaggle": "update",
    "jetbrains": "update",
    "databricks": "update",
    "jupyterlite": "update",
    "unknown": "update",
}
_REMOTE_SIGNS: Final = ("CODESPACES", "REMOTE_CONTAINERS", "SSH_CONNECTION", "VSCODE_IPC_HOOK_CLI")
_HOSTS: Final[Mapping[str, str]] = {
    "KAGGLE_KERNEL_RUN_TYPE": "kaggle",
    "DATABRICKS_RUNTIME_VERSION": "databricks",
    "PYCHARM_HOSTED": "jetbrains",
    "JETBRAINS_REMOTE_RUN": "jetbrains",
}

_HELLO: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """What was guessed, why, and the sink that follows.

    Attributes:
        name: A key of ``SINK_OF``.
        sign: The sign that told.
        sink: Sink by default.
    """

    name: str
    sign: str
    sink: str


def guess(
    shell: Any = None,
    *,
    environ: Mapping[str, str] | None = None,
    modules: Mapping[str, Any] | None = None,
    platform: str = sys.platform,
) -> FrontEnd:
    """Guess the front end.

    Args:
        shell: IPython's shell, None in a script.
        environ, modules, platform: ``os.environ``, ``sys.modules``, ``sys.platform``; for tests.
    """
    env = os.environ if environ is None else environ
    loaded = sys.modules if modules is None else modules
    name, sign = _name(shell, env, loaded, platform)
    return FrontEnd(name, sign, SINK_OF[name])


def _name(
    shell: Any, env: Mapping[str, str], modules: Mapping[str, Any], platform: str
) -> tuple[str, str]:
    if shell is None:
        return "script", "no IPython"
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return "terminal", "IPython without a kernel"
    if getattr(kernel, "_allow_stdin", True) is False:
        return "headless", "this request allows no input"  # nbclient, papermill, nbconvert, nbval
    if platform == "emscripten":
        return "jupyterlite", "the platform is emscripten"
    if "google.colab" in modules:
        return "colab", "google.colab is loaded"
    for variable, name in _HOSTS.items():
        if env.get(variable):
            return name, f"{variable} is set"
    if "__vsc_ipynb_file__" in getattr(shell, "user_ns", {}):
        remote = next((one for one in _REMOTE_SIGNS if env.get(one)), "")
        return ("vscode-remote", f"{remote} is set") if remote else ("vscode", "VS Code's variable")
    if env.get("JPY_SESSION_NAME") or env.get("JUPYTERHUB_SERVICE_PREFIX"):
        return "jupyter", "started by a Jupyter server"
    return "unknown", "no sign"


def choose(
    show: str | None = None,
    *,
    setting: str = "auto",
    front: FrontEnd | None = None,
    environ: Mapping[str, str] | None = None,
) -> str:
    """The sink's name for a run.

    Args:
        show: ``--show`` of the cell: panel, footer, quiet or None.
        setting: The traitlet: auto, or a sink's name.
        front: What ``guess`` said.

    Raises:
        ConfigError: The environment's switch or the setting names no sink.

    The cell's word comes first, then the environment's switch, the setting, what a panel proved,
    and the guess. The environment goes before the setting, because it is how a whole run of
    notebooks is made static without touching one (D16).
    """
    front = front or guess()
    env = (os.environ if environ is None else environ).get(SWITCH, "").strip().lower()
    if env and env != "auto" and env not in SINK_OF.values() and env != "null":
        raise ConfigError(field=SWITCH, value=env, legal="panel, update, static, stream or null")
    footer = "update" if front.sink == "panel" else front.sink
    if show == "quiet":
        return "null"
    if show == "footer":
        return "static" if env == "static" else footer
    if env and env != "auto":
        return env  # also beats --show panel: nbval cannot follow a panel (D16)
    if show == "panel":
        return "stream" if front.name in ("terminal", "script") else "panel"
    if setting and setting != "auto":
        if setting not in (*SINK_OF.values(), "null"):
            raise ConfigError(
                field="display", value=setting, legal="auto, panel, update, static, stream, null"
            )
        return setting
    if proven() and front.sink == "update":
        return "panel"
    return front.sink


def note_hello(message: Mapping[str, Any]) -> None:
    """A panel's view answered: a widget front end is there. Called from any thread."""
    _HELLO.update({"seen": True, "versions": dict(message.get("versions") or {})})


def proven() -> dict[str, Any]:
    """What ``hello`` proved in this kernel; empty when none came."""
    return dict(_HELLO)
