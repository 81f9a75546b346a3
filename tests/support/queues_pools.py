"""A registry of handlers that spread their work over other processes, in each way that Python has; some are left."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

from supervisor import DB, Context, Scheduled, Worker
from tests.support.queues.settings import POLL_INTERVAL

_kept: list[object] = []  # out of the collector's reach


def new_worker(db: DB) -> Worker:
    contexts = ("fork", "spawn", "forkserver")
    return Worker(
        queue="pools",
        handlers={
            **{f"pools.Pool-{context}": partial(pool, context=context) for context in contexts},
            **{f"pools.Left-{context}": partial(pool, context=context, left=True) for context in contexts},
            "pools.Executor": executor,
            "pools.Manager": manager,
        },
        job_timeout=30,
        poll_interval=POLL_INTERVAL,
    )


def pool(ctx: Context, args: dict[str, Any], *, context: str, left: bool = False) -> str:
    workers = multiprocessing.get_context(context).Pool(2)
    found = workers.map(abs, [-1, -2, -3])
    if left:
        _kept.append(workers)
    else:
        workers.terminate()
        workers.join()
    return f"ok {found}"


def executor(ctx: Context, args: dict[str, Any]) -> str:
    """Never shut down: the interpreter's exit would wait for its processes."""
    made = ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))
    _kept.append(made)
    return f"ok {list(made.map(abs, [-1, -2, -3]))}"


def manager(ctx: Context, args: dict[str, Any]) -> str:
    """A server process of its own, which stays."""
    made = multiprocessing.get_context("spawn").Manager()
    _kept.append(made)
    shared = made.list([1, 2])
    shared.append(3)
    return f"ok {list(shared)}"


registry: list[Callable[[DB], Worker]] = [new_worker]
schedule: list[Scheduled] = []
