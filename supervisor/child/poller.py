"""The loop that works one queue: fetch, then for each job claim, dispatch, finalize, rest.

It knows nothing of processes, leases and signals: `Hooks` is what it asks of whoever runs it, and
work_once() runs one job in any process.
"""

import math
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import psycopg
from psycopg.rows import TupleRow

from supervisor import log, report
from supervisor import status as statuses
from supervisor.child.deadline import Deadline, NoDeadline
from supervisor.child.execution import NO_REST, Claimed, Execution, Rest, Result, rest_after
from supervisor.child.session import Session
from supervisor.child.traces import Traces
from supervisor.config import Limits
from supervisor.db import DB, refuse_read_only
from supervisor.errors import RateLimited
from supervisor.scoreboard import ChildSlot, Slot
from supervisor.titles import set_title
from supervisor.worker import Job, Worker, boottime

_REDATE = 1.0  # seconds: a claim that took longer is dated anew before its handler begins
_RETRIES = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0)  # seconds before each further try to finalize; the last one repeats


@dataclass(frozen=True, slots=True)
class Pause:
    """An operator's."""

    until: float  # on boottime(); inf: until it is resumed
    whose: str  # `by anna: the vendor is down`


class Hooks(Protocol):
    """What the poller asks of the process that it runs in."""

    def stopping(self) -> bool:
        """No further claim may be sent."""

    def after_handler(self) -> None:
        """A handler has run: it may have changed anything in this process."""


class NoHooks:
    """A process that is nobody's child: a test's."""

    def stopping(self) -> bool:
        return False

    def after_handler(self) -> None: ...


