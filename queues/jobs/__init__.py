"""The queue `jobs`: keeps the table of jobs itself from growing, and tells of it each day."""

import os
from functools import partial

from queues.jobs.clean_up_queues import clean_up_queues
from queues.jobs.post_digest import post_digest
from supervisor import DB, Worker

RETENTION_DAYS = 30


def new_worker(db: DB) -> Worker:
    channels = [queue for queue in ("slack", "discord") if os.environ.get(f"{queue.upper()}_CHANNEL", "").strip()]
    return Worker(
        queue="jobs",
        handlers={
            "jobs.CleanUpQueues": partial(clean_up_queues, db=db, retention_days=retention_days()),
            "jobs.PostDigest": partial(post_digest, db=db, channels=channels),
        },
        job_timeout=1800,
    )


def retention_days() -> float:
    """JOBS_RETENTION_DAYS, by default RETENTION_DAYS. Raises ValueError."""
    given = os.environ.get("JOBS_RETENTION_DAYS") or str(RETENTION_DAYS)
    try:
        days = float(given)
    except ValueError:
        days = 0.0
    if not 0 < days < 100_000:
        raise ValueError(f"JOBS_RETENTION_DAYS={given}: a number of days, more than 0")
    return days
