"""Saved outputs of every kind, in one notebook file: what a reader opens weeks later."""

from __future__ import annotations

import json
from pathlib import Path

from notebook_agent.core import agent_events as ev
from notebook_agent.notebook.output import bundle, metadata
from notebook_agent.notebook.panel_state import PanelState, Replied, RowAdded
from notebook_agent.notebook.reducer import reduce_all
from tests.notebook.recorded import happened, opened, recorded, row, to_model, words

LONG_WORD = "https://example.org/" + "tide-gauge-record-" * 12
WIDE = (
    "# A first heading\n\nText with `code`, **bold**, *emphasis*, ~~struck~~ and "
    "[a link](https://example.org/a).\n\n"
    f"A word without an end: {LONG_WORD}\n\n`{'identifier_' * 16}`\n\n"
    f"```python\nresult = {' + '.join(f'measurement_{i:02d}' for i in range(24))}\n```\n\n"
    f"| {' | '.join(f'column {i}' for i in range(14))} |\n|{'---|' * 14}\n"
    f"| {' | '.join(f'{i * 1234.5:,.1f}' for i in range(14))} |\n\n"
    "| station | note |\n|:---|---:|\n| Hook of Holland | a cell with so many words in it that it "
    "has to be broken over more than one line wherever it stands |\n\n"
    "> A quotation, with a second sentence that is long enough to be broken over two lines of text.\n\n"
    "1. one\n2. two\n   - nested\n   - again\n\n---\n\n## A second heading\n\nThe end.\n"
)
LONG_NAME = "openai-compatible:" + "a-very-long-model-name-" * 6


def long_words():
    """Long words, tables, code, names, arguments, results and causes."""
    argument = json.dumps({"query": LONG_WORD, "window": "5h"})
    return [
        opened(LONG_NAME),
        *to_model(0.0, model=LONG_NAME),
        happened(1.0, ev.ToolCallStarted(call_id="c1", tool_name="search_" * 9)),
        happened(1.2, ev.ToolCallCompleted(call_id="c1", tool_name="search_" * 9, arguments=argument)),
        happened(1.3, ev.ToolExecutionStarted(call_id="c1", tool_name="search_" * 9)),
        happened(2.0, ev.ToolExecutionFinished(
            call_id="c1", tool_name="search_" * 9, result="value," * 90, duration_s=0.7)),
        *words(2.1, WIDE, step=400),
        Replied(at=3.0, text=WIDE),
        RowAdded(at=3.1, row=row(0, LONG_NAME, tool_calls=1)),
        *recorded()["completed"][-4:],
    ]  # fmt: skip


def frozen_states() -> dict[str, PanelState]:
    """Name -> the state whose saved output is looked at: ended, or frozen as it stood."""
    return {
        name: reduce_all(events)
        for name, events in {**recorded(), "long words": long_words()}.items()
    }


def write_frozen(path: Path) -> list[str]:
    """A notebook with a cell for each of them; the names, in order."""
    cells = []
    states = frozen_states()
    for i, (name, state) in enumerate(states.items()):
        shown = {"output_type": "display_data", "data": bundle(state), "metadata": metadata(state)}
        cells.append({"cell_type": "code", "id": f"f{i}", "metadata": {}, "execution_count": i + 1,
                      "source": f"%%agent\n{name}", "outputs": [shown]})  # fmt: skip
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path.write_text(json.dumps({"cells": cells, "metadata": {"kernelspec": spec}, "nbformat": 4,
                                "nbformat_minor": 5}))  # fmt: skip
    return list(states)