class Poller:
    """Works the queue of `worker`. `Poller(worker, db).work_once()` runs one job here and now, for a test."""

    def __init__(
        self,
        worker: Worker,
        db: DB | Session,
        *,
        slot: ChildSlot | None = None,
        deadline: Deadline | None = None,
        hooks: Hooks | None = None,
        limits: Limits | None = None,
        traces: Traces | None = None,
    ) -> None:
        self.worker = worker
        self.session = db if isinstance(db, Session) else Session(db.url, worker.queue, worker.job_timeout, "work_once")
        self.slot = slot or ChildSlot(Slot())
        self.execution = Execution(worker, deadline or NoDeadline())
        self.hooks: Hooks = hooks or NoHooks()
        self.limits = limits or Limits()
        self.traces = traces
        self.finalizing = report.Outage(f"queue {worker.queue}: finalize", queue=worker.queue, show=self.slot.trouble)
        self._rate_limited = False  # the last job ended so: one event for a run of them
        self.pause: Pause | None = None  # as of the last fetch
        self.timed_out = False  # a deadline was raised in this process, which leaves pools and locks in doubt

    def work_once(self, id: int = 0) -> str | None:
        """Run the oldest pending job, or `id`, to its end, without lease, deadline or rest: its status, None for none.

        An error's stack is logged. Raises psycopg.Error. Closes its session.
        """
        try:
            for pending in [id] if id else self.fetch():
                if claimed := self.claim(pending):
                    result = self.execution.dispatch(claimed)
                    if result.error is not None:
                        log.log.error("%s id=%d", claimed.job.name, claimed.job.id, exc_info=result.error)
                    self.finalize(claimed, result)
                    return result.status
            return None
        finally:
            self.session.drop()

    def work(self, ids: Iterable[int]) -> None:
        """Run these jobs in order, until one asks for a rest, the batch is no longer fresh, or no claim may be sent.

        Raises psycopg.Error from a claim: nothing has begun then. A lost session ends it too.
        """
        try:
            self._work(deque(ids), boottime() + self.limits.fresh)
        finally:
            self.execution.deadline.disarm()

    def _work(self, queue: deque[int], stale: float) -> None:
        while queue and not self.hooks.stopping() and boottime() < stale:
            claimed = self.claim(queue.popleft())
            while claimed:
                result, rest = self.run(claimed)
                more = queue and not self.hooks.stopping() and boottime() < stale
                following = queue.popleft() if more and not rest.seconds and not self.timed_out else 0
                claimed = self.finalize(claimed, result, following)
                if rest.seconds > 0 or self.timed_out or not self.session.leased:
                    return
                if following and not claimed:
                    return  # locked or gone: the order is looked at anew, so that nothing passes a row by

    def fetch(self) -> list[int]:
        """The ids of the oldest pending rows, in order; none while an operator's pause lasts, see `pause`."""
        fetched = self.session.execute("fetch", queue=self.worker.queue, limit=self.limits.batch)
        refuse_read_only(self.session.pgconn)
        [(ids, seconds, whose)] = fetched
        self.pause = Pause(math.inf if seconds is None else boottime() + seconds, whose) if whose else None
        return [int(id) for id in ids.split()]

    def claim(self, id: int) -> Claimed | None:
        """Make the row this process's own; None where it is no longer pending."""
        self.slot.mean_to_claim(id)
        sent = boottime()
        return self._claimed(self.session.execute("claim", id=id), sent)

    def resume(self, id: int) -> Claimed | None:
        """Date a claim anew: one that took long, or whose handler never began; None where the row has ended."""
        sent = boottime()
        return self._claimed(self.session.execute("resume", id=id), sent)

    def _claimed(self, rows: list[TupleRow], sent: float) -> Claimed | None:
        if not rows:
            self.slot.mean_to_claim(0)
            return None
        [(id, name, args, callsite, created_at, latency)] = rows
        if boottime() - sent > _REDATE:
            try:
                return self.resume(id)
            except psycopg.Error as error:
                if self.session.lost(error):
                    raise  # else it runs as it is dated: its deadline counts from before that
        job = Job(id, self.worker.queue, name, datetime.fromtimestamp(created_at, UTC), callsite)
        return Claimed(job, args or "{}", latency, sent + self.worker.job_timeout)

    def run(self, claimed: Claimed) -> tuple[Result, Rest]:
        if self.traces is None:
            return self._run(claimed)
        with self.traces.process(claimed) as ended:
            result, rest = self._run(claimed)
            ended(result)
        return result, rest

    def _run(self, claimed: Claimed) -> tuple[Result, Rest]:
        """Dispatch, and tell of a fault. The slot knows the result, and the rest, before anything else is done."""
        job = claimed.job
        self.slot.begin(job.id, job.name, claimed.deadline - self.worker.job_timeout, claimed.deadline)
        set_title(f"{job.queue} {job.name} id={job.id}")
        result = self.execution.dispatch(claimed)
        rest = NO_REST
        if result.error is not None or self.worker.throttle is not None:
            self.execution.deadline.disarm()  # what is done now may take its time
        if result.error is not None:
            # A vendor's refusal is noted before the end, so that no death can lose it; the throttle, which is the
            # user's code and may be that death, is asked after.
            rest = self._noted(rest_after(None, result.status, result.error, result.elapsed))
        self.slot.end(result.status)
        if self.worker.throttle is not None and not rest.seconds:
            rest = self._noted(rest_after(self.worker.throttle, result.status, result.error, result.elapsed))
        self.hooks.after_handler()
        self.timed_out = self.timed_out or result.timed_out
        if result.error is not None:
            self._report(job, result)
        else:
            self._rate_limited = False
        return result, rest

    def _noted(self, rest: Rest) -> Rest:
        if rest.seconds > 0:
            self.slot.rest(boottime() + rest.seconds, rest.reason, paused=rest.paused)
        return rest

    def _report(self, job: Job, result: Result) -> None:
        again = self._rate_limited and isinstance(result.error, RateLimited)
        self._rate_limited = isinstance(result.error, RateLimited)
        if not again:
            text = f"{job.queue} {job.name} id={job.id}: {result.status.removeprefix('err: ')}"
            report.fault(text, result.error, queue=job.queue, job=job.name, id=job.id)

    def finalize(self, claimed: Claimed, result: Result, following: int = 0) -> Claimed | None:
        """Record the true status, whatever it takes; with it claim the row `following`, and return that.

        A lost connection is tried again at once on a new one, which carries the finalize only: whether the
        claim that travelled with it was carried out is for the next holder of the lease to find. Everything
        but a data error is tried until the database answers, one event for all. With a claim, the log line is
        written while the server commits.
        """
        job, status, told = claimed.job, result.status, ""

        def tell() -> None:
            nonlocal told
            if not told:
                self.slot.count(statuses.outcome(status), claimed.latency, result.elapsed)
            told = status
            log.job(job.queue, job.name, job.id, status, claimed.latency, result.elapsed)

        following = following if self.session.leased else 0  # a claim can only happen under the lease
        self.slot.mean_to_claim(following)
        for tries in range(1 << 62):
            sent = boottime()
            try:
                if following:
                    rows = self.session.execute("finalize_and_claim", tell, id=job.id, status=status, next=following)
                else:
                    self.execution.deadline.disarm()
                    rows = self.session.execute("finalize", id=job.id, status=status)
                break
            except psycopg.Error as error:
                gone = self.session.lost(error)
                # No fault yet: a lost session, which the next try may find again; a lock, which may be on the next row.
                if tries or not (gone or (following and isinstance(error, psycopg.errors.LockNotAvailable))):
                    self.finalizing.failed(error)
                if gone:
                    self.session.drop()
                else:
                    self.slot.mean_to_claim(0)  # the statement was rolled back
                    if isinstance(error, psycopg.DataError | psycopg.IntegrityError):
                        status = statuses.UNSTORABLE
                following = 0
                time.sleep(_RETRIES[min(tries, len(_RETRIES) - 1)])
        self.finalizing.over()
        self.slot.recorded(boottime())
        if told != status:
            tell()
        return self._claimed(rows, sent) if following else None
