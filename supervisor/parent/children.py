"""The children: started, woken, reaped, restarted, drained. One loop with one wait."""

import asyncio
import os
import signal
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from supervisor.child.main import main, prepare
from supervisor.config import Settings
from supervisor.log import log
from supervisor.parent.child_process import ChildProcess, Ended, Event
from supervisor.parent.forking import Forker
from supervisor.parent.helper import Helpers
from supervisor.schedule import Scheduled
from supervisor.scoreboard import Doing, Phase, Scoreboard
from supervisor.titles import set_title
from supervisor.worker import Worker, boottime

_LOOK_EVERY = 1.0  # seconds, at the latest: turns, deadlines, the parent's own


class Children:
    def __init__(
        self,
        settings: Settings,
        workers: Sequence[Worker],
        board: Scoreboard,
        forker: Forker,
        helpers: Helpers,
        schedule: Sequence[Scheduled] = (),
    ) -> None:
        self.settings, self.board, self._forker, self._helpers = settings, board, forker, helpers
        self.all = [ChildProcess(worker, board.slot(i), settings.limits) for i, worker in enumerate(workers)]
        self._given = {
            child.queue: prepare(settings, child.worker, schedule, board.header, child.slot) for child in self.all
        }
        self._by_queue = {child.queue: child for child in self.all}
        self._look = asyncio.Event()
        self._drain_since: float | None = None
        self.forced = False  # children were killed to end the drain
        self._title = ""

    async def run(self) -> None:
        """Until every child has stopped, which takes a drain."""
        while not all(child.phase is Phase.STOPPED for child in self.all):
            now = boottime()
            self.board.header.turned = now
            self.reap()  # also unasked: a full self-pipe loses a SIGCHLD
            self._start_due(now)
            self._note_ready()
            self._kill_overdue(now)
            self._show()
            await self._wait(self._next_due(now))

    # --- asked by others

    def look(self) -> None:
        """Something happened to a child: turn the loop."""
        self._look.set()

    def find(self, queue: str) -> ChildProcess | None:
        return self._by_queue.get(queue)

    def wake(self, queue: str) -> None:
        """A job was enqueued. A standby must not look: it would connect for nothing."""
        child = self._by_queue.get(queue)
        if child is not None and child.doing is not Doing.STANDBY:
            child.wake()

    def wake_all(self) -> None:
        for queue in self._by_queue:
            self.wake(queue)

    def wake_standby(self, queue: str) -> None:
        """The lease is free."""
        child = self._by_queue.get(queue)
        if child is not None and child.doing is Doing.STANDBY:
            child.wake()

    def note_timeouts(self, shown: Mapping[str, float]) -> None:
        """Remember the largest job_timeout that a session of each queue has shown."""
        for child in self.all:
            child.slot.parent.timeout = max(child.slot.parent.timeout, shown.get(child.queue, 0.0))

    def standing_by(self) -> list[str]:
        return [child.queue for child in self.all if child.doing is Doing.STANDBY and child.pid]

    def all_up(self) -> bool:
        """Each queue works, stands by, or has failed and is being restarted: the boot is over."""
        return all(child.failed_once or child.doing not in (Doing.STARTING, Doing.CONNECTING) for child in self.all)

    def drain(self) -> None:
        """No further start and no further claim."""
        if self._drain_since is not None:
            return
        self._drain_since = boottime()
        self.board.header.draining = 1
        for child in self.all:
            if child.phase is not Phase.STOPPED:
                child.move(Event.DRAIN)
                child.signal(signal.SIGTERM)
        self.look()

    def force(self, why: str) -> None:
        """End the drain now: kill what is left. Its rows are for the caller to end."""
        for child in self.all:
            if child.pid:
                self.forced = True
                child.kill(why)

    def left_jobs(self) -> list[ChildProcess]:
        """Dead children whose slots show a job that nobody has ended."""
        return [child for child in self.all if not child.pid and child.shows_job()]

    def reap(self) -> None:
        """Reap every process that has ended: children, helpers, and strangers that PID 1 adopts."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            pid = ended.si_pid
            child = next((child for child in self.all if child.pid == pid), None)
            if child is not None:
                # While the zombie holds its number nobody else can have it: nothing of its group may outlive it.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            if child is not None:
                self._ended(child, os.waitstatus_to_exitcode(status))
            else:
                self._helpers.exited(pid, status)

    # --- the loop's steps

    def _ended(self, child: ChildProcess, exit_code: int) -> None:
        job = child.slot.child.running
        if child.socket is not None:
            asyncio.get_running_loop().remove_reader(child.socket)
        ended = child.exited(exit_code, boottime())
        stopped = child.phase is Phase.STOPPED
        if ended is Ended.REPLACED and not stopped:
            log.info("queue %s: process finished, replaced", child.queue)
        elif ended is not Ended.REPLACED and not (stopped and child.killed_for):
            self._tell_of(child, ended, job)  # but not of one that the drain has killed
        self.look()

    def _tell_of(self, child: ChildProcess, ended: Ended, job: int) -> None:
        """One event for each job that reached its deadline so, and one for a streak of deaths."""
        if ended is Ended.DEADLINE:
            text = f"queue {child.queue}: process killed at its job's deadline and grace"
        else:
            text = f"queue {child.queue}: process ended: {child.slot.parent.cause.decode()}"
        if ended is Ended.DEATH and len(child.deaths) > 1:
            log.error("%s (%d deaths)", text, len(child.deaths))
            return
        name = child.slot.child.name.decode() if job else ""
        self._helpers.report(text, queue=child.queue, job=name, id=str(job) if job else "")

    def _start_due(self, now: float) -> None:
        due = [child for child in self.all if child.phase is Phase.BACKOFF and child.starts_at <= now]
        starts = [(child, *socket.socketpair()) for child in due]
        for child in due:
            child.about_to_start()
        pids = self._forker.fork_each(
            [(partial(main, self._given[child.queue], its), (its.fileno(),)) for child, _, its in starts]
        )
        for (child, ours, its), pid in zip(starts, pids, strict=True):
            its.close()
            if isinstance(pid, OSError):
                ours.close()
                child.starts_at = boottime() + 1.0
                self._helpers.report(f"queue {child.queue}: fork failed: {pid}", pid, queue=child.queue)
                continue
            ours.setblocking(False)
            child.started(pid, ours)
            asyncio.get_running_loop().add_reader(ours, self._poked, ours)

    def _poked(self, end: socket.socket) -> None:
        """A child asks for a look, or has closed its end."""
        try:
            if not end.recv(4096):
                asyncio.get_running_loop().remove_reader(end)
        except OSError:
            asyncio.get_running_loop().remove_reader(end)
        self.look()

    def _note_ready(self) -> None:
        for child in self.all:
            if child.phase is Phase.STARTING and child.has_started():
                child.move(Event.READY)

    def _kill_overdue(self, now: float) -> None:
        limits, timeout = self.settings.limits, self.settings.drain_timeout
        draining = now - self._drain_since if self._drain_since is not None else None
        for child in self.all:
            if not child.pid or child.killed_for:
                continue
            why = child.overdue(now)
            if draining is not None and not why:
                past_deadline = now > child.slot.child.deadline + limits.grace
                if timeout is not None and draining > timeout:
                    why = f"drain timeout of {timeout:g}s"
                elif (
                    not child.shows_job()
                    and now - max(self._drain_since or now, child.slot.child.turned) > limits.drain_idle
                ):
                    why = "no job, and no exit within a second of the drain"
                elif child.shows_job() and past_deadline and child.doing is not Doing.WORKING:  # that is the kernel's
                    why = "past its deadline in a drain"
                self.forced = self.forced or bool(why and child.shows_job())
            if why:
                log.warning("queue %s: killed: %s", child.queue, why)
                child.kill(why)

    def _next_due(self, now: float) -> float:
        """Seconds until something is due."""
        starts = [child.starts_at - now for child in self.all if child.phase is Phase.BACKOFF]
        return max(0.0, min([_LOOK_EVERY, *starts]))

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._look.wait()
        self._look.clear()

    def _show(self) -> None:
        title = parent_title(self.all, boottime(), draining=self._drain_since is not None)
        if title != self._title:
            set_title(title)
            self._title = title


def parent_title(children: Iterable[ChildProcess], now: float, *, draining: bool) -> str:
    """`parent 9 queues, 1 backing off: slack 8s (exit 3, 4 deaths)`."""
    children = list(children)
    count = f"{len(children)} queue{'s' * (len(children) != 1)}"
    if draining:
        left = [child.queue for child in children if child.phase is not Phase.STOPPED]
        return f"parent {count}, draining: {', '.join(left) or 'done'}"
    waiting = [child for child in children if child.phase is Phase.BACKOFF and child.starts_at > now]
    if not waiting:
        return f"parent {count}"
    shown = ", ".join(
        f"{child.queue} {child.starts_at - now:.0f}s ({child.slot.parent.cause.decode()}, {len(child.deaths)} deaths)"
        for child in waiting
    )
    return f"parent {count}, {len(waiting)} backing off: {shown}"
