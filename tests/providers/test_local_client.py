"""LocalModel against a stand-in of llama.cpp's server: its traps, without model and llama.cpp."""

from __future__ import annotations

import asyncio

import pytest

from notebook_agent.core import events as e
from notebook_agent.core.accumulator import StreamAccumulator
from notebook_agent.core.messages import Message, Role, TextPart, ToolCallPart, ToolResultPart
from notebook_agent.core.request import RequestOptions, StreamRequest, ToolSchema
from notebook_agent.errors import ErrorKind, ProviderError
from notebook_agent.providers import local, local_process
from notebook_agent.providers.base import Capabilities
from notebook_agent.providers.local import LocalModel
from notebook_agent.providers.local_files import FoundModel

pytestmark = pytest.mark.allow_requests

STAND_IN = r"""
import http.server, json, os, sys, threading
config = json.loads(sys.stdin.readline())
CHUNKS = [
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}, "finish_reason": None}]},
    {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}]},
    {"choices": [{"index": 0, "delta": {"content": " there"}, "finish_reason": None}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}},
]
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked = 0
    def log_message(self, *_):
        pass
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = json.dumps(body["messages"])
        if self.headers["authorization"] != "Bearer " + config["key"]:
            return self.answer(401, {"error": {"message": "Invalid API Key", "code": 401}})
        self.asked += 1
        if self.asked > 1:  # a reused connection is dropped
            self.close_connection = True
            return
        if "overflow" in text:
            return self.answer(400, {"error": {"message": "request (9000 tokens) exceeds the available "
                "context size", "type": "exceed_context_size_error", "code": 400}})
        if "echo" in text:
            return self.reply(text)
        if not body.get("stream"):
            if "crash" in text:
                os._exit(7)
            return self.reply("Hi there")
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for i, chunk in enumerate(CHUNKS):
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            if i == 1 and "crash" in text:
                print("ggml: assertion failed", file=sys.stderr, flush=True)
                os._exit(7)
            if i == 1 and "broken" in text:
                self.close_connection = True
                self.connection.close()
                return
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True
    def reply(self, text):
        self.answer(200, {"choices": [{"index": 0, "finish_reason": "stop", "message":
            {"role": "assistant", "content": text}}], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
    def answer(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
facts = {"url": f"http://127.0.0.1:{server.server_port}", "pid": os.getpid(), "n_ctx": 4096,
         "slots": config["slots"], "tools": config["name"] == "tooled"}
open(config["ready"] + ".part", "w").write(json.dumps(facts))
os.replace(config["ready"] + ".part", config["ready"])
sys.stdin.read()
os._exit(0)
"""


