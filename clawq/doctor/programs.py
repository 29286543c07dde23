"""Whether the commands of the kinds are found where the service will look for them."""

from __future__ import annotations

import os

from clawq import placeholders
from clawq.doctor import Patient
from clawq.rules import checks
from clawq.rules.checks import Check, Program
from clawq.settings import Kind


def check(patient: Patient, service_path: str | None) -> list[Check]:
    """`service_path`: the PATH in the service's file, where there is one."""
    path, whose = where(patient, service_path)
    found = []
    for name in patient.settings.kind_names:
        kind = patient.settings.kind(name)
        for command in (kind.command, kind.reconcile, kind.notify):
            if command:
                found.append(_program(kind, command[0], path, "PATH" in patient.settings.env))
    notify = patient.settings.alerts.notify
    if notify:
        found.append(Program("[alerts]", notify[0], _is_there(notify[0], path), True))
    return checks.programs(found, whose)


def where(patient: Patient, service_path: str | None) -> tuple[str, str]:
    """(PATH that a job without one of its own gets, whose it is)."""
    for path, whose in (
        (patient.settings.env.get("PATH"), "the PATH of [env]"),
        (service_path, "the service's PATH"),
        (patient.seen.supervisor_path, "the supervisor's PATH"),
        (os.environ.get("PATH"), "this shell's PATH"),
    ):
        if path:
            return path, whose
    return os.defpath, "the system's PATH"


def _program(kind: Kind, program: str, path: str, certain: bool) -> Program:
    own = kind.env.get("PATH")
    if placeholders.used(program) or ("/" in program and not program.startswith("/")):
        return Program(kind.name, program, None, False)  # it lies in the job's folder
    found = _is_there(program, own or path)
    return Program(kind.name, program, found, certain or own is not None or program.startswith("/"))


def _is_there(program: str, path: str) -> bool:
    folders = [""] if "/" in program else [each for each in path.split(os.pathsep) if each.startswith("/")]
    files = (os.path.join(folder, program) for folder in folders)
    return any(os.access(file, os.X_OK) and os.path.isfile(file) for file in files)
