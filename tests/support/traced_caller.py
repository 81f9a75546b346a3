"""A program that enqueues, with a Sentry of its own: `python -m tests.support.traced_caller URL DSN`, ids to stdout.

In order: outside of any transaction; then inside of one insert, the same again (deduped), insert_many, insert_async.
"""

import asyncio
import json
import sys

import psycopg
import sentry_sdk

from supervisor import DB, insert, insert_async, insert_many


async def enqueue_async(url: str) -> int:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        return await insert_async(connection, "later", "later.Ok", {"number": 4})


def main(url: str, dsn: str) -> None:
    sentry_sdk.init(dsn, traces_sample_rate=1.0, default_integrations=False, auto_enabling_integrations=False)
    db = DB(url)
    ids: list[int | list[int]] = [insert(db, "desk", "desk.Ok")]
    with sentry_sdk.start_transaction(op="test", name="a caller"):
        ids.append(insert(db, "desk", "test.Dedupe", {"é": 1}))
        ids.append(insert(db, "desk", "test.Dedupe", {"é": 1}))
        jobs = [("many", "many.Ok", {"n": 1}), ("few", "few.Ok", {}), ("many", "many.Ok", {"n": 22})]
        ids.append(insert_many(db, [*jobs, ("desk", "test.Dedupe", {"é": 1})]))
        ids.append(asyncio.run(enqueue_async(url)))
    sentry_sdk.flush(5)
    db.close()
    print(json.dumps(ids))  # noqa: T201 - for the test


main(*sys.argv[1:])
