"""One of the two hosts: a parent with a HOSTNAME and a relay of its own, over all its lives."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from supervisor.worker import boottime
from tests.chaos.queues import BOOKS
from tests.support.processes import Process
from tests.support.relay import Relay
from tests.support.run_limited import program
from tests.support.supervised import Supervised, environment

LIMITS = {
    "grace": 1.5,
    "sweep": 4,
    "sweep_margin": 9,  # more than the grace and lease.ROW_MARGIN, as by default
    "ping": 2,
    "call": 3,
    "turn": 6,
    "spell": 10,
}
READY = b"paceline: ready"


class Host:
    def __init__(self, name: str, url: str, directory: Path) -> None:
        self.name = name
        self.relay = Relay(url)
        self.directory = directory
        self.lives: list[Supervised] = []
        self.starts_at: float | None = 0.0  # None: it is up, as far as is known
        self.pause = 0.0  # seconds from its end to its next start
        self.blind = False
        self.told_to_end = False  # this life
        self.killed: list[tuple[float, int]] = []  # when, and the parent's pid
        self.exits: list[int] = []
        self._ready_wanted = self._ready_seen = self._read = 0
        self._ready_since = 0.0

    @property
    def life(self) -> Supervised:
        return self.lives[-1]

    def up(self) -> bool:
        return self.starts_at is None and self.life.exited() is None

    def ready(self) -> bool:
        """Up, its boot over, and not told to end or reload."""
        if not self.up() or self.told_to_end:
            return False
        with self.life.log_file.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        if found := whole.count(READY):
            self._ready_seen += found
            self._ready_since = boottime()
        return self._ready_seen >= self._ready_wanted

    def ready_for(self) -> float:
        """Seconds for which it has been ready."""
        return boottime() - self._ready_since if self.ready() else 0.0

    def start(self) -> None:
        self.lives.append(
            Supervised(
                (),
                environment=environment(
                    self.relay.url, "tests.chaos.queues", {BOOKS: str(self.directory)}, host=self.name
                ),
                flags=(),
                python=program(self.directory, **LIMITS),
                log=self.directory / f"{self.name}-{len(self.lives) + 1}.log",
            )
        )
        self.starts_at, self.pause, self.told_to_end = None, 0.0, False
        self._ready_wanted, self._ready_seen, self._read = 1, 0, 0

    def note_exit(self) -> str:
        """What is wrong with its having ended, if anything; called once it has."""
        code = self.life.exited()
        assert code is not None
        self.exits.append(code)
        if not self.told_to_end:
            return f"{self.name} ended by itself, exit {code}: {self.life.log_file}"
        unborn = code == -signal.SIGTERM and not self.life.log()  # the interpreter was starting still
        if code not in (0, 1, -signal.SIGKILL) and not unborn:
            return f"{self.name} drained with exit {code}: {self.life.log_file}"
        return ""

    def tell_to_stop(self) -> None:
        self.told_to_end = True
        self.life.terminate()

    def reload(self) -> None:
        self._ready_wanted += 1
        self.life.signal(signal.SIGHUP)

    def kill(self) -> None:
        self.told_to_end = True
        self.killed.append((boottime(), self.life.pid))
        with suppress(ProcessLookupError):
            os.kill(self.life.pid, signal.SIGKILL)

    def children(self) -> dict[str, Process]:
        return self.life.children() if self.up() else {}
