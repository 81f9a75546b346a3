"""Enqueue inside a caller's own trace: a publish span for what is new, and no more than a look where there is none."""

import json
import subprocess
import sys
from types import FrameType

import sentry_sdk

from supervisor import DB, insert
from tests.support.ingest import Ingest
from tests.support.pollers import claimed, pollers
from tests.support.rows import Rows
from tests.support.supervised import ROOT, environment


def test_each_enqueue_of_a_traced_caller_is_a_publish_span_with_the_ids_that_it_answered(
    database: str, ingest: Ingest
) -> None:
    command = [sys.executable, "-m", "tests.support.traced_caller", database, ingest.dsn]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(database), capture_output=True, text=True, timeout=30, check=True
    )
    outside, one, deduped, many, later = json.loads(done.stdout)
    assert outside
    assert deduped == many[-1] == 0
    [sent] = ingest.transactions()
    assert {span["op"] for span in sent["spans"]} == {"queue.publish"}
    assert {span["parent_span_id"] for span in sent["spans"]} == {sent["contexts"]["trace"]["span_id"]}
    told = [{key: span["data"].get(f"messaging.{key}") for key in KEYS} for span in sent["spans"]]
    assert told == [
        dict(zip(KEYS, values, strict=True))
        for values in (
            ("desk", str(one), None, len('{"é":1}'.encode())),
            ("many", None, 2, len('{"n":1}{"n":22}')),  # one statement is one span for each queue
            ("few", str(many[1]), None, 2),
            ("later", str(later), None, len('{"number":4}')),
        )
    ]


KEYS = ("destination.name", "message.id", "batch.message_count", "message.body.size")


class Calls:
    """The functions of sentry_sdk and of traces that are called meanwhile, by name."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __enter__(self) -> list[str]:
        sys.setprofile(self._note)
        return self.seen

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and (
            f"{sentry_sdk.__name__}/" in frame.f_code.co_filename or "traces" in frame.f_code.co_filename
        ):
            self.seen.append(frame.f_code.co_name)


def test_a_job_that_is_not_traced_calls_nothing_of_sentrys(database: str, rows: Rows) -> None:
    with pollers(database) as make:
        poller = make()
        claim = claimed(poller, rows.insert("desk", "Ok"))
        with Calls() as seen:
            result, _ = poller.run(claim)
            poller.finalize(claim, result)
    assert seen == []


def test_an_enqueue_outside_of_a_trace_only_asks_for_the_span(database: str) -> None:
    db = DB(database)
    insert(db, "desk", "Ok")  # opens the pool
    with Calls() as seen:
        insert(db, "desk", "Ok")
    db.close()
    assert seen.count("get_current_span") <= 2  # the public one, and the SDK's own
    assert not {"start_child", "start_span", "set_data", "capture_event"} & set(seen)
