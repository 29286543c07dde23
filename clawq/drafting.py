"""From the options of a job to its draft: all that can be told before the transaction begins.

Names are looked up in the configuration, the folder and the program on disk: what is missing is refused
here, where somebody is looking, and not at three in the morning.
"""

import os

from clawq import options, values
from clawq.errors import ClawqError, LeaseLost, UsageError
from clawq.paths import own_folder, utf8_path
from clawq.states import BANDS, DEFAULT_KIND, DEFAULT_TENANT, whoami
from clawq.store.draft import Draft

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clawq.lines import Alike
    from clawq.store.bulk import Run
    from clawq.store.draft import Frame
    from clawq.store.family import Parent
    from clawq.store.intake import Intake


class Drafter:
    """Reads the jobs of one transaction; ``now`` in ms. What it found on disk it remembers: a batch asks a
    thousand times."""

    __slots__ = ("_here", "_intake", "_now", "_path", "_programs")

    def __init__(self, intake: "Intake", now: int) -> None:
        self._intake = intake
        self._now = now
        self._here: str | None = None
        self._path = utf8_path()
        self._programs: dict[tuple[str, str, str], bool] = {}

    def read(
        self, batch: "Sequence[Mapping[str, object] | Alike | ClawqError]"
    ) -> "list[Draft | Run | ClawqError]":
        """In order: the draft of each job, or the error that is its answer; an error stays itself. Lines that
        follow each other may come as a run.

        Raises LeaseLost, inside a job that is no longer this agent's.
        """
        from_lines = None
        drafts: list[Draft | Run | ClawqError] = []
        for given in batch:
            if isinstance(given, ClawqError):
                drafts.append(given)
                continue
            try:
                if isinstance(given, tuple):
                    if from_lines is None:
                        from clawq.lines import Drafts

                        from_lines = Drafts(self._make, self._now)
                    from_lines.read(given, drafts)
                else:
                    drafts.append(self._make(given))
            except LeaseLost:
                raise
            except ClawqError as error:
                drafts.append(error)
        return drafts

    def _make(self, given: "Mapping[str, object]") -> Draft:
        return self._draft(options.read(given, self._now), self._now)

    def _draft(self, asked: "dict[str, Any]", now: int) -> Draft:
        """Everything about a job that can be told without the transaction.

        Raises UsageError, and for children what `clawq.family.parent_of` does.
        """
        intake = self._intake
        command = asked.get("command")
        kind = asked.get("kind")
        if kind is None:
            if command is None:
                raise UsageError("neither a kind nor a command", '"kind" or "command" is needed')
            kind = DEFAULT_KIND
        parent, me = None, whoami(os.environ)
        if me is not None or "parent" in asked or "on_parent_end" in asked:
            from clawq.family import parent_of

            parent = parent_of(intake, asked, me)
        tenant = asked.get("tenant", DEFAULT_TENANT)
        frame = self._frame(kind, asked, tenant, parent)
        if not frame.known:
            if intake.is_broken():
                # Most often it stands there, and what is wrong is elsewhere in the file.
                raise UsageError(
                    f"no kind {kind!r:.80} is in the last good form of clawq.toml, which is not valid now",
                    "`clawq config check` says what is wrong",
                )
            raise UsageError(
                f"no kind {kind!r:.80} is configured",
                values.near(kind, intake.kinds())
                + f'add [kinds."{kind:.80}"] to clawq.toml{self._meant_as_command(kind, command)}',
            )
        if command is None and frame.program is None:
            raise UsageError(
                f"kind {kind!r:.80} has no command", f"give one: clawq enqueue {kind} -- COMMAND ARG..."
            )
        for name in asked.get("needs", ()):
            if name not in intake.resources():
                raise UsageError(
                    f"no resource {name!r:.80} is configured",
                    values.near(name, intake.resources()) + "`clawq config show` lists them",
                )
        payload = asked.get("payload")
        if isinstance(payload, bytes):
            asked["payload"] = self._json_text(payload)
        if command is None:
            _try_template(frame, asked)
        cwd = self._folder(asked.get("cwd"))
        self._find_program(frame.program if command is None else command[0], asked, frame, cwd)
        draft = Draft(asked, kind, tenant, frame, cwd, self._path, now, None, parent)
        if frame.on_busy == "degrade" and frame.degrade_to is not None:
            # Looked at now: a lighter kind that cannot run should not come to light when all is busy.
            lighter = self._frame(frame.degrade_to, asked, tenant, parent)
            if command is None and lighter.program is None:
                raise UsageError(
                    f"kind {frame.degrade_to!r:.80}, which {kind!r:.80} degrades to, has no command",
                    f"give it one in clawq.toml, or here: clawq enqueue {kind} -- COMMAND ARG...",
                )
            if command is None:
                _try_template(lighter, asked)
            self._find_program(lighter.program if command is None else command[0], asked, lighter, cwd)
            draft.lighter = Draft(
                asked, frame.degrade_to, tenant, lighter, cwd, self._path, now, kind, parent
            )
        return draft

    def _frame(self, kind: str, asked: "dict[str, Any]", tenant: str, parent: "Parent | None") -> "Frame":
        """What is configured for it: a child is served no later than its parent."""
        frame = self._intake.frame(kind, asked.get("band"), tenant)
        if parent is not None and BANDS.index(frame.band) > parent.band:
            frame = self._intake.frame(kind, BANDS[parent.band], tenant)
        return frame

    def _json_text(self, payload: bytes) -> str:
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            raise UsageError("the payload is not UTF-8", "pass JSON, which always is") from None
        if "\0" in text or not self._intake.is_json(text):
            raise UsageError(
                f"the payload is not JSON: {text!r:.60}", "quote it for the shell, as in '{\"n\": 1}'"
            )
        return text

    def _folder(self, asked: str | None) -> str:
        if asked is not None:
            return _folder(asked)
        if self._here is None:
            self._here = _folder(None)
        return self._here

    def _meant_as_command(self, kind: str, command: object) -> str:
        """What else to do when an unknown kind reads like a command whose -- was forgotten."""
        words = kind.split()
        if command is not None or not words:
            return ""
        path = self._path or os.defpath
        if not _is_there(words[0], path, self._folder(None)):
            return ""
        return f"; or, if it is a command: clawq enqueue -- {kind:.80}"

    def _find_program(self, program: str, asked: "dict[str, Any]", frame: "Frame", cwd: str) -> None:
        """Refuse a missing program here, where somebody is looking, and not at three in the morning."""
        env = asked.get("env") or {}
        path = env.get("PATH") or frame.kind_path or frame.env_path or self._path
        if not path:
            path = self._intake.supervisor_path() or os.defpath
        key = (program, path, cwd)
        if key not in self._programs:
            self._programs[key] = _is_there(program, path, cwd) or _is_ours(program)
        if not self._programs[key]:
            words = program.split()
            if len(words) > 1 and _is_there(words[0], path, cwd):
                raise UsageError(
                    f"no executable {program!r:.200}",
                    f"a command is separate words, unquoted: -- {words[0]:.80} {words[1]:.80} ...; "
                    "a shell's line is: -- sh -c 'LINE'",
                )
            where = f"in {cwd}" if "/" in program else f"on PATH {path}"
            raise UsageError(
                f"no executable {program!r:.200}", f"it is not {where:.500}; name it with its full path"
            )


