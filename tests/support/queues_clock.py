"""A registry of its own for the tests of the clock: a queue that ends its jobs at once, and entries that fail."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from supervisor import DB, Context, Scheduled, Worker


def new_worker(db: DB) -> Worker:
    return Worker(queue="ticks", handlers={"ticks.Ok": ok, "ticks.Never": ok, "ticks.Unstorable": ok})


def ok(ctx: Context, args: dict[str, Any]) -> str:
    return "ok"


def every_minute(minute: datetime) -> bool:
    return True


def failing(minute: datetime) -> bool:
    raise LookupError("no such minute")


registry: list[Callable[[DB], Worker]] = [new_worker]

# The one that works comes last: the others must not stop it.
schedule: list[Scheduled] = [
    Scheduled("ticks", "ticks.Never", failing),
    Scheduled("ticks", "ticks.Unstorable", every_minute, {"ratio": float("nan")}),
    Scheduled("ticks", "ticks.Ok", every_minute),
]
