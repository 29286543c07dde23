"""What an agent finds in its environment: the supervisor's own, what is configured, the job's, and ours."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress

from clawq.host.agent import CannotStart
from clawq.paths import Home, as_bytes, as_utf8, own_folder
from clawq.settings import Kind, Settings
from clawq.store.attempts import Claim

MOST_COMMON = 64
"""Each has a hundred variables or so."""


class Environments:
    """The environments of a supervisor's agents, encoded. What those of a kind have in common is made once.

    `base` is the supervisor's own environment.
    """

    def __init__(self, base: Mapping[str, str]) -> None:
        self.base = base
        self._settings: Settings | None = None
        self._common: dict[tuple[str, str, str | None], dict[bytes, bytes]] = {}

    def of(
        self, claim: Claim, token: int, kind: Kind, settings: Settings, files: Mapping[str, str], home: Home
    ) -> dict[bytes, bytes]:
        """As `environment`. Raises CannotStart."""
        if kind.env_file is not None or claim.env is not None:
            return encoded(environment(claim, token, kind, settings, files, home, self.base))
        own = _own(claim, token, files, home, self.base)
        return self._common_of(claim.path, kind, settings) | encoded(own)

    def _common_of(self, path: str | None, kind: Kind, settings: Settings) -> dict[bytes, bytes]:
        if settings is not self._settings or len(self._common) >= MOST_COMMON:
            self._settings, self._common = settings, {}
        found = self._common.get((kind.name, kind.band, path))
        if found is None:
            env = _configured(path, kind.env, settings, self.base)
            env["PATH"] = with_own_folder(env.get("PATH") or os.defpath)
            found = self._common[kind.name, kind.band, path] = encoded(env)
        return found


def environment(
    claim: Claim,
    token: int,
    kind: Kind,
    settings: Settings,
    files: Mapping[str, str],
    home: Home,
    base: Mapping[str, str],
) -> dict[str, str]:
    """What the agent sees: ours without CLAWQ_ names, then [env], the kind's, the job's, and our own."""
    env = _configured(claim.path, kind.env, settings, base)
    if kind.env_file is not None:
        env |= read_env_file(kind.env_file)
    if claim.env is not None:
        env |= json.loads(claim.env)
    env["PATH"] = with_own_folder(env.get("PATH") or os.defpath)
    return env | _own(claim, token, files, home, base)


def encoded(env: Mapping[str, str]) -> dict[bytes, bytes]:
    """As a program is handed it."""
    return {
        name.encode("utf-8", "surrogateescape"): value.encode("utf-8", "surrogateescape")
        for name, value in env.items()
    }


def environment_of_notice(
    own: Mapping[str, str], env_file: str | None, settings: Settings, home: Home, base: Mapping[str, str]
) -> dict[str, str]:
    """As an agent's, without what makes one. `own`: what is configured for this one. It goes without an
    `env_file` that cannot be read: that may be what people are to be told."""
    env = _configured(None, own, settings, base)
    if env_file is not None:
        with suppress(CannotStart):
            env |= read_env_file(env_file)
    env["PATH"] = with_own_folder(env.get("PATH") or "/usr/bin:/bin")
    return env | _place(home, base)


def _configured(
    path: str | None, own: Mapping[str, str], settings: Settings, base: Mapping[str, str]
) -> dict[str, str]:
    env = {name: value for name, value in base.items() if not name.startswith("CLAWQ_")}
    if path is not None:
        env["PATH"] = path
    return {**env, **settings.env, **own}


def _own(
    claim: Claim, token: int, files: Mapping[str, str], home: Home, base: Mapping[str, str]
) -> dict[str, str]:
    env = {
        "CLAWQ_JOB_ID": str(claim.job_id),
        "CLAWQ_ATTEMPT": str(claim.number),
        "CLAWQ_TOKEN": str(token),
        "CLAWQ_KIND": claim.kind,
        "CLAWQ_TENANT": claim.tenant,
        "CLAWQ_PAYLOAD_FILE": as_utf8(files["payload"]),
        "CLAWQ_HEARTBEAT_FILE": as_utf8(files["heartbeat"]),
        "CLAWQ_RESULT_FILE": as_utf8(files["result"]),
    }
    if claim.deadline_at is not None:
        env["CLAWQ_DEADLINE"] = str(claim.deadline_at // 1000)
    return env | _place(home, base)


def _place(home: Home, base: Mapping[str, str]) -> dict[str, str]:
    """Where the queue is, when the supervisor was told so, too."""
    return {"CLAWQ_HOME": as_utf8(home.data)} if base.get("CLAWQ_HOME") else {}


def with_own_folder(path: str) -> str:
    """`path` with the folder of the `clawq` that runs at its end."""
    own = own_folder()
    return path if own in path.split(os.pathsep) else f"{path}{os.pathsep}{own}"


def read_env_file(path: str) -> dict[str, str]:
    """The ``K=V`` lines of a kind's env_file; blank lines, comments, `export` and quotes are understood.

    Raises CannotStart when others may read the file, or when it is not such a file.
    """
    try:
        # A pipe under this name must not hold up the supervisor.
        with open(os.open(as_bytes(path), os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise CannotStart(f"env_file {path} is not a plain file")
            if mode & 0o077:
                raise CannotStart(f"env_file {path} may be read by others: chmod 600 it")
            lines = file.read().splitlines()
    except OSError as error:
        raise CannotStart(f"env_file {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise CannotStart(f"env_file {path} is not UTF-8") from None
    found = {}
    for number, line in enumerate(lines, 1):
        text = line.strip().removeprefix("export ").strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise CannotStart(f"env_file {path}:{number}: expected NAME=VALUE")
        value = value.strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        found[name.strip()] = value
    return found
