"""What the store's tests share: an open database whose books are checked afterwards."""

from __future__ import annotations

import apsw
import pytest

from tests.desk import Desk


@pytest.fixture
def desk(db: apsw.Connection) -> Desk:
    """Where producers ask, over that database."""
    return Desk(db)
