"""What is wrong between the values of a clawq.toml: names that lead nowhere, sums, amounts that never fit.

Problems are looked for in the raw file, so that one error hides no other; whatever is not of its type is
somebody else's to report and is passed over here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clawq.config.lines import Path, line_of
from clawq.config.models import BUILT_IN_RESOURCES, Budget, Resource, Schedule, Table
from clawq.config.problems import Problem, dotted, expects, near, quoted
from clawq.config.types import MOST
from clawq.rules.fairness import share_slots
from clawq.states import BANDS, DEFAULT_KIND

Raw = Mapping[str, Any]
Lines = dict[Path, int]


def problems_across(raw: Raw, lines: Lines) -> Iterator[Problem]:
    yield from _missing(raw, lines)
    yield from _needs(raw, lines)
    yield from _shares(raw, lines)
    yield from _spends(raw, lines)
    yield from _degrading(raw, lines)
    yield from _schedules(raw, lines)


def warnings_across(body: Raw, lines: Lines) -> Iterator[Problem]:
    """Of a compiled body: what is allowed and comes to nothing."""
    most = body["limits"]["max_running"]
    shares = {name: band["share"] for name, band in body["bands"].items() if "share" in band}
    slots = share_slots({BANDS.index(name): share for name, share in shares.items()}, most)
    for name, share in shares.items():
        if slots[BANDS.index(name)] == 0:
            at = ("bands", name, "share")
            what = f"{share} percent of max_running = {most} is no whole slot"
            yield Problem(
                line_of(lines, at), dotted(at), what, "this band will only borrow: raise one of them"
            )
    for name, kind in body["kinds"].items():
        in_bands = [{**body["bands"].get(band, {}), **kind} for band in BANDS]
        for key, is_used, takes in (
            ("degrade_to", any(each.get("on_busy") == "degrade" for each in in_bands), 'on_busy = "degrade"'),
            ("on_full", any("queue_cap" in each for each in in_bands), "a queue_cap"),
        ):
            if key in kind and not is_used and kind[key] != body["kind_defaults"].get(key):
                at = ("kinds", name, key)
                yield Problem(line_of(lines, at), dotted(at), "is not used", f"it takes {takes}")


def _missing(raw: Raw, lines: Lines) -> Iterator[Problem]:
    required: tuple[tuple[str, type[Table], tuple[str, ...]], ...] = (
        ("resources", Resource, ("limit",)),
        ("budgets", Budget, ("limit", "per")),
    )
    for section, model, keys in required:
        for path, table in _tables(raw, section):
            if section == "resources" and path[1] in BUILT_IN_RESOURCES:
                continue
            for key in keys:
                if key not in table:
                    fix = f"expected {expects(model.model_fields[key]).text}"
                    yield Problem(line_of(lines, path), dotted((*path, key)), "missing", fix)


def _needs(raw: Raw, lines: Lines) -> Iterator[Problem]:
    known = sorted({*BUILT_IN_RESOURCES, *_names(raw, "resources")})
    for path, table in _tables(raw, "bands", "kinds"):
        needs = table.get("needs")
        for index, name in enumerate(needs if isinstance(needs, list) else ()):
            if isinstance(name, str) and name not in known:
                line = line_of(lines, (*path, "needs", index))
                what = f"no resource {quoted(name)}"
                yield Problem(line, dotted((*path, "needs")), what, near(name, known))
        errors = table.get("errors")
        for index, each in enumerate(errors if isinstance(errors, list) else ()):
            name = each.get("resource") if isinstance(each, dict) else None
            if isinstance(name, str) and name not in known:
                line = line_of(lines, (*path, "errors", index))
                yield Problem(
                    line, dotted((*path, "errors")), f"no resource {quoted(name)}", near(name, known)
                )


def _shares(raw: Raw, lines: Lines) -> Iterator[Problem]:
    shares = {path: table["share"] for path, table in _tables(raw, "bands") if _is_number(table.get("share"))}
    total = sum(shares.values())
    if total > 100 + 1e-9:
        *_, last = shares
        parts = " + ".join(f"{share:g} of {path[1]}" for path, share in shares.items())
        at = (*last, "share")
        yield Problem(
            line_of(lines, at),
            dotted(at),
            f"the shares come to {total:g} percent, {parts}",
            "all together at most 100",
        )


def _spends(raw: Raw, lines: Lines) -> Iterator[Problem]:
    budgets = {str(path[1]): table for path, table in _tables(raw, "budgets")}
    for path, table in _tables(raw, "bands", "kinds"):
        spends = table.get("spends")
        for name, amount in spends.items() if isinstance(spends, dict) else ():
            at = (*path, "spends", name)
            line, key = line_of(lines, at), dotted(at)
            if name not in budgets:
                fix = near(name, list(budgets)) if budgets else f"add a table [{dotted(('budgets', name))}]"
                yield Problem(line, key, f"no budget {quoted(name)}", fix)
                continue
            for bound in ("limit", "per_tenant"):
                most = budgets[name].get(bound)
                if _is_number(most) and _is_number(amount) and amount > most:
                    what = f"{amount} is more than {dotted(('budgets', name, bound))} = {most}"
                    yield Problem(
                        line, key, what, "no such job could ever start: lower it, or raise the budget"
                    )
                    break


def _schedules(raw: Raw, lines: Lines) -> Iterator[Problem]:
    schedules = raw.get("schedules")
    kinds = {DEFAULT_KIND, *_names(raw, "kinds")}
    seen: set[tuple[str, str]] = set()
    for index, each in enumerate(schedules if isinstance(schedules, list) else ()):
        if not isinstance(each, dict):
            continue
        at: Path = ("schedules", index)
        for key in ("cron", "kind"):
            if key not in each:
                fix = f"expected {expects(Schedule.model_fields[key]).text}"
                yield Problem(line_of(lines, at), dotted((*at, key)), "missing", fix)
        kind, when = each.get("kind"), each.get("cron")
        if not isinstance(kind, str):
            continue
        where = line_of(lines, (*at, "kind")), dotted((*at, "kind"))
        if kind not in kinds:
            yield Problem(*where, f"no kind {quoted(kind)}", near(kind, sorted(kinds)))
        elif not _said(raw, kind, _band_of(raw, kind), "command")[1]:
            yield Problem(*where, f"kind {quoted(kind)} has no command", "give it one: nobody else will")
        if isinstance(when, str) and (kind, " ".join(when.split())) in seen:
            yield Problem(*where, "the same kind at the same times, twice", "leave one of them out")
        seen.add((kind, " ".join(str(when).split())))


def _band_of(raw: Raw, kind: str) -> str:
    """The band that the kind's jobs have, as far as it can be told."""
    band = _said(raw, kind, "", "band")[0]
    return band if isinstance(band, str) else "normal"


