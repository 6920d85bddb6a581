"""What a tool returned, as text and images; the cut of long output."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import enum
import io
import itertools
import json
import struct
import subprocess
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from notebook_agent.core.messages import ImagePart, TextPart
from notebook_agent.engine.tools import image_part, to_output, truncate_output
from notebook_agent.engine.tools.output import MAX_BYTES, MAX_LINES


def png(width=2, height=3):
    def block(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = b"".join(b"\x00" + b"\x00" * 3 * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + block(b"IHDR", head)
        + block(b"IDAT", zlib.compress(rows))
        + block(b"IEND", b"")
    )


class Size(enum.Enum):
    BIG = "big"


class Model(BaseModel):
    n: int
    when: dt.date


@dataclasses.dataclass
class Point:
    x: int
    tags: list[str]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (None, "(no result)"),
        (3, "3"),
        (2.5, "2.5"),
        (True, "true"),
        ({"b": [1, None], "a": "é"}, '{"b": [1, null], "a": "é"}'),
        ([1, (2, 3)], "[1, [2, 3]]"),
        ({1: "int key"}, '{"1": "int key"}'),
        (Point(1, ["t"]), '{"x": 1, "tags": ["t"]}'),
        (Model(n=1, when=dt.date(2026, 1, 2)), '{"n": 1, "when": "2026-01-02"}'),
        ({"s": Size.BIG, "p": Point(2, [])}, '{"s": "big", "p": {"x": 2, "tags": []}}'),
        (b"bytes as text", "bytes as text"),
        (b"\xff\x00\x01", "[3 bytes that are no text]"),
        (TextPart("part"), "part"),
        (["a", TextPart("b")], "a\nb"),
    ],
    ids=repr,
)
def test_values(value, text):
    assert to_output(value) == (text, ())


def test_lazy_values_are_lists():
    for value in ((n for n in (1, 2)), range(1, 3), map(int, "12"), {1: 0, 2: 0}.keys()):
        assert to_output(value) == ("[1, 2]", ())
    assert json.loads(to_output(zip("ab", "cd", strict=True))[0]) == [["a", "c"], ["b", "d"]]
    assert len(json.loads(to_output(n for n in itertools.count())[0])) == 10_000
    assert to_output(iter_images())[0] == "x\n[image 2x3]"


def iter_images():
    yield TextPart("x")
    yield png()


def test_A02_T02_what_enters_is_clean():
    assert to_output("ok\x00\x1b[31mend")[0] == "ok\ufffd\x1b[31mend"
    assert to_output("half \ud83d!")[0] == "half \ufffd!"
    assert to_output("\ud83d\ude00")[0] == "😀"
    assert json.loads(to_output({"k\ud83d": "v\x00"})[0]) == {"k\ufffd": "v\ufffd"}
    assert json.loads(to_output({"k": "v\x00"})[0]) == {"k": "v\ufffd"}
    assert "\ud83d" not in to_output({"k\ud83d": ["v\ud83d"]})[0]


def test_odd_objects_never_raise():
    loop: list = []
    loop.append(loop)

    class Rude:
        def __str__(self):
            raise RuntimeError("no")

        __repr__ = __str__

    assert to_output(loop)[0]
    assert to_output(Rude())[0] == "[Rude that cannot be shown: RuntimeError]"
    assert "Rude that cannot be shown" in to_output([Rude()])[0]
    assert to_output(Size.BIG)[0] == '"big"'
    assert to_output({(1, 2): 3})[0]
    assert to_output(float("nan"))[0] == "NaN"
    assert to_output({1, 2})[0] == "[1, 2]"
    assert to_output(object)[0]


def test_frames_arrays_and_series_by_their_text():
    import numpy as np
    import pandas as pd

    text, images = to_output(pd.DataFrame({"a": range(500), "b": "x"}))
    assert text.startswith("500 rows x 2 columns\n")
    assert text.count("\n") < 80
    assert images == ()
    assert to_output(pd.Series([1, 2], name="s"))[0].startswith("2 values, int64\n")
    assert to_output(np.float64(2.5))[0] == "2.5"
    assert to_output(np.int64(7))[0] == "7"
    assert to_output(np.array([1, 2]))[0] == "[1 2]"
    assert json.loads(to_output({"x": np.int64(3), "y": np.array([1])})[0]) == {"x": 3, "y": [1]}


def test_pandas_is_never_imported_by_the_tools():
    code = (
        "import sys, notebook_agent.engine.tools as t; t.to_output({'a': 1}); "
        "print([m for m in ('pandas', 'numpy', 'jsonschema', 'PIL', 'IPython') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_T05_images_become_image_parts():
    raw = png(20, 30)
    text, (image,) = to_output(raw)
    assert text == "[image 20x30]"
    assert (image.width, image.height) == (20, 30)
    assert base64.b64decode(image.source.removeprefix("data:image/png;base64,")) == raw
    given = ImagePart("https://example.org/x.png")
    assert to_output(given) == ("[image]", (given,))
    text, images = to_output(["before", raw, "after", given])
    assert text == "before\n[image 20x30]\nafter\n[image]"
    assert images == (image, given)


def test_other_image_formats_tell_their_size():
    gif = b"GIF89a" + struct.pack("<HH", 7, 9) + b"\x00" * 10
    assert (image_part(gif).width, image_part(gif).height) == (7, 9)
    jpeg = b"\xff\xd8\xff\xe0" + struct.pack(">H", 4) + b"\x00\x00" + b"\xff\xc0"
    jpeg += struct.pack(">HBHHB", 11, 8, 5, 6, 1) + b"\x00" * 9
    assert (image_part(jpeg).width, image_part(jpeg).height) == (6, 5)
    webp = b"RIFF\x00\x00\x00\x00WEBPVP8 " + b"\x00" * 8
    assert image_part(webp).source.startswith("data:image/webp;base64,")
    assert image_part(webp).width is None
    assert image_part(b"BM nothing we send") is None
    assert image_part(png()[:12]).width is None
    assert image_part(b"\xff\xd8\xff").width is None


class Figure:
    """Stands in for matplotlib's, which the tests do without."""

    __module__ = "matplotlib.figure"

    def __init__(self, drawn=b""):
        self.drawn = drawn

    def savefig(self, sink, format):
        assert format == "png"
        if not self.drawn:
            raise RuntimeError("no renderer")
        sink.write(self.drawn)


