"""A registry of equal queues, so that what stands in the way of each is told apart by its name."""

from collections.abc import Callable
from functools import partial

from supervisor import DB, Scheduled, Worker
from tests.support.queues.settings import POLL_INTERVAL
from tests.support.queues_deaths import answer

QUEUES = ("own", "own-killed", "next", "next-killed", "cut", "cut-killed")


def new_worker(db: DB, queue: str) -> Worker:
    return Worker(queue=queue, handlers={"Answer": answer}, poll_interval=POLL_INTERVAL)


registry: list[Callable[[DB], Worker]] = [partial(new_worker, queue=queue) for queue in QUEUES]
schedule: list[Scheduled] = []
