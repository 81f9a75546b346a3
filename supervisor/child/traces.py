"""What Sentry gets of a job beyond its fault, where tracing is on: a span queue.process, and the clock's check-ins.

The span stands in a transaction, as the Queues page wants it; the trace is the job's own, see enqueue.py. Nothing here
waits: the SDK's thread sends, drops what an ingest is too slow for, and gets half a second at the process's end.

A job of the clock's checks in as it begins and ends, so that a monitor tells of an err, and of a process that died.
It tells of a missed one only if it knows the schedule. A predicate is any Python: where its coming year looks like a
crontab, that is sent along and makes the monitor; else the check-ins count once a person has made one of that slug.
"""

import functools
import math
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import sentry_sdk
from sentry_sdk.crons import capture_checkin

from supervisor import report, status
from supervisor.child.execution import Claimed, Result
from supervisor.schedule import Scheduled, crontab, is_of_clock
from supervisor.worker import Worker

if TYPE_CHECKING:
    from sentry_sdk.types import MonitorConfig

_CATCH_UP = 10  # minutes by which the clock may be late
_LONGEST = 28 * 24 * 60  # minutes that a monitor takes
_LONGEST_SLUG = 50


class Traces:
    """Tells Sentry of the jobs of one worker."""

    def __init__(self, worker: Worker, schedule: Sequence[Scheduled], grace: float) -> None:
        self._queue, self._schedule = worker.queue, schedule
        self._job_minutes = math.ceil((worker.job_timeout + grace) / 60)
        self._monitor = functools.cache(self._new_monitor)

    @contextmanager
    def process(self, claimed: Claimed) -> Iterator[Callable[[Result], None]]:
        """Around a job's run; what it yields is to be told the result. A fault reported inside is in the trace."""
        job = claimed.job
        with (
            sentry_sdk.isolation_scope(),  # what a handler sets ends with its job
            sentry_sdk.start_transaction(op="queue.task", name=job.name, source="task") as transaction,
            sentry_sdk.start_span(op="queue.process", name=job.queue) as span,
        ):
            facts = {"message.id": str(job.id), "message.receive.latency": claimed.latency * 1000}
            report.describe(span, job.queue, len(claimed.args.encode()), {**facts, "message.retry.count": 0})
            check_in = self._check_in(job.name, "in_progress") if is_of_clock(job.callsite) else None

            def ended(result: Result) -> None:
                failed = status.outcome(result.status) == "err"
                if check_in:
                    self._check_in(job.name, "error" if failed else "ok", check_in, result.elapsed)
                for part in span, transaction:
                    part.set_status("internal_error" if failed else "ok")
                    # The handler's time, without the wait for a fault's event to leave.
                    part.finish(end_timestamp=span.start_timestamp + timedelta(seconds=result.elapsed))

            yield ended

    def _check_in(self, name: str, status: str, id: str | None = None, duration: float | None = None) -> str | None:
        return capture_checkin(slug(self._queue, name), id, status, duration, self._monitor(name))

    def _new_monitor(self, name: str) -> "MonitorConfig | None":
        entries = [entry for entry in self._schedule if (entry.queue, entry.name) == (self._queue, name)]
        found = crontab(entries, datetime.now(UTC))
        if found is None:
            return None
        return {
            "schedule": {"type": "crontab", "value": found},
            "timezone": "UTC",
            # In minutes. Missed: it has not begun, though the clock is not late and the job before it is over.
            "checkin_margin": min(_LONGEST, _CATCH_UP + self._job_minutes),
            "max_runtime": min(_LONGEST, self._job_minutes),
        }


def slug(queue: str, name: str) -> str:
    """The monitor of a scheduled job: `jobs-clean-up-queues` for jobs.CleanUpQueues in jobs."""
    text = name if name.startswith(f"{queue}.") else f"{queue}.{name}"
    made = re.sub(r"[^a-z0-9_]+", "-", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", text).lower()).strip("-")
    return made if len(made) <= _LONGEST_SLUG else f"{made[: _LONGEST_SLUG - 9]}-{zlib.crc32(text.encode()):08x}"
