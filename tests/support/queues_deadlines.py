"""A registry with a queue for each stubborn handler, so that their deadlines pass side by side."""

import asyncio
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from supervisor import DB, Context, Scheduled, Worker
from tests.support.processes import process
from tests.support.queues import quick, stubborn
from tests.support.queues.settings import POLL_INTERVAL
from tests.support.queues.stubborn import JOB_TIMEOUT, ok

BRIEF = 0.05  # seconds


class Moment(msgspec.Struct):
    before: float  # seconds from the handler's end to the deadline; negative: it would end after


class Place(msgspec.Struct):
    file: str


async def asynchronous(ctx: Context, args: dict[str, Any]) -> str:
    await asyncio.sleep(86_400)
    return "slept a day"


async def swallowing_task(ctx: Context, args: dict[str, Any]) -> str:
    """The exception becomes that of a task which nobody awaits, so that it does not end the loop."""

    async def spin() -> None:
        while True:
            pass

    task = asyncio.ensure_future(spin())
    while True:
        await asyncio.wait({task}, timeout=0.1)


def answer_late(ctx: Context, args: dict[str, Any]) -> str:
    """Swallows its deadline and answers as if nothing had been."""
    try:
        time.sleep(86_400)
    except BaseException:  # noqa: BLE001 - the fault that this is about
        return "ok"
    return "slept a day"


def leave_deaf_program(ctx: Context, args: Place) -> str:
    """A program that ignores SIGTERM, still running when the deadline comes."""
    program = subprocess.Popen(["/bin/sh", "-c", "trap '' TERM INT HUP ALRM; while :; do sleep 1; done"])
    Path(args.file).write_text(str(program.pid))
    time.sleep(86_400)
    return "slept a day"


def look_for_it(ctx: Context, args: Place) -> str:
    try:
        return "fail: still there" if process(int(Path(args.file).read_text())).alive else "gone"
    except ProcessLookupError:
        return "gone"


def end_around_the_deadline(ctx: Context, args: Moment) -> str:
    rest = ctx.remaining() - args.before
    until = time.monotonic() + rest
    while time.monotonic() < until:
        pass
    return "in time"


def commit(ctx: Context, args: dict[str, Any], *, db: DB) -> str:
    with db.connection() as connection:
        connection.execute("INSERT INTO slow VALUES (%s)", (ctx.job.id,))
    return "ok"


def nap(ctx: Context, args: dict[str, Any]) -> str:
    time.sleep(0.6)
    return "ok"


# By the name of the queue: those that the alarm ends, and those that only the kernel ends.
AT_THE_DEADLINE: dict[str, Callable[..., Any]] = {
    "sleep": stubborn.sleep,
    "regex": stubborn.regex,
    "read": stubborn.read,
    "query": stubborn.query,
    "usleep": stubborn.usleep,
    "subprocess": stubborn.deaf_subprocess,
    "asynchronous": asynchronous,
    "answer-late": answer_late,
}
AFTER_THE_GRACE: dict[str, Callable[..., Any]] = {
    "spin": stubborn.spin,
    "swallow": stubborn.swallow,
    "swallowing-task": swallowing_task,
    "ignore": stubborn.ignore,
    "block": stubborn.block,
    "stop": stubborn.stop,
}


def new_worker(db: DB, queue: str, handler: Callable[..., Any]) -> Worker:
    if handler is stubborn.query:
        handler = partial(stubborn.query, db=db)
    return Worker(
        queue=queue, handlers={"Stubborn": handler, "Ok": ok}, job_timeout=JOB_TIMEOUT, poll_interval=POLL_INTERVAL
    )


def new_leaving_worker(db: DB) -> Worker:
    return Worker(
        queue="leaves",
        handlers={"Leave": leave_deaf_program, "Look": look_for_it},
        job_timeout=JOB_TIMEOUT,
        poll_interval=POLL_INTERVAL,
    )


def new_brief_worker(db: DB) -> Worker:
    return Worker(queue="brief", handlers={"End": end_around_the_deadline}, job_timeout=BRIEF, poll_interval=1)


def new_committing_worker(db: DB) -> Worker:
    handlers = {"Commit": partial(commit, db=db), "Nap": nap}
    return Worker(queue="commits", handlers=handlers, job_timeout=JOB_TIMEOUT, poll_interval=POLL_INTERVAL)


registry: list[Callable[[DB], Worker]] = [
    *(
        partial(new_worker, queue=queue, handler=handler)
        for queue, handler in (AT_THE_DEADLINE | AFTER_THE_GRACE).items()
    ),
    new_leaving_worker,
    new_brief_worker,
    new_committing_worker,
    quick.new_worker,
]
schedule: list[Scheduled] = []
