"""The launchd agent, or daemon, and what stands in one that is there already."""

from __future__ import annotations

import plistlib
from typing import Any
from xml.parsers.expat import ExpatError

from clawq.service import END_WITHIN_S, MARK, RESTART_AFTER_S, Service

_OPENING = '<plist version="1.0">\n'


def plist(service: Service) -> str:
    """The whole file. `service` has passed ``clawq.service.check``.

    Nothing in it limits processes: launchd would count those that run already, and every fork would fail.
    """
    text = plistlib.dumps(keys(service), sort_keys=False).decode()
    head, opening, body = text.partition(_OPENING)
    return f"{head}<!-- {MARK}, which replaces it. -->\n{opening}{body}"


def keys(service: Service) -> dict[str, Any]:
    """What the file says, key by key."""
    said: dict[str, Any] = {
        "Label": service.name,
        "ProgramArguments": list(service.argv),
        "EnvironmentVariables": dict(service.environment),
        "WorkingDirectory": service.folder,
        "RunAtLoad": True,
        # Whatever ends it but `clawq stop`, which means it.
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": RESTART_AFTER_S,
        # Without it macOS slows down the CPU and the disk of the supervisor and of all its agents.
        "ProcessType": "Interactive",
        "ExitTimeOut": END_WITHIN_S,
        "StandardOutPath": service.log,
        "StandardErrorPath": service.log,
    }
    if service.user is not None:
        said["UserName"] = service.user
    return said


def environment_in(text: str) -> dict[str, str]:
    """The variables that a file of ours sets; none where it is no property list any more."""
    try:
        said = plistlib.loads(text.encode())
    except (ValueError, ExpatError):
        return {}
    variables = said.get("EnvironmentVariables") if isinstance(said, dict) else None
    return {str(name): str(value) for name, value in variables.items()} if isinstance(variables, dict) else {}
