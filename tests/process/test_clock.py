"""The clock: one row per entry and minute in the whole database, whoever ticks, how often, and what fails."""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from signal import SIGKILL
from typing import TypeVar

import psycopg
import pytest

from supervisor import Scheduled
from supervisor.migrate import migrate
from supervisor.parent.clock import Clock
from supervisor.parent.forking import Forker
from supervisor.parent.helper import Helpers
from supervisor.parent.session import Session
from tests.support import queues_clock
from tests.support.queues_clock import every_minute
from tests.support.relay import Relay
from tests.support.rows import Rows
from tests.support.supervised import RunSupervisor
from tests.support.wait import eventually

T = TypeVar("T")
REGISTRY = "tests.support.queues_clock"
NAMES = frozenset(entry.name for entry in queues_clock.schedule)
NOON = datetime(2026, 10, 21, 12, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
EACH_MINUTE = [Scheduled("ticks", "ticks.Ok", every_minute)]


class Clocks:
    """Makes clocks, each with a session of its own, inside one event loop."""

    def __init__(self, url: str, limit: float = 5.0) -> None:
        self._url, self._limit = url, limit
        self._helpers = Helpers(Forker())
        self._sessions: list[Session] = []

    def new(self, schedule: Sequence[Scheduled] = EACH_MINUTE) -> Clock:
        session = Session(self._url, f"paceline:parent/{len(self._sessions)}@test", self._helpers, self._limit)
        self._sessions.append(session)
        return Clock(session, schedule, self._helpers)

    def close(self) -> None:
        for session in self._sessions:
            session.drop()


def with_clocks(url: str, work: Callable[[Clocks], Awaitable[T]], limit: float = 5.0) -> T:
    """What `work` answers, run to its end in an event loop."""

    async def run() -> T:
        with closing(Clocks(url, limit)) as clocks:
            return await work(clocks)

    return asyncio.run(run())


def finish_all(rows: Rows) -> None:
    """Every job ends at once."""
    rows.execute("UPDATE jobs SET status = 'ok', started_at = now(), finished_at = now() WHERE status = 'pending'")


def minutes(rows: Rows, name: str = "ticks.Ok") -> list[str]:
    """The minutes of the clock's rows, `12:30`, in their order."""
    found = rows.execute("SELECT callsite FROM jobs WHERE name = %s ORDER BY callsite", name)
    return [callsite[-6:-1] for (callsite,) in found]


def span(first: str, last: str) -> list[str]:
    """The minutes from `first` to `last`, `12:00` to `12:59`."""
    minute, end = (datetime.strptime(text, "%H:%M").replace(tzinfo=UTC) for text in (first, last))
    count = int((end - minute) / MINUTE) + 1
    return [f"{minute + number * MINUTE:%H:%M}" for number in range(count)]


def repeated(rows: Rows) -> list[tuple[str, str]]:
    """Entries and minutes with more than one row."""
    found = Counter(rows.execute("SELECT name, callsite FROM jobs WHERE callsite LIKE 'clock %'"))
    return [key for key, count in found.items() if count > 1]


def test_two_clocks_over_an_hour_make_sixty_rows_though_each_job_ends_at_once(either_database: str, rows: Rows) -> None:
    """FAULTS 29: at once or one after the other, the second restarted at every seventh minute."""
    migrate(either_database, dedupe=NAMES)

    async def hour(clocks: Clocks) -> None:
        first, second = clocks.new(), clocks.new()
        await first.catch_up(NOON - MINUTE)
        for number in range(60):
            finish_all(rows)
            now = NOON + number * MINUTE
            if number % 7 == 0:
                second = clocks.new()
            if number % 2:
                await asyncio.gather(first.catch_up(now), second.catch_up(now))
            else:
                await first.catch_up(now)
                finish_all(rows)
                await second.catch_up(now)

    with_clocks(either_database, hour)
    assert [minute for minute in minutes(rows) if minute >= "12:00"] == span("12:00", "12:59")
    assert repeated(rows) == []
    [(callsite,)] = rows.execute("SELECT max(callsite) FROM jobs")
    assert callsite == "clock 2026-10-21T12:59Z"


def test_a_pending_job_is_not_enqueued_again(database: str, rows: Rows) -> None:
    """Scheduled jobs always dedupe."""
    migrate(database, dedupe=NAMES)

    async def work(clocks: Clocks) -> None:
        clock = clocks.new()
        await clock.catch_up(NOON)
        await clock.catch_up(NOON + 5 * MINUTE)

    with_clocks(database, work)
    assert minutes(rows) == ["11:51"]


def test_a_gap_of_an_hour_is_caught_up_by_ten_minutes(database: str, rows: Rows) -> None:
    async def work(clocks: Clocks) -> None:
        clock = clocks.new()
        await clock.catch_up(NOON)
        await clock.catch_up(NOON + 60 * MINUTE)
        await clock.catch_up(NOON + 63 * MINUTE)

    with_clocks(database, work)
    assert minutes(rows) == span("11:51", "12:00") + span("12:51", "13:03")


def test_a_server_whose_clock_steps_ahead_and_back_misses_no_minute(database: str, rows: Rows) -> None:
    """FAULTS 29: the minutes after the step back are minutes of the server's clock like any other."""

    async def work(clocks: Clocks) -> None:
        clock = clocks.new()
        await clock.catch_up(NOON)
        await clock.catch_up(NOON + timedelta(days=1))
        await clock.catch_up(NOON + MINUTE)
        await clock.catch_up(NOON + 2 * MINUTE)

    with_clocks(database, work)
    today = rows.execute("SELECT callsite FROM jobs WHERE callsite LIKE 'clock 2026-10-21%' ORDER BY callsite")
    assert [callsite[-6:-1] for (callsite,) in today] == span("11:51", "12:02")
    assert repeated(rows) == []


def test_an_entry_is_enqueued_in_the_minutes_that_its_predicate_holds(database: str, rows: Rows) -> None:
    def on_the_quarter(minute: datetime) -> bool:
        assert minute.tzinfo is UTC
        assert (minute.second, minute.microsecond) == (0, 0)
        return minute.minute % 15 == 0

    async def work(clocks: Clocks) -> None:
        clock = clocks.new([Scheduled("ticks", "ticks.Ok", on_the_quarter, {"deep": True})])
        for number in range(60):
            await clock.catch_up(NOON + number * MINUTE)

    with_clocks(database, work)
    assert minutes(rows) == ["12:00", "12:15", "12:30", "12:45"]
    assert {str(row.args) for row in rows.all("ticks")} == {"{'deep': True}"}


def test_an_entry_that_fails_is_reported_once_and_does_not_stop_the_others(
    database: str, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    """A predicate that raises; args that are no JSON."""

    async def work(clocks: Clocks) -> None:
        clock = clocks.new(queues_clock.schedule)
        for number in range(3):
            await clock.catch_up(NOON + number * MINUTE)

    with_clocks(database, work)
    assert minutes(rows) == span("11:51", "12:02")
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "schedule entry ticks ticks.Never: no such minute",
        "schedule entry ticks ticks.Unstorable: args.ratio: NaN is not JSON",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("failing", ["ticks.Refused", "ticks.Held"])
def test_an_entry_that_the_database_refuses_does_not_stop_the_others(failing: str, database: str, rows: Rows) -> None:
    """Refused by a trigger of the application's own; held up by a rival for the dedupe key that does not commit."""
    migrate(database, dedupe=frozenset({"ticks.Held"}))
    rows.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not today'; END $$"
    )
    rows.execute(
        "CREATE TRIGGER refuse BEFORE INSERT ON jobs FOR EACH ROW WHEN (NEW.name = 'ticks.Refused')"
        " EXECUTE FUNCTION refuse()"
    )

    async def work(clocks: Clocks) -> None:
        await clocks.new([Scheduled("ticks", name, every_minute) for name in (failing, "ticks.Ok")]).tick(NOON)

    with closing(psycopg.connect(database)) as rival:
        rival.execute("INSERT INTO jobs (queue, name) VALUES ('ticks', 'ticks.Held')")
        with_clocks(database, work)
    assert minutes(rows) == ["12:00"]


@pytest.mark.slow
def test_a_database_call_that_hangs_holds_up_nothing_else_and_the_tick_is_caught_up(
    database: str, rows: Rows, relay: Relay, caplog: pytest.LogCaptureFixture
) -> None:
    """FAULTS 30: the loop turns meanwhile, the call is given up, and a cancellation, which a drain is, ends it."""

    async def until(probe: Callable[[], object]) -> None:
        async with asyncio.timeout(15):
            while not probe():
                await asyncio.sleep(0.01)

    async def work(clocks: Clocks) -> None:
        clock = clocks.new()
        await clock.now()  # connected
        relay.stall()
        running = asyncio.create_task(clock.run())
        await until(lambda: "clock: no answer from the database" in caplog.text)
        assert not running.done()
        relay.resume()
        await until(lambda: rows.all("ticks"))
        relay.stall()
        running.cancel()
        await asyncio.wait({running}, timeout=1)
        assert running.cancelled()

    with_clocks(relay.url, work, limit=0.3)


@pytest.mark.slow
def test_a_service_enqueues_the_minutes_at_boot_and_two_make_no_row_twice(
    run_supervisor: RunSupervisor, database: str, rows: Rows
) -> None:
    """Jobs that end at once; then one of the two is killed and starts anew."""
    migrate(database, dedupe=NAMES)
    began = datetime.now(UTC).replace(second=0, microsecond=0)
    first = run_supervisor(registry=REGISTRY, host="host-a", ready=False)
    second = run_supervisor(registry=REGISTRY, host="host-b", ready=False)
    first.wait_ready()
    second.wait_ready()
    eventually(lambda: "ok" in rows.statuses("ticks"))
    second.signal(SIGKILL)
    second.wait()
    run_supervisor(registry=REGISTRY, host="host-b")
    eventually(lambda: "pending" not in rows.statuses("ticks"))
    found = rows.all("ticks")
    assert all(re.fullmatch(r"clock \d{4}-\d\d-\d\dT\d\d:\d\dZ", row.callsite or "") for row in found)
    told = [datetime.strptime(str(row.callsite), "clock %Y-%m-%dT%H:%MZ").replace(tzinfo=UTC) for row in found]
    assert min(told) > began - 11 * MINUTE
    assert max(told) <= datetime.now(UTC)
    assert repeated(rows) == []
    assert {row.name for row in found} == {"ticks.Ok"}
    assert re.search(rf"INFO clock {min(told):%Y-%m-%dT%H:%MZ}: enqueued 1\n", first.log() + second.log())


@pytest.mark.slow
def test_with_a_database_that_does_not_answer_children_are_restarted_and_a_drain_ends(
    run_supervisor: RunSupervisor, relay: Relay
) -> None:
    """FAULTS 30: whoever of the parent's concerns asks, and the new child, get no answer."""
    sup = run_supervisor("sleeps", "quick", url=relay.url)
    relay.stall()
    child = sup.child("quick")
    child.signal(SIGKILL)
    eventually(lambda: sup.child("quick").pid != child.pid)
    sup.terminate()
    assert sup.wait(10) == 0
