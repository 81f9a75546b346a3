"""`python -m supervisor` as a real process, driven as an operator drives it: signals, `ps`, standard error.

Nothing here reaches into the engine, so it also drives another version, or another Python.
"""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import Protocol

from tests.support.processes import Process, marked, process
from tests.support.wait import eventually

ROOT = Path(__file__).resolve().parents[2]
REGISTRY = "tests.support.queues"

# Takes the terminal that is its standard input as its controlling one, then becomes the program, pid and all:
# what a shell's child does. In a program of its own, since this process has threads and must not run code
# between fork and exec.
_ON_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)


def environment(
    url: str | None, registry: str = REGISTRY, extra: Mapping[str, str] | None = None, *, host: str | None = None
) -> dict[str, str]:
    """What the program is started with. `extra` wins, but its PYTHONPATH comes before the repository's.

    The caller's own settings stay out: a developer's SENTRY_DSN must not get a test's events.
    """
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PACELINE_", "SENTRY_"))}
    inherited.pop("DATABASE_URL", None)
    given = {"PACELINE_REGISTRY": registry}
    if url is not None:
        given["DATABASE_URL"] = url
    if host is not None:
        given["HOSTNAME"] = host
    given.update(extra or {})
    given["PYTHONPATH"] = os.pathsep.join(filter(None, [given.get("PYTHONPATH"), str(ROOT)]))
    return inherited | given


