"""PgBouncer, as Debian packages it, in front of a test's database: a process of the test's own, never run as root."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from supervisor.embedded import Account
from tests.support.server import account, home
from tests.support.wait import eventually

Mode = Literal["session", "transaction", "statement"]
PORT = 6432  # it only names the socket

# A normal user's PATH need not have it.
PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
MISSING = "PgBouncer is not installed (Debian's package pgbouncer)"


@contextmanager
def pooled(url: str, mode: Mode, settings: Mapping[str, str] = {}) -> Iterator[str]:
    """`url` by way of a PgBouncer that pools by `mode`."""
    with home() as directory:
        runs_as = account()
        file = _configure(directory, url, {"pool_mode": mode, **settings})
        runs_as.own(directory)
        runs_as.own(file)
        assert PROGRAM is not None, MISSING
        process = _start(file, runs_as)
        try:
            through = f"postgresql://anyone@/{_target(url)['dbname']}?host={quote(str(directory), safe='')}&port={PORT}"
            eventually(lambda: process.poll() is not None or _answers(through))
            assert process.poll() is None, (directory / "pgbouncer.log").read_text()
            yield through
        finally:
            process.send_signal(signal.SIGQUIT)  # at once
            process.wait(10)


def _target(url: str) -> dict[str, str]:
    """Where libpq really goes, defaults and PGHOST included."""
    with psycopg.connect(url) as probe:
        info = probe.info
        return {
            "host": info.host,
            "port": str(info.port),
            "dbname": info.dbname,
            "user": info.user,
            "password": str(conninfo_to_dict(url).get("password") or os.environ.get("PGPASSWORD") or ""),
        }


def _configure(directory: Path, url: str, settings: Mapping[str, str]) -> Path:
    target = " ".join(f"{key}={value}" for key, value in _target(url).items() if value)
    given = {
        "listen_port": PORT,
        "unix_socket_dir": directory,
        "auth_type": "any",
        "logfile": directory / "pgbouncer.log",
        **settings,
    }
    file = directory / "pgbouncer.ini"
    lines = ["[databases]", f"* = {target}", "[pgbouncer]", *(f"{name} = {value}" for name, value in given.items())]
    file.write_text("\n".join(lines) + "\n")
    file.chmod(0o600)
    return file


def _start(file: Path, runs_as: Account) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [str(PROGRAM), "-q", str(file)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        **runs_as.switch,
    )


def _answers(url: str) -> bool:
    psycopg.connect(url, connect_timeout=5).close()
    return True
