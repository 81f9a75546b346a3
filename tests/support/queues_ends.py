"""A registry for every way in which a handler can end, also those that `args` in JSON cannot describe."""

from collections.abc import Callable
from typing import Any

from supervisor import DB, Context, Scheduled, Worker
from tests.support.queues import ledger, quick, rude, sleeps
from tests.support.queues.settings import POLL_INTERVAL

HUGE = 50_000_000  # characters


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text for you")


def new_worker(db: DB) -> Worker:
    return Worker(
        queue="ends",
        handlers={
            "ends.RaiseNul": raise_nul,
            "ends.RaiseSurrogate": raise_surrogate,
            "ends.RaiseHuge": raise_huge,
            "ends.RaiseBlank": raise_blank,
            "ends.RaiseUnprintable": raise_unprintable,
            "ends.ReturnNul": return_nul,
            "ends.ReturnHuge": return_huge,
            "ends.ReturnBytes": return_bytes,
        },
        poll_interval=POLL_INTERVAL,
    )


def raise_nul(ctx: Context, args: dict[str, Any]) -> str:
    raise RuntimeError("before\0after")


def raise_surrogate(ctx: Context, args: dict[str, Any]) -> str:
    raise RuntimeError("half \ud83d of it")


def raise_huge(ctx: Context, args: dict[str, Any]) -> str:
    raise RuntimeError("\u20ac" * HUGE)


def raise_blank(ctx: Context, args: dict[str, Any]) -> str:
    raise RuntimeError(" \n")


def raise_unprintable(ctx: Context, args: dict[str, Any]) -> str:
    raise Unprintable


def return_nul(ctx: Context, args: dict[str, Any]) -> str:
    return "fail: before\0after"


def return_huge(ctx: Context, args: dict[str, Any]) -> str:
    return "\U0001f6b4" * 100_000  # four bytes each


def return_bytes(ctx: Context, args: dict[str, Any]) -> Any:
    return b"ok"


registry: list[Callable[[DB], Worker]] = [
    new_worker,
    quick.new_worker,
    rude.new_worker,
    sleeps.new_worker,
    *ledger.new_workers,
]
schedule: list[Scheduled] = []
