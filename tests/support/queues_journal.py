"""Queues whose jobs write down in a file when they began and ended; tests/support/journal.py reads it."""

import os
import time
from collections.abc import Callable
from functools import partial

import msgspec

from supervisor import DB, Context, Scheduled, Worker
from tests.support import journal
from tests.support.queues import crash, ledger, quick
from tests.support.queues.settings import JOB_TIMEOUT, POLL_INTERVAL

QUEUES = ("journal-a", "journal-b", "journal-c")


class Work(msgspec.Struct):
    seconds: float = 0.0
    crash: bool = False  # after `seconds`, instead of an end
    padding: str = ""  # makes the row large


def new_worker(db: DB, queue: str) -> Worker:
    return Worker(queue=queue, handlers={"journal.Work": work}, job_timeout=JOB_TIMEOUT, poll_interval=POLL_INTERVAL)


def work(ctx: Context, args: Work) -> str:
    journal.write(ctx.job.queue, ctx.job.id, "began", time.clock_gettime(time.CLOCK_BOOTTIME))
    time.sleep(args.seconds)
    if args.crash:
        os._exit(3)
    journal.write(ctx.job.queue, ctx.job.id, "ended", time.clock_gettime(time.CLOCK_BOOTTIME))
    return "ok"


registry: list[Callable[[DB], Worker]] = [
    *(partial(new_worker, queue=queue) for queue in QUEUES),
    *ledger.new_workers[:1],
    quick.new_worker,
    crash.new_worker,
]
schedule: list[Scheduled] = []
