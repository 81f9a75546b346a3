"""caches.Age: delete expired rows of the cache table, in batches."""

from pathlib import Path

from supervisor import DB, Context, skip

BATCH = 1_000  # rows in one transaction: short locks, and what was done stays done

_AGE = (Path(__file__).parent / "age.sql").read_bytes()


def age(ctx: Context, args: dict[str, object], *, db: DB) -> str:
    deleted = 0
    while True:
        with db.connection() as connection:
            batch = connection.execute(_AGE, {"batch": BATCH}).rowcount
        deleted += batch
        if batch < BATCH:
            return f"ok: {deleted} expired" if deleted else skip("nothing has expired")
