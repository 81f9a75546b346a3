"""The clock as real parents run it, by a server's clock that the test sets: hours pass in seconds."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP

import pytest

from supervisor.migrate import migrate
from tests.process.test_clock import NAMES, span
from tests.support.fast_clock import FastClock
from tests.support.rows import Rows
from tests.support.run_limited import program
from tests.support.supervised import RunSupervisor, Supervised
from tests.support.wait import eventually

REGISTRY = "tests.support.queues_clock"
NOON = datetime(2026, 10, 21, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

# The clock's jobs are over as they are enqueued: no dedupe key stands in a minute's way.
END_AT_ONCE = """
CREATE FUNCTION end_at_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.status := 'ok'; NEW.started_at := now(); NEW.finished_at := now();
  RETURN NEW;
END $$;
CREATE TRIGGER end_at_once BEFORE INSERT ON jobs FOR EACH ROW WHEN (NEW.callsite LIKE 'clock %')
EXECUTE FUNCTION end_at_once();
"""

# Holds the clock's insertions, and nothing else, until the table is empty.
HOLD_TICKS = """
CREATE TABLE hold AS SELECT 1;
CREATE FUNCTION hold_tick() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  WHILE EXISTS (SELECT FROM hold) LOOP PERFORM pg_sleep(0.01); END LOOP;
  RETURN NEW;
END $$;
CREATE TRIGGER hold_tick BEFORE INSERT ON jobs FOR EACH ROW WHEN (NEW.callsite LIKE 'clock %')
EXECUTE FUNCTION hold_tick();
"""


def ticked(rows: Rows) -> Counter[str]:
    """How many rows each minute has, `12:30`."""
    return Counter(
        callsite[-6:-1] for (callsite,) in rows.execute("SELECT callsite FROM jobs WHERE callsite LIKE 'clock %'")
    )


@pytest.mark.slow
def test_two_parents_over_an_hour_make_sixty_rows_though_one_is_killed_and_started_again_all_the_time(
    database: str, rows: Rows, run_supervisor: RunSupervisor
) -> None:
    """FAULTS 29: each waits for the next minute in its own loop, and looks at the same server's clock."""
    migrate(database, dedupe=NAMES)
    rows.execute(END_AT_ONCE)
    clock = FastClock(rows)
    clock.stand_in(NOON - MINUTE)
    first = run_supervisor(registry=REGISTRY, host="host-a")
    eventually(lambda: ticked(rows)["11:59"])
    restarted: list[Supervised] = []
    for number, minute in enumerate(span("12:00", "12:59")):
        if restarted and number % 10 == 0:
            restarted[-1].wait_ready()  # or on a busy machine the hour is over first
        if not restarted or "paceline: ready" in restarted[-1].log():
            if restarted:
                restarted[-1].signal(SIGKILL)
                restarted[-1].wait()
            restarted.append(run_supervisor(registry=REGISTRY, host="host-b", ready=False))
        alone = number == 40  # else it might be the first in each minute
        if alone:
            restarted[-1].wait_ready()
            first.signal(SIGSTOP)
        clock.stand_in(NOON + number * MINUTE)
        eventually(lambda minute=minute: ticked(rows)[minute])
        if alone:
            first.signal(SIGCONT)
    # By the first boot's catching up there are ten more, of before noon.
    assert ticked(rows) == dict.fromkeys(span("11:50", "12:59"), 1)
    assert len(restarted) > 5
    assert any("INFO clock 2026-10-21T12:40Z" in sup.log() for sup in restarted)


@pytest.mark.slow
def test_with_the_clocks_call_held_up_jobs_children_the_sweep_and_a_drain_go_on_and_the_ticks_are_caught_up(
    database: str, rows: Rows, run_supervisor: RunSupervisor, tmp_path: Path
) -> None:
    """FAULTS 30: the server holds the insertion, so that nothing but the clock has to wait."""
    migrate(database, dedupe=NAMES)
    rows.execute(END_AT_ONCE + HOLD_TICKS)
    clock = FastClock(rows)
    clock.stand_in(NOON)
    limited = program(tmp_path, call=0.5, sweep=0.2)
    sup = run_supervisor(registry=REGISTRY, python=limited)
    eventually(lambda: "ERROR clock: no answer from the database within 0.5 s" in sup.log())
    child = sup.child("ticks")
    child.signal(SIGKILL)
    eventually(lambda: sup.children().get("ticks", child) != child)
    job = rows.insert("ticks", "ticks.Ok")
    orphan = rows.insert("ticks", "ticks.Never", status="started", age=3_600)
    eventually(lambda: rows.status(job) == "ok" and rows.status(orphan) == "err: interrupted")
    assert ticked(rows) == {}
    rows.execute("DELETE FROM hold")
    eventually(lambda: ticked(rows) == dict.fromkeys(span("11:51", "12:00"), 1))
    eventually(lambda: "clock: over after" in sup.log())
    rows.execute("INSERT INTO hold VALUES (1)")
    clock.stand_in(NOON + MINUTE)
    eventually(
        lambda: rows.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
        )
    )
    sup.terminate()
    assert sup.wait(5) == 0
    assert len([line for line in sup.log().splitlines() if "ERROR clock:" in line]) <= 2  # one for each hold
