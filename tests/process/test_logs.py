"""The log: one line per job, the same keys in the same order, UTC, text or JSON; nothing else on standard error."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.rows import Rows
from tests.support.supervised import RunSupervisor, Supervised
from tests.support.wait import eventually

KEYS = ["queue", "job", "id", "status", "latency", "duration"]
LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (INFO|WARNING|ERROR) (\S.*)")
JOB = re.compile(
    r'queue=(?P<queue>\S+) job=(?P<job>\S+|"(?:[^"\\]|\\.)*") id=(?P<id>\d+) status=(?P<status>"(?:[^"\\]|\\.)*")'
    r" latency=(?P<latency>\d+\.\d\d)s duration=(?P<duration>\d+\.\d\d)s"
)

# What a handler answers, or raises, and the status that is to be logged.
ANSWERS: list[tuple[str, dict[str, Any], str]] = [
    ("quick.Ok", {}, "ok"),
    ("quick.Echo", {"text": 'two\nlines, a "quote", a \\ and a \ttab'}, 'two\nlines, a "quote", a \\ and a \ttab'),
    ("quick.Echo", {"text": "fünf\r\nid=1 status=\x1b[31m"}, "fünf\r\nid=1 status=\x1b[31m"),
    ("quick.Fail", {"text": "no"}, "fail: no"),
    ("quick.Skip", {"text": "nothing"}, "skip: nothing"),
    ("quick.Raise", {"text": "one\ntwo"}, "err: one\ntwo"),
    ("quick.No body", {}, 'err: unknown job "quick.No body" for queue quick'),
]


def work(sup: Supervised, rows: Rows) -> list[int]:
    """Have all ANSWERS given, and drain; the jobs' ids."""
    jobs = [rows.insert("quick", name, args) for name, args, _ in ANSWERS]
    eventually(lambda: rows.status(jobs[-1]).startswith("err: "))
    sup.terminate()
    assert sup.wait() == 0
    return jobs


@pytest.mark.slow
def test_each_job_is_one_line_with_the_same_keys_in_the_same_order(run_supervisor: RunSupervisor, rows: Rows) -> None:
    """Whatever its status holds: a line can be read back, and none can be forged."""
    sup = run_supervisor("quick")
    jobs = work(sup, rows)
    lines = [match for line in sup.log().split("\n") if (match := JOB.search(line))]
    assert [list(line.groupdict()) for line in lines] == [KEYS] * len(jobs)
    assert [int(line["id"]) for line in lines] == jobs
    assert {line["queue"] for line in lines} == {"quick"}
    names = [json.loads(line["job"]) if line["job"].startswith('"') else line["job"] for line in lines]
    assert names == [name for name, _, _ in ANSWERS]
    assert [json.loads(line["status"]) for line in lines] == [status for _, _, status in ANSWERS]
    assert all(float(line["latency"]) < 60 and float(line["duration"]) < 60 for line in lines)


@pytest.mark.slow
def test_standard_error_holds_the_log_alone_and_no_traceback_of_a_handler(
    run_supervisor: RunSupervisor, rows: Rows
) -> None:
    """Every line of it starts with a time and a level. A fault has one line more than its job's, of level ERROR."""
    sup = run_supervisor("quick", "crash")
    rows.insert("crash", "crash.Exit")
    work(sup, rows)
    lines = sup.log().rstrip("\n").split("\n")
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    assert "Traceback" not in sup.log()
    errors = [match[3] for line in lines if (match := LINE.fullmatch(line)) and match[2] == "ERROR"]
    assert sorted(error.partition(" id=")[0] for error in errors) == [
        "queue crash: process ended: exit 3",
        "quick quick.No body",
        "quick quick.Raise",
    ]
    assert sup.output() == ""


@pytest.mark.slow
def test_times_are_in_utc_whatever_the_zone_of_the_host(run_supervisor: RunSupervisor, rows: Rows) -> None:
    began = datetime.now(UTC)
    sup = run_supervisor("quick", env={"TZ": "Asia/Kolkata"})
    job = rows.insert("quick", "quick.Ok")
    eventually(lambda: rows.status(job) == "ok")
    sup.terminate()
    sup.wait()
    times = [datetime.fromisoformat(match[1]) for line in sup.log().splitlines() if (match := LINE.fullmatch(line))]
    assert len(times) == 4  # ready, the job, the signal, the end
    assert all(began - timedelta(seconds=1) < time < datetime.now(UTC) + timedelta(seconds=1) for time in times)


@pytest.mark.slow
@pytest.mark.parametrize("given", ["flag", "environment"])
def test_as_json_each_line_is_an_object_with_the_same_keys_and_a_message(
    given: str, run_supervisor: RunSupervisor, rows: Rows
) -> None:
    if given == "flag":
        sup = run_supervisor("quick", flags=["--log", "json"], env={"PACELINE_LOG": "text"})
    else:
        sup = run_supervisor("quick", env={"PACELINE_LOG": "json"})
    jobs = work(sup, rows)
    objects = [json.loads(line) for line in sup.log().rstrip("\n").split("\n")]
    assert all(list(found)[:3] == ["time", "level", "message"] for found in objects)
    assert objects[0]["message"].startswith("paceline: ready, 1 queue, pid ")
    told = [found for found in objects if "id" in found]
    assert [list(found)[3:] for found in told] == [KEYS] * len(jobs)
    assert [found["id"] for found in told] == jobs
    assert [found["job"] for found in told] == [name for name, _, _ in ANSWERS]
    assert [found["status"] for found in told] == [status for _, _, status in ANSWERS]
    assert all(isinstance(found["latency"], float) and isinstance(found["duration"], float) for found in told)
    assert all(JOB.search(found["message"]) for found in told)
