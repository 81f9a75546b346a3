"""A registry of handlers that fork away from their process: double forks, whose grandchildren fall to PID 1."""

import os
import time
from collections.abc import Callable
from typing import Any

import msgspec

from supervisor import DB, Context, Scheduled, Worker
from tests.support.queues import ledger, quick, sleeps
from tests.support.queues.settings import POLL_INTERVAL

QUEUES = ("forks", "forks-b", "forks-c", "forks-d")


class Fork(msgspec.Struct):
    number: int = 0
    seconds: float = 0.0  # that the grandchild outlives the job


def new_worker(db: DB, queue: str) -> Worker:
    return Worker(
        queue=queue, handlers={"forks.Double": double_fork, "forks.Parent": parent}, poll_interval=POLL_INTERVAL
    )


def double_fork(ctx: Context, args: Fork) -> str:
    """A grandchild whose parent ends at once, in the child's group or, every second time, in a session of its own."""
    if (child := os.fork()) == 0:
        if args.number % 2:
            os.setsid()
        if os.fork() == 0:
            time.sleep(args.seconds)
            os._exit(args.number % 7)
        os._exit(0)
    os.waitpid(child, 0)
    return "ok"


def parent(ctx: Context, args: dict[str, Any]) -> str:
    return f"{os.getppid()}"


def _worker_of(queue: str) -> Callable[[DB], Worker]:
    return lambda db: new_worker(db, queue)


registry: list[Callable[[DB], Worker]] = [
    *map(_worker_of, QUEUES),
    quick.new_worker,
    sleeps.new_worker,
    *ledger.new_workers,
]
schedule: list[Scheduled] = []
