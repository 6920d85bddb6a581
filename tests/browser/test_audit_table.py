"""The audit trail as an interactive table in a page (A04): offline, inert, with filters."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Watch


def test_the_interactive_audit_table_sorts_filters_and_asks_nobody(page, monkeypatch) -> None:
    """itables offline: its own script only, our texts inert, a filter for each column."""
    pytest.importorskip("itables")
    import IPython.display
    import itables.javascript

    from notebook_agent.notebook.audit import audit_view
    from tests.notebook.test_audit import some_session

    made: list[str] = []
    monkeypatch.setattr(IPython.display, "display", lambda *shown, **_: made.extend(one.data for one in shown))  # fmt: skip
    monkeypatch.setattr(itables.javascript, "_html_display_is_supported", lambda: True)
    audit_view(some_session(40)).interactive()
    watch = Watch(page)
    page.set_content(f"<!doctype html><body>{''.join(made)}</body>")
    page.wait_for_selector("table.dataTable tbody tr", timeout=10_000)
    assert page.locator("img, iframe").count() == 0
    filters = page.locator("thead input")
    assert filters.count() == len(
        page.query_selector_all("table.dataTable tbody tr:first-child td")
    )
    filters.nth(1).press_sequentially("37")  # the turn
    page.wait_for_function("document.querySelectorAll('table.dataTable tbody tr').length === 1")
    assert "reply 37 <img" in page.inner_text("table.dataTable tbody")
    page.wait_for_timeout(300)
    assert watch.trouble() == []
    assert watch.errors == []
