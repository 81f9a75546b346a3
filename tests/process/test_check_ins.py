"""Check-ins: what Sentry's Crons page gets of the clock's jobs, where tracing is on; nothing where it is off.

A real sentry-sdk sends them, to an ingest on loopback.
"""

from signal import SIGKILL

import pytest

from supervisor.migrate import migrate
from tests.process.test_events import all_final, drain, thread_counts
from tests.support import queues_traces
from tests.support.ingest import Ingest
from tests.support.rows import Rows, Sql
from tests.support.supervised import RunSupervisor, Supervised
from tests.support.wait import eventually


class StartTicked:
    """Starts the queue `ticked`, where the clock enqueues a job at once."""

    def __init__(self, url: str, run_supervisor: RunSupervisor, dsn: str) -> None:
        self._run, self._dsn = run_supervisor, dsn
        migrate(url, dedupe=frozenset(entry.name for entry in queues_traces.schedule))

    def __call__(self, rate: str = "1", *, ready: bool = True) -> Supervised:
        env = {"SENTRY_DSN": self._dsn, "SENTRY_TRACES_SAMPLE_RATE": rate}
        return self._run("ticked", registry="tests.support.queues_traces", env=env, ready=ready)


@pytest.fixture
def start(database: str, run_supervisor: RunSupervisor, ingest: Ingest) -> StartTicked:
    return StartTicked(database, run_supervisor, ingest.dsn)


def told(ingest: Ingest, slug: str) -> list[str]:
    return [sent["status"] for sent in ingest.check_ins() if sent["monitor_slug"] == slug]


@pytest.mark.slow
def test_a_job_of_the_clocks_checks_in_as_it_begins_and_ends_and_makes_its_monitor_and_the_parent_has_one_thread(
    start: StartTicked, rows: Rows, ingest: Ingest
) -> None:
    """FAULTS 9."""
    sup = start(ready=False)
    with thread_counts(sup.parent) as seen:
        eventually(lambda: "ok" in told(ingest, "ticked-minutely"))
        rows.insert("ticked", "ticked.Raise")  # not the clock's
        rows.insert("ticked", "ticked.Die")  # the parent reports it
        eventually(lambda: len(ingest.events()) == 2)
        drain(sup)
    assert seen - {0} == {1}
    [(clocks,)] = rows.execute("SELECT count(*) FROM jobs WHERE callsite LIKE 'clock %' AND status = 'ok'")
    assert {sent["monitor_slug"] for sent in ingest.check_ins()} == {"ticked-minutely"}
    assert told(ingest, "ticked-minutely") == ["in_progress", "ok"] * clocks
    begun, ended = ingest.check_ins()[:2]
    assert ended["check_in_id"] == begun["check_in_id"]
    assert 0 <= ended["duration"] < 5
    for check_in in begun, ended:
        assert check_in["monitor_config"] == {
            "schedule": {"type": "crontab", "value": "* * * * *"},
            "timezone": "UTC",
            "checkin_margin": 16,  # minutes: the clock's ten, and a job before it of 310 s
            "max_runtime": 6,
        }


def as_clock(sql: Sql, name: str, args: str = "{}") -> None:
    """Enqueue as the clock does."""
    statement = "INSERT INTO jobs (queue, name, args, callsite) VALUES ('ticked', %s, %s, 'clock 2026-10-21T03:10Z')"
    sql(f"{statement} RETURNING id", name, args)


@pytest.mark.slow
def test_an_err_checks_in_as_one_and_a_death_never_ends_what_it_began(
    start: StartTicked, rows: Rows, sql: Sql, ingest: Ingest
) -> None:
    """The monitor times out by itself. No crontab says when these two are due, so a person makes their monitors."""
    sup = start()
    as_clock(sql, "ticked.Raise")
    as_clock(sql, "ticked.Sleep", '{"seconds": 60}')
    eventually(lambda: told(ingest, "ticked-sleep"))
    sup.child("ticked").signal(SIGKILL)
    eventually(lambda: all_final(rows, "ticked"))
    drain(sup)
    assert told(ingest, "ticked-raise") == ["in_progress", "error"]
    assert told(ingest, "ticked-sleep") == ["in_progress"]
    unknown = [sent for sent in ingest.check_ins() if sent["monitor_slug"] != "ticked-minutely"]
    assert not any("monitor_config" in sent for sent in unknown)


@pytest.mark.slow
@pytest.mark.parametrize("rate", ["0", "1e-9"])
def test_a_share_of_traces_has_all_check_ins_and_none_has_none(
    rate: str, start: StartTicked, rows: Rows, ingest: Ingest
) -> None:
    sup = start(rate)
    eventually(lambda: rows.statuses("ticked") and all_final(rows, "ticked"))
    if rate != "0":
        eventually(ingest.check_ins)
    drain(sup)
    assert ingest.transactions() == []
    assert bool(ingest.check_ins()) == (rate != "0")
