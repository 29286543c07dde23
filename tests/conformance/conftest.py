"""What the store's tests share: a desk where producers ask."""

from __future__ import annotations

import apsw
import pytest

from tests.desk import Desk


@pytest.fixture
def desk(db: apsw.Connection) -> Desk:
    """Where producers ask, over that database."""
    return Desk(db)
