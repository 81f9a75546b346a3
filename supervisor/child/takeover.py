"""What a child does before it may claim: end its predecessor's row, and settle rows left `started`.

The rule itself is lease.verdict; here are its looks at the database and its waits.
"""

import math
from collections.abc import Callable

import psycopg

from supervisor import lease, log
from supervisor import status as statuses
from supervisor.child.session import Session
from supervisor.config import Limits
from supervisor.lease import Verdict, Witness
from supervisor.scoreboard import ChildSlot, Header
from supervisor.worker import Worker, boottime

_LOOK_EVERY = 0.5  # seconds


def end_predecessor(session: Session, slot: ChildSlot) -> None:
    """End the row that the queue's last child on this host ran, if its slot shows one. Raises psycopg.Error.

    With the status that it was about to record, else with the cause of its death. A mere intent to claim
    is left to settle(), under the lease.
    """
    part = slot.part
    if not part.running:
        return
    cause = slot.slot.parent.interrupted.decode("utf-8", "replace") or statuses.interrupted()
    status = part.result.decode("utf-8", "replace") if part.ended else cause
    try:
        ended = lease.interrupt(session.ask, part.running, status)
    except (psycopg.DataError, psycopg.IntegrityError):
        status = statuses.UNSTORABLE
        ended = lease.interrupt(session.ask, part.running, status)
    if ended:
        log.fields({"queue": session.queue, "job": part.name.decode(), "id": part.running, "status": status})
    slot.settled()


class Settling:
    """The rows that a new holder of the lease finds `started`: whose are they?"""

    def __init__(self, worker: Worker, session: Session, slot: ChildSlot, header: Header, limits: Limits) -> None:
        self.worker, self.session, self.slot, self.header, self.limits = worker, session, slot, header, limits
        self._met_at = 0.0  # by this child's own looks

    def settle(self, wait: Callable[[float, int, float], bool]) -> int:
        """Wait and interrupt until no row is left; the id of a row to run, 0 for none. Raises psycopg.Error.

        `wait(seconds, id, until)` lets time pass, for a row that will be interrupted at the moment `until` on
        boottime() if it has not ended by then, and says whether to go on.
        """
        began = boottime()
        while left := lease.left_started(self.session.ask, self.worker.queue):
            waiting = list[lease.Left]()
            sessions = self._look()
            witness = self._witness()
            timeout = self._largest_timeout(sessions)
            for row in left:
                decision = lease.verdict(
                    row,
                    intent=self.slot.part.claiming,
                    witness=witness,
                    looked=boottime() - began,
                    settle=self.limits.settle,
                    timeout=timeout,
                    grace=self.limits.grace,
                    now=sessions.now,
                )
                if decision is Verdict.RUN:
                    return row.id
                if decision is Verdict.INTERRUPT:
                    self._interrupt(row.id)
                if decision is Verdict.WAIT:
                    waiting.append(row)
            if waiting and not wait(_LOOK_EVERY, waiting[0].id, self._end_of(waiting[0], timeout, sessions.now, began)):
                return 0
        self.slot.mean_to_claim(0)
        return 0

    def _look(self) -> lease.Sessions:
        sessions = lease.sessions(self.session.ask)
        if sessions.parents - {self.header.token.decode()}:
            self._met_at = sessions.now
        return sessions

    def _largest_timeout(self, sessions: lease.Sessions) -> float:
        shown: float = sessions.timeouts.get(self.worker.queue, 0.0)
        return max(self.worker.job_timeout, float(self.slot.slot.parent.timeout), shown)

    def _end_of(self, row: lease.Left, timeout: float, now: float, began: float) -> float:
        """When the wait for this row will be over, on boottime()."""
        started_at = row.started_at or now
        if lease.alone(started_at, self._witness()):
            return began + self.limits.settle
        return boottime() + lease.row_deadline(started_at, timeout, self.limits.grace) - now

    def _witness(self) -> Witness:
        header = self.header
        return Witness(header.booted_at, max(header.met_at, self._met_at), header.listening_since or math.inf)

    def _interrupt(self, id: int) -> None:
        status = statuses.interrupted()
        if lease.interrupt(self.session.ask, id, status):
            log.fields({"queue": self.worker.queue, "id": id, "status": status})
