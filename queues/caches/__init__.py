"""The queue `caches`: keeps the cache table that API clients share from growing."""

from functools import partial

from queues.caches.age import age
from supervisor import DB, Worker


def new_worker(db: DB) -> Worker:
    return Worker(queue="caches", handlers={"caches.Age": partial(age, db=db)})
