"""`clawq mcp`, asked by the SDK's own client: the real server process, on its stdin and stdout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TextIO

import pytest

from clawq import desk
from clawq.mcp import schema
from clawq.mcp.tools import Session
from clawq.paths import Home
from tests.fleet import ROOT, Fleet
from tests.producers import rows

anyio = pytest.importorskip("anyio", reason="the extra clawq[mcp] is not installed")
pytest.importorskip("mcp_types", reason="the extra clawq[mcp] is not installed, or older than mcp 2")

from mcp.client import Client  # noqa: E402
from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: E402
from mcp.shared.exceptions import MCPError  # noqa: E402

TOOLS = {
    *("enqueue", "job_status", "wait", "why", "cancel", "beat"),
    *("effect_begin", "effect_done", "effect_fail"),
}
CONFIG = """
[kinds."site.qa"]
command = ["sh", "-c", "printf '{\\"seen\\": 7}' > $CLAWQ_RESULT_FILE", "qa", "--", "{field:url}"]
mcp = true
queue_cap = 2
[kinds.slow]
command = ["sleep", "60"]
mcp = true
[kinds.secret]
command = ["true"]
[kinds.bare]
mcp = true
"""


class Asked:
    """One client of one server: ``ask("enqueue", kind="site.qa")`` gives (failed, document)."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def __call__(self, name: str, **given: Any) -> tuple[bool, dict[str, Any]]:
        told = await self.client.call_tool(name, given)
        assert json.loads(told.content[0].text) == told.structured_content
        return told.is_error, told.structured_content


