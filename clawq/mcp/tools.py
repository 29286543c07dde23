"""What each tool does: arguments in, a document out. Blocking, and called in threads. No SDK here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from clawq import desk, lease, values, waiting
from clawq.api import watching
from clawq.client import Producer, refusal
from clawq.errors import (
    ClawqError,
    EffectHeld,
    LeaseLost,
    NoSuchJob,
    Refused,
    Unconfirmed,
    UsageError,
)
from clawq.mcp import schema
from clawq.poke import poke
from clawq.states import whoami
from clawq.store import jobs
from clawq.store.effects import Effect
from clawq.store.why import PUBLIC, why

Document = dict[str, Any]
Arguments = Mapping[str, Any]

STEP_S = 0.5
"""How soon a wait ends that was given up."""


class Answer:
    """``failed``: the call could not be carried out; a refusal of the queue is no failure."""

    __slots__ = ("document", "failed")

    def __init__(self, document: Document, failed: bool = False) -> None:
        self.document = document
        self.failed = failed


class Session:
    """What one client has enqueued here, and may therefore cancel."""

    def __init__(self) -> None:
        self.mine: dict[int, None] = {}
        self._tools: dict[str, Callable[[Arguments, Callable[[], bool]], Document]] = {
            "enqueue": lambda given, _: self._enqueue(given),
            "job_status": lambda given, _: _job_status(_job_id(given["job_id"])),
            "wait": self._wait,
            "why": lambda given, _: _why(_job_id(given["job_id"])),
            "cancel": lambda given, _: self._cancel(_job_id(given["job_id"]), given.get("tree", False)),
            "beat": lambda given, _: {"job_id": lease.beat()},
            "effect_begin": lambda given, _: _effect("begin", given),
            "effect_done": lambda given, _: _effect("done", given),
            "effect_fail": lambda given, _: _effect("fail", given),
        }

    def call(self, name: str, given: Arguments, stopped: Callable[[], bool]) -> Answer:
        """One call. Every expected failure is an answer; ``stopped``: does nobody wait for it any more?"""
        try:
            self._check(name, given)
            return Answer(desk.with_iso(self._tools[name](given, stopped)))
        except ClawqError as error:
            return Answer(_told(name, error), not isinstance(error, Refused))

    def _check(self, name: str, given: Arguments) -> None:
        with desk.reading() as here:
            settings, broken = here.settings()
        known = {tool.name: tool for tool in schema.tools(settings)}
        if name not in known:
            raise UsageError(
                f"there is no tool {name!r:.80}", f"{values.near(name, known)}there are {', '.join(known)}"
            )
        tool = known[name]
        for key in given:
            if key not in tool.arguments:
                raise UsageError(
                    f"{name} takes no {key!r:.80}",
                    f"{values.near(key, tool.arguments)}it takes {', '.join(tool.arguments) or 'nothing'}",
                )
        for key in tool.required:
            if given.get(key) is None:
                raise UsageError(f"{key} is missing", f"{name} needs {', '.join(tool.required)}")
        if name == "enqueue":
            if broken is not None:
                _check_config()
            _check_kind(given["kind"], schema.offered(settings), settings.kind_names)

    def _enqueue(self, given: Arguments) -> Document:
        asked = {key: value for key, value in given.items() if key != "dry_run"}
        dry_run = given.get("dry_run", False)
        if not isinstance(dry_run, bool):
            raise UsageError(f"dry_run {dry_run!r:.80}", "true or false is needed")
        with Producer() as producer:
            receipt = producer.enqueue(asked, dry_run)
        if receipt.job_id is not None and (receipt.outcome != "duplicate" or _is_my_child(receipt.job_id)):
            self.mine[receipt.job_id] = None
        return receipt.as_dict()

    def _wait(self, given: Arguments, stopped: Callable[[], bool]) -> Document:
        timeout = given.get("timeout_s", schema.WAIT_DEFAULT_S)
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
            raise UsageError(f"timeout_s {timeout!r:.80}", "a number of seconds is needed")
        if not 0 <= timeout <= schema.WAIT_MOST_S:
            raise UsageError(f"timeout_s {timeout!r:.80}", f"from 0 to {schema.WAIT_MOST_S} seconds")
        wanted = given.get("job_ids")
        if wanted is not None:
            if not isinstance(wanted, list):
                raise UsageError(f"job_ids {wanted!r:.80}", "a list of numbers is needed")
            wanted = [_job_id(each) for each in wanted]
        elif whoami(os.environ) is None:
            wanted = list(self.mine)
        states = _settled(wanted, timeout, stopped)
        return {
            "timed_out": not waiting.is_settled(states),
            "outcomes": [each.as_dict() for each in watching.look(list(states))],
        }

    def _cancel(self, job_id: int, tree: object) -> Document:
        if not isinstance(tree, bool):
            raise UsageError(f"tree {tree!r:.80}", "true or false is needed")
        if job_id not in self.mine:
            raise Refused(
                "not_allowed",
                f"job {job_id} was not enqueued in this session",
                f"a person can cancel it: clawq cancel {job_id}",
            )
        with desk.changing() as here:
            db = here.queue(job_id)
            me = whoami(os.environ)
            if me is not None:
                lease.own(db, me)
            state = jobs.cancel(db, job_id, here.now, tree)
        poke(here.home, b"c")
        return {"job_id": job_id, "state": state}


class _Stopped(Exception):
    """Nobody waits for the answer any more."""


def _settled(wanted: list[int] | None, timeout_s: float, stopped: Callable[[], bool]) -> waiting.States:
    """{id: state}. Inside a job one long wait, since each gives the job's slots away and takes them back; it
    ends, as if it had died, when nobody waits for it. Outside it is only looking, in steps."""

    def tell(_: waiting.States) -> None:
        if stopped():
            raise _Stopped

    if whoami(os.environ) is not None:
        return waiting.until_settled(wanted, int(timeout_s * 1000), tell)
    give_up = time.monotonic() + timeout_s
    while wanted:
        left = max(0.0, give_up - time.monotonic())
        states = waiting.until_settled(wanted, int(min(STEP_S, left) * 1000), tell)
        if waiting.is_settled(states) or left <= STEP_S:
            return states
    return {}


def _check_config() -> None:
    """Raises ConfigError where no valid form is in force: no kinds are known then, and none is to blame."""
    with Producer() as producer:
        producer.follow_config(time.time_ns() // 1_000_000)


def _check_kind(kind: object, offered: Mapping[str, str], configured: list[str]) -> None:
    if not isinstance(kind, str):
        raise UsageError(f"kind {kind!r:.80}", "a text is needed")
    if kind in offered:
        return
    if kind in configured:
        raise Refused(
            "not_allowed",
            f"kind {kind!r:.80} is not offered here",
            f"it needs mcp = true and a command in clawq.toml; offered are: {', '.join(offered) or 'none'}",
        )
    raise UsageError(
        f"no kind {kind!r:.80} is configured",
        f"{values.near(kind, offered)}offered are: {', '.join(offered) or 'none'}",
    )


def _job_id(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{value!r:.80} is not a job number", "give the job_id that enqueue returned")
    if not 0 < value <= values.JOB_ID_MAX:
        raise NoSuchJob(value)
    return value


def _is_my_child(job_id: int) -> bool:
    """A retried parent is given its earlier children back: they are as much its own."""
    me = whoami(os.environ)
    try:
        return me is not None and watching.job(job_id)["job"]["parent_id"] == me[0]
    except NoSuchJob:
        return False


def _job_status(job_id: int) -> Document:
    return dict(watching.job(job_id))


def _why(job_id: int) -> Document:
    with desk.reading() as here:
        settings, _ = here.settings()
        document = why(here.queue(job_id), settings, job_id, here.now, here.supervisor().doing)
    return {key: document[key] for key in PUBLIC}


def _effect(action: str, given: Arguments) -> Document:
    scope = given.get("scope")
    for name, value in (("key", given["key"]), ("scope", scope)):
        if not isinstance(value, str) and not (name == "scope" and value is None):
            raise UsageError(f"{name} {value!r:.80}", "a text is needed")
    effect = lease.effect(action, given["key"], scope)
    told: Document = {
        "key": effect.key,
        "scope": effect.scope,
        "outcome": effect.answer,
        "job_id": effect.job_id,
        "begun_at": effect.begun_at,
        "settled_at": effect.settled_at,
    }
    if action == "begin":
        told["do_it"] = effect.answer == "begun"
    told["message"] = _meaning(action, effect)
    return told


def _meaning(action: str, effect: Effect) -> str:
    if effect.answer == "unconfirmed":
        return str(Unconfirmed(effect.key, effect.job_id))
    if effect.answer == "held":
        return str(EffectHeld(effect.key, effect.job_id))
    if effect.answer == "never_begun":
        return "it was not begun: effect_begin comes first"
    return {
        ("begin", "begun"): "it is yours to do; say effect_done right after it",
        ("begin", "done"): f"job {effect.job_id} has done it already: skip it",
        ("done", "done"): "recorded: it happened",
        ("fail", "failed"): "recorded: it did not happen, and its key is free",
        ("fail", "done"): "it is done: what happened cannot be taken back",
    }.get((action, effect.answer), effect.answer)


def _told(name: str, error: ClawqError) -> Document:
    receipt = refusal(error)
    document = receipt.as_dict() if name == "enqueue" else {}
    document["reason"] = error.reason
    document["message"] = str(error)
    document["retry_after_s"] = receipt.retry_after_s
    document["safe_to_retry"] = receipt.safe_to_retry
    if isinstance(error, LeaseLost):
        document["stop"] = True
    return document
