"""Handlers that take their time, and let themselves be interrupted."""

import time

import msgspec

from supervisor import DB, Context, Worker
from tests.support.queues.settings import JOB_TIMEOUT, POLL_INTERVAL


class Seconds(msgspec.Struct):
    seconds: float = 0.0


def new_worker(db: DB) -> Worker:
    return Worker(
        queue="sleeps",
        handlers={"sleeps.Sleep": sleep, "sleeps.Forever": forever},
        job_timeout=JOB_TIMEOUT,
        poll_interval=POLL_INTERVAL,
    )


def sleep(ctx: Context, args: Seconds) -> str:
    time.sleep(args.seconds)
    return "ok"


def forever(ctx: Context, args: Seconds) -> str:
    time.sleep(86_400)
    return "ok"
