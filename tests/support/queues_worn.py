"""Queues whose process is replaced after a number of jobs, or once it has grown. Each job answers its pid."""

import os

from supervisor import DB, Context, Scheduled, UnexpectedStatus, Worker

MEGABYTE = 1 << 20
leaked: list[bytes] = []


def tell(ctx: Context, args: dict[str, object]) -> str:
    return f"ok: {os.getpid()}"


def leak(ctx: Context, args: dict[str, object]) -> str:
    leaked.append(b"x" * (30 * MEGABYTE))
    return f"ok: {os.getpid()}"


def refuse(ctx: Context, args: dict[str, object]) -> str:
    raise UnexpectedStatus(401)


def counted(db: DB) -> Worker:
    return Worker(queue="counted", handlers={"counted.Tell": tell}, max_jobs=3)


def leaking(db: DB) -> Worker:
    return Worker(queue="leaking", handlers={"leaking.Tell": tell, "leaking.Leak": leak}, max_rss=50 * MEGABYTE)


def refused(db: DB) -> Worker:
    return Worker(queue="refused", handlers={"refused.Refuse": refuse}, max_jobs=1)


registry = [counted, leaking, refused]
schedule: list[Scheduled] = []
