"""A child process as its parent sees it: pid, socket, phase, deaths.

The code that runs inside the process is in supervisor/child/.
"""

import os
import signal
import socket
from contextlib import suppress
from enum import Enum, auto

from supervisor import status as statuses
from supervisor.config import Limits
from supervisor.parent.restart import restart_at
from supervisor.scoreboard import Doing, Phase, Slot, cut
from supervisor.worker import Worker, boottime

_LATE = 2.0  # seconds: a parent's loop turns every second


class Event(Enum):
    DUE = auto()  # its start is due
    READY = auto()  # its code runs
    EXITED = auto()
    DRAIN = auto()  # no further start


class Ended(Enum):
    """What the end of a process means."""

    REPLACED = auto()  # drained, restarted by a person, or after a timeout that it recorded itself
    DEADLINE = auto()  # the kernel enforced its job's deadline: the job's fault, no death for the backoff
    DEATH = auto()


# A move that is not here is a bug.
MOVES = {
    (Phase.BACKOFF, Event.DUE): Phase.STARTING,
    (Phase.STARTING, Event.READY): Phase.RUNNING,
    (Phase.STARTING, Event.EXITED): Phase.BACKOFF,
    (Phase.RUNNING, Event.EXITED): Phase.BACKOFF,
    (Phase.BACKOFF, Event.DRAIN): Phase.STOPPED,
    (Phase.STARTING, Event.DRAIN): Phase.DRAINING,
    (Phase.RUNNING, Event.DRAIN): Phase.DRAINING,
    (Phase.DRAINING, Event.READY): Phase.DRAINING,
    (Phase.DRAINING, Event.EXITED): Phase.STOPPED,
}


class ChildProcess:
    """One queue's process, over all its lives."""

    def __init__(self, worker: Worker, slot: Slot, limits: Limits) -> None:
        self.worker, self.slot, self.limits = worker, slot, limits
        self.queue = worker.queue
        self.pid = 0
        self.socket: socket.socket | None = None
        self.deaths: list[float] = []  # without a finished job in between
        self.starts_at = 0.0  # of the next start, while in BACKOFF
        self.killed_for = ""  # why the parent killed it
        self.ended_as = ""  # the status for its row, where an operator has ended its job
        self.failed_once = False  # it has died at least once: the boot need not wait for it
        self._since = self._seen = boottime()
        self._finished_before = 0
        self._enter(Phase.BACKOFF)

    @property
    def phase(self) -> Phase:
        return Phase(self.slot.parent.phase)

    @property
    def doing(self) -> Doing:
        return Doing(self.slot.child.doing)

    def move(self, event: Event) -> None:
        self._enter(MOVES[self.phase, event])

    def _enter(self, phase: Phase) -> None:
        self.slot.parent.phase = phase

    def about_to_start(self) -> None:
        """Before the fork: the turns in the slot are the predecessor's, and the new process counts from now."""
        self._since = self.slot.child.turned = self.slot.child.due = boottime()

    def started(self, pid: int, end: socket.socket) -> None:
        self.pid, self.socket, self.killed_for, self.ended_as = pid, end, "", ""
        self._finished_before = self.slot.child.finished
        self.slot.parent.pid = pid
        self.slot.parent.starts += 1
        self.move(Event.DUE)

    def has_started(self) -> bool:
        """It has shown that its code runs. The slot's doing is the dead predecessor's until then."""
        return self.doing != Doing.STARTING

    def shows_job(self) -> bool:
        return bool(self.slot.child.running)

    def overdue(self, now: float) -> str:
        """Why the child is to be killed now; empty if it is well. No limit holds while it finalizes."""
        self._seen = now
        if self.phase is Phase.STARTING and not self.has_started():
            late = now - self._since > self.limits.boot
            return f"not ready within {self.limits.boot:g}s" if late else ""
        child = self.slot.child
        if self.doing is Doing.FINALIZING and child.running:
            return ""
        if self.doing is Doing.WORKING:  # its kernel kills it before this
            late = now > child.deadline + self.limits.grace + 2
            return "past its deadline" if late else ""
        return f"not turning for {now - child.turned:.0f}s" if now > child.due + self.limits.turn else ""

    def wake(self) -> None:
        """Tell an idle child to look. A full socket holds a wake already."""
        if self.socket is not None:
            with suppress(OSError):
                self.socket.send(b"w")

    def signal(self, signo: int) -> None:
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signo)

    def kill(self, why: str) -> None:
        self.killed_for = why
        self.signal(signal.SIGKILL)

    def end(self, status: str) -> None:
        """An operator ends its job: stop it as at a deadline, `status` being for the row."""
        self.ended_as = status
        self.kill("ended by operator")

    def exited(self, exit_code: int, now: float) -> Ended:
        """Note the end of the process: a death, unless it exits 0 with no job of its own left in its slot."""
        child, parent = self.slot.child, self.slot.parent
        cause = self._cause(exit_code)
        # The slot may still show the job of a predecessor, whose row this process did not live to end.
        its_job = bool(child.running) and child.began >= self._since
        kernel_kill = child.deadline + self.limits.grace  # disarmed at the handler's end
        # A parent that was frozen since before the deadline cannot tell by its own late reaping that it was this kill.
        in_time = self._seen > min(child.deadline, kernel_kill - _LATE)
        if its_job and not child.ended and exit_code == -signal.SIGKILL and now >= kernel_kill and in_time:
            ended = Ended.DEADLINE
            parent.interrupted = cut(statuses.timed_out(self.worker.job_timeout), 256)
        elif its_job and self.ended_as:
            ended = Ended.REPLACED
            parent.interrupted = cut(self.ended_as, 256)
        else:
            ended = Ended.DEATH if exit_code != 0 or its_job else Ended.REPLACED
            if its_job:
                parent.interrupted = cut(statuses.interrupted(cause), 256)
        parent.pid = self.pid = 0
        child.doing = Doing.STARTING
        if self.socket is not None:
            self.socket.close()
            self.socket = None
        if child.finished > self._finished_before or now - self._since > self.limits.spell:
            self.deaths.clear()
        if ended is Ended.DEATH:
            self.failed_once = True
            self.deaths.append(now)
            parent.died += 1
            parent.cause = cut(cause, 128)
        parent.deaths = len(self.deaths)
        self.starts_at = parent.starts_at = restart_at(self.deaths) if ended is Ended.DEATH else now
        self.move(Event.EXITED)
        return ended

    def _cause(self, exit_code: int) -> str:
        if self.killed_for:
            return self.killed_for
        if exit_code >= 0:
            return f"exit {exit_code}"
        try:
            name = signal.Signals(-exit_code).name
        except ValueError:
            name = f"signal {-exit_code}"  # a real-time one
        return f"{name} (out of memory?)" if exit_code == -signal.SIGKILL else name
