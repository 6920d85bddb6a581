"""One browser for the page tests, one JupyterLab for the paths of a person."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser.harness import CHROME, browser


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.timeout(180))


@pytest.fixture(scope="session", autouse=True)
def chromium():
    pytest.importorskip("playwright")
    if not Path(CHROME).exists():
        pytest.skip(f"no browser at {CHROME} (Debian: apt install chromium, or set CHROME)")


class Canary:
    """A server on a second loopback port; every request to it is a leak."""

    def __init__(self) -> None:
        self.hits: list[str] = []
        canary = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                canary.hits.append(self.path)
                self.send_response(204)
                self.end_headers()

            do_POST = do_HEAD = do_OPTIONS = do_GET

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="session")
def canary():
    server = Canary()
    yield server
    server.close()


@pytest.fixture(scope="module")
def page(chromium):
    with browser() as one:
        yield one


class Watch:
    """What a page must never do: run a script of ours, open a dialog, ask another origin."""

    def __init__(self, page, allowed: str = "") -> None:
        self.page, self.allowed = page, allowed
        self.dialogs: list[str] = []
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.on("dialog", self._dialog)
        page.on("request", self._request)
        page.on("pageerror", lambda e: self.errors.append(str(e)))

    def _dialog(self, dialog) -> None:
        if dialog.type == "beforeunload":  # JupyterLab's own, on leaving an unsaved notebook
            dialog.accept()
            return
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def _request(self, request) -> None:
        url = request.url
        if url.startswith(("blob:", "data:", "about:")) or (
            self.allowed and url.startswith(self.allowed)
        ):
            return
        self.requests.append(url)

    def trouble(self) -> list[str]:
        """Everything seen so far."""
        pwned = self.page.evaluate("[window.PWNED, document.querySelector('#escaped') && 'h1']")
        return [*self.dialogs, *self.requests, *[str(p) for p in pwned if p]]


@pytest.fixture
def watch(page):
    return Watch(page)
