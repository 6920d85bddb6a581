"""Images in every form that people have them in, and what is said of those that are none (T05)."""

from __future__ import annotations

import base64
import io
import sys
from typing import Any

import pytest

from notebook_agent.engine.images import MAX_IMAGE_BYTES, image
from notebook_agent.errors import InputRejected

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154"
    "789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)
CODED = base64.b64encode(PNG).decode()
URI = f"data:image/png;base64,{CODED}"


class Shows:
    def _repr_png_(self) -> bytes:
        return PNG


class ShowsAndRaises(Shows):
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class Exits:
    def _repr_png_(self) -> bytes:
        sys.exit(3)


@pytest.mark.parametrize(
    "given",
    [
        PNG,
        bytearray(PNG),
        memoryview(PNG),
        io.BytesIO(PNG),
        Shows(),
        URI,
        f" {URI}\n",
        f"DATA:image/PNG;BASE64,{CODED}",
        f"data:;charset=utf-8;base64,{CODED}",
        f"data:image/png;base64,{CODED[:20]}\n {CODED[20:]}",
        f"data:image/png;base64,{CODED.replace('+', '-').replace('/', '_').rstrip('=')}",
        f"data:image/png;base64,{CODED.replace('+', '%2B').replace('=', '%3D')}",
        f"data:image/jpeg;base64,{CODED}",  # what the bytes are counts
    ],
)
def test_T05_one_image_in_many_forms(given):
    found = image(given)
    assert found.source == URI
    assert (found.width, found.height) == (1, 1)


def test_an_object_whose_attributes_raise():
    assert image(ShowsAndRaises()).source == URI


@pytest.mark.parametrize("address", ["http://h/x.png", " https://h/x.png ", "HTTPS://h/x.png?a=b"])
def test_an_address_stays_one(address):
    assert image(address).source == address.strip()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("ftp://h/x.png", "no address that a model can fetch"),
        ("file:///x.png", "no address that a model can fetch"),
        ("https://", "no address that a model can fetch"),
        ("https://h/a b.png", "no address that a model can fetch"),
        ("a\0b.png", "cannot be read"),
        ("x" * 5000, "x{120}\\.\\.\\. cannot be read"),
        ("data:image/png;base64,%%%", "is no PNG"),
        ("data:image/svg+xml,%3Csvg/%3E", "is no PNG"),
        (b"<svg/>", "is no image"),
        (io.BytesIO(b"text"), "is no image"),
        (Exits(), "is no image"),
    ],
)
def test_what_is_no_image_is_said_in_two_lines(given, words):
    with pytest.raises(InputRejected, match=words) as caught:
        image(given)
    assert len(str(caught.value)) < 400


def test_the_limit_is_the_bytes_of_the_image():
    assert image(PNG + bytes(MAX_IMAGE_BYTES - len(PNG))).width == 1
    with pytest.raises(InputRejected, match="20,971,521 bytes"):
        image(PNG + bytes(MAX_IMAGE_BYTES - len(PNG) + 1))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "HSV", "LAB"])
def test_pictures_of_every_mode(mode):
    pillow = pytest.importorskip("PIL.Image")
    found = image(pillow.new(mode, (3, 2)))
    assert (found.width, found.height) == (3, 2)


def test_a_photo_stays_a_jpeg():
    """As PNG a photo is many times bigger, and too big sooner."""
    pillow = pytest.importorskip("PIL.Image")
    sink = io.BytesIO()
    pillow.effect_noise((200, 200), 90).convert("RGB").save(sink, "JPEG")
    found = image(pillow.open(sink))
    assert found.source.startswith("data:image/jpeg;")
    assert len(found.source) < 2 * len(sink.getvalue())
    assert image(pillow.open(sink).rotate(90)).source.startswith("data:image/png;")
