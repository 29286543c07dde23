"""``clawq enqueue --batch``: one JSON object a line in, one transaction per thousand, answers in order."""

import os
import select

from clawq.cli import write_error, write_out
from clawq.cli.ahead import Ahead
from clawq.client import Producer, refusal
from clawq.errors import ClawqError, UsageError
from clawq.lines import LINE_MAX, Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clawq.client import Answers, Receipt
    from clawq.lines import Read

    Chunk = tuple[list[int], list[Read]]
    """The numbers of lines, and what was read."""


AT_ONCE = 1_000
AT_ONCE_BYTES = 8 << 20
"""A thousand lines may be large ones: what is held in memory has a bound too."""
QUIET_S = 0.2
"""A pipe that is silent for so long is not made to wait for the thousandth line."""
LINES_OF_ERRORS = 100

SEVERITY = (0, 75, 65, 1, 2, 78, 77, 74)
"""Exit codes, the mildest first: the batch exits with the most severe of its lines."""


class Batch:
    """Counts and answers of one run."""

    __slots__ = ("accepted", "code", "duplicates", "form", "refused")

    def __init__(self, form: str) -> None:
        self.form = form
        self.accepted = self.duplicates = self.refused = 0
        self.code = 0

    def answer(self, numbers: "list[int]", answers: "Answers", explained: bool = False) -> None:
        """Write what became of the lines with these numbers; why, unless that has been `explained`."""
        told: list[str] = []
        place = 0
        for answer, count in answers:
            if isinstance(answer, ClawqError):
                self.worsen(answer.exit_code)
                self.refused += count
                if self.refused <= LINES_OF_ERRORS and not explained:
                    write_error(f"line {numbers[place]}: {answer}")
                answer = refusal(answer)
            elif answer.outcome == "duplicate":
                self.duplicates += count
            else:
                self.accepted += count
            place += count
            if self.form:
                told.extend(self._said(answer, count))
        if told:
            write_out("\n".join(told) + "\n")

    def _said(self, answer: "Receipt", count: int) -> "Iterator[str]":
        first = answer.job_id
        text = answer.as_json() if self.form == "json" else str(first or "-")
        if first is None or count == 1:
            return iter((text,) * count)
        head, tail = text.split(str(first), 1)  # the only number in a receipt for several
        return (f"{head}{number}{tail}" for number in range(first, first + count))

    def worsen(self, code: int) -> None:
        """Keep the more severe of this exit code and the one so far."""
        self.code = max(self.code, code, key=SEVERITY.index)


def run_batch(given: "dict[str, object]", switches: "dict[str, object]") -> int:
    """The exit code: the most severe of its lines'. Raises ClawqError where nothing could be asked at all."""
    for name in (*given, *(name for name in ("wait",) if switches[name])):
        raise UsageError(f"--batch with {name.replace('_', '-')!r}", "each line says what it wants itself")
    source = str(switches["batch"])
    batch = Batch("json" if switches["json"] else "id" if switches["print_id"] else "")
    descriptor = 0 if source == "-" else _open(source)
    stopped = False
    try:
        with Producer() as producer:
            chunks = Ahead(_chunks(descriptor))
            for numbers, jobs in chunks:
                try:
                    answers = producer.enqueue_lines(jobs, bool(switches["dry_run"]), chunks.ask)
                except ClawqError as error:
                    # The queue itself does not answer: neither would it for the lines after these.
                    batch.answer(numbers, [(error, 1) for _ in numbers], explained=True)
                    write_error(f"lines {numbers[0]} to {numbers[-1]}, and none after them: {error}")
                    stopped = True
                    break
                batch.answer(numbers, answers)
            if batch.accepted >= AT_ONCE and not switches["dry_run"]:
                producer.checkpoint()
            line = producer.nag()
            if line is not None:
                write_error(line)
    finally:
        if descriptor:
            os.close(descriptor)
    if batch.refused > LINES_OF_ERRORS and not stopped:
        write_error(f"and {batch.refused - LINES_OF_ERRORS} lines more were not accepted")
    if not batch.form and (switches["dry_run"] or os.isatty(1)):
        would = "would be " if switches["dry_run"] else ""
        counts = f"accepted {batch.accepted}, duplicates {batch.duplicates}, rejected {batch.refused}"
        write_out(f"{would}{counts}\n")
    return batch.code


def _open(path: str) -> int:
    try:
        return os.open(path.encode(errors="surrogateescape"), os.O_RDONLY)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--batch {path!r:.200}", why) from None


def _chunks(descriptor: int) -> "Iterator[Chunk]":
    """A thousand lines at once, or what there is when the input is silent."""
    reader = Reader()
    numbers: list[int] = []
    jobs: list[Read] = []
    number = size = 0
    for line in _lines(descriptor):
        if line is not None:
            number += 1
            if not line or line.isspace():
                continue
            numbers.append(number)
            reader.read(line, jobs)
            size += len(line)
        if jobs and (line is None or len(numbers) == AT_ONCE or size > AT_ONCE_BYTES):
            yield numbers, jobs
            numbers, jobs, size = [], [], 0
    if jobs:
        yield numbers, jobs


def _lines(descriptor: int) -> "Iterator[bytes | None]":
    """Lines without their ends, and None whenever the input is silent. A line too long comes cut."""
    rest = b""
    skipping = False
    while True:
        if not select.select([descriptor], [], [], QUIET_S)[0]:
            yield None
            select.select([descriptor], [], [])
        try:
            part = os.read(descriptor, 1 << 18)
        except OSError as error:
            raise UsageError("the batch cannot be read", error.strerror or "") from None
        if not part:
            break
        *whole, rest_of_it = (rest + part).split(b"\n")
        for line in whole:
            if skipping:
                skipping = False
                continue
            yield line
        rest = rest_of_it
        if skipping:
            rest = b""
        elif len(rest) > LINE_MAX:
            yield rest
            rest = b""
            skipping = True
    if rest and not skipping:
        yield rest
