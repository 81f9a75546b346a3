"""A Postgres server of a test's own, from the embedded binaries: to be stopped, restarted, frozen and promoted."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.rows import TupleRow

from supervisor import embedded
from supervisor.embedded_keeper import ENVIRONMENT
from supervisor.migrate import migrate
from tests.support import ledger
from tests.support.databases import DEDUPED
from tests.support.processes import Process, process
from tests.support.wait import eventually

STOP = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}  # pg_ctl's names


class Server:
    """`url` is its maintenance database's, by a socket in `home`; `settings` may change between stop and start.

    With a `port` it also listens there, on 127.0.0.1.
    """

    def __init__(self, home: Path, settings: Mapping[str, str] = {}, port: int | None = None) -> None:
        self.home = home
        self.data = home / "data"
        self.settings = dict(settings)
        self.port = port
        at = "" if port is None else f"&port={port}"
        self.url = f"postgresql://postgres@/postgres?host={quote(str(home), safe='')}{at}"
        self._account = account()
        self._programs = embedded._programs(embedded._package(), self._account)
        self._popen: subprocess.Popen[bytes] | None = None
        self._account.own(home)

    def make(self, *options: str) -> None:
        """initdb: a new cluster."""
        own = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
        self.run("initdb", "-D", str(self.data), *own, *options)

    def copy(self, of: "Server", *options: str) -> None:
        """pg_basebackup: a copy of a running server. `-R` makes it that one's standby."""
        self.run("pg_basebackup", "-D", str(self.data), "-d", of.url, "-c", "fast", "--no-sync", *options)

    def start(self, *, wait: bool = True) -> None:
        """Start it; with `wait` return when it answers."""
        given = {
            "listen_addresses": "" if self.port is None else "127.0.0.1",
            "port": str(self.port or 5432),  # also names the socket
            "unix_socket_directories": str(self.home),
            "fsync": "off",  # a killed server loses nothing by it, a killed machine would
            "max_connections": "200",
            **self.settings,
        }
        command = [str(self._programs / "postgres"), "-D", str(self.data)]
        command += [f"--{name}={value}" for name, value in given.items()]
        with (self.home / "server.log").open("ab") as log:
            self._popen = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env=ENVIRONMENT, **self._switch
            )
        if wait:
            eventually(self.answers, timeout=60)

    def migrate(self) -> str:
        """The URL of its database, with the table jobs and the side table `ledger`."""
        migrate(self.url, dedupe=DEDUPED)
        self.execute(ledger.TABLE)
        return self.url

    def execute(self, statement: str) -> list[TupleRow]:
        """By a session of its own, since the server may have been restarted meanwhile."""
        with psycopg.connect(self.url, autocommit=True, application_name="test server") as session:
            cursor = session.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def stop(self, mode: str = "fast") -> None:
        """End it by one of pg_ctl's modes, and wait for that."""
        if self._popen is not None:
            self.thaw()
            self._popen.send_signal(STOP[mode])
            self._popen.wait(60)
            self._popen = None

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start()

    def promote(self) -> None:
        """Make a primary of a standby."""
        self.run("pg_ctl", "promote", "-D", str(self.data), "-w")

    def freeze(self) -> None:
        """SIGSTOP to the postmaster and all that it forked: connections stay open, nobody answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def exited(self) -> bool:
        """Whether it has ended by itself."""
        return self._popen is not None and self._popen.poll() is not None

    def answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def said(self) -> str:
        """Its log so far."""
        return (self.home / "server.log").read_text(errors="replace")

    def run(self, program: str, *arguments: str) -> None:
        """Run one of Postgres's programs as the account that the server runs as."""
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, cwd="/", env=ENVIRONMENT, **self._switch
        )
        assert done.returncode == 0, done.stderr

    def _signal(self, signo: signal.Signals) -> None:
        for each in self._processes():
            with suppress(ProcessLookupError):  # a backend whose client has gone ends by itself
                each.signal(signo)

    def _processes(self) -> list[Process]:
        if self._popen is None or self._popen.poll() is not None:
            return []
        postmaster = process(self._popen.pid)
        return [postmaster, *postmaster.children]  # the postmaster first: then it forks no more

    @property
    def _switch(self) -> dict[str, Any]:
        return self._account.switch


def account() -> embedded.Account:
    """Whom a server of ours runs as: this user, or for root one without its rights."""
    return embedded._default_account()


@contextmanager
def home() -> Iterator[Path]:
    """A directory that the server's account reaches and whose path is short enough for a socket."""
    directory = Path(tempfile.mkdtemp(prefix="paceline-server-", dir="/tmp"))
    if os.geteuid() == 0:
        directory.chmod(0o711)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def running(settings: Mapping[str, str] = {}) -> Iterator[Server]:
    """A new server, started; stopped and removed at the end."""
    with home() as directory:
        server = Server(directory, settings)
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")
