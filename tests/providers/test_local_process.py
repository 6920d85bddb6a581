"""The local server's process: start, sharing, end, without a model (a stand-in child)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from notebook_agent.errors import ErrorKind, ProviderError
from notebook_agent.providers import local_process, local_server
from notebook_agent.providers.local_process import LocalServer, ServerSettings, shared_server

STAND_IN = """
import json, os, sys, threading, time
config = json.loads(sys.stdin.readline())
parent = os.getppid()
def watch():
    while os.getppid() == parent:
        time.sleep(0.1)
    os._exit(0)
threading.Thread(target=watch, daemon=True).start()
{body}
"""
READY = """
facts = {"url": "http://127.0.0.1:9", "pid": os.getpid(), "n_ctx": 4096, "slots": 2, "tools": False}
open(config["ready"] + ".part", "w").write(json.dumps(facts))
os.replace(config["ready"] + ".part", config["ready"])
while sys.stdin.readline():
    pass
"""
SETTINGS = ServerSettings(model="m.gguf", name="m", slots=2)


@pytest.fixture
def child(monkeypatch, tmp_path):
    """Use another script as the child."""

    def use(body):
        script = tmp_path / "child.py"
        script.write_text(STAND_IN.format(body=body))
        monkeypatch.setattr(local_process, "_SCRIPT", script)

    return use


def ready(server):
    for seconds in server.waits():
        time.sleep(seconds)
    return server.facts


def gone(pid, within=5.0):
    end = time.monotonic() + within
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False


def test_start_facts_stop_and_start_again(child):
    child(READY)
    server = LocalServer(SETTINGS)
    facts = ready(server)
    assert (facts.n_ctx, facts.slots, facts.tools) == (4096, 2, False)
    first = server.key
    assert list(server.waits()) == []
    server.stop()
    assert gone(facts.pid)
    again = ready(server)
    assert again.pid != facts.pid
    assert server.key is not first
    server.stop()


def test_key_is_in_no_process_list_nor_environment(child):
    child(READY)
    server = LocalServer(SETTINGS)
    facts = ready(server)
    try:
        key = server.key.reveal()
        assert len(key) >= 32
        for name in ("cmdline", "environ"):
            assert key.encode() not in Path(f"/proc/{facts.pid}/{name}").read_bytes()
        assert key not in repr(server.key) + repr(vars(server))
    finally:
        server.stop()


def test_no_folder_is_left(child, monkeypatch, tmp_path):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    (tmp_path / "t").mkdir()
    child(READY)
    server = LocalServer(SETTINGS)
    ready(server)
    assert list((tmp_path / "t").iterdir()) == []
    server.stop()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("sys.exit('damaged model file: m.gguf')", "damaged model file"),
        ("raise ImportError('no xllamacpp')", "no xllamacpp"),
        ("os.kill(os.getpid(), 9)", "signal 9"),
    ],
)
def test_a_child_that_cannot_start_is_a_clear_permanent_error(child, body, says):
    child(body)
    server = LocalServer(SETTINGS)
    with pytest.raises(ProviderError, match=says) as caught:
        ready(server)
    assert not caught.value.is_retryable
    server.stop()
    child(READY)
    assert ready(server).n_ctx == 4096
    server.stop()


def test_a_child_that_never_gets_ready_is_ended(child, monkeypatch):
    monkeypatch.setattr(local_process, "_START_S", 0.3)
    child("time.sleep(60)")
    server = LocalServer(SETTINGS)
    with pytest.raises(ProviderError) as caught:
        ready(server)
    assert caught.value.kind is ErrorKind.TIMEOUT
    assert not server.alive()


def test_a_stuck_child_is_killed_at_stop(child, monkeypatch):
    monkeypatch.setattr(local_process, "_STOP_S", 0.2)
    child(READY + "\ntime.sleep(60)")
    server = LocalServer(SETTINGS)
    pid = ready(server).pid
    server.stop()
    assert gone(pid)


def test_threads_share_one_start(child):
    child(READY)
    server = shared_server(SETTINGS)
    assert shared_server(ServerSettings(model="m.gguf", name="m", slots=2)) is server
    pids = []
    threads = [threading.Thread(target=lambda: pids.append(ready(server).pid)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pids) == 8
    assert len(set(pids)) == 1
    server.stop()


def test_settings_that_differ_have_servers_of_their_own():
    assert shared_server(SETTINGS) is not shared_server(ServerSettings(model="n.gguf", name="n"))


def test_interrupt_of_the_group_does_not_reach_the_child(child):
    child(READY)
    server = LocalServer(SETTINGS)
    pid = ready(server).pid
    assert os.getpgid(pid) != os.getpgid(os.getpid())
    server.stop()


KERNEL = """
import sys, time, os
from pathlib import Path
from notebook_agent.providers import local_process, local_server
local_process._SCRIPT = Path(sys.argv[1])
server = local_process.shared_server(local_process.ServerSettings(model="m", name="m"))
for s in server.waits():
    time.sleep(s)
print(server.facts.pid, flush=True)
{then}
"""


@pytest.mark.parametrize(
    ("then", "sign"),
    [
        ("time.sleep(60)", signal.SIGKILL),
        ("time.sleep(60)", signal.SIGTERM),
        ("pass", None),
        ("raise SystemExit(3)", None),
        # A fork of the kernel keeps the input pipe open: the child still ends with the kernel.
        ("os.fork() or (time.sleep(20), os._exit(0)); time.sleep(60)", signal.SIGKILL),
    ],
)
def test_child_ends_with_the_kernel_however_it_ends(child, tmp_path, then, sign):
    child(READY)
    kernel = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KERNEL.format(then=then)), str(tmp_path / "child.py")],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    pid = int(kernel.stdout.readline())
    try:
        if sign is not None:
            kernel.send_signal(sign)
        kernel.wait(10)
        assert gone(pid)
    finally:
        kernel.stdout.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(kernel.pid, signal.SIGKILL)  # the fork of the last case


def test_file_of_the_working_folder_is_no_module_of_the_child(child, tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise RuntimeError('wrong json')")
    monkeypatch.chdir(tmp_path)
    child(READY + "\n")
    server = LocalServer(SETTINGS)
    assert ready(server).n_ctx == 4096
    server.stop()


def test_config_travels_whole(child, tmp_path):
    copy = tmp_path / "c.json"
    child(f"json.dump(config, open({str(copy)!r}, 'w'))\n{READY}")
    settings = ServerSettings(model="m.gguf", name="m", threads=3, sampling=(("temp", 0.5),))
    server = LocalServer(settings)
    ready(server)
    server.stop()
    config = json.loads(copy.read_text())
    assert (config["threads"], config["sampling"], config["slots"]) == (3, {"temp": 0.5}, 1)


def test_default_threads_leave_a_core(monkeypatch):
    for cores, threads in ((1, 1), (2, 1), (8, 7)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=cores: set(range(n)))
        assert local_process.default_threads() == threads


def test_the_child_checks_the_file_before_it_loads_it(tmp_path):
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    local_server._check(model, None)
    local_server._check(model, hashlib.sha256(b"GGUF").hexdigest())
    with pytest.raises(SystemExit, match="damaged model file"):
        local_server._check(model, hashlib.sha256(b"other").hexdigest())


def test_the_real_child_ends_on_a_damaged_file(tmp_path):
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    server = LocalServer(ServerSettings(model=str(model), name="m", sha256="0" * 64))
    with pytest.raises(ProviderError, match="amaged model file") as caught:
        ready(server)
    assert not caught.value.is_retryable
    server.stop()