def test_figures_are_drawn_and_one_that_cannot_be_is_text():
    text, (image,) = to_output(Figure(png(5, 4)))
    assert text == "[image 5x4]"
    assert image.source.startswith("data:image/png;base64,")
    text, images = to_output(Figure())
    assert (images, "Figure" in text) == ((), True)


def test_pillow_images():
    pil = pytest.importorskip("PIL.Image")
    sink = io.BytesIO()
    pil.new("RGB", (4, 5)).save(sink, format="PNG")
    assert to_output(pil.new("RGB", (4, 5)))[0] == "[image 4x5]"


def test_ipython_images():
    from IPython.display import Image

    assert to_output(Image(data=png()))[0] == "[image 2x3]"


# --- the cut -----------------------------------------------------------------------------------


def test_B54_lines_half_head_half_tail_and_the_marker_counts():
    text = "\n".join(f"line {n}" for n in range(10_000))
    out = truncate_output(text)
    lines = out.split("\n")
    assert len(lines) == MAX_LINES
    assert lines[0] == "line 0"
    assert lines[-1] == "line 9999"
    (marker,) = [n for n, line in enumerate(lines) if "cut" in line]
    assert marker == 1_000
    assert f"10,000 lines, {len(text):,} bytes" in lines[marker]


def test_B54_bytes_three_quarters_head_and_the_marker_counts():
    text = "a" * 60_000 + "z" * 60_000
    out = truncate_output(text)
    assert len(out) == MAX_BYTES
    head, tail = out.split("\n[... cut")
    tail = tail.split("...]\n")[1]
    assert len(head) == pytest.approx(3 * len(tail), abs=4)
    assert set(tail) == {"z"}
    assert "1 lines, 120,000 bytes" in out


def test_what_fits_stays_as_it_is():
    for text in ("", "x", "\n" * (MAX_LINES - 1), "a" * MAX_BYTES):
        assert truncate_output(text) is text


@given(st.text(alphabet=st.sampled_from("ab\né😀"), max_size=600), st.integers(3, 30))
def test_any_text_fits_after_the_cut_and_is_valid(text, lines):
    out = truncate_output(text, max_lines=lines, max_bytes=300)
    assert len(out.encode()) <= 300
    assert out.count("\n") + 1 <= lines
    assert "\ufffd" not in out
