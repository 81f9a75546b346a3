"""A registry of processes that die: by a signal, by an exit, at their start, or not at all when asked to.

With TEST_FORKS set to a file's name, the parent writes a line to it before each fork: its number of threads.
"""

import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from supervisor import DB, Context, Scheduled, Worker
from tests.support.queues import ledger, quick
from tests.support.queues.settings import POLL_INTERVAL

_parent = os.getpid()  # a registry is imported in the parent


class Number(msgspec.Struct):
    number: int = 0


class Answer(msgspec.Struct):
    text: str = "ok"
    seconds: float = 0.0
    ledger: str = ""  # a file that gets a line for each run: the job's id


def new_worker(db: DB) -> Worker:
    return Worker(
        queue="mortal",
        handlers={
            "mortal.Answer": answer,
            "mortal.Exit": leave,
            "mortal.Signal": signal_itself,
            "mortal.Deaf": deaf,
        },
        poll_interval=POLL_INTERVAL,
    )


def new_doomed_worker(db: DB) -> Worker:
    """Once its first job has run, each of its processes ends as it starts: it asks the throttle how long to rest."""
    return Worker(queue="doomed", handlers={"doomed.Ok": answer}, throttle=deadly, poll_interval=POLL_INTERVAL)


def deadly(status: str, error: BaseException | None, elapsed: float) -> float:
    os._exit(5)


def answer(ctx: Context, args: Answer) -> str:
    if args.ledger:
        with Path(args.ledger).open("a") as lines:
            lines.write(f"{ctx.job.id}\n")
    time.sleep(args.seconds)
    return args.text


def leave(ctx: Context, args: Number) -> str:
    os._exit(args.number)


def signal_itself(ctx: Context, args: Number) -> str:
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))
    os.kill(os.getpid(), args.number)
    return f"survived signal {args.number}"


def deaf(ctx: Context, args: dict[str, Any]) -> str:
    """Nothing short of SIGKILL ends it."""
    for signo in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signo not in (32, 33):  # the C library keeps these for itself
            signal.signal(signo, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        time.sleep(60)


def _note_threads() -> None:
    if os.getpid() == _parent:
        threads = len(list(Path("/proc/self/task").iterdir()))
        with Path(os.environ["TEST_FORKS"]).open("a") as lines:
            lines.write(f"{threads}\n")


if "TEST_FORKS" in os.environ:
    os.register_at_fork(before=_note_threads)

registry: list[Callable[[DB], Worker]] = [new_worker, new_doomed_worker, quick.new_worker, *ledger.new_workers]
schedule: list[Scheduled] = []
