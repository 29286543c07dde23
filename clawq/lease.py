"""What holds only while an attempt is its job's own: its sign of life, and the side effects that it begins.

A job's agent is known by CLAWQ_JOB_ID and CLAWQ_TOKEN. What is asked for with a token that is no longer the
job's is refused and changes nothing: another attempt works on it now, or a person has ended it.

Apart from clawq.inside, since nothing here asks the configuration: an agent may beat all day.
"""

import os
import time

from clawq.errors import LeaseLost, UsageError
from clawq.paths import find_home
from clawq.states import EFFECT_SCOPES, whoami
from clawq.store import told
from clawq.store.connection import Immediate, open_db, open_readonly, storage_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    import apsw

    from clawq.store.effects import Effect


def must_be_inside(verb: str) -> "tuple[int, int]":
    """(job id, token) of the job whose agent runs this. Raises UsageError outside a job."""
    me = whoami(os.environ)
    if me is None:
        raise UsageError("this is not inside a job", f"`clawq {verb}` is for what `clawq run` has started")
    return me


def own(db: "apsw.Connection", me: "tuple[int, int]") -> str:
    """The tenant that this agent works for. Raises LeaseLost."""
    tenant = told.owner(db, *me)
    if tenant is None:
        raise LeaseLost(me[0])
    return tenant


def beat() -> int:
    """Touch this attempt's heartbeat file; the job's id.

    Raises UsageError (outside a job too), LeaseLost, StorageError and Busy.
    """
    me = must_be_inside("beat")
    path = os.environ.get("CLAWQ_HEARTBEAT_FILE")
    if not path:
        raise UsageError("CLAWQ_HEARTBEAT_FILE is not set", "pass on the environment that the job was given")
    home = find_home()
    db = open_readonly(home)
    if db is None:
        raise LeaseLost(me[0])
    try:
        with storage_errors(home.db):
            own(db, me)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.utime(descriptor)
            finally:
                os.close(descriptor)
    finally:
        db.close()
    return me[0]


def effect(action: str, key: str, scope: "str | None") -> "Effect":
    """``begin``, ``done`` or ``fail`` of a side effect: the ledger's answer, on disk before it is given.

    `scope` None is ``job`` for begin, and for the others whatever this attempt began under that key.
    Raises UsageError (outside a job too), LeaseLost, StorageError and Busy.
    """
    _check(key, scope)
    from clawq.store import effects

    me = must_be_inside("effect")
    home = find_home()
    with storage_errors(home.db):
        db = open_db(home)
        try:
            now = time.time_ns() // 1_000_000
            with Immediate(db):
                tenant = own(db, me)
                if action == "begin":
                    return effects.begin(db, tenant, *me, key, scope or "job", now)
                state = effects.DONE if action == "done" else effects.FAILED
                scopes = (scope,) if scope else EFFECT_SCOPES
                return effects.settle(db, tenant, *me, key, state, scopes, now)
        finally:
            db.close()


def _check(key: str, scope: "str | None") -> None:
    from clawq.values import KEY_MAX, read_word

    if scope is not None:
        read_word("--scope", scope, EFFECT_SCOPES)
    if not isinstance(key, str):
        raise UsageError(f"the key {key!r:.80}", "a text is needed")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise UsageError(f"the key {key!r:.80}", "it is not UTF-8") from None
    if not key or not key.isprintable() or size > KEY_MAX:
        raise UsageError(f"the key {key!r:.80}", f"1 to {KEY_MAX} bytes, no control characters")
