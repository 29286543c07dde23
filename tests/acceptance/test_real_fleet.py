"""A fleet as agents make one: a parent that puts work in by every door, waits, and uses what came back."""

from __future__ import annotations

import sys

import pytest

from clawq.paths import Home
from tests.fleet import ROOT, Fleet

pytest.importorskip("mcp_types", reason="the extra clawq[mcp] is not installed, or older than mcp 2")

CHILD = """
import json, os
slot = os.environ["SLOT"]
os.mkdir(slot)                       # fails where another one is at work
number = json.load(open(os.environ["CLAWQ_PAYLOAD_FILE"]))
json.dump({"square": number * number}, open(os.environ["CLAWQ_RESULT_FILE"], "w"))
os.rmdir(slot)
"""
PARENT = f"""
import json, os, subprocess, sys
sys.path.insert(0, {str(ROOT)!r})
import clawq
from tests.acceptance.test_mcp import talk

CLAWQ = [sys.executable, "-m", "clawq"]
ENV = os.environ | {{"PYTHONPATH": {str(ROOT)!r}}}
ids = [
    int(subprocess.check_output([*CLAWQ, "enqueue", "square", "--payload", number, "--print-id"], env=ENV))
    for number in "123"
]
ids.append(clawq.enqueue("square", payload=4).job_id)
told = {{}}

async def ask(ask):
    failed, receipt = await ask("enqueue", kind="square", payload=5)
    assert not failed, receipt
    ids.append(receipt["job_id"])
    failed, waited = await ask("wait")
    assert (failed, waited["timed_out"]) == (False, False), waited
    told["mcp"] = {{each["job_id"]: each["result"]["square"] for each in waited["outcomes"]}}

talk(ask)
listed = json.loads(subprocess.check_output([*CLAWQ, "wait", "--json"], env=ENV))
told["cli"] = {{each["job_id"]: each["result"]["square"] for each in listed}}
told["python"] = {{each.job_id: each.result["square"] for each in clawq.wait()}}
assert told["mcp"] == told["cli"] == told["python"], told
total = sum(told["python"][each] for each in ids)
json.dump({{"children": ids, "sum": total}}, open(os.environ["CLAWQ_RESULT_FILE"], "w"))
"""


def test_a_parent_and_its_children_by_every_door_on_one_slot_each(home: Home) -> None:
    fleet = Fleet(home)
    for name, text in (("child", CHILD), ("parent", PARENT)):
        (fleet.scratch / f"{name}.py").write_text(text)
    fleet.configure(
        f"""
        [limits]
        max_running = 1
        max_running_per_tenant = 1
        max_running_per_workflow = 1
        [resources.browser]
        limit = 1
        [kinds.fleet]
        command = ["{sys.executable}", "{fleet.scratch}/parent.py"]
        needs = ["browser"]
        max_attempts = 1
        [kinds.square]
        command = ["{sys.executable}", "{fleet.scratch}/child.py"]
        needs = ["browser"]
        max_attempts = 1
        mcp = true
        env = {{ SLOT = "{fleet.scratch}/slot" }}
        """
    )
    parent = fleet.enqueue("fleet")
    fleet.run_until_idle()
    document = fleet.json("show", parent)
    assert document["job"]["state"] == "succeeded", fleet.clawq("logs", parent).stdout
    children = {child["id"]: child for child in document["children"]}
    assert document["result"] == {"children": list(children), "sum": 1 + 4 + 9 + 16 + 25}
    assert {child["state"] for child in children.values()} == {"succeeded"}
    assert {child["attempts"] for child in children.values()} == {1}
    assert "waiting" in {event["to"] for event in document["events"]}
