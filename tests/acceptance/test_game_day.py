"""Game day with real processes: a provider turns everybody away under mixed tenants, and comes back.

tests/game_day.py simulates hours of it; this is the same day in seconds, with real agents. `-s` prints it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from typing import Any

import pytest

from clawq.paths import Home
from tests.fleet import CLAWQ, ROOT, Fleet
from tests.waiting import until

CAP = 6
SLOTS = 2


@pytest.fixture
def fleet(home: Home) -> Fleet:
    return Fleet(home)


def ask(fleet: Fleet, kind: str, tenant: str) -> tuple[int, str, float]:
    """One producer: its exit code, its outcome or reason, and how long the answer took in seconds."""
    began = time.monotonic()
    argv = [*CLAWQ, "enqueue", kind, "--tenant", tenant, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    answer = json.loads(done.stdout)
    return done.returncode, answer["reason"] or answer["outcome"], time.monotonic() - began


def counts(fleet: Fleet) -> Counter[str]:
    return Counter({state: n for state, n in fleet.json("status")["counts"].items() if n})


def most_at_once(lines: list[str]) -> int:
    marks = sorted((int(at), sign) for sign, _, at in (line.split() for line in lines))
    alive = most = 0
    for _, sign in marks:
        alive += 1 if sign == "+" else -1
        most = max(most, alive)
    return most


def test_a_provider_turns_everybody_away_and_comes_back(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    down, calls = fleet.scratch / "down", fleet.scratch / "calls"
    clawq = f"{sys.executable} -m clawq"
    agent = fleet.scratch / "agent.sh"
    agent.write_text(
        f'echo "+ $CLAWQ_KIND $(date +%s%N)" >> {calls}\n'
        f"if [ -e {down} ]; then code=1; {clawq} fail --class rate_limit --reason 429\n"
        "else code=0; sleep 0.1; fi\n"
        f'echo "- $CLAWQ_KIND $(date +%s%N)" >> {calls}\nexit $code\n'
    )
    command = json.dumps(["/bin/sh", str(agent)])
    fleet.configure(
        f"[resources.api]\nlimit = {SLOTS}\nprovider = true\n"
        f'[kinds.bulk]\nneeds = ["api"]\nband = "bulk"\nqueue_cap = {CAP}\ncommand = {command}\n'
        f'[kinds.chat]\nneeds = ["api"]\nband = "interactive"\non_busy = "reject"\ncommand = {command}\n'
    )
    table: list[tuple[str, Any]] = []
    with fleet.supervised():
        down.touch()
        answers: Counter[str] = Counter()
        slowest = 0.0
        for n in range(3 * CAP):
            code, answer, took = ask(fleet, "bulk", "ab"[n % 2])
            assert (code, answer) in [(0, "admitted"), (0, "queued"), (75, "kind_queue_full")]
            answers[answer] += 1
            slowest = max(slowest, took)
        until(lambda: fleet.json("status")["resources"]["api"]["cooldown_s"])
        table.append(("bulk while it is down", dict(answers)))
        # What came before it was known to be down was tried once each, and nothing since.
        met = len([line for line in fleet.lines("calls") if line.startswith("+")])
        chats = [ask(fleet, "chat", "c") for _ in range(4)]
        slowest = max(slowest, *(took for _, _, took in chats))
        assert [(code, answer) for code, answer, _ in chats] == [(75, "over_capacity")] * 4
        table.append(("chat while it is down", dict(Counter(answer for _, answer, _ in chats))))
        waiting = counts(fleet)
        assert waiting["queued"] + waiting["scheduled"] <= CAP + SLOTS
        assert met <= 2 * SLOTS, "one met limit rests the provider for everybody"
        table.append(("calls that met the limit, waiting", (met, dict(waiting))))

        down.unlink()
        fleet.clawq("throttle", "api", "--for", "0")
        # Retries come with their own pause: their owner does not wait for it on the day it is mended.
        for row in fleet.json("list", "--state", "scheduled"):
            fleet.clawq("cancel", row["id"])
        until(lambda: not fleet.json("list", "--state", "queued"), 30)
        until(lambda: not fleet.json("status")["running"], 30)
        ended = counts(fleet)
        again = len([line for line in fleet.lines("calls") if line.startswith("+")]) - met
        table.append(("after it came back: calls, ends", (again, dict(ended))))
        assert again == ended["succeeded"]
        code, answer, took = ask(fleet, "chat", "c")
        assert (code, answer) == (0, "admitted")
    assert most_at_once(fleet.lines("calls")) <= SLOTS
    assert slowest < 20, "answered or refused at once, also on a busy machine"
    for what, seen in table:
        sys.stdout.write(f"{what:35} {seen}\n")
