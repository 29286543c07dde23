"""What an agent's environment is made of: what the agents of a kind share is made once, and is no other's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from clawq.config import compiler
from clawq.paths import Home
from clawq.settings import Settings
from clawq.store.attempts import Claim
from clawq.supervisor.environ import Environments, encoded, environment

BASE = {"HOME": "/h", "PATH": "/bin", "CLAWQ_TOKEN": "1", "CLAWQ_HOME": "/q", "ODD": "\udcff", "SAME": "base"}
HOME = Home("/q", "/q", "/q/logs")
FILES = {name: f"/q/run/7.{name}" for name in ("payload", "heartbeat", "result")}
CONFIG = '[env]\nSAME = "all"\n[kinds.a]\nenv = { SAME = "a" }\n[kinds.b]\n'


def compiled(text: str) -> Settings:
    body = compiler.check_text(text, "/q/clawq.toml").body
    assert body is not None
    return Settings(body)


def a_claim(kind: str, **more: Any) -> Claim:
    plain = Claim(3, kind, "t", 2, 1, None, None, "/", None, None, None, None)
    return plain._replace(**more)


def seen_by(environments: Environments, claim: Claim, settings: Settings) -> dict[bytes, bytes]:
    kind = settings.kind(claim.kind, claim.band_name)
    found = environments.of(claim, 7, kind, settings, FILES, HOME)
    assert found == encoded(environment(claim, 7, kind, settings, FILES, HOME, BASE))
    return found


@pytest.mark.parametrize(
    ("claim", "wanted"),
    [
        (a_claim("a"), {b"SAME": b"a", b"ODD": b"\xff", b"CLAWQ_TOKEN": b"7", b"CLAWQ_HOME": b"/q"}),
        (a_claim("b"), {b"SAME": b"all"}),
        (a_claim("b", env='{"SAME": "own"}'), {b"SAME": b"own"}),
        (a_claim("b", deadline_at=5_000), {b"SAME": b"all", b"CLAWQ_DEADLINE": b"5"}),
    ],
)
def test_the_nearest_word_counts(claim: Claim, wanted: dict[bytes, bytes]) -> None:
    environments, settings = Environments(BASE), compiled(CONFIG)
    for _ in range(2):
        assert seen_by(environments, claim, settings).items() >= wanted.items()


def test_each_has_the_path_of_its_caller_and_nothing_of_the_one_before() -> None:
    environments, settings = Environments(BASE), compiled(CONFIG)
    first = seen_by(environments, a_claim("a", path="/one", deadline_at=5_000), settings)
    second = seen_by(environments, a_claim("a", path="/two", job_id=4), settings)
    assert (first[b"PATH"].split(b":")[0], second[b"PATH"].split(b":")[0]) == (b"/one", b"/two")
    assert (b"CLAWQ_DEADLINE" in second, second[b"CLAWQ_JOB_ID"]) == (False, b"4")


def test_a_new_configuration_and_a_changed_env_file_count_from_the_next_start_on(tmp_path: Path) -> None:
    environments, secrets = Environments(BASE), tmp_path / "secrets"
    assert seen_by(environments, a_claim("b"), compiled(CONFIG))[b"SAME"] == b"all"
    later = compiled(f'[kinds.b]\nenv = {{ SAME = "later" }}\n[kinds.a]\nenv_file = "{secrets}"\n')
    assert seen_by(environments, a_claim("b"), later)[b"SAME"] == b"later"
    for value in (b"1", b"2"):
        secrets.write_bytes(b"KEY=" + value)
        os.chmod(secrets, 0o600)
        assert seen_by(environments, a_claim("a"), later)[b"KEY"] == value
