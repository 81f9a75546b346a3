"""The queue `jobs`: keeps the table of jobs itself from growing."""

import os
from functools import partial

from queues.jobs.clean_up_queues import clean_up_queues
from supervisor import DB, Worker

RETENTION_DAYS = 30


def new_worker(db: DB) -> Worker:
    days = float(os.environ.get("JOBS_RETENTION_DAYS") or RETENTION_DAYS)
    if not days > 0:
        raise ValueError("JOBS_RETENTION_DAYS must be more than 0")
    return Worker(
        queue="jobs",
        handlers={"jobs.CleanUpQueues": partial(clean_up_queues, db=db, retention_days=days)},
        job_timeout=1800,
    )
