"""A provider's bad day over real sockets: what a reader sees, what it costs, what a stop does.

The server's faults never heal (bench/server.py). One ask each, as one call of any other engine:
the router retries whole turns inside the run, the breaker trips after one failed turn or after
three, and the backup in the chain serves. Waits are short. A reader sees fragments; a reset
empties the view.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import time
import urllib.request
from collections.abc import Iterator

import httpx

from bench.kit import UNITS, Row, amount, plain_row, ratio_row, server, timed_row
from notebook_agent.core.breaker import BreakerConfig
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.core.retry import RateLimitPolicy, RetryPolicy
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.engine.tokenizer import default_counter
from notebook_agent.errors import AgentError, Cancelled
from notebook_agent.providers.openai_chat import OpenAIChat

TRIPS = (1, 3)  # turns that fail before the backup serves
KINDS = ("bench", "cut", "trunc", "errev", "nousage", "fail503", "fail429")
GOOD = "".join(f" word{n % 10}" for n in range(100))
RATE = RateLimitPolicy(default_delay=0.02)


def stats(base: str) -> dict:
    """The server's counts."""
    with urllib.request.urlopen(f"{base}/stats", timeout=5) as answer:
        return json.load(answer)


def client(base: str, model: str) -> OpenAIChat:
    return OpenAIChat(model, base_url=f"{base}/v1", key="test-key-0123456789")


def engine(base: str, primary: str, **more) -> AgentRuntime:
    """A runtime on a primary with one backup, without a tokenizer."""
    settings = {
        "breaker": BreakerConfig(trip_threshold=1),
        "rate_limit": RATE,
        "fallback": [client(base, "bench-100")],
        "counter": default_counter(kind="estimate"),
        **more,
    }
    return AgentRuntime(client(base, primary), **settings)


class View:
    """What a reader sees. ``mixed`` once text of two attempts stood there together."""

    def __init__(self) -> None:
        self.text = ""
        self.resets = 0
        self.mixed = False
        self.first_failuresreset = 0.0

    def __call__(self, delta: str) -> None:
        self.text += delta
        self.mixed = self.mixed or not GOOD.startswith(self.text)

    def reset(self, _attempt: int) -> None:
        self.text = ""
        self.resets += 1


async def fault_row(base: str, kind: str, trip: int) -> Row:
    """One fault, one ask: text, resets, requests, seconds. ``trip``: failed turns to the backup."""
    view = View()
    before, began = stats(base)["requests"], time.perf_counter()
    runtime = engine(
        base, f"{kind}-100", text_streamer=view, breaker=BreakerConfig(trip_threshold=trip),
        policy=RuntimePolicy(router_retries=trip), retry=RetryPolicy(base_delay=0.02),
        # a 429 that lasts fails the turn, as a 503 does, instead of leaving the run as an
        # escalation, which is final: the person's own decision about a quota
        rate_limit=RateLimitPolicy(default_delay=0.02, max_retries=1, fallback_after_retries=1),
    )  # fmt: skip
    try:
        result = await runtime.arun("x")
    except AgentError as failed:
        error = type(failed).__name__
        view.reset(0)
    else:
        error = "" if result.text == GOOD else "other text"
    took = time.perf_counter() - began
    after = stats(base)["requests"]
    sent = {n: after[n] - before.get(n, 0) for n in after if after[n] != before.get(n, 0)}
    whole = not error and view.text == GOOD and not view.mixed
    lost = kind in ("cut", "trunc", "errev")
    good = whole and (view.resets >= 1 or not lost)
    requests = ", ".join(f"{count} {name}" for name, count in sent.items())
    failures = "one failure" if trip == 1 else f"{trip} failures"
    words = "exact" if whole else error or "not exact"
    return plain_row(
        2, f"fault {kind}: what the reader sees, {failures} to the backup",
        f"{words}, {view.resets} resets, {'MIXED' if view.mixed else 'nothing mixed'}; "
        f"{requests}; {took:.2f} s",
        "exact, never mixed" + (", reset first" if lost else ""), good,
    )  # fmt: skip


async def rescue_row(base: str, times: int) -> Row:
    """Wall time of a cut stream and its rescue, less the same two requests by plain httpx."""
    runtime = engine(base, "cut-100", retry=RetryPolicy(max_retries=0))
    url = f"{base}/v1/chat/completions"
    messages = [{"role": "user", "content": "x"}]
    ours, theirs = [], []
    async with httpx.AsyncClient() as plain:

        async def by_hand() -> None:
            body = {"model": "cut-100", "messages": messages, "stream": True}
            try:
                async with plain.stream("POST", url, json=body) as response:
                    async for _line in response.aiter_lines():
                        pass
            except httpx.HTTPError:
                pass
            answer = await plain.post(url, json={"model": "cut-100", "messages": messages})
            answer.json()

        for n in range(times + 3):
            began = time.perf_counter()
            await by_hand()
            middle = time.perf_counter()
            result = await runtime.arun("x", fresh=True)
            end = time.perf_counter()
            assert result.text == GOOD
            assert result.run.turns[-1].rescued
            if n >= 3:
                theirs.append(middle - began)
                ours.append(end - middle)
    base_s = statistics.median(theirs)
    own = statistics.median(a - b for a, b in zip(ours, theirs, strict=True))
    return timed_row(
        2, "own time of a whole run with reset and rescue, beyond the two requests", max(own, 0.0),
        "ms", 5, yard=("the requests by httpx", base_s), wall=True,
    )  # fmt: skip


