"""Texts of seven kinds that lie on any machine with the test environment, or are generated."""

from __future__ import annotations

import base64
import inspect
import json
import pydoc_data.topics
import random
import re
import sysconfig
import unicodedata
from pathlib import Path

SITE = Path(sysconfig.get_paths()["purelib"])
STDLIB = Path(sysconfig.get_paths()["stdlib"])
_CHINESE = re.compile("[\u4e00-\u9fff]")


def _read(paths: list[Path], most: int = 400) -> list[str]:
    texts = []
    for path in sorted(paths)[:most]:
        try:
            texts.append(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError):
            continue
    return texts


def _cut(text: str, size: int, most: int) -> list[str]:
    return [text[i : i + size] for i in range(0, min(len(text), most), size)]


def prose() -> list[str]:
    """Paragraphs of English: Python's reference topics, readmes and licences of packages."""
    texts = [
        *pydoc_data.topics.topics.values(),
        *_read([*SITE.glob("*.dist-info/METADATA"), *SITE.glob("*.dist-info/**/LICENSE*")]),
    ]
    found = set()
    for paragraph in (p for text in texts for p in re.split(r"\n\s*\n", text)):
        words = paragraph.split()
        spoken = [w for w in words if w.strip(".,;:()\"'").isalpha() and not w.isupper()]
        # Tables, address lists and legal shouting are no prose.
        if len(words) >= 15 and len(spoken) > 0.9 * len(words) and "://" not in paragraph:
            found.add(paragraph)
    return sorted(found)


def code() -> list[str]:
    """Python of the standard library, Python and JavaScript of packages."""
    paths = [*STDLIB.glob("*.py"), *sorted(SITE.glob("jupyter*/**/*.py"))[:60],
             *sorted(SITE.glob("**/*.js"))[:80]]  # fmt: skip
    return [piece for text in _read(paths) for piece in _cut(text, 3_000, 30_000)]


def json_text() -> list[str]:
    """Schemas and settings of packages, generated records compact and indented."""
    rng = random.Random(3)
    found = [p for t in _read([*SITE.glob("**/*.json")], 300) for p in _cut(t, 2_000, 10_000)]
    for _ in range(50):
        value = [
            {"id": rng.randint(0, 10**9), "name": f"item-{i}", "ok": bool(i % 2),
             "value": rng.random(), "tags": ["a", "b"], "uuid": f"{rng.getrandbits(128):032x}"}
            for i in range(10)
        ]  # fmt: skip
        found += [json.dumps(value), json.dumps(value, separators=(",", ":"))]
        found.append(json.dumps(value, indent=2))
    return found


def chinese() -> list[str]:
    """Translated menus and messages, names of countries, languages and units."""
    found = []
    for text in _read([*SITE.glob("**/zh_*/LC_MESSAGES/*.po")]):
        lines = [s for s in re.findall(r'msgstr "(.*)"', text) if _CHINESE.search(s)]
        found += _cut("".join(lines), 300, 60_000)
    try:
        from babel.localedata import load
    except ImportError:
        return found
    for name in ("zh_Hans", "zh_Hant", "zh"):
        found += _cut("、".join(_strings(load(name))), 300, 30_000)
    return [text for text in found if _CHINESE.search(text)]


def _strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [s for v in value.values() for s in _strings(v)]
    return [value] if isinstance(value, str) and len(_CHINESE.findall(value)) >= 3 else []


def emoji() -> list[str]:
    """Every pictograph alone, and lines of them, with joined ones."""
    single = [chr(c) for c in range(0x1F300, 0x1FAF9) if unicodedata.category(chr(c)) == "So"]
    single += [f"{chr(c)}\ufe0f" for c in range(0x2600, 0x27C0)]
    single += ["👩‍💻", "👨‍👩‍👧‍👦", "👍🏽", "🇩🇪", "❤️", "🏳️‍🌈"] * 10
    rng = random.Random(5)
    lines = ["".join(rng.choices(single, k=rng.randint(1, 60))) for _ in range(100)]
    lines += [" ".join(rng.choices(single, k=rng.randint(1, 60))) for _ in range(100)]
    return single + lines


def base64_text() -> list[str]:
    """Random bytes and English in both alphabets, in one line and wrapped."""
    rng = random.Random(6)
    found = [base64.b64encode(rng.randbytes(rng.randint(15, 3_000))) for _ in range(150)]
    found += [base64.urlsafe_b64encode(rng.randbytes(rng.randint(15, 300))) for _ in range(50)]
    found += [base64.encodebytes(rng.randbytes(900)) for _ in range(30)]
    found += [base64.b64encode(p.encode()[:900]) for p in prose()[:100]]
    return [raw.decode() for raw in found]


def digits() -> list[str]:
    """Long numbers, columns, decimals."""
    rng = random.Random(7)
    found = ["".join(rng.choices("0123456789", k=rng.randint(1, 500))) for _ in range(100)]
    for _ in range(50):
        found.append(" ".join(str(rng.randint(0, 10 ** rng.randint(1, 9))) for _ in range(60)))
        found.append(", ".join(f"{rng.random() * 100:.3f}" for _ in range(60)))
        found.append("\n".join(f"{rng.randint(0, 999)}\t{rng.random():.2e}" for _ in range(50)))
    return found


def unknown() -> list[str]:
    """No known kind: noise, and other languages as far as they are at hand."""
    rng = random.Random(8)
    letters = "abcdefghijklmnopqrstuvwxyz"
    found = [
        " ".join("".join(rng.choices(letters, k=rng.randint(3, 12))) for _ in range(40))
        for _ in range(50)
    ]
    found += ["".join(map(chr, rng.choices(range(33, 127), k=200))) for _ in range(50)]
    found += ["".join(map(chr, rng.choices(range(0x400, 0x500), k=200))) for _ in range(50)]
    found += ["".join(map(chr, rng.choices(range(0x3040, 0x30FF), k=200))) for _ in range(50)]
    found += ["".join(map(chr, rng.choices(range(0x600, 0x6FF), k=200))) for _ in range(50)]
    return found


def corpus() -> dict[str, list[str]]:
    """Kind -> samples, each one once and not empty."""
    kinds = {"prose": prose, "source code": code, "JSON": json_text, "Chinese": chinese,
             "emoji": emoji, "base64": base64_text, "digits": digits,
             "unknown": unknown}  # fmt: skip
    return {kind: [s for s in dict.fromkeys(make()) if s.strip()] for kind, make in kinds.items()}


if __name__ == "__main__":
    for kind, samples in corpus().items():
        print(f"{kind}: {len(samples)} samples, {sum(map(len, samples)):,} characters")
    print(inspect.cleandoc(__doc__))
