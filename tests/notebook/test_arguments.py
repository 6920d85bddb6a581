"""The option tables: parsing, help, two-line errors, completion (N11)."""

from __future__ import annotations

import dataclasses

import pytest

from notebook_agent.core.interpolate import InsertionError
from notebook_agent.notebook.arguments import (
    CELL_OPTIONS,
    CellOptions,
    UsageError,
    cell_help,
    complete_options,
    own_names,
    parse_cell,
)
from notebook_agent.notebook.verbs.table import read_line


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
        ("--maxtokens 5", "--maxtokens", "%%agent --max-tokens 5"),
        ("--max_tokens 5", "--max_tokens", "%%agent --max-tokens 5"),
        ("--max-output-tokens 5", "--max-output", "%%agent -p max_output_tokens=5"),
        ("--temp 1", "--temp", "%%agent -p temperature=1"),
        ("--back", "--back", "%%agent --background"),
        ("-session=x", "-session", "%%agent --session=x"),
        ("-model x", "-model", "%%agent --model x"),
        ("-temperature 0.5", "-temperature", "%%agent -p temperature=0.5"),
        ("-max_turns 3", "-max_turns", "%%agent --max-turns 3"),
        ("--into __builtins__", "__builtins__", "%%agent --into answer"),
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


def test_a_value_may_stand_right_behind_a_short_option():
    """Only a long option's own name with one dash is refused."""
    assert parse_cell("-sname").session == "name"
    assert parse_cell("-wdf -mscripted:x").with_ == ("df",)


def test_into_is_the_name_as_python_keeps_it():
    assert parse_cell("--into re\u0301ponse").into == "r\u00e9ponse"


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


# ---- {{name}} in a line (D7) -----------------------------------------------------------------

VALUES = {
    "path": "my folder/a \"b\" 'c'.jsonl",
    "back": r"C:\runs\one.jsonl",
    "n": 3,
    "lang": "Latvian, always",
    "d": {"key": "inner", "a b": "spaced"},
    "again": "{{n}}",
    "names": "f,g",
}


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("record {{path}}", "path", VALUES["path"]),
        ("record {{ path }}", "path", VALUES["path"]),
        ('record {{d["key"]}}.jsonl', "path", "inner.jsonl"),
        ("record '{{d[\"a b\"]}}'", "path", "spaced"),
        ("record {{back}}", "path", VALUES["back"]),
        ("record {{again}}", "path", "{{n}}"),  # never expanded a second time
        (r"record \{{n}}", "path", "{{n}}"),
        ("record ${{n}}", "path", "${{n}}"),
        ("record {n}", "path", "{n}"),
        ("undo {{n}}", "runs", 3),
        ("audit --last={{n}}", "last", 3),
        ("system Answer in {{lang}}.", "text", "Answer in Latvian, always."),
        ("count {{lang}} {x}", "text", "Latvian, always {x}"),
        ("ask {{lang}}", "text", "{{lang}}"),  # the prompt inserts it
        ("what is {{lang}} then?", "text", "what is {{lang}} then?"),
        ("compact policy threshold={{n}}", "changes", {"threshold": 3}),
    ],
)
def test_D7_line_form_inserts_into_every_argument(line, field, value):
    assert read_line(line, VALUES).arguments[field] == value


@pytest.mark.parametrize(
    "line", ["record {{nope}}", "system be {{nope}}", "undo {{d.x}}", "fsm {{d[1]}}"]
)
def test_D7_line_form_names_what_is_not_there(line):
    with pytest.raises(InsertionError) as caught:
        read_line(line, VALUES)
    assert "cannot be inserted" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 2
    assert str(caught.value).endswith("\\{{")


def test_D7_cell_line_inserts_values_whole():
    got = parse_cell(
        '--system "Speak {{lang}}" -t {{names}} --max-turns {{n}} --record {{path}}', VALUES
    )
    assert got.system == "Speak Latvian, always"
    assert got.tools == ("f", "g")
    assert got.max_turns == 3
    assert got.record == VALUES["path"]
    assert parse_cell("--raw --system {{nope}}", VALUES).system == "{{nope}}"
    with pytest.raises(UsageError, match="whole number"):
        parse_cell("--max-turns {{lang}}", VALUES)


@pytest.mark.parametrize(
    "line", ["-s ''", "-m ''", "-i ''", "--record ' '", "--schema ''", "--session=''"]
)
def test_N11_an_empty_value_is_no_value(line):
    with pytest.raises(UsageError, match=r"not empty|needs the name"):
        parse_cell(line)
    assert parse_cell("--system ''").system == ""


def test_N11_suggestions_are_the_persons_own_names():
    assert own_names({"open": open, "In": [], "_x": 1, "mine": 2}) == ["mine"]


def test_paths_of_windows_keep_their_backslashes(monkeypatch):
    monkeypatch.setattr("notebook_agent.notebook.option.os.name", "nt")
    assert read_line(r'record "C:\my runs\one.jsonl"').arguments["path"] == r"C:\my runs\one.jsonl"


@pytest.mark.parametrize("name", ["print", "In", "Out", "get_ipython", "open", "Exception", "None"])
def test_N11_into_hides_nothing_that_is_needed(name):
    with pytest.raises(UsageError, match="--into"):
        parse_cell(f"-i {name}")
    assert parse_cell("-i _").into == "_"


@pytest.mark.parametrize(
    "line",
    [
        "key openai {}",
        "key {} openai",
        "key --set {}",
        "key openai --key={}",
        "key '{}",
        "key openai -p x={}",
    ],
)
def test_X05_a_key_typed_into_the_line_is_not_repeated(line):
    secret = "sk-live-ABCDEFGHIJ0123456789"
    with pytest.raises(UsageError) as caught:
        read_line(line.format(secret), {})
    assert secret not in str(caught.value)
    assert "%agent key" in str(caught.value)
