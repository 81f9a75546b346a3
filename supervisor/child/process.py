"""What a forked child owns as a process: its signals, its socket to the parent, and its one wait.

Handlers of jobs may change any of it; after_handler() puts it right after each of them.
"""

import os
import select
import signal
import socket
import sys
from _signal import (  # type: ignore[import-not-found]  # signal's own make enums: ten times the time
    getsignal,
    pthread_sigmask,
)
from _signal import signal as set_handler
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from supervisor import log
from supervisor.child.deadline import Deadline
from supervisor.child.descriptors import are_the_same, identity
from supervisor.child.session import Session

_LONGEST_WAIT = 86_400.0  # seconds: poll() counts milliseconds in an int; whoever waits longer waits again
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
EXIT_DESCRIPTORS = 70  # a job's handler closed descriptors that are the child's; its row is ended from the slot


class Process:
    """This process's signals and descriptors. `stop` is set by SIGTERM, SIGINT or SIGHUP: finish the job, then exit."""

    def __init__(self, parent: socket.socket, deadline: Deadline, session: Session) -> None:
        self.stop = False
        self._parent, self._deadline, self._session = parent, deadline, session
        # The C-level handler writes here, so that a signal that arrives just before the wait ends the wait.
        self._signalled, self._wakeup_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._standard = select.poll()
        for fd in (1, 2):
            if identity(fd)[1]:
                self._standard.register(fd, 0)
        self._own = [identity(fd) for fd in (parent.fileno(), self._signalled, self._wakeup_fd)]
        self._all = [*self._own, *(identity(fd) for fd in (0, 1, 2, *log.descriptors()))]
        self._handled = True  # a handler has run since the last wait
        self._mask: set[int] = set()  # what was blocked before a handler's fork
        self._streams = sys.stdout, sys.stderr
        self._handlers: list[tuple[int, Callable[[int, FrameType | None], object]]] = [
            *((signo, self._record) for signo in _STOP_SIGNALS),
            (signal.SIGALRM, deadline.on_alarm),
        ]
        parent.setblocking(False)
        os.register_at_fork(before=self._block, after_in_parent=self._unblock, after_in_child=self._give_up)
        self.stand()

    def stand(self) -> None:
        """(Re)establish this process's signal handlers and mask."""
        for signo, handler in self._handlers:
            if getsignal(signo) is not handler:  # asking is ten times as quick as setting
                set_handler(signo, handler)
        self._deadline.stand()
        if pthread_sigmask(signal.SIG_BLOCK, ()):
            pthread_sigmask(signal.SIG_SETMASK, ())

    def _block(self) -> None:
        # A SIGTERM right after a handler's fork would be taken by _record, and be lost when that is taken away.
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signo for signo, _ in self._handlers])

    def _unblock(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def _give_up(self) -> None:
        """In a process that a job's handler forks: nothing of the engine's is its own.

        It ends by SIGTERM like any other, and must not hold the lease's session open when this one is gone.
        Once: in its own forks the numbers are other files', the signal handlers its own; so are those here that
        the job's handler has set or reused.
        """
        if self._handlers:
            signal.set_wakeup_fd(-1)
            for fd, inode in (*self._own, self._session.socket):
                if inode and are_the_same((fd, inode)):
                    os.close(fd)
        for signo, handler in self._handlers:
            if getsignal(signo) is handler:
                signal.signal(signo, signal.SIG_DFL)
        self._parent.detach()
        self._handlers = []
        self._unblock()

    def _record(self, signo: int, frame: FrameType | None) -> None:
        self.stop = True

    def after_handler(self) -> None:
        """Undo what a job's handler may have done to this process, or leave it.

        Where the handler closed our descriptors, their numbers may by now be other files': nothing can be
        written safely, so the replacement ends the row, from the slot. Here is looked at what would harm at once,
        the session and what the next handler prints to; at the rest before the next wait.
        """
        sys.stdout, sys.stderr = self._streams
        if not are_the_same(self._session.socket) or self._prints_nowhere():
            os._exit(EXIT_DESCRIPTORS)
        self.stand()
        self._handled = True

    def _prints_nowhere(self) -> bool:
        if any(event & select.POLLNVAL for _, event in self._standard.poll(0)):
            return True
        return any(stream is not None and stream.closed for stream in self._streams)  # its descriptor is open still

    def _before_wait(self) -> None:
        if self._handled:
            if not are_the_same(*self._all):
                os._exit(EXIT_DESCRIPTORS)
            signal.set_wakeup_fd(self._wakeup_fd, warn_on_full_buffer=False)
            self._handled = False

    def empty_socket(self) -> bool:
        """Take the wakes that have arrived; whether there were any. Ends the process when the parent is gone."""
        self._before_wait()
        try:
            taken = self._parent.recv(4096)  # more than the socket holds of single bytes
        except BlockingIOError:
            return False
        if not taken:
            os._exit(1)
        return True

    def poke_parent(self) -> None:
        """Ask the parent to look at the slot."""
        with suppress(OSError):  # full: it has been asked already
            self._parent.send(b".")

    def wait(self, seconds: float, session: int, *, wakes: bool) -> bool:
        """Until a signal, `seconds`, a wake (if `wakes`), or something on the idle session; whether it was that.

        One wait with one deadline. The session of an idle child has nothing to say but that it is lost.
        """
        self._before_wait()
        if self.stop:
            return False
        poll = select.poll()
        poll.register(self._signalled, select.POLLIN)
        if wakes:
            poll.register(self._parent, select.POLLIN)
        if session >= 0:
            poll.register(session, select.POLLIN)
        milliseconds = round(min(max(0.0, seconds), _LONGEST_WAIT) * 1000 + 0.5)
        ready = {fd for fd, _ in poll.poll(milliseconds)}
        if self._signalled in ready:
            os.read(self._signalled, 4096)
        return session in ready
