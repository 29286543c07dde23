"""`make demo`: clawq on a real small fleet, in under a minute. Exits 1 when anything went otherwise."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from demo.stage import CLAWQ, Stage

DEMO = Path(__file__).resolve().parent
PAGES = ("orders", "status", "invoice")
IMPOSSIBLE_MB = 1_000_000_000


def main() -> int:
    began = time.monotonic()
    home = Path(tempfile.mkdtemp(prefix="clawq-demo-", dir="/tmp"))
    stage = Stage(home)
    print(f"A queue of its own: CLAWQ_HOME={home}")
    shutil.copytree(DEMO / "pages", home / "pages")
    configure(home, IMPOSSIBLE_MB)
    stage.run("config", "check")

    jobs = produce(stage)
    refuse(stage)
    supervise(stage, jobs)
    look_back(stage, jobs)

    print(f"\n{time.monotonic() - began:.0f} s. Look around with CLAWQ_HOME={home}, then: rm -r {home}")
    for complaint in stage.complaints:
        print(f"demo: {complaint}", file=sys.stderr)
    return 1 if stage.complaints else 0


def configure(home: Path, model_floor_mb: int) -> None:
    """Write the home's clawq.toml, whole or not at all: a supervisor may be reading it."""
    text = (DEMO / "clawq.toml").read_text()
    for name, value in (
        ("PYTHON", sys.executable),
        ("DEMO", str(DEMO)),
        ("MODEL_FLOOR", str(model_floor_mb)),
    ):
        text = text.replace(f"@{name}@", value)
    draft = home / "clawq.toml.new"
    draft.write_text(text)
    draft.replace(home / "clawq.toml")


def produce(stage: Stage) -> dict[str, int]:
    jobs = {}
    stage.say("Producers write jobs and walk away", "Nothing runs yet: there is no supervisor.")
    jobs["digest"] = stage.enqueue("digest", "--dedupe-key", "digest-{date}")
    for page in PAGES:
        payload = {"page": f"pages/{page}.html", "picture": f"{page}.png"}  # a job keeps its caller's folder
        jobs[page] = stage.enqueue("screenshot", "--payload", json.dumps(payload))
    jobs["flaky"] = stage.enqueue("flaky")
    jobs["poison"] = stage.enqueue("poison")
    jobs["summary"] = stage.enqueue("summary")

    stage.say(
        "The same work, asked for twice", "Cron fires again, or an agent repeats itself: one job, exit 0."
    )
    answer = stage.run("enqueue", "digest", "--dedupe-key", "digest-{date}", "--json")
    again = json.loads(answer.stdout)
    stage.check(again["outcome"] == "duplicate", f"the second digest was {again['outcome']}")
    stage.check(again["job_id"] == jobs["digest"], "the duplicate did not name the first job")
    return jobs


def refuse(stage: Stage) -> None:
    stage.say("A full queue says so at once", "Two `reindex` may wait. The third is refused, with a reason.")
    stage.enqueue("reindex")
    stage.enqueue("reindex")
    answer = stage.run("enqueue", "reindex", "--json", expect=75)
    refusal = json.loads(answer.stdout)
    stage.check(refusal["reason"] == "kind_queue_full", f"refused for {refusal['reason']}")
    stage.check(refusal["job_id"] is None, "a refused job got an id")


def supervise(stage: Stage, jobs: dict[str, int]) -> None:
    stage.say(
        "One supervisor runs them", "Two browsers at most, whatever is asked. It ends when nothing is left."
    )
    print("$ clawq run --until-idle &")
    log = stage.home / "run.log"
    with log.open("wb") as output:
        supervisor = subprocess.Popen(
            [str(CLAWQ), "run", "--until-idle"],
            env=stage.env,
            cwd=stage.home,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        stage.until(
            lambda: stage.ask("status")["resources"]["browser"]["in_use"] == 2, 20, "two browsers at once"
        )
        stage.run("status")

        summary = str(jobs["summary"])
        stage.until(lambda: "low_memory" in reasons(stage, summary), 20, "a deferral by the memory gate")
        stage.say(
            "A job that the machine has no room for waits, and says what for",
            f"Its resource asks for {IMPOSSIBLE_MB:,} MB of free memory.",
        )
        stage.run("why", summary)

        stage.say("The limit is lowered in clawq.toml", "The running supervisor takes it up by itself.")
        configure(stage.home, 16)
        supervisor.wait(45)
    except subprocess.TimeoutExpired:
        stage.check(
            False, f"the supervisor did not get idle:\n{stage.quietly('list').stdout}{log.read_text()}"
        )
    finally:
        if supervisor.poll() is None:
            stage.quietly("stop", "--now")
            supervisor.wait(20)
    stage.check(supervisor.returncode == 0, f"clawq run: exit {supervisor.returncode}: {log.read_text()}")


def reasons(stage: Stage, job_id: str) -> list[str]:
    return [blocked["reason"] for blocked in stage.ask("why", job_id)["blocked_by"]]


def look_back(stage: Stage, jobs: dict[str, int]) -> None:
    stage.say("What became of them", "")
    stage.run("list")
    states = {job["id"]: job["state"] for job in stage.ask("list")}
    for name, job_id in jobs.items():
        expected = "dead" if name == "poison" else "succeeded"
        stage.check(states.get(job_id) == expected, f"{name} is {states.get(job_id)}, not {expected}")

    stage.say("The digest's output", "")
    digest = stage.run("logs", str(jobs["digest"]))
    stage.check("2 notes today" in digest.stdout, "the digest's log is not there")

    stage.say(
        "A flaky job, at its second attempt", "Exit 75 the first time; a second later it was tried again."
    )
    stage.run("show", str(jobs["flaky"]))
    attempts = [attempt["outcome"] for attempt in stage.ask("show", str(jobs["flaky"]))["attempts"]]
    stage.check(attempts == ["failed", "succeeded"], f"the flaky job's attempts: {attempts}")

    browsers(stage)

    stage.say("Jobs that failed for good are kept with their last error", "")
    stage.run("dead")
    dead = [job["id"] for job in stage.ask("dead")]
    stage.check(dead == [jobs["poison"]], f"dead: {dead}")
    stage.say("And the whole queue", "")
    stage.run("status")


def browsers(stage: Stage) -> None:
    alive = [json.loads(line) for line in (stage.home / "alive.ndjson").read_text().splitlines()]
    most = max(sum(one["from"] <= at["from"] < one["to"] for one in alive) for at in alive)
    by = "Chromium" if all(one["browser"] for one in alive) else "a stand-in script: no Chromium is installed"
    stage.say(
        "Three pages, two browser slots",
        f"Pictures by {by}. By the agents' own clocks, at most {most} were alive at once.",
    )
    stage.check(len(alive) == len(PAGES), f"{len(alive)} screenshots were taken")
    stage.check(most <= 2, f"{most} browsers were alive at once")
    for page in PAGES:
        picture = stage.home / f"{page}.png"
        real = picture.exists() and picture.read_bytes().startswith(b"\x89PNG")
        stage.check(real, f"{picture} is no picture")
        if real:
            print(f"{picture}  {picture.stat().st_size:,} bytes")


if __name__ == "__main__":
    sys.exit(main())
