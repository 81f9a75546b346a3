"""The queues `ledger` and `ledger-b`; their handlers use TEST_DIRECT_URL, which goes past the engine's relay."""

import os
from collections.abc import Callable
from functools import partial

from supervisor import DB, Scheduled, Worker
from tests.support.queues import ledger


def new_worker(db: DB, queue: str) -> Worker:
    return ledger.new_worker(DB(os.environ["TEST_DIRECT_URL"]), queue=queue)


registry: list[Callable[[DB], Worker]] = [partial(new_worker, queue=queue) for queue in ("ledger", "ledger-b")]
schedule: list[Scheduled] = []
