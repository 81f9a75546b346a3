"""The life of a child: take the lease, settle what was left, work the queue, wait; until told to stop.

The loop's order is: empty the socket, fetch, work, wait. In any other order a wake is lost.
"""

import math
import random
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg

from supervisor import report
from supervisor.child.deadline import Deadline
from supervisor.child.execution import rest_after
from supervisor.child.poller import Poller
from supervisor.child.process import Process
from supervisor.child.session import Session
from supervisor.child.takeover import Settling, end_predecessor
from supervisor.child.traces import Traces
from supervisor.child.wear import Wear
from supervisor.config import Limits, Settings
from supervisor.log import log
from supervisor.schedule import Scheduled
from supervisor.scoreboard import ChildSlot, Doing, Header, Slot, cut
from supervisor.titles import clock, set_title
from supervisor.worker import Worker, boottime

_STANDBY_TURN = 30.0  # seconds: a standby shows that it turns; its parent watches the lease
_LAST_FLUSH = 0.5  # seconds for events at the very end: well below what a drain gives an idle child
_SHORT_REST = 1.0  # seconds: a shorter rest gets no title of its own


@dataclass(frozen=True, slots=True)
class Given:
    """What the parent hands to each child of a queue: data, its slot, and what can be made once, before the forks."""

    worker: Worker
    session: Session  # not opened
    traces: Traces | None
    limits: Limits
    header: Header
    slot: Slot


def prepare(settings: Settings, worker: Worker, schedule: Sequence[Scheduled], header: Header, slot: Slot) -> Given:
    """In the parent, once for all children of the queue: what each of them made itself would be no shared memory."""
    return Given(
        worker,
        Session(settings.url, worker.queue, worker.job_timeout, settings.host),
        Traces(worker, schedule, settings.limits.grace) if report.tracing() else None,
        settings.limits,
        header,
        slot,
    )


def main(given: Given, parent: socket.socket) -> int:
    """Run the child to its end; its exit code. Called in the forked process, signals blocked."""
    return Child(given, parent).run()


