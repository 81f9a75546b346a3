"""jobs.CleanUpQueues: delete finished rows past retention, in batches."""

from pathlib import Path

from supervisor import DB, Context, skip

BATCH = 1_000  # rows in one transaction: no long lock, and what was done stays done
DAY = 86_400  # seconds

_HERE = Path(__file__).parent
_QUEUES = (_HERE / "queues_with_finished_rows.sql").read_bytes()
_CLEAN_UP = (_HERE / "clean_up_queues.sql").read_bytes()


def clean_up_queues(ctx: Context, args: dict[str, object], *, db: DB, retention_days: float) -> str:
    with db.connection() as connection:
        queues = [queue for (queue,) in connection.execute(_QUEUES)]
    deleted = sum(_clean_up(db, queue, retention_days * DAY) for queue in queues)
    return f"ok: {deleted} deleted" if deleted else skip(f"nothing is older than {retention_days:g} days")


def _clean_up(db: DB, queue: str, seconds: float) -> int:
    deleted = 0
    while True:
        with db.connection() as connection:
            connection.execute("SET LOCAL TimeZone TO 'UTC'")  # an older table's times have no zone and are in UTC
            parameters = {"queue": queue, "seconds": seconds, "batch": BATCH}
            batch = connection.execute(_CLEAN_UP, parameters).rowcount
        deleted += batch
        if batch < BATCH:
            return deleted
