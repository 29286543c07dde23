"""docs/metrics.md lists each series that there is, and its expressions ask for no other."""

from __future__ import annotations

import re
from pathlib import Path

from clawq.cli.series import ALL, HISTOGRAM

DOC = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(clawq_\w+)` \| (\w+) \| ([^|]*) \| (.*) \|$", re.MULTILINE)


def test_the_table_has_every_series_as_it_is() -> None:
    told = [
        (name, kind, re.findall(r"`(\w+)`", labels), text) for name, kind, labels, text in ROW.findall(DOC)
    ]
    assert told == [(each.shown, each.type, list(each.labels), each.help) for each in ALL]


def test_the_expressions_ask_for_series_and_labels_that_there_are() -> None:
    known = {each.shown: set(each.labels) for each in ALL}
    for each in ALL:
        if each.type == HISTOGRAM:
            known |= {f"{each.name}_{end}": {*each.labels, "le"} for end in ("bucket", "sum", "count")}
    queries = re.search(r"```promql\n(.*?)```", DOC, re.DOTALL)
    assert queries
    asked = re.findall(r"\b(clawq_\w+)(?:\{(\w+)=)?", queries[1] + DOC[queries.end() :])
    assert len(asked) > 15
    for name, label in asked:
        assert name in known, name
        assert not label or label in known[name], (name, label)


def test_names_are_what_openmetrics_asks_for() -> None:
    assert len({each.name for each in ALL}) == len(ALL)
    for each in ALL:
        assert re.fullmatch(r"clawq_[a-z_]+[a-z]", each.name)
        assert not each.name.endswith(("_total", "_count", "_sum", "_bucket"))
        assert each.name.endswith(f"_{each.unit}") or not each.unit
        assert each.help.endswith((".", ";")), each.name
