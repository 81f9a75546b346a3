"""A registry of one queue whose jobs write to a file, not to a database, that they are alive; and of quick ones."""

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from supervisor import DB, Context, JobTimeout, Scheduled, Worker
from tests.support.queues import quick, sleeps
from tests.support.queues.settings import JOB_TIMEOUT, POLL_INTERVAL

EVERY = 0.02  # seconds


class Beating(msgspec.Struct):
    file: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Beat:
    """That a job's handler ran at a moment, on the machine's CLOCK_BOOTTIME, which all its namespaces share."""

    host: str
    id: int
    moment: float


def new_worker(db: DB) -> Worker:
    return Worker(queue="beats", handlers={"beats.Beat": beat}, job_timeout=JOB_TIMEOUT, poll_interval=POLL_INTERVAL)


def beat(ctx: Context, args: Beating) -> str:
    """It beats on past its deadline, until it has had its time or is killed."""
    host = os.environ.get("HOSTNAME") or socket.gethostname()
    until = time.monotonic() + args.seconds
    file = os.open(args.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        try:
            os.write(file, f"{host} {ctx.job.id} {time.clock_gettime(time.CLOCK_BOOTTIME)}\n".encode())
            os.fsync(file)
            if time.monotonic() >= until:
                os.close(file)
                return "ok"
            time.sleep(EVERY)
        except JobTimeout:
            continue


def beats(file: Path) -> list[Beat]:
    """In the order in which they were written."""
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [Beat(host, int(id), float(moment)) for host, id, moment in lines]


registry: list[Callable[[DB], Worker]] = [new_worker, quick.new_worker, sleeps.new_worker]
schedule: list[Scheduled] = []
