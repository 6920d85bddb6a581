"""The option tables: parsing, help, two-line errors, completion (N11)."""

from __future__ import annotations

import dataclasses

import pytest

from notebook_agent.notebook.arguments import (
    CELL_OPTIONS,
    CellOptions,
    UsageError,
    cell_help,
    complete_options,
    parse_cell,
)


def test_table_and_dataclass_agree():
    assert [o.dest for o in CELL_OPTIONS] == [f.name for f in dataclasses.fields(CellOptions)]


def test_all_options_read():
    got = parse_cell(
        "-m openai:gpt --fallback a,b -s work --fresh --system 'be brief' -t f,g -w df,x --cells 3 "
        "-i answer -f json --schema M --max-turns 4 --max-tokens 100 --timeout 2.5 --no-stream "
        "-p temperature=0.2 -p stop='[\"a\"]' -p effort=low -p x=null --raw --dry-run --background "
        "--show footer --record out/run.jsonl"
    )
    assert got == CellOptions(
        model="openai:gpt", fallback=("a", "b"), session="work", fresh=True, system="be brief",
        tools=("f", "g"), with_=("df", "x"), cells=3, into="answer", format="json", schema="M",
        max_turns=4, max_tokens=100, timeout=2.5, no_stream=True,
        params={"temperature": 0.2, "stop": ["a"], "effort": "low", "x": None}, raw=True,
        dry_run=True, background=True, show="footer", record="out/run.jsonl",
    )  # fmt: skip
    assert parse_cell("") == CellOptions()
    assert parse_cell("--model=x -t f -t g").tools == ("f", "g")
    assert parse_cell("--cells 0").cells == 0


@pytest.mark.parametrize(
    ("line", "says", "types"),
    [
        ("--temprature 1", "--temprature", "%%agent -p temperature=1"),
        ("--temperature=0.3 -s w", "--temperature", "%%agent -p temperature=0.3 -s w"),
        ("-s work --modle gpt", "--modle", "%%agent -s work --model gpt"),
        ("--fromat=json", "--fromat", "%%agent --format=json"),
        ("--zzz", "--zzz", "%%agent?"),
        ("-q", "-q", "%%agent"),
        ("-s w --model", "--model needs a value", "%%agent -s w --model scripted"),
        ("--max-turns x", "'x'", "%%agent --max-turns 16"),
        ("--max-turns 0", "at least 1", "%%agent --max-turns 16"),
        ("--max-turns=-1", "at least 1", "%%agent --max-turns 16"),
        ("--timeout inf", "seconds", "%%agent --timeout 300"),
        ("--timeout nan", "seconds", "%%agent --timeout 300"),
        ("--format jsn", "md, text, json, code", "%%agent --format json"),
        ("-f html", "md, text, json, code", "%%agent -f md"),
        ("--show screen", "panel, footer, quiet", "%%agent --show"),
        ("-p temperature", "key=value", "%%agent -p temperature=0.2"),
        ("-t ,", "names", "%%agent -t my_function"),
        ("what is this", "options only", "%agent ask what is this"),
        ("--tools f --no-tools", "contradict", "%%agent --tools f"),
        ("--into 2x", "2x", "%%agent --into answer"),
        ("--system 'open", "quote", "%%agent"),
        ("--raw=yes", "--raw", "%%agent --raw"),
    ],
)  # fmt: skip
def test_N11_two_lines_and_the_line_to_type(line, says, types):
    with pytest.raises(UsageError) as caught:
        parse_cell(line)
    first, *rest = str(caught.value).splitlines()
    assert says in first
    assert len(rest) == 1
    assert rest[0].startswith("Type:  " + types)
    typed = rest[0].removeprefix("Type:  ")
    if typed.startswith("%%agent") and "?" not in typed:
        parse_cell(typed.removeprefix("%%agent"))  # what it says to type can be read


def test_help_names_every_option():
    text = cell_help()
    for option in CELL_OPTIONS:
        assert all(flag in text for flag in option.flags)
        assert option.help in text
    assert max(len(line) for line in text.splitlines()) <= 100


def names(source):
    return {
        "models": ["openai:gpt", "scripted"],
        "sessions": ["default", "work"],
        "functions": ["f", "fly"],
    }.get(source, [])


def test_completion():
    def complete(words, text):
        return complete_options(words, text, CELL_OPTIONS, names)

    assert complete([], "--mo") == ["--model"]
    assert complete(["--model"], "o") == ["openai:gpt"]
    assert complete(["-s"], "") == ["default", "work"]
    assert complete(["-t"], "f,fl") == ["f,fly"]
    assert complete(["-f"], "j") == ["json"]
    assert "--fresh" in complete([], "")
