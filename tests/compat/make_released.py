"""Write the files of the current schema for tests/compat/released. Once per released schema:
a file that stands there is what users have on their disks and is never written again.

    python -m tests.compat.make_released
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.messages import ToolCallPart
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.engine.store.jsonl import export_runs
from notebook_agent.engine.store.run_file import RUN_FILE_SCHEMA
from notebook_agent.engine.store.schema import APPLICATION_ID, SCHEMA_VERSION
from notebook_agent.engine.store.sqlite import SqliteStore
from notebook_agent.errors import AgentError
from notebook_agent.providers.scripted import Reply, ScriptedModel
from tests.conftest import fixed_surroundings, run_virtual
from tests.engine.runtime_kit import CharCounter

RELEASED = Path(__file__).parent / "released"


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def main() -> None:
    """Refuses to touch what is there."""
    dump, run_file = (
        RELEASED / f"sessions_{SCHEMA_VERSION}.sql",
        RELEASED / f"run_{RUN_FILE_SCHEMA}.jsonl",
    )
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "sessions.db")
        session_id = run_virtual(work(store))
        if not run_file.exists():
            export_runs(store, session_id, run_file, exported_at=1_767_225_600.0)
        if not dump.exists():
            with store.reading() as db:
                lines = [
                    f"PRAGMA application_id={APPLICATION_ID};",
                    f"PRAGMA user_version={SCHEMA_VERSION};",
                    *db.iterdump(),
                ]
            dump.write_text("\n".join(lines) + "\n")
        store.close()


async def work(store: SqliteStore) -> str:
    """A tool turn, plain turns with a compaction, a failed run, an undone one, odd text."""
    replies = [
        Reply(text="Let me add.", tool_calls=[ToolCallPart("c1", "add", {"a": 1, "b": 2})]),
        "Three.",
        *(f"{n} " + "word " * 40 for n in range(4)),
        "odd \x1b[31m text \u202e",
    ]
    runtime = AgentRuntime(
        ScriptedModel(replies, script="ok*6,401,ok"), store=store, session="résumé 100%_", tools=[add],
        system="Be brief.", surroundings=fixed_surroundings(), counter=CharCounter(),
        compaction=CompactionPolicy(window=1200),
    )  # fmt: skip
    for n in range(7):
        try:
            await runtime.arun(f"question {n}")
        except AgentError as error:
            print(type(error).__name__, error)
    runtime.undo()
    return runtime.session.id


if __name__ == "__main__":
    main()