def _try_template(frame: "Frame", asked: "dict[str, Any]") -> None:
    """Raises UsageError for a payload that its kind's command cannot be filled from."""
    if frame.template is None:
        return
    import json  # only for such a kind, as is what fills it

    from clawq.placeholders import fill

    fill(
        json.loads(frame.template),
        {"payload": asked.get("payload"), "payload_file": "/payload", "job_id": 1, "attempt": 1},
    )


def _folder(asked: str | None) -> str:
    # As bytes: the locale that cron has must not decide what a path is.
    try:
        here = os.getcwdb()
    except OSError:
        if asked is None or not asked.startswith("/"):
            raise UsageError("the current folder no longer exists", "cd to another, or give --cwd") from None
        here = b"/"
    path = here if asked is None else os.path.abspath(os.path.join(here, asked.encode()))
    try:
        cwd = path.decode()
    except UnicodeDecodeError:
        raise UsageError(f"the folder {path!r:.200} is not UTF-8", "give another with --cwd") from None
    if asked is not None and not os.path.isdir(path):
        raise UsageError(f"--cwd {cwd!r:.200} is not a folder", "give one that exists")
    return cwd


def _is_there(program: str, path: str, cwd: str) -> bool:
    """As execvp would find it: an empty or relative folder of PATH is counted from `cwd`."""
    name, here = program.encode(), cwd.encode()
    if "/" in program:
        return _executable(os.path.join(here, name))
    return any(_executable(os.path.join(here, folder, name)) for folder in path.encode().split(b":"))


def _is_ours(program: str) -> bool:
    """Whether it is beside this clawq, whose folder the supervisor puts at the end of PATH."""
    return "/" not in program and _executable(os.path.join(own_folder(), program).encode())


def _executable(file: bytes) -> bool:
    return os.path.isfile(file) and os.access(file, os.X_OK)
