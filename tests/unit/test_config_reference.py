"""The template, the reference and `config show` say what the models say."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from clawq.config.__main__ import DOCS, docs
from clawq.config.compiler import Checked, check_text
from clawq.config.explain import Value, explain, in_order, plain, toml
from clawq.config.models import Band, Budget, ClawqToml, Host, Kind, Limits, Resource, Schedule, Tenant, Top
from clawq.config.problems import tables_of
from clawq.config.reference import WIDTH, own, template, write_template
from tests.fleet import ROOT

FILE = "/home/me/clawq.toml"


A_SCHEDULE = 'cron = "@daily"\nkind = "x"\n'


def check(text: str) -> Checked:
    return check_text(text, FILE)


def uncommented() -> str:
    return re.sub(r"(?m)^#(?=[a-z\[])", "", template())


def test_the_template_changes_nothing() -> None:
    assert check(template()).body == check("").body
    assert check(template()).problems == check(template()).warnings == ()


def test_the_template_shows_every_key_in_its_table() -> None:
    checked = check(uncommented())
    assert checked.problems == ()
    assert set(checked.raw["limits"]) == set(Limits.model_fields)
    assert set(checked.raw["host"]) == set(Host.model_fields)
    assert set().union(*checked.raw["resources"].values()) == set(Resource.model_fields)
    assert set().union(*checked.raw["budgets"].values()) == set(Budget.model_fields)
    assert set().union(*checked.raw["bands"].values()) >= set(own(Band)) == {"share"}
    assert set().union(*checked.raw["tenants"].values()) == set(Tenant.model_fields)
    assert set().union(*checked.raw["kinds"].values()) == set(Kind.model_fields)
    assert set().union(*checked.raw["schedules"]) == set(Schedule.model_fields)
    assert set(checked.raw) == set(ClawqToml.model_fields)


def test_what_the_template_calls_a_default_is_one() -> None:
    """Taking a # away changes nothing, except where the line says that there is no default."""
    defaults = check("").body
    assert defaults is not None
    lines = uncommented().splitlines()
    for number, line in enumerate(lines):
        told = line if "#" in line else lines[number - 1]
        unset = ("(unset)", "(required)", "(default: 75%")
        if "=" not in line or line.startswith("#") or any(word in told for word in unset):
            continue
        header = next((each for each in reversed(lines[:number]) if each.startswith("[")), "")
        required = {"[resources.anthropic]": "limit = 1\n", "[[schedules]]": A_SCHEDULE}.get(header, "")
        kind = '[kinds.x]\ncommand = ["true"]\n' if required == A_SCHEDULE else ""
        body = check(f"{kind}{header}\n{required}{line}").body
        assert body is not None, line
        if header in (
            "",
            "[limits]",
            "[host]",
            "[resources.browser]",
            "[resources.local_model]",
            "[resources.shell]",
        ):
            assert body == defaults, line
        elif header == '[kinds."site.qa"]':
            assert body["kinds"]["site.qa"].items() <= body["kind_defaults"].items(), line


def test_the_template_is_pleasant_to_read() -> None:
    for line in template().splitlines():
        assert len(line) <= WIDTH, line
        assert line == line.rstrip()
        assert line.isascii()


def test_every_key_has_a_meaning_and_an_example() -> None:
    for model in (Top, Limits, Host, Resource, Budget, Tenant, Band, Kind, Schedule):
        for name, info in model.model_fields.items():
            assert info.description, name
            extra = info.json_schema_extra
            assert isinstance(extra, dict)
            assert info.default is not None or extra["example"] is not None, name


def test_the_reference_is_current() -> None:
    assert DOCS.read_text() == docs(), "run python -m clawq.config docs"