@pytest.fixture
def make(monkeypatch, tmp_path):
    """A maker of clients whose server is the stand-in."""
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    monkeypatch.setattr(local_process, "_SCRIPT", script)
    monkeypatch.setattr(local_process, "_SERVERS", {})
    monkeypatch.setattr(local, "_need_llama", lambda: None)
    for name in ("m", "tooled"):
        (tmp_path / f"{name}.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(local, "find_model", lambda: FoundModel(tmp_path / "m.gguf", "cache"))
    yield lambda name="smollm2", **given: LocalModel(
        name if name == "smollm2" else str(tmp_path / f"{name}.gguf"), **given
    )
    local_process.stop_all()


def ask(text="Say hi", **more):
    return StreamRequest((Message.user(text),), **more)


async def stream(model, request):
    accumulator = StreamAccumulator()
    async for event in model.stream_messages_with_options(request, RequestOptions()):
        accumulator.apply(event)
    await model.aclose()
    return accumulator


def test_both_ways_and_the_facts_of_the_server(make):
    async def run():
        model = make()
        assert model.capabilities().context_window == 8192
        reply = await stream(model, ask())
        assert (reply.text(), reply.ended, reply.usage.total) == ("Hi there", True, 5)
        assert model.capabilities().context_window == 4096
        assert model.capabilities().tool_calling is False
        whole = await model.create_message_with_options(ask(), RequestOptions())
        assert whole.message.text_content() == "Hi there"
        assert (model.base_url(), repr(model)) == ("", "<LocalModel local:smollm2>")
        await model.aclose()

    asyncio.run(run())


def test_a_connection_is_never_reused(make):
    async def run():
        model = make()
        for _ in range(5):
            assert (await stream(model, ask())).ended
            await model.create_message_with_options(ask(), RequestOptions())
        await model.aclose()

    asyncio.run(run())


def test_a_users_own_capabilities_stand(make):
    async def run():
        model = make(capabilities=Capabilities(context_window=99, source="user"))
        assert (await model.learn()).context_window == 99
        await model.aclose()

    asyncio.run(run())


@pytest.mark.parametrize("how", ["stream", "create"])
def test_tools_are_refused_where_the_template_has_none(make, how):
    async def run(model):
        request = ask(tools=(ToolSchema("add"),))
        if how == "stream":
            return await stream(model, request)
        return await model.create_message_with_options(request, RequestOptions())

    for name in ("smollm2", "m"):  # of a file of one's own it is known only when the server runs
        with pytest.raises(ProviderError) as caught:
            asyncio.run(run(make(name)))
        assert caught.value.kind is ErrorKind.UNSUPPORTED
        assert caught.value.feature == "tool_calling"
    asyncio.run(run(make("tooled")))


def test_tools_are_not_sent_with_a_forced_format_and_so_not_refused(make):
    async def run():
        options = RequestOptions(response_format={"type": "json_object"})
        model = make()
        await model.create_message_with_options(ask(tools=(ToolSchema("add"),)), options)
        await model.aclose()

    asyncio.run(run())


def test_overflow(make):
    for how in ("stream", "create"):

        async def run(how=how):
            model = make()
            if how == "stream":
                await stream(model, ask("overflow"))
            await model.create_message_with_options(ask("overflow"), RequestOptions())

        with pytest.raises(ProviderError) as caught:
            asyncio.run(run())
        assert caught.value.overflow


def test_calls_and_results_travel_as_text(make):
    async def run():
        request = StreamRequest(
            (
                Message.user("echo"),
                Message(Role.ASSISTANT, (TextPart("Looking."), ToolCallPart("1", "f", {"a": 1}))),
                Message.tool_results((ToolResultPart("1", "f", "7 apples"),)),
            )
        )
        model = make()
        reply = await model.create_message_with_options(request, RequestOptions())
        await model.aclose()
        return reply.message.text_content()

    text = asyncio.run(run())
    assert "7 apples" in text
    assert "tool_calls" not in text
    assert '"role": "tool"' not in text


@pytest.mark.parametrize("how", ["stream", "create"])
def test_a_crash_is_told_and_the_next_request_starts_it_again(make, how):
    async def run():
        model = make()
        with pytest.raises(ProviderError) as caught:
            if how == "stream":
                await stream(model, ask("crash"))
            await model.create_message_with_options(ask("crash"), RequestOptions())
        assert caught.value.kind is ErrorKind.TRANSPORT
        assert "exit code 7" in str(caught.value)
        assert ("assertion failed" in str(caught.value)) is (how == "stream")
        assert (await stream(model, ask())).ended

    asyncio.run(run())


def test_a_broken_connection_of_a_living_server_is_what_it_is(make):
    async def run():
        model = make()
        events = []
        with pytest.raises(ProviderError) as caught:
            async for event in model.stream_messages_with_options(ask("broken"), RequestOptions()):
                events.append(event)
        assert any(isinstance(x, e.IndexedDelta) for x in events)
        assert caught.value.kind is ErrorKind.TRANSPORT
        assert "exit code" not in str(caught.value)
        await model.aclose()

    asyncio.run(run())
