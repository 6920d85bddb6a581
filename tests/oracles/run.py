"""The providers' own client libraries as judges of our decoding.

    python tests/oracles/run.py            (makes .venv-oracles at the first run)

A loopback server replays hand-written bodies, and the recorded ones when RECORDED_STREAMS names
their folder. Each goes through the provider's own library and through our decoder; text, refusal,
thinking, stop reason (where the library has them), tool calls and usage must be the same. Bodies on which the library raises (an error in mid stream,
a shape that only other services send) are counted apart: they judge nothing. Every difference is
printed; those that are understood stand in ``KNOWN`` with their reason. Exit status 1 on any other,
on a row of ``KNOWN`` that does not differ any more, and when fewer hand-written bodies than ``FLOOR``
are the same; 2 when the environment is broken.
"""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
import venv
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

from notebook_agent.providers.decode import decode_body  # noqa: E402  # after the path
from tests.providers.bodies import BODIES  # noqa: E402  # after the path

HOME = ROOT / ".venv-oracles"
TYPES = {"ollama": "application/x-ndjson"}

JOINED = "two calls under one index: the library makes one of them"
SURROGATES = "a lone surrogate stays in the library's text; here it becomes U+FFFD"
# (api, body, fields that differ) -> what the library does otherwise; ours is right.
KNOWN: dict[tuple[str, str, tuple[str, ...]], str] = {
    ("openai-chat", "S06 all index 0", ("calls",)): JOINED,
    ("openai-chat", "S06 all index 0, in pieces", ("calls",)): JOINED,
    ("openai-chat", "S06 no ids, all index 0", ("calls",)): JOINED,
    ("openai-chat", "no index", ("calls",)): "the library needs an index",
    ("openai-chat", "the old function_call", ("calls",)): "it is apart from tool_calls there",
    ("openai-chat", "surrogates and NUL", ("text",)): SURROGATES,
    ("openai-chat", "halves that stay alone", ("text",)): SURROGATES,
    ("anthropic-messages", "S06 two blocks that both claim index 0", ("calls",)): "the second one's arguments are lost",
    ("gemini", "another candidate", ("text",)): "its list is by arrival; ours goes by the candidate's index",
    ("openai-responses", "only the final object", ("text",)): "ask.py reads deltas, and there are none",
    ("openai-responses", "S06 two items that both claim index 0", ("calls",)): "ask.py keeps one call an index",
}  # fmt: skip
# Hand-written bodies that must be the same: fewer means that the comparison broke.
FLOOR = {
    "openai-chat": 38,
    "anthropic-messages": 20,
    "gemini": 15,
    "ollama": 12,
    "openai-responses": 16,
}


VERSIONS = (
    "import importlib.metadata as m, sys; print(*(f'{n}=={m.version(n)}' for n in sys.argv[1:]))"
)


class BrokenEnvironment(Exception):
    """The oracles' libraries are not there as pinned, or do not answer."""


