"""`paceline run --sandbox`: stand-ins for what the queues call, and a database of their own that nothing else uses.

What stands in is the registry's: it names a program, `sandbox = Path(...)`. That is run with the names after --live,
says in one line of JSON what is to be changed (Terms), gets the database's URL on its standard input once the tables
are there, fills them, says another line, and lives until its standard input ends. Every fork of this process holds the
other end of that, so it ends after the last of them, however they end; and when this process becomes new code.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from supervisor import db
from supervisor.config import Registry
from supervisor.errors import PacelineError, UsageError
from supervisor.log import log
from supervisor.sql import statement
from supervisor.worker import Throttle, Worker


class Terms(msgspec.Struct):
    """The program's first line."""

    environment: dict[str, str] = {}  # for the registry's constructors
    pace: dict[str, float] = {}  # by queue: how many times faster than its throttle it may be
    told: list[str] = []  # lines for the log
    error: str = ""  # why it will not run: one line that says what to do


def claim(url: str) -> None:
    """Make the database the sandbox's if it has no table yet. PacelineError for one that has, and is not."""
    with db.connect(url, db.session_name("command", "sandbox", "")) as connection:
        [(ours, used)] = connection.execute(statement("sandbox")).fetchall()
        if used and not ours:
            raise PacelineError(
                "this database was not made by the sandbox, whose data is invented: unset DATABASE_URL, or name an "
                "empty database; to run the real queues on it, leave --sandbox out"
            )
        connection.execute(statement("make_sandbox"))


class Sandbox:
    """The program, while a reference to this is held."""

    def __init__(self, live: Sequence[str]) -> None:
        self._live = list(live)
        self._terms = Terms()

    def open(self, program: Path | None) -> None:
        """Start it and change the environment, before workers are built. Raises UsageError, PacelineError."""
        if program is None:
            raise UsageError("the registry names no sandbox: run it without --sandbox")
        if not program.exists():
            raise UsageError(f"no sandbox at {program}: it comes with the source checkout, not with the package")
        command = [sys.executable, "-P", str(program), *self._live]
        # In a session of its own: a Ctrl-C is for those that call it.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self._terms = msgspec.json.decode(self._hear(), type=Terms)
        if self._terms.error:
            raise UsageError(self._terms.error)
        os.environ.update(self._terms.environment)
        for line in self._terms.told:
            log.info("sandbox: %s", line)

    def paced(self, registry: Registry) -> Registry:
        """The registry, its throttles scaled."""
        return replace(registry, workers=tuple(self._paced(worker) for worker in registry.workers))

    def fill(self, url: str) -> None:
        """Have the tables filled. Raises PacelineError."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{url}\n")
        self._process.stdin.flush()
        self._hear()
        self._process.stdout.close()

    def _hear(self) -> str:
        assert self._process.stdout
        if line := self._process.stdout.readline():
            return line
        raise PacelineError(f"the sandbox failed: exit {self._process.wait()}, see above")

    def _paced(self, worker: Worker) -> Worker:
        throttle, pace = worker.throttle, self._terms.pace.get(worker.queue)
        return replace(worker, throttle=_faster(throttle, pace)) if throttle and pace else worker


def _faster(throttle: Throttle, pace: float) -> Throttle:
    return lambda status, error, elapsed: throttle(status, error, elapsed) / pace
