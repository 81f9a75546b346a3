"""The embedded Postgres lives as long as it has users: real servers, real deaths."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from supervisor import embedded
from tests.support.embedded_users import User, ask, keeper, looks_again, process_status, server, stopped
from tests.support.wait import eventually

pytestmark = pytest.mark.slow


def test_four_starters_at_once_make_one_cluster_and_one_server(home: Path, user: Callable[..., User]) -> None:
    assert not embedded.exists(home)
    four = [user() for _ in range(4)]
    assert len({each.uri for each in four}) == 1
    assert len({ask(each.uri, "SELECT pg_postmaster_start_time()") for each in four}) == 1
    assert (home / "server.log").read_text().count("The files belonging to this database system") == 1
    assert embedded.exists(home)
    assert ask(four[0].uri, "SHOW server_encoding") == "UTF8"
    assert len(json.loads(four[0].told("held"))) == 1


def test_the_server_outlives_its_starter_and_stops_with_its_last_user(cluster: Path, user: Callable[..., User]) -> None:
    first, second = user(), user()
    assert first.uri == second.uri
    first.killed()
    looks_again(cluster)
    assert ask(second.uri) == 1
    second.killed()
    eventually(lambda: stopped(cluster))
    assert "database system is shut down" in (cluster / "server.log").read_text()
    assert not (cluster / "socket").exists()
    assert ask(user().uri) == 1


def test_a_fork_of_a_user_is_a_user(cluster: Path, user: Callable[..., User]) -> None:
    parent = user()
    child = int(parent.told("fork"))
    parent.process.kill()
    parent.process.wait()
    looks_again(cluster)
    assert ask(parent.uri) == 1
    os.kill(child, signal.SIGKILL)
    parent.killed()  # only now do its streams end
    eventually(lambda: stopped(cluster))


def test_a_re_exec_keeps_the_server_and_finds_its_lock_again(cluster: Path, user: Callable[..., User]) -> None:
    one = user()
    before = one.told("held"), server(cluster)
    assert one.told("exec") == one.uri
    assert (one.told("held"), server(cluster)) == before
    lock = cluster / "users.lock"
    opened = [entry for entry in Path(f"/proc/{one.process.pid}/fd").iterdir() if entry.resolve() == lock.resolve()]
    assert [entry.name for entry in opened] == [str(number) for number in json.loads(before[0])]


def test_the_keeper_is_apart_from_whoever_started_it(cluster: Path, user: Callable[..., User]) -> None:
    """Its own session, not the user's child, no descriptor of the user's, and a title that no operator mistakes."""
    one = user()
    assert one.uri
    pid = keeper(cluster)
    assert os.getsid(pid) == os.getsid(server(cluster)) != os.getsid(one.process.pid)
    assert int(process_status(pid, "PPid")) != one.process.pid
    title = Path(f"/proc/{pid}/cmdline").read_text()
    assert title.startswith("paceline-postgres keeper")
    assert "paceline:" not in title
    its_files = {entry.resolve() for entry in Path(f"/proc/{pid}/fd").iterdir()}
    assert its_files == {Path("/dev/null"), *(cluster / name for name in ("server.log", "users.lock", "server.lock"))}
    user()
    out, err = one.killed()  # ends although the server goes on
    assert (out, err) == ("", "")


def test_a_starter_killed_during_initdb_leaves_no_half_cluster(home: Path, user: Callable[..., User]) -> None:
    first = user()
    eventually((home / "data.new" / "global").exists)
    first.killed()
    assert not embedded.exists(home)
    (home / "data.new" / "left by it").touch()
    assert ask(user().uri) == 1
    assert not (home / "data.new").exists()
    assert not (home / "data" / "left by it").exists()


def test_a_killed_server_is_started_again_by_the_same_process(cluster: Path, user: Callable[..., User]) -> None:
    one = user()
    with psycopg.connect(one.uri) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    os.kill(server(cluster), signal.SIGKILL)
    assert one.told("start") == one.uri
    assert ask(one.uri, "SELECT answer FROM kept") == 42


def test_the_server_ends_with_its_keeper(cluster: Path, user: Callable[..., User]) -> None:
    one = user()
    assert one.uri
    os.kill(keeper(cluster), signal.SIGKILL)
    eventually(lambda: stopped(cluster))
    assert one.told("start") == one.uri
    assert ask(one.uri) == 1


def test_a_pid_file_that_names_another_program_is_no_hindrance(cluster: Path, user: Callable[..., User]) -> None:
    """As after a restart of a container, where the old server's pid is now some other process."""
    owner = (cluster / "data").stat()
    account = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    with subprocess.Popen(["sleep", "60"], **account) as other:  # type: ignore[call-overload]
        (cluster / "data" / "postmaster.pid").write_text(f"{other.pid}\n{cluster / 'data'}\n1\n5432\n\n\n\n")
        shutil.chown(cluster / "data" / "postmaster.pid", owner.st_uid, owner.st_gid)
        assert ask(user().uri) == 1
        other.kill()


def test_a_temporary_cluster_is_gone_after_use_even_when_it_is_frozen(user: Callable[..., User]) -> None:
    one = user("temporary")
    home = Path(ask(one.uri, "SHOW data_directory")).parent
    assert ask(one.uri, "SHOW fsync") == "off"
    os.kill(server(home), signal.SIGSTOP)
    one.killed()
    eventually(lambda: not home.exists())