def talk(script: Callable[[Asked], Awaitable[None]], mode: str = "auto", errors: TextIO = sys.stderr) -> None:
    """Run `script` beside a server of its own, whose stderr is `errors`."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "clawq", "mcp"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )

    async def run() -> None:
        with anyio.fail_after(60):
            async with Client(stdio_client(server, errors), mode=mode) as client:
                await script(Asked(client))

    anyio.run(run)


@pytest.fixture
def fleet(home: Home) -> Fleet:
    fleet = Fleet(home)
    fleet.configure(CONFIG)
    return fleet


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_tools_and_what_an_agent_reads_of_them(fleet: Fleet, mode: str) -> None:
    async def script(ask: Asked) -> None:
        told = (await ask.client.list_tools()).tools
        assert {tool.name for tool in told} == TOOLS
        enqueue = next(tool for tool in told if tool.name == "enqueue")
        properties = enqueue.input_schema["properties"]
        assert properties["kind"]["enum"] == ["site.qa", "slow"]
        assert "site.qa: payload is an object with url" in properties["kind"]["description"]
        assert not {"command", "env", "cwd", "tenant", "band", "needs", "parent"} & set(properties)
        assert enqueue.input_schema["required"] == ["kind"]
        assert {tool.name for tool in told if tool.annotations.read_only_hint} == {
            "job_status",
            "wait",
            "why",
        }
        assert all(tool.description for tool in told)
        # What clawq.toml says is read at each listing.
        fleet.configure(CONFIG.replace('["true"]', '["true"]\nmcp = true'))
        told = (await ask.client.list_tools()).tools
        assert told[0].input_schema["properties"]["kind"]["enum"] == ["secret", "site.qa", "slow"]

    talk(script, mode)


def test_tools_that_cannot_be_listed_are_told_to_the_client_alone(fleet: Fleet) -> None:
    async def script(ask: Asked) -> None:
        Path(fleet.home.db).write_text("no database " * 99)
        with pytest.raises(MCPError, match=r"cannot be read .*: restore a backup"):
            await ask.client.list_tools()

    with open(fleet.scratch / "said", "w+") as said:
        talk(script, errors=said)
        said.seek(0)
        assert said.read() == ""


def test_a_configuration_that_was_never_valid_is_the_answer_and_no_kinds_fault(fleet: Fleet) -> None:
    fleet.configure("x = [")
    answer = Session().call("enqueue", {"kind": "slow"}, bool)
    assert (answer.failed, answer.document["reason"]) == (True, "config")
    assert "clawq.toml" in answer.document["message"]


def test_from_enqueue_to_its_result(fleet: Fleet) -> None:
    async def script(ask: Asked) -> None:
        failed, told = await ask("enqueue", kind="site.qa", payload={"url": "x"}, dedupe_key="k", delay="1s")
        assert (failed, told["outcome"], told["job_id"]) == (False, "scheduled", 1)
        assert (await ask("enqueue", kind="site.qa", payload={"url": "x"}, dedupe_key="k"))[1]["outcome"] == (
            "duplicate"
        )
        assert (await ask("why", job_id=1))[1]["blocked_by"][0]["reason"] == "no_supervisor"
        failed, told = await ask("wait", timeout_s=0.01)
        assert (failed, told["timed_out"], told["outcomes"][0]["state"]) == (False, True, "scheduled")
        with fleet.supervised():
            failed, told = await ask("wait", job_ids=[1])
        assert (failed, told["timed_out"]) == (False, False)
        assert told["outcomes"] == [
            {
                "job_id": 1,
                "state": "succeeded",
                "succeeded": True,
                "exit_code": 0,
                "error": None,
                "error_class": None,
                "result": {"seen": 7},
            }
        ]
        failed, told = await ask("job_status", job_id=1)
        assert told == fleet.json("show", 1)
        assert told["result"] == {"seen": 7}
        # Half a character, which JSON can write and UTF-8 cannot.
        rows(fleet.home, "UPDATE jobs SET result = '[\"\\ud800\"]' WHERE id = 1")
        assert (await ask("job_status", job_id=1))[1]["result"] == ["?"]

    talk(script)


def test_refusals_are_answers_with_what_a_program_needs(fleet: Fleet) -> None:
    async def script(ask: Asked) -> None:
        for _ in range(2):
            assert (await ask("enqueue", kind="site.qa", payload={"url": "x"}))[1]["outcome"] == "queued"
        failed, told = await ask("enqueue", kind="site.qa", payload={"url": "x"})
        assert not failed
        assert (told["outcome"], told["reason"], told["safe_to_retry"]) == (
            "rejected",
            "kind_queue_full",
            True,
        )
        assert told["retry_after_s"] >= 1
        assert "2 of at most 2 jobs wait" in told["message"]

        failed, told = await ask("enqueue", kind="secret")
        assert (failed, told["outcome"], told["reason"], told["retry_after_s"]) == (
            *(False, "rejected", "not_allowed"),
            None,
        )
        assert (await ask("enqueue", kind="bare"))[1]["reason"] == "not_allowed"
        for given, said in [
            ({"kind": "site.qu"}, "did you mean site.qa"),
            ({"kind": ["site.qa"]}, "a text is needed"),
            ({"kind": "slow", "command": ["rm"]}, "enqueue takes no 'command'"),
            ({"kind": "slow", "tenant": "acme"}, "enqueue takes no 'tenant'"),
            ({"kind": "slow", "priority": "high"}, "a whole number"),
            ({"kind": "slow", "dry_run": "yes"}, "true or false"),
            ({}, "kind is missing"),
        ]:
            failed, told = await ask("enqueue", **given)
            assert (failed, told["reason"]) == (True, "usage"), given
            assert said in told["message"]
        for name, given, reason in [
            ("job_status", {"job_id": 99}, "no_such_job"),
            ("job_status", {"job_id": 2**70}, "no_such_job"),
            ("why", {"job_id": "1"}, "usage"),
            ("wait", {"job_ids": [1, True]}, "usage"),
            ("wait", {"job_ids": [1], "timeout_s": 9e9}, "usage"),
            ("beat", {}, "usage"),
            ("effect_begin", {"key": "k"}, "usage"),
            ("effect_begin", {"key": 7}, "usage"),
            ("launch", {}, "usage"),
        ]:
            failed, told = await ask(name, **given)
            assert (failed, told["reason"]) == (True, reason), (name, told)
        assert (await ask("enqueue", kind="slow", dry_run=True))[1]["job_id"] is None

    talk(script)
    assert rows(fleet.home, "SELECT count(*) FROM jobs") == [(2,)]


def test_only_what_was_enqueued_here_can_be_cancelled(fleet: Fleet) -> None:
    other = fleet.enqueue("slow")

    async def script(ask: Asked) -> None:
        _, told = await ask("enqueue", kind="slow", dedupe_key="k")
        assert await ask("cancel", job_id=told["job_id"]) == (
            False,
            {"job_id": told["job_id"], "state": "cancelled"},
        )
        failed, told = await ask("cancel", job_id=told["job_id"])
        assert (failed, told["reason"]) == (True, "wrong_state")
        failed, told = await ask("cancel", job_id=other)
        assert (failed, told["reason"]) == (False, "not_allowed")
        assert "clawq cancel 1" in told["message"]

    talk(script)
    assert fleet.state(other) == "queued"


def test_a_long_wait_blocks_nobody_and_can_be_given_up(fleet: Fleet) -> None:
    async def script(ask: Asked) -> None:
        await ask("enqueue", kind="slow")
        waited = []

        async def wait() -> None:
            waited.append(await ask("wait", timeout_s=30))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):  # more than are served at once: what is given up makes room
                tasks.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert waited == []
        assert (await ask("why", job_id=1))[1]["state"] == "queued"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            assert (await ask("cancel", job_id=1))[1]["state"] == "cancelled"
        assert waited[0][1]["outcomes"][0]["state"] == "cancelled"

    talk(script)


AGENT = f"""
import json, os, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.acceptance.test_mcp import Asked, talk