def test_the_examples_of_the_reference_are_right() -> None:
    examples = re.findall(r"```toml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(examples) == 3
    for example in examples:
        text = example if example.startswith("[") else f"[kinds.x]\n{example}"
        assert check(text).problems == check(text).warnings == ()


def test_write_template_refuses_to_replace(tmp_path: Path) -> None:
    file = tmp_path / "clawq.toml"
    file.write_text("mine")
    with pytest.raises(FileExistsError):
        write_template(str(file), replace=False)
    assert file.read_text() == "mine"


def test_write_template_replaces_what_a_link_names(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "clawq.toml"
    real.parent.mkdir()
    real.write_text("mine")
    link = tmp_path / "clawq.toml"
    link.symlink_to(real)
    write_template(str(link), replace=True)
    assert link.is_symlink()
    assert real.read_text() == template()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert os.listdir(real.parent) == ["clawq.toml"]


TEXT = """\
[limits]
max_running = 3
[resources.browser]
limit = 1
[env]
A = "b"
[bands.bulk]
timeout = "300s"
env = { A = "band", B = "band" }
[kinds.nightly]
band = "bulk"
needs = ["shell", "browser"]
env = { A = "kind" }
grace = "0s"
[kinds.endless]
timeout = "none"
"""


def explained(text: str, lines: bool = True) -> dict[str, Value]:
    checked = check(text)
    assert checked.body is not None
    return {each.key: each for each in explain(checked.body, FILE, checked.lines if lines else None)}


def test_every_value_says_where_it_comes_from() -> None:
    found = explained(TEXT)
    assert {key: found[key][1:] for key in (
        "limits.max_running", "limits.max_running_per_tenant", "limits.retention", "host.max_user_procs",
        "resources.browser.limit", "resources.shell.limit", "env.A", "bands.bulk.timeout",
        "kinds.nightly.band", "kinds.nightly.timeout", "kinds.nightly.needs", "kinds.nightly.env",
        "kinds.nightly.grace", "kinds.nightly.lease", "kinds.nightly.queue_cap", "kinds.endless.timeout",
    )} == {
        "limits.max_running": (3, "clawq.toml:2", 2),
        "limits.max_running_per_tenant": (3, "default: max_running", None),
        "limits.retention": ("30d", "default", None),
        "host.max_user_procs": (None, "default: 75% of the account's ceiling", None),
        "resources.browser.limit": (1, "clawq.toml:4", 4),
        "resources.shell.limit": (4, "default", None),
        "env.A": ("b", "clawq.toml:6", 6),
        "bands.bulk.timeout": ("5m", "clawq.toml:8", 8),
        "kinds.nightly.band": ("bulk", "clawq.toml:11", 11),
        "kinds.nightly.timeout": ("5m", "band bulk, clawq.toml:8", 8),
        "kinds.nightly.needs": (["browser", "shell"], "clawq.toml:12", 12),
        "kinds.nightly.env": ({"A": "kind", "B": "band"}, "clawq.toml:13", 13),
        "kinds.nightly.grace": ("0s", "clawq.toml:14", 14),
        "kinds.nightly.lease": ("2m", "default", None),
        "kinds.nightly.queue_cap": (None, "default", None),
        "kinds.endless.timeout": ("none", "clawq.toml:16", 16),
    }  # fmt: skip


def test_without_its_file_a_value_is_the_last_good_forms() -> None:
    found = explained(TEXT, lines=False)
    assert found["limits.max_running"][1:] == (3, "the last good form", None)
    assert found["limits.max_held"][1:] == (50, "default", None)
    assert found["resources.browser.limit"][1:] == (1, "the last good form", None)
    assert found["kinds.nightly.timeout"][1:] == ("5m", "band bulk, the last good form", None)


def test_what_is_explained_is_what_the_settings_say() -> None:
    from clawq.settings import Settings

    body = check(TEXT).body
    assert body is not None
    found, settings = explained(TEXT), Settings(body)
    for name in settings.kind_names:
        kind = settings.kind(name)
        for key in in_order(Kind):
            value = found[f"kinds.{name}.{key}"].value
            stored = (
                getattr(kind, key, None)
                if hasattr(kind, key)
                else plain(Kind, key, {f"{key}_ms": getattr(kind, f"{key}_ms")})
            )
            assert (value or None) == (stored or None), key


@pytest.mark.parametrize(
    "value", [3, 'a "b" \\ \n\x1b \U0001f600', ["a", "b"], [], {}, {"A": "b", "c d": "e"}]
)
def test_values_are_shown_as_toml(value: object) -> None:
    import tomllib

    text = toml(value)
    assert tomllib.loads(f"k = {text}") == {"k": value}
    assert text.isprintable()


def test_each_kind_of_table_has_its_model() -> None:
    assert {name: tables_of(info) for name, info in ClawqToml.model_fields.items() if tables_of(info)} == {
        "resources": Resource,
        "budgets": Budget,
        "bands": Band,
        "tenants": Tenant,
        "kinds": Kind,
        "schedules": Schedule,
    }


def test_what_the_documentation_shows_can_be_put_below_the_template() -> None:
    for page in ("README.md", "docs/quickstart.md"):
        for block in re.findall(r"^```toml\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.DOTALL | re.M):
            if "mcp_servers" not in block:
                assert check(f"{template()}\n{block}").problems == (), block
