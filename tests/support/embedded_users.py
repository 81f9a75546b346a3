"""A user of an embedded cluster as a process of its own: the lock that keeps a server up goes only with its process.

And what the tests of the embedded Postgres ask about a cluster: its server, its keeper, whether it runs.
"""

import fcntl
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from supervisor import embedded
from tests.support.wait import eventually

FILE = Path(embedded.__file__)

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


@contextmanager
def open_directory() -> Iterator[Path]:
    """A directory that every account can reach, which pytest's tmp_path is not."""
    path = Path(tempfile.mkdtemp(prefix="test-embedded-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


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
