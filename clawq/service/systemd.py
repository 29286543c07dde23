"""The systemd user unit, and what stands in one that is there already."""

from __future__ import annotations

import re

from clawq.service import END_WITHIN_S, MARK, RESTART_AFTER_S, Service

_VARIABLE = re.compile(r'^Environment="((?:[^"\\]|\\.)*)"$', re.MULTILINE)


def unit(service: Service) -> str:
    """The whole file. `service` has passed ``clawq.service.check``."""
    program, *arguments = service.argv
    if any(each in program for each in "\"'\\"):
        # As an argument it may be anything; as a program it may not.
        program, arguments = "/bin/sh", ["-c", 'exec "$0" "$@"', *service.argv]
    # The program's own path is never searched for variables, its arguments are: the colon switches that off.
    plain = ":" if any("$" in word for word in arguments) else ""
    command = " ".join([quoted(plain + program), *(_word(each) for each in arguments)])
    environment = "\n".join(
        f"Environment={quoted(f'{name}={value}')}" for name, value in service.environment.items()
    )
    return f"""\
# {MARK}, which replaces it: put changes into a drop-in,
# `systemctl --user edit {service.name}`.

[Unit]
Description=clawq: the supervisor of a queue of agents
# However often it fails, it is tried again.
StartLimitIntervalSec=0

[Service]
ExecStart={command}
{environment}
# Not after `clawq stop`, which means it.
Restart=on-failure
RestartSec={RESTART_AFTER_S}
# Only the supervisor: its agents live on, and the next one takes them over.
KillMode=process
TimeoutStopSec={END_WITHIN_S}
# An agent that the kernel ends for its memory is no reason to end the supervisor.
OOMPolicy=continue

[Install]
WantedBy=default.target
"""


def quoted(text: str) -> str:
    """One word for systemd: its escapes are C's, and a bare percent sign would be a specifier."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'


def environment_in(text: str) -> dict[str, str]:
    """The variables that a unit of ours sets."""
    found = {}
    for words in _VARIABLE.findall(text):
        name, _, value = re.sub(r"\\(.)", r"\1", words).replace("%%", "%").partition("=")
        found[name] = value
    return found


def _word(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_./=-]+", text) else quoted(text)
