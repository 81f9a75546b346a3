"""Traces: what Sentry's Queues page gets of jobs, where tracing is on; nothing where it is off.

A real sentry-sdk sends them, to an ingest on loopback.
"""

import json
import re
from datetime import datetime
from typing import Any

import pytest

from tests.process.test_events import all_final, drain
from tests.support.ingest import Ingest
from tests.support.queues_events import SECRET, VENDOR
from tests.support.rows import Rows
from tests.support.supervised import RunSupervisor, Supervised
from tests.support.wait import eventually


@pytest.fixture
def traced(run_supervisor: RunSupervisor, ingest: Ingest) -> Supervised:
    """The queue at work, every job traced."""
    env = {"SENTRY_DSN": ingest.dsn, "SENTRY_TRACES_SAMPLE_RATE": "1"}
    return run_supervisor("traced", registry="tests.support.queues_traces", env=env)


def transaction(ingest: Ingest, job: int) -> dict[str, Any]:
    """That of a job, once it has come; the SDK sends them in order."""
    [found] = [sent for sent in ingest.transactions() if process_span(sent)["data"]["messaging.message.id"] == str(job)]
    return found


def process_span(sent: dict[str, Any]) -> dict[str, Any]:
    [found] = [span for span in sent["spans"] if span["op"] == "queue.process"]
    return dict(found)


def status(span: dict[str, Any]) -> str:
    return str(span.get("status") or span["tags"]["status"])  # older SDKs know the latter only


def seconds(part: dict[str, Any]) -> float:
    begin, end = (datetime.fromisoformat(part[key]) for key in ("start_timestamp", "timestamp"))
    return (end - begin).total_seconds()


@pytest.mark.slow
def test_a_job_is_a_process_span_with_what_the_queues_page_reads_and_what_it_enqueues_a_publish_span(
    traced: Supervised, rows: Rows, ingest: Ingest
) -> None:
    late = rows.insert("traced", "traced.Sleep", {"seconds": 0.3}, age=60)
    failed = rows.insert("traced", "traced.Fail", {"é": 1})
    first = rows.insert("traced", "traced.Follow")
    eventually(lambda: transaction(ingest, first) and all_final(rows, "traced"))
    following = int(rows.status(first).removeprefix("enqueued "))
    eventually(lambda: transaction(ingest, following))
    sent = transaction(ingest, late)
    assert (sent["transaction"], sent["contexts"]["trace"]["op"]) == ("traced.Sleep", "queue.task")
    assert sent["contexts"]["trace"]["status"] == "ok"
    span = process_span(sent)
    assert span["parent_span_id"] == sent["contexts"]["trace"]["span_id"]
    latency = span["data"].pop("messaging.message.receive.latency")
    assert 60_000 <= latency < 75_000  # milliseconds
    assert (
        span["data"].items()
        >= {
            "messaging.system": "paceline",
            "messaging.destination.name": "traced",
            "messaging.message.id": str(late),
            "messaging.message.body.size": len(b'{"seconds": 0.3}'),
            "messaging.message.retry.count": 0,
        }.items()
    )
    assert 0.3 <= seconds(span) <= seconds(sent) < 3
    answered = process_span(transaction(ingest, failed))
    assert status(answered) == "ok"  # it ran; a fault is an err
    assert answered["data"]["messaging.message.body.size"] == len('{"é": 1}'.encode())
    sent = transaction(ingest, first)
    [span] = [span for span in sent["spans"] if span["op"] == "queue.publish"]
    assert span["parent_span_id"] == process_span(sent)["span_id"]
    assert span["data"]["messaging.message.id"] == str(following)
    # No column can carry the trace: the job's id is what the two ends share.
    assert transaction(ingest, following)["contexts"]["trace"]["trace_id"] != sent["contexts"]["trace"]["trace_id"]


@pytest.mark.slow
def test_a_fault_is_in_its_jobs_trace_and_what_a_handler_sets_is_in_no_other(
    traced: Supervised, rows: Rows, ingest: Ingest
) -> None:
    tagged, raised, other = (rows.insert("traced", f"traced.{name}") for name in ("Tag", "Raise", "Ok"))
    eventually(lambda: transaction(ingest, other))
    [event] = ingest.events()
    sent = transaction(ingest, raised)
    assert event["contexts"]["trace"]["trace_id"] == sent["contexts"]["trace"]["trace_id"]
    assert sent["contexts"]["trace"]["status"] == status(process_span(sent)) == "internal_error"
    assert transaction(ingest, tagged)["tags"]["customer"] == "of this job"
    for text in json.dumps(event), json.dumps(transaction(ingest, other)):
        assert "of this job" not in text
    traces = {sent["contexts"]["trace"]["trace_id"] for sent in ingest.transactions()}
    assert len(traces) == len(ingest.transactions())


@pytest.mark.slow
def test_where_tracing_is_off_nothing_but_faults_is_sent(
    run_supervisor: RunSupervisor, rows: Rows, ingest: Ingest
) -> None:
    sup = run_supervisor("traced", registry="tests.support.queues_traces", env={"SENTRY_DSN": ingest.dsn})
    rows.insert("traced", "traced.Raise")
    eventually(lambda: all_final(rows, "traced"))
    drain(sup)
    assert {item.type for item in ingest.items()} == {"event"}


@pytest.mark.slow
def test_no_trace_holds_what_a_handler_knows(run_supervisor: RunSupervisor, rows: Rows, ingest: Ingest) -> None:
    env = {"SENTRY_DSN": ingest.dsn, SECRET: "planted-secret", VENDOR: ingest.dsn}
    flags = ["--sentry-traces-sample-rate", "1"]
    sup = run_supervisor(registry="tests.support.queues_events", env=env, flags=flags)
    rows.insert("secrets", "secrets.Raise", {"key": "planted-argument"})
    eventually(ingest.transactions)
    drain(sup)
    assert len(ingest.transactions()) == 1
    assert re.findall(r"planted-\w+", json.dumps([item.payload for item in ingest.items()])) == []


@pytest.mark.slow
def test_an_ingest_that_takes_no_traces_holds_up_no_job_and_no_drain(
    traced: Supervised, rows: Rows, ingest: Ingest
) -> None:
    """FAULTS 36. More jobs than the SDK keeps; if each waited for its trace to leave, they would take minutes."""
    ingest.stall()
    rows.insert_many(250, "traced", "traced.Ok")
    eventually(lambda: all_final(rows, "traced"), 30)
    drain(traced, 5)