class Child:
    def __init__(self, given: Given, parent: socket.socket) -> None:
        self.worker, self.limits = given.worker, given.limits
        self.queue = given.worker.queue
        self.slot = ChildSlot(given.slot)
        self.deadline = Deadline(given.limits.grace)
        self.session = given.session
        self.session.late = self.deadline.disarm  # no limit holds while a job's end is recorded
        self.process = Process(parent, self.deadline, self.session)
        self.wear = Wear(self.worker.max_jobs, self.worker.max_rss)
        self.settling = Settling(self.worker, self.session, self.slot, given.header, self.limits)
        self.poller = Poller(
            self.worker,
            self.session,
            slot=self.slot,
            deadline=self.deadline,
            hooks=self,
            limits=self.limits,
            traces=given.traces,
        )
        show = self.slot.trouble
        show("")  # a predecessor's
        self.outage = report.Outage(f"queue {self.queue}: database", queue=self.queue, show=show)
        self.outage.since = self.slot.part.away or None  # a predecessor has told of it
        self.faults = report.Outage(f"queue {self.queue}: fetch or claim", queue=self.queue, show=show)
        self._backoff = 0.0
        self._paused = ""  # whose pause was told last

    # --- the poller's hooks

    def stopping(self) -> bool:
        return self.process.stop or self.wear.out

    def after_handler(self) -> None:
        self.process.after_handler()
        self.wear.job_done()

    # --- the loop

    def run(self) -> int:
        self.show(Doing.CONNECTING, "starting")
        while not self.done():
            try:
                self.serve()
            except psycopg.Error as error:
                self.lost(error)
        self.show(Doing.STOPPING, "stopping")
        if self.process.stop:
            self.slot.rest(0.0, "", paused=False)  # a person's stop ends a pause; a crash does not
        try:
            self.session.release()
        except psycopg.Error:
            self.session.drop()  # with its session the lease is gone too
        report.flush(_LAST_FLUSH, last=True)
        return 0

    def done(self) -> bool:
        return self.stopping() or self.poller.timed_out

    def serve(self) -> None:
        """From a session to the end of it. Raises psycopg.Error; returns when stopping, or to take the lease anew."""
        end_predecessor(self.session, self.slot)
        if not self.session.take_lease(self.slot.part.backend):
            self.stand_by()
            return
        self.slot.part.backend = self.session.pgconn.backend_pid
        self.recovered()
        self.wear.ready()
        while id := self.settling.settle(self.wait_for_others):
            self.run_again(id)
        self.keep_the_rate()
        while self.session.leased and not self.done():
            self.turn()

    def turn(self) -> None:
        """One turn of the loop, under the lease."""
        self.process.empty_socket()
        self.slot.turn(Doing.IDLE, boottime(), boottime())
        try:
            ids = self.poller.fetch()
            self.poller.work(ids)
        except psycopg.Error as error:
            if self.session.lost(error):
                raise
            self.slot.mean_to_claim(0)  # nothing was claimed: the statement failed
            self.faults.failed(error)
            self.wait(1.0, Doing.IDLE)
            return
        self.faults.over()
        self.rest()
        if not ids and self.session.leased and not self.done():
            self.idle()

    def idle(self) -> None:
        """Nothing is to be done before a wake, or the next poll."""
        pause, doing, text, until = self.poller.pause, Doing.IDLE, "idle", math.inf
        if pause:
            doing, until = Doing.PAUSED, pause.until
            end = "" if until == math.inf else f" until {clock(until, '%H:%M')}"
            text = f"paused{end} ({pause.whose})"
            self.slot.wait_for(pause.whose, until)
        whose = pause.whose if pause else ""
        if whose != self._paused:
            self._paused = whose
            log.warning("queue %s %s", self.queue, text if pause else "is paused no more")
        self.show(doing, text)
        self.wait(min(self.worker.poll_interval, max(0.0, until - boottime())), doing, wakes=True)

    def stand_by(self) -> None:
        """Another host holds the lease. Hold no session; the parent watches and wakes."""
        holder = self.session.holder()
        self.session.drop()
        self.recovered()
        self.slot.part.holder = cut(holder, 128)
        self.show(Doing.STANDBY, f"standby (lease: {holder})")
        woken = False
        while not woken and not self.done():
            self.wait(_STANDBY_TURN, Doing.STANDBY, wakes=True)
            woken = self.process.empty_socket()

    def run_again(self, id: int) -> None:
        """Run a row whose claim was committed and whose handler never began."""
        if claimed := self.poller.resume(id):
            result, _ = self.poller.run(claimed)
            self.poller.finalize(claimed, result)
            self.rest()

    def keep_the_rate(self) -> None:
        """Rest what is left of the last job's rest, whichever process ran it: a deploy must not break the rate."""
        rows = self.session.ask("last_finished", queue=self.queue)
        if rows and self.worker.throttle is not None:
            [(status, ago, elapsed)] = rows
            owed = rest_after(self.worker.throttle, status, None, elapsed)
            until = boottime() + owed.seconds - ago
            if until > self.slot.part.until:  # else the slot knows more: a pause, or what a vendor asked for
                self.slot.rest(until, owed.reason, paused=False)
        self.rest()

    def rest(self) -> None:
        """Claim nothing until the slot's rest is over, the lease kept. What is left of it outlives this process."""
        part = self.slot.part
        seconds = part.until - boottime()
        if seconds <= 0 or self.done():
            return
        doing = Doing.PAUSED if part.paused else Doing.RESTING
        reason = part.reason.decode("utf-8", "replace")
        if seconds > _SHORT_REST:
            until = clock(part.until, "%H:%M" if part.paused else "%H:%M:%S")
            self.show(doing, f"{doing.name.lower()} until {until} ({reason})")
            if part.paused:
                log.warning("queue %s paused until %s (%s); `kill` its process to end it", self.queue, until, reason)
        while self.session.leased and not self.done() and (left := part.until - boottime()) > 0:
            self.wait(left, doing)

    def wait_for_others(self, seconds: float, id: int, until: float) -> bool:
        what = f"job {id}, which another host may be running"
        self.slot.wait_for(what, until)
        self.show(Doing.SETTLING, f"waits until {clock(until)} for {what}")
        self.wait(seconds, Doing.SETTLING)
        return self.session.leased and not self.done()

    def wait(self, seconds: float, doing: Doing, *, wakes: bool = False) -> None:
        """Wait; drop the session if it is lost meanwhile."""
        now = boottime()
        self.slot.turn(doing, now, now + seconds)
        if self.process.wait(seconds, self.session.fileno(), wakes=wakes):
            self.session.drop()  # do not ask it: whatever it has to say, it is not the answer to a question

    def lost(self, error: psycopg.Error) -> None:
        """No database, or no such session any more. Wait a little, longer each time, up to 2 s."""
        if self._backoff or not self.session.lost(error):
            self.outage.failed(error)  # a lost session that the first try finds again is no fault
            self.slot.part.away = self.outage.since or 0.0
            self.show(Doing.CONNECTING, "waiting for the database")
        self.session.drop()
        self.wait(self._backoff * random.uniform(0.75, 1.0), Doing.CONNECTING)
        self._backoff = min(2.0, self._backoff * 2 or 0.1)

    def recovered(self) -> None:
        self.outage.over()
        self.slot.part.away = 0.0
        self._backoff = 0.0

    def show(self, doing: Doing, text: str) -> None:
        """Tell `ps`, the scoreboard and the parent."""
        changed = self.slot.part.doing != doing
        self.slot.part.doing = doing
        set_title(f"{self.queue} {text}")
        if changed:
            self.process.poke_parent()
