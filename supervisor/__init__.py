"""Paceline: single-file job queues on Postgres, run by a process supervisor.

One table, `jobs`. A parent process (supervisor/parent/) forks one child per queue (supervisor/child/).
The child takes the queue's lease, an advisory lock on its one connection, and then: empty the socket,
fetch, and for each job claim, dispatch, finalize, rest. The parent restarts children, wakes them (LISTEN),
sweeps stale rows and ticks the clock; it has one thread and never blocks. Both write the scoreboard, a
shared memory that outlives either, so that a row's true status survives the process that found it.

The rooms: parent/ and child/ never import each other (but for the child's main); worker, enqueue, status,
errors and schedule are what queue packages and callers use, and are public from here; db, lease,
scoreboard, report and titles serve both kinds of process; sql/ holds one statement per file; schema says what
the table must be, migrate makes it so. For people: cli and commands, overview (`status`), operate (which asks
parents through control); view puts a scoreboard into words. web/ (probes, metrics) is imported in its own
process only, check/ by its command, testing by tests.
"""

from supervisor.child.poller import Poller
from supervisor.db import DB
from supervisor.enqueue import insert, insert_async, insert_many
from supervisor.errors import BadArgs, JobTimeout, RateLimited, TokenRefused, UnexpectedStatus
from supervisor.schedule import Scheduled
from supervisor.status import OUTCOME_SQL, fail, outcome, skip
from supervisor.worker import Context, Job, Worker, per_minute

__all__ = [
    "DB",
    "OUTCOME_SQL",
    "BadArgs",
    "Context",
    "Job",
    "JobTimeout",
    "Poller",
    "RateLimited",
    "Scheduled",
    "TokenRefused",
    "UnexpectedStatus",
    "Worker",
    "fail",
    "insert",
    "insert_async",
    "insert_many",
    "outcome",
    "per_minute",
    "skip",
]
