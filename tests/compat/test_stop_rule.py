"""The Stop rule over this environment's kernel; ``matrix.py`` runs it over the others."""

from __future__ import annotations

import pytest

from tests.compat.stop_matrix import matrix


@pytest.mark.kernel
@pytest.mark.timeout(180)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_D5_stop_is_shown_only_where_a_click_arrives() -> None:
    _, found, checks, wrong = matrix()
    assert wrong == []
    assert {one.cell for one in found} == {"awaited", "blocking", "background"}
    assert checks >= 5
