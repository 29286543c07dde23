"""What a supervisor stands on: the lock and the database that it opened, and the file that configures it."""

from __future__ import annotations

import os

from clawq import settings
from clawq.errors import StorageError
from clawq.host.instance import Instance
from clawq.paths import Home

LOOK_MS = 1_000


class Displaced(StorageError):
    """What this supervisor holds open is no longer what others find there: it ends, its agents live on."""


class Ground:
    """Made once the database is open. Its times are ms of the monotonic clock."""

    def __init__(self, home: Home, instance: Instance) -> None:
        self.home = home
        self.instance = instance
        self._db = os.stat(home.db)
        self._config = self._config_there = settings.identity(home.config)
        self._looked = 0

    def check(self) -> None:
        """Raise Displaced when the lock or the database is no longer the file at its place.

        Work put into a new one would wait for ever behind a supervisor that ticks; and without the lock
        a second supervisor may be at work.
        """
        if not self.instance.is_ours(self.home.lock):
            raise Displaced(f"{self.home.lock} was removed or replaced", "start `clawq run` again")
        try:
            there = os.stat(self.home.db)
        except FileNotFoundError:
            there = None
        if there is None or not os.path.samestat(there, self._db):
            raise Displaced(f"{self.home.db} was removed or replaced", "start `clawq run` again")

    def look(self, mono: int) -> bool:
        """Once a second, check, and tell whether clawq.toml is another than the one that is followed."""
        if mono - self._looked < LOOK_MS:
            return False
        self._looked = mono
        self.check()
        self._config_there = settings.identity(self.home.config)
        return self._config_there != self._config

    def follows(self) -> None:
        """The configuration that the last look found has been read, or has been found to be broken."""
        self._config = self._config_there
