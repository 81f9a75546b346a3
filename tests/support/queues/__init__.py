"""The registry of the process tests: queues that answer, sleep, crash, get stuck and misbehave.

It uses the public names of `supervisor` only, as a registry from outside does. The environment of a test may set
TEST_JOB_TIMEOUT (seconds, of the queues whose worker sets none) and TEST_POLL_INTERVAL (seconds, of all).
"""

from collections.abc import Callable
from datetime import datetime

from supervisor import DB, Scheduled, Worker
from tests.support.queues import crash, ledger, quick, rude, sleeps, stubborn, vendor


def every_minute(minute: datetime) -> bool:
    return True


registry: list[Callable[[DB], Worker]] = [
    quick.new_worker,
    quick.new_deduping_worker,
    quick.new_clock_worker,
    quick.new_paced_worker,
    sleeps.new_worker,
    *ledger.new_workers,
    vendor.new_worker,
    crash.new_worker,
    stubborn.new_worker,
    rude.new_worker,
]

# A queue of its own, so that a minute that passes during a test adds no row to another queue.
schedule: list[Scheduled] = [Scheduled("clock", "test.Dedupe", every_minute)]
