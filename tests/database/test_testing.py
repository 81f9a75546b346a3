"""supervisor.testing, as users' own tests use it: the README's example as it stands, and each helper's no."""

import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import psycopg
import pytest
from psycopg.rows import dict_row

from supervisor import DB, Context, Worker, insert
from supervisor.config import load_registry
from supervisor.testing import assert_enqueued, drain, run_one
from tests.database.conftest import Connection
from tests.support.rows import Rows
from tests.support.supervised import ROOT, environment


class Person(msgspec.Struct):
    name: str
    more: int = 0


def greet(ctx: Context, args: Person) -> str:
    return f"hello {args.name}"


def fall(ctx: Context, args: dict[str, object]) -> str:
    raise LookupError("there is nobody")


def desk(db: DB) -> Worker:
    def follow(ctx: Context, args: Person) -> str:
        if args.more:
            insert(db, "desk", "Follow", Person(args.name, args.more - 1))
        return f"{args.more} more"

    def forever(ctx: Context, args: dict[str, object]) -> str:
        return f"ok {insert(db, 'desk', 'Forever')}"

    handlers = {"Greet": greet, "Fall": fall, "Follow": follow, "Forever": forever, "test.Dedupe": fall}
    return Worker(queue="desk", handlers=handlers, dedupe={"test.Dedupe"})


def test_one_job_is_run_before_any_that_was_pending(db: DB, url: str) -> None:
    rows = Rows(url)
    first = rows.insert("desk", "Greet", {"name": "Ada"})
    assert run_one(desk(db), "Greet", Person("Grace"), db=db) == "hello Grace"
    assert [(row.status, row.args) for row in rows.all("desk")] == [
        ("pending", {"name": "Ada"}),
        ("hello Grace", {"name": "Grace"}),
    ]
    assert rows.status(first) == "pending"
    rows.close()


def test_the_stack_of_an_error_is_logged(db: DB, caplog: pytest.LogCaptureFixture) -> None:
    assert run_one(desk(db), "Fall", db=db) == "err: there is nobody"
    assert 'raise LookupError("there is nobody")' in caplog.text


def test_a_job_that_is_deduped_is_none_to_run(db: DB) -> None:
    insert(db, "desk", "test.Dedupe")
    with pytest.raises(AssertionError, match=r"test\.Dedupe is deduped: an equal job is pending"):
        run_one(desk(db), "test.Dedupe", db=db)


def test_a_queue_is_drained_of_what_its_jobs_enqueue_too(db: DB) -> None:
    insert(db, "desk", "Follow", {"name": "Ada", "more": 2})
    insert(db, "elsewhere", "Greet", {"name": "Grace"})
    assert drain(desk(db), db=db) == ["2 more", "1 more", "0 more"]
    assert drain(desk(db), db=db) == []


def test_a_queue_that_never_empties_is_told_of(db: DB) -> None:
    insert(db, "desk", "Forever")
    with pytest.raises(AssertionError, match="queue desk is not empty after 5 jobs"):
        drain(desk(db), db=db, most=5)


def test_what_is_enqueued_is_found_by_some_of_its_args(db: DB) -> None:
    insert(db, "desk", "Greet", {"name": "Grace", "more": 1})
    job = insert(db, "desk", "Greet", {"name": "Ada", "more": 1})
    assert assert_enqueued(db, "desk", "Greet", name="Ada") == job
    assert assert_enqueued(db, "desk", "Greet", more=1) == job - 1
    for queue, name, args in (("desk", "Fall", {}), ("bench", "Greet", {}), ("desk", "Greet", {"name": "Joan"})):
        with pytest.raises(AssertionError, match="not enqueued") as refusal:
            assert_enqueued(db, queue, name, **args)
        assert str(refusal.value) == (
            f"not enqueued: {queue} {name} {json.dumps(args)}; pending:\n"
            '  desk Greet {"more": 1, "name": "Grace"}\n'
            '  desk Greet {"more": 1, "name": "Ada"}'
        )


def test_what_has_run_is_not_enqueued(db: DB) -> None:
    run_one(desk(db), "Greet", {"name": "Ada"}, db=db)
    with pytest.raises(AssertionError, match="pending: nothing"):
        assert_enqueued(db, "desk", "Greet")


def test_a_transaction_sees_what_it_has_enqueued(connection: Connection, db: DB, url: str) -> None:
    insert(connection, "desk", "Greet", {"name": "Ada"})
    assert_enqueued(connection, "desk", "Greet", name="Ada")
    with pytest.raises(AssertionError):
        assert_enqueued(db, "desk", "Greet")
    connection.commit()
    with psycopg.connect(url, row_factory=dict_row) as other:
        assert_enqueued(other, "desk", "Greet")


def test_without_a_database_there_is_no_other_to_fall_back_on(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """What DATABASE_URL names may be in service: its jobs are not a test's to run."""
    monkeypatch.setenv("DATABASE_URL", url)
    with pytest.raises(AssertionError, match="no database: the test takes the fixture `database`, or passes db="):
        drain(desk(DB(url)))


def test_a_registry_is_not_blamed_for_a_thread_that_was_there_before() -> None:
    """A test's process may have any; the fixture loads the registry in it."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        assert load_registry("queues", "postgresql:///").workers
    finally:
        over.set()
        thread.join()


# In a process of their own, as a user's tests are


def run_readme(directory: Path, **env: str) -> subprocess.CompletedProcess[str]:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    [queues] = [block for block in blocks if "registry = [naps, trouble]" in block]
    [tests] = [block for block in blocks if "from supervisor.testing import" in block]
    (directory / "mine.py").write_text(queues)
    (directory / "test_mine.py").write_text(tests)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "test_mine.py"],
        cwd=directory,
        env=environment(None, "mine", {"PYTHONPATH": str(directory)} | env),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_the_readmes_example_runs_as_it_stands(tmp_path: Path) -> None:
    """On a Postgres that goes with the run."""
    done = run_readme(tmp_path)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_on_a_server_from_outside_no_database_is_left(tmp_path: Path, cluster: str) -> None:
    def databases() -> set[str]:
        with psycopg.connect(cluster) as connection:
            return {name for (name,) in connection.execute("SELECT datname FROM pg_database")}

    before = databases()
    done = run_readme(tmp_path, PACELINE_TEST_URL=cluster)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert databases() == before
