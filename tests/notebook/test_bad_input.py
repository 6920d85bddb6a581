"""Bad input in a real kernel: two or three lines that say what and the line to type (N11, D12).

The cell is marked as an error, no traceback, nothing is lost, the next cell works.
"""

from __future__ import annotations

import http.server
import threading

import pytest

from tests.notebook.kernel_driver import Kernel

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.timeout(300),
    # jupyter_client's own sockets and loop, closed when its objects are collected
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

KEY = "sk-bad-input-0123456789abcdef"
TOO_LONG = (
    b'{"error":{"message":"This model\'s maximum context length is 8192 tokens.",'
    b'"code":"context_length_exceeded"}}'
)
# What the trail holds of served turns: a compaction after an overflow changes the context only.
KEPT = "print((current().audit()['outcome'] == 'served').sum())"
# path -> status, content type, body
ANSWERS = {
    "401": (401, "application/json", b'{"error":{"message":"Incorrect API key provided.","code":"invalid_api_key"}}'),
    "404": (404, "application/json", b'{"error":{"message":"The model does not exist","code":"model_not_found"}}'),
    "404page": (404, "text/html", b"<html><body>not found</body></html>"),
    "overflow": (400, "application/json", TOO_LONG),
    "page": (200, "text/html", b"<!doctype html><script>alert(1)</script>"),
    "words": (200, "application/json", b"this is not json"),
    "nothing": (200, "application/json", b""),
    "list": (200, "application/json", b"[1, 2]"),
    "broken": (200, "text/event-stream", b"data: {not json\n\n"),
}  # fmt: skip


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_args):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        status, kind, body = ANSWERS[self.path.split("/")[1]]
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def base():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    dead = "http://127.0.0.1:1"  # a proxy that is not there: loopback never goes through it
    made = Kernel(
        {
            "HOME": str(home),
            "XDG_DATA_HOME": str(home / "data"),
            "XDG_CACHE_HOME": str(home / "cache"),
            "IPYTHONDIR": str(home / "ipython"),
            "NOTEBOOK_AGENT_DISPLAY": "static",
            "OPENAI_API_KEY": KEY,
            **dict.fromkeys(
                ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"), dead
            ),
            "NO_PROXY": "",
            "no_proxy": "",
        }
    )
    try:
        assert made.run(
            "%load_ext notebook_agent\n"
            "import os\n"
            "from notebook_agent import ScriptedModel\n"
            "from notebook_agent.notebook.agent_session import current\n"
            "quick = ScriptedModel(['A quick reply.'], name='quick')\n"
            "_ = %agent model @quick\n"
        ).status == "ok"  # fmt: skip
        assert made.run("%%agent\nfirst").status == "ok"
        yield made
    finally:
        made.close()


def refused(kernel, code: str, *says: str):
    """Run a bad cell and one after it."""
    before = kernel.run(KEPT).stdout
    cell = kernel.run(code)
    assert cell.status == "error", cell.everything
    lines = [line for one in cell.traceback for line in one.splitlines()]
    assert 2 <= len(lines) <= 3, lines
    assert "Traceback" not in cell.everything
    assert "defect" not in cell.everything
    assert KEY not in cell.everything
    for words in says:
        assert words in "\n".join(lines)
    assert kernel.run(KEPT).stdout == before
    after = kernel.run("%%agent\nnext")
    assert after.status == "ok", after.everything
    assert "A quick reply." in after.plain
    return cell


def point(kernel, url: str) -> None:
    code = f"os.environ['OPENAI_BASE_URL'] = {url!r}\ncurrent().models_book.forget('openai')\n"
    assert (
        kernel.run(code + "current().runtime().breaker_of('openai:gpt-4.1-mini').reset()").status
        == "ok"
    )


@pytest.mark.parametrize("how", ["", " --no-stream"])
@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("401", ["Incorrect API key", "%agent key openai"]),
        ("404", ["does not exist", "%agent models"]),
        ("404page", ["HTML page", "Check the base URL: http://127.0.0.1"]),
        ("overflow", ["maximum context length", "%agent compact now", "%agent reset"]),
        ("page", ["HTML page", "Check the base URL: http://127.0.0.1"]),
        ("words", ["this is not json", "Check the base URL"]),
        ("nothing", ["nothing", "Check the base URL"]),
        ("list", ["[1, 2]", "Check the base URL"]),
        ("broken", ["does not decode"]),
    ],
)
def test_N11_what_a_server_may_answer(kernel, base, path, says, how):
    point(kernel, f"{base}/{path}")
    refused(kernel, f"%%agent -m openai:gpt-4.1-mini{how}\nhi", *says)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://127.0.0.1:1/v1", ["connection refused", "base URL is http://127.0.0.1:1/v1"]),
        (f"http://u:{KEY}@127.0.0.1:1/v1?key={KEY}", ["connection refused"]),
        ("ftp://x", ["base URL", "https://api.example.com/v1"]),
        ("no address", ["base URL", "https://api.example.com/v1"]),
        ("http://127.0.0.1:99999/v1", ["base URL"]),
    ],
)
def test_N11_where_a_base_url_may_lead(kernel, url, says):
    point(kernel, url)
    refused(kernel, "%%agent -m openai:gpt-4.1-mini --no-stream\nhi", *says)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("%%agent -m nosuch:x\nhi", ["'nosuch'", "%%agent -m openai:x"]),
        ("%%agent --fallback openia:x\nhi", ["openai", "%%agent --fallback openai:x"]),
        ("%agent model gpt-4.1", ["%agent model openai:gpt-4.1"]),
        ("%%agent -m mistral:any\nhi", ["MISTRAL_API_KEY", "%agent key mistral"]),
        ("%%agent -m local\nhi", ["not on this machine", "notebook-agent fetch-model"]),
        ("%%agent --temprature 1\nhi", ["--temprature", "-p temperature=1"]),
        ("%%agent -s ''\nhi", ["--session", "not empty"]),
        ("%%agent -w nope\nhi", ["'nope'"]),
        ("%%agent -t nope\nhi", ["--tools", "my_function"]),
        ("%%agent\n \n", ["empty", "%agent ask TEXT"]),
        ("%%agent\n{{nope}}", ["'nope'", "%%agent --raw"]),
        ("%agent record {{nope}}", ["'nope'", "\\{{"]),
        ("x = 5\n%%agent\nWhat is x?", ["must begin its cell", "%%agent"]),
        ("%%agent --show panel --record /proc/no/x.jsonl -s ' '\nhi", ["--session"]),
        ("await current().pause(-1)", ["at least 0", "pause(2)"]),
    ],
)
def test_N11_what_a_person_may_type(kernel, code, says):
    refused(kernel, code, *says)
