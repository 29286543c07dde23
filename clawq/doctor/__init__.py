"""What `clawq doctor` looks at, a small file for each subject; clawq/rules/checks.py judges.

Nothing here forks but the look at the crontab, nothing waits, and a supervisor that hangs or is gone is no
obstacle: a machine in trouble is when people ask.
"""

from __future__ import annotations

from typing import NamedTuple

import apsw

from clawq.host.instance import Supervisor
from clawq.paths import Home
from clawq.settings import Settings
from clawq.store.checkup import Seen


class Patient(NamedTuple):
    """Whose health it is. ``db`` None: there is none, or it cannot be opened."""

    home: Home
    db: apsw.Connection | None
    settings: Settings
    supervisor: Supervisor
    version: str
    """The supervisor's; '' without one."""
    seen: Seen
    now: int