async def script(ask):
    told = {{}}
    told["beat"] = await ask("beat")
    told["begin"] = await ask("effect_begin", key="mail:7")
    told["done"] = await ask("effect_done", key="mail:7")
    told["again"] = await ask("effect_begin", key="mail:7")
    told["fail"] = await ask("effect_fail", key="never")
    told["child"] = await ask("enqueue", kind="site.qa", payload={{"url": "x"}})
    json.dump(told, open(os.environ["CLAWQ_RESULT_FILE"], "w"))

talk(script)
"""


def test_an_agent_whose_job_is_another_attempts_is_told_to_stop(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.enqueue("slow")
    rows(fleet.home, "UPDATE jobs SET state = 'starting', token = 7 WHERE id = 1")
    monkeypatch.setenv("CLAWQ_JOB_ID", "1")
    monkeypatch.setenv("CLAWQ_TOKEN", "6")
    for name, given in [("enqueue", {"kind": "slow"}), ("effect_begin", {"key": "k"})]:
        answer = Session().call(name, given, bool)
        assert answer.failed
        assert (answer.document["reason"], answer.document["stop"]) == ("lease_lost", True)


def test_inside_a_job_it_speaks_for_that_job(fleet: Fleet) -> None:
    (fleet.scratch / "agent.py").write_text(AGENT)
    parent = fleet.enqueue("--max-attempts", 1, "--", sys.executable, fleet.scratch / "agent.py")
    fleet.run_until_idle()
    document = fleet.json("show", parent)
    assert document["job"]["state"] == "succeeded", fleet.clawq("logs", parent).stdout
    told = {name: answer for name, (failed, answer) in document["result"].items() if not failed}
    assert set(told) == set(document["result"])
    assert told["beat"] == {"job_id": parent}
    assert (told["begin"]["outcome"], told["begin"]["do_it"]) == ("begun", True)
    assert told["done"]["outcome"] == "done"
    assert (told["again"]["outcome"], told["again"]["do_it"]) == ("done", False)
    assert told["fail"]["outcome"] == "never_begun"
    assert [child["id"] for child in document["children"]] == [told["child"]["job_id"]]
    assert document["children"][0]["state"] == "succeeded"
    assert [each["state"] for each in document["effects"]] == ["done"]


def test_nothing_but_the_protocol_is_on_stdout_and_a_closed_stdin_ends_it(fleet: Fleet) -> None:
    fleet.script("true")
    lines = [
        {
            "method": "initialize",
            "id": 1,
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "t", "version": "1"},
            },
        },
        {"method": "notifications/initialized"},
        {"method": "tools/list", "id": 2},
        {"method": "tools/call", "id": 3, "params": {"name": "wait", "arguments": {"job_ids": [1]}}},
        {"method": "tools/call", "id": 4, "params": {"name": "why", "arguments": {"job_id": 1}}},
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "clawq", "mcp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert process.stdin
    assert process.stdout
    for line in lines:
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **line}) + "\n")
    process.stdin.flush()
    answers: dict[int, Any] = {}
    while not {1, 2, 4} <= set(answers):  # in any order
        answer = json.loads(process.stdout.readline())
        answers[answer["id"]] = answer["result"]
    assert answers[1]["serverInfo"]["name"] == "clawq"
    assert "retry_after_s" in answers[1]["instructions"]
    assert {tool["name"] for tool in answers[2]["tools"]} == TOOLS
    assert 3 not in answers  # it still waits, for nobody soon
    process.stdin.close()
    assert process.wait(20) == 0
    with process.stdout:
        assert {json.loads(line)["jsonrpc"] for line in process.stdout} <= {"2.0"}


def test_without_the_extra_it_says_what_to_install(home: Home) -> None:
    for missing in ("mcp", "mcp_types"):
        code = (
            f"import sys; sys.modules[{missing!r}] = None;"
            "from clawq.__main__ import main; sys.exit(main(['mcp']))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            f"clawq: clawq mcp needs the MCP SDK, version 2 or newer ({missing} is missing): pip install "
            "'clawq[mcp]' where clawq is installed (pipx: pipx inject clawq 'mcp>=2')\n"
        )


def test_a_person_who_starts_it_is_told_what_it_is(fleet: Fleet) -> None:
    import pty

    lead, follow = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "clawq", "mcp"],
        stdin=follow,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    os.close(follow)
    try:
        assert process.stderr
        assert b"docs/mcp.md shows" in process.stderr.readline()
    finally:
        os.close(lead)
        process.kill()
        process.communicate(timeout=20)


# ---------------------------------------------------------------- docs/mcp.md and the README

DOC = (ROOT / "docs" / "mcp.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_page_names_every_tool_and_its_arguments(fleet: Fleet) -> None:
    table = {
        name: set(re.findall(r"`(\w+)`", arguments))
        for name, arguments in re.findall(r"^\| `(\w+)` \|([^|]*)\|", DOC, re.MULTILINE)
    }

    with desk.reading() as here:
        declared = schema.tools(here.settings()[0])
    assert {tool.name: set(tool.arguments) for tool in declared} == table


@pytest.mark.parametrize("page", [DOC, README], ids=["docs/mcp.md", "README.md"])
def test_the_configurations_shown_can_be_read_and_start_it(page: str) -> None:
    blocks = re.findall(r"^```(json|toml)\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    seen = []
    for language, text in blocks:
        read = json.loads(text) if language == "json" else tomllib.loads(text)
        for path in (("mcpServers",), ("mcp_servers",), ("mcp", "servers")):
            inner: Any = read
            for key in path:
                inner = inner.get(key, {}) if isinstance(inner, dict) else {}
            if "clawq" in inner:
                assert (inner["clawq"]["command"], inner["clawq"]["args"]) == ("clawq", ["mcp"])
                seen.append(path[0])
    assert seen == ["mcpServers", "mcp_servers", "mcp"]


def test_agents_inside_a_job_are_told_which_variables_to_pass_on() -> None:
    """Codex passes on only what it is told to."""
    blocks = re.findall(r"^```toml\n(.*?)^```", DOC, re.DOTALL | re.MULTILINE)
    (text,) = [block for block in blocks if "env_vars" in block]
    names = set(tomllib.loads(text)["mcp_servers"]["clawq"]["env_vars"])
    assert {"CLAWQ_HOME", "CLAWQ_JOB_ID", "CLAWQ_TOKEN", "CLAWQ_HEARTBEAT_FILE"} <= names
