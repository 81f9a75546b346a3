"""How the parent forks: what a new process must do first, and how it ends. Children and helpers alike."""

import asyncio
import ctypes
import gc
import os
import signal
import sys
import traceback
from _signal import SIG_DFL  # type: ignore[import-not-found]  # signal's own make enums: 0.1 MB of a child's pages
from _signal import signal as set_handler
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)  # by the parent
_PR_SET_PDEATHSIG = 1
EXIT_BUG = 1  # an exception of the engine's own reached the top; its stack is in the log
EXIT_ORPHAN = 71

_libc = ctypes.CDLL(None, use_errno=True)


class Forker:
    """Forks processes that keep only the descriptors open at this object's making, and those named."""

    def __init__(self) -> None:
        self._inherited = frozenset(_descriptors())

    def fork(self, run: Callable[[], int], keep: Collection[int] = ()) -> int:
        """Fork a process that calls `run` and exits with its answer; its pid. Raises OSError.

        `run` is called with the parent's signals blocked, so that none is lost before its own handlers
        stand; it unblocks them.
        """
        [pid] = self.fork_each([(run, keep)])
        if isinstance(pid, OSError):
            raise pid
        return pid

    def fork_each(self, processes: Sequence[tuple[Callable[[], int], Collection[int]]]) -> list[int | OSError]:
        """The same for several: of each its pid, or why there is none.

        Next to nothing is done between two forks: a page that the parent writes there stays behind as the first
        process's alone.
        """
        parent = os.getpid()
        pids = list[int | OSError]()
        try:
            foreign = [fd for fd in _descriptors() if fd not in self._inherited]
        except OSError as error:  # it takes a descriptor itself
            return [error for _ in processes]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        try:
            for run, keep in processes:
                try:
                    pid = os.fork()
                except OSError as error:
                    pids.append(error)
                    continue
                if pid == 0:
                    self._become(run, foreign, keep, parent)
                pids.append(pid)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pids

    def _become(self, run: Callable[[], int], foreign: Collection[int], keep: Collection[int], parent: int) -> None:
        """In the new process. Never returns."""
        code = EXIT_BUG
        try:
            # First: the parent's self-pipe number will be another file's in a moment, and a signal byte
            # written into a database socket breaks it.
            signal.set_wakeup_fd(-1)
            # By number: the objects' own close would take the sockets out of the parent's epoll, and say
            # goodbye on its database connections.
            for fd in foreign:
                if fd not in keep:
                    os.closerange(fd, fd + 1)  # which takes it well that one is closed
            os.setsid()
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it died before the line above
                os._exit(EXIT_ORPHAN)
            gc.freeze()  # what the parent left as garbage must not be collected here: it closes by number
            asyncio._set_running_loop(None)
            asyncio.set_event_loop(None)
            for signo in HANDLED:
                set_handler(signo, SIG_DFL)
            code = run()
        except BaseException:  # noqa: BLE001 - the edge of the process: nothing may return into the parent's loop
            with suppress(OSError, ValueError):
                traceback.print_exc()
        finally:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
            with suppress(OSError, ValueError):
                sys.stderr.flush()
            os._exit(code)


def unblock() -> None:
    """For a forked process once its handlers stand."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _descriptors() -> list[int]:
    return [int(path.name) for path in Path("/proc/self/fd").iterdir()]
