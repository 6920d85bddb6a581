"""What IPython gets to run: D1, D8, N03."""

from __future__ import annotations

import ast

import pytest

from notebook_agent.notebook.transform import Rewriter, rewrite


def run(cell: str, **over) -> str:
    return "".join(rewrite(cell.splitlines(keepends=True), **{"awaits": True, **over}))


def arguments(text: str) -> list:
    """The literal arguments of the one call in the line."""
    tree = ast.parse(text.strip())
    call = next(
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.Call)
        and n.args
        and isinstance(n.func, ast.Attribute)
        and n.func.attr.startswith("run_")
    )
    return [call.func.attr, *[ast.literal_eval(a) for a in call.args]]


BODIES = [
    "{v: k for k, v in d.items()}",
    "print({'a': 'b'})",
    "for (const {a, b} of xs) {}",
    "{}",
    "{0}",
    "{x!r:>10}",
    '"$HOME ${PATH}"',
    "100% of {",
    ">>> doctest\n... looks like a prompt",
    "In [1]: x\n   ...: y",
    "    indented\n  less",
    "what?",
    "what??",
    "!ls\n%time x\n%agent status",
    "quotes ''' \"\"\" \\ \\n end\\",
    "",
    "\n\nleading and trailing\n\n",
    "ends with spaces   \t",
    "Žagarė 🦉 \u2028 x",
]


@pytest.mark.parametrize("body", BODIES)
def test_N01_body_arrives_exactly_as_typed(body):
    text = run(f"%%agent -m scripted\n{body}\n")
    assert text.startswith("await ")
    assert arguments(text) == ["run_cell", "-m scripted", body]


@pytest.mark.parametrize("body", BODIES)
def test_N01_body_arrives_exactly_as_typed_through_ipython(body):
    from IPython.core.inputtransformer2 import TransformerManager

    class Shell:
        autoawait = True

    manager = TransformerManager()
    manager.cleanup_transforms.insert(0, Rewriter(Shell, lambda _s: True))
    assert arguments(manager.transform_cell(f"%%agent\n{body}\n")) == ["run_cell", "", body]


def test_D1_only_cells_that_begin_with_it():
    for cell in (
        "%%agents\nx\n",
        "%%bash\n%agent status\n",
        "%%agent?\n",
        "%%time\nx\n",
    ):
        assert run(cell) == cell
    assert "run_cell(" in run("\n\n%%agent\nx\n")
    assert "run_cell(" in run("  %%agent\n  x\n")


@pytest.mark.parametrize(
    "above",
    ["# a note\n", "\n# a note\n\n#: %agent x\n", "   # indented\n", "#!/usr/bin/env x\n\t\n"],
)
def test_D1_comments_may_stand_above(above):
    assert arguments(run(f"{above}%%agent --fresh\nhi {{x}}\n# part of it\n")) == [
        "run_cell", "--fresh", "hi {x}\n# part of it",
    ]  # fmt: skip
    assert run(f"{above}%%agent\nhi\n", cells=False) == "%%agent\nhi\n"


@pytest.mark.parametrize("above", ["x = 5\n", "%time 1\n", "!ls\n", "%agent status\n"])
def test_D1_below_code_is_a_clear_error_and_nothing_runs(above):
    assert run(f"{above}%%agent\nWhat is it?\n").endswith("['AgentMagics'].not_first()\n")


@pytest.mark.parametrize(
    "cell",
    [
        's = """\n%%agent\nhi\n"""\n',
        "%%writefile x\n%%agent\nhi\n",
        "x = 1\n%%agents\n",
        "f(\n%%agent\n)\n",
    ],
)
def test_D1_what_only_looks_like_a_cell_is_left_alone(cell):
    assert run(cell) == cell


def test_N01_ends_of_lines_of_windows_are_kept_inside():
    assert arguments(run("%%agent -m x\r\none\r\ntwo\r\n")) == ["run_cell", "-m x", "one\r\ntwo"]


def test_D1_no_rewrite_when_autoawait_is_off():
    class Shell:
        autoawait = False

    lines = ["%%agent\n", "x\n"]
    assert Rewriter(Shell, lambda _s: True)(lines) == lines
    [line] = Rewriter(Shell, lambda _s: True)(["%agent what is a monad?\n"])
    assert "await" not in line
    assert arguments(line) == ["run_line_sync", "what is a monad?"]


def test_D1_the_terminal_gets_a_synchronous_call():
    class Shell:
        autoawait = True

    [line] = Rewriter(Shell, lambda _s: False)(["%%agent\n", "what?\n"])
    assert arguments(line) == ["run_cell_sync", "", "what?"]
    assert "await" not in line


@pytest.mark.parametrize(
    "text",
    [
        "what is a monad?",
        "what is a monad??",
        "status?",
        "ask who's there?",
        "model ?",
        "a 'b",
        "count x = {y}?",
        "",
    ],
)
def test_N03_question_mark_reaches_the_engine(text):
    from IPython.core.inputtransformer2 import TransformerManager

    class Shell:
        autoawait = True

    manager = TransformerManager()
    manager.cleanup_transforms.insert(0, Rewriter(Shell, lambda _s: True))
    for cell in (f"%agent {text}\n", f"x = 1\n%agent {text}\ny = 2\n"):
        out = manager.transform_cell(cell)
        line = next(one for one in out.splitlines() if "run_line" in one)
        assert arguments(line) == ["run_line", text]
        assert "pinfo" not in out


def test_N03_assignment_and_nesting():
    assert run("r = %agent ask why?\n").startswith("r = await ")
    assert "assigned=True" in run("r = %agent ask why?\n")
    nested = run("def f():\n    return 1\n    %agent what now?\n")
    assert "    get_ipython()" in nested
    assert "await" not in nested
    assert arguments(nested.splitlines()[-1].strip()) == ["run_line_sync", "what now?"]


def test_D8_text_inside_a_string_or_bracket_is_left_alone():
    for cell in ('s = """\n%agent what?\n"""\n', "x = (1,\n%agent\n)\n", "x = 5 \n%agents what\n"):
        assert run(cell) == cell


def test_D8_continued_lines_join():
    assert arguments(run("%agent ask one \\\ntwo?\n")) == ["run_line", "ask one two?"]


def test_the_terminal_does_not_take_the_first_line_for_a_whole_cell():
    from IPython.core.inputtransformer2 import TransformerManager

    class Shell:
        autoawait = True

    manager = TransformerManager()
    manager.cleanup_transforms.insert(0, Rewriter(Shell, lambda _s: False))
    assert manager.check_complete("%%agent\nfirst line\n")[0] == "incomplete"
