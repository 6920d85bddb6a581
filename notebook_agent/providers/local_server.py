"""The child process of the local model: llama.cpp's own server on a loopback port.

Run as a script, isolated (``python -I local_server.py``), never imported by the package. One JSON
line on standard input says everything, the key among it, so the key is in no process list. The
ready file is written when the server answers. The process ends when its standard input closes,
which happens however the parent ends, SIGKILL included.

Source: LLM turn, "Two paths, one entry point" (L8); notebook section 6 (shared hosts, child
processes).
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any


def main() -> None:
    """Serve until standard input closes."""
    parent = os.getppid()
    config = json.loads(sys.stdin.readline())
    _die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the kernel's interrupt is not meant for us
    sys.path[:] = config["sys_path"]
    _check(Path(config["model"]), config["sha256"])
    server = _serve(config)
    address = server.listening_address
    facts = {"url": address, "pid": os.getpid(), **_facts(address, config["key"])}
    ready = Path(config["ready"])
    partial = ready.with_suffix(".part")
    partial.write_text(json.dumps(facts))
    partial.replace(ready)
    while sys.stdin.readline():
        continue
    os._exit(0)  # llama.cpp's threads may be busy: nothing to save


def _serve(config: dict[str, Any]) -> Any:
    import xllamacpp  # noqa: PLC0415 - 100 MB, and only here

    params = xllamacpp.CommonParams()
    params.model.path = config["model"]
    params.model_alias = {config["name"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # any free one
    params.api_keys = [config["key"]]
    params.ui = False
    params.endpoint_slots = False
    params.n_parallel = config["slots"]
    params.n_ctx = config["n_ctx"]
    # Ruling: without a limit a small model may talk until its window is full. A request's own
    # max_tokens beats this.
    params.n_predict = config["n_predict"]
    params.cache_ram_mib = 0  # 8 GiB by default
    params.verbosity = 1
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = config["threads"]
        cpu.poll = 0  # waiting threads sleep; spinning ones starve each other on busy cores
    for name, value in config["sampling"].items():
        setattr(params.sampling, name, value)
    return xllamacpp.Server(params)


def _check(path: Path, sha256: str | None) -> None:
    if sha256 is None:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        sys.exit(f"damaged model file: {path} has SHA-256 {found[:16]}..., not {sha256[:16]}...")


def _facts(address: str, key: str) -> dict[str, Any]:
    """What the running server says of itself: tokens per slot, and whether it knows tools."""
    request = urllib.request.Request(  # noqa: S310 - our own loopback address
        f"{address}/props", headers={"Authorization": f"Bearer {key}"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as answer:
        props = json.load(answer)
    return {
        "n_ctx": props["default_generation_settings"]["n_ctx"],
        "slots": props["total_slots"],
        "tools": "tools" in props.get("chat_template", ""),
    }


def _die_with(parent: int) -> None:
    """End when the parent is gone, also when a fork of it keeps our input pipe open."""
    if sys.platform == "win32":
        return  # a parent's id says nothing there; the input pipe does

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main()
