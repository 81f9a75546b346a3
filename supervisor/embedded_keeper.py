"""The keeper of an embedded Postgres: the process that runs the server, and stops it when its last user is gone.

A program of its own, run by its path: nothing from outside the standard library, and nothing of this package.
"""

import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C"}  # the server needs no more, least of all our PGOPTIONS and secrets
LOOK = 0.25  # seconds between its looks at users.lock
ASKED_TO_STOP = {signal.SIGTERM, signal.SIGINT}
STOP = ((0.0, signal.SIGINT), (60.0, signal.SIGQUIT), (75.0, signal.SIGKILL))  # Postgres's fast, immediate; and dead
HURRIED_STOP = ((0.0, signal.SIGQUIT), (15.0, signal.SIGKILL))  # for a cluster that nobody will read again
PR_SET_PDEATHSIG = 1  # prctl(2)


def is_open_on(descriptor: int, path: Path) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def lock_alone(descriptor: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _keep(home: Path, socket: Path, command: list[str], switch: dict[str, Any], lock: int, delete: bool) -> None:
    """The keeper's whole life: run a server, stop it when its last user is gone, clear away."""
    if os.fork():
        os._exit(0)  # an orphan is no child of the application, which then need neither know nor reap it
    with suppress(ImportError):
        from setproctitle import setproctitle

        setproctitle(f"paceline-postgres keeper {home}")
    users = open_lock(home / "users.lock")
    _see_it_end(_serve(command, switch, lock), users, HURRIED_STOP if delete else STOP)
    shutil.rmtree(socket, ignore_errors=True)
    os.close(lock)
    if delete:
        fcntl.flock(users, fcntl.LOCK_EX)  # until then a user may start a killed server again, with its rows
        _remove(home, users)


def _remove(home: Path, users: int) -> None:
    """Remove the home that USERS is the lock of: all of it at once, as seen by one who would make the next."""
    if is_open_on(users, home / "users.lock"):
        with suppress(OSError):
            shutil.rmtree(home.rename(home.with_name(f"{home.name}.{os.getpid()}")))


def _serve(command: list[str], switch: dict[str, Any], lock: int) -> subprocess.Popen[bytes]:
    keeper, prctl = os.getpid(), ctypes.CDLL(None).prctl

    def end_with_the_keeper() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGINT)  # for without a keeper nobody would stop it
        if os.getppid() != keeper:
            os._exit(1)

    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        cwd="/",  # the account may be barred from another, and an unmount must not wait for us
        env=ENVIRONMENT,
        pass_fds=[lock],
        preexec_fn=end_with_the_keeper,  # noqa: PLW1509 -- its danger is threads, and the keeper has none
        **switch,
    )


def _see_it_end(server: subprocess.Popen[bytes], users: int, stop: Sequence[tuple[float, signal.Signals]]) -> None:
    """Return when the server has ended. The users' lock is looked at, not waited for: that would take a thread."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGCHLD, *ASKED_TO_STOP})
    steps = list(stop)
    stopping: float | None = None
    while server.poll() is None:
        heard = signal.sigtimedwait({signal.SIGCHLD, *ASKED_TO_STOP}, LOOK)
        if stopping is None and ((heard and heard.si_signo in ASKED_TO_STOP) or lock_alone(users)):
            stopping = time.monotonic()
        while stopping is not None and steps and time.monotonic() - stopping >= steps[0][0]:
            server.send_signal(signal.SIGCONT)  # a frozen one would not hear
            server.send_signal(steps.pop(0)[1])
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


if __name__ == "__main__":
    its_home, its_socket, *rest = json.loads(sys.argv[1])
    _keep(Path(its_home), Path(its_socket), *rest)
