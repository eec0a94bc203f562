from __future__ import annotations

import pytest

from tests.routes.usage.support import clear


@pytest.fixture
def usage_tables(transactional_db):
    clear()
    yield
    clear()
