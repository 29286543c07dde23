"""``clawq enqueue --batch``: one JSON object a line in, one transaction per thousand, answers in order."""

import json
import os
import select

from clawq import lines
from clawq.cli import write_error, write_out
from clawq.client import Producer, refusal
from clawq.errors import ClawqError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clawq.client import Answers, Receipt

    Read = dict[str, object] | lines.Cut | ClawqError

AT_ONCE = 1_000
AT_ONCE_BYTES = 8 << 20
"""A thousand lines may be large ones: what is held in memory has a bound too."""
LINE_MAX = 1 << 20
"""Payload, command and environment at their largest, escaped."""
QUIET_S = 0.2
"""A pipe that is silent for so long is not made to wait for the thousandth line."""
LINES_OF_ERRORS = 100
SHAPES = 1_000
"""How many shapes of lines are remembered."""

SEVERITY = (0, 75, 65, 1, 2, 78, 77, 74)
"""Exit codes, the mildest first: the batch exits with the most severe of its lines."""


class Batch:
    """Counts and answers of one run."""

    __slots__ = ("accepted", "before", "code", "duplicates", "form", "line", "refused", "shapes")

    def __init__(self, form: str) -> None:
        self.form = form
        self.line = self.accepted = self.duplicates = self.refused = 0
        self.code = 0
        self.before = ""
        self.shapes: dict[str, bool] = {}
        """Of the texts that lines leave when they are cut: whether they may be."""

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
            for chunk in _chunks(descriptor, batch):
                numbers = [number for number, _ in chunk]
                try:
                    answers = producer.enqueue_lines([job for _, job in chunk], bool(switches["dry_run"]))
                except ClawqError as error:
                    # The queue itself does not answer: neither would it for the lines after these.
                    batch.answer(numbers, [(error, 1) for _ in chunk], explained=True)
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


def _chunks(descriptor: int, batch: Batch) -> "Iterator[list[tuple[int, Read]]]":
    """Numbered lines, read: a thousand at once, or what there is when the input is silent."""
    chunk: list[tuple[int, Read]] = []
    size = 0
    for line in _lines(descriptor):
        if line is None:
            if chunk:
                yield chunk
            chunk, size = [], 0
            continue
        batch.line += 1
        if not line.strip():
            continue
        chunk.append((batch.line, _read_line(line, batch)))
        size += len(line)
        if len(chunk) == AT_ONCE or size > AT_ONCE_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _read_line(line: bytes, batch: Batch) -> "Read":
    if len(line) > LINE_MAX:
        return UsageError(f"it has more than {LINE_MAX} bytes", "pass a reference to large things")
    try:
        text = line.decode()
        found = lines.cut(text, batch.before)
        if found is not None:
            cut, batch.before = found
            good = batch.shapes.get(cut[0])
            if good is None:
                if len(batch.shapes) >= SHAPES:
                    batch.shapes.clear()
                good = batch.shapes[cut[0]] = lines.is_well_cut(cut)
            if good:
                return cut
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return UsageError(f"it is not JSON ({error})", "one object a line")
    if not isinstance(value, dict):
        return UsageError("it is not a JSON object", 'such as {"kind": "site.qa", "payload": {}}')
    return value


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
