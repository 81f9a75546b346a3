"""The server's disk is full, and freed again: true statuses are recorded then, and the service goes on by itself.

FAULTS 41. First the disk of the table, where the server refuses a statement; then that of its log, where it panics.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from tests.support import journal
from tests.support.ingest import Ingest
from tests.support.queues_journal import QUEUES
from tests.support.rows import Rows
from tests.support.run_limited import program
from tests.support.server import Server, account, home
from tests.support.small_disk import SmallDisk, small_disk
from tests.support.supervised import RunSupervisor, Supervised
from tests.support.wait import eventually

pytestmark = pytest.mark.slow  # the whole file

PADDING = {"padding": "x" * 1500}  # so that a new version of a row seldom has room in its page


@pytest.fixture
def server() -> Iterator[Server]:
    """Not started yet."""
    with home() as directory:
        made = Server(
            directory,
            {
                "autovacuum": "off",
                "max_wal_size": "2MB",
                "min_wal_size": "2MB",
                "restart_after_crash": "off",  # by itself it may be back, or not, as its recovery finds a block free
            },
        )
        yield made
        made.stop("immediate")


@pytest.fixture
def disk(server: Server) -> Iterator[SmallDisk]:
    with small_disk(server.home / "small", megabytes=12) as mounted:
        yield mounted
        server.stop("immediate")


@pytest.fixture
def database(server: Server, disk: SmallDisk) -> str:
    """The log is on the small disk."""
    server.make("--waldir", str(disk.path / "wal"), "--wal-segsize", "1")
    server.start()
    return server.migrate()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def start(run_supervisor: RunSupervisor, file: Path, ingest: Ingest) -> Supervised:
    return run_supervisor(
        *QUEUES,
        registry="tests.support.queues_journal",
        env={journal.FILE: str(file), "SENTRY_DSN": ingest.dsn},
        python=program(file.parent, settle=2),
    )


def events(ingest: Ingest, queue: str) -> list[str]:
    found = [event for event in ingest.events() if event.get("tags", {}).get("queue") == queue]
    return [str(event.get("extra", event).get("fault", event)) for event in found]


def all_final(rows: Rows) -> bool:
    return not rows.execute("SELECT id FROM jobs WHERE queue LIKE 'journal%' AND status IN ('pending', 'started')")


def test_a_full_disk_of_the_table_is_waited_out_and_is_one_event_for_each_queue(
    server: Server, disk: SmallDisk, run_supervisor: RunSupervisor, rows: Rows, ingest: Ingest, file: Path
) -> None:
    """FAULTS 41. One queue has to record an end meanwhile, the others to claim."""
    place = disk.path / "table"
    place.mkdir()
    account().own(place)
    server.execute(f"CREATE TABLESPACE small LOCATION '{place}'")
    server.execute("ALTER TABLE jobs SET TABLESPACE small")
    sup = start(run_supervisor, file, ingest)
    with old_snapshot(server.url):
        ending = rows.insert(QUEUES[0], "journal.Work", {"seconds": 0.5, **PADDING})
        eventually(lambda: rows.status(ending) == "started")
        claiming = sup.child(QUEUES[1])
        claiming.signal(signal.SIGSTOP)  # until there is no room
        for queue in QUEUES[:2]:
            rows.insert_many(2, queue, "journal.Work", PADDING)
        disk.fill()
        fill_pages(rows)
        claiming.signal(signal.SIGCONT)
        for queue in QUEUES[:2]:
            eventually(lambda queue=queue: events(ingest, queue))
        refusals = server.said().count("No space left on device")
        eventually(lambda: server.said().count("No space left on device") > refusals + 4)
        disk.free()
        eventually(lambda: all_final(rows))
    assert journal.broken_promises(file, rows) == []
    [[recording], [claim], none] = [events(ingest, queue) for queue in QUEUES]
    assert "finalize: could not extend file" in recording
    assert "fetch or claim: could not extend file" in claim
    assert none == []
    for queue, what in ((QUEUES[0], "finalize"), (QUEUES[1], "fetch or claim")):
        eventually(lambda queue=queue, what=what: f"queue {queue}: {what}: over after" in sup.log())


def fill_pages(rows: Rows) -> None:
    """With rows of nobody's queue, until not even a small one has room."""
    with pytest.raises(psycopg.errors.DiskFull):
        for _ in range(10_000):
            rows.insert("nobody", "nobody.Job")


def write_log(server: Server, disk: SmallDisk) -> None:
    """Make it need another file, where there is no room for one."""
    disk.fill()
    with suppress(psycopg.OperationalError):
        server.execute("SELECT pg_switch_wal()")


@contextmanager
def old_snapshot(url: str) -> Iterator[None]:
    """While it is open no version of a row is removed, and so no room is made in a page."""
    with psycopg.connect(url) as session:
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.execute("SELECT count(*) FROM jobs")
        yield


def test_a_server_that_panics_at_a_full_disk_of_its_log_is_waited_out(
    server: Server, disk: SmallDisk, run_supervisor: RunSupervisor, rows: Rows, ingest: Ingest, file: Path
) -> None:
    """FAULTS 41: it is away until somebody has made room and starts it."""
    sup = start(run_supervisor, file, ingest)
    for queue in QUEUES[1:]:
        rows.insert_many(100, queue, "journal.Work", {"seconds": 0.02, **PADDING})
    rows.insert_many(2, QUEUES[0], "journal.Work", {"seconds": 1})
    eventually(lambda: len({run.queue for run in journal.runs(file)}) == len(QUEUES))
    eventually(lambda: server.exited() or write_log(server, disk))
    assert "PANIC:  could not write to file" in server.said()
    for queue in QUEUES:
        eventually(lambda queue=queue: events(ingest, queue))
    disk.free()
    server.restart()
    eventually(lambda: all_final(rows), 30.0)
    assert journal.broken_promises(file, rows) == []
    for queue in QUEUES:
        assert len(events(ingest, queue)) == 1
    assert "Traceback" not in sup.log()
