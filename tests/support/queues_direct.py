"""The queue `ledger`; its handlers use TEST_DIRECT_URL: they go past the relay that the engine goes through."""

import os
from collections.abc import Callable

from supervisor import DB, Scheduled, Worker
from tests.support.queues import ledger


def new_worker(db: DB) -> Worker:
    return ledger.new_worker(DB(os.environ["TEST_DIRECT_URL"]), queue="ledger")


registry: list[Callable[[DB], Worker]] = [new_worker]
schedule: list[Scheduled] = []
