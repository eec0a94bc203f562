"""What the Models page and docs/calling.md say about errors is what the gateway answers."""

from __future__ import annotations

import pytest

from kvadmin.env import BASE_DIR
from routes.errors import CURES

GATEWAY = "\n".join(path.read_text() for path in (BASE_DIR / "routes/gateway").glob("*.py"))


@pytest.mark.parametrize("cure", CURES, ids=lambda cure: cure.code)
def test_the_gateway_has_each_code(cure):
    before, _gap, after = cure.code.partition("…")
    assert before in GATEWAY and after in GATEWAY


def test_the_page_without_an_account_has_each_code_too():
    text = (BASE_DIR / "docs/calling.md").read_text()
    missing = [cure.code for cure in CURES if "`" + cure.code.partition("…")[0] not in text]
    assert missing == []