def environment() -> Path:
    """The oracles' Python with the pinned libraries; made at the first run.

    Raises:
        BrokenEnvironment: It cannot be made.
    """
    python = HOME / ("Scripts" if os.name == "nt" else "bin") / "python"
    listed = Path(__file__).with_name("requirements.txt")
    wanted = listed.read_text("utf-8").split()
    names = [line.partition("==")[0] for line in wanted]
    try:
        if not python.exists():
            print(f"making {HOME.name} ...", flush=True)
            venv.create(HOME, with_pip=True)
        for install in (True, False):
            told = subprocess.run(
                [python, "-c", VERSIONS, *names], capture_output=True, text=True, check=False
            )
            if told.stdout.split() == wanted:
                return python
            if install:
                subprocess.run([python, "-m", "pip", "install", "-q", "-r", listed], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BrokenEnvironment(f"{HOME.name}: {error}") from error
    raise BrokenEnvironment(f"{HOME.name} has {told.stdout.split()}, wanted {wanted}")


class Replay(http.server.BaseHTTPRequestHandler):
    """Answers any POST with the body that is on."""

    body = b""
    kind = "text/event-stream"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(200)
        self.send_header("content-type", self.kind)
        self.send_header("content-length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: Any) -> None: ...


def cases() -> list[tuple[str, str, bytes, str]]:
    """(api, name, body, content type)."""
    found = [
        (api, name, body, TYPES.get(api, "text/event-stream"))
        for api, rows in BODIES.items()
        for name, body, _ in rows
    ]
    folder = os.environ.get("RECORDED_STREAMS", "")
    if not folder:
        print("RECORDED_STREAMS is not set: hand-written bodies only")
        return found
    for line in (Path(folder) / "manifest.jsonl").read_text("utf-8").splitlines():
        entry = json.loads(line)
        if entry["http_status"] == 200 and "http_error" not in entry["scenario"]:
            body = (Path(folder) / entry["file"]).read_bytes()
            kind = entry.get("content_type") or TYPES.get(entry["api"], "text/event-stream")
            found.append((entry["api"], entry["id"], body, kind))
    return found


def ours(api: str, body: bytes) -> dict[str, Any]:
    """Our decoding in the form of ``ask.py``."""
    made = decode_body(body, api)
    usage = made["usage"]
    return {
        "text": made["text"],
        "refusal": made["refusal"],
        "calls": [{"name": c["name"], "arguments": c["arguments"]} for c in made["tool_calls"]],
        "usage": None
        if usage is None
        else {"input": usage.get("input_tokens"), "output": usage.get("output_tokens")},
        "thinking": made["thinking"],
        "stop": made["stop_reason"],
        "ended": made["complete"] and made["error"] is None,
    }


def differences(theirs: dict[str, Any], mine: dict[str, Any], api: str) -> list[str]:
    """Fields that differ; usage, thinking and stop reason only where the library told."""
    out = [f for f in ("text", "refusal") if theirs[f] != mine[f]]
    out += [f for f in ("thinking", "stop") if theirs.get(f) not in (None, mine[f])]
    calls = [(c["name"], _parsed(c["arguments"])) for c in theirs["calls"]]
    own = [(c["name"], c["arguments"]) for c in mine["calls"]]
    # Arguments that were cut are none for us; the libraries mend them or drop them.
    cut = [name for name, value in own if value is None]
    if len(calls) != len(own) or any(
        a != b and not (b[1] is None and a[0] == b[0]) for a, b in zip(calls, own, strict=True)
    ):
        out.append("calls" if not cut else "cut calls")
    if theirs["usage"] and mine["usage"]:
        for field, value in theirs["usage"].items():
            got = mine["usage"].get(field)
            # Gemini's library counts thoughts apart from candidates; ours adds them (README).
            thoughts = api == "gemini" and field == "output" and (got or 0) > (value or 0)
            if value is not None and got is not None and got != value and not thoughts:
                out.append(f"usage.{field}")
    return out


def _parsed(text: str) -> Any:
    try:
        return json.loads(text or "{}")
    except ValueError:
        return text


def main() -> int:
    """Compare every body; the exit status."""
    python = environment()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Replay)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    bare = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    asker = subprocess.Popen(
        [python, Path(__file__).with_name("ask.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, env=bare,
    )  # fmt: skip
    counts: dict[str, Counter[str]] = {}
    bad = 0
    floor: Counter[str] = Counter()
    seen: set[tuple[str, str, tuple[str, ...]]] = set()
    written = {(api, name) for api, rows in BODIES.items() for name, _, _ in rows}
    try:
        for api, name, body, kind in cases():
            Replay.body, Replay.kind = body, kind
            asker.stdin.write(json.dumps({"api": api, "url": url}) + "\n")
            asker.stdin.flush()
            line = asker.stdout.readline()
            if not line:
                raise BrokenEnvironment(f"ask.py ended before {api}: {name}")
            theirs = json.loads(line)
            mine = ours(api, body)
            tally = counts.setdefault(api, Counter())
            if "raised" in theirs:
                tally["library raises"] += 1
                tally["of these an end for us"] += mine["ended"]
                continue
            found = differences(theirs, mine, api)
            if not found:
                tally["same"] += 1
                floor[api] += (api, name) in written
            elif (api, name, tuple(found)) in KNOWN:
                tally["known difference"] += 1
                seen.add((api, name, tuple(found)))
            else:
                tally["DIFFERENT"] += 1
                bad += 1
                print(f"{api}: {name}: {', '.join(found)}\n  library {theirs}\n  ours    {mine}")
    finally:
        asker.stdin.close()
        asker.wait(20)
        server.shutdown()
    for api, tally in counts.items():
        print(f"{api:20} " + ", ".join(f"{n} {word}" for word, n in sorted(tally.items())))
    for api, least in FLOOR.items():
        if floor[api] < least:
            bad += 1
            print(f"{api}: {floor[api]} hand-written bodies are the same, {least} must be")
    for row in KNOWN.keys() - seen:
        bad += 1
        print(f"no difference any more, take it out of KNOWN: {row}")
    passed = sum(t["same"] + t["known difference"] for t in counts.values())
    print(f"{passed} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenEnvironment as broken:
        print(f"the environment is broken: {broken}\n0 passed, 1 failed")
        sys.exit(2)
