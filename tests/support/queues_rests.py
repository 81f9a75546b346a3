"""A registry of its own for the tests of rests: throttles that fail or answer oddly, a refusal at a chosen moment."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from supervisor import DB, Context, RateLimited, Scheduled, UnexpectedStatus, Worker


class Text(msgspec.Struct):
    text: str


class Refusal(msgspec.Struct):
    file: str  # whose existence is waited for
    code: int = 0  # HTTP status; 0: rate limited for an hour


def new_broken_worker(db: DB) -> Worker:
    return Worker(queue="broken", handlers={"broken.Ok": ok}, throttle=broken_throttle)


def new_odd_worker(db: DB) -> Worker:
    return Worker(queue="odd", handlers={"odd.Echo": echo, "odd.RateLimited": rate_limited}, throttle=odd_throttle)


def new_refused_worker(db: DB) -> Worker:
    return Worker(queue="refused", handlers={"refused.Wait": wait_and_refuse, "refused.Ok": ok})


def broken_throttle(status: str, error: BaseException | None, elapsed: float) -> float:
    return 1 / len(status.removeprefix("ok"))


def odd_throttle(status: str, error: BaseException | None, elapsed: float) -> float:
    """What the status says: `inf`, `-1`, `1e12`."""
    return float(status)


def ok(ctx: Context, args: dict[str, Any]) -> str:
    return "ok"


def echo(ctx: Context, args: Text) -> str:
    return args.text


def rate_limited(ctx: Context, args: Text) -> str:
    raise RateLimited(float(args.text))


def wait_and_refuse(ctx: Context, args: Refusal) -> str:
    while not Path(args.file).exists():
        time.sleep(0.01)
    raise UnexpectedStatus(args.code) if args.code else RateLimited(3600)


registry: list[Callable[[DB], Worker]] = [new_broken_worker, new_odd_worker, new_refused_worker]

schedule: list[Scheduled] = []