def paceline(
    *arguments: str,
    environment: Mapping[str, str],
    python: str = sys.executable,
    stdin: str = "",
    timeout: float = 30,
) -> subprocess.CompletedProcess[str]:
    """One command of the CLI, run to its end: `.returncode`, `.stdout`, `.stderr`."""
    return subprocess.run(
        [python, "-m", "supervisor", *arguments],
        cwd=ROOT,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


class Supervised:
    """A running `paceline run`, alone in a session and process group of its own."""

    def __init__(
        self,
        queues: Sequence[str],
        *,
        environment: Mapping[str, str],
        flags: Sequence[str],
        python: str,
        log: Path,
        terminal: bool = False,
    ) -> None:
        """With `terminal` it has a controlling terminal, for type() and hang_up(); its log is no terminal."""
        self.expect_traceback = False  # a test says so where a traceback on standard error is right
        self.expect_strays = False  # the same for a process that left the group and outlives the parent
        self.environment = dict(environment)
        self.log_file = log
        self.output_file = log.with_suffix(".out")
        self._mark = f"PACED_BY_TEST={secrets.token_hex(8)}"
        name, _, value = self._mark.partition("=")
        command = [python, "-m", "supervisor", "run", *queues, *flags]
        self._terminal: int | None = None
        stdin = subprocess.DEVNULL
        if terminal:
            self._terminal, stdin = os.openpty()
            command = [sys.executable, "-c", _ON_TERMINAL, *command]
        with log.open("wb") as errors, self.output_file.open("wb") as output:
            self._popen = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self.environment | {name: value},
                stdin=stdin,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        if terminal:
            os.close(stdin)
        self.pid = self._popen.pid
        self.parent = process(self.pid)

    # What an operator reads

    def log(self) -> str:
        """Standard error so far."""
        return self.log_file.read_text(errors="replace")

    def output(self) -> str:
        """Standard output so far: what handlers print."""
        return self.output_file.read_text(errors="replace")

    def children(self) -> dict[str, Process]:
        """The children at this moment, by queue."""
        found: dict[str, Process] = {}
        for child in self.parent.children:
            prefix, _, rest = child.title.partition(" ")
            # A child that was just forked still has its parent's title.
            if prefix == "paceline:" and not rest.startswith("parent") and (queue := rest.split(" ")[0]):
                found[queue] = child
        return found

    def child(self, queue: str, timeout: float = 15.0) -> Process:
        """The queue's child, once there is one."""
        return eventually(lambda: self.children()[queue], timeout)

    def titles(self) -> list[str]:
        """What `ps -ef | grep paceline:` shows of it: the parent's title, then the others in order."""
        others = sorted(found.title for found in self.parent.descendants)
        return [title for title in [self.parent.title, *others] if title.startswith("paceline:")]

    # What an operator does

    def signal(self, signo: Signals) -> None:
        """To the parent alone."""
        self.parent.signal(signo)

    def terminate(self) -> None:
        self.signal(signal.SIGTERM)

    def signal_group(self, signo: Signals) -> None:
        """To its whole process group, as a terminal or a shell does."""
        os.killpg(self.pid, signo)

    def type(self, keys: bytes) -> None:
        r"""At its terminal: b"\x03" is Ctrl-C."""
        assert self._terminal is not None, "started without terminal=True"
        os.write(self._terminal, keys)

    def hang_up(self) -> None:
        """Close its terminal, as one closes a window."""
        assert self._terminal is not None, "started without terminal=True"
        os.close(self._terminal)
        self._terminal = None

    def wait(self, timeout: float = 15.0) -> int:
        """Its exit code, negative for a signal. AssertionError with the log when it does not end in time."""
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout:g} s:\n{self.describe()}") from None

    def exited(self) -> int | None:
        """Its exit code, None while it runs."""
        return self._popen.poll()

    # What fixtures need

    def wait_ready(self, timeout: float = 30.0) -> None:
        """AssertionError with the log when it ends instead, or takes too long."""
        with suppress(AssertionError):
            eventually(lambda: self.exited() is not None or "paceline: ready" in self.log(), timeout)
        assert "paceline: ready" in self.log(), f"never got ready, exit code {self.exited()}:\n{self.describe()}"

    def left(self) -> list[Process]:
        """Every living process that came from it, wherever it went."""
        return marked(self._mark, self.log_file)

    def describe(self) -> str:
        return "\n".join([f"{self.titles()}", f"--- {self.log_file.name} ---", self.log()])

    def stop(self, patience: float = 2.0, grace: float = 5.0) -> None:
        """End it, hard after `patience` seconds; then assert that nothing is left after `grace`, and nothing broke.

        A forgotten job is no fault of the engine's, so that a slow drain passes here; a test of drains asks itself.
        """
        try:
            if self.exited() is None:
                with suppress(ProcessLookupError):
                    self.terminate()
                    self.signal(signal.SIGCONT)  # a frozen parent would not see it
                with suppress(subprocess.TimeoutExpired):
                    self._popen.wait(patience)
            if self.exited() is None:
                self._popen.kill()
                self._popen.wait()
            self._assert_nothing_is_left(grace)
        finally:
            self._clear()
        assert self.expect_traceback or "Traceback" not in self.log(), f"a traceback:\n{self.describe()}"

    def _assert_nothing_is_left(self, grace: float) -> None:
        if self.expect_strays:
            return
        with suppress(AssertionError):
            eventually(lambda: not self.left(), grace)  # the kernel takes a moment to end them
        strays = [f"{stray.pid} {stray.title}" for stray in self.left()]
        assert not strays, f"outlived the parent: {strays}\n{self.describe()}"

    def _clear(self) -> None:
        give_up = time.monotonic() + 10.0
        while (strays := self.left()) and time.monotonic() < give_up:  # again, for those that fork meanwhile
            for stray in strays:
                with suppress(ProcessLookupError):
                    stray.signal(signal.SIGKILL)
            time.sleep(0.01)
        if self._terminal is not None:
            self.hang_up()


class RunSupervisor(Protocol):
    """The `run_supervisor` fixture."""

    def __call__(
        self,
        *queues: str,
        url: str | None = None,
        registry: str = REGISTRY,
        env: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
        python: str = sys.executable,
        ready: bool = True,
        host: str | None = None,
        terminal: bool = False,
    ) -> Supervised: ...


class Paceline(Protocol):
    """The `run_paceline` fixture."""

    def __call__(
        self,
        *arguments: str,
        url: str | None = None,
        registry: str = REGISTRY,
        env: Mapping[str, str] | None = None,
        python: str = sys.executable,
        stdin: str = "",
    ) -> subprocess.CompletedProcess[str]: ...
