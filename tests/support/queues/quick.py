"""Handlers that end at once, in every way that a handler can."""

import logging
from functools import partial
from typing import Any

import msgspec

from supervisor import DB, Context, Worker, fail, insert, skip
from tests.support.queues.settings import JOB_TIMEOUT, POLL_INTERVAL, THROTTLE


class Text(msgspec.Struct):
    text: str


class Follow(msgspec.Struct):
    queue: str
    name: str
    rollback: bool = False


def new_worker(db: DB) -> Worker:
    return Worker(
        queue="quick",
        handlers={
            "quick.Ok": ok,
            "quick.Echo": echo,
            "quick.Fail": failing,
            "quick.Skip": skipping,
            "quick.Raise": raising,
            "quick.RaiseEmpty": raising_empty,
            "quick.Return": returning,
            "quick.Follow": partial(follow, db=db),
            "quick.Log": log,
            "quick.Facts": facts,
        },
        job_timeout=JOB_TIMEOUT,
        poll_interval=POLL_INTERVAL,
    )


def new_deduping_worker(db: DB) -> Worker:
    return Worker(queue="test", handlers={"test.Dedupe": ok}, dedupe={"test.Dedupe"}, poll_interval=POLL_INTERVAL)


def new_clock_worker(db: DB) -> Worker:
    """The queue that the schedule enqueues to."""
    return Worker(queue="clock", handlers={"test.Dedupe": ok}, dedupe={"test.Dedupe"}, poll_interval=POLL_INTERVAL)


def new_paced_worker(db: DB) -> Worker:
    """A queue that rests TEST_THROTTLE seconds after each job."""
    return Worker(queue="paced", handlers={"paced.Ok": ok}, throttle=throttle, poll_interval=POLL_INTERVAL)


def throttle(status: str, error: BaseException | None, elapsed: float) -> float:
    return THROTTLE


def ok(ctx: Context, args: dict[str, Any]) -> str:
    return "ok"


def echo(ctx: Context, args: Text) -> str:
    return args.text


def failing(ctx: Context, args: Text) -> str:
    return fail(args.text)


def skipping(ctx: Context, args: Text) -> str:
    return skip(args.text)


def raising(ctx: Context, args: Text) -> str:
    raise RuntimeError(args.text)


def raising_empty(ctx: Context, args: dict[str, Any]) -> str:
    raise LookupError


def returning(ctx: Context, args: dict[str, Any]) -> Any:
    """args["value"] as it is: null, a number, a list, `pending`."""
    return args["value"]


def follow(ctx: Context, args: Follow, *, db: DB) -> str:
    """Enqueues a follow-up in a transaction of its own, which commits or not."""
    with db.connection() as connection:
        job = insert(connection, args.queue, args.name, {})
        if args.rollback:
            connection.rollback()
    return f"followed by {job}"


def log(ctx: Context, args: Text) -> str:
    """A log record, which is no event by itself."""
    logging.getLogger(__name__).error(args.text)
    return "ok"


def facts(ctx: Context, args: dict[str, Any]) -> str:
    """What the context tells, as text."""
    return f"{ctx.job.id} {ctx.job.queue} {ctx.job.name} {ctx.job.callsite} {ctx.remaining():.0f}"
