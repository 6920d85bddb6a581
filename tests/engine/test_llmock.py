"""The engine against an independent server, ``llmock`` (issue 3, "Real counterparts").

Each fault is on at 100 %, so the stream never gets through and the unstreamed rescue must serve;
with a status at 100 % nothing does, and the error must be ours.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from notebook_agent.core.retry import RateLimitPolicy, RetryPolicy, StreamTimeouts
from notebook_agent.engine.clock import SYSTEM
from notebook_agent.errors import ProviderError, RateLimitEscalation
from notebook_agent.providers.openai_chat import OpenAIChat
from tests.engine.fakes import Bench

pytestmark = [pytest.mark.allow_requests, pytest.mark.slow]

LLMOCK = Path(sys.executable).with_name("llmock")
SETTINGS = {
    "surroundings": SYSTEM,
    "timeouts": StreamTimeouts(
        initial_event_timeout=5, per_event_timeout=0.4, total_stream_timeout=20
    ),
    "retry": RetryPolicy(max_retries=1, base_delay=0.01, max_delay=0.02),
    "rate_limit": RateLimitPolicy(default_delay=0.01, max_delay=2),
}


@contextmanager
def llmock(*options: str):
    """A running server; its base URL. Ended by its own handle."""
    if not LLMOCK.exists() and shutil.which("llmock") is None:
        pytest.skip("llmock is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [str(LLMOCK), "serve", "--host", "127.0.0.1", "--port", str(port),
         "--response-style", "hello", "--log-level", "error", *options],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        end = time.monotonic() + 30
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=1).close()
                break
            except urllib.error.HTTPError as answer:  # it answers, with whatever status
                answer.close()
                break
            except OSError:
                assert time.monotonic() < end, "llmock did not start"
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(10)


def one_turn(url: str):
    """(bench, served, error) of one turn."""

    async def main():
        bench = Bench(**SETTINGS)
        client = OpenAIChat("gpt-4o", base_url=url, key="k", provider="fake")
        bench.llm.resolve_client = lambda _: client
        served = error = None
        try:
            served = await bench.turn()
        except (ProviderError, RateLimitEscalation) as caught:
            error = caught
        await client.aclose()
        return bench, served, error

    return asyncio.run(main())


def view(bench) -> str:
    """What a reader sees at the end: fragments, cleared by a reset."""
    text = ""
    for name, ctx in bench.log.calls:
        if name == "on_text_delta":
            text += ctx.delta
        elif name == "on_attempt_reset":
            text = ""
    return text


def test_a_healthy_llmock():
    with llmock() as url:
        bench, served, error = one_turn(url)
    assert error is None
    assert served.attempts == 1
    assert view(bench) == served.response.message.text_content() != ""


@pytest.mark.parametrize("fault", ["disconnect", "truncate", "malformed", "stall"])
def test_a_stream_that_never_gets_through_is_rescued_without_a_mixture(fault):
    with llmock("--stream-fault", f"{fault}=1") as url:
        bench, served, error = one_turn(url)
    assert error is None, error
    assert (served.attempts, served.rescued) == (2, True)
    assert view(bench) == served.response.message.text_content() != ""


@pytest.mark.parametrize(
    ("status", "kind"), [(429, RateLimitEscalation), (503, ProviderError), (401, ProviderError)]
)
def test_a_status_on_every_request_is_one_typed_error(status, kind):
    with llmock("--error-rate", f"{status}=1") as url:
        bench, served, error = one_turn(url)
    assert served is None
    assert isinstance(error, kind)
    assert len(bench.log.of("on_stream_failure")) == 1
    if status == 401:
        assert bench.llm.last_attempts.attempts == 1
