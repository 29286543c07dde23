"""What the store's tests share: an open database whose books are checked afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import pytest

from clawq.paths import Home
from clawq.store.connection import open_db
from tests.desk import Desk
from tests.rows import check_books


@pytest.fixture
def db(home: Home) -> Iterator[apsw.Connection]:
    db = open_db(home)
    yield db
    check_books(db)
    db.close()


@pytest.fixture
def desk(db: apsw.Connection) -> Desk:
    """Where producers ask, over that database."""
    return Desk(db)
