"""A registry of its own for the tests of traces and check-ins: the clock enqueues in `ticked` only."""

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import sentry_sdk

from supervisor import DB, Context, Scheduled, Worker, fail, insert


def traced(db: DB) -> Worker:
    return Worker(
        queue="traced",
        handlers={
            "traced.Ok": ok,
            "traced.Raise": raising,
            "traced.Fail": failing,
            "traced.Follow": partial(follow, db=db),
            "traced.Sleep": sleep,
            "traced.Tag": tag,
        },
    )


def ticked(db: DB) -> Worker:
    return Worker(
        queue="ticked",
        handlers={"ticked.Minutely": ok, "ticked.Raise": raising, "ticked.Sleep": sleep, "ticked.Die": die},
    )


def ok(ctx: Context, args: dict[str, Any]) -> str:
    return "ok"


def raising(ctx: Context, args: dict[str, Any]) -> str:
    raise RuntimeError("a fault")


def failing(ctx: Context, args: dict[str, Any]) -> str:
    return fail("a negative answer")


def die(ctx: Context, args: dict[str, Any]) -> str:
    os._exit(3)


def follow(ctx: Context, args: dict[str, Any], *, db: DB) -> str:
    return f"enqueued {insert(db, 'traced', 'traced.Ok', {'by': ctx.job.id})}"


def sleep(ctx: Context, args: dict[str, Any]) -> str:
    time.sleep(args["seconds"])
    return "ok"


def tag(ctx: Context, args: dict[str, Any]) -> str:
    sentry_sdk.set_tag("customer", "of this job")
    return "ok"


registry: list[Callable[[DB], Worker]] = [traced, ticked]

schedule: list[Scheduled] = [
    Scheduled("ticked", "ticked.Minutely", lambda minute: True),
    Scheduled(
        "ticked", "ticked.Raise", lambda minute: minute.year == 1
    ),  # never: the tests enqueue it as the clock would
]