def _degrading(raw: Raw, lines: Lines) -> Iterator[Problem]:
    """A degraded job is taken as another kind, which then must not degrade it further, in whatever band."""
    kinds: dict[str, Raw] = {
        DEFAULT_KIND: {},
        **{str(path[1]): table for path, table in _tables(raw, "kinds")},
    }
    for path, table in _tables(raw, "bands", "kinds"):
        target = table.get("degrade_to")
        if isinstance(target, str) and target not in kinds:
            at = (*path, "degrade_to")
            yield Problem(
                line_of(lines, at), dotted(at), f"no kind {quoted(target)}", near(target, sorted(kinds))
            )
    told: set[str] = set()
    for name in kinds:
        for band in BANDS:
            problem = _degrades_wrongly(raw, lines, kinds, name, band)
            if problem is not None and problem.key not in told:
                told.add(problem.key)
                yield problem


def _degrades_wrongly(
    raw: Raw, lines: Lines, kinds: Mapping[str, Raw], name: str, band: str
) -> Problem | None:
    on_busy, busy_at = _said(raw, name, band, "on_busy")
    if on_busy != "degrade":
        return None
    target, at = _said(raw, name, band, "degrade_to")
    if target is None:
        at = (*busy_at[:2], "degrade_to")
        return Problem(
            line_of(lines, busy_at), dotted(at), "missing", 'on_busy = "degrade" takes a kind to degrade to'
        )
    if not isinstance(target, str) or target not in kinds:
        return None
    for other in BANDS:
        if _said(raw, target, other, "on_busy")[0] == "degrade":
            what = (
                "would degrade to itself"
                if _said(raw, target, other, "degrade_to")[0] == target
                else "degrades too"
            )
            where = "" if other == band else f" in band {other}"
            fix = f'name another kind, or say on_busy = "queue" in [{dotted(("kinds", target))}]'
            return Problem(line_of(lines, at), dotted(at), f"{quoted(target)} {what}{where}", fix)
    return None


def _said(raw: Raw, kind: str, band: str, key: str) -> tuple[Any, Path]:
    """What a job of this kind in this band has, and where that is written; None and () for nothing."""
    for path in (("kinds", kind), ("bands", band)):
        section = raw.get(path[0])
        table = section.get(path[1]) if isinstance(section, dict) else None
        if isinstance(table, dict) and key in table:
            return table[key], (*path, key)
    return None, ()


def _tables(raw: Raw, *sections: str) -> Iterator[tuple[Path, Raw]]:
    for section in sections:
        tables = raw.get(section)
        if isinstance(tables, dict):
            yield from (((section, name), each) for name, each in tables.items() if isinstance(each, dict))


def _names(raw: Raw, section: str) -> set[str]:
    return {str(path[1]) for path, _ in _tables(raw, section)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST
