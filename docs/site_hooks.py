"""What the site takes from elsewhere in the repository: notebooks with their stored outputs,
ARCHITECTURE.md, CHANGELOG.md, the generated requirement map. No notebook is executed here.
"""

from __future__ import annotations

import html
import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from fsm_picture import picture
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PAGES = {"architecture.md": "ARCHITECTURE.md", "changelog.md": "CHANGELOG.md"}
# Links between files of the repository -> between pages of the site.
LINKS = ((re.compile(r"\]\((?:\.\./)?docs/"), "]("),)
MERMAID = re.compile(r"```mermaid\n.*?\n```", re.DOTALL)
# The theme takes this file from a server of its own; ours is the same file, of this repository.
SHIM = "https://unpkg.com/iframe-worker/shim"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def notebooks() -> list[Path]:
    """The numbered notebooks, in order."""
    return sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))


def title_of(path: Path) -> str:
    """The first heading."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    first = next("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    return first.splitlines()[0].lstrip("# ")


def on_config(config: Any) -> Any:
    """The notebooks and late pages in the navigation."""
    for section in config.nav:
        for name, items in section.items():
            if name == "Notebooks":
                items[:] = [{title_of(p): f"notebooks/{p.stem}.md"} for p in notebooks()]
    listed = {
        one for section in config.nav for items in section.values() for one in map(str, items)
    }
    there = sorted(p.name for p in (ROOT / "docs").glob("*.md"))
    section = next(iter(config.nav[-1].values()))
    section += [name for name in there if name not in listed]  # a page that nobody listed
    return config


def on_files(files: Files, config: Any) -> Files:
    """Pages that are made of other files."""
    for name, source in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        for pattern, new in LINKS:
            text = pattern.sub(new, text)
        text = MERMAID.sub(lambda _: picture(), text)
        files.append(File.generated(config, name, content=text))
    for path in notebooks():
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page_of(path)))
    return files


def page_of(path: Path) -> str:
    """A notebook as a page of Markdown, its outputs as they are stored."""
    parts: list[str] = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code":
            fence = "`" * max(3, *(len(m) + 1 for m in re.findall(r"`{3,}", source) or [""]))
            parts.append(f"{fence}ipython\n{source}\n{fence}")
            parts += [shown(one) for one in cell.get("outputs", [])]
    return "\n\n".join(part for part in parts if part) + "\n"


def shown(output: dict[str, Any]) -> str:
    """One output: html as it stands (it was cleaned when it was made), else its text."""
    if output["output_type"] == "stream":
        return box(f"<pre>{escaped(''.join(output['text']))}</pre>")
    if output["output_type"] == "error":
        said = "\n".join(output.get("traceback", []))
        return box(f"<pre>{escaped(COLOUR.sub('', said))}</pre>", "failed")
    data = output.get("data", {})
    if "text/html" in data:
        return box("".join(data["text/html"]))
    if "image/png" in data:
        return box(f'<img alt="output" src="data:image/png;base64,{"".join(data["image/png"])}">')
    return box(f"<pre>{escaped(''.join(data.get('text/plain', '')))}</pre>")


def escaped(text: str) -> str:
    """Text for a pre, on as many lines as it has."""
    return html.escape(text.rstrip())


def box(inner: str, more: str = "") -> str:
    """A block that Markdown leaves alone; an empty line would end it."""
    inner = re.sub(r"\n(?=\s*\n)", "\n&#8203;", inner) if "<pre>" in inner else inner
    inner = re.sub(r"\n\s*\n", "\n", inner)
    return f'<div class="cell-output {more}">{inner}</div>'


def on_post_page(output: str, page: Any, config: Any) -> str:  # noqa: ARG001  # the hook's own names
    """No page asks another host for anything."""
    return output.replace(SHIM, f"{'../' * page.url.count('/')}js/iframe-worker.js")


def on_post_template(output_content: str, template_name: str, config: Any) -> str:  # noqa: ARG001  # the hook's signature
    """The same for the page of errors."""
    return output_content.replace(SHIM, "js/iframe-worker.js")
