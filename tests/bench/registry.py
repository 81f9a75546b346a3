"""The queues that are measured: forty, each with the same handlers, which import nothing new."""

import os
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

from supervisor import DB, Context, Scheduled, Worker
from tests.bench import timing

QUEUES = [f"q{number:02}" for number in range(40)]
NOTHING, STAMP, POOL, TIMES = "bench.Nothing", "bench.Stamp", "bench.Pool", "bench.Times"
NEVER = "bench.Never"  # scheduled, so that the clock runs; a name of its own, since what is scheduled is deduped
OUTPUT = "BENCH_OUTPUT"  # the file that handlers append to


def nothing(ctx: Context, args: dict[str, object]) -> str:
    return "ok"


def stamp(ctx: Context, args: dict[str, int]) -> str:
    """Seconds from before the enqueue to this line."""
    now = time.monotonic_ns()
    _write(f"{(now - args['sent']) / 1e9}\n")
    return "ok"


def open_the_pool(ctx: Context, args: dict[str, object], *, db: DB) -> str:
    with db.connection() as connection:
        connection.execute("SELECT 1")
    return "ok"


def times(ctx: Context, args: dict[str, object]) -> str:
    """What this process has measured of its jobs since the last time it was asked."""
    _write(timing.taken())
    return "ok"


def _write(text: str) -> None:
    with Path(os.environ[OUTPUT]).open("a") as file:
        file.write(text)


def _worker(queue: str) -> Callable[[DB], Worker]:
    def new(db: DB) -> Worker:
        handlers: dict[str, Callable[..., str]] = {
            NOTHING: nothing,
            STAMP: stamp,
            POOL: partial(open_the_pool, db=db),
            TIMES: times,
            NEVER: nothing,
        }
        return Worker(queue=queue, handlers=handlers)

    return new


def never(minute: datetime) -> bool:
    return False


registry = [_worker(queue) for queue in QUEUES]
schedule = [Scheduled("q00", NEVER, never)]
