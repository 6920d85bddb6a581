"""The block splitter: pieces of any size give the same blocks, and nothing is lost."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from notebook_agent.notebook.blocks import flush_tail, split_blocks
from notebook_agent.notebook.panel_state import Scan
from tests.notebook.recorded import FULL

SAMPLES = [
    FULL,
    "Title\n---\npara\nmore\n\n    code\n\n> quote\n> more\n\n1. a\n2. b\n   - c\n\n   para in b\n3. d\n",
    "text\n```py\n- no item\n\n# no heading\n```\nafter\n# head\nnext\n\n***\nend",
    "- a\n  ```\n  - not an item\n  ```\n- b\nlazy\n\nafter\n",
    "in\n2024. was a year\n- item\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n\nx\n",
    "~~~~\n```\n~~~\n~~~~\nout\n",
    "```never closed\ncode\n\ncode",
]


def split(text: str, size: int) -> list[str]:
    blocks, tail, scan = [], "", Scan()
    for i in range(0, len(text), size):
        done, tail, scan = split_blocks(tail + text[i : i + size], scan)
        blocks += done
    return [b.text for b in (*blocks, *flush_tail(tail)) if b.text.strip()]


def test_any_cut_gives_the_same_blocks() -> None:
    for sample in SAMPLES:
        whole = split(sample, len(sample))
        for size in (1, 2, 3, 7, 20):
            assert split(sample, size) == whole, (sample, size)


def test_blocks_of_the_sample() -> None:
    assert [b.split("\n")[0][:20] for b in split(FULL, 5)] == [
        "Two stretches look l", "- **3 March, 02:00 t", "- **11 March, 14:00.", "- **19 March, all da",
        "To blank the first t", "```python",
    ]  # fmt: skip
    assert split(SAMPLES[2], 3)[:3] == [
        "text\n",
        "```py\n- no item\n\n# no heading\n```\n",
        "after\n",
    ]
    assert split(SAMPLES[3], 3) == [
        "- a\n  ```\n  - not an item\n  ```\n",
        "- b\nlazy\n\n",
        "after\n",
    ]
    assert split(SAMPLES[4], 1) == ["in\n2024. was a year\n", "- item\n"]
    assert split("Title\n---\nx\n", 1) == ["Title\n---\n", "x\n"]


@given(st.text(alphabet="ab \n-*`#>1.|\r\t~", max_size=200), st.integers(1, 9))
def test_nothing_is_lost(text: str, size: int) -> None:
    blocks, tail, scan = [], "", Scan()
    for i in range(0, len(text), size):
        done, tail, scan = split_blocks(tail + text[i : i + size], scan)
        blocks += done
    assert "".join(b.text for b in blocks) + tail == text


def test_work_is_linear() -> None:
    """Four times the text must not take sixteen times the work, whatever it is made of."""

    def cost(text: str) -> float:
        start = time.process_time()
        split(text, 40)
        return time.process_time() - start

    for unit in (
        "word " * 10 + "\n\n",
        "x" * 60,
        "- item\n",
        "```\ncode\n```\n",
        "```\n" + "y" * 50,
        "a\n",
    ):
        small, large = unit * 400, unit * 1600
        base = min(cost(small) for _ in range(3))
        assert min(cost(large) for _ in range(3)) < 10 * base + 0.02, unit