async def breaker_rows(base: str, times: int) -> list[Row]:
    """While the primary rests: requests, cost, the probe."""
    healthy = engine(base, "bench-100")
    broken = engine(
        base, "fail503-100", retry=RetryPolicy(max_retries=0),
        breaker=BreakerConfig(trip_threshold=1, recovery_timeout=3600.0),
    )  # fmt: skip
    with contextlib.suppress(AgentError):
        await broken.arun("x", fresh=True)
    before = stats(base)["requests"]
    turns = 0
    ours, theirs = [], []
    for n in range(times + 3):
        began = time.process_time()
        await healthy.arun("x", fresh=True)
        middle = time.process_time()
        await broken.arun("x", fresh=True)
        end = time.process_time()
        turns += 1
        if n >= 3:
            theirs.append(middle - began)
            ours.append(end - middle)
    after = stats(base)["requests"]
    dead = after["fail503-100"] - before["fail503-100"]
    served = after["bench-100"] - before["bench-100"] - turns
    fast = engine(
        base, "fail503-100", retry=RetryPolicy(max_retries=0),
        breaker=BreakerConfig(trip_threshold=1, recovery_timeout=0.3),
    )  # fmt: skip
    probes = await _probe(base, fast)
    return [
        plain_row(
            2, f"breaker open, {turns} turns: requests to backup, to the dead primary",
            f"{served}, {dead}", f"{turns}, 0", served == turns and dead == 0,
        ),
        plain_row(
            2, "first turn after the cooldown: asks the primary, not before",
            f"{probes[0]} before, {probes[1]} after", "0 before, at least 1 after",
            probes[0] == 0 and probes[1] >= 1,
        ),
        ratio_row(
            2, "breaker open: a turn beside a healthy one", statistics.median(ours),
            statistics.median(theirs), 1.05, yard="healthy",
        ),
    ]  # fmt: skip


async def _probe(base: str, runtime: AgentRuntime) -> tuple[int, int]:
    """Requests to the primary in a turn before the end of the cooldown, and in one after it."""
    found = []
    with contextlib.suppress(AgentError):
        await runtime.arun("x")
    for wait in (0.0, 0.4):
        await asyncio.sleep(wait)
        before = stats(base)["requests"]["fail503-100"]
        with contextlib.suppress(AgentError):
            await runtime.arun("x")
        found.append(stats(base)["requests"]["fail503-100"] - before)
    return found[0], found[1]


async def cancel_rows(base: str, times: int) -> list[Row]:
    """A stop in mid-stream: the run has ended, the connection is gone; and one fired before."""
    confirmed, released = [], []
    for _ in range(times):
        runtime = engine(base, "pace100-2000")
        held = stats(base)["open"]
        task = asyncio.ensure_future(runtime.arun("x"))
        await asyncio.sleep(0.3)
        began = time.perf_counter()
        runtime.cancel()
        with contextlib.suppress(Cancelled):
            await task
        confirmed.append(time.perf_counter() - began)
        while stats(base)["open"] > held and time.perf_counter() - began < 5:
            await asyncio.sleep(0.001)
        released.append(time.perf_counter() - began)
    before = sum(stats(base)["requests"].values())
    runtime = engine(base, "bench-100")
    runtime.cancel()
    with contextlib.suppress(Cancelled):
        await runtime.arun("x")
    sent = sum(stats(base)["requests"].values()) - before
    timer = await _timer()
    yard = ("a 1 ms timer", timer)
    released_ms = f"connection gone after {amount(statistics.median(released) / UNITS['ms'], 'ms')}"
    return [
        timed_row(
            2, "cancel in mid-stream: the run has ended", statistics.median(confirmed), "ms", 50,
            yard=yard, wall=True, note=f"worst {max(confirmed) * 1e3:.0f} ms",
        ),
        timed_row(
            2, "cancel in mid-stream: the server sees the connection gone",
            statistics.median(released), "ms", 50, yard=yard, wall=True, note=released_ms,
        ),
        plain_row(2, "requests of a run cancelled before it", str(sent), "0", sent == 0),
    ]  # fmt: skip


async def _timer() -> float:
    """What the loop takes for a timer of 1 ms on this machine, now."""
    taken = []
    for _ in range(50):
        began = time.perf_counter()
        await asyncio.sleep(0.001)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


async def _all(base: str, quick: bool) -> list[Row]:
    out = [await fault_row(base, kind, trip) for trip in TRIPS for kind in KINDS]
    good = sum(row.met is True for row in out)
    out.append(
        plain_row(
            2, "fault table", f"{good} of {len(out)}", f"{len(out)} of {len(out)}", good == len(out)
        )
    )
    out.append(await rescue_row(base, 15 if quick else 60))
    out += await breaker_rows(base, 30 if quick else 200)
    out += await cancel_rows(base, 5 if quick else 20)
    return out


def rows(quick: bool) -> Iterator[Row]:
    """The rows of this bench."""
    with server() as base:
        yield from asyncio.run(_all(base, quick))
