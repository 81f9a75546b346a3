"""Queues whose jobs write down when they began and ended; tests/support/ledger.py reads it."""

import os
import socket
import time
from collections.abc import Callable
from functools import partial

import msgspec

from supervisor import DB, Context, Worker
from tests.support.queues.settings import JOB_TIMEOUT, POLL_INTERVAL

QUEUES = ("ledger", "ledger-b", "ledger-c", "ledger-d")


class Append(msgspec.Struct):
    seconds: float = 0.0


def new_worker(db: DB, queue: str) -> Worker:
    return Worker(
        queue=queue,
        handlers={"ledger.Append": partial(append, db=db)},
        job_timeout=JOB_TIMEOUT,
        poll_interval=POLL_INTERVAL,
    )


new_workers: list[Callable[[DB], Worker]] = [partial(new_worker, queue=queue) for queue in QUEUES]


def append(ctx: Context, args: Append, *, db: DB) -> str:
    with db.connection() as connection:
        run = connection.execute(
            "INSERT INTO ledger (queue, id, host, pid) VALUES (%s, %s, %s, %s) RETURNING run",
            (ctx.job.queue, ctx.job.id, os.environ.get("HOSTNAME") or socket.gethostname(), os.getpid()),
        ).fetchone()
    assert run is not None
    time.sleep(args.seconds)
    with db.connection() as connection:
        connection.execute("UPDATE ledger SET ended = clock_timestamp() WHERE run = %s", run)
    return "ok"
