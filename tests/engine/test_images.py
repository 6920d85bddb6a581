"""Images in: sizes from headers, what counts as an image, prompts and transients (T05, B39)."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_agent import AgentRuntime, ProviderError, ScriptedModel, ask
from notebook_agent.core.messages import ImagePart, Message, TextPart
from notebook_agent.core.pixels import media_type, pixel_size
from notebook_agent.engine import images
from notebook_agent.engine.images import as_message, find_image, image
from notebook_agent.errors import InputRejected
from notebook_agent.providers.base import Capabilities

PIL = pytest.importorskip("PIL.Image")


def encoded(kind: str, size: tuple[int, int], **how) -> bytes:
    sink = io.BytesIO()
    PIL.new("RGB", size, (200, 30, 30)).save(sink, format=kind, **how)
    return sink.getvalue()


FORMATS = [
    ("PNG", {}), ("GIF", {}), ("JPEG", {}), ("JPEG", {"progressive": True}),
    ("WEBP", {}), ("WEBP", {"lossless": True}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "how"), FORMATS)
@pytest.mark.parametrize("size", [(1, 1), (37, 5), (640, 480), (3000, 1999)])
def test_T05_size_is_read_from_the_header_as_pillow_reads_it(kind, how, size):
    raw = encoded(kind, size, **how)
    assert pixel_size(raw) == PIL.open(io.BytesIO(raw)).size == size
    assert media_type(raw) == f"image/{kind.lower()}"
    if kind != "JPEG":
        assert pixel_size(raw[:30]) == size


def test_extended_webp_and_metadata_before_a_jpegs_size():
    frames = [PIL.new("RGBA", (321, 123), (i, 0, 0, 90)) for i in (1, 99)]
    sink = io.BytesIO()
    frames[0].save(sink, format="WEBP", save_all=True, append_images=frames[1:])
    assert pixel_size(sink.getvalue()) == (321, 123)
    exif = PIL.Exif()
    exif[0x010E] = "x" * 40_000
    raw = encoded("JPEG", (70, 50), exif=exif.tobytes())
    assert pixel_size(raw) == (70, 50)
    assert pixel_size(raw[:1000]) is None


@given(st.binary(max_size=60), st.sampled_from([b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8\xff",
                                                b"RIFF1234WEBPVP8 ", b"RIFF1234WEBPVP8L", b""]))  # fmt: skip
def test_any_bytes_have_a_positive_size_or_none(data, head):
    size = pixel_size(head + data)
    assert size is None or min(size) > 0


def test_what_counts_as_an_image(tmp_path):
    raw = encoded("PNG", (20, 10))
    file = tmp_path / "a.png"
    file.write_bytes(raw)
    uri = "data:image/png;base64," + base64.b64encode(raw).decode()
    shown = SimpleNamespace(_repr_png_=lambda: raw)
    bundle = SimpleNamespace(
        _repr_mimebundle_=lambda: ({"image/png": base64.b64encode(raw).decode()}, {})
    )
    axes = SimpleNamespace(figure=PIL.open(file))
    for value in (
        file,
        str(file),
        raw,
        uri,
        PIL.open(file),
        shown,
        bundle,
        axes,
        ImagePart(uri, 20, 10),
    ):
        part = image(value)
        assert (part.width, part.height) == (20, 10), value
        assert part.source.startswith("data:image/png;base64,")
    assert image("https://host.example/a.png") == ImagePart("https://host.example/a.png")


def broken():
    raise RuntimeError("no figure")


@pytest.mark.parametrize(
    "value",
    [3, None, object(), b"BM not ours", "no/such/file.png", "data:image/png;base64,!!", Path("/"),
     "data:text/plain,x", SimpleNamespace(_repr_png_=broken), SimpleNamespace(_repr_png_=lambda: None)],
)  # fmt: skip
def test_what_is_no_image_is_said(value):
    with pytest.raises(InputRejected, match="Nothing was sent"):
        image(value)


def test_too_big(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "MAX_IMAGE_BYTES", 500)
    raw = encoded("PNG", (4, 4)) + b"\0" * 600
    (tmp_path / "big.png").write_bytes(raw)
    for value in (
        raw,
        tmp_path / "big.png",
        "data:image/png;base64," + base64.b64encode(raw).decode(),
    ):
        with pytest.raises(InputRejected, match="at most 500"):
            image(value)


def test_matplotlib():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    figure, axes = pyplot.subplots(figsize=(2, 1), dpi=100)
    for value in (figure, axes):
        assert (image(value).width, image(value).height) == (200, 100)
    pyplot.close(figure)


def test_a_message_of_texts_and_images():
    raw = encoded("PNG", (2, 3))
    message = as_message(["What is", raw, "this?"])
    assert [p.type for p in message.parts] == ["text", "image", "text"]
    assert as_message("a.png").parts == (TextPart("a.png"),)  # text stays text
    kept = Message.user("x")
    assert as_message(kept) is kept
    assert find_image("a.png") is None


def test_prompts_and_transients_take_images():
    client = ScriptedModel(["A square."])
    raw = encoded("PNG", (64, 64))
    runtime = AgentRuntime(client)
    runtime.run(["What is this?", raw], transients=["Be brief.", raw])
    first, second, asked = client.requests[0].messages
    assert (first.text_content(), second.parts[0].width) == ("Be brief.", 64)
    assert [p.type for p in asked.parts] == ["text", "image"]
    assert [p.type for p in runtime.session.history[0].parts] == ["text", "image"]
    assert runtime.session.runs[0].turns[0].input == "What is this?"
    assert ask([raw], model=ScriptedModel("ok")).text == "ok"  # an image alone is a prompt


def test_T05_a_big_image_costs_a_bounded_number_of_tokens():
    raw = encoded("PNG", (3000, 2000)) + b"\0" * 2_500_000
    client = ScriptedModel(["A chart."], window=128_000)
    result = AgentRuntime(client).run(["What is this?", raw])
    assert 1_000 < result.turns[0].context_estimate < 2_000
    assert not result.turns[0].compacted
    assert client.requests[0].messages[0].parts[1].source.endswith("AAAA")


@pytest.mark.parametrize("where", ["prompt", "transients"])
def test_B39_a_model_without_vision_is_not_asked(where):
    client = ScriptedModel(["x"], capabilities=Capabilities(vision=False))
    raw = encoded("PNG", (4, 4))
    runtime = AgentRuntime(client)
    with pytest.raises(ProviderError, match="does not support images") as caught:
        if where == "prompt":
            runtime.run(["look", raw])
        else:
            runtime.run("look", transients=[raw])
    assert caught.value.feature == "vision"
    assert not client.requests
