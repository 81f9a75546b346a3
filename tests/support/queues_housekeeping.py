"""The queue `jobs` that comes with Paceline, and an ordinary one beside it."""

from collections.abc import Callable

from queues import jobs
from supervisor import DB, Scheduled, Worker
from tests.support.queues import quick

registry: list[Callable[[DB], Worker]] = [jobs.new_worker, quick.new_worker]
schedule: list[Scheduled] = []
