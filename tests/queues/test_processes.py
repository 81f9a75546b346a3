"""The vendors' queues as processes: a refused token pauses each, with one event, until a restart; no secret is told."""

import importlib
import json
import re
from pathlib import Path

import pytest

from deploy.sandbox.server import Reply, Sandbox
from supervisor import outcome
from tests.queues.harness import SECRET, Contract
from tests.support.ingest import Ingest
from tests.support.rows import Rows
from tests.support.supervised import RunSupervisor, Supervised
from tests.support.wait import eventually

for file in Path(__file__).parent.glob("test_*.py"):  # they declare the cases
    importlib.import_module(f"tests.queues.{file.stem}")
CASES = {case.vendor_name: case for case in Contract.__subclasses__()}  # a job for each vendor


def told(sup: Supervised, ingest: Ingest, rows: Rows) -> str:
    """All that a person can read of it: log, events, statuses."""
    statuses = rows.execute("SELECT status, callsite FROM jobs")
    return sup.log() + sup.output() + json.dumps([item.payload for item in ingest.items()]) + repr(statuses)


@pytest.mark.slow
def test_a_refused_token_pauses_each_queue_with_one_event_until_the_service_is_restarted(
    run_supervisor: RunSupervisor, rows: Rows, sandbox: Sandbox, ingest: Ingest
) -> None:
    """The token is planted, and so in the answers that repeat it; something else in the URL."""
    env = sandbox.environment()
    planted = {
        key: SECRET if key.endswith("_TOKEN") else value.replace("//", f"//user:{SECRET}@")
        for key, value in env.items()
    }
    sup = run_supervisor(*CASES, registry="queues", env=planted | {"SENTRY_DSN": ingest.dsn})
    for case in CASES.values():
        case().prepare(rows)
    refused = {vendor: rows.insert(vendor, case.name, case.args) for vendor, case in CASES.items()}
    for vendor, case in CASES.items():
        title = re.compile(rf"paused until \d\d:\d\d \({re.escape(case.refused.removeprefix('err: '))}\)$")
        eventually(lambda vendor=vendor, title=title: title.search(sup.child(vendor).title))
        assert rows.status(refused[vendor]) == case.refused
    waiting = {vendor: rows.insert(vendor, case.name, case.args) for vendor, case in CASES.items()}
    sup.terminate()
    assert sup.wait() == 0
    assert sorted(event["tags"]["queue"] for event in ingest.events()) == sorted(CASES)
    assert SECRET not in told(sup, ingest, rows)
    assert SECRET in repr([vendor.requests for vendor in sandbox.vendors.values()])
    assert {rows.status(id) for id in waiting.values()} == {"pending"}

    run_supervisor(*CASES, registry="queues", env=env)
    for vendor, case in CASES.items():
        eventually(lambda vendor=vendor, case=case: rows.status(waiting[vendor]) == case.ok)


@pytest.mark.slow
def test_no_answer_and_no_query_gets_into_log_status_or_event(
    run_supervisor: RunSupervisor, rows: Rows, sandbox: Sandbox, ingest: Ingest
) -> None:
    """Of three faults: an answer of another shape, a cut one, and a refusal that repeats the question."""
    apollo = sandbox.vendors["apollo"]
    apollo.tell(Reply(200, {"organization": {"id": [SECRET]}}))
    apollo.tell("cut")
    apollo.tell(Reply(422, {"error": SECRET}))
    sup = run_supervisor("apollo", registry="queues", env=sandbox.environment() | {"SENTRY_DSN": ingest.dsn})
    jobs = [rows.insert("apollo", "apollo.IngestCompany", {"domain": f"{SECRET}-{n}.example"}) for n in range(3)]
    eventually(lambda: [outcome(rows.status(job)) for job in jobs] == ["err"] * 3)
    sup.terminate()
    assert sup.wait() == 0
    assert len(ingest.events()) == 3
    assert SECRET not in told(sup, ingest, rows)
