"""Cells: what a sweep is made of, and the key under which a cell's answer is kept.

Source: tune by experiment, sweeps (the journal's key).
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from notebook_agent.errors import ConfigError
from notebook_agent.tuning.versions import code_version

__all__ = ["Cell", "code_version", "digest", "grid"]

_NOTHING: Final[Mapping[str, Any]] = {}


def digest(value: Any) -> bytes:
    """Sixteen bytes that stand for a JSON value; the order of a mapping's names does not count.

    Raises:
        ConfigError: The value is no JSON.
    """
    try:
        text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"A sweep's cells are made of JSON values, and this is none: {error}.\n"
            "Give texts, numbers, lists and mappings; objects by a name.",
            field="cells",
        ) from None
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


@dataclass(frozen=True, slots=True)
class Cell:
    """One call of a sweep: prompt x config x inputs x seed x repeat, all JSON.

    Attributes:
        prompt: Name or text of the prompt.
        config: Model and settings.
        inputs: Values of the prompt's placeholders.
        seed: Number for the provider, None = none is sent.
        repeat: Tells cells apart that are equal in all else, from 0.
        provider: Whose concurrency and rate the call counts for, "" = nobody's.
        place: Where the cell stands in its sweep, from 0.
        key: What its answer is kept under.
    """

    prompt: Any = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    repeat: int = 0
    provider: str = ""
    place: int = 0
    key: bytes = b""

    def spec(self) -> dict[str, Any]:
        """The parts that name the cell, for the journal and the frame."""
        return {
            "prompt": self.prompt,
            "config": self.config,
            "inputs": self.inputs,
            "seed": self.seed,
            "repeat": self.repeat,
        }


class _Digests:
    """Digests of values that many cells share, made once per object."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, bytes]] = {}  # the value is kept: its id stays its own

    def __call__(self, value: Any) -> bytes:
        found = self._made.get(id(value))
        if found is None:
            found = self._made[id(value)] = (value, digest(value))
        return found[1]


def keyed(cells: Iterable[Cell], code: str) -> Iterator[Cell]:
    """The cells with places and keys, in order.

    Args:
        cells: Without keys.
        code: Version of the code that works them.

    Raises:
        ConfigError: A cell is no JSON, or two cells are equal.
    """
    of, seen = _Digests(), set[bytes]()
    version = code.encode()
    given: object = cells
    if not isinstance(given, Iterable):
        raise ConfigError(field="cells", value=given, legal="cells, e.g. grid(inputs=[...])")
    for place, cell in enumerate(cells):
        one: object = cell
        if not isinstance(one, Cell):
            raise ConfigError(
                field=f"cells[{place}]", value=one, legal="a Cell, e.g. of grid(inputs=[...])"
            )
        text = b"".join((of(cell.prompt), of(cell.config), of(cell.inputs)))
        tail = f"{cell.seed}/{cell.repeat}/".encode()
        key = hashlib.sha256(text + tail + version).digest()[:16]
        if key in seen:
            raise ConfigError(
                f"Two cells of the sweep are equal (the second at place {place}).\n"
                "Give equal cells different repeats: 0, 1, 2 ...",
                field="cells",
            )
        seen.add(key)
        yield Cell(
            cell.prompt, cell.config, cell.inputs, cell.seed, cell.repeat, cell.provider, place, key
        )


def grid(
    prompts: Sequence[Any] = ("",),
    configs: Sequence[Mapping[str, Any]] = (_NOTHING,),
    inputs: Sequence[Mapping[str, Any]] = (_NOTHING,),
    seeds: Sequence[int | None] = (None,),
    repeats: int = 1,
) -> Iterator[Cell]:
    """Every combination; repeats vary last, so that a broken-off sweep has seen everything once.

    Example:
        >>> [(c.prompt, c.seed) for c in grid(["a", "b"], seeds=[1, 2])]
        [('a', 1), ('b', 1), ('a', 2), ('b', 2)]
    """
    for repeat, seed, values, config, prompt in itertools.product(
        range(repeats), seeds, inputs, configs, prompts
    ):
        provider = str(config.get("model", "")).partition(":")[0]
        yield Cell(prompt, config, values, seed, repeat, provider)
