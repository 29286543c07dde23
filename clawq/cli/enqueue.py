"""``clawq enqueue``: read the line, ask the queue, say what it answered. Started by cron all day, so
only what it needs is imported."""

import os

from clawq import options, values
from clawq.cli import as_utf8, write_error, write_out
from clawq.client import Producer, Receipt, refusal
from clawq.errors import ClawqError, Refused, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

PAYLOAD_READ = values.PAYLOAD_MAX + 4_096
"""With some room for white space, which does not count."""


def main(argv: "Sequence[str]") -> int:
    """The exit code. Raises ClawqError, which under --json has been answered on stdout already."""
    words = as_utf8(argv)
    own = words[: words.index("--")] if "--" in words else words
    if "--help" in own or "-h" in own:
        from clawq.cli.enqueue_help import text

        write_out(text())
        return 0
    with_json = "--json" in own  # before the line is read, since that may be what fails
    try:
        given = options.parse(words)
        switches = {name: given.pop(name, None) for name in ("wait", "dry_run", "batch", "json", "print_id")}
        if switches["batch"] is None:
            producer, receipt = _enqueue(given, bool(switches["dry_run"]))
        else:
            from clawq.cli.batch import run_batch

            return run_batch(given, switches)
    except ClawqError as error:
        if with_json:
            write_out(refusal(error).as_json() + "\n")
        raise
    with producer:
        write_out(_answer(receipt, switches))
        _nag(producer)
        if switches["wait"] and not switches["dry_run"]:
            from clawq.cli.wait_for import wait_for

            return wait_for(producer, receipt)
    return 0


def _enqueue(given: "dict[str, object]", dry_run: bool) -> "tuple[Producer, Receipt]":
    if "kind" not in given and "command" not in given:
        raise UsageError(
            "neither a kind nor a command", "clawq enqueue KIND, or clawq enqueue -- COMMAND ARG..."
        )
    if "payload" in given:
        given["payload"] = _payload(str(given["payload"]))
    producer = Producer()
    try:
        return producer, producer.enqueue(given, dry_run)
    except ClawqError as error:
        with producer:
            if isinstance(error, Refused):
                _nag(producer)
        raise


def _nag(producer: Producer) -> None:
    line = producer.nag()
    if line is not None:
        write_error(line)


def _answer(receipt: Receipt, switches: "dict[str, object]") -> str:
    """Cron mails whatever is printed: nothing is said unless somebody looks or asks."""
    if switches["json"]:
        return receipt.as_json() + "\n"
    if switches["dry_run"]:
        return _would_be(receipt) + "\n"
    if switches["print_id"]:
        return f"{receipt.job_id}\n"
    if os.isatty(1):
        return _said(receipt) + "\n"
    return ""


def _said(receipt: Receipt) -> str:
    if receipt.outcome == "duplicate":
        return f"a duplicate of job {receipt.job_id} ({receipt.state or 'pruned'})"
    return f"job {receipt.job_id} {receipt.outcome}{_lighter(receipt)}"


def _would_be(receipt: Receipt) -> str:
    if receipt.outcome == "duplicate":
        return f"would be a duplicate of job {receipt.job_id} ({receipt.state or 'pruned'})"
    return f"would be {receipt.outcome}{_lighter(receipt)}"


def _lighter(receipt: Receipt) -> str:
    return ", as the lighter kind that it degrades to" if receipt.degraded else ""


def _payload(given: str) -> bytes:
    """The JSON text behind ``JSON``, ``@FILE`` or ``-``."""
    if given != "-" and given[:1] != "@":
        try:
            return given.encode()
        except UnicodeEncodeError:
            raise UsageError("--payload is not UTF-8", "pass JSON, which always is") from None
    try:
        source = 0 if given == "-" else os.open(given[1:].encode(errors="surrogateescape"), os.O_RDONLY)
        try:
            parts = []
            left = PAYLOAD_READ
            while left and (part := os.read(source, left)):
                parts.append(part)
                left -= len(part)
        finally:
            if source:
                os.close(source)
    except (OSError, ValueError) as error:
        where = "stdin" if given == "-" else repr(given[1:])
        raise UsageError(
            f"--payload from {where:.200}", getattr(error, "strerror", "") or str(error)
        ) from None
    if not left:
        raise UsageError(
            f"the payload is larger than {values.PAYLOAD_MAX} bytes",
            "pass a reference to it, such as a path",
        )
    return b"".join(parts)
